"""Machines: steps, outcomes, what a step is handed, attempts (M1–M4)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import bide
from bide.testing import world
from bide.testing.world import START
from tests.support.worlds import Ctx, pairs

HOUR = timedelta(hours=1)


# ---------------------------------------------------------------- M1: steps


async def test_M1_steps_may_be_sync_or_async(store_url: str) -> None:
    app = bide.App()

    @app.machine("mixed")
    class Mixed:
        @bide.start
        def first(self, ctx: Ctx) -> bide.Next:
            return bide.Next("second", ["sync"])

        async def second(self, ctx: Ctx) -> bide.Next:
            return bide.Next("third", [*ctx.state, "async"])

        def third(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, "sync"])

    async with world(app, store=store_url) as there:
        run = await there.start("mixed")
        assert await there.result(run.id) == ["sync", "async", "sync"]


async def test_M1_a_step_behind_a_decorator_that_hides_that_it_is_async_is_awaited(store_url: str) -> None:
    app = bide.App()

    def plain(method: Callable[..., Awaitable[bide.Done]]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(self: Any, ctx: Ctx) -> Any:
            return method(self, ctx)

        return wrapper

    @app.machine("wrapped")
    class Wrapped:
        @plain
        async def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done("awaited")

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("wrapped")).id) == "awaited"


async def test_M1_next_and_then_take_a_steps_name_or_the_method(store_url: str) -> None:
    app = bide.App()

    @app.machine("refs")
    class Refs:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next(self.by_method, [])

        def by_method(self, ctx: Ctx) -> bide.Next:
            return bide.Next(Refs.by_function, [*ctx.state, ctx.step])

        def by_function(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then=self.woken, state=[*ctx.state, ctx.step], timeout="1h", on_timeout=self.late)

        def woken(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([], then=Refs.joined, state=[*ctx.state, ctx.step])

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, ctx.step])

        def late(self, ctx: Ctx) -> bide.Done:
            return bide.Done("late")

    async with world(app, store=store_url) as there:
        run, other = await there.start(Refs), await there.start("refs")
        await there.signal(run.id, "go")
        assert await there.result(run.id) == ["by_method", "by_function", "woken", "joined"]
        await there.advance("1h")
        assert await there.result(other.id) == "late"


def test_M1_each_public_method_taking_ctx_is_a_step_but_for_hooks_and_helpers() -> None:
    app = bide.App()

    @app.machine("shape")
    class Shape:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

        async def also(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Done:
            return bide.Done()

        def on_cancel(self, ctx: Ctx) -> None:
            return None

        @bide.helper
        def helps(self, ctx: Ctx) -> int:
            return 1

        def _private(self, ctx: Ctx) -> int:
            return 1

        def no_step(self, other: int) -> int:
            return other

        @staticmethod
        def apart(ctx: Ctx) -> int:
            return 1

    assert list(Shape.__bide_definition__.steps) == ["begin", "also"]  # type: ignore[attr-defined]


async def test_M1_a_helper_can_be_called_by_steps_and_is_no_step(store_url: str) -> None:
    app = bide.App()

    @app.machine("helped")
    class Helped:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next("helps" if ctx.input == "helper" else "finish", self.helps(ctx))

        @bide.helper
        def helps(self, ctx: Ctx) -> str:
            return f"helped {ctx.step}"

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.state)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("helped")).id) == "helped begin"
        info = (await there.start("helped", "helper")).info
        assert str(info.error) == "BadOutcome: machine 'helped' has no step 'helps'; it has: begin, finish"


@pytest.mark.parametrize("hook", ["on_error", "on_cancel"])
async def test_M1_a_hook_is_no_step(store_url: str, hook: str) -> None:
    app = bide.App()

    @app.machine("hooked")
    class Hooked:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next(hook)

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Done:
            return bide.Done("from the hook")

        def on_cancel(self, ctx: Ctx) -> None:
            return None

    async with world(app, store=store_url) as there:
        info = (await there.start("hooked")).info
        assert info.status == "failed"
        assert f"has no step '{hook}'" in str(info.error)


async def test_M1_steps_are_inherited_and_overridden(store_url: str) -> None:
    app = bide.App()

    class Base:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next("middle", ["base begin"])

        def middle(self, ctx: Ctx) -> bide.Next:
            return bide.Next("finish", [*ctx.state, "base middle"])

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, "base finish"])

    @app.machine("derived")
    class Derived(Base):
        def middle(self, ctx: Ctx) -> bide.Next:
            return bide.Next("finish", [*super().middle(ctx).state, "derived middle"])

    app.machine("base")(Base)
    async with world(app, store=store_url) as there:
        derived, base = await there.start(Derived), await there.start(Base)
        assert await there.result(derived.id) == ["base begin", "base middle", "derived middle", "base finish"]
        assert await there.result(base.id) == ["base begin", "base middle", "base finish"]


async def test_M1_each_step_runs_on_a_new_object(store_url: str) -> None:
    app = bide.App()

    @app.machine("fresh")
    class Fresh:
        kept: str | None = None

        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            self.kept = "begin"
            return bide.Next("after")

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done(self.kept)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("fresh")).id) is None


async def test_M1_a_machine_of_one_step_needs_no_mark(store_url: str) -> None:
    app = bide.App()

    @app.machine("single")
    class Single:
        def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.step)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("single")).id) == "only"


def outcomes_with(step: Any) -> dict[str, Any]:
    return {
        "next": bide.Next(step),
        "await": bide.Await("go", then=step),
        "on_timeout": bide.Await("go", then="begin", timeout="1h", on_timeout=step),
        "spawn": bide.Spawn([], then=step),
        "spawn_timeout": bide.Spawn([], then="begin", timeout="1h", on_timeout=step),
    }


@pytest.mark.parametrize("place", list(outcomes_with("x")))
@pytest.mark.parametrize("step", ["no_such_step", "", None, 5, len])
async def test_M1_an_unknown_step_fails_the_run_with_the_steps_that_there_are(
    store_url: str, place: str, step: Any
) -> None:
    if place in ("on_timeout", "spawn_timeout") and step is None:
        return  # no step for a timeout is the default
    app = bide.App()

    @app.machine("lost")
    class Lost:
        @bide.start
        def begin(self, ctx: Ctx) -> Any:
            return outcomes_with(step)[place]

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as there:
        info = (await there.start("lost")).info
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.step) == ("BadOutcome", "begin")
        assert "machine 'lost' has no step " in info.error.message
        assert "it has: begin, finish" in info.error.message


async def test_M1_a_step_that_a_deploy_removed_fails_the_run_that_comes_to_it(store_url: str) -> None:
    app = bide.App()

    @app.machine("changed")
    class Changed:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="gone")

        def gone(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as there:
        run = await there.start("changed")
        del Changed.__bide_definition__.steps["gone"]  # type: ignore[attr-defined]
        await there.signal(run.id, "go")
        info = await there.get(run.id)
        assert str(info.error) == "BadOutcome: machine 'changed' has no step 'gone'; it has: begin"


# ---------------------------------------------------------------- M2: outcomes


@pytest.mark.parametrize("kind", ["next", "await", "retry", "spawn"])
async def test_M2_the_state_defaults_to_ctx_state_as_the_step_leaves_it(store_url: str, kind: str) -> None:
    app = bide.App()

    @app.machine("default")
    class Default:
        @bide.start
        def begin(self, ctx: Ctx) -> Any:
            if ctx.attempt:
                return bide.Done(ctx.state)
            ctx.state["changed"] = True
            return {
                "next": bide.Next("finish"),
                "await": bide.Await("go", "finish", timeout=0),
                "retry": bide.Retry(),
                "spawn": bide.Spawn([], "finish"),
            }[kind]

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.state)

    async with world(app, store=store_url) as there:
        run = await there.start("default", {"given": 1})
        assert await there.result(run.id) == {"given": 1, "changed": True}


@pytest.mark.parametrize("kind", ["next", "await", "retry", "spawn"])
async def test_M2_a_state_that_is_given_replaces_the_old_one_also_when_it_is_null(store_url: str, kind: str) -> None:
    app = bide.App()

    @app.machine("given")
    class Given:
        @bide.start
        def begin(self, ctx: Ctx) -> Any:
            if ctx.attempt:
                return bide.Done([ctx.state])
            return {
                "next": bide.Next("finish", None),
                "await": bide.Await("go", "finish", None, timeout=0),
                "retry": bide.Retry(None),
                "spawn": bide.Spawn([], "finish", None),
            }[kind]

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.state])

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("given", {"given": 1})).id) == [None]


async def test_M2_done_completes_with_its_result(store_url: str) -> None:
    app = bide.App()

    @app.machine("done")
    class Finished:
        def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input) if ctx.input is not None else bide.Done()

    async with world(app, store=store_url) as there:
        run, empty = await there.start("done", {"a": [1]}), await there.start("done")
        assert (run.status, run.info.result, run.info.error) == ("completed", {"a": [1]}, None)
        assert (empty.status, await there.result(empty.id)) == ("completed", None)


async def test_M2_stop_ends_the_run_as_stopped_with_its_reason(store_url: str) -> None:
    app = bide.App()

    @app.machine("stop")
    class Stopped:
        def begin(self, ctx: Ctx) -> bide.Stop:
            return bide.Stop("payment never came")

    async with world(app, store=store_url) as there:
        run = await there.start("stop")
        assert (run.status, str(run.info.error)) == ("stopped", "Stopped: payment never came")
        with pytest.raises(bide.RunStoppedError, match="payment never came"):
            await there.result(run.id)


async def test_M2_an_await_without_a_timeout_waits_for_ever(store_url: str) -> None:
    app = bide.App()

    @app.machine("patient")
    class Patient:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="finish", timeout=bide.FOREVER if ctx.input else None)

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.timed_out, ctx.deadline])

    async with world(app, store=store_url) as there:
        runs = [await there.start("patient", given) for given in (True, False)]
        await there.advance("3650d")
        for run in runs:
            assert (await there.get(run.id)).status == "waiting"
            await there.signal(run.id, "go")
            assert await there.result(run.id) == [False, None]


async def test_M2_a_timeout_leads_to_then_or_to_another_step_or_fails_the_run(store_url: str) -> None:
    app = bide.App()

    @app.machine("timeouts")
    class Timeouts:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="then", timeout="1h", on_timeout=ctx.input)

        def then(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.step, ctx.timed_out])

        def other(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.step, ctx.timed_out])

    async with world(app, store=store_url) as there:
        default, other, fails, signalled = [
            await there.start("timeouts", step) for step in (None, "other", bide.FAIL, "other")
        ]
        await there.signal(signalled.id, "go")
        await there.advance("59m59s")
        assert (await there.get(default.id)).status == "waiting"
        await there.advance("1s")
        assert await there.result(default.id) == ["then", True]
        assert await there.result(other.id) == ["other", True]
        assert await there.result(signalled.id) == ["then", False]
        info = await there.get(fails.id)
        assert (info.status, info.error and info.error.code) == ("failed", "AWAIT_TIMEOUT")


async def test_M2_an_await_shows_what_it_says_of_itself(store_url: str) -> None:
    app = bide.App()

    @app.machine("described")
    class Described:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await(
                ["approve", "reject"],
                then="finish",
                timeout="1h",
                channel="chat",
                title="Approve?",
                description="An order over the limit",
                assignee="ann",
                group="leads",
                metadata={"order": 1},
            )

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as there:
        run = await there.start("described")
        (wait,) = await there.waits(run_id=run.id)
        assert (wait.names, wait.deadline) == (("approve", "reject"), START + HOUR)
        assert wait.details == {
            "channel": "chat",
            "title": "Approve?",
            "description": "An order over the limit",
            "assignee": "ann",
            "group": "leads",
            "metadata": {"order": 1},
        }


class LooksLikeAnOutcome:
    step = "begin"
    state = None


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "None"),
        ("finish", "'finish'"),
        ({"result": 1}, "{'result': 1}"),
        (bide.Done, "<class 'bide.authoring.outcomes.Done'>"),
        ((bide.Next("begin"),), "Next"),
        (True, "True"),
        (LooksLikeAnOutcome(), "LooksLikeAnOutcome"),
    ],
)
async def test_M2_anything_else_fails_the_run_as_a_bad_outcome(store_url: str, returned: Any, shown: str) -> None:
    app = bide.App()
    calls = []

    @app.machine("bad")
    class Bad:
        async def begin(self, ctx: Ctx) -> Any:
            calls.append(ctx.attempt)
            return returned

    async with world(app, store=store_url) as there:
        run = await there.start("bad")
        await there.advance("1d")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.step) == ("BadOutcome", "begin")
        assert "step 'begin' of 'bad' returned" in info.error.message
        assert shown in info.error.message
        assert "return Next, Await, Retry, Spawn, Done or Stop" in info.error.message
        with pytest.raises(bide.RunFailedError, match="BadOutcome"):
            await there.result(run.id)
    assert calls == [0]  # it would be the same again: never retried


# ---------------------------------------------------------------- M3: what ctx holds


async def test_M3_at_the_start_the_state_is_the_input(store_url: str) -> None:
    app = bide.App()

    @app.machine("start")
    class Start:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            assert ctx.state == ctx.input
            return bide.Next("after", {"own": True})

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.state, ctx.input])

    async with world(app, store=store_url) as there:
        run = await there.start("start", {"order": 1})
        assert await there.result(run.id) == [{"own": True}, {"order": 1}]


async def test_M3_ctx_has_every_field(store_url: str) -> None:
    app = bide.App()
    seen: list[Ctx] = []

    @app.machine("fields", version="7")
    class Fields:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            seen.append(ctx)
            return bide.Await("go", then="woken", state="mine", timeout="1h")

        async def woken(self, ctx: Ctx) -> bide.Done:
            seen.append(ctx)
            return bide.Done()

    async with world(app, store=store_url) as there:
        client = there.client("shop")
        run = await client.start("fields", {"order": 1}, correlation_key="order:1")
        await there.settle()
        await client.signal(run.id, "go", 5)
        await there.settle()
    first, second = seen
    assert (first.run_id, first.definition, first.version) == (run.id, "fields", "7")
    assert (first.workspace, first.correlation_key) == ("shop", "order:1")
    assert (first.step, first.attempt, first.state, first.input) == ("begin", 0, {"order": 1}, {"order": 1})
    assert (first.awaited, first.all, first.children) == ([], [], [])
    assert (first.timed_out, first.deadline) == (False, None)
    assert (second.step, second.attempt, second.state, second.input) == ("woken", 0, "mine", {"order": 1})
    assert pairs(second.awaited) == pairs(second.all) == [["go", 5]]
    assert (second.timed_out, second.deadline) == (False, START + HOUR)


async def test_M3_a_deadline_passed_on_as_timeout_does_not_restart_the_clock(store_url: str) -> None:
    app = bide.App()

    @app.machine("passes-on")
    class PassesOn:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="again", state=0, timeout="1h")

        def again(self, ctx: Ctx) -> bide.Await | bide.Done:
            if ctx.timed_out:
                return bide.Done(ctx.state)
            return bide.Await("go", then="again", state=ctx.state + 1, timeout=ctx.deadline)

    async with world(app, store=store_url) as there:
        run = await there.start("passes-on")
        for _ in range(3):
            await there.advance("19m")
            await there.signal(run.id, "go")
        (wait,) = await there.waits(run_id=run.id)
        assert wait.deadline == START + HOUR
        await there.advance("3m")
        assert await there.result(run.id) == 3


async def test_M3_a_deadline_of_another_time_zone_is_the_same_moment(store_url: str) -> None:
    app = bide.App()
    there_and_then = (START + HOUR).astimezone(timezone(timedelta(hours=5, minutes=30)))

    @app.machine("zones")
    class Zones:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="finish", timeout=there_and_then)

        def finish(self, ctx: Ctx) -> bide.Done:
            assert ctx.deadline is not None
            return bide.Done([ctx.timed_out, ctx.deadline.isoformat()])

    async with world(app, store=store_url) as there:
        run = await there.start("zones")
        await there.advance("1h")
        assert await there.result(run.id) == [True, "2030-01-01T01:00:00+00:00"]


@pytest.mark.parametrize(
    "timeout",
    [0, "0s", START - timedelta(days=1), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))],
)
async def test_M3_a_deadline_that_has_passed_times_out_at_once(store_url: str, timeout: Any) -> None:
    app = bide.App()

    @app.machine("past")
    class Past:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="finish", timeout=timeout)

        def finish(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("past")).id) is True


@pytest.mark.parametrize(
    "timeout",
    [timedelta.max, "3000000d", datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(-HOUR))],
)
async def test_M3_a_deadline_beyond_all_time_never_comes(store_url: str, timeout: Any) -> None:
    app = bide.App()

    @app.machine("never")
    class Never:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="again", timeout=timeout)

        def again(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="again", timeout=ctx.deadline)

    async with world(app, store=store_url) as there:
        run = await there.start("never")
        await there.signal(run.id, "go")
        await there.advance("36500d")
        assert (await there.get(run.id)).status == "waiting"


# ---------------------------------------------------------------- M4: attempts


async def test_M4_retry_adds_one_and_next_and_await_reset(store_url: str) -> None:
    app = bide.App()

    @app.machine("attempts")
    class Attempts:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Retry | bide.Next:
            state = [*(ctx.state or []), [ctx.step, ctx.attempt]]
            return bide.Retry(state) if ctx.attempt < 2 else bide.Next("after", state)

        def after(self, ctx: Ctx) -> bide.Retry | bide.Await:
            state = [*ctx.state, [ctx.step, ctx.attempt]]
            return bide.Retry(state) if ctx.attempt < 1 else bide.Await("go", "woken", state, timeout=0)

        def woken(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, [ctx.step, ctx.attempt]])

    async with world(app, store=store_url) as there:
        run = await there.start("attempts")
        assert await there.result(run.id) == [
            ["begin", 0],
            ["begin", 1],
            ["begin", 2],
            ["after", 0],
            ["after", 1],
            ["woken", 0],
        ]


async def test_M4_a_retry_waits_for_its_delay_and_sees_the_awaited_again(store_url: str) -> None:
    app = bide.App()

    @app.machine("delayed")
    class Delayed:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="use", state=[], timeout="1h")

        def use(self, ctx: Ctx) -> bide.Retry | bide.Done:
            assert ctx.deadline == START + HOUR
            state = [*ctx.state, [ctx.attempt, pairs(ctx.awaited)]]
            return bide.Retry(state, delay="10m") if ctx.attempt < 2 else bide.Done(state)

    async with world(app, store=store_url) as there:
        run = await there.start("delayed")
        await there.signal(run.id, "go", 1)
        assert (await there.get(run.id)).attempt == 1
        await there.advance("9m59s")
        assert (await there.get(run.id)).attempt == 1
        await there.advance("1s")
        assert (await there.get(run.id)).attempt == 2
        await there.advance("10m")
        assert await there.result(run.id) == [[attempt, [["go", 1]]] for attempt in range(3)]


async def test_M4_a_timeout_is_a_wake_with_the_partial_pack_and_the_attempt_untouched(store_url: str) -> None:
    app = bide.App()

    @app.machine("partial")
    class Partial:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await(["a", "b"], then="collect", timeout="1h")

        def collect(self, ctx: Ctx) -> bide.Await | bide.Done:
            if ctx.timed_out:
                return bide.Done([ctx.attempt, pairs(ctx.awaited)])
            return bide.Await(["a", "b"], then="collect", timeout=ctx.deadline)

    async with world(app, store=store_url) as there:
        run = await there.start("partial")
        await there.signal(run.id, "a", 1)
        await there.advance("1h")
        assert await there.result(run.id) == [0, [["a", 1]]]
        assert (await there.get(run.id)).status == "completed"


async def test_M4_a_crash_is_no_attempt(store_url: str) -> None:
    app = bide.App()

    @app.machine("crashes")
    class Crashes:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next("ship")

        def ship(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.attempt)

    async with world(app, store=store_url) as there:
        there.crash_at("ship", "before")
        there.crash_at("ship", "after_code")
        assert await there.result((await there.start("crashes")).id) == 0


async def test_M4_a_step_that_retries_without_delay_does_not_keep_others_from_their_turn(store_url: str) -> None:
    app = bide.App()

    @app.machine("eager")
    class Eager:
        async def poll(self, ctx: Ctx) -> bide.Retry | bide.Done:
            return bide.Retry() if ctx.attempt < 250 else bide.Done(ctx.attempt)

    async with world(app, store=store_url, max_steps_inline=50) as there:
        assert await there.result((await there.start("eager")).id) == 250
