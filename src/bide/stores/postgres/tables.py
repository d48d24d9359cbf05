"""Bulk reads and the bulk write, inside one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import asyncpg

from bide.core.access import Validity
from bide.core.batch import Changes, NameKey, RowKey
from bide.core.outside import ItemKey, LetterKey, OutsideChanges
from bide.core.plan import Named
from bide.core.records import (
    Chore,
    DeadLetter,
    Interaction,
    Item,
    Name,
    Record,
    Run,
    RunId,
    Signal,
    StepRow,
    Unit,
    Wait,
)
from bide.stores.postgres import meeting
from bide.stores.postgres.arrays import array, arrays
from bide.stores.postgres.failures import Rivalled
from bide.stores.postgres.rows import CHANGING_INTERACTION, Columns, read_unit
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.transactions import Part, Transaction

MANY_RUNS = 2000  # in one batch, as an event may resume: to make a part ready takes longer than a round trip


class Tables:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._fetch = transaction.fetch
        self._rows = transaction.rows
        self._in_progress = transaction.in_progress
        self.ledger_key = transaction.rows.ledger_key
        self.inboxes: dict[RunId, tuple[Signal, ...]] = {}  # of locked runs, as far as they are known

    @property
    def transaction(self) -> str | None:
        """Its number, once something was written."""
        return self._transaction.id

    async def holders(self, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], RunId]:
        rows = await self._fetch("select_holders", *_keys(keys))
        return {(workspace, name): run_id for workspace, name, run_id in rows}

    async def parents(self, ids: Collection[RunId]) -> Mapping[RunId, RunId | None]:
        """The runs that exist, with their parents."""
        return dict(map(tuple, await self._fetch("select_parents", array(list(ids)))))

    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        """The runs, locked in the order of their ids, and the time when all of them were; None where there were none.

        *only_free* leaves out those that somebody else holds.
        """
        if not only_free and self._in_progress.knows_any(ids):
            return await self._lock_known_runs(ids)
        rows = await self._fetch("lock_free_runs" if only_free else "lock_runs", array(list(ids)))
        return [self._rows.read_run(row) for row in rows], rows[-1][-1] if rows else None

    async def _lock_known_runs(self, ids: Collection[RunId]) -> tuple[list[Run], datetime | None]:
        """The same, where this process knows some of them: only those are read that others have written since."""
        locked = await self._fetch("lock_versions", array(list(ids)))
        unmoved = self._in_progress.unmoved([(run_id, version) for run_id, version, _ in locked])
        runs = [known.run for known in unmoved.values()]
        self.inboxes = {run_id: known.inbox for run_id, known in unmoved.items() if known.inbox is not None}
        if len(unmoved) < len(locked):
            others = [run_id for run_id, _, _ in locked if run_id not in unmoved]
            runs += map(self._rows.read_run, await self._fetch("select_locked_runs", array(others)))
        return runs, locked[-1][-1] if locked else None

    async def clock(self) -> datetime:
        [(now,)] = await self._fetch("select_clock")
        assert isinstance(now, datetime)
        return now

    async def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]:
        return map(self._rows.read_wait, await self._fetch("select_waits", *_keys(keys)))

    async def load_inboxes(self, ids: Collection[RunId]) -> Iterable[Signal]:
        return map(self._rows.read_signal, await self._fetch("select_inboxes", array(list(ids))))

    async def load_signals(self, wanted: Collection[Named], most: int | None) -> Iterable[Signal]:
        return map(self._rows.read_signal, await self._fetch("select_signals", *_keys(wanted), most))

    async def load_names(self, keys: Collection[NameKey]) -> Iterable[Name]:
        return map(self._rows.read_name, await self._fetch("select_names", *_keys(keys)))

    async def load_steps(
        self, ids: Collection[RunId], workspaces: Collection[str]
    ) -> tuple[list[StepRow], dict[str, int]]:
        """The steps of these runs, and how far the streams of these workspaces have come, in one statement."""
        rows = await self._fetch("select_steps", array(list(ids)), array(list(workspaces)))
        steps = [self._rows.read_step(row) for row in rows if row[0] is not None]
        return steps, {row[1]: row[4] for row in rows if row[0] is None}

    async def load_units(self, keys: Collection[RowKey]) -> Iterable[Unit]:
        return map(read_unit, await self._fetch("select_units", *_keys(keys)))

    async def load_items(self, keys: Collection[ItemKey]) -> Iterable[Item]:
        return map(self._rows.read_item, await self._fetch("select_items", *_keys(keys)))

    async def load_children(self, keys: Collection[RowKey]) -> Iterable[Run]:
        return map(self._rows.read_run, await self._fetch("select_children", *_keys(keys)))

    async def load_interactions(self, keys: Collection[ItemKey]) -> Iterable[Interaction]:
        return map(self._rows.read_interaction, await self._fetch("select_interactions", *_keys(keys)))

    async def load_chores(self, ids: Collection[str]) -> Iterable[Chore]:
        return map(self._rows.read_chore, await self._fetch("select_chores", array(sorted(ids))))

    async def load_keys(self, hashes: Collection[str]) -> Iterable[Validity]:
        return [Validity(*row) for row in await self._fetch("select_validities", array(list(hashes)))]

    async def load_letters(self, keys: Collection[LetterKey]) -> Iterable[DeadLetter]:
        return map(self._rows.read_letter, await self._fetch("select_letters", *_keys(keys)))

    async def write(self, changes: Changes, known: Known) -> None:
        """Write everything. Raises `Rivalled` where a run id or a name that was free is taken by now."""
        if changes.is_empty:
            return
        try:
            parts = parts_of(changes, known, self._rows)
            if len(changes.runs_updated) < MANY_RUNS:
                await self._transaction.write(changes, list(parts))
            else:
                await self._transaction.write_in_turn(changes, parts)
        except asyncpg.UniqueViolationError as error:
            if not changes.runs_inserted:
                raise
            raise Rivalled("run id") from error
        await self._write_rare(changes)
        await self._write_names(changes)

    async def _write_names(self, changes: Changes) -> None:
        """Names come last, because a name may wait for a rival, and freed ones first, because they may be taken."""
        replaced = replaced_names(changes)
        inserted = [name for key, name in sorted(changes.names_inserted.items()) if key not in replaced]
        freed = [
            (*key, row.run_id, row.created_at) if row is not None else (*key, None, None)
            for key, row in changes.names_deleted.items()
            if key not in replaced
        ]
        if freed:
            await self._fetch("delete_names", *_keys(freed))  # what a rival changed stays, and the insert meets it
        if replaced:
            await self._put_names("replace_names", replacing_columns(replaced, self._rows))
        if inserted:
            await self._put_names("insert_names", self._rows.columns(inserted))

    async def _put_names(self, statement: str, columns: Columns) -> None:
        if len(await self._fetch(statement, *arrays(columns))) < len(columns[0]):
            raise Rivalled("name")

    async def _write_rare(self, changes: Changes) -> None:
        if changes.chores:
            put = [chore for chore in changes.chores.values() if chore is not None]
            gone = [id for id, chore in changes.chores.items() if chore is None]
            if put:
                await self._fetch("put_chores", *arrays(self._rows.columns(put)))
            if gone:
                await self._fetch("delete_chores", array(gone))
        if changes.unused:
            await self._fetch("insert_unused", *arrays(self._rows.columns(changes.unused)))
        if changes.unused_deleted:
            await self._fetch("delete_unused", *_keys(changes.unused_deleted))
        if changes.intake_deleted:
            await self._fetch("delete_intake", array(changes.intake_deleted))
        if changes.events or changes.listeners:
            await meeting.write(self._transaction, changes)
        if changes.outside:
            await self._write_outside(changes.outside)

    async def _write_outside(self, changes: OutsideChanges) -> None:
        if changes.inserted:
            await self._fetch("insert_interactions", *arrays(self._rows.columns(changes.inserted.values())))
        if changes.updated:
            found = CHANGING_INTERACTION.pick(self._rows.columns(changes.updated.values()))
            await self._fetch("update_interactions", *arrays(found))
        if changes.assigned:
            given = [(*key, to.assignee, to.group) for key, to in changes.assigned.items()]
            await self._fetch("assign_interactions", *_keys(given))
        if changes.closed:
            ended = [(*key, end.status, end.at) for key, end in changes.closed.items()]
            await self._fetch("close_interactions", *_keys(ended))
        if changes.terms:
            terms = [(*key, wait.deadline, self._rows.sealed(wait).details) for key, wait in changes.terms.items()]
            await self._fetch("update_terms", *_keys(terms))
        if changes.letters:
            put = [letter for letter in changes.letters.values() if letter is not None]
            gone = [key for key, letter in changes.letters.items() if letter is None]
            if put:
                await self._fetch("put_dead_letters", *arrays(self._rows.columns(put)))
            if gone:
                await self._fetch("delete_dead_letters", *_keys(gone))


class Known:
    """The rows as they were read under lock, before anything was decided."""

    def __init__(self, runs: Mapping[RunId, Run], waits: Mapping[RowKey, Wait]) -> None:
        self.runs = dict(runs)
        self.waits = dict(waits)


def replaced_names(changes: Changes) -> dict[NameKey, tuple[Name, Name]]:
    """Names of which the row that was read is put anew, with that row, in the order of the key.

    The answer to a signal id closes it: one statement, and the row stays where it is.
    """
    known = changes.names_deleted
    return {
        key: (name, before)
        for key, name in sorted(changes.names_inserted.items())
        if (before := known.get(key)) is not None
    }


def replacing_columns(replaced: Mapping[NameKey, tuple[Name, Name]], rows: Rows) -> Columns:
    """What `replace_names` takes: the names, and by what the rows that were read are known."""
    before = [(row.run_id, row.created_at) for _, row in replaced.values()]
    return [*rows.columns(name for name, _ in replaced.values()), *_transposed(before)]


def parts_of(changes: Changes, known: Known, rows: Rows) -> Iterator[Part]:
    """What most batches write. Each part touches another table or other rows than the rest."""
    if changes.runs_inserted:
        yield "insert_runs", rows.run_columns(_by_id(changes.runs_inserted))
    if updated := _touched(changes, known):
        yield "update_runs", rows.run_changes(_by_id(updated), known.runs)
    if changes.waits_inserted:
        yield "insert_waits", rows.wait_columns(changes.waits_inserted.values())
    if changes.waits_updated:
        yield "update_waits", _updated_waits(changes.waits_updated, known.waits, rows)
    if changes.inbox_inserted:
        yield "insert_signals", rows.columns(changes.inbox_inserted.values())
    if changes.inbox_deleted:
        yield "delete_signals", _transposed(changes.inbox_deleted)
    yield from _put_and_delete(rows, "queue", dict(sorted(changes.queue.items())))
    # The timer of a wait is its own column `due_at`; only those of runs have rows.
    yield from _put_and_delete(rows, "timers", {key: timer for key, timer in changes.timers.items() if key[1] == 0})
    yield from _put_and_delete(rows, "steps", changes.steps)
    if changes.units:
        yield "put_units", rows.columns(unit for _, unit in sorted(changes.units.items()))
    if changes.items:
        yield "put_items", rows.columns(item for _, item in sorted(changes.items.items()))
    if changes.entries:
        yield "insert_pages", rows.page_columns(changes.entries)


def _touched(changes: Changes, known: Known) -> Mapping[RunId, Run]:
    """The runs to update: those that changed, and those of which only a wait did.

    By the row of its run, a delivery that comes alone sees whether anything that it rests on has moved.
    """
    waits = (*changes.waits_updated, *changes.waits_inserted, *changes.outside.terms)
    touched = {run_id for run_id, _ in waits} - changes.runs_updated.keys() - changes.runs_inserted.keys()
    if not touched:
        return changes.runs_updated
    return {**changes.runs_updated, **{run_id: known.runs[run_id] for run_id in touched}}


def _put_and_delete(rows: Rows, table: str, changed: Mapping[Any, Record | None]) -> Iterator[Part]:
    put = [row for row in changed.values() if row is not None]
    if put:
        yield f"put_{table}", rows.columns(put)
    if len(put) < len(changed):
        gone = [key if isinstance(key, tuple) else (key,) for key, row in changed.items() if row is None]
        yield f"delete_{table}", _transposed(gone)


def _updated_waits(updated: Mapping[RowKey, Wait], before: Mapping[RowKey, Wait], rows: Rows) -> Columns:
    return rows.wait_changes(updated.values(), [before[key] for key in updated])


def _by_id(runs: Mapping[RunId, Run]) -> list[Run]:
    return [runs[run_id] for run_id in sorted(runs)]


def _transposed(keys: Iterable[tuple[Any, ...]]) -> Columns:
    return list(zip(*keys, strict=True))


def _keys(keys: Iterable[tuple[Any, ...]]) -> list[str | None]:
    return arrays(_transposed(keys))
