"""Starts and signals in the caller's own transaction (S11)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import bide
from bide.testing import world
from tests.support.kinds import place_of
from tests.support.postgres import split_schema
from tests.support.staging import DEADLINE


def shop() -> bide.App:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end")

        async def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


def typed_shop() -> bide.App:
    app = bide.App()

    @app.machine("typed", signals=[bide.Signal("paid", int)])
    class Typed:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end")

        async def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


@pytest.fixture(params=["sqlite", "postgres", "oldest postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The stores that have connections to join."""
    return place_of(request.param, request)


@pytest.fixture(params=["postgres", "oldest postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """PostgreSQL, in the newest and the oldest version that is installed."""
    return place_of(request.param, request)


async def test_S11_a_start_and_a_signal_join_the_callers_transaction(shared_url: str) -> None:
    async with world(shop(), store=shared_url) as w:
        client, table = w.client(), a_table()
        async with w.connection() as connection:
            await connection.execute(f"CREATE TABLE {table} (number integer)")
            await connection.execute(f"INSERT INTO {table} VALUES (7)")
            run = await client.start("order", connection=connection)
            receipt = await client.signal(run.id, "paid", 5, connection=connection)
        assert receipt.outcome == "deferred"
        await w.settle()
        assert await w.result(run.id) == 5
        async with w.connection() as connection:
            assert await row_count(connection, table) == 1
            await connection.execute(f"DROP TABLE {table}")


async def test_S11_the_end_of_a_run_can_be_waited_for_before_it_is_admitted(shared_url: str) -> None:
    """By its handle and by its id. Nobody else is told that it is there, and what was rolled back is not."""
    async with world(shop(), store=shared_url) as w:
        client, other = w.client(), w.client(workspace="other")
        async with w.connection() as connection:
            run = await client.start("order", connection=connection)
            message = await client.signal(run.id, "paid", 5, connection=connection)
        with contextlib.suppress(ZeroDivisionError):
            async with w.connection() as connection:
                gone = await client.start("order", connection=connection)
                1 / 0  # noqa: B018  # it is rolled back

        waiting = [asyncio.create_task(run.result()), asyncio.create_task(client.result(run.id))]
        assert message.message_id is not None
        strangers = (other.result(run.id), client.result(gone.id), client.result(message.message_id))
        refused = [asyncio.create_task(each) for each in strangers]
        await asyncio.wait(refused, timeout=DEADLINE)
        await asyncio.sleep(0.1)  # it was looked for meanwhile, and was not there

        assert [type(task.exception()) for task in refused] == [bide.RunNotFound] * 3
        assert not any(task.done() for task in waiting)
        await w.settle()
        assert await asyncio.gather(*waiting) == [5, 5]


async def test_S13_a_signal_that_joins_is_checked_when_it_is_admitted(shared_url: str) -> None:
    """Whose run it will be is not known before: it is started in the same transaction, or found by its key."""
    async with world(typed_shop(), store=shared_url) as w:
        client = w.client()
        async with w.connection() as connection:
            run = await client.start("typed", correlation_key="order:1", connection=connection)
            for target in (run.id, "order:1"):
                receipt = await client.signal(target, "paid", "many", connection=connection)
                assert receipt.outcome == "deferred"
            assert (await client.signal(run.id, "paid", 5, connection=connection)).outcome == "deferred"
        await w.settle()
        assert await w.result(run.id) == 5
        assert [(kept.reason, kept.payload) for kept in await w.unused()] == [("invalid_payload", "many")] * 2


async def test_S13_a_signal_that_joins_is_refused_at_once_where_its_run_is_known(shared_url: str) -> None:
    async with world(typed_shop(), store=shared_url) as w:
        client, run = w.client(), await w.start("typed", correlation_key="order:1")
        async with w.connection() as connection:
            for target in (run.id, "order:1"):
                assert (
                    await client.signal(target, "paid", "many", connection=connection, check=False)
                ).outcome == "invalid"
                with pytest.raises(bide.BadInput, match="int"):
                    await client.signal(target, "paid", "many", connection=connection)
        await w.settle()
        assert await w.unused() == [], "nothing of it was left"
        assert (await w.get(run.id)).status == "waiting"


async def test_S11_a_transaction_that_is_rolled_back_leaves_nothing(shared_url: str) -> None:
    async with world(shop(), store=shared_url) as w:
        client = w.client()
        table, runs = a_table(), []

        async def and_then_fail() -> None:
            async with w.connection() as connection:
                await connection.execute(f"CREATE TABLE {table} (number integer)")
                runs.append(await client.start("order", connection=connection))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await and_then_fail()
        [run] = runs
        await w.settle()
        with pytest.raises(bide.RunNotFound):
            await w.get(run.id)
        async with w.connection() as connection:
            await connection.execute(f"CREATE TABLE {table} (number integer)")
            await connection.execute(f"DROP TABLE {table}")


async def test_S11_a_refusal_after_the_commit_is_kept_among_the_unused(shared_url: str) -> None:
    async with world(shop(), store=shared_url) as w:
        holder = await w.start("order", correlation_key="order:1")
        client = w.client()
        async with w.connection() as connection:
            await client.start("order", {"second": True}, correlation_key="order:1", connection=connection)
            await client.signal("order:none", "paid", connection=connection)
        await w.settle()
        assert {(unused.reason, unused.target) for unused in await w.unused()} == {
            ("duplicate_run", "order:1"),
            ("not_found", "order:none"),
        }
        assert [run.id for run in await w.runs()] == [holder.id]


async def test_S11_what_is_left_is_admitted_once_whoever_crashes(shared_url: str) -> None:
    async with world(shop(), store=shared_url) as w:
        client = w.client()
        async with w.connection() as connection:
            runs = [await client.start("order", connection=connection) for _ in range(5)]
        w.crash_at("begin", "before")
        await w.settle()
        assert [(await w.get(run.id)).status for run in runs] == ["waiting"] * 5
        started = [entry.name for run in runs for entry in await w.ledger(run.id)].count("run_started")
        assert started == 5


async def test_S11_a_write_beside_the_open_transaction_is_refused_at_once(shared_url: str) -> None:
    async with world(shop(), store=shared_url) as w:
        client = w.client()
        async with w.connection():
            with pytest.raises(bide.TransactionOpen, match="connection="):
                await client.start("order")
        assert (await client.start("order")).status in ("ready", "running")


async def test_S11_a_connection_of_another_kind_is_refused(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        with pytest.raises(bide.ForeignConnectionError):
            await w.client().start("order", connection=object())


async def test_S11_a_pool_is_refused_because_nothing_on_it_is_in_a_transaction(postgres_url: str) -> None:
    dsn, _ = split_schema(postgres_url)
    async with world(shop(), store=postgres_url.partition("?")[0]) as w, asyncpg.create_pool(dsn, min_size=1) as pool:
        with pytest.raises(bide.ForeignConnectionError, match="a pool is no connection"):
            await w.client().start("order", connection=pool)
        async with pool.acquire() as connection, connection.transaction():
            run = await w.client().start("order", connection=connection)
        await w.settle()
        assert (await w.get(run.id)).definition == "order"


async def test_S11_a_connection_to_a_database_without_bide_is_refused(postgres_url: str) -> None:
    dsn, _ = split_schema(postgres_url)
    elsewhere = f"elsewhere_{secrets.token_hex(6)}"
    async with world(shop(), store=postgres_url.partition("?")[0]) as w:
        other = await asyncpg.connect(dsn)
        try:
            await other.execute(f"CREATE DATABASE {elsewhere}")
            foreign = await asyncpg.connect(dsn, database=elsewhere)
            try:
                with pytest.raises(bide.ForeignConnectionError, match="without bide's tables"):
                    await w.client().start("order", connection=foreign)
            finally:
                await foreign.close()
                await other.execute(f"DROP DATABASE {elsewhere}")
        finally:
            await other.close()


@pytest.mark.parametrize("library", ["asyncpg", "psycopg", "AsyncSession", "AsyncConnection", "a class of its own"])
async def test_S11_every_library_of_the_caller_joins(library: str, url: str) -> None:
    async with world(shop(), store=url) as w:
        client = w.client()
        async with LIBRARIES[library](url) as connection:
            run = await client.start("order", connection=connection)
            assert (await client.signal(run.id, "paid", "yes", connection=connection)).outcome == "deferred"
        await w.settle()
        assert await w.result(run.id) == "yes"


@pytest.mark.parametrize("library", ["asyncpg", "psycopg", "AsyncSession", "AsyncConnection"])
async def test_S11_what_any_library_rolls_back_was_never_there(library: str, url: str) -> None:
    async with world(shop(), store=url) as w:
        client = w.client()
        waiting = await w.start("order")
        started: list[str] = []

        async def and_then_fail() -> None:
            async with LIBRARIES[library](url) as connection:
                started.append((await client.start("order", connection=connection)).id)
                assert (await client.signal(waiting.id, "paid", 1, connection=connection)).outcome == "deferred"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await and_then_fail()
        await w.settle()
        with pytest.raises(bide.RunNotFound):
            await w.get(started[0])
        assert (await w.get(waiting.id)).status == "waiting"
        assert (await w.inbox(waiting.id), await w.unused()) == ([], [])


def a_table() -> str:
    """A name of its own: worlds on one server share the schema that callers' tables are in."""
    return f"mine_{secrets.token_hex(6)}"


async def row_count(connection: Any, table: str) -> int:
    if isinstance(connection, asyncpg.Connection):
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))
    [(count,)] = await connection.execute(f"SELECT count(*) FROM {table}")
    return int(count)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


class OwnSession(AsyncSession):
    """As of a library on top of SQLAlchemy."""


@asynccontextmanager
async def _session(url: str, kind: type[AsyncSession] = AsyncSession) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with kind(engine) as session, session.begin():
            await session.execute(text("SELECT 1"))
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


LIBRARIES: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "asyncpg": _asyncpg,
    "psycopg": _psycopg,
    "AsyncSession": _session,
    "AsyncConnection": _connection,
    "a class of its own": lambda url: _session(url, OwnSession),
}
