"""Rows and records: what a table holds becomes a frozen record at the border, and back.

Tuples are kept as JSON text, because arrays of different lengths cannot travel side by side to `unnest`. A run's state
is NULL where it is the input. The readers take the columns in the order of the statements' SELECT lists, which is that
of the record's fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

import asyncpg
import msgspec
from msgspec.structs import astuple

from bide.core.ledger import Stored
from bide.core.records import (
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    Record,
    Run,
    RunId,
    Signal,
    StepRow,
    Unit,
    Unused,
    Wait,
)
from bide.stores.pages import pack_entries, unpack

Row: TypeAlias = asyncpg.Record
Columns = list[Sequence[Any]]
Seal = Callable[[str, int, bytes], bytes]  # a page of a run and the number of its first entry
MOST_CHECKED = 10

_ints = msgspec.json.Decoder(tuple[int, ...])
_texts = msgspec.json.Decoder(tuple[str, ...])
_encode = msgspec.json.Encoder().encode


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "[]" else _ints.decode(text)


def _names(text: str) -> tuple[str, ...]:
    return () if text == "[]" else _texts.decode(text)


def _json(items: tuple[object, ...]) -> str:
    return _encode(items).decode() if items else "[]"


def read_run(row: Row | tuple[Any, ...]) -> Run:
    values = list(row)[:_RUN_WIDTH]
    if values[_STATE] is None:
        values[_STATE] = values[_INPUT]
    values[_OPEN_WAITS] = _numbers(values[_OPEN_WAITS])
    values[_HEAD] = values[_HEAD].hex()
    return Run(*values)


def read_wait(row: Row | tuple[Any, ...]) -> Wait:
    values = list(row)
    values[_NAMES] = _names(values[_NAMES])
    values[_SEEN] = _numbers(values[_SEEN])
    values[_PARTIAL] = _numbers(values[_PARTIAL])
    return Wait(*values)


def read_signal(row: Row) -> Signal:
    return Signal(*row)


def read_name(row: Row) -> Name:
    return Name(*row)


def read_page(row: Row | tuple[Any, ...]) -> LedgerPage:
    run_id, seq, packed = row
    return LedgerPage(run_id=run_id, seq=seq, entries=unpack(packed))


def read_chore(row: Row) -> Chore:
    return Chore(*row)


def read_step(row: Row) -> StepRow:
    return StepRow(*row)


def read_interaction(row: Row | tuple[Any, ...]) -> Interaction:
    return Interaction(*row)


def read_letter(row: Row) -> DeadLetter:
    return DeadLetter(*row)


def read_pair(row: Row) -> tuple[Interaction, Wait]:
    """An interaction and its wait, side by side."""
    values, width = tuple(row), len(Interaction.__struct_fields__)
    return read_interaction(values[:width]), read_wait(values[width:])


def read_unit(row: Row) -> Unit:
    return Unit(*row)


def read_item(row: Row) -> Item:
    return Item(*row)


def read_event(row: Row) -> EventRow:
    return EventRow(*row)


def read_listener(row: Row) -> Listener:
    return Listener(*row)


def read_unused(row: Row) -> Unused:
    return Unused(*row)


def columns(records: Iterable[Record]) -> Columns:
    """The records as one sequence per field; at least one record is needed."""
    return list(zip(*map(astuple, records), strict=True))


def run_columns(runs: Iterable[Run]) -> Columns:
    """All columns of new runs."""
    found = _stored(columns(runs))
    states, inputs = found[_STATE], found[_INPUT]
    found[_STATE] = [None if state == input else state for state, input in zip(states, inputs, strict=True)]
    return found


def run_changes(runs: Sequence[Run], before: Mapping[RunId, Run]) -> Columns:
    """The columns that an update of known runs writes. A state that stays as it is stands there as None."""
    CHANGING_RUN.check((before[run.id] for run in runs), runs)
    found = columns(runs)
    found[_STATE] = [None if run.state == before[run.id].state else run.state for run in runs]
    return CHANGING_RUN.pick(_stored(found))


def _stored(found: Columns) -> Columns:
    found[_HEAD] = ["\\x" + head for head in found[_HEAD]]
    return with_json(found, RUN_TUPLES)


def page_columns(pages: Mapping[RunId, Sequence[Stored]], seal: Seal | None = None) -> Columns:
    """A page for each run, of the entries that it is given."""
    run_ids, seqs = list(pages), [entries[0].seq for entries in pages.values()]
    packed: Iterable[bytes] = map(pack_entries, pages.values())
    if seal is not None:
        packed = map(seal, run_ids, seqs, packed)
    return [run_ids, seqs, ["\\x" + page.hex() for page in packed]]


def wait_columns(waits: Iterable[Wait]) -> Columns:
    return with_json(columns(waits), WAIT_TUPLES)


def wait_changes(waits: Collection[Wait], before: Iterable[Wait]) -> Columns:
    """The columns that an update of known waits writes."""
    CHANGING_WAIT.check(before, waits)
    return CHANGING_WAIT.pick(with_json(columns(waits), WAIT_TUPLES))


def with_json(found: Columns, positions: Iterable[int]) -> Columns:
    """The columns at these positions hold tuples: write them as JSON text."""
    for position in positions:
        column = found[position]
        texts = {items: _json(items) for items in set(column)}  # a batch has few different ones
        found[position] = [texts[items] for items in column]
    return found


def _positions(record: type[Record], names: Iterable[str]) -> tuple[int, ...]:
    return tuple(record.__struct_fields__.index(name) for name in names)


class Changing:
    """The columns of a record that an update writes. The others never change, and a change of them would be lost."""

    def __init__(
        self, record: type[Record], keys: Sequence[str], names: Sequence[str], apart: Sequence[str] = ()
    ) -> None:
        """Changes of the columns *apart* are written by another statement."""
        fixed = [name for name in record.__struct_fields__ if name not in (*names, *apart)]
        self.names = (*keys, *names)
        self._picked = _positions(record, self.names)
        self.width = len(keys) + len(names)
        self._fixed, self._fixed_names = attrgetter(*fixed), fixed

    def pick(self, found: Columns) -> Columns:
        return [found[position] for position in self._picked]

    def check(self, before: Iterable[Record], after: Iterable[Record]) -> None:
        """Refuse an update that would lose something. A rule that asks for one shows in the first rows of a batch."""
        for known, record in islice(zip(before, after, strict=False), MOST_CHECKED):
            assert self._fixed(known) == self._fixed(record), f"one of {self._fixed_names} was changed"


_STATE, _INPUT, _HEAD, _OPEN_WAITS = _positions(Run, ["state", "input", "ledger_head", "open_waits"])
_RUN_WIDTH = len(Run.__struct_fields__)
_NAMES, _SEEN, _PARTIAL = _positions(Wait, ["names", "seen", "partial"])
RUN_TUPLES = (_OPEN_WAITS,)
WAIT_TUPLES = (_NAMES, _SEEN, _PARTIAL)
CHANGING_RUN = Changing(
    Run,
    ["id"],
    [
        "status",
        "step",
        "state",
        "updated_at",
        "ready_at",
        "ended_at",
        "result",
        "error",
        "held",
        "attempt",
        "claims",
        "epoch",
        "commits",
        "wait_no",
        "parked_on",
        "woken_by",
        "open_waits",
        "inbox_seq",
        "inbox_count",
        "has_children",
        "cancel_reason",
        "cancel_until",
        "ledger_seq",
        "ledger_head",
    ],
)
CHANGING_WAIT = Changing(
    Wait, ["run_id", "no"], ["status", "partial", "due_at", "closed_at", "cause", "received"], ["deadline", "details"]
)
CHANGING_INTERACTION = Changing(
    Interaction,
    ["run_id", "no", "item"],
    ["status", "assignee", "group", "claimed_by", "answers", "answer", "digest", "answered_by", "closed_at"],
)
