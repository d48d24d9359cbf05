"""What an exception in a step leads to (M5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import bide
from bide.testing import world
from bide.testing.world import START
from tests.support.worlds import Ctx, ledger_names, pairs


async def test_M5_an_exception_goes_to_on_error_which_returns_any_outcome(store_url: str) -> None:
    app = bide.App()

    @app.machine("handled")
    class Handled:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Done:
            if ctx.attempt:
                return bide.Done("after a retry")
            raise ValueError("no such card")

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.step, ctx.state])

        async def on_error(self, error: Exception, ctx: Ctx) -> Any:
            said = f"{type(error).__name__}: {error} in {ctx.step}"
            return {
                "next": bide.Next("after", said),
                "await": bide.Await("go", "after", said, timeout=0),
                "retry": bide.Retry(),
                "spawn": bide.Spawn([], "after", said),
                "done": bide.Done(said),
                "stop": bide.Stop(said),
            }[ctx.input]

    said = "ValueError: no such card in begin"
    async with world(app, store=store_url) as there:
        results = {}
        for kind in ("next", "await", "retry", "spawn", "done"):
            results[kind] = await there.result((await there.start("handled", kind)).id)
        stopped = await there.start("handled", "stop")
        assert results == {
            "next": ["after", said],
            "await": ["after", said],
            "retry": "after a retry",
            "spawn": ["after", said],
            "done": said,
        }
        assert str(stopped.info.error) == f"Stopped: {said}"


@pytest.mark.parametrize("outcome", ["next", "retry"])
async def test_M5_what_on_error_returns_uses_up_signals_as_a_steps_outcome_does(store_url: str, outcome: str) -> None:
    app = bide.App()

    @app.machine("uses")
    class Uses:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="fails")

        def fails(self, ctx: Ctx) -> bide.Done:
            if ctx.attempt:
                return bide.Done(pairs(ctx.all))
            raise RuntimeError("once")

        def left(self, ctx: Ctx) -> bide.Done:
            return bide.Done(pairs(ctx.all))

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Next | bide.Retry:
            return bide.Next("left") if outcome == "next" else bide.Retry()

    async with world(app, store=store_url) as there:
        run = await there.start("uses")
        await there.signal(run.id, "other", 0)
        await there.signal(run.id, "go", 1)
        left = [["other", 0]] if outcome == "next" else [["other", 0], ["go", 1]]
        assert await there.result(run.id) == left


async def test_M5_on_error_sees_the_state_as_the_step_left_it(store_url: str) -> None:
    app = bide.App()

    @app.machine("left")
    class Left:
        def begin(self, ctx: Ctx) -> bide.Done:
            ctx.state["reached"] = "half"
            raise RuntimeError("then it broke")

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.state)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("left", {})).id) == {"reached": "half"}


async def test_M5_an_error_in_on_error_is_judged_by_the_policy(store_url: str) -> None:
    app = bide.App()

    @app.machine("worse", retries=1)
    class Worse:
        def begin(self, ctx: Ctx) -> bide.Done:
            raise RuntimeError("first")

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Done:
            raise KeyError("second")

    async with world(app, store=store_url) as there:
        run = await there.start("worse")
        assert run.status == "ready"
        await there.advance("1m")
        info = await there.get(run.id)
        assert info.error is not None
        assert (info.status, info.error.code, info.error.type) == ("failed", "StepFailed", "KeyError")


async def test_M5_a_bad_outcome_of_on_error_fails_the_run(store_url: str) -> None:
    app = bide.App()

    @app.machine("silent")
    class Silent:
        def begin(self, ctx: Ctx) -> bide.Done:
            raise RuntimeError("first")

        def on_error(self, error: Exception, ctx: Ctx) -> None:
            return None

    async with world(app, store=store_url) as there:
        info = (await there.start("silent")).info
        assert info.error is not None
        assert (info.status, info.error.code) == ("failed", "BadOutcome")


async def test_M5_without_on_error_the_step_is_retried_by_the_policy_and_then_the_run_fails(store_url: str) -> None:
    app = bide.App()
    tries: list[timedelta] = []

    @app.machine("fails", retry=bide.RetryPolicy(attempts=5, first="10s", factor=3, most="2m"))
    class Fails:
        async def begin(self, ctx: Ctx) -> bide.Done:
            tries.append(clock() - START)
            raise ConnectionError(f"try {ctx.attempt}")

    async with world(app, store=store_url) as there:
        clock = there.clock
        run = await there.start("fails")
        assert (run.status, run.info.attempt) == ("ready", 1)
        await there.advance("1h")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.type, info.error.step) == ("StepFailed", "ConnectionError", "begin")
        assert info.error.message == "try 4"
        assert str(info.error) == "StepFailed: try 4"
        with pytest.raises(bide.RunFailedError, match="StepFailed: try 4"):
            await there.result(run.id)
    pauses = [after - before for before, after in pairwise(tries)]
    jitter = 1.05  # the world's dice always give one half of the most
    assert pauses == [timedelta(seconds=s) for s in (10 * jitter, 30 * jitter, 90 * jitter, 120)]


async def test_M5_the_default_policy_tries_four_times(store_url: str) -> None:
    app = bide.App()
    attempts = []

    @app.machine("fails")
    class Fails:
        async def begin(self, ctx: Ctx) -> bide.Done:
            attempts.append(ctx.attempt)
            raise RuntimeError("always")

    async with world(app, store=store_url) as there:
        run = await there.start("fails")
        await there.advance("1h")
        assert (await there.get(run.id)).status == "failed"
    assert attempts == [0, 1, 2, 3]


@pytest.mark.parametrize("crashes", [False, True])
async def test_M5_redos_that_the_step_asked_for_use_up_none_of_the_policys_tries(store_url: str, crashes: bool) -> None:
    """M4, M5: a step that polls is as patient with errors at its hundredth look as at its first."""
    app = bide.App()
    looks: list[str] = []

    @app.machine("polls", retry=bide.RetryPolicy(attempts=3, first="10s", factor=2, most="1h"))
    class Polls:
        def poll(self, ctx: Ctx) -> Any:
            assert ctx.attempt == len(looks)  # `attempt` counts both
            looks.append(day[len(looks)])
            if looks[-1] == "error":
                raise ConnectionError(f"look {ctx.attempt}")
            return bide.Retry(delay="1m") if looks[-1] == "not yet" else bide.Done("there")

    day = [*["not yet"] * 5, "error", "error", "not yet", "error", "error", "there"]
    async with world(app, store=store_url) as there:
        run = await there.start("polls")
        if crashes:
            await there.crash()
        await there.advance("1h")
        assert await there.result(run.id) == "there"
        assert looks == day
        assert await there.steps(run.id) == []  # what counts the failures is for nobody to see

        day, looks[:] = ["error", "not yet", *["error"] * 3, "there"], []
        run = await there.start("polls")
        await there.advance("5m")
        info = await there.get(run.id)
        assert (info.status, info.attempt, looks) == ("failed", 4, day[:5])
        assert str(info.error) == "StepFailed: look 4"


async def test_M5_the_failures_of_one_step_are_not_counted_with_those_of_another(store_url: str) -> None:
    app = bide.App()
    calls: list[str] = []

    @app.machine("chain", retry=bide.RetryPolicy(attempts=3, first="10s"))
    class Chain:
        @bide.start
        def first(self, ctx: Ctx) -> Any:
            return self.fail_twice(ctx, bide.Next("second"))

        def second(self, ctx: Ctx) -> Any:
            return bide.Retry() if ctx.attempt == 0 else self.fail_twice(ctx, bide.Done("done"))

        @bide.helper
        def fail_twice(self, ctx: Ctx, then: Any) -> Any:
            calls.append(ctx.step)
            if calls.count(ctx.step) < 3:
                raise ConnectionError("not yet")
            return then

    async with world(app, store=store_url) as there:
        run = await there.start("chain")
        await there.advance("1h")
        assert await there.result(run.id) == "done"


async def test_M5_retries_0_fails_at_the_first_error(store_url: str) -> None:
    app = bide.App()

    @app.machine("once", retries=0)
    class Once:
        def begin(self, ctx: Ctx) -> bide.Done:
            raise RuntimeError("once is enough")

    async with world(app, store=store_url) as there:
        assert (await there.start("once")).status == "failed"


async def test_M5_a_step_that_succeeds_in_the_end_goes_on_with_the_attempts_of_the_next_at_0(store_url: str) -> None:
    app = bide.App()

    @app.machine("flaky")
    class Flaky:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            ctx.state = "changed by a try that fails"
            if ctx.attempt < 2:
                raise ConnectionError("not yet")
            return bide.Next("after", ctx.attempt)

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.state, ctx.attempt])

    async with world(app, store=store_url) as there:
        run = await there.start("flaky")
        await there.advance("1m")
        assert await there.result(run.id) == [2, 0]
        assert (await ledger_names(there, run.id)).count("step_retried") == 2


async def test_M5_a_retried_step_starts_with_the_state_it_had(store_url: str) -> None:
    app = bide.App()

    @app.machine("clean")
    class Clean:
        def begin(self, ctx: Ctx) -> bide.Done:
            ctx.state["touched"] = ctx.state.get("touched", 0) + 1
            if ctx.attempt < 1:
                raise RuntimeError("half done")
            return bide.Done(ctx.state)

    async with world(app, store=store_url) as there:
        run = await there.start("clean", {})
        await there.advance("1m")
        assert await there.result(run.id) == {"touched": 1}


@pytest.mark.parametrize("given_up", [bide.NonRetryable, PermissionError])
async def test_M5_some_errors_are_never_retried(store_url: str, given_up: type[Exception]) -> None:
    app = bide.App()

    @app.machine("gives-up", retry=bide.RetryPolicy(attempts=9, give_up_on=(OSError,)))
    class GivesUp:
        def begin(self, ctx: Ctx) -> bide.Done:
            raise given_up("the card was stolen")

    async with world(app, store=store_url) as there:
        run = await there.start("gives-up")
        assert run.status == "failed"
        assert str(run.info.error) == "StepFailed: the card was stolen"


async def test_M5_an_error_in_one_run_leaves_the_others_alone(store_url: str) -> None:
    app = bide.App()

    @app.machine("mixed", retries=0)
    class Mixed:
        def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done(1 // ctx.input)

    async with world(app, store=store_url) as there:
        runs = [await there.start("mixed", n, settle=False) for n in (1, 0, 1, 0, 1)]
        await there.settle()
        assert [(await there.get(run.id)).status for run in runs] == [
            "completed",
            "failed",
            "completed",
            "failed",
            "completed",
        ]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("half \ud800 a pair"), "half ? a pair"),
        (ValueError("a \x00 in it"), "a \ufffd in it"),
        (ValueError("x" * 100_000), "x" * 4000),
        (Unprintable(), "(the error cannot be printed)"),
        (StopIteration(), "StopIteration"),
        (asyncio.CancelledError(), "CancelledError"),
        (TimeoutError(), ""),
        (ExceptionGroup("several", [ValueError("one")]), "several (1 sub-exception)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_M5_whatever_user_code_raises_the_run_is_retried_and_fails_with_words(
    store_url: str, error: BaseException, said: str, is_async: bool
) -> None:
    app = bide.App()

    @app.machine("async", retries=1)
    class Async:
        async def begin(self, ctx: Ctx) -> bide.Done:
            raise error

    @app.machine("sync", retries=1)
    class Sync:
        def begin(self, ctx: Ctx) -> bide.Done:
            raise error

    async with world(app, store=store_url) as there:
        run = await there.start("async" if is_async else "sync")
        assert run.status == "ready"
        await there.advance("1m")
        info = await there.get(run.id)
        assert (info.status, info.error and info.error.code) == ("failed", "StepFailed")
        assert info.error is not None
        assert said in info.error.message
