"""The memory store: the same protocol over dictionaries. For tests; nothing survives the process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

import msgspec

from bide.core import invariants, meetings
from bide.core.access import Key, Secret, Validity, Workspace
from bide.core.batch import Changes, NameKey, RowKey
from bide.core.commands import AnyCommand, Claim, Deliver, FireTimer, Offer, Start
from bide.core.ledger import LedgerKey
from bide.core.outside import ItemKey, LetterKey, OutsideChanges, assigned, closed
from bide.core.plan import Named
from bide.core.records import (
    FINAL,
    OPEN_INTERACTION,
    OPEN_WAIT,
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    QueueEntry,
    Run,
    RunId,
    RunStatus,
    Signal,
    StepRow,
    Timer,
    Unit,
    Unused,
    Wait,
)
from bide.errors import ForeignConnectionError
from bide.stores.interface import (
    MOST_UNUSED_OF_WAIT,
    Executed,
    InteractionFilter,
    Now,
    RunFilter,
    Streamed,
    Violation,
    WaitFilter,
)
from bide.stores.pages import place_number
from bide.stores.transaction import transact


class MemoryStore:
    """Rows in dictionaries, one lock as the transaction."""

    def __init__(self, *, now: Now, ledger_key: LedgerKey | None = None) -> None:
        self._now = now
        self._ledger_key = ledger_key
        self.round_trips = 0
        self.batches_at_once = 1
        self._lock = threading.RLock()
        self._runs: dict[RunId, Run] = {}
        self._children: dict[RowKey, list[RunId]] = {}
        self._waits: dict[RowKey, Wait] = {}
        self._inbox: dict[RunId, dict[int, Signal]] = {}
        self._names: dict[NameKey, Name] = {}
        self._queue: dict[RunId, QueueEntry] = {}
        self._timers: dict[RowKey, Timer] = {}
        self._ledger: dict[RunId, list[LedgerPage]] = {}
        self._stream: list[tuple[int, LedgerPage]] = []  # pages by their places
        self._places = 0
        self._chores: dict[str, Chore] = {}
        self._steps: dict[RunId, dict[str, StepRow]] = {}
        self._units: dict[RowKey, Unit] = {}
        self._items: dict[tuple[RunId, int], dict[int, Item]] = {}
        self._unused: dict[tuple[str, str], Unused] = {}
        self._interactions: dict[ItemKey, Interaction] = {}
        self._letters: dict[LetterKey, DeadLetter] = {}
        self._workspaces: dict[str, Workspace] = {}
        self._keys: dict[str, Key] = {}
        self._secrets: list[Secret] = []
        self._streams: dict[str, int] = {}
        self._events: dict[str, list[EventRow]] = {}  # by workspace, in the order of the stream
        self._event_ids: dict[meetings.EventKey, EventRow] = {}
        self._listeners: dict[RowKey, Listener] = {}
        self._topics: dict[tuple[str, str], dict[RowKey, Listener]] = {}  # by workspace and topic

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    # -- execute, claim, due

    def foresee(self, run_id: RunId) -> bool:
        return False

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        with self._lock:
            self.round_trips += 1
            return transact(self, commands, self._now(), offer, ledger_key=self._ledger_key)

    async def leave(self, connection: Any, command: Start | Deliver) -> None:
        raise ForeignConnectionError("the memory store has no connections to join; use SQLite or PostgreSQL")

    async def left(self, id: str) -> Start | Deliver | None:
        return None

    def connection(self) -> AbstractAsyncContextManager[Any]:
        raise ForeignConnectionError("the memory store has no connections to join; use SQLite or PostgreSQL")

    async def admit(self, limit: int, offer: Offer | None = None) -> Executed:
        return Executed(replies=[])

    async def claim(self, offer: Offer) -> Executed:
        with self._lock:
            self.round_trips += 1
            now = self._now()
            due = [e for e in self._queue.values() if e.due_at <= now and e.queue in offer.queues]
            due.sort(key=lambda entry: (-entry.priority, entry.due_at, entry.run_id))
            due = due[: offer.slots]
            commands = [Claim(workspace="", run_id=e.run_id, actor=f"worker:{offer.worker}") for e in due]
            expired = {e.run_id for e in due if e.worker is not None}
            return transact(self, commands, now, offer, expired, self._ledger_key)

    def renew(self, worker: str, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
        lost = set()
        with self._lock:
            until = self._now() + lease
            for run_id, epoch in claims.items():
                entry = self._queue.get(run_id)
                if entry is None or entry.epoch != epoch or entry.worker is None:
                    lost.add(run_id)
                else:
                    self._queue[run_id] = msgspec.structs.replace(entry, due_at=until)
        return lost

    async def end_leases(self, worker: str) -> int:
        with self._lock:
            now = self._now()
            held = [entry for entry in self._queue.values() if entry.worker == worker]
            for entry in held:
                self._queue[entry.run_id] = msgspec.structs.replace(entry, due_at=now)
            return len(held)

    async def fire_timers(self, limit: int, offer: Offer | None = None) -> Executed:
        with self._lock:
            self.round_trips += 1
            now = self._now()
            due = sorted(
                (timer for timer in self._timers.values() if timer.due_at <= now),
                key=lambda timer: (timer.due_at, timer.run_id, timer.no),
            )[:limit]
            commands = [FireTimer(workspace="", run_id=t.run_id, no=t.no, actor="timer") for t in due]
            return transact(self, commands, now, offer, ledger_key=self._ledger_key)

    async def due_chores(self, limit: int) -> Sequence[Chore]:
        return self._due_chores()[:limit]

    async def claim_chores(self, limit: int, lease: timedelta) -> Sequence[Chore]:
        with self._lock:
            due = [chore for chore in self._due_chores() if chore.kind != "cancel_children"][:limit]
            taken = [msgspec.structs.replace(c, due_at=self._now() + lease, tries=c.tries + 1) for c in due]
            self._chores.update((chore.id, chore) for chore in taken)
            return taken

    def _due_chores(self) -> list[Chore]:
        now = self._now()
        return sorted((c for c in self._chores.values() if c.due_at <= now), key=lambda c: (c.due_at, c.id))

    async def due_items(self, queues: frozenset[str], definitions: frozenset[str], limit: int) -> Sequence[Item]:
        now = self._now()
        due = [
            item
            for (run_id, _), items in self._items.items()
            if self._runs[run_id].queue in queues and self._runs[run_id].definition in definitions
            for item in items.values()
            if item.due_at is not None and item.due_at <= now
        ]
        due.sort(key=lambda item: (item.due_at, item.run_id, item.section, item.item))
        return due[:limit]

    async def live_children(
        self, run_id: RunId, limit: int, *, wait_no: int | None = None, after: RunId | None = None
    ) -> Sequence[RunId]:
        live = [
            run.id
            for run in self._runs.values()
            if run.parent_id == run_id
            and run.status not in FINAL
            and wait_no in (None, run.parent_wait)
            and (after is None or run.id > after)
        ]
        return sorted(live)[:limit]

    async def until_due(self, queues: frozenset[str]) -> timedelta | None:
        moments = [entry.due_at for entry in self._queue.values() if entry.queue in queues]
        moments += [timer.due_at for timer in self._timers.values()]
        moments += [chore.due_at for chore in self._chores.values()]
        moments += [i.due_at for items in self._items.values() for i in items.values() if i.due_at is not None]
        return min(moments) - self._now() if moments else None

    async def free_locks(self, longer_than: timedelta) -> int:
        return 0  # the only process there is

    async def delete_ended(self, ended_before: timedelta, limit: int) -> int:
        with self._lock:
            limit_at = self._now() - ended_before
            gone = [run for run in self._runs.values() if run.ended_at is not None and run.ended_at < limit_at]
            gone = [run for run in gone if self._is_over(run.parent_id)][:limit]
            ids = {run.id for run in gone}
            for run_id in ids:
                self._runs.pop(run_id)
                self._ledger.pop(run_id, None)
                self._inbox.pop(run_id, None)
                self._steps.pop(run_id, None)
            self._stream = [streamed for streamed in self._stream if streamed[1].run_id not in ids]
            self._waits = {key: wait for key, wait in self._waits.items() if key[0] not in ids}
            self._units = {key: unit for key, unit in self._units.items() if key[0] not in ids}
            self._items = {key: items for key, items in self._items.items() if key[0] not in ids}
            self._names = {key: name for key, name in self._names.items() if name.run_id not in ids}
            self._interactions = {key: row for key, row in self._interactions.items() if key[0] not in ids}
            self._children = {key: c for key, c in self._children.items() if key[0] not in ids}
            return len(ids)

    async def trim_unused(self, older_than: timedelta, keep: int, limit: int) -> int:
        with self._lock:
            before = self._now() - older_than
            newest = sorted(self._unused.values(), key=lambda unused: (unused.at, unused.id), reverse=True)
            seen: Counter[str] = Counter()
            of_wait: Counter[tuple[str, str]] = Counter()
            gone = []
            for unused in newest:
                seen[unused.workspace] += 1
                is_answer = unused.target.startswith(("int_", "wait_"))
                of_wait[(unused.workspace, unused.target)] += is_answer
                too_many = of_wait[(unused.workspace, unused.target)] > MOST_UNUSED_OF_WAIT
                if unused.at < before or seen[unused.workspace] > keep or too_many:
                    gone.append(unused)
            for unused in gone[::-1][:limit]:
                del self._unused[(unused.workspace, unused.id)]
            return min(len(gone), limit)

    async def trim_events(self, older_than: timedelta, limit: int) -> int:
        with self._lock:
            before = self._now() - older_than
            old = sorted((e for e in self._event_ids.values() if e.at < before), key=lambda event: event.at)[:limit]
            for event in old:
                self._events[event.workspace].remove(self._event_ids.pop((event.workspace, event.id)))
            return len(old)

    def _is_over(self, run_id: RunId | None) -> bool:
        run = self._runs.get(run_id) if run_id is not None else None
        return run is None or run.status in FINAL

    # -- read

    async def now(self) -> datetime:
        return self._now()

    async def run(self, workspace: str, run_id: str) -> Run | None:
        run = self._runs.get(RunId(run_id))
        return run if run is not None and run.workspace == workspace else None

    async def statuses(self, ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
        return {id: self._runs[id].status for id in ids if id in self._runs}

    async def holder(self, workspace: str, correlation_key: str) -> RunId | None:
        name = self._names.get((workspace, "correlation", correlation_key))
        return name.run_id if name is not None else None

    async def name(self, workspace: str, kind: str, name: str) -> Name | None:
        return self._names.get((workspace, kind, name))

    async def runs(self, filter: RunFilter, *, after: str | None, limit: int) -> Sequence[Run]:
        found = (run for _, run in sorted(self._runs.items()) if _fits(run, filter))
        return [run for run in found if after is None or run.id > after][:limit]

    async def count_runs(self, workspace: str | None) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for run in self._runs.values():
            if workspace is None or run.workspace == workspace:
                counts[run.status] = counts.get(run.status, 0) + 1
        return counts

    async def count_open(self) -> Mapping[str, int]:
        open_waits: Counter[str] = Counter(wait.status for wait in self._waits.values() if wait.status in OPEN_WAIT)
        return {**open_waits, "dead_letters": len(self._letters)}

    async def count_live(self, workspace: str) -> Mapping[str, int]:
        live = [run for run in self._runs.values() if run.workspace == workspace and run.ended_at is None]
        waits = sum(wait.workspace == workspace and wait.status in OPEN_WAIT for wait in self._waits.values())
        return {"runs": len(live), "waits": waits, "inbox": sum(run.inbox_count for run in live)}

    async def waits(self, filter: WaitFilter, *, after: tuple[str, int] | None, limit: int) -> Sequence[Wait]:
        found = [
            wait
            for key, wait in sorted(self._waits.items())
            if (after is None or key > after)
            and (filter.workspace is None or wait.workspace == filter.workspace)
            and (filter.run_id is None or wait.run_id == filter.run_id)
            and (filter.status is None or wait.status == filter.status)
            and (filter.opened_before is None or wait.opened_at < filter.opened_before)
            and (filter.no is None or wait.no == filter.no)
            and (filter.kind is None or wait.kind == filter.kind)
            and (filter.definition is None or self._runs[wait.run_id].definition == filter.definition)
            and _fits_terms(wait, filter)
        ]
        return found[:limit]

    async def interactions(
        self, filter: InteractionFilter, *, after: tuple[str, int, int] | None, limit: int
    ) -> Sequence[tuple[Interaction, Wait]]:
        found = [row for key, row in sorted(self._interactions.items()) if after is None or key > after]
        fitting = (row for row in found if _fits_interaction(row, filter))
        return [(row, self._waits[(row.run_id, row.no)]) for row in fitting][:limit]

    async def dead_letters(
        self, workspace: str, *, after: tuple[datetime, str] | None, limit: int
    ) -> Sequence[DeadLetter]:
        found = sorted((row.at, row.id) for row in self._letters.values() if row.workspace == workspace)
        return [self._letters[(workspace, id)] for at, id in found if after is None or (at, id) > after][:limit]

    async def unit(self, run_id: str, no: int) -> Unit | None:
        return self._units.get((RunId(run_id), no))

    async def some_interactions(self, keys: Collection[ItemKey]) -> Sequence[Interaction]:
        return list(self.load_interactions(keys))

    async def pending(self, run_id: str, no: int, *, limit: int) -> Sequence[Interaction]:
        unit = self._units.get((RunId(run_id), no))
        if unit is None or unit.handed == unit.expected:
            return []
        waiting = (row for row in self._interactions.values() if row.status == "pending")
        return sorted((row for row in waiting if (row.run_id, row.no) == (run_id, no)), key=lambda row: row.item)[
            :limit
        ]

    async def items(self, run_id: str, section: int, *, after: int = -1, limit: int) -> Sequence[Item]:
        found = self._items.get((RunId(run_id), section), {})
        return [found[no] for no in range(after + 1, after + 1 + limit) if no in found]

    async def inbox(self, run_id: str) -> Sequence[Signal]:
        return [signal for _, signal in sorted(self._inbox.get(RunId(run_id), {}).items())]

    async def steps(self, run_id: str) -> Sequence[StepRow]:
        return list(self.load_steps([RunId(run_id)]))

    async def ledger(self, run_id: str, *, as_found: bool = False) -> Sequence[LedgerPage]:
        return list(self._ledger.get(RunId(run_id), ()))

    async def stream(self, workspace: str, place: str, *, limit: int) -> Sequence[Streamed]:
        first = bisect_left(self._stream, place_number(place), key=lambda streamed: streamed[0])
        found = self._stream[first : first + limit]
        return [Streamed(str(at), page if self._is_of(page.run_id, workspace) else None) for at, page in found]

    def _is_of(self, run_id: RunId, workspace: str) -> bool:
        return self._runs[run_id].workspace == workspace

    async def stream_end(self) -> str:
        return str(self._places + 1)

    async def unused(
        self, workspace: str, *, run_id: str | None = None, after: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Unused]:
        of_run = (row for row in self._unused.values() if run_id is None or row.run_id == run_id)
        found = sorted((row.at, row.id) for row in of_run if row.workspace == workspace)
        return [self._unused[(workspace, id)] for at, id in found if after is None or (at, id) > after][:limit]

    async def unused_by_id(self, workspace: str, id: str) -> Unused | None:
        return self._unused.get((workspace, id))

    async def audit(self) -> Sequence[Violation]:
        broken = invariants.check(self.rows())
        return [Violation(each.invariant, each.id, each.detail) for each in broken]

    def rows(self) -> invariants.Rows:
        """Everything that the audit looks at."""
        return invariants.Rows(
            runs=self._runs.values(),
            waits=self._waits.values(),
            inbox=[signal for signals in self._inbox.values() for signal in signals.values()],
            names=self._names.values(),
            queue=self._queue.values(),
            timers=self._timers.values(),
            pages=[page for pages in self._ledger.values() for page in pages],
            interactions=self._interactions.values(),
            listeners=self._listeners.values(),
            chores=self._chores.values(),
            steps=[step for steps in self._steps.values() for step in steps.values()],
            units=self._units.values(),
            items=[item for items in self._items.values() for item in items.values()],
            promised=frozenset(chore.run_id for chore in self._chores.values() if chore.kind == "dispatch")
            | frozenset(letter.run_id for letter in self._letters.values() if letter.kind == "dispatch"),
        )

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Nobody else can see this memory: there is nothing to hint at."""
        return lambda: None

    # -- access

    async def add_workspace(self, workspace: Workspace) -> bool:
        return self._workspaces.setdefault(workspace.name, workspace) is workspace

    async def workspaces(self) -> Sequence[Workspace]:
        return [workspace for _, workspace in sorted(self._workspaces.items())]

    async def add_key(self, key: Key) -> None:
        self._keys[key.id] = key

    async def key(self, hash: str) -> tuple[Key, datetime] | None:
        found = next((key for key in self._keys.values() if key.hash == hash), None)
        return (found, self._now()) if found is not None else None

    async def keys(self, workspace: str | None) -> Sequence[Key]:
        return [key for _, key in sorted(self._keys.items()) if workspace in (None, key.workspace)]

    async def touch_key(self, id: str) -> None:
        if id in self._keys:
            self._keys[id] = msgspec.structs.replace(self._keys[id], last_used_at=self._now())

    async def revoke_key(self, id: str) -> bool:
        key = self._keys.get(id)
        if key is None or key.revoked_at is not None:
            return False
        self._keys[id] = msgspec.structs.replace(key, revoked_at=self._now())
        return True

    async def secrets(self, candidate: Secret) -> Sequence[Secret]:
        if not self._secrets:
            self._secrets.append(candidate)
        return self._secrets[::-1]

    # -- Tables: what `transact` reads and writes

    def holders(self, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], RunId]:
        names = ((key, self._names.get((key[0], "correlation", key[1]))) for key in keys)
        return {key: name.run_id for key, name in names if name is not None}

    def parents(self, ids: Collection[RunId]) -> Collection[RunId]:
        runs = self.load_runs(ids)
        return {run.parent_id for run in runs if run.parent_id is not None}

    def load_runs(self, ids: Collection[RunId]) -> Iterable[Run]:
        return [self._runs[run_id] for run_id in ids if run_id in self._runs]

    def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]:
        return [self._waits[key] for key in keys if key in self._waits]

    def load_inboxes(self, ids: Collection[RunId]) -> Iterable[Signal]:
        return [signal for run_id in ids for signal in self._inbox.get(run_id, {}).values()]

    def load_signals(self, wanted: Collection[Named], most: int | None) -> Iterable[Signal]:
        for run_id, name in wanted:
            inbox = sorted(self._inbox.get(run_id, {}).items())
            yield from islice((signal for _, signal in inbox if signal.name == name), most)

    def load_names(self, keys: Collection[NameKey]) -> Iterable[Name]:
        return [self._names[key] for key in keys if key in self._names]

    def load_steps(self, ids: Collection[RunId]) -> Iterable[StepRow]:
        return [step for run_id in ids for step in self._steps.get(run_id, {}).values()]

    def load_units(self, keys: Collection[RowKey]) -> Iterable[Unit]:
        return [self._units[key] for key in keys if key in self._units]

    def load_items(self, keys: Collection[ItemKey]) -> Iterable[Item]:
        found = (self._items.get((run_id, section), {}).get(no) for run_id, section, no in keys)
        return [item for item in found if item is not None]

    def load_children(self, keys: Collection[RowKey]) -> Iterable[Run]:
        return [self._runs[child] for key in keys for child in self._children.get(key, ()) if child in self._runs]

    def load_interactions(self, keys: Collection[ItemKey]) -> Iterable[Interaction]:
        return [self._interactions[key] for key in keys if key in self._interactions]

    def load_chores(self, ids: Collection[str]) -> Iterable[Chore]:
        return [self._chores[id] for id in ids if id in self._chores]

    def load_keys(self, hashes: Collection[str]) -> Iterable[Validity]:
        keys = (key for key in self._keys.values() if key.hash in hashes)
        return [Validity(key.hash, key.expires_at, key.revoked_at) for key in keys]

    def load_letters(self, keys: Collection[LetterKey]) -> Iterable[DeadLetter]:
        return [self._letters[key] for key in keys if key in self._letters]

    def _write_outside(self, changes: OutsideChanges) -> None:
        self._interactions.update(changes.inserted)
        self._interactions.update(changes.updated)
        concerned = list(self._interactions.items()) if changes.assigned or changes.closed else []
        for key, row in concerned:
            if row.status not in OPEN_INTERACTION:
                continue
            if key[:2] in changes.assigned:
                row = self._interactions[key] = assigned(row, changes.assigned[key[:2]])
            if key[:2] in changes.closed:
                self._interactions[key] = closed(row, changes.closed[key[:2]])
        _put(self._letters, changes.letters)

    def take_stream(self, workspace: str, events: int) -> int:
        before = self._streams.get(workspace, 0)
        self._streams[workspace] = before + events
        return before

    def stream_seqs(self, workspaces: Collection[str]) -> Mapping[str, int]:
        return {workspace: self._streams.get(workspace, 0) for workspace in workspaces}

    def load_events(self, keys: Collection[meetings.EventKey]) -> Iterable[EventRow]:
        return [self._event_ids[key] for key in keys if key in self._event_ids]

    def load_listeners(self, lookups: Collection[meetings.Lookup]) -> Iterable[Listener]:
        return [
            listener
            for workspace, topic, eq in sorted(lookups, key=repr)
            for listener in self._topics.get((workspace, topic), {}).values()
            if eq is None or listener.eq == eq
        ]

    def first_event_since(self, workspace: str, moment: datetime) -> int | None:
        return min((event.seq for event in self._events.get(workspace, ()) if event.at >= moment), default=None)

    def next_events(self, search: meetings.Search) -> Sequence[EventRow]:
        there = self._events.get(search.workspace, ())
        found = (event for event in there if event.seq > search.reached and _is_sought(event, search))
        return list(islice(found, meetings.EVENTS_AT_ONCE))

    def write(self, changes: Changes) -> None:
        if changes.outside:
            self._write_outside(changes.outside)
        for run in changes.runs_inserted.values():
            if run.parent_id is not None and run.parent_wait is not None:
                self._children.setdefault((run.parent_id, run.parent_wait), []).append(run.id)
        self._runs.update(changes.runs_inserted)
        self._runs.update(changes.runs_updated)
        self._waits.update(changes.waits_inserted)
        self._waits.update(changes.waits_updated)
        for key, signal in changes.inbox_inserted.items():
            self._inbox.setdefault(key[0], {})[key[1]] = signal
        for key in changes.inbox_deleted:
            self._inbox.get(key[0], {}).pop(key[1], None)
        for name_key in changes.names_deleted:
            self._names.pop(name_key, None)
        self._names.update(changes.names_inserted)
        _put(self._queue, changes.queue)
        _put(self._timers, changes.timers)
        _put(self._chores, changes.chores)
        for (run_id, step_key), step in changes.steps.items():
            _put(self._steps.setdefault(run_id, {}), {step_key: step})
        self._units.update(changes.units)
        for (item_run, section, no), item in changes.items.items():
            self._items.setdefault((item_run, section), {})[no] = item
        for page in changes.pages():
            self._ledger.setdefault(page.run_id, []).append(page)
            self._places += 1
            self._stream.append((self._places, page))
        for unused in changes.unused:
            self._unused.setdefault((unused.workspace, unused.id), unused)  # the same delivery may be tried again
        for unused_key in changes.unused_deleted:
            self._unused.pop(unused_key, None)
        for event in changes.events:
            self._events.setdefault(event.workspace, []).append(event)
            self._event_ids[(event.workspace, event.id)] = event
        for key, listener in changes.listeners.items():
            self._put_listener(key, listener)

    def _put_listener(self, key: RowKey, listener: Listener | None) -> None:
        known = self._listeners.pop(key, None)
        if known is not None:
            self._topics[(known.workspace, known.topic)].pop(key)
        if listener is not None:
            self._listeners[key] = listener
            self._topics.setdefault((listener.workspace, listener.topic), {})[key] = listener


