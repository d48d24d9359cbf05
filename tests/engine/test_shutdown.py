"""Shutdown (D12): running turns finish, what was not started is handed back, and nobody waits for a lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bide
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from tests.support.staging import DEADLINE, Gate, client_of, real_store, until

Ctx = bide.Context[Any]


def gated_app(gate: Gate, started: list[str] | None = None) -> bide.App:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def one(self, ctx: Ctx) -> bide.Next:
            if started is not None:
                started.append(ctx.run_id)
            await gate()
            return bide.Next("two", ["one"])

        async def two(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, "two"])

    return app


@asynccontextmanager
async def long_leases(app: bide.App, store_url: str, **settings: Any) -> AsyncIterator[Runtime]:
    """A store where whoever waited for a lease would wait for an hour: longer than any of these tests."""
    async with real_store(app, store_url, lease="1h", poll_interval="20ms", **settings) as runtime:
        yield runtime
        assert await runtime.store.audit() == []


async def finish_elsewhere(app: bide.App, runtime: Runtime, *run_ids: str) -> list[Any]:
    """Another process takes over what was left."""
    other = Runtime(runtime.store, app.registry, runtime.settings, Ports())
    async with Engine(other):
        return [await client_of(other).result(run_id, timeout="2m") for run_id in run_ids]


async def stop(engine: Engine) -> None:
    async with asyncio.timeout(DEADLINE):
        await engine.stop()


async def test_D12_a_running_turn_finishes_its_step_and_leaves_the_next_to_others(store_url: str) -> None:
    gate = Gate()
    app = gated_app(gate)
    async with long_leases(app, store_url) as runtime:
        client = client_of(runtime)
        async with Engine(runtime) as engine:
            run = await client.start("order")
            await gate.reached()
            stopping = asyncio.create_task(stop(engine))
            await until(lambda: _is(engine.stopping))
            gate.open()
            await stopping
        info = await client.get(run.id)
        assert (info.status, info.step, info.state) == ("ready", "two", ["one"])
        assert await finish_elsewhere(app, runtime, run.id) == [["one", "two"]]


async def _is(value: bool) -> bool:
    return value


async def test_D12_runs_that_a_claim_brings_while_the_engine_stops_are_handed_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    app = gated_app(Gate(is_open=True), started)
    async with long_leases(app, store_url) as runtime:
        other = Runtime(runtime.store, app.registry, runtime.settings, Ports())
        held_up, go_on = asyncio.Event(), asyncio.Event()
        claim = runtime.store.claim

        async def slow_claim(offer: Any) -> Any:
            done = await claim(offer)
            if done.turns:
                held_up.set()
                await go_on.wait()
            return done

        runs = [await client_of(other).start("order") for _ in range(3)]
        monkeypatch.setattr(runtime.store, "claim", slow_claim)
        async with Engine(runtime) as engine:
            await asyncio.wait_for(held_up.wait(), DEADLINE)
            stopping = asyncio.create_task(stop(engine))
            await until(lambda: _is(engine.stopping))
            go_on.set()
            await stopping
        assert started == []
        monkeypatch.undo()
        for run in runs:
            assert (await client_of(other).get(run.id)).status == "ready"
        assert await finish_elsewhere(app, runtime, *(run.id for run in runs)) == [["one", "two"]] * 3


async def test_D12_a_run_that_a_commit_under_way_hands_over_is_handed_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start commits and claims for this engine; the engine stops before it hears of it."""
    started: list[str] = []
    app = gated_app(Gate(is_open=True), started)
    async with long_leases(app, store_url) as runtime:
        held_up, go_on = asyncio.Event(), asyncio.Event()
        execute = runtime.store.execute

        async def slow_execute(commands: Any, offer: Any = None) -> Any:
            done = await execute(commands, offer)
            if done.turns:
                held_up.set()
                await go_on.wait()
            return done

        engine = Engine(runtime)  # without its loop: the commit alone hands over
        monkeypatch.setattr(runtime.store, "execute", slow_execute)
        starting = asyncio.create_task(client_of(runtime).start("order"))
        await asyncio.wait_for(held_up.wait(), DEADLINE)
        stopping = asyncio.create_task(stop(engine))
        await until(lambda: _is(engine.stopping))
        go_on.set()
        await stopping
        run = await starting
        assert started == []
        assert (await client_of(runtime).get(run.id)).status == "ready"
        assert await finish_elsewhere(app, runtime, run.id) == [["one", "two"]]


