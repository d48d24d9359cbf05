"""Workspaces, keys and secrets, in the same schema."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import astuple

from bide.core.access import Key, Secret, Workspace
from bide.stores.postgres.rows import Row
from bide.stores.postgres.transactions import Transactions

_scopes = msgspec.json.Decoder(tuple[str, ...])


class PostgresAccess:
    """What `bide.stores.access` asks for, on the connections of the store that inherits it."""

    _transactions: Transactions

    def _moment(self) -> datetime | None:
        raise NotImplementedError

    async def add_workspace(self, workspace: Workspace) -> bool:
        return bool(await self._transactions.read("insert_workspace", *astuple(workspace)))

    async def workspaces(self) -> Sequence[Workspace]:
        rows = await self._transactions.read("select_workspaces")
        return [Workspace(name=name, created_at=created_at) for name, created_at in rows]

    async def add_key(self, key: Key) -> None:
        values = list(astuple(key))
        values[_SCOPES] = msgspec.json.encode(key.scopes).decode()
        await self._transactions.read("insert_key", *values)

    async def key(self, hash: str) -> tuple[Key, datetime] | None:
        rows = await self._transactions.read("select_key", hash)
        return (_key(rows[0]), self._moment() or rows[0][-1]) if rows else None

    async def keys(self, workspace: str | None) -> Sequence[Key]:
        return [_key(row) for row in await self._transactions.read("select_keys", workspace)]

    async def touch_key(self, id: str) -> None:
        await self._transactions.read("touch_key", id, self._moment())

    async def revoke_key(self, id: str) -> bool:
        return bool(await self._transactions.read("revoke_key", id, self._moment()))

    async def secrets(self, candidate: Secret) -> Sequence[Secret]:
        rows = await self._transactions.read("select_secrets")
        if not rows:
            await self._transactions.read("insert_secret", *astuple(candidate))
            rows = await self._transactions.read("select_secrets")
        return [Secret(id=id, secret=secret, created_at=created_at) for id, secret, created_at in rows]


_SCOPES = Key.__struct_fields__.index("scopes")


def _key(row: Row) -> Key:
    values = dict(zip(Key.__struct_fields__, row, strict=False))
    values["scopes"] = _scopes.decode(values["scopes"])
    return Key(**values)
