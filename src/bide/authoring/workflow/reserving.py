"""Signal ids that are held before the run reaches their wait, so that an early answer is let in (F7)."""

from __future__ import annotations

from collections import deque

from bide.authoring.workflow.asks import Waiting


class Reservations:
    """Which step ids were reserved in this turn, and what became of them."""

    def __init__(self) -> None:
        self._keys: dict[str, deque[str]] = {}  # by the id that will take them
        self._opened: dict[str, Waiting | None] = {}  # by key; None where it was there before this turn

    def __contains__(self, key: str) -> bool:
        return key in self._opened

    @property
    def keys(self) -> set[str]:
        return set(self._opened)

    def hold(self, id: str, key: str) -> None:
        """The next wait for a signal of this id gets this key."""
        self._keys.setdefault(id, deque()).append(key)

    def take(self, id: str) -> str | None:
        return self._keys[id].popleft() if self._keys.get(id) else None

    def open(self, key: str, waiting: Waiting | None) -> None:
        self._opened[key] = waiting

    def reach(self, waiting: Waiting, opens: list[Waiting]) -> list[Waiting]:
        """Let a wait take its reservation: the one that is committed, or else the place of the one that is not yet."""
        reserved = self._opened.get(waiting.key)
        if reserved is not None:
            waiting.reaches = reserved.no
        return [other for other in opens if other is not reserved]
