"""One batch: the view that was loaded under lock, and the draft of what one command changes.

A store fills a `View`, `bide.core.decide` answers each command with a `Draft`, and the view takes it over, so that
the next command of the batch sees it. What is left in the view at the end is written in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from bide.core import ledger
from bide.core.access import Validity
from bide.core.commands import Offer
from bide.core.meetings import Stream
from bide.core.outside import ItemKey, Outside, OutsideDraft
from bide.core.records import (
    OPEN_WAIT,
    Chore,
    EventRow,
    Item,
    LedgerPage,
    Listener,
    Name,
    QueueEntry,
    Run,
    RunId,
    Signal,
    StepRow,
    Timer,
    Unit,
    Unused,
    Wait,
)
from bide.core.redaction import covered, hidden_values, names_in

NameKey = tuple[str, str, str]  # workspace, kind, name
RowKey = tuple[RunId, int]
StepKey = tuple[RunId, str]


class View:
    """What is known of the records that a batch concerns. A name that was looked up and is free is there as None."""

    def __init__(self, now: datetime, offer: Offer | None = None, ledger_key: ledger.LedgerKey | None = None) -> None:
        self.now = now
        self.ledger_key = ledger_key  # what ends are signed with, where that is wanted
        self.offer = offer
        self.slots = offer.slots if offer else 0
        self.leased_until = now + offer.lease if offer else now  # what the offering worker is given, it has so long
        self.runs: dict[RunId, Run] = {}
        self.waits: dict[RowKey, Wait] = {}
        self.inbox: dict[RunId, dict[int, Signal]] = {}
        self.names: dict[NameKey, Name | None] = {}
        self.items: dict[ItemKey, Item] = {}
        self.units: dict[RowKey, Unit] = {}
        self.expired: set[RunId] = set()  # running, and their lease has ended
        self.keys: dict[str, Validity] = {}  # that commands were sent with, by their hash
        self.outside = Outside()
        self.stream = Stream()
        self.changes = Changes(self.outside)
        self.granted: dict[RunId, None] = {}  # claimed for the offering worker in this batch, in order
        self.late: list[float] = []  # by how many seconds timers were fired after they were due
        self.early = 0  # answers to interactions that came before they were sent, or before their run was parked (U6)
        self._known: tuple[frozenset[RunId], frozenset[RowKey]] = (frozenset(), frozenset())

    def loaded(self) -> None:
        """Everything is read: from here on the difference between new and known rows counts."""
        self._known = frozenset(self.runs), frozenset(self.waits)

    def take(self, draft: Draft) -> None:
        """Make a decision part of the view."""
        changes, (known_runs, known_waits) = self.changes, self._known
        for run_id, run in draft.runs.items():
            self.runs[run_id] = run
            (changes.runs_updated if run_id in known_runs else changes.runs_inserted)[run_id] = run
        for key, wait in draft.waits.items():
            self.waits[key] = wait
            (changes.waits_updated if key in known_waits else changes.waits_inserted)[key] = wait
        if draft.inbox:
            self._take_inbox(draft)
        changes.queue.update(draft.queue)
        if draft.timers:
            changes.timers.update(draft.timers)
        for run_id, entries in draft.entries.items():
            known = changes.entries.get(run_id)
            if known is None:
                changes.entries[run_id] = entries
            else:
                known.extend(entries)
        if draft.made:
            self._take_rare(draft)
        if draft.has_outside:
            self.outside.take(draft.outside)
        self.slots -= draft.slots_taken
        for run_id, granted in draft.granted.items():
            if granted:
                self.granted[run_id] = None
            else:
                self.granted.pop(run_id, None)

    def _take_rare(self, draft: Draft) -> None:
        changes, made = self.changes, draft.made or ()
        if "names" in made:
            self._take_names(draft)
        if "chores" in made:
            changes.chores.update(draft.chores)
        if "steps" in made:
            changes.steps.update(draft.steps)
        if "items" in made:
            self.items.update(draft.items)
            changes.items.update(draft.items)
        if "units" in made:
            self.units.update(draft.units)
            changes.units.update(draft.units)
        if "unused" in made:
            changes.unused.extend(draft.unused)
        if "unused_deleted" in made:
            changes.unused_deleted.extend(draft.unused_deleted)
        if "intake_deleted" in made:
            changes.intake_deleted.extend(draft.intake_deleted)
        if "events" in made or "listeners" in made:
            self._take_events(draft)

    def _take_inbox(self, draft: Draft) -> None:
        changes = self.changes
        for key, signal in draft.inbox.items():
            if signal is not None:
                self.inbox.setdefault(key[0], {})[key[1]] = changes.inbox_inserted[key] = signal
            else:
                self.inbox.get(key[0], {}).pop(key[1], None)
                if changes.inbox_inserted.pop(key, None) is None:
                    changes.inbox_deleted[key] = None

    def _take_events(self, draft: Draft) -> None:
        stream = self.stream
        for event in draft.events:
            stream.seqs[event.workspace] = event.seq
            stream.known[(event.workspace, event.id)] = event
            stream.emitted.append(event)
        self.changes.events.extend(draft.events)
        self.changes.listeners.update(draft.listeners)

    def _take_names(self, draft: Draft) -> None:
        """A row that this batch inserts is not in the store yet: who replaces or drops it finds nothing to delete."""
        changes = self.changes
        for name_key, known in draft.freed.items():
            if name_key not in changes.names_inserted:
                changes.names_deleted.setdefault(name_key, known)
        for name_key, name in draft.names.items():
            self.names[name_key] = name
            if name is not None:
                changes.names_inserted[name_key] = name
            elif changes.names_inserted.pop(name_key, None) is None:
                changes.names_deleted.setdefault(name_key, None)


class Changes:
    """What one batch writes. A None stands for a row that goes."""

    def __init__(self, outside: Outside | None = None) -> None:
        self.outside = outside.changes if outside is not None else Outside().changes
        self.runs_inserted: dict[RunId, Run] = {}
        self.runs_updated: dict[RunId, Run] = {}
        self.waits_inserted: dict[RowKey, Wait] = {}
        self.waits_updated: dict[RowKey, Wait] = {}
        self.inbox_inserted: dict[RowKey, Signal] = {}
        self.inbox_deleted: dict[RowKey, None] = {}
        # Before names_inserted: a freed key may be taken at once. The row must be this one; None: whatever it is.
        self.names_deleted: dict[NameKey, Name | None] = {}
        self.names_inserted: dict[NameKey, Name] = {}
        self.queue: dict[RunId, QueueEntry | None] = {}
        self.timers: dict[RowKey, Timer | None] = {}
        self.entries: dict[RunId, list[ledger.Stored]] = {}
        self.chores: dict[str, Chore | None] = {}
        self.steps: dict[StepKey, StepRow | None] = {}
        self.items: dict[ItemKey, Item] = {}  # new ones and changed ones
        self.units: dict[RowKey, Unit] = {}  # new ones and changed ones
        self.unused: list[Unused] = []
        self.unused_deleted: list[tuple[str, str]] = []  # workspace, id
        self.intake_deleted: list[str] = []
        self.events: list[EventRow] = []
        self.listeners: dict[RowKey, Listener | None] = {}

    @property
    def is_empty(self) -> bool:
        return not (
            self.runs_inserted
            or self.runs_updated
            or self.waits_inserted
            or self.waits_updated
            or self.inbox_inserted
            or self.inbox_deleted
            or self.names_deleted
            or self.names_inserted
            or self.queue
            or self.timers
            or self.entries
            or self.chores
            or self.steps
            or self.items
            or self.units
            or self.unused
            or self.unused_deleted
            or self.intake_deleted
            or self.outside
            or self.events
            or self.listeners
        )

    def pages(self) -> Iterable[LedgerPage]:
        for run_id, entries in self.entries.items():
            yield LedgerPage(run_id=run_id, seq=entries[0].seq, entries=ledger.encode_page(entries))


RARE: Mapping[str, type[dict[Any, Any]] | type[list[Any]]] = {
    "names": dict, "freed": dict, "chores": dict, "steps": dict, "items": dict, "units": dict, "unused": list,
    "unused_deleted": list, "intake_deleted": list, "events": list, "listeners": dict,
}  # fmt: skip


class Draft:
    """What one command changes, on top of a view. Nothing of it counts until the view takes it.

    Most commands change a run, its waits, its place in the queue and its ledger, and nothing else: the rest is made
    when it is first asked for.
    """

    __slots__ = (
        "_outside", "actor", "chores", "entries", "events", "freed", "granted", "inbox", "incoming", "intake_deleted",
        "items", "listeners", "made", "names", "now", "queue", "reason", "runs", "slots_taken", "steps", "timers",
        "trace", "units", "unused", "unused_deleted", "verdict", "view", "waits",
    )  # fmt: skip

    names: dict[NameKey, Name | None]
    freed: dict[NameKey, Name | None]  # names whose row is replaced, and which row that must be
    chores: dict[str, Chore | None]
    steps: dict[StepKey, StepRow | None]
    items: dict[ItemKey, Item]
    units: dict[RowKey, Unit]
    unused: list[Unused]
    unused_deleted: list[tuple[str, str]]  # workspace, id
    intake_deleted: list[str]
    events: list[EventRow]
    listeners: dict[RowKey, Listener | None]

    def __init__(self, view: View, actor: str, verdict: str = "", incoming: str | None = None, trace: str = "") -> None:
        self.view = view
        self.now = view.now
        self.actor = actor
        self.verdict = verdict
        self.reason = ""  # that an operator gave for an answer
        self.incoming = incoming  # the payload that came with the command
        self.trace = trace  # the trace context that the command was sent in
        self.runs: dict[RunId, Run] = {}
        self.waits: dict[RowKey, Wait] = {}
        self.inbox: dict[RowKey, Signal | None] = {}
        self.queue: dict[RunId, QueueEntry | None] = {}
        self.timers: dict[RowKey, Timer | None] = {}
        self.entries: dict[RunId, list[ledger.Stored]] = {}
        self.granted: dict[RunId, bool] = {}
        self.slots_taken = 0
        self.made: set[str] | None = None  # which of the rare parts there are
        self._outside: OutsideDraft | None = None

    def __getattr__(self, name: str) -> Any:
        """A rare part that is not there yet."""
        if name not in RARE:
            raise AttributeError(name)
        part = RARE[name]()
        setattr(self, name, part)
        if self.made is None:
            self.made = set()
        self.made.add(name)
        return part

    @property
    def outside(self) -> OutsideDraft:
        """What the command changes of what the outside sees; most commands change nothing of it."""
        if self._outside is None:
            self._outside = OutsideDraft()
        return self._outside

    @property
    def has_outside(self) -> bool:
        return self._outside is not None

    # -- reading: this draft first, then the view

    def run(self, run_id: RunId) -> Run | None:
        return self.runs.get(run_id) or self.view.runs.get(run_id)

    def wait(self, run_id: RunId, no: int) -> Wait | None:
        key = (run_id, no)
        return self.waits.get(key) or self.view.waits.get(key)

    def open_waits(self, run: Run) -> list[Wait]:
        if not run.open_waits:
            return []
        waits = [self.wait(run.id, no) for no in run.open_waits]
        return [wait for wait in waits if wait is not None and wait.status in OPEN_WAIT]

    def item(self, key: ItemKey) -> Item | None:
        return self.items.get(key) or self.view.items.get(key)

    def signals(self, run_id: RunId) -> list[Signal]:
        if run_id not in self.view.inbox and not self.inbox:
            return []
        known: dict[int, Signal | None] = {**self.view.inbox.get(run_id, {})}
        known |= {key[1]: signal for key, signal in self.inbox.items() if key[0] == run_id}
        return [signal for _, signal in sorted(known.items()) if signal is not None]

    def name(self, workspace: str, kind: str, name: str) -> Name | None:
        key = (workspace, kind, name)
        if self.made is not None and key in self.names:
            return self.names[key]
        return self.view.names.get(key)

    def chore(self, id: str) -> Chore | None:
        for changed in (self.chores, self.view.changes.chores):
            if id in changed:
                return changed[id]
        return self.view.outside.chores.get(id)

    def event(self, workspace: str, id: str) -> EventRow | None:
        return self.view.stream.known.get((workspace, id))

    def next_event(self, workspace: str) -> int:
        """The number of the next event of a workspace whose stream is held."""
        return self.view.stream.seqs[workspace] + 1

    # -- writing

    def put_run(self, run: Run) -> Run:
        self.runs[run.id] = run
        return run

    def put_wait(self, wait: Wait) -> Wait:
        key = (wait.run_id, wait.no)
        before = self.waits.get(key) or self.view.waits.get(key)
        self.waits[key] = wait
        due_at = wait.due_at if wait.status == "waiting" else None
        had = before.due_at if before is not None and before.status == "waiting" else None
        if due_at != had:
            self.timers[key] = Timer(run_id=wait.run_id, no=wait.no, due_at=due_at) if due_at else None
        return wait

    def put_terms(self, wait: Wait) -> Wait:
        """Put a wait whose deadline or details are other ones than before."""
        self.outside.terms[(wait.run_id, wait.no)] = wait
        return self.put_wait(wait)

    def unit(self, key: RowKey) -> Unit | None:
        return self.units.get(key) or self.view.units.get(key)

    def put_unit(self, unit: Unit) -> Unit:
        self.units[(unit.run_id, unit.no)] = unit
        return unit

    def put_item(self, item: Item) -> Item:
        self.items[(item.run_id, item.section, item.item)] = item
        return item

    def put_name(self, name: Name) -> None:
        key = (name.workspace, name.kind, name.name)
        if key in self.names and self.names[key] is None:
            self.freed.setdefault(key, None)  # this draft has dropped the row that is there
        self.names[key] = name

    def replace_name(self, name: Name, known: Name | None = None) -> None:
        """Put a name whose row may be there already.

        Whoever does not hold the run that the name belongs to says with *known* which row is replaced: where a rival
        has changed it since, the batch is executed again.
        """
        key = (name.workspace, name.kind, name.name)
        if self.names.get(key) is None:
            self.freed.setdefault(key, known)
        self.put_name(name)

    def drop_name(self, workspace: str, kind: str, name: str) -> None:
        self.names[(workspace, kind, name)] = None

    def record(self, run: Run, name: str, data: Mapping[str, Any], digest: str | None = None, **changes: Any) -> Run:
        """Append to the run's ledger what *changes* it; the chain's head rides in the run row, which is put.

        *digest* is of a payload that the rows keep, and stays as it is, though a hidden value may stand in its digits
        by chance.
        """
        if self.verdict:  # once per command: what a policy said stands with the first thing that came of it
            data, self.verdict = {**data, "policy": self.verdict}, ""
        if self.reason:  # once too (W10)
            data, self.reason = {"reason": self.reason, **data}, ""
        if run.redact:
            names = names_in(run.redact)
            data = covered(data, names, hidden_values(names, run.input, run.state, self.incoming))
        if digest is not None:
            data = {**data, "digest": digest}
        seq = run.ledger_seq + 1
        key = self.view.ledger_key
        if key is not None and name in ledger.ENDS:
            signed = ledger.signature(key, run.id, run.ledger_head, seq, self.now, name, self.actor, data)
            data = {**data, "signed": signed}
        entry = ledger.append(run.ledger_head, seq, self.now, name, self.actor, data)
        if (entries := self.entries.get(run.id)) is not None:
            entries.append(entry)
        else:
            self.entries[run.id] = [entry]
        run = self.runs[run.id] = replace(run, ledger_seq=seq, ledger_head=entry.hash, **changes)
        return run
