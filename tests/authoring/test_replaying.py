"""A replay hands back what is stored as it was handed over first, also where nobody would have to wait for it (F3)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from weakref import WeakSet

import bide
from bide.authoring.workflow.loop import BodyLoop
from bide.authoring.workflow.turn import WorkflowTurn
from bide.testing import world
from tests.support.leftovers import leaving_nothing

Step = bide.Step


async def same(value: Any) -> Any:
    return value


async def test_F3_who_asks_alone_does_not_overtake_an_earlier_result_that_another_task_waits_for(
    store_url: str,
) -> None:
    """F3: `late` asks for its second step when nothing else runs, while `wait` still has an earlier answer to get."""
    app, seen = bide.App(), list[list[str]]()

    @app.workflow("two")
    async def two(step: Step) -> list[str]:
        order: list[str] = []
        seen.append(order)

        async def answered() -> None:
            await step.receive("answer", "answer", timeout="1d")
            order.append("answer")

        async def slept() -> None:
            await step.sleep("nap", "1h")
            order.append("nap")
            for number in range(3):
                await step.run(f"work-{number}", same, number)
                order.append(f"work-{number}")

        async with asyncio.TaskGroup() as group:
            group.create_task(slept())
            group.create_task(answered())
        await step.sleep("night", "8h")
        return order

    async with world(app, store=store_url) as there:
        run = await there.start("two")
        await there.advance("1h")
        await there.signal(run.id, "answer")
        await there.advance("8h")
        assert await there.result(run.id) == ["nap", "work-0", "work-1", "work-2", "answer"]
    assert seen[-1] == seen[-2]


async def test_F3_tasks_that_are_ready_run_before_a_stored_result_is_handed_back(store_url: str) -> None:
    """F3: live, the other task goes on while the step runs; so it does in a replay, where the result is there."""
    app, seen = bide.App(), list[list[str]]()

    @app.workflow("both")
    async def both(step: Step) -> None:
        order: list[str] = []
        seen.append(order)

        async def other() -> None:
            for number in range(3):
                order.append(f"other-{number}")
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        order.append(await step.run("work", same, "work"))
        await task
        await step.sleep("night", "8h")

    async with world(app, store=store_url) as there:
        run = await there.start("both")
        await there.advance("8h")
        await there.result(run.id)
    assert seen[0] == seen[-1] == ["other-0", "other-1", "other-2", "work"]


async def test_F3_a_task_that_cancels_itself_hears_of_it_where_it_asks_for_a_stored_result(store_url: str) -> None:
    """F3: a task is cancelled at its next await, whether what it awaits is there or not."""
    app, seen = bide.App(), list[list[str]]()

    @app.workflow("cancels")
    async def cancels(step: Step) -> None:
        heard: list[str] = []
        seen.append(heard)

        async def stubborn() -> None:
            await step.run("before", same, 1)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await step.run("cancelled", same, 2)
                heard.append("went on")
            except asyncio.CancelledError:
                heard.append("cancelled")
            task.uncancel()
            heard.append(str(await step.run("after", same, 3)))

        await asyncio.create_task(stubborn())
        await step.sleep("night", "8h")

    async with world(app, store=store_url) as there:
        run = await there.start("cancels")
        await there.advance("8h")
        await there.result(run.id)
    assert seen[0] == seen[-1] == ["cancelled", "3"]


async def test_F1_annotations_that_are_found_later_are_read_later(store_url: str) -> None:
    """F1: what a name of an annotation means is looked up again while it means nothing."""
    app, seen = bide.App(), list[Any]()

    async def late() -> Later:  # type: ignore[name-defined]  # noqa: F821
        return {"number": 1}

    @app.workflow("late")
    async def body(step: Step) -> None:
        seen.append(await step.run("late", late))
        await step.sleep("night", "8h")

    async with world(app, store_url) as there:
        run = await there.start("late")
        late.__globals__["Later"] = dict[str, float]
        try:
            await there.advance("8h")
            await there.result(run.id)
        finally:
            del late.__globals__["Later"]
    assert [type(result["number"]) for result in seen] == [int, float]


async def test_F3_combined_waits_are_handed_over_in_the_order_of_their_answers_in_every_replay(store_url: str) -> None:
    """F3: who combines waits asks for all of them, so the one that is asked for first is not the first to be had."""
    app, seen = bide.App(), list[list[str]]()

    @app.workflow("both")
    async def both(step: Step) -> list[str]:
        order: list[str] = []
        seen.append(order)
        waits = {name: step.receive(name, name, timeout=bide.FOREVER) for name in ("one", "two")}
        first = await step.first("first", *waits.values())
        order.append(first.value.name)
        third = await step.receive("three", "three", timeout=bide.FOREVER)
        order.append(third.name)
        return order

    async with world(app, store=store_url) as there:
        run = await there.start("both")
        await there.signal(run.id, "two")
        await there.signal(run.id, "one")
        await there.signal(run.id, "three")
        assert await there.result(run.id) == ["two", "three"]
    assert [order[0] for order in seen if order] == ["two"] * len([order for order in seen if order])


async def test_F3_a_wait_that_ended_with_an_error_raises_it_again_in_every_replay(store_url: str) -> None:
    app, seen = bide.App(), list[str]()

    @app.workflow("late")
    async def late(step: Step) -> str:
        try:
            await step.receive("paid", "paid", timeout="1h")
        except bide.WaitTimeoutError:
            seen.append("timeout")
        return str((await step.receive("more", "more", timeout=bide.FOREVER)).name)

    async with world(app, store_url) as there:
        run = await there.start("late")
        await there.advance("1h")
        await there.signal(run.id, "more")
        assert await there.result(run.id) == "more"
    assert seen == ["timeout", "timeout"]


async def test_a_turn_that_is_over_leaves_nothing_to_the_garbage_collector() -> None:
    """Thousands of turns a second would keep it busy: what they are made of goes when the last one lets go of it."""
    app = bide.App()

    @app.workflow("usual")
    async def usual(step: Step) -> Any:
        await step.run("begin", same, 1)
        paid = await step.receive("paid", "paid", timeout="1h")
        return await step.run("end", same, paid.payload)

    async with world(app) as there:
        with leaving_nothing(WorkflowTurn, BodyLoop):
            run = await there.start("usual")
            await there.signal(run.id, "paid", 7)
            assert await there.result(run.id) == 7


def test_what_the_loops_of_turns_share_is_not_theirs_to_change() -> None:
    """A loop begins with what its base class sets; a container among that would be one of all loops."""
    one, two = BodyLoop(lambda *timer: None), BodyLoop(lambda *timer: None)
    names = {name for name in (*vars(BodyLoop), *vars(one)) if not name.startswith("__")}
    shared = {name for name in names if _is_container(getattr(one, name)) and getattr(one, name) is getattr(two, name)}
    assert shared <= {"_asyncgens", "_scheduled"}, "which these loops leave empty"
    for loop in (one, two):
        loop.shut()
        assert loop.is_closed()


def _is_container(value: object) -> bool:
    return isinstance(value, list | dict | set | deque | WeakSet)
