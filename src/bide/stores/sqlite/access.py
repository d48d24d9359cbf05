"""Workspaces, keys and secrets in the same file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import apsw

from bide.core.access import Key, Secret, Workspace
from bide.stores.sqlite import rows
from bide.stores.sqlite.rows import microseconds
from bide.stores.sqlite.statements import SQL
from bide.stores.sqlite.tables import Tables

T = TypeVar("T")


class SqliteAccess:
    """What `bide.stores.access` asks for, on the lanes of the store that inherits it."""

    async def _write(self, work: Callable[[Tables, datetime], T]) -> T:
        raise NotImplementedError

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        raise NotImplementedError

    async def now(self) -> datetime:
        raise NotImplementedError

    async def add_workspace(self, workspace: Workspace) -> bool:
        row = rows.workspace_row(workspace)
        return await self._write(lambda tables, now: bool(_all(tables.connection, "insert_workspace", row)))

    async def workspaces(self) -> Sequence[Workspace]:
        return [rows.workspace_of(row) for row in await self._read(lambda c: _all(c, "load_workspaces"))]

    async def add_key(self, key: Key) -> None:
        row = rows.key_row(key)
        await self._write(lambda tables, now: _all(tables.connection, "insert_key", row))

    async def key(self, hash: str) -> tuple[Key, datetime] | None:
        found = await self._read(lambda c: _all(c, "load_key", (hash,)))
        return (rows.key_of(found[0]), await self.now()) if found else None

    async def keys(self, workspace: str | None) -> Sequence[Key]:
        found = await self._read(lambda c: c.execute(SQL["load_keys"], {"workspace": workspace}).fetchall())
        return [rows.key_of(row) for row in found]

    async def touch_key(self, id: str) -> None:
        await self._write(lambda tables, now: _all(tables.connection, "touch_key", (id, microseconds(now))))

    async def revoke_key(self, id: str) -> bool:
        return await self._write(
            lambda tables, now: bool(_all(tables.connection, "revoke_key", (id, microseconds(now))))
        )

    async def secrets(self, candidate: Secret) -> Sequence[Secret]:
        found = await self._read(lambda c: _all(c, "load_secrets"))
        if not found:
            row = rows.secret_row(candidate)
            await self._write(lambda tables, now: _all(tables.connection, "insert_secret", row))
            found = await self._read(lambda c: _all(c, "load_secrets"))
        return [rows.secret_of(row) for row in found]


def _all(connection: apsw.Connection, statement: str, parameters: rows.Row = ()) -> list[rows.Row]:
    return list(connection.execute(SQL[statement], parameters))
