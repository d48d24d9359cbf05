"""W2, F13: what the end of a wait's time leads to in a workflow: an error, a default, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bide
from bide.testing import world

HOUR: Any = {"timeout": "1h"}


async def callback(step: bide.Step, **policy: Any) -> Any:
    return await (await step.callback("gate", **HOUR, **policy))


async def reserved(step: bide.Step, **policy: Any) -> Any:
    await step.reserve_signal("gate", signal=f"go-{step.run_id}")
    return await step.wait_for_signal("gate", signal=f"go-{step.run_id}", **HOUR, **policy)


async def either(step: bide.Step, **policy: Any) -> Any:
    gate = step.receive("gate", "go", **HOUR, **policy)
    return (await step.first("first", gate, step.receive("other", "other", timeout="2h"))).value


OPENING: dict[str, Callable[..., Any]] = {
    "signal": lambda step, **p: step.wait_for_signal("gate", signal=f"go-{step.run_id}", **HOUR, **p),
    "reserved": reserved,
    "callback": callback,
    "receive": lambda step, **p: step.receive("gate", "go", **HOUR, **p),
    "pack": lambda step, **p: step.receive_all("gate", "go", at_least=2, **HOUR, **p),
    "task": lambda step, **p: step.ask("gate", title="Well?", form=bool, **HOUR, **p),
    "event": lambda step, **p: step.wait_for_event("gate", event="go", **HOUR, **p),
    "request": lambda step, **p: step.request("gate", 1, transport="interaction-api", **HOUR, **p),
    "each": lambda step, **p: step.request_each("gate", [1, 2], transport="interaction-api", **HOUR, **p),
    "child": lambda step, **p: step.invoke("gate", "sleeper", **HOUR, **p),
    "first": either,
}
every_way = pytest.mark.parametrize("way", OPENING)


def waiting(way: str, **policy: Any) -> bide.App:
    app = bide.App()

    @app.workflow("sleeper")
    async def sleeper(step: bide.Step) -> None:
        await step.sleep("long", "10d")

    @app.workflow("gate", retries=5)
    async def gate(step: bide.Step) -> Any:
        try:
            return await OPENING[way](step, **policy)
        except bide.WaitTimeoutError as error:
            return type(error).__name__
        except BaseException as error:  # whatever it is, a body cannot keep its run alive
            return f"caught {type(error).__name__}"

    return app


@every_way
async def test_W2_a_wait_may_fail_its_run_when_the_time_is_up(store_url: str, way: str) -> None:
    """W2, F16: with AWAIT_TIMEOUT, never retried, and nothing that the body could catch."""
    async with world(waiting(way, on_timeout=bide.FAIL), store_url) as w:
        run = await w.start("gate")
        assert "AWAIT_TIMEOUT" in " ".join((await w.explain(run.id)).explanation)
        await w.advance("61m")
        found = await w.get(run.id)
        assert (found.status, found.attempt) == ("failed", 0)
        assert found.error is not None
        assert (found.error.code, found.error.step) == ("AWAIT_TIMEOUT", "gate")
        assert await w.waits(run_id=run.id) == []


@every_way
async def test_W2_a_run_that_failed_in_time_waits_anew_when_it_is_retried(store_url: str, way: str) -> None:
    """F16: what it failed of is not among what the new run keeps."""
    async with world(waiting(way, on_timeout=bide.FAIL), store_url) as w:
        run = await w.start("gate")
        await w.advance("61m")
        again = await w.retry(run.id)
        assert (await w.get(again.id)).status == "waiting"
        assert "gate" in [wait.step for wait in await w.waits(run_id=again.id)]


@every_way
async def test_F13_every_wait_raises_or_gives_its_default(store_url: str, way: str) -> None:
    """F13: `SignalTimeoutError` and `RunTimeoutError` among them."""
    for policy, expected in (({}, "TimeoutError"), ({"default": "nobody"}, "nobody")):
        async with world(waiting(way, **policy), store_url) as w:
            run = await w.start("gate")
            await w.advance("61m")
            assert str(await w.result(run.id)).endswith(expected)


async def test_W2_a_wait_that_was_answered_in_time_goes_on(store_url: str) -> None:
    async with world(waiting("receive", on_timeout=bide.FAIL), store_url) as w:
        run = await w.start("gate")
        await w.advance("59m")
        await w.signal(run.id, "go", 7)
        await w.advance("1d")
        assert (await w.result(run.id))["payload"] == 7


async def test_W2_a_wait_that_lost_a_race_fails_nobody(store_url: str) -> None:
    """Law 1: its time is up after another one won, before the run has gone on."""
    async with world(waiting("first", on_timeout=bide.FAIL), store_url) as w:
        run = await w.start("gate")
        await w.advance("59m")
        await w.signal(run.id, "other", 7, settle=False)
        await w.advance("1d")
        assert (await w.result(run.id))["payload"] == 7


async def test_W2_a_run_that_is_being_cancelled_ends_as_cancelled(store_url: str) -> None:
    """W8: whatever its clean-up comes to."""
    app = bide.App()

    @app.workflow("gate", on_cancel="raise", cancel_grace="1d")
    async def gate(step: bide.Step) -> Any:
        try:
            await step.sleep("long", "10d")
        except bide.Cancelled:
            await step.receive("gate", "go", timeout="1h", on_timeout=bide.FAIL)

    async with world(app, store_url) as w:
        run = await w.start("gate")
        await w.cancel(run.id)
        await w.advance("2h")
        assert (await w.get(run.id)).status == "cancelled"


@every_way
@pytest.mark.parametrize("policy", [{"on_timeout": "fail"}, {"on_timeout": bide.FAIL, "default": None}])
async def test_W2_a_wait_has_one_policy_which_is_known(way: str, policy: Any) -> None:
    """Bad input: found before anything waits."""
    app = bide.App()

    @app.workflow("gate")
    async def gate(step: bide.Step) -> Any:
        await OPENING[way](step, **policy)

    async with world(app) as w:
        run = await w.start("gate")
        error = (await w.get(run.id)).error
        assert error is not None
        assert error.code == "BadInput"
        assert "on_timeout" in error.message


async def test_W2_what_is_only_reserved_has_no_time() -> None:
    app = bide.App()

    @app.workflow("gate")
    async def gate(step: bide.Step) -> Any:
        await step.reserve_signal("gate", signal="go", on_timeout=bide.FAIL)

    async with world(app) as w:
        error = (await w.get((await w.start("gate")).id)).error
        assert error is not None
        assert "on_timeout" in error.message
