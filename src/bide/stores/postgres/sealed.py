"""Rows of records that hold users' data: as they are, or sealed (G4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from bide.core.ledger import LedgerKey, Stored
from bide.core.records import Interaction, LedgerPage, Record, Run, RunId, Wait
from bide.stores.pages import text_or_nothing
from bide.stores.postgres import rows
from bide.stores.postgres.rows import Columns, Row
from bide.stores.sealing import Sealing, intake_row

R = TypeVar("R", bound=Record)


class Rows:
    def __init__(self, sealing: Sealing | None = None, ledger_key: LedgerKey | None = None) -> None:
        self.sealing = sealing
        self.ledger_key = ledger_key  # what the ends of ledgers are signed with
        self.read_run = rows.read_run if sealing is None else self._opened_run
        self.read_wait = self._reading(rows.read_wait)
        self.read_signal = self._reading(rows.read_signal)
        self.read_name = self._reading(rows.read_name)
        self.read_chore = self._reading(rows.read_chore)
        self.read_step = self._reading(rows.read_step)
        self.read_interaction = self._reading(rows.read_interaction)
        self.read_letter = self._reading(rows.read_letter)
        self.read_item = self._reading(rows.read_item)
        self.read_unused = self._reading(rows.read_unused)
        self.read_event = self._reading(rows.read_event)
        self.read_listener = self._reading(rows.read_listener)

    def _reading(self, read: Callable[[Any], R]) -> Callable[[Any], R]:
        return read if self.sealing is None else self.sealing.reading(read)

    def _opened_run(self, row: Row) -> Run:
        """A state that is not there was read as the input, which is sealed as such."""
        assert self.sealing is not None
        run = rows.read_run(row)
        if run.state != run.input:
            return self.sealing.open(run)
        run = self.sealing.open(replace(run, state=""))
        return replace(run, state=run.input)

    def read_pair(self, row: Row) -> tuple[Interaction, Wait]:
        item, wait = rows.read_pair(row)
        return (item, wait) if self.sealing is None else (self.sealing.open(item), self.sealing.open(wait))

    def read_page(self, row: Row | tuple[Any, ...]) -> LedgerPage:
        run_id, seq, page = row
        return rows.read_page((run_id, seq, self.packed_page(run_id, seq, page)))

    def packed_page(self, run_id: str, seq: int, page: bytes) -> bytes:
        return page if self.sealing is None else self.sealing.open_page(run_id, seq, page)

    def page_text(self, run_id: str, seq: int, page: bytes) -> str:
        """The text of a page, or nothing where it is damaged; raises where its key is missing."""
        return text_or_nothing(lambda: self.packed_page(run_id, seq, page))

    def page_as_found(self, row: Row | tuple[Any, ...]) -> LedgerPage:
        run_id, seq, page = row
        return LedgerPage(run_id=run_id, seq=seq, entries=self.page_text(run_id, seq, page))

    def opened(self, record: type[Record], identity: tuple[Any, ...], name: str, text: str | None) -> str | None:
        """One field of a row that is not read whole."""
        return text if self.sealing is None or text is None else self.sealing.open_of(record, identity, name, text)

    def intake_text(self, id: str, text: str) -> str:
        return text if self.sealing is None else self.sealing.seal_text(intake_row(id), "command", text)

    def intake_of(self, id: str, text: str) -> str:
        return text if self.sealing is None else self.sealing.open_text(intake_row(id), "command", text)

    def sealed(self, record: R) -> R:
        return record if self.sealing is None else self.sealing.seal(record)

    def columns(self, records: Iterable[Record]) -> Columns:
        return rows.columns(records if self.sealing is None else map(self.sealing.seal, records))

    def wait_columns(self, waits: Iterable[Wait]) -> Columns:
        return rows.wait_columns(waits if self.sealing is None else map(self.sealing.seal, waits))

    def run_columns(self, runs: Iterable[Run]) -> Columns:
        found = rows.run_columns(runs)
        if self.sealing is not None:
            self.sealing.seal_columns(Run, Run.__struct_fields__, found)
        return found

    def run_changes(self, runs: Sequence[Run], before: Mapping[RunId, Run]) -> Columns:
        found = rows.run_changes(runs, before)
        if self.sealing is not None:
            self.sealing.seal_columns(Run, rows.CHANGING_RUN.names, found)
        return found

    def wait_changes(self, waits: Collection[Wait], before: Iterable[Wait]) -> Columns:
        found = rows.wait_changes(waits, before)
        if self.sealing is not None:
            self.sealing.seal_columns(Wait, rows.CHANGING_WAIT.names, found)
        return found

    def page_columns(self, pages: Mapping[RunId, Sequence[Stored]]) -> Columns:
        return rows.page_columns(pages, self.sealing.seal_page if self.sealing is not None else None)


PLAIN = Rows()
