"""What the log says when user code raises: which run, where, and what becomes of it, and no data."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import bide
from bide.testing import world

SECRET = "4111-1111"


def raising(value: Any) -> None:
    raise ValueError(f"no such card {SECRET}")


def app_that_raises() -> bide.App:
    app = bide.App("shop")

    @app.machine("machine", retries=1)
    class Machine:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Done:
            raising(1)
            return bide.Done()

    @app.workflow("body", retries=1)
    async def body(step: bide.Step) -> None:
        raising(1)

    @app.workflow("step", retries=0, step_retry=bide.RetryPolicy(attempts=2))
    async def step(step: bide.Step) -> None:
        await step.run("charge", raising, 1)

    app.pipeline("items", retries=1).expand(lambda count: range(count)).map(raising).collect(list)
    app.pipeline("pipeline", retries=1).expand(raising).collect(list)
    return app


@pytest.mark.parametrize(
    ("definition", "place", "again", "end"),
    [
        ("machine", "'begin'", "the run is tried again in", "the run fails"),
        ("body", "'body'", "the run is tried again in", "the run fails"),
        ("step", "'charge'", "that was try 1, and there are more", "that was try 2, the last one"),
        ("items", "'raising, item 0'", "it is tried again in", "it is a dead letter"),
        ("pipeline", "'raising'", "the run is tried again in", "the run fails"),
    ],
)
async def test_code_that_raises_is_in_the_log_with_its_place_and_without_its_words(
    definition: str, place: str, again: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bide.runs")
    async with world(app_that_raises()) as w:
        run = await w.start(definition, 1 if definition in ("items", "pipeline") else None)
        await w.advance("1h")
    said = [record for record in caplog.records if record.name == "bide.runs" and place in record.getMessage()]
    assert [record.levelno for record in said] == [logging.INFO, logging.WARNING]
    assert [words in record.getMessage() for record, words in zip(said, (again, end), strict=True)] == [True, True]
    where = f"raised ValueError at {__file__}:{raising.__code__.co_firstlineno + 1} in raising; "
    for record in said:
        assert record.getMessage().startswith(f"{run.id} ({definition}): {place} {where}")
    assert SECRET not in caplog.text, "what was said may be data, and stays with the run (T65)"


async def test_the_log_has_the_whole_traceback_where_somebody_wants_to_see_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bide.runs")
    async with world(app_that_raises()) as w:
        await w.start("body")
    assert f"ValueError: no such card {SECRET}" in caplog.text
    assert "Traceback" in caplog.text


async def test_what_bide_itself_refuses_is_told_in_its_own_words(caplog: pytest.LogCaptureFixture) -> None:
    app = bide.App("shop")

    @app.machine("silent")
    class Silent:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> None: ...

    caplog.set_level(logging.DEBUG, "bide.runs")
    async with world(app) as w:
        await w.start("silent")
    assert "return Next, Await, Retry, Spawn, Done or Stop" in caplog.text
    assert "Traceback" not in caplog.text
