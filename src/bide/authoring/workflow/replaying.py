"""What a run has stored: by its keys, and in the order in which a replay hands it back (F1–F3)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias

from bide.authoring.checks import check_text, is_name
from bide.authoring.workflow.asks import Code, Waiting
from bide.core.records import StepRow

Asked: TypeAlias = Code | Waiting | Callable[[], None]  # a plain call is the run's cancelling


class Replay:
    """The stored results of one run, and those of them that the body has asked for and not got yet."""

    def __init__(self, steps: Iterable[StepRow]) -> None:
        self.stored = {step.key: step for step in steps}
        self.keys: set[str] = set()  # that are in use
        self._uses: dict[str, int] = {}
        self._asked: list[tuple[int, str, Asked]] = []

    def key(self, id: str) -> str:
        """The id, or `id#2` for its second use; never one that is in use already (law 7)."""
        uses = self._uses.get(id, 0) if isinstance(id, str) else 0
        if not uses:
            if not is_name(id):
                check_text(id, "step id")
            if id not in self.keys:
                self.keys.add(id)
                self._uses[id] = 1
                return id
        while True:
            uses += 1
            key = id if uses == 1 else f"{id}#{uses}"
            if key not in self.keys:
                self.keys.add(key)
                self._uses[id] = uses
                return key

    def ask(self, row: StepRow, asked: Asked) -> None:
        """Put what the body asked for among the rest, by its place in the order."""
        heapq.heappush(self._asked, (row.seq, row.key, asked))

    def is_next(self, row: StepRow) -> bool:
        """Whether this would be the first to be handed back, were it asked for now."""
        return not self._asked or (row.seq, row.key) < self._asked[0][:2]

    @property
    def first(self) -> Asked | None:
        return self._asked[0][2] if self._asked else None

    def take(self) -> tuple[str, Asked]:
        """The first, which is handed back now."""
        _, key, asked = heapq.heappop(self._asked)
        return key, asked

    @property
    def asked(self) -> list[Asked]:
        return [asked for _, _, asked in self._asked]


class Given:
    """A result that whoever awaits it has at once."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.value
        yield  # so that this is a generator, one that ends before it waits
