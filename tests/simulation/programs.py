"""The programs that the simulation runs: small machines that together use every outcome.

Every wait of theirs has a deadline, so that a run that is left alone always ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import bide

Ctx = bide.Context[Any]

PACK = 3
NAMES = ("item", "go", "stop", "paid", "end", "nobody-waits-for-this")
STEPS = (
    "collect",
    "keep",
    "work",
    "woken",
    "late",
    "fan_out",
    "joined",
    "begin",
    "settle_up",
    "on_cancel",
    "hop",
    "wait",
)


def make_app(pause: Callable[[Ctx], Awaitable[None]], complain: Callable[[str], None]) -> bide.App:
    """Each step calls *pause*, where it may stand until it is let go, and *complain* where it was handed a lie."""
    app = bide.App("simulation")

    @app.machine("packer", retries=2)
    class Packer:
        """Collects packs of items by awaiting again under one deadline; its result is what it used, in order."""

        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await pause(ctx)
            return bide.Await("item", then="collect", state={"used": [], "packs": 0}, timeout="10m")

        async def collect(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if not ctx.awaited and not ctx.timed_out:
                complain(f"{ctx.run_id} was woken by nothing")
            if len(ctx.awaited) < PACK and not ctx.timed_out:
                return bide.Await("item", then="collect", timeout=ctx.deadline)
            used = [*ctx.state["used"], *(signal.payload for signal in ctx.awaited)]
            return bide.Next("keep", {"used": used, "packs": ctx.state["packs"] + 1})

        async def keep(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if ctx.state["packs"] == 2:
                return bide.Done(ctx.state["used"])
            return bide.Await("item", then="collect", timeout="10m")

    @app.machine("flaky", retries=1)
    class Flaky:
        """Fails, retries, and waits for one of two signals under the timeout policy that its input names."""

        @bide.start
        async def work(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if ctx.attempt == 0:
                raise RuntimeError("once")
            if ctx.attempt == 1:
                return bide.Retry(delay="20s")
            policy = {"wake": None, "step": "late", "fail": bide.FAIL}[ctx.input]
            return bide.Await(["go", "stop"], then="woken", timeout="1m", on_timeout=policy)

        async def woken(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if not ctx.timed_out:
                if not ctx.awaited:
                    complain(f"{ctx.run_id} was woken by nothing, or its redo lost what it was handed")
                if ctx.attempt == 0:
                    return bide.Retry(delay="5s")
            if any(signal.name == "stop" for signal in ctx.awaited):
                return bide.Stop("told to")
            return bide.Done([signal.payload for signal in ctx.awaited])

        async def late(self, ctx: Ctx) -> bide.Done:
            await pause(ctx)
            return bide.Done("late")

    @app.machine("parent", retries=1)
    class Parent:
        """Spawns children, joins them under a deadline, and spawns once more."""

        @bide.start
        async def fan_out(self, ctx: Ctx) -> bide.Spawn:
            await pause(ctx)
            children = [("child", no) for no in range(ctx.input)]
            return bide.Spawn(children, then="joined", timeout="2m", cancel_children=ctx.input % 2 == 0)

        async def joined(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if ctx.state == "again":
                return bide.Done([child.status for child in ctx.children])
            return bide.Spawn([("child", 9)], then="joined", state="again", timeout="5m")

    @app.machine("child", retries=1, cancel_grace="30s")
    class Child:
        @bide.start
        async def hop(self, ctx: Ctx) -> bide.Next:
            await pause(ctx)
            return bide.Next("wait")

        async def wait(self, ctx: Ctx) -> Any:
            await pause(ctx)
            if ctx.awaited or ctx.timed_out:
                return bide.Done(len(ctx.awaited))
            return bide.Await("end", then="wait", timeout="3m")

    @app.machine("careful", retries=1, cancel_grace="40s")
    class Careful:
        """Has a clean-up, of the kind that its input names."""

        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await pause(ctx)
            return bide.Await("paid", then="settle_up", timeout="4m")

        async def settle_up(self, ctx: Ctx) -> bide.Done:
            await pause(ctx)
            return bide.Done(ctx.timed_out)

        async def on_cancel(self, ctx: Ctx) -> Any:
            await pause(ctx)
            match ctx.input:
                case "next":
                    return bide.Next("settle_up")
                case "await":
                    return bide.Await("paid", then="settle_up", timeout="1m")
                case "raise":
                    raise RuntimeError("the clean-up broke")
            return None

    return app


# What the runs of each definition wait for, as a sender would know it.
WANTED = {"packer": ("item",), "flaky": ("go", "stop"), "parent": NAMES, "child": ("end",), "careful": ("paid",)}

INPUTS: dict[str, tuple[Any, ...]] = {
    "packer": (None,),
    "flaky": ("wake", "step", "fail"),
    "parent": (0, 1, 2, 3),
    "child": (1,),
    "careful": ("none", "next", "await", "raise"),
}
