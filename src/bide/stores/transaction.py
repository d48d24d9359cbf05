"""The protocol of one batch, for stores whose transaction is a mutex by itself (memory, SQLite).

The order is the same everywhere: look up targets, lock runs, read what decisions rest on, decide, write, read the
turns that were handed out, commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from bide.core import meetings, plan
from bide.core.access import Validity
from bide.core.batch import Changes, NameKey, RowKey, View
from bide.core.commands import Again, AnyCommand, Offer, Reply
from bide.core.decide import decide_all
from bide.core.ledger import LedgerKey
from bide.core.outside import ItemKey, LetterKey
from bide.core.records import (
    FINAL,
    OPEN_WAIT,
    REPLAYED,
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    Listener,
    Name,
    Run,
    RunId,
    Signal,
    StepRow,
    Turn,
    Unit,
    Wait,
)
from bide.stores.interface import Executed


class Tables(Protocol):
    """Bulk reads and the bulk write, inside one transaction."""

    def holders(self, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], RunId]: ...
    def parents(self, ids: Collection[RunId]) -> Collection[RunId]: ...
    def load_runs(self, ids: Collection[RunId]) -> Iterable[Run]: ...
    def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]: ...
    def load_inboxes(self, ids: Collection[RunId]) -> Iterable[Signal]: ...
    def load_signals(self, wanted: Collection[plan.Named], most: int | None) -> Iterable[Signal]:
        """Of each run's signals of each name the oldest, so many at most; None for all."""

    def load_names(self, keys: Collection[NameKey]) -> Iterable[Name]: ...
    def load_steps(self, ids: Collection[RunId]) -> Iterable[StepRow]: ...
    def load_children(self, keys: Collection[RowKey]) -> Iterable[Run]: ...
    def load_interactions(self, keys: Collection[ItemKey]) -> Iterable[Interaction]: ...
    def load_chores(self, ids: Collection[str]) -> Iterable[Chore]: ...
    def load_letters(self, keys: Collection[LetterKey]) -> Iterable[DeadLetter]: ...

    def load_units(self, keys: Collection[RowKey]) -> Iterable[Unit]: ...
    def load_items(self, keys: Collection[ItemKey]) -> Iterable[Item]: ...
    def load_keys(self, hashes: Collection[str]) -> Iterable[Validity]: ...
    def take_stream(self, workspace: str, events: int) -> int:
        """Hold a workspace's stream and set room for so many events aside; the number of the one before them."""

    def stream_seqs(self, workspaces: Collection[str]) -> Mapping[str, int]:
        """The number of the newest event of each workspace that has a stream."""

    def load_events(self, keys: Collection[meetings.EventKey]) -> Iterable[EventRow]: ...
    def load_listeners(self, lookups: Collection[meetings.Lookup]) -> Iterable[Listener]: ...
    def first_event_since(self, workspace: str, moment: datetime) -> int | None:
        """The number of the first event at or after a moment."""

    def next_events(self, search: meetings.Search) -> Sequence[EventRow]:
        """The next events of the search's name or prefix after the one it has reached, `EVENTS_AT_ONCE` at most."""

    def write(self, changes: Changes) -> None: ...


def transact(
    tables: Tables,
    commands: Sequence[AnyCommand],
    now: datetime,
    offer: Offer | None,
    expired: Collection[RunId] = (),
    ledger_key: LedgerKey | None = None,
) -> Executed:
    """Execute a batch inside the transaction that the caller holds. Ends are signed with *ledger_key*."""
    first = _pass(tables, commands, View(now, offer, ledger_key), expired)
    for _ in range(2):
        positions = again(first.replies)
        if not positions:
            break
        redone = _pass(tables, [commands[at] for at in positions], View(now, None, ledger_key), ())
        merge(first, positions, redone)
    return first


def _pass(tables: Tables, commands: Sequence[AnyCommand], view: View, expired: Collection[RunId]) -> Executed:
    view.expired.update(expired)
    lookups = plan.correlation_lookups(commands)
    if lookups:
        holders = tables.holders(lookups)
        commands = [plan.with_target(command, holders) for command in commands]
    signal_ids = plan.signal_lookups(commands)
    if signal_ids:
        commands = plan.with_waits(commands, tables.load_names(signal_ids))
    commands = _meet(tables, view, commands)
    ids = plan.locks(commands) | plan.new_ids(commands)
    may_end = plan.may_end(commands)
    if may_end:
        ids.update(tables.parents(may_end))
    load(tables, view, commands, ids)
    replies = decide_all(view, commands)
    tables.write(view.changes)
    turns = load_turns(tables, view)
    return executed(view, replies, turns)


