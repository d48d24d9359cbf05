"""A wait and its interactions, while one command changes one or very many of them (U4, U6).

The counts of the wait and the stream behind it are taken once and put away once, however many interactions change:
thousands of answers to one wait come in together.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import streams
from bide.core.batch import Draft
from bide.core.exchanges import counts, settle, unit_of
from bide.core.exchanging import terms_of
from bide.core.hiding import told_digest
from bide.core.interactions import INTERACTION_MOVES, UNSENT, told
from bide.core.moves import close_wait, wake
from bide.core.records import Interaction, InteractionStatus, Item, Run, Wait
from bide.core.streaming import ItemOffer


class Tally:
    """Nothing of the counts stands until `close`."""

    def __init__(self, draft: Draft, run: Run, wait: Wait, offer: ItemOffer | None = None) -> None:
        self.draft = draft
        self._offer = offer
        self.run = run
        self.wait = wait
        self.terms = terms_of(wait)
        self.unit = unit_of(draft, wait)
        self._stream: streams.Stream | None = None
        self._answer: str | None = None  # of a wait that has only one interaction

    def row(self, item: int) -> Interaction | None:
        """An interaction as it is by now."""
        key = (self.wait.run_id, self.wait.no, item)
        return self.draft.outside.interactions.get(key) or self.draft.view.outside.interactions.get(key)

    def move(self, row: Interaction, status: InteractionStatus, **changes: Any) -> Interaction:
        """Bring an interaction to another status; one that leaves `pending` is out of the outbox's hands."""
        assert status in INTERACTION_MOVES[row.status], f"{row.id} is {row.status}"
        if row.status == "pending":
            self.unit = replace(self.unit, handed=self.unit.handed + 1)
        row = replace(row, status=status, **changes)
        self.draft.outside.interactions[(row.run_id, row.no, row.item)] = row
        return row

    def send(self, row: Interaction) -> Interaction:
        row = self.move(row, "waiting")
        self.tell("await_interaction_dispatched", {**told(row), "timeout": self.wait.deadline})
        return row

    def complete(self, row: Interaction, data: str, digest: str, by: str | None, id: str) -> None:
        """An answer that is let in: its item goes on, whatever the others do."""
        if row.status in UNSENT or self.run.status != "waiting":
            self.draft.view.early += 1
        row = self.move(row, "completed", closed_at=self.draft.now, answer=data, digest=digest, answered_by=by)
        self.unit = replace(self.unit, received=self.unit.received + 1)
        shown = told_digest(self.draft, self.run, data, digest)
        entry = {**told(row), **counts(self.wait, self.unit), "id": id, "digest": shown}
        if by is not None:
            entry["by"] = by
        self.tell("await_unit_item_completed", entry)
        if not self.terms.items:
            self._answer = data
        elif self.run.style == "pipeline":
            self._items().answered(self.wait.no, row.item, data)

    def lose(self, row: Interaction, status: InteractionStatus, reason: str) -> None:
        """An item that comes to nothing: the others go on without it."""
        row = self.fail(row, status, reason)
        self.unit = replace(self.unit, received=self.unit.received + 1, rejected=self.unit.rejected + 1)
        self.tell("await_unit_item_rejected", {**told(row), **counts(self.wait, self.unit), "reason": reason})
        if self.run.style == "pipeline":
            self._items().refused(self.wait.no, row.item, reason)

    def fail(self, row: Interaction, status: InteractionStatus, reason: str) -> Interaction:
        said = msgspec.json.encode([{"reason": reason}]).decode()
        return self.move(row, status, closed_at=self.draft.now, answers=said)

    def tell(self, name: str, data: dict[str, Any]) -> None:
        self.run = self.draft.record(self.run, name, data)

    def _items(self) -> streams.Stream:
        if self._stream is None:
            self._stream = streams.Stream(self.draft, self.run)
            self._stream.offer = self._offer
        return self._stream

    @property
    def handed(self) -> tuple[Item, ...]:
        """The items that are worked on by whoever brought their answers."""
        stream = self._stream
        return tuple(stream.handed) if stream is not None and not stream.progress.restart else ()

    def close(self) -> bool:
        """Put the counts away, and let the wait and its run go on where that was all; whether the run did."""
        draft, was_waiting = self.draft, self.run.status == "waiting"
        if self._answer is not None:
            draft.put_unit(self.unit)
            self.run = close_wait(draft, self.run, self.wait, "completed", "answer", answer=self._answer, received=1)
            if was_waiting:
                self.run = wake(draft, self.run, self.wait, self.wait.key)
        else:
            self.run = settle(draft, draft.put_run(self.run), self.wait, self.unit)
            if self._stream is not None:
                self._stream.run = self.run
                self.run = self._stream.close()
        return was_waiting and self.run.status != "waiting"
