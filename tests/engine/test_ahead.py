"""An event lets more runs go on than there are slots: they are handed over at once, and get their slots one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bide
from bide.core.records import RunId
from bide.engine import engine as engine_module
from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from tests.support.staging import DEADLINE, Gate, client_of, real_store, until

RUNS = 6


@pytest.fixture(autouse=True)
def _time_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine gives back by itself what waits for a slot, however long a test is held up."""
    monkeypatch.setattr(engine_module, "AHEAD_SECONDS", 10 * DEADLINE)


def listening_app(gate: Gate, reached: list[str]) -> bide.App:
    app = bide.App()

    @app.workflow("listen")
    async def listen(step: bide.Step) -> Any:
        event = await step.wait_for_event("shipped", event="order.shipped", timeout="1h")

        async def work() -> Any:
            reached.append(step.run_id)
            await gate()
            return event.data

        return await step.run("work", work)

    return app


@asynccontextmanager
async def parked(store_url: str, gate: Gate, reached: list[str]) -> AsyncIterator[tuple[Runtime, list[bide.Run[Any]]]]:
    """Runs that wait for an event, on a store whose engines have one slot each."""
    async with real_store(listening_app(gate, reached), store_url, concurrency=1, poll_interval="50ms") as runtime:
        client = client_of(runtime)
        async with Engine(runtime):
            runs = [await client.start("listen") for _ in range(RUNS)]

            async def are_parked() -> bool:
                return (await runtime.store.count_runs(None)).get("waiting", 0) == RUNS

            await until(are_parked)
        yield runtime, runs


async def entries(client: bide.Client, run: bide.Run[Any]) -> list[str]:
    return [entry.name for entry in await client.ledger(run.id)]


async def test_F8_runs_that_an_event_lets_go_on_are_claimed_by_its_commit_and_work_when_there_is_a_slot(
    store_url: str,
) -> None:
    gate, reached = Gate(), list[str]()
    async with parked(store_url, gate, reached) as (runtime, runs), Engine(runtime) as engine:
        client = client_of(runtime)
        before = [(await entries(client, run)).count("run_claimed") for run in runs]
        assert (await client.emit("order.shipped", 7)).resumed == RUNS
        await gate.reached()
        assert len(engine.active) == RUNS
        assert [(await client.ledger(run.id))[-1].data["to"] for run in runs] == ["running"] * RUNS
        for _ in range(RUNS):
            await gate.reached()
            assert gate.standing == 1, "one slot, one turn at work"
            gate.let_one_go()
        assert [await run.result() for run in runs] == [7] * RUNS
        assert len(reached) == RUNS
        assert [(await entries(client, run)).count("run_claimed") for run in runs] == before


async def test_a_turn_that_ends_after_it_lost_its_claim_leaves_no_slot_behind(store_url: str) -> None:
    """Its run was cancelled, and has cleaned up and ended meanwhile: nothing of it is at work any more."""
    gate, late, reached = Gate(), Gate(), list[str]()
    app = listening_app(gate, reached)

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Done:
            await late()
            return bide.Done()

        async def on_cancel(self, ctx: bide.Context[Any]) -> None:
            pass

    async with real_store(app, store_url, concurrency=2, poll_interval="50ms") as runtime, Engine(runtime) as engine:
        client = client_of(runtime)
        order = await client.start("order")
        await late.reached()
        await client.cancel(order.id)

        async def has_ended() -> bool:
            return (await client.get(order.id)).ended_at is not None

        async def is_told() -> bool:
            return engine.stale == 1

        await until(has_ended)
        late.open()
        await until(is_told)
        runs = [await client.start("listen") for _ in range(RUNS)]

        async def are_parked() -> bool:
            return (await runtime.store.count_runs(None)).get("waiting", 0) == RUNS

        await until(are_parked)
        await client.emit("order.shipped", 7)
        for left in range(RUNS, 0, -1):
            await gate.reached(min(2, left))
            assert gate.standing == min(2, left), "two slots, two turns at work"
            gate.let_one_go()
        assert [await run.result() for run in runs] == [7] * RUNS


async def test_D12_runs_that_wait_for_a_slot_are_handed_back_when_the_engine_stops(store_url: str) -> None:
    gate, reached = Gate(), list[str]()
    async with parked(store_url, gate, reached) as (runtime, runs):
        client = client_of(runtime)
        async with Engine(runtime) as engine:
            await client.emit("order.shipped", 7)
            await gate.reached()
            stopping = asyncio.create_task(engine.stop())

            async def are_handed_back() -> bool:
                return (await runtime.store.count_runs(None)).get("ready", 0) == RUNS - 1

            await until(are_handed_back)
            gate.open()
            await stopping
        assert len(reached) == 1, "what was not started was not started"
        given_back = [run for run in runs if "run_given_back" in await entries(client, run)]
        assert len(given_back) == RUNS - 1
        async with Engine(runtime):
            assert [await run.result() for run in runs] == [7] * RUNS


async def test_runs_that_would_not_get_a_slot_soon_are_given_back_for_others(store_url: str) -> None:
    gate, reached = Gate(), list[str]()
    async with parked(store_url, gate, reached) as (runtime, runs), Engine(runtime) as engine:
        client = client_of(runtime)
        await client.emit("order.shipped", 7)
        await gate.reached()
        engine._look_ahead(engine._begun)  # no turn got a slot since the last look

        async def are_given_back() -> bool:
            return len(engine.active) == 1

        await until(are_given_back)
        assert (await runtime.store.count_runs(None))["ready"] == RUNS - 1
        gate.open()
        assert [await run.result() for run in runs] == [7] * RUNS
        assert len(reached) == RUNS


async def test_D3_a_run_that_was_lost_while_it_waited_for_a_slot_is_not_started(store_url: str) -> None:
    gate, reached = Gate(), list[str]()
    async with parked(store_url, gate, reached) as (runtime, runs), Engine(runtime) as engine:
        client = client_of(runtime)
        await client.emit("order.shipped", 7)
        await gate.reached()
        lost = next(run for run in runs if run.id not in reached)
        epoch = engine.active[RunId(lost.id)].run.epoch
        await client.cancel(lost.id)
        engine.lose(RunId(lost.id), epoch)
        gate.open()
        assert [await run.result() for run in runs if run is not lost] == [7] * (RUNS - 1)
        assert lost.id not in reached
