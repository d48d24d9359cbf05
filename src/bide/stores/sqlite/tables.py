"""The tables, as `bide.stores.transaction` reads and writes them inside one write transaction."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

import apsw

from bide.core.access import Validity
from bide.core.batch import Changes, NameKey, RowKey
from bide.core.meetings import EVENTS_AT_ONCE, EventKey, Lookup, Search
from bide.core.outside import ItemKey, LetterKey, OutsideChanges
from bide.core.plan import Named
from bide.core.records import (
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
    Unit,
    Wait,
)
from bide.stores.sqlite import rows
from bide.stores.sqlite.statements import SQL

V = TypeVar("V")
K = TypeVar("K")


class Tables:
    """Ids are bound as one array, row keys one after the other: each was the quickest for its kind.

    What is read comes in the order of its keys, as it lies in the file: the cache has room for a part of what an event
    that resumes thousands of runs looks at.
    """

    def __init__(self, connection: apsw.Connection, rows: rows.Rows) -> None:
        self.connection = connection
        self.rows = rows
        # Runs in progress, as they were written last through these tables: a turn's commit finds its run like that,
        # unless another process has changed the file since, or what was written was undone (`forget`).
        self._in_progress: dict[RunId, Run] = {}

    def forget(self) -> None:
        """What is kept of the rows may not be what is in the file."""
        self._in_progress.clear()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was written since, and only that, where an exception leaves the block."""
        self.connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self.forget()
            if self.connection.in_transaction:  # a full disk may have ended the whole transaction already
                self.connection.execute("ROLLBACK TO part")
                self.connection.execute("RELEASE part")
            raise
        self.connection.execute("RELEASE part")

    # -- read

    def holders(self, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], RunId]:
        found = self.connection.executemany(SQL["holder"], keys)
        return {(str(workspace), str(name)): RunId(str(run_id)) for workspace, name, run_id in found}

    def parents(self, ids: Collection[RunId]) -> Collection[RunId]:
        return [RunId(str(parent)) for (parent,) in self._by_id("parents", ids)]

    def load_runs(self, ids: Collection[RunId]) -> Iterable[Run]:
        known = [run for run in map(self._in_progress.get, ids) if run is not None] if self._in_progress else []
        if len(known) < len(ids):
            others = [run_id for run_id in ids if run_id not in self._in_progress]
            known += [self.rows.run_of(row) for row in self._by_id("load_runs", others)]
        return known

    def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]:
        by_number: dict[int, list[RunId]] = {}  # of which a batch has few different ones
        for run_id, no in sorted(keys):
            by_number.setdefault(no, []).append(run_id)
        found = (
            self.connection.execute(SQL["load_waits"], (apsw.carray(tuple(ids)), no)) for no, ids in by_number.items()
        )
        return [self.rows.wait_of(row) for rows in found for row in rows]

    def load_inboxes(self, ids: Collection[RunId]) -> Sequence[Signal]:
        return [self.rows.signal_of(row) for row in self._by_id("load_inboxes", ids)]

    def load_signals(self, wanted: Collection[Named], most: int | None) -> Sequence[Signal]:
        keys = [(run_id, name, -1 if most is None else most) for run_id, name in wanted]
        return [self.rows.signal_of(row) for row in self.connection.executemany(SQL["load_signals"], keys)]

    def load_names(self, keys: Collection[NameKey]) -> Iterable[Name]:
        return [self.rows.name_of(row) for row in self.connection.executemany(SQL["load_name"], keys)]

    def load_children(self, keys: Collection[RowKey]) -> Iterable[Run]:
        found = self.connection.executemany(SQL["children_of_wait"], keys)
        return self.load_runs([RunId(str(child)) for (child,) in found])

    def load_steps(self, ids: Collection[RunId]) -> Iterable[StepRow]:
        return [self.rows.step_of(row) for row in self._by_id("load_steps", ids)]

    def load_interactions(self, keys: Collection[ItemKey]) -> Iterable[Interaction]:
        if len({key[:2] for key in keys}) == len(keys):  # a single one of each wait
            return [self.rows.interaction_of(row) for row in self.connection.executemany(SQL["load_interaction"], keys)]
        return [self.rows.interaction_of(row) for row in self._by_item("load_interactions", keys)]

    def load_chores(self, ids: Collection[str]) -> Iterable[Chore]:
        found = self.connection.executemany(SQL["load_chore"], [(id,) for id in ids])
        return [self.rows.chore_of(row) for row in found]

    def load_letters(self, keys: Collection[LetterKey]) -> Iterable[DeadLetter]:
        return [self.rows.letter_of(row) for row in self.connection.executemany(SQL["load_dead_letter"], keys)]

    def load_units(self, keys: Collection[RowKey]) -> Iterable[Unit]:
        return [rows.unit_of(row) for row in self.connection.executemany(SQL["load_unit"], keys)]

    def load_items(self, keys: Collection[ItemKey]) -> Iterable[Item]:
        return [self.rows.item_of(row) for row in self._by_item("load_items", keys)]

    def load_keys(self, hashes: Collection[str]) -> Iterable[Validity]:
        found = self.connection.executemany(SQL["load_validity"], [(hash,) for hash in hashes])
        return [rows.validity_of(row) for row in found]

    def take_stream(self, workspace: str, events: int) -> int:
        return int(self.connection.execute(SQL["take_stream"], (workspace, events)).get) - events

    def stream_seqs(self, workspaces: Collection[str]) -> Mapping[str, int]:
        found = self.connection.executemany(SQL["stream_seq"], ((workspace,) for workspace in workspaces))
        return {str(workspace): int(seq) for workspace, seq in found}

    def load_events(self, keys: Collection[EventKey]) -> Iterable[EventRow]:
        return [self.rows.event_of(row) for row in self.connection.executemany(SQL["load_event"], keys)]

    def load_listeners(self, lookups: Collection[Lookup]) -> Iterable[Listener]:
        by_equality = [lookup for lookup in lookups if lookup[2] is not None]
        by_topic = [lookup[:2] for lookup in lookups if lookup[2] is None]
        found = list(self.connection.executemany(SQL["listeners"], by_equality))
        found += self.connection.executemany(SQL["listeners_of_topic"], by_topic)
        return [self.rows.listener_of(row) for row in found]

    def first_event_since(self, workspace: str, moment: datetime) -> int | None:
        found = self.connection.execute(SQL["first_event_since"], (workspace, rows.microseconds(moment))).get
        return int(found) if found is not None else None

    def next_events(self, search: Search) -> Sequence[EventRow]:
        if search.name is not None:
            parameters = (search.workspace, search.reached, EVENTS_AT_ONCE, search.name)
            found = self.connection.execute(SQL["next_events_named"], parameters)
        else:
            parameters = (search.workspace, search.reached, EVENTS_AT_ONCE, search.prefix)
            found = self.connection.execute(SQL["next_events"], parameters)
        return [self.rows.event_of(row) for row in found]

    def _by_item(self, statement: str, keys: Collection[ItemKey]) -> Iterator[rows.Row]:
        """Rows of items: one statement for all of a stream or wait, because there may be a thousand."""
        groups: dict[tuple[RunId, int], array[int]] = {}
        for run_id, no, item in keys:
            groups.setdefault((run_id, no), array("q")).append(item)
        for (run_id, no), items in groups.items():
            yield from self.connection.execute(SQL[statement], (run_id, no, apsw.carray(items)))

    def _by_id(self, statement: str, ids: Collection[RunId]) -> apsw.Cursor:
        return self.connection.execute(SQL[statement], (apsw.carray(tuple(sorted(ids))),))

    # -- write

    def write(self, changes: Changes) -> None:
        """Runs come first: the other rows point at them."""
        self._many("insert_run", map(self.rows.run_row, changes.runs_inserted.values()))
        self._many("update_run", map(self.rows.run_change, changes.runs_updated.values()))
        for run in (*changes.runs_inserted.values(), *changes.runs_updated.values()):
            if run.status == "running":
                self._in_progress[run.id] = run
            else:
                self._in_progress.pop(run.id, None)
        self._many("insert_wait", map(self.rows.wait_row, changes.waits_inserted.values()))
        self._many("update_wait", map(self.rows.wait_change, changes.waits_updated.values()))
        self._many("delete_signal", changes.inbox_deleted)
        self._many("insert_signal", map(self.rows.signal_row, changes.inbox_inserted.values()))
        self._many("delete_name", changes.names_deleted)
        self._many("insert_name", map(self.rows.name_row, changes.names_inserted.values()))
        self._put("delete_queue_entry", "put_queue_entry", changes.queue, rows.queue_row, lambda key: (key,))
        self._put("delete_timer", "put_timer", changes.timers, rows.timer_row, lambda key: key)
        self._put("delete_chore", "put_chore", changes.chores, self.rows.chore_row, lambda key: (key,))
        self._put("delete_step", "put_step", changes.steps, self.rows.step_row, lambda key: key)
        self._many("put_unit", map(rows.unit_row, changes.units.values()))
        self._many("put_item", map(self.rows.item_row, changes.items.values()))
        self._many("insert_page", map(self.rows.page_row, changes.entries.items()))
        self._many("insert_unused", map(self.rows.unused_row, changes.unused))
        self._many("delete_unused", changes.unused_deleted)
        self._many("delete_intake", ((id,) for id in changes.intake_deleted))
        self._many("insert_event", map(self.rows.event_row, changes.events))
        self._put("delete_listener", "put_listener", changes.listeners, self.rows.listener_row, lambda key: key)
        if changes.outside:
            self._write_outside(changes.outside)

    def _write_outside(self, changes: OutsideChanges) -> None:
        """Terms of waits were written with their rows."""
        self._many("insert_interaction", map(self.rows.interaction_row, changes.inserted.values()))
        self._many("update_interaction", map(self.rows.interaction_change, changes.updated.values()))
        given = [(to.assignee, to.group, *key) for key, to in changes.assigned.items()]
        self._many("assign_interactions", given)
        ended = [(end.status, rows.microseconds(end.at), *key) for key, end in changes.closed.items()]
        self._many("close_interactions", ended)
        self._put("delete_dead_letter", "put_dead_letter", changes.letters, self.rows.letter_row, lambda key: key)

    def _put(
        self,
        delete: str,
        put: str,
        changes: Mapping[K, V | None],
        row: Callable[[V], rows.Row],
        key_row: Callable[[K], rows.Row],
    ) -> None:
        if changes:
            self._many(delete, [key_row(key) for key, record in changes.items() if record is None])
            self._many(put, [row(record) for record in changes.values() if record is not None])

    def _many(self, statement: str, values: Iterable[rows.Row]) -> None:
        self.connection.executemany(SQL[statement], values)
