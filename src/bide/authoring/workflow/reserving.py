"""Signal ids that are held before the run reaches their wait, so that an early answer is let in (F7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from bide.authoring.workflow.asks import Waiting


class Reservations:
    """Which step ids were reserved in this turn, and what became of them."""

    def __init__(self) -> None:
        self._keys: dict[str, deque[str]] = {}  # by the id that will take them
        self._opened: dict[str, Waiting | None] = {}  # by key; None where it was there before this turn
        self._names: dict[str, str] = {}  # signal ids by key, of those that the body has not waited for yet

    def __contains__(self, key: str) -> bool:
        return key in self._opened

    @property
    def keys(self) -> set[str]:
        return set(self._opened)

    def hold(self, id: str, key: str) -> None:
        """The next wait for a signal of this id gets this key."""
        self._keys.setdefault(id, deque()).append(key)

    def drop(self, id: str, key: str) -> None:
        """Another run holds the signal id: the next wait of this id is one by itself."""
        if key in self._keys.get(id, ()):
            self._keys[id].remove(key)

    def take(self, id: str) -> str | None:
        return self._keys[id].popleft() if self._keys.get(id) else None

    def open(self, key: str, signal_id: str, waiting: Waiting | None) -> None:
        self._opened[key] = waiting
        self._names[key] = signal_id

    def arrive(self, key: str) -> None:
        """The body waits for it."""
        self._names.pop(key, None)

    @property
    def unreached(self) -> Mapping[str, str]:
        """Signal ids by key that the body reserved and has not waited for."""
        return self._names

    def number(self, key: str) -> int | None:
        """The number of the wait that this turn reserved."""
        waiting = self._opened.get(key)
        return waiting.no if waiting is not None else None

    def reach(self, waiting: Waiting, opens: list[Waiting]) -> list[Waiting]:
        """Let a wait take its reservation: the one that is committed, or else the place of the one that is not yet."""
        reserved = self._opened.get(waiting.key)
        if reserved is not None:
            waiting.reaches = reserved.no
        return [other for other in opens if other is not reserved]
