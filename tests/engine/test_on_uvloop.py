"""The engine on uvloop, as `bide worker` and `bide serve` run it where it is installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import bide
from bide.core.records import RunId
from bide.engine.ends import Ends
from bide.engine.engine import Engine
from bide.stores.interface import Executed

uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed here (bide[fast])")


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:
        yield made


async def collected(app: bide.App, items: int, broken: list[dict[str, Any]]) -> Any:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
    async with app.engine():
        run = await app.client().start("sum", items)
        result = await run.result(timeout="2m")
    await app.close()
    return result


def test_W6_work_that_is_due_at_once_breaks_no_commit(
    runner: asyncio.Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipeline has items that are due at once, so its engine is to look again this very moment."""
    app = bide.App("on-uvloop", store=f"sqlite:///{tmp_path}/store.db")

    def rows(count: int) -> list[int]:
        return list(range(count))

    def total(items: bide.Items) -> int:
        return sum(items)

    app.pipeline("sum").expand(rows).map(lambda row: row).collect(total)
    broken: list[dict[str, Any]] = []

    assert runner.run(collected(app, 2000, broken)) == sum(range(2000))
    assert broken == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_W6_an_engine_can_be_told_twice_to_look_at_once(runner: asyncio.Runner) -> None:
    async def told() -> None:
        app = bide.App("on-uvloop", store="memory://")
        engine = Engine(await app.runtime())
        now = Executed(replies=[], turns={}, ready=False, due_in=timedelta(0), ended=[])
        for _ in range(2):
            for listener in engine.runtime.committer.listeners:
                listener(now)
        engine.detach()
        await app.close()

    runner.run(told())


def test_the_end_of_two_runs_can_be_waited_for_with_no_pause_between_looks(runner: asyncio.Runner) -> None:
    async def waited() -> None:
        app = bide.App("on-uvloop", store="memory://")
        ends = Ends((await app.runtime()).store, 0.0001)
        with ends.listening(RunId("run_1")), ends.listening(RunId("run_2")):
            await asyncio.sleep(0)
        await ends.drain()
        await app.close()

    runner.run(waited())
