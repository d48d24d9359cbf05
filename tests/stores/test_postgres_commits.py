"""What is known of a commit: connections that break at every moment, servers that go and come back, cancelled calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from bide.core.commands import Receipt, Started
from bide.core.records import RunId
from bide.engine.committer import Committer
from bide.errors import StoreUnavailable
from bide.stores.interface import Store
from bide.stores.postgres import PostgresStore, sessions
from bide.testing.store_contract.making import (
    MINUTE,
    a_signal,
    a_start,
    an_offer,
    reply_to,
    row,
    running,
    started,
    told,
)
from tests.support.postgres import connect
from tests.support.proxy import CuttingProxy
from tests.support.staging import until

COMMIT_SIZE = len(b"Q\0\0\0\0COMMIT\0")
PATIENCE = 120.0  # seconds that a call is tried again which is to succeed


@pytest.fixture
async def proxy(postgres_used_url: str) -> AsyncIterator[CuttingProxy]:
    server = urlsplit(postgres_used_url)
    assert server.hostname is not None
    async with CuttingProxy(server.hostname, server.port or 5432) as proxy:
        yield proxy


@pytest.fixture
async def store(postgres_used_url: str, proxy: CuttingProxy) -> AsyncIterator[Store]:
    """A store with one connection, through the proxy."""
    store = PostgresStore(proxy.url(postgres_used_url), hints=False, pool_size=1, migrate=True, patience=PATIENCE)
    await store.open()
    yield store
    await proxy.heal()
    assert await store.audit() == []
    await store.close()


@pytest.mark.parametrize("before_end", [*range(COMMIT_SIZE + 2), 30, 100, 400, 900])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_a_connection_that_breaks_while_a_signal_is_sent_neither_loses_nor_doubles_it(
    store: Store, proxy: CuttingProxy, before_end: int, others: int
) -> None:
    await running(store, "run_1")
    await running(store, "run_2")

    async def signal() -> Receipt:
        done = await store.execute([a_signal("run_1"), *(a_signal("run_2") for _ in range(others))])
        return told(Receipt, done.replies[0])

    await signal()  # statements are prepared
    before = proxy.forwarded["client"]
    await signal()
    size = proxy.forwarded["client"] - before
    proxy.cut_after(size - before_end, "client")
    receipt = await signal()
    assert receipt.outcome == "queued"
    assert [signal.seq for signal in await store.inbox("run_1")] == [1, 2, 3]
    assert (await store.inbox("run_1"))[-1].id == receipt.message_id


@pytest.mark.parametrize("before_end", [0, 1, 5, 6, 20, 40, 60, 100, 600])
async def test_an_answer_that_is_lost_on_the_way_back_does_not_double_a_signal(
    store: Store, proxy: CuttingProxy, before_end: int
) -> None:
    await running(store, "run_1")
    await store.execute([a_signal("run_1")])  # statements are prepared
    before = proxy.forwarded["server"]
    await store.execute([a_signal("run_1")])
    size = proxy.forwarded["server"] - before
    proxy.cut_after(size - before_end, "server")
    receipt = told(Receipt, await reply_to(store, a_signal("run_1")))
    assert [signal.seq for signal in await store.inbox("run_1")] == [1, 2, 3]
    assert (await store.inbox("run_1"))[-1].id == receipt.message_id


@pytest.mark.parametrize("size", [0, 1, 12, 60])
async def test_answers_that_are_lost_on_the_way_back_do_not_double_a_start(
    store: Store, proxy: CuttingProxy, size: int
) -> None:
    await started(store, "run_1")
    proxy.cut_after(size, "server")
    assert told(Started, await reply_to(store, a_start("run_2"))).run.status == "ready"
    assert await store.count_runs("default") == {"ready": 2}


async def test_a_session_that_an_operator_ends_is_replaced_and_the_batch_tried_again(
    store: Store, postgres_used_url: str
) -> None:
    await running(store, "run_1")
    rival = await connect(postgres_used_url)
    holding = rival.transaction()
    await holding.start()
    await rival.execute("SELECT id FROM runs WHERE id = 'run_1' FOR NO KEY UPDATE")
    signal = asyncio.create_task(reply_to(store, a_signal("run_1")))
    while not (
        blocked := await rival.fetchval("SELECT pid FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))")
    ):
        assert not signal.done()
    assert await rival.fetchval("SELECT pg_terminate_backend($1)", blocked)
    await holding.rollback()
    assert told(Receipt, await signal).outcome == "queued"
    assert len(await store.inbox("run_1")) == 1
    await rival.close()


async def test_a_server_that_is_away_is_said_in_time_and_found_again_by_itself(
    postgres_used_url: str, proxy: CuttingProxy
) -> None:
    store = PostgresStore(proxy.url(postgres_used_url), hints=False, migrate=True, patience=0.2)
    await store.open()
    await started(store, "run_1")
    proxy.refuse()
    proxy.cut()
    await until(lambda: is_cut_off(store))  # else the first try meets the cut, and there may be no time for a second
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.execute([a_start("run_2")])
    with pytest.raises(StoreUnavailable):
        await store.run("default", "run_1")
    with pytest.raises(StoreUnavailable):
        await asyncio.to_thread(store.renew, "worker-1", {RunId("run_1"): 1}, MINUTE)
    await proxy.heal()
    await store.execute([a_start("run_2")])
    assert await store.count_runs("default") == {"ready": 2}
    await store.close()


async def is_cut_off(store: PostgresStore) -> bool:
    return all(connection.is_closed() for connection in store._sessions._idle)


async def test_a_server_that_says_nothing_any_more_is_given_up_in_time_and_found_again_by_itself(
    postgres_used_url: str, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections stand and no byte passes: what was sent meanwhile arrives at the end, and changes nothing (F62)."""
    store = PostgresStore(proxy.url(postgres_used_url), hints=False, migrate=True, patience=0.2)
    await store.open()
    await started(store, "run_1")
    with monkeypatch.context() as patched:  # not longer: a server that answers may take its time on a busy machine
        patched.setattr(sessions, "COMMAND_SECONDS", 0.3)
        patched.setattr(sessions, "CONNECT_SECONDS", 0.3)
        store._sessions.forget_idle()
        await until(lambda: is_heard(store))  # on a connection that is given up that soon
        proxy.blackhole()
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await store.execute([a_start("run_2")])
        with pytest.raises(StoreUnavailable):
            await store.run("default", "run_1")
    await proxy.heal()
    assert told(Started, await reply_to(store, a_start("run_2"))).run.status == "ready"
    assert await store.count_runs("default") == {"ready": 2}
    assert await store.audit() == []
    await store.close()


async def is_heard(store: PostgresStore) -> bool:
    try:
        return await store.run("default", "run_1") is not None
    except StoreUnavailable:
        return False


async def test_a_call_that_is_cancelled_is_carried_out_whole(store: Store) -> None:
    await started(store, "run_0")
    committer = Committer(store, 1000)
    committer.offer = lambda most: an_offer(slots=most)
    calls = [committer.submit(a_start(run_id)) for run_id in ("run_1", "run_2")]
    for _ in range(3):
        await asyncio.sleep(0)  # their batch has begun
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    assert (await row(store, "run_2")).status == "running"  # waits its turn for the one connection
    assert (await row(store, "run_1")).status == "running"
