"""The schema on PostgreSQL: numbered steps forward, checked when a store opens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from bide.core.records import (
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    QueueEntry,
    Record,
    Run,
    Signal,
    StepRow,
    Timer,
    Unit,
    Unused,
    Wait,
)
from bide.errors import SchemaMissing, SchemaTooNew, StoreUnavailable
from bide.stores.interface import WaitFilter
from bide.stores.postgres import PostgresStore, migrate
from bide.stores.postgres.schema import LOCK
from bide.stores.postgres.statements import migrations, statements
from bide.testing.store_contract.making import HOUR, parked, row, started, waiting_for
from bide.testing.world import VirtualClock
from tests.support.kinds import place_of
from tests.support.postgres import Server, connect, fresh_schema, split_schema

TABLES: dict[str, type[Record]] = {
    "runs": Run,
    "waits": Wait,
    "inbox": Signal,
    "names": Name,
    "queue": QueueEntry,
    "timers": Timer,
    "ledger": LedgerPage,
    "chores": Chore,
    "unused": Unused,
    "interactions": Interaction,
    "items": Item,
    "units": Unit,
    "steps": StepRow,
    "events": EventRow,
    "event_waits": Listener,
    "dead_letters": DeadLetter,
}
WITHOUT_RECORD = frozenset({"streams", "intake", "workspaces", "keys", "secrets", "sealing_keys", "schema_versions"})

DESCRIPTION = """
SELECT 'column', table_name || '.' || column_name, concat_ws(' ', data_type, is_nullable, collation_name)
  FROM information_schema.columns WHERE table_schema = $1
 UNION ALL
SELECT 'index', indexname, replace(indexdef, $1, '') FROM pg_indexes WHERE schemaname = $1
 UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = $1::regnamespace
 UNION ALL
SELECT 'settings', relname, reloptions::text FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'
 ORDER BY 1, 2
"""

CAME_LATER = frozenset({"redact", "trace"})


async def description(url: str) -> list[tuple[Any, ...]]:
    connection = await connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(DESCRIPTION, split_schema(url)[1])]
    finally:
        await connection.close()


@pytest.fixture
def other_url(postgres_server: Server) -> Iterator[str]:
    with fresh_schema(postgres_server.url()) as url:
        yield url


@pytest.fixture(params=["postgres", "oldest postgres"])
def every_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty schema on the newest and on the oldest version that is installed."""
    with fresh_schema(place_of(request.param, request)) as url:
        yield url


@pytest.fixture
def beside(every_url: str) -> Iterator[str]:
    with fresh_schema(split_schema(every_url)[0]) as url:
        yield url


