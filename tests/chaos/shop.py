"""What runs in the chaos tests: machines with waits, packs, children and timeouts, and a workflow.

`python -m bide worker tests.chaos.shop:app` serves them. Many steps take a moment, so that workers are killed and
paused inside of steps and not only between them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import bide

Ctx = bide.Context[Any]

MOMENT = 0.01
NEEDED = ("paid", "packed", "checked")


@asynccontextmanager
async def with_a_log(_: bide.App) -> AsyncIterator[None]:
    """A worker says on its standard error what happens to its claims; the tests count it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(run_id)s", defaults={"run_id": ""}))
    log = logging.getLogger("bide")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)


app = bide.App("chaos", lifespan=with_a_log)


@app.machine("courier")
class Courier:
    """Collects as many items as its input says, using each up; the result lists them in the order of arrival."""

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Await:
        await asyncio.sleep(MOMENT)
        return bide.Await("item", then="take", state=[], timeout="1h")

    async def take(self, ctx: Ctx) -> bide.Next:
        await asyncio.sleep(MOMENT)
        return bide.Next("keep", [*ctx.state, *(signal.payload for signal in ctx.awaited)])

    async def keep(self, ctx: Ctx) -> bide.Await | bide.Done:
        if len(ctx.state) >= ctx.input:
            return bide.Done(ctx.state)
        return bide.Await("item", then="take", timeout="1h")


@app.machine("pack")
class Pack:
    """Waits until every signal of a pack is there."""

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await(NEEDED, then="collect", timeout="1h")

    async def collect(self, ctx: Ctx) -> bide.Await | bide.Done:
        await asyncio.sleep(MOMENT)
        got = {signal.name: signal.payload for signal in ctx.awaited}
        return bide.Done(got) if len(got) == len(NEEDED) else bide.Await(NEEDED, then="collect", timeout=ctx.deadline)


@app.machine("family")
class Family:
    """Two children that only count, and one that waits for an item of its own."""

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Spawn:
        await asyncio.sleep(MOMENT)
        key = f"{ctx.correlation_key}:child"
        return bide.Spawn(
            [("echo", 1), ("echo", 2), bide.Child("courier", 1, correlation_key=key)], then="end", timeout="1h"
        )

    async def end(self, ctx: Ctx) -> bide.Done:
        return bide.Done([child.result for child in ctx.children])


@app.machine("echo")
class Echo:
    """Three steps to say what it was told."""

    @bide.start
    async def hear(self, ctx: Ctx) -> bide.Next:
        return bide.Next("think", ctx.input)

    async def think(self, ctx: Ctx) -> bide.Next:
        await asyncio.sleep(MOMENT)
        return bide.Next("say")

    async def say(self, ctx: Ctx) -> bide.Done:
        return bide.Done(ctx.state)


@app.machine("race")
class Race:
    """An answer and a timeout that may come at the same time."""

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("answer", then="answered", on_timeout="late", timeout="150ms")

    async def answered(self, ctx: Ctx) -> bide.Next:
        await asyncio.sleep(MOMENT)
        return bide.Next("end", [signal.payload for signal in ctx.awaited])

    async def late(self, ctx: Ctx) -> bide.Done:
        return bide.Done("late")

    async def end(self, ctx: Ctx) -> bide.Done:
        return bide.Done(ctx.state)


@app.machine("keeper")
class Keeper:
    """Waits until it is told to end or is cancelled; whatever else comes stays unread."""

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("end", then="finish", timeout="1h")

    async def finish(self, ctx: Ctx) -> bide.Done:
        await asyncio.sleep(MOMENT)
        return bide.Done("ended")


@app.machine("dawdler")
class Dawdler:
    """Stays in one step for longer than a short lease."""

    @bide.start
    async def dawdle(self, ctx: Ctx) -> bide.Next:
        await asyncio.sleep(ctx.input)
        return bide.Next("end")

    async def end(self, ctx: Ctx) -> bide.Done:
        return bide.Done("at last")


@app.workflow("errand")
async def errand(step: bide.Step, key: str) -> list[Any]:
    """Everything that a workflow waits for from outside, one after the other; the result says what came."""
    begun = await step.run("begin", _said, "begun")
    gate = await step.wait_for_signal("gate", signal=f"gate:{key}", timeout="1h", returns=int)
    about = f"data.key == '{key}'"
    news = await step.wait_for_event("news", event="shop.news", match=about, timeout="1h", lookback="1h")
    votes = await step.ask("vote", title="Shall we?", form=bool, quorum=2, timeout="1h")
    child = await step.invoke("echo", "echo", 7, timeout="1h")
    ended = await step.run("end", _said, "ended")
    return [begun, gate, news.data["no"], sorted(str(vote.by) for vote in votes.answers), child, ended]


async def _said(word: str) -> str:
    await asyncio.sleep(MOMENT)
    return word
