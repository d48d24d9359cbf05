"""What a wait cycle costs in transactions: counts, not times. One more is a decision, not an accident."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bide
from bide.core.records import RunId, RunStatus
from bide.engine.engine import Engine
from tests.support.counting import CountingStore, counted
from tests.support.staging import client_of, real_store, until

Ctx = bide.Context[Any]


def cycle_app() -> bide.App:
    app = bide.App()

    @app.machine("cycle")
    class Cycle:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


@asynccontextmanager
async def counting_engine(store_url: str, **settings: Any) -> AsyncIterator[tuple[bide.Client, Engine, CountingStore]]:
    async with real_store(cycle_app(), store_url, **settings) as opened:
        runtime, store = counted(opened)
        async with Engine(runtime) as engine:
            yield client_of(runtime), engine, store
        await runtime.committer.drain()


async def test_a_wait_cycle_alone_takes_four_commits(store_url: str) -> None:
    """Start, park, signal, end: whoever becomes ready is handed over by the commit that makes it ready."""
    async with counting_engine(store_url) as (client, engine, store):

        async def is_idle() -> bool:
            return not engine.active

        for payload in range(20):
            before = store.transactions
            run = await client.start("cycle")
            await until(is_idle)
            receipt = await client.signal(run.id, "go", payload)
            assert receipt.outcome == "woke", "the run was parked"
            assert await run.result() == payload
            assert store.transactions - before == 4


async def test_a_wait_cycle_under_load_takes_a_tenth_of_a_transaction(store_url: str) -> None:
    drivers, cycles_each = 200, 3
    async with counting_engine(store_url, concurrency=drivers) as (client, _, store):

        async def driver() -> None:
            for payload in range(cycles_each):
                run = await client.start("cycle")
                await client.signal(run.id, "go", payload)
                assert await run.result() == payload

        await asyncio.gather(*(driver() for _ in range(drivers)))
        assert store.transactions / (drivers * cycles_each) < 0.1


async def test_an_idle_engine_writes_nothing(store_url: str) -> None:
    async with counting_engine(store_url, poll_interval="10ms") as (client, engine, store):
        await client.start("cycle")

        async def is_idle() -> bool:
            return not engine.active

        await until(is_idle)
        written, looked = store.transactions, store.looks

        async def has_looked_again() -> bool:
            return store.looks > looked + 30

        await until(has_looked_again)
        assert store.transactions == written


async def test_many_who_wait_for_ends_look_at_them_together(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    async with real_store(cycle_app(), store_url) as runtime:
        client, statuses = client_of(runtime), runtime.store.statuses

        async def noted(ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
            asked.append(len(ids))
            return await statuses(ids)

        monkeypatch.setattr(runtime.store, "statuses", noted)
        runs = [await client.start("cycle") for _ in range(3)]
        await client.cancel(runs[0].id)
        ids = [*(RunId(run.id) for run in runs), RunId("run_gone"), RunId(runs[1].id)]
        assert await asyncio.gather(*map(runtime.looks.has_news, ids)) == [True, False, False, True, False]
        assert asked == [4]
