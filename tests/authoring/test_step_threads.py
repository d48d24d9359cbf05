"""Plain functions that run past their time: a thread cannot be stopped (F1, D10)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import bide
from bide.engine.heartbeat import Heartbeat
from bide.testing import World, world
from tests.support.staging import rival, until


def slow(log: list[str], release: threading.Event, began: Callable[[], None] | None = None) -> bide.App:
    """An app whose step runs out of time at its first try, and until it is released. Its thread calls *began*."""
    app = bide.App()

    def block() -> str:
        first = not log
        log.append("begins")
        if first:
            if began is not None:
                began()
            release.wait(120)
        log.append("ends")
        return "done"

    @app.workflow("slow")
    async def workflow(step: bide.Step) -> str:
        retry = bide.RetryPolicy(attempts=2)
        return await step.options(timeout=0.01 if not log else "1m", retry=retry).run("block", block)

    return app


def once_out_of_time(then: Callable[[], None]) -> Callable[[], None]:
    """For a thread to call as it begins: *then* is called after the engine knows that the step's time is up.

    Its limit of 10 ms is a timer of this loop that was set before. Timers are called in their order, however late, and
    between the two that are set here the step has its turn.
    """
    loop = asyncio.get_running_loop()

    def began() -> None:
        loop.call_soon_threadsafe(loop.call_later, 0.1, lambda: loop.call_later(0.1, then))

    return began


async def test_F1_the_next_try_waits_until_the_thread_of_the_last_one_has_ended(store_url: str) -> None:
    log, release = list[str](), threading.Event()
    async with world(slow(log, release, once_out_of_time(release.set)), store=store_url) as there:
        run = await there.start("slow")
        assert log == ["begins", "ends"]  # it is not tried again, nor parked, while its thread runs
        retried = [entry.data for entry in await there.ledger(run.id) if entry.name == "step_retried"]
        assert "took longer than" in retried[0]["error"]["message"]
        await there.advance("1m")
        assert await there.result(run.id) == "done"
        assert log == ["begins", "ends", "begins", "ends"]


async def test_F1_the_time_of_a_step_begins_when_a_thread_is_free_for_it(store_url: str) -> None:
    """F1: until then its code does nothing, and would be run again for nothing."""
    log, release, app = list[str](), threading.Event(), bide.App()

    def block() -> None:
        log.append("begins")
        release.wait(120)

    @app.workflow("busy")
    async def busy(step: bide.Step) -> None:
        await step.run("block", block)

    @app.workflow("queued")
    async def queued(step: bide.Step) -> None:
        # Much more than it needs, so that its own code is in time on a busy machine.
        await step.options(timeout="1s", retry=bide.RetryPolicy(attempts=1)).run("quick", log.append, "quick")

    async with world(app, store=store_url, threads=1) as there:
        await there.start("busy", settle=False)
        settled = asyncio.create_task(there.settle())
        await until(lambda: _is(log == ["begins"]))
        run = await there.start("queued", settle=False)
        timer = threading.Timer(1.3, release.set)  # long after the time that the other step has
        timer.start()
        await settled
        await there.settle()
        assert (await there.get(run.id)).status == "completed"
        assert log == ["begins", "quick"]


async def test_F1_a_thread_that_runs_on_keeps_its_slot(store_url: str) -> None:
    log, release = list[str](), threading.Event()
    app = slow(log, release)

    @app.workflow("other")
    async def other(step: bide.Step) -> None:
        await step.run("other", log.append, "other")

    async with world(app, store=store_url, threads=1, thread_grace="20ms") as there:
        stuck = await there.start("slow")
        assert (await there.get(stuck.id)).held == "stuck_thread"
        run = await there.start("other", settle=False)
        settled = asyncio.create_task(there.settle())
        await until(lambda: _is_at_work(there, run.id))
        assert log == ["begins"]
        release.set()
        await settled
        assert log == ["begins", "ends", "other"]


async def test_F1_the_lease_of_a_run_is_renewed_while_its_thread_runs_on(store_url: str) -> None:
    log, release = list[str](), threading.Event()
    async with world(slow(log, release), store=store_url) as there, rival(there) as other:
        loop = asyncio.get_running_loop()
        run = await there.start("slow", settle=False)
        settled = asyncio.create_task(there.settle())
        try:
            await until(lambda: _is(bool(log)))
            out_of_time = loop.time() + 0.05  # its limit is 10 ms
            await until(lambda: _is(loop.time() > out_of_time))
            for _ in range(5):
                there.clock.set(there.now + there.runtime.settings.lease - timedelta(seconds=1))
                await asyncio.to_thread(Heartbeat(there.engine, loop).tick)
                await other.claim()
                assert not other.active
        finally:
            release.set()
        await settled
        await there.advance("1m")
        assert await there.result(run.id) == "done"
        assert there.engine.stale == 0


async def _is_at_work(there: World, run_id: str) -> bool:
    return run_id in there.engine.active


async def _is(fact: bool) -> bool:
    return fact


async def test_F1_a_thread_that_outlives_its_grace_holds_the_run_and_a_person_lets_it_go_on(store_url: str) -> None:
    """F1, D10."""
    log, release = list[str](), threading.Event()
    async with world(slow(log, release), store=store_url, thread_grace="20ms") as there:
        try:
            run = await there.start("slow")
            info = await there.get(run.id)
            assert (info.status, info.held) == ("ready", "stuck_thread")
            held = (await there.ledger(run.id))[-1]
            assert "'block'" in held.data["reason"]
            other: Any = await there.start("slow")  # its neighbours go on
            assert await there.result(other.id) == "done"
        finally:
            release.set()
        await there.retry(run.id)
        assert await there.result(run.id) == "done"