def _meet(tables: Tables, view: View, commands: Sequence[AnyCommand]) -> Sequence[AnyCommand]:
    """Take the streams that commands need, before any run, and see who meets there."""
    meeting = meetings.meeting(commands)
    if meeting is None:
        return commands
    stream = view.stream
    for workspace, events in meeting.workspaces():
        stream.seqs[workspace] = tables.take_stream(workspace, events)
    for search in meeting.searches:
        search.see(stream.seqs[search.workspace])
        if search.since is not None:
            search.begin(tables.first_event_since(search.workspace, search.since))
        while not search.is_over:
            search.take(tables.next_events(search))
        if search.found is not None:
            stream.found[search.key] = search.found
    if not meeting.emits:
        return commands
    stream.known.update(((event.workspace, event.id), event) for event in tables.load_events(meeting.event_ids()))
    hearings = meeting.hearings(stream.known)
    lookups = {lookup for hearing in hearings for lookup in hearing.lookups()}
    return meetings.with_hits(commands, hearings, list(tables.load_listeners(lookups)) if lookups else [])


def load(tables: Tables, view: View, commands: Sequence[AnyCommand], ids: Collection[RunId]) -> None:
    if ids:
        view.runs.update((run.id, run) for run in tables.load_runs(ids))
    wanted = plan.reads(commands, view.runs)
    if wanted.waits:
        view.waits.update(((wait.run_id, wait.no), wait) for wait in tables.load_waits(wanted.waits))
    if wanted.inboxes:
        note_signals(view, tables.load_inboxes(wanted.inboxes))
    if wanted.oldest:
        note_signals(view, tables.load_signals(wanted.oldest, max(wanted.oldest.values())))
    if packs := plan.packs(view.waits.values(), wanted):
        note_signals(view, tables.load_signals(packs, None))
    if wanted.names:
        for name in tables.load_names(wanted.names):
            view.names[(name.workspace, name.kind, name.name)] = name
    if wanted.interactions:
        note_interactions(view, tables.load_interactions(wanted.interactions))
    if chores := plan.held_chores(view.names.values(), wanted):
        view.outside.chores.update((chore.id, chore) for chore in tables.load_chores(chores))
    if wanted.letters:
        found = tables.load_letters(wanted.letters)
        view.outside.letters.update(((letter.workspace, letter.id), letter) for letter in found)
    if wanted.units:
        view.units.update(((unit.run_id, unit.no), unit) for unit in tables.load_units(wanted.units))
    if wanted.items:
        view.items.update(((item.run_id, item.section, item.item), item) for item in tables.load_items(wanted.items))
    if wanted.keys:
        view.keys.update((key.hash, key) for key in tables.load_keys(wanted.keys))
    view.loaded()


def note_signals(view: View, found: Iterable[Signal]) -> None:
    for signal in found:
        view.inbox.setdefault(signal.run_id, {})[signal.seq] = signal


def note_interactions(view: View, found: Iterable[Interaction]) -> None:
    view.outside.interactions.update(((row.run_id, row.no, row.item), row) for row in found)


def load_turns(tables: Tables, view: View) -> dict[RunId, Turn]:
    """The turns that were handed out."""
    runs, wanted, parts = begun(view)
    if wanted.inboxes:
        parts.add_signals(tables.load_inboxes(wanted.inboxes))
    if wanted.waits:
        parts.add_waits(tables.load_waits(wanted.waits))
    if wanted.histories:
        parts.add_steps(tables.load_steps(wanted.histories))
    if wanted.streams:
        parts.streams.update(tables.stream_seqs(wanted.streams))
    joins = parts.joins()
    if joins:
        parts.add_children(tables.load_children(joins))
    return {run.id: parts.turn(run) for run in runs}


def begun(view: View) -> tuple[list[Run], plan.Reads, TurnParts]:
    """The runs that were handed out, what is to be read for their turns, and what need not be: the view holds it."""
    runs = [view.runs[run_id] for run_id in view.granted]
    wanted = plan.turn_reads(runs)
    parts = TurnParts()
    for run_id in list(wanted.inboxes):
        seen = view.inbox.get(run_id, {})
        if len(seen) == view.runs[run_id].inbox_count:  # the view never holds a signal that is not in the inbox
            parts.add_signals(seen.values())
            wanted.inboxes.discard(run_id)
    for key in wanted.waits & view.waits.keys():
        parts.add_waits([view.waits[key]])
        wanted.waits.discard(key)
    if new := wanted.histories & view.changes.runs_inserted.keys():
        wanted.histories -= new
        parts.add_steps(step for step in view.changes.steps.values() if step is not None and step.run_id in new)
    return runs, wanted, parts


