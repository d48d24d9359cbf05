"""Connections: a small pool for one event loop, and connections that one duty keeps to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import asyncpg

from bide.stores.postgres.address import Address
from bide.stores.postgres.statements import SETTLE

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 12.0  # a little more than the server's own statement_timeout: beyond it the network is to blame
CACHED_STATEMENTS = 200
FIRST_TYPE_OF_A_SERVER = 10_000  # below it PostgreSQL itself gives the numbers, the same on every server for ever

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:  # generic in its stubs only
    _Connection = asyncpg.Connection


class _Remembered(NamedTuple):
    """In place of the statement that would have asked; one with a name has not displaced the one without."""

    name: str = "remembered"


class Session(_Connection):
    """A connection that knows PostgreSQL's own types from those before it in this process.

    asyncpg asks for arrays of numbers and of times on each new connection, and the answer takes the server longer than
    a hundred of our statements.
    """

    _types: dict[frozenset[int], Any] = {}  # noqa: RUF012  shared by all, on purpose

    async def _introspect_types(self, typeoids: Collection[int], *rest: Any) -> Any:
        asked = frozenset(typeoids)
        if asked in self._types:
            return self._types[asked], _Remembered()
        found = await super()._introspect_types(typeoids, *rest)  # type: ignore[misc]  # not in its stubs
        # It is asyncpg's own business: where a later version does it otherwise, nothing is remembered.
        if isinstance(found, tuple) and len(found) == 2 and max(asked) < FIRST_TYPE_OF_A_SERVER:
            self._types[asked] = found[0]
        return found


class Sessions:
    """Up to *size* connections. One that broke, or that was left inside a transaction, is closed and never reused."""

    connection_class: type[Connection] = Session  # tests take one that holds each statement at a gate

    def __init__(self, address: Address, size: int, instance: str) -> None:
        self.address = address
        self.has_pooler = address.has_pooler
        self.name = f"bide {instance}"
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._settled: Connection | None = None

    async def connect(self, *, cached: bool = True) -> Connection:
        """A new connection that the caller closes. Without the cache it leaves nothing behind on the server."""
        connection: Connection = await asyncpg.connect(
            self.address.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=CACHED_STATEMENTS if cached and not self.has_pooler else 0,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings={"application_name": self.name},
            connection_class=self.connection_class,
        )
        return connection

    async def acquire(self) -> Connection:
        """A connection outside any transaction; give it back with `release` or `discard`."""
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            message = f"all {self._size} connections of this store were in use for {COMMAND_SECONDS:g} seconds"
            raise TimeoutError(message) from None
        try:
            connection = self._take_idle() or await self.connect()
        except BaseException:
            self._free.release()
            raise
        self._used.add(connection)
        return connection

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the newest: its caches are warm, and old ones may have died unnoticed
            if not connection.is_closed():
                return connection
        return None

    def release(self, connection: Connection) -> None:
        self._used.discard(connection)
        self._idle.append(connection)
        self._free.release()

    def discard(self, connection: Connection) -> None:
        self._used.discard(connection)
        connection.terminate()
        self._free.release()

    async def settled(self) -> Connection:
        """The connection whose settings stay, for statements that are transactions by themselves; one at a time."""
        if self._settled is None or self._settled.is_closed():
            connection = await self.connect()
            try:
                await connection.execute(SETTLE)
            except BaseException:
                connection.terminate()
                raise
            self._settled = connection
        return self._settled

    def unsettle(self) -> None:
        """That connection broke, or nobody knows in which state it is."""
        if self._settled is not None:
            self._settled.terminate()
        self._settled = None

    def forget_idle(self) -> None:
        """Close what is idle: after an error that the others have met or will meet too."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        for connection in [*self._idle, *self._used]:
            connection.terminate()
        self._idle.clear()
        self.unsettle()
