"""The servers, proxies and the statement-order search that the store tests stand on."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from asyncpg.pool import PoolConnectionProxy

from tests.support.orders import Code, Connection, Ending, GatedConnection, Step, Steps, every_order, statement
from tests.support.postgres import (
    PostgresServer,
    Server,
    available_postgres,
    connect,
    fresh_schema,
    postgres_version,
    split_schema,
    temporary_folder,
)
from tests.support.proxy import CuttingProxy, PoolingProxy

each_version = pytest.mark.parametrize("bin_dir", available_postgres(), ids=lambda path: f"v{postgres_version(path)}")

needs_binaries = pytest.mark.skipif(not available_postgres(), reason="no PostgreSQL server is installed here")


# Servers


@pytest.fixture
def folder() -> Iterator[Path]:
    path = temporary_folder()
    yield path
    assert not path.exists(), "a server left its folder behind"


@each_version
def test_a_server_starts_stops_and_leaves_nothing_behind(bin_dir: Path, folder: Path) -> None:
    with PostgresServer(bin_dir, folder, {"max_connections": 17}) as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.info.server_version // 10000 == postgres_version(bin_dir)
            assert connection.execute("SHOW max_connections").fetchone() == ("17",)
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert server.is_running()
    assert not server.is_running()


@needs_binaries
def test_what_was_committed_survives_a_crash_of_the_server_at_the_same_address(folder: Path) -> None:
    with PostgresServer(available_postgres()[0], folder) as server:
        url = server.url()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
        server.stop("immediate")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        server.restart()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT id FROM kept").fetchone() == (1,)


OWNER = """
import sys, time
from pathlib import Path
from tests.support.postgres import PostgresServer
server = PostgresServer(Path(sys.argv[1]), Path(sys.argv[2]))
server.start()
print(server.url(), flush=True)
time.sleep(600)
"""


@needs_binaries
def test_a_server_does_not_outlive_an_owner_that_was_killed(folder: Path) -> None:
    kill_owner(available_postgres()[0], folder)


@needs_binaries
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away to start a server")
def test_binaries_that_only_root_can_reach_are_copied_and_removed(folder: Path) -> None:
    bin_dir = available_postgres()[0]
    package = bin_dir.parents[1]
    with tempfile.TemporaryDirectory() as hidden:
        for part in package.parent.glob(f"{package.name}*"):
            shutil.copytree(part, Path(hidden, part.name), symlinks=True, ignore=shutil.ignore_patterns("include"))
        kill_owner(Path(hidden, package.name, *bin_dir.parts[-2:]), folder)


def kill_owner(bin_dir: Path, folder: Path) -> None:
    """Start a server in another process, kill that one and wait until the server and its folder are gone."""
    with subprocess.Popen([sys.executable, "-c", OWNER, bin_dir, folder], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        psycopg.connect(url).close()
        os.kill(owner.pid, signal.SIGKILL)
    give_up_at = time.monotonic() + 120
    while folder.exists() and time.monotonic() < give_up_at:
        time.sleep(0.05)  # another process cleans up; there is no event to wait for
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


async def test_each_url_names_an_empty_schema_of_its_own(postgres_server: Server, postgres_url: str) -> None:
    _, schema = split_schema(postgres_url)
    with fresh_schema(postgres_server.url()) as other_url:
        assert other_url != postgres_url
        connection = await connect(postgres_url)
        await connection.execute("CREATE TABLE here (id int)")
        assert await connection.fetchval("SELECT current_schema()") == schema
        other = await connect(other_url)
        assert await other.fetchval("SELECT to_regclass('here')") is None
        await connection.close()
        await other.close()


async def test_a_schema_is_dropped_under_a_transaction_that_was_left_open(postgres_server: Server) -> None:
    with fresh_schema(postgres_server.url()) as url:
        left = await connect(url)
        await left.execute("CREATE TABLE held (id int)")
        await left.execute("BEGIN; INSERT INTO held VALUES (1)")
    with psycopg.connect(postgres_server.url()) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [split_schema(url)[1]]).fetchone() == (None,)
    left.terminate()


# The proxy that breaks the network

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


@pytest.fixture
async def cutting(postgres_server: Server) -> AsyncIterator[CuttingProxy]:
    parts = urlsplit(postgres_server.url())
    async with CuttingProxy(parts.hostname or "", parts.port or 5432) as proxy:
        yield proxy


async def connect_through(proxy: CuttingProxy | PoolingProxy, url: str, **options: Any) -> Connection:
    return await connect(proxy.url(url), ssl=False, **options)


async def test_a_cut_ends_every_connection_and_new_ones_work(cutting: CuttingProxy, postgres_url: str) -> None:
    connections = [await connect_through(cutting, postgres_url) for _ in range(2)]
    assert [await one.fetchval("SELECT 1") for one in connections] == [1, 1]
    assert cutting.connections == 2
    cutting.cut()
    for one in connections:
        with pytest.raises(LOST):
            await one.fetchval("SELECT 1")
    again = await connect_through(cutting, postgres_url)
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


async def test_what_the_client_sent_before_the_cut_reaches_the_server(cutting: CuttingProxy, postgres_url: str) -> None:
    witness = await connect(postgres_url)
    await witness.execute("CREATE TABLE arrived (id int)")
    query = "INSERT INTO arrived VALUES (1)"
    size = 1 + 4 + len(query) + 1  # a simple query: kind, length, text, zero
    for sent, is_applied in ((size - 1, False), (size, True)):
        client = await connect_through(cutting, postgres_url)
        backend_pid = client.get_server_pid()
        cutting.cut_after(sent, "client")
        with pytest.raises(LOST):
            await client.execute(query)
        # The server announces to nobody that a session has ended.
        while await witness.fetchval("SELECT 1 FROM pg_stat_activity WHERE pid = $1", backend_pid):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await witness.fetchval("SELECT count(*) FROM arrived") == is_applied
    await witness.close()


async def test_an_answer_cut_short_leaves_its_statement_applied(cutting: CuttingProxy, postgres_url: str) -> None:
    witness = await connect(postgres_url)
    await witness.execute("CREATE TABLE arrived (id int)")
    client = await connect_through(cutting, postgres_url)
    cutting.cut_after(3, "server")
    with pytest.raises(LOST):
        await client.execute("INSERT INTO arrived VALUES (1)")
    assert await witness.fetchval("SELECT count(*) FROM arrived") == 1
    await witness.close()


async def test_a_blackhole_answers_nothing_until_it_is_healed(cutting: CuttingProxy, postgres_url: str) -> None:
    client = await connect_through(cutting, postgres_url)
    cutting.blackhole()
    before = dict(cutting.forwarded)
    asked = asyncio.create_task(client.fetchval("SELECT 1"))
    with pytest.raises(TimeoutError):
        await connect_through(cutting, postgres_url, timeout=0.1)
    assert not asked.done()
    assert cutting.forwarded == before
    await cutting.heal()
    assert await asked == 1
    await client.close()


async def test_refused_connections_are_accepted_again_at_the_same_port(
    cutting: CuttingProxy, postgres_url: str
) -> None:
    client = await connect_through(cutting, postgres_url)
    cutting.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect_through(cutting, postgres_url)
    assert await client.fetchval("SELECT 1") == 1
    await cutting.heal()
    await (await connect_through(cutting, postgres_url)).close()
    await client.close()


# The proxy that pools transactions


@pytest.fixture
async def pooling(postgres_server: Server) -> AsyncIterator[PoolingProxy]:
    parts = urlsplit(postgres_server.url())
    async with PoolingProxy(parts.hostname or "", parts.port or 5432, size=3) as proxy:
        yield proxy


async def backend(connection: Connection) -> int:
    pid: int = await connection.fetchval("SELECT pg_backend_pid()")
    return pid


async def test_each_transaction_runs_on_another_server_connection(pooling: PoolingProxy, postgres_url: str) -> None:
    client = await connect_through(pooling, postgres_url, statement_cache_size=0)
    seen = []
    for _ in range(6):
        async with client.transaction():
            first = await backend(client)
            assert await client.fetchval("SELECT pg_backend_pid() + $1::int", 0) == first
            seen.append(first)
    assert len(set(seen)) == 3
    assert all(one != next_one for one, next_one in itertools.pairwise(seen))
    assert await backend(client) != await backend(client)
    await client.close()


async def test_a_failed_transaction_keeps_its_server_connection_until_it_is_rolled_back(
    pooling: PoolingProxy, postgres_url: str
) -> None:
    client = await connect_through(pooling, postgres_url, statement_cache_size=0)
    await client.execute("BEGIN")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await client.fetchval("SELECT 1 / $1::int", 0)
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await client.fetchval("SELECT 1")
    await client.execute("ROLLBACK")
    assert await client.fetchval("SELECT 1") == 1
    await client.close()


async def test_more_clients_than_server_connections_take_turns(pooling: PoolingProxy, postgres_url: str) -> None:
    inside, full = set[int](), asyncio.Event()

    async def work() -> int:
        client = await connect_through(pooling, postgres_url, statement_cache_size=0)
        async with client.transaction():
            pid = await backend(client)
            inside.add(pid)
            if len(inside) == 3:
                full.set()
            await full.wait()  # a quick connection would serve all before a slow one is there
            await client.copy_records_to_table("taken", records=[(pid,)])
        await client.close()
        return pid

    direct = await connect(postgres_url)
    await direct.execute("CREATE TABLE taken (pid int)")
    pids = await asyncio.gather(*(work() for _ in range(10)))
    assert len(set(pids)) == 3
    assert await direct.fetchval("SELECT count(*) FROM taken") == 10
    await direct.close()


async def test_a_client_lost_inside_a_transaction_leaves_it_to_nobody(pooling: PoolingProxy, postgres_url: str) -> None:
    direct = await connect(postgres_url)
    await direct.execute("CREATE TABLE written (id int)")
    lost = await connect_through(pooling, postgres_url, statement_cache_size=0)
    await lost.execute("BEGIN; INSERT INTO written VALUES (1)")
    lost.terminate()
    for _ in range(6):
        client = await connect_through(pooling, postgres_url, statement_cache_size=0)
        async with client.transaction():
            assert await client.fetchval("SELECT count(*) FROM written") == 0
        await client.close()
    await direct.close()


async def test_a_named_prepared_statement_is_gone_in_the_next_transaction(
    pooling: PoolingProxy, postgres_url: str
) -> None:
    client = await connect_through(pooling, postgres_url, statement_cache_size=0)
    await client.execute("PREPARE kept AS SELECT 1")
    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        await client.execute("EXECUTE kept")
    await client.close()


async def test_a_statement_is_cancelled_through_the_pool(pooling: PoolingProxy, postgres_url: str) -> None:
    client = await connect_through(pooling, postgres_url, statement_cache_size=0)
    with pytest.raises(TimeoutError):
        await client.execute("SELECT pg_sleep(60)", timeout=0.1)
    assert await client.fetchval("SELECT 1") == 1
    await client.close()


# The search over statement orders: a run parks when its inbox is empty, and a delivery wakes it

BEGIN, COMMIT = statement("BEGIN"), statement("COMMIT")
LOCK = statement("SELECT status FROM run WHERE id = 1 FOR NO KEY UPDATE")
INSERT = statement("INSERT INTO inbox (run_id) VALUES (1)")
WAKE_IF_PARKED = statement("UPDATE run SET status = 'ready' WHERE id = 1 AND status = 'waiting'")
WAKE = statement("UPDATE run SET status = CASE status WHEN 'waiting' THEN 'ready' ELSE status END WHERE id = 1")
READ_INBOX = "SELECT count(*) FROM inbox WHERE run_id = 1"


async def read_inbox(connection: Connection, own: dict[str, Any]) -> None:
    own["found"] = await connection.fetchval(READ_INBOX)


async def lock_and_read_inbox_at_once(connection: Connection, own: dict[str, Any]) -> None:
    own["found"] = await connection.fetchval(
        "WITH locked AS MATERIALIZED (SELECT id FROM run WHERE id = 1 FOR NO KEY UPDATE)"
        " SELECT count(inbox.id) FROM locked LEFT JOIN inbox ON inbox.run_id = locked.id"
    )


async def park_if_empty(connection: Connection, own: dict[str, Any]) -> None:
    await connection.execute("UPDATE run SET status = $1 WHERE id = 1", "ready" if own["found"] else "waiting")


async def lock_or_skip(connection: Connection, own: dict[str, Any]) -> None:
    own["locked"] = await connection.fetchval("SELECT id FROM run WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED")


async def wake_if_locked(connection: Connection, own: dict[str, Any]) -> None:
    if own["locked"]:
        await WAKE(connection, own)


def park_and_deliver(park: Sequence[Step], deliver: Sequence[Step], isolation: str = "READ COMMITTED") -> list[Steps]:
    begin = statement(f"BEGIN ISOLATION LEVEL {isolation}")
    return [Steps("park", [begin, *park, COMMIT]), Steps("deliver", [begin, *deliver, COMMIT])]


PARK_NAIVELY, DELIVER_NAIVELY = [read_inbox, park_if_empty], [INSERT, WAKE_IF_PARKED]
PARK, DELIVER = [LOCK, read_inbox, park_if_empty], [LOCK, INSERT, WAKE]

# Mutants: how many orders there are, and in how many of them the wake-up is lost.
LOSING = {
    "naive": (park_and_deliver(PARK_NAIVELY, DELIVER_NAIVELY), 70, 50),
    "naive at repeatable read": (park_and_deliver(PARK_NAIVELY, DELIVER_NAIVELY, "REPEATABLE READ"), 70, 60),
    "lock and read in one statement": (
        park_and_deliver([lock_and_read_inbox_at_once, park_if_empty], DELIVER),
        30,
        12,
    ),
    "read before the lock": (park_and_deliver([read_inbox, LOCK, park_if_empty], DELIVER), 67, 46),
    "lock first at repeatable read": (
        park_and_deliver(PARK, [LOCK, INSERT, WAKE_IF_PARKED], "REPEATABLE READ"),
        36,
        12,
    ),
    "delivery skips a locked run": (park_and_deliver(PARK, [INSERT, lock_or_skip, wake_if_locked]), 201, 159),
}

SAFE = {
    "lock first on both sides": (park_and_deliver(PARK, DELIVER), 36, 0),
    "insert, then lock": (park_and_deliver(PARK, [INSERT, LOCK, WAKE]), 67, 0),
    "naive at serializable": (park_and_deliver(PARK_NAIVELY, DELIVER_NAIVELY, "SERIALIZABLE"), 70, 60),
    "every delivery writes, at repeatable read": (park_and_deliver(PARK, DELIVER, "REPEATABLE READ"), 36, 24),
}


async def a_running_run(connection: Connection) -> None:
    await connection.execute(
        """
        CREATE TABLE IF NOT EXISTS run (id int PRIMARY KEY, status text NOT NULL, resolutions int NOT NULL DEFAULT 0);
        CREATE TABLE IF NOT EXISTS inbox (id bigserial PRIMARY KEY, run_id int NOT NULL);
        DELETE FROM inbox;
        DELETE FROM run;
        INSERT INTO run (id, status) VALUES (1, 'running');
        """
    )


async def a_waiting_run(connection: Connection) -> None:
    await a_running_run(connection)
    await connection.execute("UPDATE run SET status = 'waiting' WHERE id = 1")


async def is_woken(connection: Connection, endings: Sequence[Ending]) -> str:
    """Lost if the run sleeps beside a signal. An aborted session has done nothing, and its caller knows."""
    status = await connection.fetchval("SELECT status FROM run WHERE id = 1")
    return "lost" if status == "waiting" and await connection.fetchval(READ_INBOX) else "ok"


async def is_resolved_once(connection: Connection, endings: Sequence[Ending]) -> str:
    resolutions = await connection.fetchval("SELECT resolutions FROM run WHERE id = 1")
    return {0: "none", 1: "ok"}.get(resolutions, "double")


@pytest.mark.parametrize("variant", LOSING)
async def test_a_wake_up_that_can_be_lost_is_caught(postgres_url: str, variant: str) -> None:
    sessions, total, lost = LOSING[variant]
    orders = await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken)
    assert orders.is_complete
    assert orders.verdicts == {"ok": total - lost, "lost": lost}, str(orders)
    assert orders.first_bad is not None
    assert orders.first_bad.verdict == "lost"


@pytest.mark.parametrize("variant", SAFE)
async def test_a_safe_protocol_loses_no_wake_up_in_any_order(postgres_url: str, variant: str) -> None:
    sessions, total, aborted = SAFE[variant]
    orders = await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken)
    assert orders.is_complete
    assert (orders.verdicts, orders.aborted) == ({"ok": total}, aborted), str(orders)


async def check_status(connection: Connection, own: dict[str, Any]) -> None:
    own["status"] = await connection.fetchval("SELECT status FROM run WHERE id = 1")


async def resolve_if_it_waited(connection: Connection, own: dict[str, Any]) -> None:
    if own["status"] == "waiting":
        await connection.execute("UPDATE run SET status = 'ready', resolutions = resolutions + 1 WHERE id = 1")


RESOLVE = statement(
    "UPDATE run SET status = 'ready', resolutions = resolutions + 1 WHERE id = 1 AND status = 'waiting'"
)


async def test_resume_and_timeout_that_check_before_they_act_resolve_twice(postgres_url: str) -> None:
    steps = [BEGIN, check_status, resolve_if_it_waited, COMMIT]
    orders = await every_order(
        postgres_url, [Steps("resume", steps), Steps("timeout", steps)], setup=a_waiting_run, check=is_resolved_once
    )
    assert orders.verdicts == {"ok": 10, "double": 40}, str(orders)


async def test_resume_timeout_and_cancel_in_one_statement_resolve_once(postgres_url: str) -> None:
    steps = [BEGIN, RESOLVE, COMMIT]
    orders = await every_order(
        postgres_url,
        [Steps(name, steps) for name in ("resume", "timeout", "cancel")],
        setup=a_waiting_run,
        check=is_resolved_once,
        cap=300,
        sample=Random(1),
    )
    assert not orders.is_complete
    assert orders.verdicts == {"ok": 300}, str(orders)


async def test_every_order_of_sessions_that_never_meet_is_run_once(postgres_url: str) -> None:
    played: list[str] = []
    current: list[str] = []

    def note(name: str) -> Step:
        async def step(connection: Connection, own: dict[str, Any]) -> None:
            current.append(name)

        return step

    async def start(connection: Connection) -> None:
        current.clear()

    async def finish(connection: Connection, endings: Sequence[Ending]) -> str:
        played.append("".join(current))
        return "ok"

    sessions = [Steps("a", [note("a")] * 2), Steps("b", [note("b")] * 2), Steps("c", [note("c")])]
    orders = await every_order(postgres_url, sessions, setup=start, check=finish)
    assert orders.run == len(set(played)) == 30  # 5! / (2! 2! 1!)
    assert (orders.discarded, orders.aborted, orders.first_bad) == (0, 0, None)


async def test_a_deadlock_ends_one_session_as_aborted(postgres_url: str) -> None:
    async def two_rows(connection: Connection) -> None:
        await connection.execute(
            "DROP TABLE IF EXISTS pair; CREATE TABLE pair AS SELECT id FROM unnest('{1, 2}'::int[]) id"
        )

    async def who_ended(connection: Connection, endings: Sequence[Ending]) -> str:
        return ["ok", "deadlock"][sum(ending.is_aborted for ending in endings)]

    first, second = (statement(f"SELECT FROM pair WHERE id = {row} FOR UPDATE") for row in (1, 2))
    upwards = Steps("upwards", [BEGIN, first, second, COMMIT])
    downwards = Steps("downwards", [BEGIN, second, first, COMMIT])
    orders = await every_order(postgres_url, [upwards, downwards], setup=two_rows, check=who_ended)
    assert orders.is_complete
    assert orders.verdicts["ok"] > 0
    assert orders.aborted == orders.verdicts["deadlock"] > 0


async def test_a_capped_search_says_that_it_is_not_complete(postgres_url: str) -> None:
    sessions, _, _ = LOSING["naive"]
    orders = await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken, cap=5)
    assert (orders.run, orders.is_complete) == (5, False)
    assert "not all" in str(orders)


async def test_a_bad_order_can_be_read(postgres_url: str) -> None:
    sessions, _, _ = LOSING["lock and read in one statement"]
    orders = await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken)
    assert str(orders.first_bad).splitlines()[:5] == [
        "lost:",
        "  1. park     BEGIN ISOLATION LEVEL READ COMMITTED",
        "  2. deliver  BEGIN ISOLATION LEVEL READ COMMITTED",
        "  3. deliver  SELECT status FROM run WHERE id = 1 FOR NO KEY UPDATE",
        "  4. park     lock_and_read_inbox_at_once  (waits)",
    ]


async def test_an_error_in_a_session_fails_the_search_and_shows_the_order(postgres_url: str) -> None:
    sessions = [Steps("good", [BEGIN, COMMIT]), Steps("bad", [statement("SELECT 1 / 0")])]
    with pytest.raises(asyncpg.DivisionByZeroError) as caught:
        await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken)
    assert "bad   SELECT 1 / 0" in caught.value.__notes__[0]


# Real code, held at the gate


async def naive_park(connection: Connection | PoolConnectionProxy[asyncpg.Record]) -> None:
    async with connection.transaction():
        found = await connection.fetchval(READ_INBOX)
        await connection.execute("UPDATE run SET status = $1 WHERE id = 1", "ready" if found else "waiting")


async def naive_delivery(connection: Connection | PoolConnectionProxy[asyncpg.Record]) -> None:
    async with connection.transaction():
        await connection.executemany("INSERT INTO inbox (run_id) VALUES ($1)", [(1,)])
        await connection.execute("UPDATE run SET status = 'ready' WHERE id = 1 AND status = 'waiting'")


async def locked_park(connection: Connection) -> str:
    async with connection.transaction():
        await connection.fetchrow("SELECT status FROM run WHERE id = 1 FOR NO KEY UPDATE")
        found = await connection.fetch("SELECT id FROM inbox WHERE run_id = 1")
        status = "ready" if found else "waiting"
        await connection.execute("UPDATE run SET status = $1 WHERE id = 1", status)
    return status


async def locked_delivery(connection: Connection) -> None:
    async with connection.transaction():
        await connection.fetchrow("SELECT status FROM run WHERE id = 1 FOR NO KEY UPDATE")
        await connection.copy_records_to_table("inbox", records=[(1,)], columns=["run_id"])
        await connection.execute("UPDATE run SET status = 'ready' WHERE id = 1 AND status = 'waiting'")


async def test_code_that_knows_no_gate_is_stepped_like_a_list_of_statements(postgres_url: str) -> None:
    naive = [Code("park", naive_park), Code("deliver", naive_delivery)]
    orders = await every_order(postgres_url, naive, setup=a_running_run, check=is_woken)
    assert (orders.run, orders.verdicts["lost"]) == LOSING["naive"][1:], str(orders)
    locked = [Code("park", locked_park), Code("deliver", locked_delivery)]
    orders = await every_order(postgres_url, locked, setup=a_running_run, check=is_woken)
    assert (orders.run, orders.verdicts) == (36, {"ok": 36}), str(orders)


async def test_code_that_takes_its_connections_from_a_pool_is_stepped_too(postgres_url: str) -> None:
    dsn, schema = split_schema(postgres_url)
    async with asyncpg.create_pool(
        dsn, min_size=2, max_size=2, connection_class=GatedConnection, server_settings={"search_path": schema or ""}
    ) as pool:

        async def park(_: GatedConnection) -> None:
            async with pool.acquire() as connection:
                await naive_park(connection)

        async def deliver(_: GatedConnection) -> None:
            async with pool.acquire() as connection:
                await naive_delivery(connection)

        sessions = [Code("park", park), Code("deliver", deliver)]
        orders = await every_order(postgres_url, sessions, setup=a_running_run, check=is_woken)
    assert (orders.run, orders.verdicts["lost"]) == LOSING["naive"][1:], str(orders)


async def test_code_that_retries_after_an_abort_goes_on_at_its_gate(postgres_url: str) -> None:
    async def retrying(connection: GatedConnection) -> int:
        for attempt in range(5):
            try:
                async with connection.transaction(isolation="serializable"):
                    total = await connection.fetchval("SELECT resolutions FROM run WHERE id = 1")
                    await connection.execute("UPDATE run SET resolutions = $1 WHERE id = 1", total + 1)
                return attempt
            except asyncpg.SerializationError:
                continue
        raise AssertionError("it never came through")

    async def counted_both(connection: Connection, endings: Sequence[Ending]) -> str:
        total = await connection.fetchval("SELECT resolutions FROM run WHERE id = 1")
        retried = sum(ending.result for ending in endings)
        return "ok" if total == 2 and retried <= 1 else "lost"

    sessions = [Code("one", retrying), Code("other", retrying)]
    orders = await every_order(postgres_url, sessions, setup=a_running_run, check=counted_both)
    assert orders.is_complete
    assert (orders.verdicts, orders.aborted) == ({"ok": orders.run}, 0), str(orders)


async def test_statements_that_no_gate_would_see_are_refused(postgres_url: str) -> None:
    async def prepared(connection: GatedConnection) -> None:
        await connection.prepare("SELECT 1")

    with pytest.raises(NotImplementedError):
        await every_order(postgres_url, [Code("prepared", prepared)], setup=a_running_run, check=is_woken)
