"""Workflows that clean up when they are cancelled (W8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bide
from bide.testing import world
from tests.support.worlds import ledger_names


def booking(log: list[str], then: str = "raise", **options: Any) -> bide.App:
    """An app whose workflow books a seat, waits, and gives the seat back when it is cancelled."""
    app = bide.App()

    def note(what: str) -> str:
        log.append(what)
        return what

    @app.workflow("booking", **({"on_cancel": "raise"} | options))
    async def workflow(step: bide.Step) -> str:
        await step.run("book", note, "booked")
        try:
            await step.wait_for_signal("gate", signal="a", timeout="1d")
        except bide.Cancelled:
            await step.run("free", note, "freed")
            await step.sleep("pause", "1m")
            await step.run("tell", note, "told")
            if then == "raise":
                raise
            if then == "fail":
                raise ValueError("no") from None
            if then == "wait":
                await step.receive("more", "more", timeout=bide.FOREVER)
        return "done"

    return app


@pytest.mark.parametrize("then", ["raise", "return", "fail"])
async def test_W8_a_cancelled_workflow_cleans_up_in_steps_and_ends_cancelled_whatever_it_does(
    then: str, store_url: str
) -> None:
    log: list[str] = []
    async with world(booking(log, then), store=store_url) as there:
        run = await there.start("booking")
        await there.cancel(run.id, reason="the customer left")
        assert log == ["booked", "freed"]
        with pytest.raises(bide.NoTarget):
            await there.complete("a")
        assert (await there.get(run.id)).status == "waiting"
        await there.cancel(run.id)  # asking again changes nothing
        await there.advance("1m")
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("cancelled", 0)
        assert log == ["booked", "freed", "told"]


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
@pytest.mark.parametrize("step", ["free", "tell"])
async def test_W8_a_crash_in_the_clean_up_leads_to_the_same_clean_up(step: Any, point: Any, store_url: str) -> None:
    """W8, D2: the cancelling is raised once, at the same await, in every replay."""
    log: list[str] = []
    async with world(booking(log), store=store_url) as there:
        run = await there.start("booking")
        there.crash_at(step, point)
        await there.cancel(run.id)
        await there.crash()
        await there.advance("1m")
        assert (await there.get(run.id)).status == "cancelled"
        done = [entry.data["step"] for entry in await there.ledger(run.id) if entry.name == "step_completed"]
        assert done == ["book", "free", "tell"]
        assert log.count("booked") == 1


async def test_W8_force_ends_at_once_and_the_grace_ends_a_clean_up_that_does_not(store_url: str) -> None:
    log: list[str] = []
    async with world(booking(log, "wait", cancel_grace="1h"), store=store_url) as there:
        forced = await there.start("booking")
        await there.cancel(forced.id, force=True)
        assert (await there.get(forced.id)).status == "cancelled"
        assert log == ["booked"]
        slow = await there.start("booking")
        await there.cancel(slow.id)
        await there.advance("59m")
        assert (await there.get(slow.id)).status == "waiting"
        await there.advance("1m")
        assert (await there.get(slow.id)).status == "cancelled"


async def test_W8_an_answer_before_the_cancel_is_handed_over_first(store_url: str) -> None:
    app, seen = bide.App(), list[Any]()

    @app.workflow("ordered", on_cancel="raise")
    async def workflow(step: bide.Step) -> None:
        try:
            seen.append(await step.wait_for_signal("gate", signal="a", timeout="1d"))
            await step.wait_for_signal("gate", signal="b", timeout="1d")
        except bide.Cancelled as cancelled:
            seen.append(str(cancelled))
            raise

    async with world(app, store=store_url) as there:
        run = await there.start("ordered")
        await there.complete("a", 1, settle=False)
        await there.cancel(run.id, reason="enough", settle=False)
        await there.settle()
        assert (await there.get(run.id)).status == "cancelled"
        assert seen[-2:] == [1, "enough"]


async def test_W8_a_run_that_is_cancelled_while_its_step_runs_hears_of_it_at_that_step(store_url: str) -> None:
    app, started, go_on, log = bide.App(), asyncio.Event(), asyncio.Event(), list[str]()

    async def long() -> None:
        started.set()
        await go_on.wait()

    @app.workflow("long", on_cancel="raise")
    async def workflow(step: bide.Step) -> None:
        try:
            await step.run("long", long)
        finally:
            await step.run("clean", log.append, "cleaned")

    async with world(app, store=store_url) as there:
        run = await there.start("long", settle=False)
        settling = asyncio.create_task(there.settle())
        await started.wait()
        await there.cancel(run.id, settle=False)
        go_on.set()
        await settling
        assert (await there.get(run.id)).status == "cancelled"
        names = [entry.data["step"] for entry in await there.ledger(run.id) if entry.name == "step_completed"]
        assert (names, log) == (["clean"], ["cleaned"])


async def test_W8_tasks_and_groups_are_cancelled_as_asyncio_does_it_and_their_waits_stay_closed(
    store_url: str,
) -> None:
    app = bide.App()

    @app.workflow("group", on_cancel="raise")
    async def workflow(step: bide.Step) -> None:
        background = asyncio.create_task(step.wait_for_signal("background", signal="b", timeout="1d"))
        try:
            async with asyncio.TaskGroup() as group:
                for name in ("one", "two"):
                    group.create_task(step.receive(name, name, timeout="1d"))
        except bide.Cancelled:
            await step.sleep("pause", "1m")
            assert background.cancelled()
            raise

    async with world(app, store=store_url) as there:
        run = await there.start("group")
        assert len(await there.waits(run_id=run.id)) == 3
        await there.cancel(run.id)
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["pause"]
        await there.advance("1m")
        assert (await there.get(run.id)).status == "cancelled"
        assert (await ledger_names(there, run.id)).count("await_execution_waiting") == 4


async def test_W8_a_run_that_never_began_is_told_at_its_first_await(store_url: str) -> None:
    log: list[str] = []
    async with world(booking(log), store=store_url) as there:
        run = await there.start("booking", delay="1h")
        await there.cancel(run.id)
        assert (await there.get(run.id)).status == "cancelled"
        assert log == []


async def test_W8_children_are_cancelled_when_the_clean_up_of_their_parent_begins(store_url: str) -> None:
    """W8: they do not work on while it takes its time. A child of the clean-up itself is none of those."""
    app, log = bide.App(), list[str]()

    @app.workflow("child")
    async def child(step: bide.Step, name: str) -> str:
        await step.sleep("nap", "5m")
        return await step.run("work", note, f"{name} worked")

    def note(what: str) -> str:
        log.append(what)
        return what

    @app.workflow("parent", on_cancel="raise")
    async def parent(step: bide.Step) -> Any:
        try:
            return await asyncio.gather(step.invoke("a", child, "a"), step.invoke("b", child, "b"))
        except bide.Cancelled:
            await step.invoke("undo", child, "undo")
            await step.run("end", note, "cleaned up")
            raise

    async with world(app, store=store_url) as there:
        run = await there.start("parent")
        await there.cancel(run.id, reason="enough")
        children = {info.input: info for info in await there.runs(definition="child")}
        assert {name: info.status for name, info in children.items()} == {
            "a": "cancelled",
            "b": "cancelled",
            "undo": "waiting",
        }
        assert (await there.get(run.id)).status == "waiting"
        [entry] = [entry for entry in await there.ledger(children["a"].id) if entry.name == "run_cancelled"]
        assert entry.data["reason"] == f"parent {run.id} was cancelled"
        await there.advance("1h")
        assert (await there.get(run.id)).status == "cancelled"
        assert log == ["undo worked", "cleaned up"]


def test_W8_a_wrong_way_to_cancel_is_refused_at_registration() -> None:
    for options in ({"on_cancel": "maybe"}, {"cancel_grace": "soon"}):
        with pytest.raises(bide.BadDefinition):
            booking([], **options)
    assert issubclass(bide.Cancelled, BaseException)
    assert not issubclass(bide.Cancelled, Exception)
