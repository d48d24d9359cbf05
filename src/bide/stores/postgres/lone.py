"""A delivery or a claim that comes alone, and answers to signal ids: two round trips in place of five and more.

Nothing is locked while it is decided. Runs and their waits are read in one snapshot, and the write takes effect only if
the rows of the runs are still the ones that were read. Whoever changes anything of a run writes its row, so whatever
else the decision rests on has not moved either. Where it has, nothing is written, and the batch is executed under
locks.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import asyncpg
import msgspec

from bide.core import plan
from bide.core.access import Validity
from bide.core.batch import Changes, View
from bide.core.commands import AnyCommand, Claim, Complete, Deliver, Offer
from bide.core.decide import decide_all
from bide.core.records import Record, Run, RunId, Wait
from bide.stores.interface import Now
from bide.stores.postgres.arrays import array
from bide.stores.postgres.batches import Outcome
from bide.stores.postgres.hints import Hints
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.tables import Known, Tables, parts_of, replaced_names, replacing_columns
from bide.stores.postgres.transactions import Lone, Part, Transaction
from bide.stores.transaction import TurnParts, again, begun, executed

K = TypeVar("K")
R = TypeVar("R", bound=Record)

_RUN_ID = Run.__struct_fields__.index("id")
# Where the columns of a run end, and its version and the clock stand; where those of its waits begin and end.
_VERSION = len(Run.__struct_fields__)
_CLOCK, _WAIT = _VERSION + 1, _VERSION + 2
_REST = _WAIT + len(Wait.__struct_fields__)
_read_keys = msgspec.json.Decoder(list[tuple[str, datetime | None, datetime | None]]).decode


def lone_delivery(commands: Sequence[AnyCommand]) -> Deliver | None:
    """The delivery, where it is all there is, to a run that it names by its id, with nothing to look up beside."""
    if len(commands) != 1 or not isinstance(command := commands[0], Deliver):
        return None
    is_simple = command.run_id is not None and not command.by_correlation
    return command if is_simple and command.dedup_key is None and command.unused_id is None else None


def lone_answers(commands: Sequence[AnyCommand]) -> Sequence[Complete] | None:
    """The commands, where all are answers to signal ids, each to another, with nothing to look up beside."""
    answers = [c for c in commands if isinstance(c, Complete) and c.dedup_key is None and c.hold is None]
    ids = {(answer.workspace, answer.signal_id) for answer in answers}
    return answers if len(ids) == len(commands) else None


def asked_first(run_id: RunId, keys: str | None = None) -> tuple[str, RunId, str | None]:
    """What a lone delivery to this run asks first, as a statement and its parameters."""
    return "select_run_and_waits", run_id, keys


class LoneDelivery:
    """Called once; where it gives None, the delivery is not as simple as it looked."""

    def __init__(self, command: Deliver, offer: Offer | None, now: Now | None, hints: Hints | None) -> None:
        self._command = command
        self._hints = hints
        self._offer = offer
        self._now = now

    async def __call__(self, transaction: Transaction) -> Lone[Outcome] | None:
        assert self._command.run_id is not None, "it is not by correlation"
        found = await transaction.fetch(*asked_first(self._command.run_id, _keys([self._command])))
        if not found:
            return None
        view = _view(transaction.rows, found, self._offer, self._now)
        view.keys = _validities(found[0])
        if not _is_enough(view, plan.reads([self._command], view.runs)):
            return None
        made = await _decided(transaction, view, [self._command], _versions(found))
        if made is None or self._hints is None or not made.result.concerns_others:
            return made
        return self._with_hint(made, self._hints.riding())

    @staticmethod
    def _with_hint(made: Lone[Outcome], hint: tuple[str, str] | None) -> Lone[Outcome]:
        """Where the hint goes out with the commit, nobody is to be told after it."""
        made.result.concerns_others = hint is None
        return made._replace(hint=hint)


class LoneClaim:
    """Called once; where it gives None, either nothing is due or it is more than one run that nobody had."""

    def __init__(self, offer: Offer, now: Now | None) -> None:
        self._offer = offer
        self._now = now
        self.is_nothing_due = False

    async def __call__(self, transaction: Transaction) -> Lone[Outcome] | None:
        moment = self._now() if self._now is not None else None
        found = await transaction.fetch("select_due_run", array(sorted(self._offer.queues)), moment)
        self.is_nothing_due = not found
        if len(found) != 1:
            return None
        is_expired, *signal = tuple(found[0])[_REST:]
        if is_expired:
            return None
        view = _view(transaction.rows, found, self._offer, self._now)
        [run] = view.runs.values()
        if signal[0] is not None:
            first = transaction.rows.read_signal(signal)
            view.inbox[run.id] = {first.seq: first}
        claim = Claim(workspace=run.workspace, run_id=run.id, actor=f"worker:{self._offer.worker}")
        return await _decided(transaction, view, [claim], _versions(found))


class LoneAnswers:
    """Called once; where it gives None, an answer has no wait, or is not as simple as it looked."""

    def __init__(self, commands: Sequence[Complete], offer: Offer | None, now: Now | None) -> None:
        self._commands = commands
        self._offer = offer
        self._now = now

    async def __call__(self, transaction: Transaction) -> Lone[Outcome] | None:
        ids = zip(*((answer.workspace, answer.signal_id) for answer in self._commands), strict=True)
        found = await transaction.fetch("select_answered", *map(array, ids), _keys(self._commands))
        if len(found) < len(self._commands):
            return None
        view = _view(transaction.rows, found, self._offer, self._now)
        view.keys = _validities(found[0])
        names = [transaction.rows.read_name(tuple(row)[_REST:-1]) for row in found]
        view.names.update(((name.workspace, name.kind, name.name), name) for name in names)
        commands = plan.with_waits(self._commands, names)
        if not _is_enough(view, plan.reads(commands, view.runs)):
            return None
        return await _decided(transaction, view, commands, _versions(found))


def _keys(commands: Sequence[AnyCommand]) -> str | None:
    """The keys that they were sent with, as a parameter; None where there are none."""
    return array(list(keys)) if (keys := plan.keys(commands)) else None


def _validities(row: asyncpg.Record) -> dict[str, Validity]:
    """What stands of keys in the last column."""
    return {key.hash: key for key in itertools.starmap(Validity, _read_keys(row[-1]))} if row[-1] else {}


def _versions(found: Sequence[asyncpg.Record]) -> set[str]:
    return {row[_VERSION] for row in found}


def _view(rows: Rows, found: Sequence[asyncpg.Record], offer: Offer | None, now: Now | None) -> View:
    """What was read: rows of runs, each beside that of a wait or none."""
    view = View(now() if now is not None else found[-1][_CLOCK], offer, rows.ledger_key)
    for row in found:
        if row[_RUN_ID] not in view.runs:
            view.runs[row[_RUN_ID]] = rows.read_run(row)
        if row[_WAIT] is not None:
            wait = rows.read_wait(tuple(row)[_WAIT:_REST])
            view.waits[(wait.run_id, wait.no)] = wait
    return view


async def _decided(
    transaction: Transaction, view: View, commands: Sequence[AnyCommand], versions: Collection[str]
) -> Lone[Outcome] | None:
    view.loaded()
    known = Known(view.runs, view.waits)
    replies = decide_all(view, commands)
    if again(replies) or not _is_plain(view.changes, known):
        return None
    runs, wanted, parts = begun(view)
    await _load(Tables(transaction), view.changes, wanted, parts)
    if parts.joins():
        return None
    outcome = Outcome(executed(view, replies, {run.id: parts.turn(run) for run in runs}), view, None)
    return Lone(outcome, view.changes, list(_parts(view.changes, known, transaction.rows)), versions, None)


def _parts(changes: Changes, known: Known, rows: Rows) -> Iterator[Part]:
    yield from parts_of(changes, known, rows)
    if replaced := replaced_names(changes):
        yield "replace_names", replacing_columns(replaced, rows)


async def _load(tables: Tables, changes: Changes, wanted: plan.Reads, parts: TurnParts) -> None:
    """What turns are handed beside what the view holds, as it will be when the changes are written."""
    if wanted.inboxes:
        inbox = {(signal.run_id, signal.seq): signal for signal in await tables.load_inboxes(wanted.inboxes)}
        gone = dict.fromkeys(changes.inbox_deleted)
        parts.add_signals(_after(inbox, {**changes.inbox_inserted, **gone}))
    if wanted.waits:
        parts.add_waits(await tables.load_waits(wanted.waits))
    if wanted.histories:
        steps, parts.streams = await tables.load_steps(wanted.histories, wanted.streams)
        parts.add_steps(_after({(step.run_id, step.key): step for step in steps}, changes.steps))


def _after(rows: Mapping[K, R], changes: Mapping[K, R | None]) -> list[R]:
    return [row for row in {**rows, **changes}.values() if row is not None]


def _is_enough(view: View, wanted: plan.Reads) -> bool:
    """Whether the view holds all that the decision rests on."""
    signals = (wanted.inboxes, wanted.oldest, plan.packs(view.waits.values(), wanted))
    beside = (wanted.interactions, wanted.chores, wanted.letters, wanted.units, wanted.items)
    is_there = wanted.waits == view.waits.keys() and wanted.names <= view.names.keys()
    return is_there and wanted.keys <= view.keys.keys() and not any(signals + beside)


def _is_plain(changes: Changes, known: Known) -> bool:
    """Whether every run that was read is updated, with rows that nobody writes who does not write its row. Names are
    put in the place of those that were read, or not at all."""
    others: Iterable[Collection[object]] = (
        changes.chores,
        changes.unused,
        changes.unused_deleted,
        changes.intake_deleted,
        changes.events,
        changes.listeners,
        changes.runs_inserted,
        changes.units,
        changes.items,
    )
    replaced = replaced_names(changes).keys()
    has_names_of_its_own = replaced == changes.names_inserted.keys() == changes.names_deleted.keys()
    is_alone = changes.runs_updated.keys() == known.runs.keys()
    return is_alone and has_names_of_its_own and not any(others) and not changes.outside
