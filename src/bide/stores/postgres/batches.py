"""The protocol of one batch: the twin of `bide.stores.transaction` for a server with other clients.

Look up targets, take streams, lock runs in id order, ask the clock, read in later statements what decisions rest on,
decide, write, read the turns that were handed out. Whoever holds rows of `queue` or `timers` never waits for a run, and
names are written last, so no two batches wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from bide.core import plan
from bide.core.batch import View
from bide.core.commands import AnyCommand, Claim, DuplicateRun, FireTimer, Offer, Reply, Start
from bide.core.decide import decide_all
from bide.core.intake import admission, refusal
from bide.core.meetings import Stream
from bide.core.records import Run, RunId, Turn
from bide.stores.interface import Executed, Now
from bide.stores.postgres.arrays import array
from bide.stores.postgres.failures import Refused, Rivalled
from bide.stores.postgres.meeting import meet
from bide.stores.postgres.tables import Known, Tables
from bide.stores.postgres.transactions import Transaction
from bide.stores.transaction import begun, executed, note_interactions, note_signals

MOST_LOOKS = 10  # of one attempt at what is due, where rivals hold whatever it finds


class Outcome:
    """What one batch did, and what others should hear of."""

    def __init__(self, executed: Executed, view: View, transaction: str | None) -> None:
        self.executed = executed
        self.transaction = transaction  # its number, where something was written
        self.slots = view.slots  # that the offer has left
        changes = view.changes
        self.runs = (*changes.runs_inserted.values(), *changes.runs_updated.values())
        self.concerns_others = (
            executed.ready
            or any(changes.timers.values())
            or any(changes.chores.values())
            or any(item.due_at is not None and item.claims == 0 for item in changes.items.values())
        )


class Batch:
    """Commands from outside. Called once for each attempt at its transaction."""

    def __init__(self, commands: Sequence[AnyCommand], offer: Offer | None, now: Now | None) -> None:
        self._commands = commands
        self._offer = offer
        self._now = now
        # A start that was tried before is noticed by its insert; only then are the ids of starts worth a look.
        self._starts: frozenset[RunId] = frozenset()

    def with_starts(self) -> Batch:
        """Look for runs that were started before at once."""
        self._starts = self._own_starts()
        return self

    async def __call__(self, transaction: Transaction) -> Outcome:
        tables = Tables(transaction)
        stream = Stream()
        commands = await meet(transaction, stream, await _with_targets(tables, self._commands))
        ids = plan.locks(commands) | self._starts
        may_end = plan.may_end(commands)
        if may_end:
            ids.update(parent for parent in (await tables.parents(may_end)).values() if parent is not None)
        runs, now = await tables.lock_runs(ids) if ids else ([], None)
        now = await _moment(tables, self._now, now)
        try:
            outcome = await _settle(tables, commands, runs, now, self._offer, stream=stream)
        except Rivalled as rival:
            if rival.what == "run id":
                self._note_starts()
            raise
        if not self._starts:
            await self._check_for_earlier_starts(tables, outcome.executed.replies)
        return outcome

    async def _check_for_earlier_starts(self, tables: Tables, replies: Sequence[Reply]) -> None:
        """A start whose key is held may have been tried before: its own run has the key, or has passed it on."""
        pairs = zip(self._commands, replies, strict=True)
        held = {c.run_id for c, reply in pairs if isinstance(c, Start) and isinstance(reply, DuplicateRun)}
        if held and await tables.parents(held):
            self._note_starts()
            raise Rivalled("run id")

    def _note_starts(self) -> None:
        if self._starts or not (starts := self._own_starts()):
            raise Refused("a run with the id of a new run or child exists already")
        self._starts = starts

    def _own_starts(self) -> frozenset[RunId]:
        return frozenset(command.run_id for command in plan.parts(self._commands) if isinstance(command, Start))


class Share:
    """Which of the rows that are due one attempt takes.

    A run that breaks the batch is found by taking half of them until one is left. It is passed over from then on, so
    that its neighbours go on. Where rivals hold all that were taken, those behind them are looked at.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = limit
        self._taken: list[RunId] = []
        self._looks = 0
        self._held: set[RunId] = set()  # by rivals, as it was seen in this attempt
        self._may_be_more = False
        self.passed_over: set[RunId] = set()

    def begin(self) -> None:
        """An attempt begins: what was held in the one before may be free."""
        self._looks = 1
        self._held.clear()

    @property
    def asked_for(self) -> int:
        return self._looks * self._limit + len(self.passed_over)

    def of(self, found: Sequence[Any]) -> list[tuple[RunId, Any]]:
        left_out = self.passed_over | self._held
        left = [(run_id, what) for run_id, what in found if run_id not in left_out]
        due = left[: self._most]
        self._taken = [run_id for run_id, _ in due]
        self._may_be_more = len(due) < len(left) or len(found) == self.asked_for
        return due

    def look_further(self) -> bool:
        """Leave out what was taken, for rivals hold all of it; whether that may leave anything."""
        self._held.update(self._taken)
        self._looks += 1
        return self._may_be_more and self._looks <= MOST_LOOKS

    @property
    def to_blame(self) -> RunId | None:
        """The run of the attempt that broke, where it was the only one."""
        return self._taken[0] if len(set(self._taken)) == 1 else None

    def halve(self) -> bool:
        """Take half as many the next time; whether there is anything to halve."""
        self._most = len(self._taken) // 2
        return self._most > 0

    def pass_over(self, run_id: RunId) -> None:
        self.passed_over.add(run_id)
        self._most = self._limit


