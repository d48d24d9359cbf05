"""A delivery or a claim that comes alone: two round trips in place of five and more.

Nothing is locked while it is decided. A run and its waits are read in one snapshot, and the write takes effect only if
the row of the run is still the one that was read. Whoever changes anything of a run writes its row, so whatever else
the decision rests on has not moved either. Where it has, nothing is written, and the batch is executed under locks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import asyncpg

from bide.core import plan
from bide.core.batch import Changes, View
from bide.core.commands import AnyCommand, Claim, Deliver, Offer
from bide.core.decide import decide_all
from bide.core.records import Record, Run, Wait
from bide.stores.interface import Now
from bide.stores.postgres.arrays import array
from bide.stores.postgres.batches import Outcome, begun
from bide.stores.postgres.hints import Hints
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.tables import Known, Tables, parts_of
from bide.stores.postgres.transactions import Lone, Transaction
from bide.stores.transaction import TurnParts, again, executed

K = TypeVar("K")
R = TypeVar("R", bound=Record)

# Where the columns of a run end, and its version and the clock stand; where those of its waits begin and end.
_VERSION = len(Run.__struct_fields__)
_CLOCK, _WAIT = _VERSION + 1, _VERSION + 2
_REST = _WAIT + len(Wait.__struct_fields__)


def lone_delivery(commands: Sequence[AnyCommand]) -> Deliver | None:
    """The delivery, where it is all there is, to a run that it names by its id, with nothing to look up beside."""
    if len(commands) != 1 or not isinstance(command := commands[0], Deliver):
        return None
    is_simple = command.run_id is not None and not command.by_correlation
    return command if is_simple and command.dedup_key is None and command.unused_id is None else None


class LoneDelivery:
    """Called once; where it gives None, the delivery is not as simple as it looked."""

    def __init__(self, command: Deliver, offer: Offer | None, now: Now | None, hints: Hints | None) -> None:
        self._command = command
        self._hints = hints
        self._offer = offer
        self._now = now

    async def __call__(self, transaction: Transaction) -> Lone[Outcome] | None:
        found = await transaction.fetch("select_run_and_waits", self._command.run_id)
        if not found:
            return None
        view = _view(transaction.rows, found, self._offer, self._now)
        if not _is_enough(view, plan.reads([self._command], view.runs)):
            return None
        made = await _decided(transaction, view, self._command, found[0][_VERSION])
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
        return await _decided(transaction, view, claim, found[0][_VERSION])


def _view(rows: Rows, found: Sequence[asyncpg.Record], offer: Offer | None, now: Now | None) -> View:
    """What was read of one run: its row, and those of waits."""
    run = rows.read_run(found[0])
    view = View(now() if now is not None else found[0][_CLOCK], offer)
    view.runs[run.id] = run
    waits = (rows.read_wait(tuple(row)[_WAIT:_REST]) for row in found if row[_WAIT] is not None)
    view.waits.update(((wait.run_id, wait.no), wait) for wait in waits)
    return view


async def _decided(transaction: Transaction, view: View, command: AnyCommand, version: str) -> Lone[Outcome] | None:
    view.loaded()
    known = Known(view.runs, view.waits)
    replies = decide_all(view, [command])
    if again(replies) or not _is_plain(view.changes):
        return None
    runs, wanted, parts = begun(view)
    await _load(Tables(transaction), view.changes, wanted, parts)
    if parts.joins():
        return None
    outcome = Outcome(executed(view, replies, {run.id: parts.turn(run) for run in runs}), view)
    return Lone(outcome, view.changes, list(parts_of(view.changes, known, transaction.rows)), version, None)


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
    beside = (wanted.inboxes, wanted.names, wanted.interactions, wanted.chores, wanted.letters, wanted.units)
    return wanted.waits == view.waits.keys() and not any(beside) and not wanted.items


def _is_plain(changes: Changes) -> bool:
    """Whether one run is updated, with rows that nobody writes who does not write its row."""
    others: Iterable[Collection[object]] = (
        changes.names_inserted,
        changes.names_deleted,
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
    return len(changes.runs_updated) == 1 and not any(others) and not changes.outside
