"""What a store meets on a busy server: rows that stay locked, tables that change, more calls than connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from bide.core.access import SCOPES
from bide.core.commands import Committed, NewWait, Receipt, Suspend
from bide.core.records import RunId, Turn
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from bide.engine.settings import load_settings
from bide.errors import StoreUnavailable
from bide.stores.interface import WaitFilter
from bide.stores.postgres import PostgresStore, sessions, transactions
from bide.stores.postgres.arrays import array
from bide.stores.postgres.sessions import Connection
from bide.stores.postgres.statements import BEGIN, SETTLE
from bide.testing.http import http_client
from bide.testing.store_contract.making import (
    MINUTE,
    a_commit,
    a_signal,
    a_start,
    an_offer,
    asking,
    ending,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
    woken,
)
from bide.testing.store_contract.stream import streamed
from tests.server.shop import app
from tests.support.postgres import connect
from tests.support.proxy import CuttingProxy
from tests.support.staging import DEADLINE, until

PATIENCE = 120.0  # seconds that a call is tried again which is to succeed
IMPATIENCE = 0.3  # and one which is not


def with_lock_timeout(settings: str, timeout: str) -> str:
    assert "lock_timeout = '2s'" in settings
    return settings.replace("lock_timeout = '2s'", f"lock_timeout = '{timeout}'")


@pytest.fixture
def _short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BEGIN", with_lock_timeout(BEGIN, "30ms"))
    monkeypatch.setattr(sessions, "SETTLE", with_lock_timeout(SETTLE, "30ms"))


@pytest.fixture
async def store(postgres_used_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_used_url, hints=False, migrate=True, patience=PATIENCE)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


@contextmanager
def impatient(store: PostgresStore) -> Iterator[None]:
    """Calls of the store are given up soon."""
    store._transactions._patience = IMPATIENCE
    try:
        yield
    finally:
        store._transactions._patience = PATIENCE


@asynccontextmanager
async def locked(url: str, run_id: str) -> AsyncIterator[None]:
    """Somebody else holds the row of a run, for longer than anybody has patience."""
    rival = await connect(url)
    try:
        async with rival.transaction():
            assert await rival.fetch("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE", run_id)
            yield
    finally:
        await rival.close()


# Rows that stay locked


@pytest.mark.usefixtures("_short_lock_timeout")
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_a_run_that_is_locked_for_a_while_is_tried_again_until_it_is_free(
    postgres_used_url: str, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    """The server cancels whoever waits longer than the lock timeout; who asked hears nothing of it (F71)."""
    caplog.set_level("INFO", "bide.postgres")
    store = PostgresStore(postgres_used_url, hints=False, migrate=True)
    await store.open()
    await parked(store, "run_1")
    await parked(store, "run_2")
    batch = [a_signal("run_1"), *(a_signal("run_2") for _ in range(others))]
    async with locked(postgres_used_url, "run_1"):
        signal = asyncio.create_task(store.execute(batch))
        await until(lambda: is_said(3, "trying again: canceling statement due to lock timeout", caplog))
        assert not signal.done()
    assert outcomes(await signal) == ["woke"] * len(batch)
    assert [signal.id for signal in await store.inbox("run_1")] == [batch[0].signal_id]
    assert len(await store.inbox("run_2")) == others
    await store.close()


async def is_said(times: int, text: str, log: pytest.LogCaptureFixture) -> bool:
    return log.text.count(text) >= times


@pytest.mark.usefixtures("_short_lock_timeout")
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_a_run_that_stays_locked_is_said_in_time_and_taken_up_when_it_is_free(
    store: PostgresStore, postgres_used_url: str, others: int
) -> None:
    """Of what was tried nothing is left, also of the other command in its batch: sent again, it counts once (F71)."""
    await parked(store, "run_1")
    await parked(store, "run_2")
    batch = [a_signal("run_1"), *(a_signal("run_2") for _ in range(others))]
    async with locked(postgres_used_url, "run_1"):
        gives_up = pytest.raises(StoreUnavailable, match="lock timeout; another session keeps a row locked; nothing of")
        with impatient(store), gives_up:
            await store.execute(batch)
        assert (await row(store, "run_1")).status == "waiting", "reading goes on"
        assert await store.inbox("run_2") == []
        assert told(Receipt, await reply_to(store, a_signal("run_2"))).outcome == "woke", "and so do other runs"
    turns = (await store.execute(batch, an_offer())).turns
    assert [signal.id for signal in turns[RunId("run_1")].inbox] == [batch[0].signal_id]
    assert len(await store.inbox("run_2")) == 1 + others


@pytest.mark.usefixtures("_short_lock_timeout")
async def test_over_http_many_signals_to_a_run_that_stays_locked_are_503_and_count_once_when_they_come_again(
    store: PostgresStore, postgres_used_url: str
) -> None:
    """Lock waits have their bound, and past it the sender is told when to come again: never a 500 (F49)."""
    settings = load_settings({"store": postgres_used_url}, {})
    runtime = Runtime(store, app.registry, settings, Ports())
    async with http_client(runtime, "default", SCOPES, None) as http:
        started = await http.post("/v1/runs", json={"definition": "order"})
        run_id = started.json()["id"]

        async def send() -> list[tuple[int, str | None]]:
            calls = (
                http.post(
                    f"/v1/runs/{run_id}/signals",
                    json={"name": "paid", "payload": number},
                    headers={"Idempotency-Key": f"paid-{number}"},
                )
                for number in range(40)
            )
            return [(answer.status_code, answer.headers.get("Retry-After")) for answer in await asyncio.gather(*calls)]

        async with locked(postgres_used_url, run_id):
            with impatient(store):
                assert set(await send()) == {(503, "1")}
            assert (await http.get(f"/v1/runs/{run_id}")).status_code == 200
        assert await store.inbox(run_id) == []
        assert set(await send()) == {(202, None)}
        assert sorted(signal.payload for signal in await store.inbox(run_id)) == sorted(map(str, range(40)))


async def test_a_batch_that_the_server_ends_in_a_deadlock_is_tried_again(
    postgres_used_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of bide take locks in one order and never meet so; somebody else's session may (F50, F71).

    A session looks once for a deadlock, a second after it began to wait. So that the batch finds one then, the rival
    waits for it before it comes to wait for the rival.
    """
    caplog.set_level("INFO", "bide.postgres")
    monkeypatch.setattr(transactions, "BEGIN", with_lock_timeout(BEGIN, "60s"))
    store = PostgresStore(postgres_used_url, hints=False, migrate=True)
    await store.open()
    runs = ("run_1", "run_2", "run_3")
    for run_id in runs:
        await parked(store, run_id)
    lock = "SELECT 1 FROM runs WHERE id = $1 FOR UPDATE"
    rival, other = await connect(postgres_used_url), await connect(postgres_used_url)
    async with rival.transaction():
        await rival.execute("SET LOCAL deadlock_timeout = '1h'")  # it is not the one to be ended
        await rival.fetch(lock, "run_3")
        async with other.transaction():
            await other.fetch(lock, "run_2")
            signals = asyncio.create_task(store.execute([a_signal(run_id) for run_id in runs]))
            await until(lambda: is_waited_for(other, 1))  # it has run_1
            locking = asyncio.create_task(rival.fetch(lock, "run_1"))
            await until(lambda: waits(other, rival.get_server_pid()))
        await locking
    await rival.close()
    await other.close()
    assert outcomes(await signals) == ["woke"] * 3
    assert "trying again: deadlock detected" in caplog.text
    assert [len(await store.inbox(run_id)) for run_id in runs] == [1, 1, 1]
    await store.close()