class DueRuns:
    """Claims: due queue entries that no rival is just taking, and their runs if nobody holds them."""

    def __init__(self, offer: Offer, now: Now | None) -> None:
        self._offer = offer
        self._now = now
        self.share = Share(offer.slots)

    async def __call__(self, transaction: Transaction) -> Outcome | None:
        tables = Tables(transaction)
        moment = self._now() if self._now else None
        queues = array(sorted(self._offer.queues))
        self.share.begin()
        while True:
            due = self.share.of(await transaction.fetch("lock_due_queue", queues, moment, self.share.asked_for))
            if not due:
                return None
            runs, now = await tables.lock_runs([run_id for run_id, _ in due], only_free=True)
            if runs or not self.share.look_further():
                break
        free = {run.id: run for run in runs}
        commands = [
            Claim(workspace=free[run_id].workspace, run_id=run_id, actor=f"worker:{self._offer.worker}")
            for run_id, _ in due
            if run_id in free
        ]
        expired = [run_id for run_id, is_expired in due if is_expired]
        now = await _moment(tables, self._now, now)
        return await _settle(tables, commands, runs, now, self._offer, expired)


class DueTimers:
    """Timers that are due, where neither the run nor the parent that it may have to tell is held by somebody else."""

    def __init__(self, limit: int, offer: Offer | None, now: Now | None) -> None:
        self._offer = offer
        self._now = now
        self.share = Share(limit)

    async def __call__(self, transaction: Transaction) -> Outcome | None:
        tables = Tables(transaction)
        moment = self._now() if self._now else None
        self.share.begin()
        while True:
            due = self.share.of(await transaction.fetch("lock_due_timers", moment, self.share.asked_for))
            if not due:
                return None
            parents = await tables.parents({run_id for run_id, _ in due})
            family = {run_id for pair in parents.items() for run_id in pair if run_id is not None}
            wanted = family - self.share.passed_over
            runs, now = await tables.lock_runs(wanted, only_free=True) if wanted else ([], None)
            locked = {run.id for run in runs} | {None}
            commands = [
                FireTimer(workspace="", run_id=run_id, no=no, actor="timer")
                for run_id, no in due
                if run_id not in parents or locked.issuperset((run_id, parents[run_id]))
            ]
            if commands or not self.share.look_further():
                break
        now = await _moment(tables, self._now, now)
        return await _settle(tables, commands, runs, now, self._offer)


class Intake:
    """What callers' transactions left, where no rival is just admitting it. Whoever holds rows of the intake may wait
    for runs: nobody ever waits for rows of the intake."""

    def __init__(
        self,
        limit: int,
        offer: Offer | None,
        now: Now | None,
        only: Sequence[str] | None = None,
        refused: str | None = None,
    ) -> None:
        self._limit = limit
        self._offer = offer
        self._now = now
        self._only = only
        self._refused = refused  # why they are not to be admitted but kept for an operator
        self.ids: list[str] = []  # of what was found, in the order of the replies

    async def __call__(self, transaction: Transaction) -> Outcome | None:
        only = array(self._only) if self._only is not None else None
        left = await transaction.fetch("lock_intake", self._limit, only)
        self.ids = [id for id, _ in left]
        if not left:
            return None
        texts = [(id, transaction.rows.intake_of(id, text)) for id, text in left]
        if self._refused is not None:
            commands: list[AnyCommand] = [refusal(id, text, self._refused) for id, text in texts]
        else:
            commands = [admission(id, text) for id, text in texts]
        return await Batch(commands, self._offer, self._now).with_starts()(transaction)