async def test_an_upgraded_schema_is_the_same_as_a_fresh_one(
    every_url: str, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await migrate(every_url) == list(migrations())
    steps = dict(migrations())
    for newest in steps:
        known = {number: text for number, text in steps.items() if number <= newest}
        monkeypatch.setattr("bide.stores.postgres.schema.migrations", lambda known=known: known)
        assert await migrate(beside) == [newest]
    assert await description(beside) == await description(every_url)


async def test_what_an_older_schema_holds_is_read_after_the_upgrade(
    postgres_url: str, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    source = PostgresStore(postgres_url, now=clock, hints=False, migrate=True)
    await source.open()
    await parked(source, "run_1", park=waiting_for("go", timeout=HOUR))
    await started(source, "run_2", state='{"n":2}')
    runs = [await row(source, "run_1"), await row(source, "run_2")]
    [wait] = await source.waits(WaitFilter(), after=None, limit=9)
    pages = [page for run in runs for page in await source.ledger(run.id)]
    await source.close()
    with monkeypatch.context() as patched:
        first = {number: text for number, text in migrations().items() if number <= 4}
        patched.setattr("bide.stores.postgres.schema.migrations", lambda: first)
        await migrate(other_url)
    connection = await connect(other_url)
    timer = Timer(run_id=wait.run_id, no=wait.no, due_at=clock() + HOUR)
    ready = QueueEntry(run_id=runs[1].id, queue="default", priority=0, due_at=clock(), epoch=0)
    for table, record in [*(("runs", run) for run in runs), ("waits", wait), ("timers", timer), ("queue", ready)]:
        await _insert_as_text(connection, table, record)
    for page in pages:
        await _insert_as_text(connection, "ledger", page)
    await connection.close()

    store = PostgresStore(other_url, now=clock, hints=False, migrate=True)
    await store.open()
    assert [await row(store, run.id) for run in runs] == runs
    assert [page for run in runs for page in await store.ledger(run.id)] == pages
    assert await store.audit() == []
    clock.advance(HOUR)
    assert len((await store.fire_timers(9)).replies) == 1
    assert (await row(store, "run_1")).status == "ready"
    assert await store.audit() == []
    await store.close()


async def _insert_as_text(connection: Any, table: str, record: Record) -> None:
    """One row as that schema had it: tuples as JSON, everything else as it is, and no columns that came later."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in CAME_LATER}
    values = [json.dumps(value) if isinstance(value, tuple) else value for value in fields.values()]
    marks = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    names = ", ".join(fields)
    await connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values)


async def test_a_schema_that_is_up_to_date_is_left_alone(postgres_url: str) -> None:
    await migrate(postgres_url)
    assert await migrate(postgres_url) == []


async def test_a_store_that_is_up_to_date_opens_while_somebody_else_migrates(postgres_url: str) -> None:
    await migrate(postgres_url)
    other = await connect(postgres_url)
    async with other.transaction():
        await other.fetchval(LOCK, split_schema(postgres_url)[1])
        store = PostgresStore(postgres_url, migrate=True)
        await store.open()
        await store.close()
    await other.close()


async def test_processes_that_migrate_at_once_take_each_step_once(postgres_url: str) -> None:
    taken = await asyncio.gather(*(migrate(postgres_url) for _ in range(5)))
    assert sorted(step for steps in taken for step in steps) == list(migrations())


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_processes_that_migrate_at_once_see_each_other_whatever_isolation_is_the_default(
    own_database_url: str, isolation: str
) -> None:
    """The one that waited for the lock must not look at the schema as it was before."""
    operator = await connect(own_database_url)
    name = urlsplit(own_database_url).path[1:]
    await operator.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    await operator.close()
    taken = await asyncio.gather(*(migrate(own_database_url) for _ in range(3)))
    assert sorted(step for steps in taken for step in steps) == list(migrations())


async def test_who_migrates_second_waits_for_the_first_whatever_the_role_is_told_of_locks(
    own_database_url: str,
) -> None:
    first = await connect(own_database_url)
    name = urlsplit(own_database_url).path[1:]
    await first.execute(f"ALTER DATABASE {name} SET lock_timeout = '1ms'")
    async with first.transaction():
        await first.fetchval(LOCK, "bide")
        second = asyncio.create_task(migrate(own_database_url))
        waiting = """
            SELECT count(*)
              FROM pg_locks
              JOIN pg_database ON pg_database.oid = database
             WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
        """
        while not await first.fetchval(waiting):
            assert not second.done(), second
    assert await second == list(migrations())
    await first.close()


async def test_a_step_that_breaks_leaves_nothing_and_the_next_try_completes_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = steps = dict(migrations())
    broken = {**steps, first: steps[first] + "SELECT 1 / 0;"}
    with monkeypatch.context() as patched:
        patched.setattr("bide.stores.postgres.schema.migrations", lambda: broken)
        with pytest.raises(Exception, match="division by zero"):
            await migrate(postgres_url)
    assert await description(postgres_url) == []
    assert await migrate(postgres_url) == list(steps)


async def test_a_server_that_ends_the_session_in_a_step_is_named_as_the_cause(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = steps = dict(migrations())
    ended = {**steps, first: steps[first] + "SELECT pg_terminate_backend(pg_backend_pid());"}
    with monkeypatch.context() as patched:
        patched.setattr("bide.stores.postgres.schema.migrations", lambda: ended)
        with pytest.raises(StoreUnavailable, match="connection was closed in the middle of operation"):
            await migrate(postgres_url)
    assert await migrate(postgres_url) == list(steps)


async def test_a_store_without_its_schema_says_how_to_make_it(postgres_url: str) -> None:
    with pytest.raises(SchemaMissing, match="run `bide migrate`"):
        await PostgresStore(postgres_url).open()


async def test_a_schema_of_a_newer_bide_is_refused(postgres_url: str) -> None:
    await migrate(postgres_url)
    connection = await connect(postgres_url)
    await connection.execute("INSERT INTO schema_versions (version) VALUES (9999)")
    await connection.close()
    for is_migrating in (False, True):
        with pytest.raises(SchemaTooNew, match="9999"):
            await PostgresStore(postgres_url, migrate=is_migrating).open()
    with pytest.raises(SchemaTooNew):
        await migrate(postgres_url)


async def test_a_migration_does_not_wait_for_long_behind_a_reader(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(postgres_url)
    steps = {**migrations(), 9999: "ALTER TABLE {schema}.runs ADD COLUMN more text"}
    monkeypatch.setattr("bide.stores.postgres.schema.migrations", lambda: steps)
    reader = await connect(postgres_url)
    async with reader.transaction():
        await reader.fetch("SELECT id FROM runs")
        with monkeypatch.context() as patched:
            patched.setattr("bide.stores.postgres.schema.IMPATIENT", "SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(Exception, match="lock timeout"):
                await migrate(postgres_url)
    await reader.close()
    assert await migrate(postgres_url) == [9999]


async def test_every_table_that_holds_records_is_compared_with_one(postgres_url: str) -> None:
    await migrate(postgres_url)
    connection = await connect(postgres_url)
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    await connection.close()
    assert {name for (name,) in found} == TABLES.keys() | WITHOUT_RECORD


async def test_a_table_has_the_columns_of_its_record(postgres_url: str) -> None:
    await migrate(postgres_url)
    connection = await connect(postgres_url)
    columns = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
    )
    await connection.close()
    for table, record in TABLES.items():
        beside = {"place"} if table == "ledger" else set()  # its place in the stream is the store's own
        found = {name for of, name in columns if of == table}
        assert found == set(record.__struct_fields__) | beside, table


async def test_every_index_beyond_a_key_says_which_statements_it_serves(postgres_url: str) -> None:
    await migrate(postgres_url)
    connection = await connect(postgres_url)
    indexes = await connection.fetch(
        """
        SELECT indexrelid::regclass::text, coalesce(obj_description(indexrelid, 'pg_class'), '')
          FROM pg_index
          JOIN pg_class ON pg_class.oid = indrelid
         WHERE relnamespace = current_schema()::regnamespace
           AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)
        """
    )
    await connection.close()
    assert indexes
    for index, comment in indexes:
        served = comment.partition(":")[0].split(", ")
        assert set(served) <= set(statements("bide")), f"{index}: {comment!r}"


async def test_every_statement_is_understood_by_the_server(every_url: str) -> None:
    await migrate(every_url)
    connection = await connect(every_url)
    for name, text in statements(split_schema(every_url)[1] or "").items():
        try:
            await connection.prepare(text)
        except asyncpg.PostgresError as error:
            pytest.fail(f"{name}: {error}")
    await connection.close()


def test_every_file_is_one_statement_and_every_name_has_its_schema() -> None:
    tables = [*TABLES, "intake", "schema_versions"]
    for name, text in statements("bide").items():
        code = "\n".join(line.partition("--")[0] for line in text.splitlines())
        assert ";" not in code, name
        for table in tables:
            for word in ("FROM", "JOIN", "INTO", "UPDATE"):
                assert f"{word} {table} " not in f"{code} ", f"{name}: {table} without its schema"
