"""Rows and records: times are microseconds since 1970 in UTC, lists are JSON text, the rest is kept as it is.

The functions are generated from the fields of a record, as `dataclasses` does it: a batch encodes and decodes
thousands of rows, and a loop over the fields of each would be most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from bide.core.access import Key, Secret, Validity, Workspace
from bide.core.ledger import LedgerKey, Stored
from bide.core.records import (
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    QueueEntry,
    Record,
    Run,
    RunId,
    Signal,
    StepRow,
    Timer,
    Unit,
    Unused,
    Wait,
)
from bide.stores.pages import pack_entries, text_or_nothing, unpack
from bide.stores.sealing import Sealing, intake_row

R = TypeVar("R", bound=Record)
Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encode_list = msgspec.json.Encoder().encode
_decode_numbers = msgspec.json.Decoder(tuple[int, ...]).decode
_decode_texts = msgspec.json.Decoder(tuple[str, ...]).decode


@lru_cache(maxsize=4096)  # one batch writes the same moment many times
def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=4096)
def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _list(values: tuple[object, ...]) -> str:
    return _encode_list(values).decode() if values else "[]"


def _numbers(text: str) -> tuple[int, ...]:
    return _decode_numbers(text) if text != "[]" else ()


def _texts(text: str) -> tuple[str, ...]:
    return _decode_texts(text) if text != "[]" else ()


_NAMES: dict[str, object] = {
    "us": microseconds,
    "at": moment,
    "list_": _list,
    "numbers": _numbers,
    "texts": _texts,
    "bool": bool,
}
_AS_IT_IS = ("{0}", "{0}")
# How a field becomes a column and a column a field, by its type.
_FORMS: dict[object, tuple[str, str]] = {
    datetime: ("us({0})", "at({0})"),
    datetime | None: ("us({0}) if {0} is not None else None", "at({0}) if {0} is not None else None"),
    tuple[int, ...]: ("list_({0})", "numbers({0})"),
    tuple[str, ...]: ("list_({0})", "texts({0})"),
    bool: ("{0}", "bool({0})"),
}


def _form(annotation: object) -> tuple[str, str]:
    form = _FORMS.get(annotation, _AS_IT_IS)
    parts = {get_origin(part) or part for part in get_args(annotation)}
    assert form is not _AS_IT_IS or not parts & {datetime, tuple, bool}, f"no column form for {annotation}"
    return form


def encoder(record: type[R], fields: Collection[str] | None = None) -> Callable[[R], Row]:
    """A function from a record to the row of these fields, all of them unless told."""
    hints = get_type_hints(record)
    columns = (_form(hints[field])[0].format(f"record.{field}") for field in fields or record.__struct_fields__)
    function: Callable[[R], Row] = eval(f"lambda record: ({', '.join(columns)},)", dict(_NAMES))
    return function


def decoder(record: type[R]) -> Callable[[Row], R]:
    """A function from a row of all fields to the record."""
    hints = get_type_hints(record)
    columns = (_form(hints[field])[1].format(f"row[{at}]") for at, field in enumerate(record.__struct_fields__))
    function: Callable[[Row], R] = eval(f"lambda row: record({', '.join(columns)})", {**_NAMES, "record": record})
    return function


_FIXED_OF_RUN = {
    "workspace", "id", "definition", "version", "style", "input", "created_at", "queue", "priority",
    "correlation_key", "correlation_scope", "parent_id", "parent_wait", "child_no", "cleanup_seconds", "retry_of",
    "tags", "redact", "trace",
}  # fmt: skip
_FIXED_OF_WAIT = {
    "workspace", "run_id", "no", "key", "kind", "opened_at", "names", "seen", "on_timeout", "expected",
    "cancel_children",
}  # fmt: skip

CHANGING_OF_RUN = tuple(field for field in Run.__struct_fields__ if field not in _FIXED_OF_RUN)
CHANGING_OF_WAIT = tuple(field for field in Wait.__struct_fields__ if field not in _FIXED_OF_WAIT)

run_row, run_of = encoder(Run), decoder(Run)
wait_row, wait_of = encoder(Wait), decoder(Wait)
run_change = encoder(Run, (*CHANGING_OF_RUN, "id"))
wait_change = encoder(Wait, (*CHANGING_OF_WAIT, "run_id", "no"))
signal_row, signal_of = encoder(Signal), decoder(Signal)
name_row, name_of = encoder(Name), decoder(Name)
queue_row = encoder(QueueEntry)
timer_row = encoder(Timer)
chore_row, chore_of = encoder(Chore), decoder(Chore)
unused_row, unused_of = encoder(Unused), decoder(Unused)
step_row, step_of = encoder(StepRow), decoder(StepRow)
letter_row, letter_of = encoder(DeadLetter), decoder(DeadLetter)

CHANGING_OF_INTERACTION = (
    "status", "assignee", "group", "claimed_by", "answers", "answer", "digest", "answered_by", "closed_at",
)  # fmt: skip
interaction_row, interaction_of = encoder(Interaction), decoder(Interaction)
interaction_change = encoder(Interaction, (*CHANGING_OF_INTERACTION, "run_id", "no", "item"))
INTERACTION_WIDTH = len(Interaction.__struct_fields__)
unit_row, unit_of = encoder(Unit), decoder(Unit)
item_row, item_of = encoder(Item), decoder(Item)
workspace_row, workspace_of = encoder(Workspace), decoder(Workspace)
key_row, key_of = encoder(Key), decoder(Key)
validity_of = decoder(Validity)
secret_row, secret_of = encoder(Secret), decoder(Secret)
event_row, event_of = encoder(EventRow), decoder(EventRow)
listener_row, listener_of = encoder(Listener), decoder(Listener)


def page_row(page: tuple[RunId, Sequence[Stored]]) -> Row:
    run_id, entries = page
    return run_id, entries[0].seq, pack_entries(entries)


def page_of(row: Row) -> LedgerPage:
    run_id, seq, packed = row
    return LedgerPage(run_id=run_id, seq=seq, entries=unpack(packed))


class Rows:
    """The rows of records that hold users' data: as they are, or sealed (G4)."""

    def __init__(self, sealing: Sealing | None = None, ledger_key: LedgerKey | None = None) -> None:
        self.sealing = sealing
        self.ledger_key = ledger_key  # what the ends of ledgers are signed with
        self.run_row, self.run_of = self._pair(run_row, run_of)
        self.run_change = self._writing(run_change, _FIXED_OF_RUN)
        self.wait_row, self.wait_of = self._pair(wait_row, wait_of)
        self.wait_change = self._writing(wait_change)
        self.signal_row, self.signal_of = self._pair(signal_row, signal_of)
        self.name_row, self.name_of = self._pair(name_row, name_of)
        self.chore_row, self.chore_of = self._pair(chore_row, chore_of)
        self.unused_row, self.unused_of = self._pair(unused_row, unused_of)
        self.step_row, self.step_of = self._pair(step_row, step_of)
        self.letter_row, self.letter_of = self._pair(letter_row, letter_of)
        self.interaction_row, self.interaction_of = self._pair(interaction_row, interaction_of)
        self.interaction_change = self._writing(interaction_change, ("payload",))
        self.item_row, self.item_of = self._pair(item_row, item_of)
        self.event_row, self.event_of = self._pair(event_row, event_of)
        self.listener_row, self.listener_of = self._pair(listener_row, listener_of)
        self.page_row = page_row if sealing is None else self._sealed_page
        self.page_of = page_of if sealing is None else self._opened_page

    def opened(self, record: type[Record], identity: tuple[Any, ...], name: str, text: str | None) -> str | None:
        """One field of a row that is not read whole."""
        return text if self.sealing is None or text is None else self.sealing.open_of(record, identity, name, text)

    def intake_text(self, id: str, text: str) -> str:
        return text if self.sealing is None else self.sealing.seal_text(intake_row(id), "command", text)

    def intake_of(self, id: str, text: str) -> str:
        return text if self.sealing is None else self.sealing.open_text(intake_row(id), "command", text)

    def packed_page(self, run_id: str, seq: int, page: bytes) -> bytes:
        return page if self.sealing is None else self.sealing.open_page(run_id, seq, page)

    def page_text(self, run_id: str, seq: int, page: bytes) -> str:
        """The text of a page, or nothing where it is damaged; raises where its key is missing."""
        return text_or_nothing(lambda: self.packed_page(run_id, seq, page))

    def page_as_found(self, row: Row) -> LedgerPage:
        run_id, seq, page = row
        return LedgerPage(run_id=run_id, seq=seq, entries=self.page_text(run_id, seq, page))

    def _pair(
        self, write: Callable[[R], Row], read: Callable[[Row], R]
    ) -> tuple[Callable[[R], Row], Callable[[Row], R]]:
        return self._writing(write), read if self.sealing is None else self.sealing.reading(read)

    def _writing(self, write: Callable[[R], Row], fixed: Collection[str] = ()) -> Callable[[R], Row]:
        return write if self.sealing is None else self.sealing.writing(write, fixed=fixed)

    def _sealed_page(self, page: tuple[RunId, Sequence[Stored]]) -> Row:
        assert self.sealing is not None
        run_id, seq, packed = page_row(page)
        return run_id, seq, self.sealing.seal_page(run_id, seq, packed)

    def _opened_page(self, row: Row) -> LedgerPage:
        run_id, seq, page = row
        return page_of((run_id, seq, self.packed_page(run_id, seq, page)))


PLAIN = Rows()