async def test_a_deadline_counts_from_when_the_lock_was_had_and_not_from_when_it_was_asked_for(
    store: PostgresStore, postgres_used_url: str
) -> None:
    """`now()` is the time of a transaction's begin, which may be long before its locks (F79)."""
    turn = await running(store, "run_1")
    rival = await connect(postgres_used_url)
    async with rival.transaction():
        await rival.fetch("SELECT 1 FROM runs WHERE id = 'run_1' FOR UPDATE")
        park = asyncio.create_task(store.execute([a_commit(turn, waiting_for("go", timeout=MINUTE))]))
        await until(lambda: is_waited_for(rival, 1))
        freed_at = await rival.fetchval("SELECT clock_timestamp()")
    await rival.close()
    await park
    [wait] = await store.waits(WaitFilter(run_id="run_1"), after=None, limit=1)
    assert wait.opened_at >= freed_at
    assert wait.deadline == wait.opened_at + MINUTE


# Transactions that stay open


async def test_a_process_that_dawdles_in_a_transaction_is_ended_by_the_server_and_tries_again(
    store: PostgresStore, postgres_used_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session of bide keeps a snapshot and its locks for longer than that, however its process dawdles (F65)."""
    timeout = "idle_in_transaction_session_timeout = '15s'"
    assert timeout in BEGIN
    await parked(store, "run_1")
    watcher = await connect(postgres_used_url)
    monkeypatch.setattr(transactions, "BEGIN", BEGIN.replace(timeout, timeout.replace("15s", "50ms")))
    tries: list[int] = []

    async def dawdling(transaction: transactions.Transaction) -> str:
        tries.append(transaction.backend)
        monkeypatch.setattr(transactions, "BEGIN", BEGIN)  # the next try may take longer than that by chance
        await transaction.fetch("lock_runs", array(["run_1"]))
        if len(tries) == 1:
            await until(lambda: is_ended(watcher, transaction.backend))
        return str((await transaction.fetch("select_run", "default", "run_1"))[0]["status"])

    assert await store._transactions.run(dawdling) == "waiting"
    assert len(tries) == len(set(tries)) == 2, "the second try is another session"
    await watcher.close()


async def test_work_goes_on_beside_a_reader_that_never_ends(store: PostgresStore, postgres_used_url: str) -> None:
    """What its snapshot sees cannot be cleaned up. That costs time, and nothing else (F65)."""
    reader = await connect(postgres_used_url)
    async with reader.transaction(isolation="repeatable_read"):
        assert await reader.fetchval("SELECT count(*) FROM runs") == 0
        for number in range(50):
            run_id = RunId(f"run_{number}")
            await parked(store, run_id)
            turn = await woken(store, run_id)
            await store.execute([a_commit(turn, ending(), used=turn.inbox)])
        await streamed(store, 1)  # those who follow the ledgers are not held up either
        assert await reader.fetchval("SELECT count(*) FROM runs") == 0
    await reader.close()
    assert await store.count_runs("default") == {"completed": 50}


# A run that gets very many signals


@pytest.mark.parametrize("style", ["machine", "workflow"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_a_signal_to_a_full_inbox_costs_what_one_to_an_empty_one_does(
    postgres_used_url: str, others: int, style: str
) -> None:
    """What is there already is not read again for each that comes (F48)."""
    server = urlsplit(postgres_used_url)
    assert server.hostname is not None
    async with CuttingProxy(server.hostname, server.port or 5432) as proxy:
        store = PostgresStore(proxy.url(postgres_used_url), hints=False, pool_size=1, migrate=True)
        await store.open()
        for run_id in ("run_1", "run_2"):
            if style == "machine":
                await parked(store, run_id, "paid")
            else:
                await asking(store, NewWait(key="next", kind="receive", names=("paid",)), run_id=run_id)

        async def cost() -> tuple[int, int]:
            """Round trips of one more signal, and bytes that the server sends for it."""
            trips, size = store.round_trips, proxy.forwarded["server"]
            await store.execute([a_signal("run_1"), *(a_signal("run_2") for _ in range(others))])
            return store.round_trips - trips, proxy.forwarded["server"] - size

        await cost()  # statements are prepared
        trips, size = await cost()
        await store.execute([a_signal("run_1", payload='"much"') for _ in range(2000)])
        more_trips, more_size = await cost()
        assert more_trips == trips
        assert more_size < size + 100, "the numbers of the signals are longer"
        assert (await row(store, "run_1")).inbox_count == 2003
        await store.close()


async def test_a_workflow_that_goes_through_a_full_inbox_reads_of_it_what_it_takes(postgres_used_url: str) -> None:
    """Each signal is read once, not again for each of those before it (F48)."""
    server = urlsplit(postgres_used_url)
    assert server.hostname is not None
    async with CuttingProxy(server.hostname, server.port or 5432) as proxy:
        store = PostgresStore(proxy.url(postgres_used_url), hints=False, pool_size=1, migrate=True)
        await store.open()
        turn = await running(store, style="workflow", step="body")

        async def receives(turn: Turn) -> tuple[Turn, int]:
            """The turn after one more signal was taken, and the bytes that the server sent for that."""
            size = proxy.forwarded["server"]
            wait = NewWait(key=f"next#{turn.run.wait_no}", kind="receive", names=("go",))
            done = await store.execute([replace(a_commit(turn, Suspend(), keep=True), opens=(wait,))], an_offer())
            run = told(Committed, done.replies[0]).run
            return done.turns.get(run.id) or replace(turn, run=run), proxy.forwarded["server"] - size

        await store.execute([a_signal(payload="1") for _ in range(10)])
        for _ in range(8):  # statements are prepared, and planned as often as the server plans anew
            turn, few = await receives(turn)
        await store.execute([a_signal(payload="2") for _ in range(2000)])
        turn, many = await receives(turn)
        assert many < 2 * few, "its history is longer by a step"
        assert (await row(store)).inbox_count == 2001
        assert await store.audit() == []
        await store.close()


# Tables that change while a store works on them

CHANGES = {
    "a new column": "ALTER TABLE runs ADD COLUMN later text NOT NULL DEFAULT ''",
    "another type": "ALTER TABLE runs ALTER COLUMN trace TYPE varchar(1000), ALTER COLUMN tags TYPE varchar(1000)",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_a_store_goes_on_when_a_table_is_altered_between_two_of_its_calls(
    postgres_url: str, change: str, others: int
) -> None:
    """Statements were prepared for the rows of before: the server refuses them once, and nobody hears of it (F72)."""
    store = PostgresStore(postgres_url, hints=False, pool_size=1, migrate=True)
    await store.open()
    runs = [[RunId(f"run_{when}_{number}") for number in range(1 + others)] for when in ("before", "after")]
    for run_id in (*runs[0], *runs[1]):
        await parked(store, run_id)
    await through_every_call(store, runs[0])  # statements are prepared
    operator = await connect(postgres_url)
    await operator.execute(CHANGES[change])
    await operator.close()
    await through_every_call(store, runs[1])
    assert await store.count_runs("default") == {"completed": 2 * (1 + others)}
    assert await store.audit() == []
    await store.close()


async def through_every_call(store: PostgresStore, runs: list[RunId]) -> None:
    assert outcomes(await store.execute([a_signal(run_id) for run_id in runs])) == ["woke"] * len(runs)
    assert (await row(store, runs[0])).status == "ready"
    turns = (await store.claim(an_offer())).turns
    assert turns.keys() == set(runs)
    assert await asyncio.to_thread(store.renew, "worker-1", {id: turns[id].run.epoch for id in runs}, MINUTE) == set()
    await store.execute([a_commit(turns[run_id], ending(), used=turns[run_id].inbox) for run_id in runs])


# More calls than connections

POOL = 2
CALLS = 40


@pytest.fixture
async def small(own_database_url: str) -> AsyncIterator[PostgresStore]:
    """A store with two connections, on a database that nobody else uses."""
    store = PostgresStore(own_database_url, hints=False, pool_size=POOL, migrate=True, patience=PATIENCE)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


async def test_more_calls_at_once_than_connections_are_all_served_by_those(
    small: PostgresStore, own_database_url: str
) -> None:
    """They wait for each other, and no connection is opened beside (F64)."""
    batches = [[a_start(f"run_{number}_a"), a_start(f"run_{number}_b")] for number in range(CALLS)]
    done = await asyncio.gather(*map(small.execute, batches), *(small.count_runs(None) for _ in range(CALLS)))
    assert len(done) == 2 * CALLS
    assert await small.count_runs("default") == {"ready": 2 * CALLS}
    watcher = await connect(own_database_url)
    await until(lambda: has_connections(watcher, POOL))  # the one that opened the store may be on its way out
    await watcher.close()


async def test_calls_that_get_no_connection_are_told_so_in_time_and_none_stays_lost(
    small: PostgresStore, own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both connections stand before a table that somebody has locked; some of those who wait hang up (F64)."""
    await started(small, "run_1")
    small._sessions.forget_idle()
    rival = await connect(own_database_url)
    async with rival.transaction():
        await rival.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        with monkeypatch.context() as patched, impatient(small):  # once the table is free it may take its time
            patched.setattr(sessions, "COMMAND_SECONDS", 0.3)
            calls = [asyncio.create_task(small.run("default", "run_1")) for _ in range(CALLS)]
            while not small._sessions._free.locked():  # noqa: ASYNC110  # both connections are taken
                await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            async with asyncio.timeout(DEADLINE):
                answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
        told = [str(answer) for answer in answers[1::2] if isinstance(answer, StoreUnavailable)]
        assert len(told) == CALLS // 2
        assert any("all 2 connections of this store were in use for 0.3 seconds" in text for text in told)
    await rival.close()
    assert {run.id for run in await asyncio.gather(*(row(small, "run_1") for _ in range(CALLS)))} == {"run_1"}
    async with asyncio.timeout(DEADLINE):
        taken = [await small._sessions.acquire() for _ in range(POOL)]
    for connection in taken:
        small._sessions.release(connection)


async def is_waited_for(rival: Connection, by: int) -> bool:
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return bool(await rival.fetchval(waiting) >= by)


async def waits(watcher: Connection, backend: int) -> bool:
    return bool(await watcher.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", backend))


async def is_ended(watcher: Connection, backend: int) -> bool:
    return not await watcher.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", backend)


async def has_connections(watcher: Connection, count: int) -> bool:
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'bide %' AND datname = current_database()"
    return bool(await watcher.fetchval(ours) == count)