class TurnParts:
    """What the steps of several runs are handed, gathered by run."""

    def __init__(self) -> None:
        self.inboxes: dict[RunId, list[Signal]] = {}
        self.waits: dict[RunId, list[Wait]] = {}
        self.steps: dict[RunId, list[StepRow]] = {}
        self.children: dict[RunId, list[Run]] = {}
        self.streams: dict[str, int] = {}

    def add_signals(self, signals: Iterable[Signal]) -> None:
        for signal in signals:
            self.inboxes.setdefault(signal.run_id, []).append(signal)

    def add_waits(self, waits: Iterable[Wait]) -> None:
        for wait in waits:
            self.waits.setdefault(wait.run_id, []).append(wait)

    def add_steps(self, steps: Iterable[StepRow]) -> None:
        for step in steps:
            self.steps.setdefault(step.run_id, []).append(step)

    def add_children(self, children: Iterable[Run]) -> None:
        for child in children:
            assert child.parent_id is not None
            self.children.setdefault(child.parent_id, []).append(child)

    def joins(self) -> list[RowKey]:
        """The waits whose children a machine's step is handed."""
        return [
            (wait.run_id, wait.no)
            for waits in self.waits.values()
            for wait in waits
            if wait.kind == "children" and wait.status not in OPEN_WAIT
        ]

    def turn(self, run: Run) -> Turn:
        inbox, children, waits = self.inboxes.get(run.id), self.children.get(run.id), self.waits.get(run.id)
        is_workflow = run.style in REPLAYED
        return Turn(
            run=run,
            inbox=tuple(sorted(inbox, key=_seq)) if inbox else (),
            woken_by=waits[0] if waits and not is_workflow else None,
            children=tuple(sorted(children, key=_child_no)) if children else (),
            steps=tuple(self.steps.get(run.id, ())),
            waits=tuple(waits) if waits and is_workflow else (),
            stream_seq=self.streams.get(run.workspace, 0),
        )


def _seq(signal: Signal) -> int:
    return signal.seq


def _child_no(child: Run) -> int:
    return child.child_no or 0


def executed(view: View, replies: list[Reply], turns: dict[RunId, Turn]) -> Executed:
    """What the engine needs to know of a batch: what to run, what to look at, and when."""
    changes = view.changes
    unclaimed = [entry.due_at for entry in changes.queue.values() if entry is not None and entry.worker is None]
    moments = unclaimed + [timer.due_at for timer in changes.timers.values() if timer is not None]
    if changes.chores:
        moments += [chore.due_at for chore in changes.chores.values() if chore is not None]
    if changes.items:
        moments += [item.due_at for item in changes.items.values() if item.due_at is not None]
    changed = (*changes.runs_inserted.values(), *changes.runs_updated.values())
    told: dict[str, int] = {}
    for entries in changes.entries.values():
        for entry in entries:
            told[entry.name] = told.get(entry.name, 0) + 1
    return Executed(
        replies=replies,
        turns=turns,
        ready=any(moment <= view.now for moment in unclaimed),
        due_in=min(moments) - view.now if moments else None,
        ended=[run for run in changed if run.status in FINAL],
        late=view.late,
        early=view.early,
        dead=[letter.kind for letter in changes.outside.letters.values() if letter] if changes.outside else [],
        told=told,
    )


def again(replies: Sequence[Reply]) -> list[int]:
    """The positions of the commands to execute once more because their target moved."""
    return [at for at, reply in enumerate(replies) if isinstance(reply, Again)]


def merge(first: Executed, positions: Sequence[int], redone: Executed) -> None:
    """Put what a second pass did into the first."""
    for at, reply in zip(positions, redone.replies, strict=True):
        first.replies[at] = reply
    first.turns.update(redone.turns)
    first.ready = first.ready or redone.ready
    if redone.due_in is not None:
        first.due_in = min(first.due_in, redone.due_in) if first.due_in is not None else redone.due_in
    first.ended.extend(redone.ended)
    first.late.extend(redone.late)
    first.early += redone.early
    first.dead.extend(redone.dead)
    for name, count in redone.told.items():
        first.told[name] = first.told.get(name, 0) + count
