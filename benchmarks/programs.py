"""The programs that are measured, and how many of their runs are parked at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import bide
from bide.core.commands import Committed, CommitTurn, Offer, Park, Start, Started
from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from bide.stores.interface import Executed

Ctx = bide.Context[Any]

ORDER = {"order": 4711, "amount": "119.00", "currency": "EUR", "lines": [1, 2, 3]}
PAYMENT = {"paid": "119.00"}
PARKED_AT_ONCE = 1000
LONGEST_PAUSE = 0.05  # between two looks whether the engine is idle


def cycle_app(url: str, **settings: Any) -> bide.App:
    """The wait cycle: one step, a wait with a deadline, one step, the end."""
    app = bide.App("bench", store=url, **settings)

    @app.machine("cycle")
    class Cycle:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


def workflow_cycle_app(url: str, **settings: Any) -> bide.App:
    """The same cycle as a workflow: one step, a wait with a deadline, one step, the end."""
    app = bide.App("bench", store=url, **settings)

    async def reserve(order: dict[str, Any]) -> int:
        return int(order["order"])

    async def book(payment: dict[str, Any]) -> dict[str, Any]:
        return payment

    @app.workflow("cycle")
    async def cycle(step: bide.Step, order: dict[str, Any]) -> Any:
        await step.run("reserve", reserve, order)
        paid = await step.receive("paid", "paid", timeout="1h")
        return await step.run("book", book, paid.payload)

    return app


CYCLES: Mapping[str, Callable[..., bide.App]] = {"machine": cycle_app, "workflow": workflow_cycle_app}


def waking_app(url: str, resumed: Callable[[int], None], **settings: Any) -> bide.App:
    """A run that is woken once, and calls *resumed* with how many nanoseconds ago the signal was sent."""
    app = bide.App("bench", store=url, **settings)

    @app.machine("waking")
    class Waking:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("wake", then="woken", timeout="1h")

        async def woken(self, ctx: Ctx) -> bide.Done:
            resumed(time.time_ns() - int(ctx.awaited[0].payload["sent_ns"]))
            return bide.Done()

    return app


def deadline_app(url: str, resumed: Callable[[], None], **settings: Any) -> bide.App:
    """A run whose wait only ever times out."""
    app = bide.App("bench", store=url, **settings)

    @app.machine("deadline")
    class Deadline:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="late", timeout="1h")

        async def late(self, ctx: Ctx) -> bide.Done:
            resumed()
            return bide.Done()

    return app


async def park_many(
    runtime: Runtime, definition: str, count: int, step: str, deadline: Callable[[int], datetime | timedelta]
) -> None:
    """Park *count* runs in big batches, as a worker that took their first step would have: same commands, same rows.

    *deadline* gives the deadline of the n-th. No engine may be running on the store.
    """
    first = next(iter(runtime.registry)).first_step
    for begun in range(0, count, PARKED_AT_ONCE):
        size = min(PARKED_AT_ONCE, count - begun)
        starts = [
            Start(
                workspace="default",
                run_id=runtime.ports.run_id(),
                definition=definition,
                version="1",
                style="machine",
                step=first,
                input='{"order":4711,"amount":"119.00","currency":"EUR","lines":[1,2,3]}',
            )
            for _ in range(size)
        ]
        offer = Offer(
            worker="w-bench",
            lease=timedelta(minutes=1),
            slots=size,
            queues=frozenset({"default"}),
            definitions=frozenset({definition}),
            max_claims=5,
            last_try=True,
        )
        started = await runtime.store.execute(starts, offer)
        assert all(isinstance(reply, Started) for reply in started.replies)
        runs = [started.turns[start.run_id].run for start in starts]
        parks = [
            CommitTurn(
                workspace="default",
                actor="worker:w-bench",
                run_id=run.id,
                parent_id=None,
                epoch=run.epoch,
                commits=run.commits,
                move=Park(step=step, state=run.state, names=("paid",), timeout=deadline(begun + number)),
            )
            for number, run in enumerate(runs)
        ]
        parked = await runtime.store.execute(parks)
        assert all(isinstance(reply, Committed) for reply in parked.replies)


async def park_by_engine(engine: Engine, client: bide.Client, definition: str, count: int, together: int = 200) -> None:
    """Park *count* runs through a running engine, and return when all have parked."""
    for begun in range(0, count, together):
        await asyncio.gather(*(client.start(definition, ORDER) for _ in range(min(together, count - begun))))
        await idle(engine)


async def idle(engine: Engine) -> None:
    """Wait until no turn is running and no run wants one: every run that was started is parked, commit included."""

    def has_nothing() -> bool:
        return not engine.active and engine.free == engine.settings.concurrency  # nor is a claim under way

    async def is_idle() -> bool:
        if not has_nothing():
            return False
        due = await engine.runtime.store.until_due(engine.queues)
        return has_nothing() and (due is None or due > timedelta(0))

    news = asyncio.Event()  # to look every moment would take the processor from what is measured

    def hear(_: Executed) -> None:
        news.set()

    listeners = engine.runtime.committer.listeners
    listeners.append(hear)
    try:
        while not await is_idle():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE):
                    await news.wait()
            await asyncio.sleep(0)  # those whose commit it was hear of it, too
            news.clear()
    finally:
        listeners.remove(hear)
