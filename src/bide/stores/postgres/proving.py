"""Whether a batch is in the database whose commit was not answered (decision 0019).

The number of its transaction does not prove it: a server that crashed gives out the numbers that it lost again, and so
does a replica that was promoted. Rows that the batch wrote do, if they are like no other and stay for a while. A batch
is all there or not at all, so one of them is enough.
"""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from bide.core.batch import Changes
from bide.core.holding import is_held
from bide.core.records import EventRow, LedgerPage, Name, Unused
from bide.stores.postgres.arrays import array
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.sessions import Connection


class Proof:
    """Looks for what a batch wrote, on a connection of its own."""

    def __init__(self, connection: Connection, sql: Mapping[str, str], rows: Rows) -> None:
        self._connection = connection
        self._sql = sql
        self._rows = rows

    async def shows(self, changes: Changes) -> bool:
        """Whether *changes* were committed. Of those that leave no trace of their own it says no: they only move what
        is there already (chores, items, a place in the queue), and can be executed again."""
        if (page := next(iter(changes.pages()), None)) is not None:
            return await self._shows_page(page)
        if changes.events:
            return await self._shows_event(changes.events[0])
        for name in changes.names_inserted.values():
            return await (self._shows_held(name) if is_held(name) else self._shows_name(name))
        if changes.unused:
            return await self._shows_unused(changes.unused[0])
        gone = [key for key, letter in changes.outside.letters.items() if letter is None]
        return bool(gone) and not await self._fetch("select_letters", *map(array, zip(*gone, strict=True)))

    async def _shows_page(self, page: LedgerPage) -> bool:
        return [self._rows.read_page(row) for row in await self._fetch("select_page", page.run_id, page.seq)] == [page]

    async def _shows_event(self, event: EventRow) -> bool:
        found = await self._fetch("select_events", array([event.workspace]), array([event.id]))
        return [self._rows.read_event(row) for row in found] == [event]

    async def _shows_name(self, name: Name) -> bool:
        """It may have gone over to a run since; what was admitted under it stays."""
        found = await self._name(name)
        return found is not None and (found.digest, found.message_id) == (name.digest, name.message_id)

    async def _shows_held(self, name: Name) -> bool:
        """A held answer is there, or is kept as unused, or the run that took its signal id tells of it (F7)."""
        found = await self._name(name)
        if found is not None and found.message_id == name.message_id:
            return True
        if await self._fetch("select_unused_by_id", name.workspace, name.message_id):
            return True
        pages = await self._fetch("select_ledger", found.run_id) if found is not None else []
        return any(f'"{name.message_id}"' in self._rows.read_page(page).entries for page in pages)

    async def _shows_unused(self, unused: Unused) -> bool:
        found = await self._fetch("select_unused_by_id", unused.workspace, unused.id)
        return [self._rows.read_unused(row) for row in found] == [unused]

    async def _name(self, name: Name) -> Name | None:
        found = await self._fetch("select_names", array([name.workspace]), array([name.kind]), array([name.name]))
        return self._rows.read_name(found[0]) if found else None

    async def _fetch(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        return await self._connection.fetch(self._sql[statement], *parameters)
