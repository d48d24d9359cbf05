"""Context variables: a turn has those of the program that runs the engine, not those of whoever set it going."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import bide
import bide.testing

WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


def make_app() -> bide.App:
    app = bide.App("contexts")

    @app.machine("asks")
    class Asks:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("go", then="end", state=WHOSE.get())

        async def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done([ctx.state, WHOSE.get()])

    @app.workflow("asks-too")
    async def asks(step: bide.Step) -> list[str]:
        first = WHOSE.get()
        await step.receive("go", "go", timeout="1h")
        return [first, WHOSE.get(), await step.run("whose", WHOSE.get)]

    return app


async def test_a_turn_has_no_context_of_whoever_started_or_signalled_its_run(store_url: str) -> None:
    async with bide.testing.world(make_app(), store=store_url) as w:
        WHOSE.set("the client's")
        for name in ("asks", "asks-too"):
            run = await w.start(name)
            await w.signal(run.id, "go")
            assert set(await run.result()) == {"nobody's"}


async def test_a_turn_has_the_context_in_which_the_engine_was_made_and_changes_are_its_own(store_url: str) -> None:
    app = bide.App("contexts")

    @app.machine("sets")
    class Sets:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Done:
            before = WHOSE.get()
            WHOSE.set("the run's")
            return bide.Done(before)

    WHOSE.set("the program's")
    async with bide.testing.world(app, store=store_url) as w:
        runs = [await w.start("sets") for _ in range(2)]
        assert [await run.result() for run in runs] == ["the program's"] * 2