async def _with_targets(tables: Tables, commands: Sequence[AnyCommand]) -> Sequence[AnyCommand]:
    lookups = plan.correlation_lookups(commands)
    if lookups:
        holders = await tables.holders(lookups)
        commands = [plan.with_target(command, holders) for command in commands]
    signal_ids = plan.signal_lookups(commands)
    if signal_ids:
        commands = plan.with_waits(commands, await tables.load_names(signal_ids))
    return commands


async def _moment(tables: Tables, now: Now | None, locked_at: datetime | None) -> datetime:
    """The time of the batch: a test's, else the server's when all locks were held."""
    if now is not None:
        return now()
    return locked_at or await tables.clock()


async def _settle(
    tables: Tables,
    commands: Sequence[AnyCommand],
    runs: Sequence[Run],
    now: datetime,
    offer: Offer | None,
    expired: Collection[RunId] = (),
    stream: Stream | None = None,
) -> Outcome:
    """Everything after the locks."""
    view = View(now, offer, tables.ledger_key)
    if stream is not None:
        view.stream = stream
    view.expired.update(expired)
    view.runs.update((run.id, run) for run in runs)
    await _load(tables, view, commands)
    known = Known(view.runs, view.waits)
    replies: list[Reply] = decide_all(view, commands)
    await tables.write(view.changes, known)
    turns = await _turns(tables, view)
    return Outcome(executed(view, replies, turns), view, tables.transaction)


async def _load(tables: Tables, view: View, commands: Sequence[AnyCommand]) -> None:
    wanted = plan.reads(commands, view.runs)
    for run_id in wanted.inboxes & tables.inboxes.keys():
        note_signals(view, tables.inboxes[run_id])
        wanted.inboxes.discard(run_id)
    if wanted.waits:
        view.waits.update(((wait.run_id, wait.no), wait) for wait in await tables.load_waits(wanted.waits))
    if wanted.inboxes:
        note_signals(view, await tables.load_inboxes(wanted.inboxes))
    if wanted.oldest:
        note_signals(view, await tables.load_signals(wanted.oldest, max(wanted.oldest.values())))
    if packs := plan.packs(view.waits.values(), wanted):
        note_signals(view, await tables.load_signals(packs, None))
    if wanted.names:
        for name in await tables.load_names(wanted.names):
            view.names[(name.workspace, name.kind, name.name)] = name
    if wanted.interactions:
        note_interactions(view, await tables.load_interactions(wanted.interactions))
    if chores := plan.held_chores(view.names.values(), wanted):
        view.outside.chores.update((chore.id, chore) for chore in await tables.load_chores(chores))
    if wanted.letters:
        found = await tables.load_letters(wanted.letters)
        view.outside.letters.update(((letter.workspace, letter.id), letter) for letter in found)
    if wanted.units:
        units = await tables.load_units(wanted.units)
        view.units.update(((unit.run_id, unit.no), unit) for unit in units)
    if wanted.items:
        items = await tables.load_items(wanted.items)
        view.items.update(((item.run_id, item.section, item.item), item) for item in items)
    if wanted.keys:
        view.keys.update((key.hash, key) for key in await tables.load_keys(wanted.keys))
    view.loaded()


async def _turns(tables: Tables, view: View) -> dict[RunId, Turn]:
    """The turns that were handed out."""
    runs, wanted, parts = begun(view)
    if wanted.inboxes:
        parts.add_signals(await tables.load_inboxes(wanted.inboxes))
    if wanted.waits:
        parts.add_waits(await tables.load_waits(wanted.waits))
    if wanted.histories or wanted.streams:
        steps, parts.streams = await tables.load_steps(wanted.histories, wanted.streams)
        parts.add_steps(steps)
    joins = parts.joins()
    if joins:
        parts.add_children(await tables.load_children(joins))
    return {run.id: parts.turn(run) for run in runs}