K = TypeVar("K")
V = TypeVar("V")


def _put(table: dict[K, V], changes: Mapping[K, V | None]) -> None:
    for key, row in changes.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row


def _is_sought(event: EventRow, search: meetings.Search) -> bool:
    return event.name == search.name if search.name is not None else event.name.startswith(search.prefix)


def _fits(run: Run, filter: RunFilter) -> bool:
    tags = msgspec.json.decode(run.tags, type=dict[str, str]) if filter.tags else {}
    return (
        (filter.workspace is None or run.workspace == filter.workspace)
        and (filter.status is None or run.status == filter.status)
        and (filter.definition is None or run.definition == filter.definition)
        and (not filter.held or run.held is not None)
        and (filter.correlation_key is None or run.correlation_key == filter.correlation_key)
        and (filter.parent_id is None or run.parent_id == filter.parent_id)
        and all(tags.get(key) == value for key, value in filter.tags.items())
    )


def _fits_terms(wait: Wait, filter: WaitFilter) -> bool:
    wanted = {"channel": filter.channel, "assignee": filter.assignee, "group": filter.group}
    if not any(wanted.values()):
        return True
    details = msgspec.json.decode(wait.details)
    return all(value is None or details.get(name) == value for name, value in wanted.items())


def _fits_interaction(row: Interaction, filter: InteractionFilter) -> bool:
    names = ("workspace", "run_id", "no", "item", "definition", "channel", "assignee", "group")
    wanted = ((getattr(filter, name), getattr(row, name)) for name in names)
    return all(value is None or value == found for value, found in wanted) and (
        not filter.statuses or row.status in filter.statuses
    )
