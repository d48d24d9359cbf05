"""A failed run that a person retries: what is stored is kept, what it failed of is not (F16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bide
from bide.core.records import RunError, RunId, StepRow, earlier_pause_key, pause_key
from bide.core.reusing import reused
from bide.testing import world


def shop(calls: list[str], broken: list[bool]) -> bide.App:
    app = bide.App()

    def charge() -> str:
        calls.append("charge")
        return "pi_1"

    def ship(payment: str) -> str:
        calls.append("ship")
        if broken:
            raise bide.NonRetryable("the van is broken")
        return f"shipped {payment}"

    @app.workflow("order", retries=0)
    async def order(step: bide.Step) -> list[Any]:
        payment = await step.run("charge", charge)
        answer = await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1d")
        made = await step.uuid()
        return [answer, str(made), await step.run("ship", ship, payment)]

    return app


async def test_F16_a_retried_run_keeps_results_and_answers_and_runs_the_failed_step_anew(store_url: str) -> None:
    calls, broken = list[str](), [True]
    async with world(shop(calls, broken), store=store_url) as there:
        failed = await there.start("order")
        await there.complete(f"gate-{failed.id}", "yes")
        assert (await there.get(failed.id)).status == "failed"
        broken.clear()
        again = await there.retry(failed.id)
        answer, _, shipped = await there.result(again.id)
        assert (answer, shipped, calls) == ("yes", "shipped pi_1", ["charge", "ship", "ship"])
        assert again.info.retry_of == failed.id


async def test_F16_a_run_can_be_retried_from_a_step(store_url: str) -> None:
    calls, broken = list[str](), [True]
    async with world(shop(calls, broken), store=store_url) as there:
        failed = await there.start("order")
        await there.complete(f"gate-{failed.id}", "yes")
        broken.clear()
        again = await there.retry(failed.id, from_step="gate")
        assert (await there.get(again.id)).status == "waiting"
        await there.crash()
        await there.complete(f"gate-{again.id}", "no")
        assert (await there.result(again.id))[0] == "no"
        assert calls == ["charge", "ship", "ship"]
        whole = await there.retry(failed.id, from_step="charge")
        assert calls[-1] == "charge"
        assert (await there.get(whole.id)).status == "waiting"
        with pytest.raises(bide.BadInput, match="no step 'nothing'"):
            await there.retry(failed.id, from_step="nothing")


async def test_F16_the_timeout_or_child_that_a_run_failed_of_is_not_kept(store_url: str) -> None:
    app, fails = bide.App(), [True]

    @app.workflow("child", retries=0)
    async def child(step: bide.Step) -> str:
        if fails:
            raise ValueError("no")
        return "child"

    @app.workflow("parent", retries=0)
    async def parent(step: bide.Step) -> list[Any]:
        await step.sleep("first", "1m")
        answer = await step.wait_for_signal("gate", signal="a", timeout="1h")
        return [answer, await step.invoke("child", child)]

    async with world(app, store=store_url) as there:
        timed_out = await there.start("parent")
        await there.advance("2h")
        assert (await there.get(timed_out.id)).status == "failed"
        second = await there.retry(timed_out.id)
        assert [wait.step for wait in await there.waits(run_id=second.id)] == ["gate"]
        await there.complete("a", "yes")
        assert (await there.get(second.id)).status == "failed"
        fails.clear()
        third = await there.retry(second.id)
        assert await there.result(third.id) == ["yes", "child"]


async def test_F16_from_step_is_refused_where_there_are_no_stored_steps(store_url: str) -> None:
    app = bide.App()

    @app.machine("machine", retries=0)
    class Fails:
        def begin(self, ctx: Any) -> None:
            raise ValueError("no")

    @app.workflow("gate")
    async def gate(step: bide.Step) -> Any:
        return await step.receive("go", "go", timeout="1h")

    async with world(app, store_url) as there:
        failed, waiting = await there.start("machine"), await there.start("gate")
        with pytest.raises(bide.BadInput):
            await there.retry(failed.id, from_step="begin")
        with pytest.raises(bide.NotHeld):
            await there.retry(waiting.id, from_step="go")


def row(key: str, seq: int, status: Any = "done", kind: str = "run") -> StepRow:
    return StepRow(run_id=RunId("run_1"), key=key, kind=kind, status=status, seq=seq)


def test_F16_what_is_kept_comes_in_its_order_before_anything_new() -> None:
    """Numbered from one: the new run's own outcomes come after all of them, in every replay (F3)."""
    rows = [row("b", 2**40), row("a", 2**35), row("c", 2**41, "failed"), row("d", 2**42, "trying")]
    assert [(kept.key, kept.seq) for kept in reused(rows, None)] == [("a", 1), ("b", 2)]


