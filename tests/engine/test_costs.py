"""What a wait cycle costs in transactions: counts, not times. One more is a decision, not an accident."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

import bide
from bide.core.commands import AnyCommand, CommitTurn, Offer
from bide.core.records import RunId, RunStatus
from bide.engine.engine import Engine
from bide.engine.garbage import HELD_BY_TURN
from bide.errors import StoreUnavailable
from bide.stores.interface import Executed
from tests.support.counting import CountingStore, counted
from tests.support.staging import Gate, client_of, real_store, until

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
            await until(is_idle)  # the end may be seen in the store before the commit has returned
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
        with ExitStack() as stack:
            ears = [stack.enter_context(runtime.ends.listening(run_id)) for run_id in ids]
            await asyncio.gather(ears[0].hear(None), ears[3].hear(None))
            assert [ear.has_news for ear in ears] == [True, False, False, True, False]
            assert set(asked) == {4}
        assert len(runtime.ends) == 0


async def test_who_waits_for_an_end_is_told_that_the_store_does_not_answer(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with real_store(cycle_app(), store_url) as runtime:
        run = await client_of(runtime).start("cycle")

        async def away(ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
            raise StoreUnavailable("it is away")

        monkeypatch.setattr(runtime.store, "statuses", away)
        with pytest.raises(StoreUnavailable, match="it is away"):
            await run.result()


async def test_an_event_hands_the_runs_that_it_lets_go_on_to_free_workers_in_its_own_commit(store_url: str) -> None:
    """One emit and one commit of all ends: nothing has to be claimed while there are slots."""
    app = bide.App()

    @app.workflow("listen")
    async def listen(step: bide.Step) -> Any:
        return (await step.wait_for_event("shipped", event="order.shipped", timeout="1h")).data

    async with real_store(app, store_url, concurrency=20) as opened:
        runtime, store = counted(opened)
        client = client_of(runtime)
        async with Engine(runtime) as engine:

            async def is_idle() -> bool:
                return not engine.active

            runs = [await client.start("listen") for _ in range(20)]
            await until(is_idle)
            before = store.transactions
            assert (await client.emit("order.shipped", 7)).resumed == 20
            assert [await run.result() for run in runs] == [7] * 20
            await until(is_idle)  # an end may be seen in the store before the commit has returned
            assert store.transactions - before == 2


async def test_a_slot_is_free_when_the_turn_that_had_it_is_committed(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that came while the last slot was being given up is handed over by its own commit, not by a claim."""
    async with real_store(cycle_app(), store_url, concurrency=1) as runtime:
        client, execute, gate = client_of(runtime), runtime.store.execute, Gate()

        async def held(commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
            if any(isinstance(command, CommitTurn) for command in commands):
                await gate()
            return await execute(commands, offer)

        monkeypatch.setattr(runtime.store, "execute", held)
        async with Engine(runtime):
            await client.start("cycle")
            await gate.reached()
            second = asyncio.create_task(client.start("cycle"))
            await asyncio.sleep(0)  # it stands behind the commit
            gate.is_open = True
            gate.let_one_go()
            run = await second
            assert (await client.ledger(run.id))[0].data["to"] == "running"


async def test_an_end_that_comes_during_a_look_is_heard_of(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for many ends would else read each run once more."""
    async with real_store(cycle_app(), store_url) as runtime:
        client, gate, looked = client_of(runtime), Gate(), asyncio.Event()
        run = await client.start("cycle")

        async def statuses(ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
            looked.set()
            await gate()
            return dict.fromkeys(ids, "cancelled")

        async def find(workspace: str, run_id: str) -> None:
            pytest.fail("the run was read although its end was heard of")

        monkeypatch.setattr(runtime.store, "statuses", statuses)
        monkeypatch.setattr(runtime.store, "run", find)
        end = asyncio.create_task(run.result())
        await looked.wait()
        await client.cancel(run.id)
        gate.is_open = True
        gate.let_one_go()
        with pytest.raises(bide.RunCancelledError):
            await end


async def test_the_garbage_collector_looks_less_often_while_an_engine_runs(store_url: str) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    async with counting_engine(store_url, gc_threshold=before[0] + 1000, concurrency=50):
        assert gc.get_threshold() == (before[0] + 1000 + 50 * HELD_BY_TURN, *before[1:])
        assert gc.get_freeze_count() > frozen, "and not at what was there before"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() <= frozen
    async with counting_engine(store_url, gc_threshold=1):
        assert gc.get_threshold() == before


async def test_an_engine_that_has_nothing_to_do_looks_twice(store_url: str) -> None:
    """For runs to claim, and for the next moment at which anything else is due: not at each thing by itself."""
    async with real_store(cycle_app(), store_url) as runtime:
        client, engine = client_of(runtime), Engine(runtime)
        await client.start("cycle")
        await engine.settle()
        before = runtime.store.round_trips
        assert await engine.tick() is False
        assert runtime.store.round_trips - before <= 2
        await engine.crash()


async def test_code_of_a_run_that_was_claimed_begins_before_the_next_look(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server beside the engine a look would take the processor from the code that somebody waits for."""
    seen: list[str] = []
    app = bide.App()

    @app.machine("noted")
    class Noted:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Done:
            seen.append("code")
            return bide.Done()

    async with real_store(app, store_url) as runtime:
        run = await client_of(runtime).start("noted")  # nobody offers a slot: it is left to a claim
        look = runtime.store.until_due

        async def noted(queues: frozenset[str]) -> Any:
            seen.append("look")
            return await look(queues)

        monkeypatch.setattr(runtime.store, "until_due", noted)
        async with Engine(runtime):
            await run.result()
    assert seen[:2] == ["code", "look"]
