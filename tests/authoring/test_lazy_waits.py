"""Waits as values: made, awaited, combined, given to asyncio (F12, law 7)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import bide
from bide.testing import world
from tests.support.worlds import ledger_names


class Approval(msgspec.Struct):
    approved: bool


async def test_F12_a_wait_that_is_never_awaited_opens_nothing(store_url: str) -> None:
    """F12."""
    app = bide.App()

    @app.workflow("idle")
    async def idle(step: bide.Step) -> str:
        step.wait_for_signal("never", signal="a", timeout="1h")
        step.invoke("child", "idle")
        await step.sleep("night", "8h")
        return "ok"

    async with world(app, store=store_url) as there:
        run = await there.start("idle")
        [only] = await there.waits(run_id=run.id)
        assert only.step == "night"
        await there.advance("8h")
        assert await there.result(run.id) == "ok"
        assert len(await there.runs()) == 1


async def test_F2_a_wait_takes_its_id_when_it_is_made_and_not_when_it_is_awaited(store_url: str) -> None:
    """F2, F12, law 7."""
    app = bide.App()

    @app.workflow("order")
    async def order(step: bide.Step) -> list[Any]:
        first = step.wait_for_signal("gate", signal="a", timeout="1h", returns=int)
        second = step.wait_for_signal("gate", signal="b", timeout="1h", returns=int)
        return [await second, await first]

    async with world(app, store=store_url) as there:
        run = await there.start("order")
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["gate#2"]
        await there.complete("b", 2)
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["gate"]
        await there.crash()
        await there.complete("a", 1)
        assert await there.result(run.id) == [2, 1]


async def test_F12_awaiting_a_wait_again_gives_the_same_result_and_opens_no_second(store_url: str) -> None:
    """F12, F6."""
    app = bide.App()

    @app.workflow("twice")
    async def twice(step: bide.Step) -> list[Any]:
        answer = step.wait_for_signal("gate", signal="a", timeout="1h", returns=Approval)
        late = step.receive("late", "late", timeout="1m")
        found: list[Any] = [(await answer).approved, (await answer).approved, answer.value.approved]
        for _ in range(2):
            try:
                await late
            except bide.WaitTimeoutError as error:
                found.append(type(error).__name__)
        return found

    async with world(app, store=store_url) as there:
        run = await there.start("twice")
        await there.complete("a", {"approved": True})
        await there.advance("1m")
        assert await there.result(run.id) == [True, True, True, "WaitTimeoutError", "WaitTimeoutError"]
        assert (await ledger_names(there, run.id)).count("await_execution_waiting") == 2


async def test_F12_asyncio_takes_waits_as_it_takes_coroutines(store_url: str) -> None:
    """F3, F12."""
    app = bide.App()

    @app.workflow("asyncio")
    async def workflow(step: bide.Step) -> list[Any]:
        shared = step.wait_for_signal("shared", signal="shared", timeout="1h")
        gathered: list[Any] = list(
            await asyncio.gather(step.wait_for_signal("a", signal="a", timeout="1h"), shared, shared)
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step.receive("r", "r", timeout="1h")) for _ in range(2)]
            tasks_of_one = [group.create_task(shared) for _ in range(2)]
        try:
            await asyncio.wait_for(step.wait_for_signal("slow", signal="slow", timeout="1h"), 60)
        except TimeoutError:
            gathered.append("slow")
        return [*gathered, *(task.result().payload for task in tasks), *(task.result() for task in tasks_of_one)]

    async with world(app, store=store_url) as there:
        run = await there.start("asyncio")
        await there.complete("shared", "s")
        await there.complete("a", "a")
        await there.signal(run.id, "r", 1)
        await there.crash()
        await there.signal(run.id, "r", 2)
        await there.advance("1m")
        assert await there.result(run.id) == ["a", "s", "s", "slow", 1, 2, "s", "s"]
        with pytest.raises(bide.NoTarget):
            await there.complete("slow")


async def test_F12_two_tasks_may_await_one_wait_at_the_same_time(store_url: str) -> None:
    """F12."""
    app = bide.App()

    @app.workflow("shared")
    async def workflow(step: bide.Step) -> tuple[str, str, str]:
        wait = step.wait_for_signal("gate", signal="a", timeout="1h", returns=str)

        async def follow(name: str) -> str:
            return f"{name}:{await wait}"

        return await asyncio.gather(follow("one"), asyncio.create_task(wait), follow("two"))

    async with world(app, store=store_url) as there:
        run = await there.start("shared")
        assert len(await there.waits(run_id=run.id)) == 1
        await there.complete("a", "yes")
        assert await there.result(run.id) == ["one:yes", "yes", "two:yes"]


async def test_F12_a_withdrawn_wait_says_so_when_it_is_awaited_again(store_url: str) -> None:
    """F12, law 1."""
    app = bide.App()

    @app.workflow("again")
    async def workflow(step: bide.Step) -> None:
        wait = step.receive("gate", "go", timeout="1h")
        try:
            async with asyncio.timeout(60):
                await wait
        except TimeoutError:
            await wait

    async with world(app, store_url) as there:
        run = await there.start("again")
        await there.advance("1m")
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert "'gate'" in info.error.message
        assert "withdrawn" in info.error.message


async def test_F12_a_wait_has_no_value_before_it_is_over(store_url: str) -> None:
    """F12."""
    app = bide.App()

    @app.workflow("early")
    async def workflow(step: bide.Step) -> Any:
        return step.receive("gate", "go", timeout="1h").value

    async with world(app, store_url) as there:
        info = await there.get((await there.start("early")).id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert "await it" in info.error.message