def test_F16_the_pauses_of_a_step_go_with_it() -> None:
    for key in (pause_key("a", 1), earlier_pause_key("a", 1)):
        pause = row(key, 1, "timed_out", "sleep")
        assert [kept.key for kept in reused([pause, row("a", 2)], None)] == [key, "a"]
        assert reused([pause, row("a", 2, "failed")], None) == ()
    assert [kept.key for kept in reused([row("menu/pause", 1), row("b/pause1", 2)], None)] == ["menu/pause", "b/pause1"]


def test_F16_only_the_last_timeout_is_what_a_run_failed_of() -> None:
    rows = [
        row("one", 1, "timed_out", "signal"),
        row("two", 2, "timed_out", "signal"),
        row("s", 3, "timed_out", "sleep"),
    ]
    error = RunError(code="SignalTimeoutError", message="…")
    assert [kept.key for kept in reused(rows, error)] == ["one", "s"]


def van(calls: list[str], broken: list[str]) -> bide.App:
    app = bide.App()

    @app.machine("van", retries=0)
    class Van:
        @bide.start
        def load(self, ctx: bide.Context[dict[str, int]]) -> bide.Next:
            calls.append(f"load {ctx.state}")
            return bide.Next("drive", {"boxes": 7})

        def drive(self, ctx: bide.Context[dict[str, int]]) -> bide.Await:
            calls.append(f"drive {ctx.state}")
            if broken == ["on the way"]:
                raise RuntimeError("no fuel")
            return bide.Await("arrived", then="unload", timeout="1h")

        def unload(self, ctx: bide.Context[dict[str, int]]) -> bide.Done:
            calls.append(f"unload {[signal.payload for signal in ctx.awaited]}")
            if broken:
                raise RuntimeError("the door is stuck")
            return bide.Done(ctx.timed_out)

    return app


async def test_F16_a_retried_machine_begins_with_the_step_that_failed_and_its_state(store_url: str) -> None:
    calls, broken = list[str](), ["on the way"]
    async with world(van(calls, broken), store=store_url) as there:
        failed = await there.start("van", {})
        broken.clear()
        again = await there.retry(failed.id)
        assert (await there.get(again.id)).status == "waiting"
        assert calls == ["load {}", "drive {'boxes': 7}", "drive {'boxes': 7}"]


async def test_F16_a_machine_that_failed_in_what_follows_a_wait_begins_anew_and_waits_again(store_url: str) -> None:
    calls, broken = list[str](), ["at the door"]
    async with world(van(calls, broken), store=store_url) as there:
        failed = await there.start("van", {})
        await there.signal(failed.id, "arrived", "noon")
        assert (await there.get(failed.id)).status == "failed"
        broken.clear()
        again = await there.retry(failed.id)
        assert (await there.get(again.id)).status == "waiting"
        await there.signal(again.id, "arrived", "night")
        assert await there.result(again.id) is False
        assert calls == [*["load {}", "drive {'boxes': 7}", "unload ['noon']"], *calls[:2], "unload ['night']"]


async def test_F16_a_machine_that_begins_anew_is_retried_with_its_app_and_the_refusal_says_so(tmp_path: Path) -> None:
    app, stranger = van([], ["at the door"]), bide.App(store=f"sqlite:///{tmp_path}/van.db")
    app.configure(store=f"sqlite:///{tmp_path}/van.db")
    client = app.client()
    async with app.engine():
        failed = await client.start("van", {})
        await client.signal(failed.id, "arrived", "noon")
        with pytest.raises(bide.RunFailedError):
            await failed.result(timeout="2m")
    with pytest.raises(bide.BadInput, match="the first step of 'van', which is not known here; retry it with the"):
        await stranger.client().retry(failed.id)
    assert [run.id for run in await client.runs()] == [failed.id]
    await stranger.close()
    await app.close()
