"""A caller's own transaction on the file (S11).

Only one connection of a process may write the file: a second SQLite library on it would drop its locks. So the
caller's statements run on the writer's thread, inside the writer's transaction, until the caller's block ends.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from bide.errors import StoreUnavailable
from bide.stores.sqlite.lanes import Writer
from bide.stores.sqlite.tables import Tables

LONGEST_IDLE_SECONDS = 30.0  # everybody else's writes wait for this transaction


class _Statement(NamedTuple):
    sql: str
    parameters: Sequence[Any]
    waiter: Future[list[tuple[Any, ...]]]


class _RolledBack(Exception):
    """Not an error of the writer's: the caller's block raised, and its statements are undone."""


class SqliteConnection:
    """What `app.connection()` gives on SQLite: statements in one transaction with bide's own rows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._statements: queue.SimpleQueue[_Statement | bool] = queue.SimpleQueue()
        self._is_over = False

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        if self._is_over:
            raise StoreUnavailable("the block of app.connection() has ended; open another one")
        waiter: Future[list[tuple[Any, ...]]] = Future()
        self._statements.put(_Statement(sql, parameters, waiter))
        return await asyncio.wrap_future(waiter)

    def end(self, *, commit: bool) -> None:
        self._is_over = True
        self._statements.put(commit)

    def serve(self, tables: Tables) -> None:
        """On the writer's thread: run statements until the block ends."""
        while True:
            try:
                statement = self._statements.get(timeout=LONGEST_IDLE_SECONDS)
            except queue.Empty:
                self._is_over = True
                raise StoreUnavailable(
                    f"a transaction of app.connection() on {self.path} was idle for {LONGEST_IDLE_SECONDS:.0f}s and "
                    "was rolled back; keep other waits out of the block"
                ) from None
            if statement is True:
                return
            if statement is False:
                raise _RolledBack
            assert isinstance(statement, _Statement)
            self._run(tables, statement)

    def _run(self, tables: Tables, statement: _Statement) -> None:
        try:
            rows = tables.connection.execute(statement.sql, statement.parameters).fetchall()
            statement.waiter.set_result([tuple(row) for row in rows])
        except Exception as error:
            statement.waiter.set_exception(error)


@asynccontextmanager
async def own_transaction(writer: Writer, path: str, on_commit: Callable[[], None]) -> AsyncIterator[SqliteConnection]:
    """A block whose statements are committed together with whatever else the writer commits then."""
    connection = SqliteConnection(path)
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    def work(tables: Tables, now: datetime) -> None:
        loop.call_soon_threadsafe(begun.set)
        with tables.savepoint():
            connection.serve(tables)
            tables.forget()  # these are the caller's own statements, whatever they write

    ended = asyncio.ensure_future(writer.call(work))
    started = asyncio.ensure_future(begun.wait())
    await asyncio.wait({started, ended}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if ended.done():
        await ended
    try:
        yield connection
    except BaseException:
        connection.end(commit=False)
        await asyncio.wait({ended})
        ended.exception()  # the caller's own error is the one to tell
        raise
    connection.end(commit=True)
    await ended
    on_commit()