async def test_D12_a_turn_that_outlives_the_grace_time_is_handed_back_at_once(store_url: str) -> None:
    gate = Gate()
    app = gated_app(gate)
    async with long_leases(app, store_url, grace="10ms") as runtime:
        client = client_of(runtime)
        async with Engine(runtime) as engine:
            run = await client.start("order")
            await gate.reached()
            await stop(engine)
        assert gate.standing == 0, "the turn was cancelled"
        info = await client.get(run.id)
        assert (info.status, info.attempt) == ("ready", 0)
        gate.open()
        assert await finish_elsewhere(app, runtime, run.id) == [["one", "two"]]


async def test_D12_threads_that_outlive_the_grace_time_do_not_keep_the_engine(store_url: str) -> None:
    app = bide.App()
    entered, leave = threading.Event(), threading.Event()
    started: list[str] = []

    @app.machine("blocking")
    class Blocking:
        def only(self, ctx: Ctx) -> bide.Done:
            started.append(ctx.run_id)
            entered.set()
            leave.wait(DEADLINE)
            return bide.Done("done")

    async with long_leases(app, store_url, grace="10ms", threads=1) as runtime:
        client = client_of(runtime)
        try:
            async with Engine(runtime) as engine:
                runs = [await client.start("blocking") for _ in range(3)]
                assert await asyncio.to_thread(entered.wait, DEADLINE)
                await stop(engine)
            assert len(started) == 1, "those that had no thread yet never started"
            assert {(await client.get(run.id)).status for run in runs} == {"ready"}
        finally:
            leave.set()
        assert await finish_elsewhere(app, runtime, *(run.id for run in runs)) == ["done"] * 3


async def test_D12_a_stopped_engine_claims_nothing_and_clients_go_on(store_url: str) -> None:
    started: list[str] = []
    app = gated_app(Gate(is_open=True), started)
    async with long_leases(app, store_url) as runtime:
        client = client_of(runtime)
        async with Engine(runtime) as engine:
            await stop(engine)
            run = await client.start("order")
            assert (await client.signal(run.id, "hello")).outcome == "queued"
        assert started == []
        assert (await client.get(run.id)).status == "ready"
        assert await finish_elsewhere(app, runtime, run.id) == [["one", "two"]]


async def test_D12_stopping_twice_is_stopping_once(store_url: str) -> None:
    async with long_leases(gated_app(Gate()), store_url) as runtime:
        async with Engine(runtime) as engine:
            await stop(engine)
            await stop(engine)
        assert engine.stopping


async def test_D12_an_engine_stops_while_its_store_is_away(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the lease ends by itself; nothing is lost but time."""
    gate = Gate()
    app = gated_app(gate)
    caplog.set_level(logging.CRITICAL, logger="bide")
    async with real_store(app, store_url, lease="200ms", poll_interval="20ms", max_claims=10_000) as runtime:
        client = client_of(runtime)

        async def away(*_: Any) -> Any:
            raise bide.StoreUnavailable("gone for a while")

        async with Engine(runtime) as engine:
            run = await client.start("order")
            await gate.reached()
            monkeypatch.setattr(runtime.store, "execute", away)
            stopping = asyncio.create_task(stop(engine))
            await until(lambda: _is(engine.stopping))
            gate.open()
            await stopping
        monkeypatch.undo()
        assert await finish_elsewhere(app, runtime, run.id) == [["one", "two"]]


async def test_D12_the_heartbeat_goes_on_until_the_last_turn_is_done(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that uses its grace time must not lose its run meanwhile."""
    gate = Gate()
    app = gated_app(gate)
    # One slot: an engine whose heartbeat came late once must not claim the run again before it stops.
    async with real_store(app, store_url, lease="60ms", poll_interval="20ms", concurrency=1) as runtime:
        client = client_of(runtime)
        beats: list[int] = []
        renew = runtime.store.renew

        def counted(worker: str, claims: Any, lease: Any) -> Any:
            beats.append(len(claims))
            return renew(worker, claims, lease)

        monkeypatch.setattr(runtime.store, "renew", counted)
        async with Engine(runtime) as engine:
            run = await client.start("order")
            await gate.reached()
            stopping = asyncio.create_task(stop(engine))
            await until(lambda: _is(engine.stopping))
            beats.clear()
            await until(lambda: _is(len(beats) > 6))
            gate.open()
            await stopping
            assert engine.stale == 0
        info = await client.get(run.id)
        assert (info.status, info.step) == ("ready", "two")
