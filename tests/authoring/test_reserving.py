"""Signal ids that are held before the run waits for them (F7, W1, W3, laws 2, 3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bide
from bide.testing import world
from tests.support.worlds import ledger_names


def invoices(sent: list[str], returns: Any = int) -> bide.App:
    """An app whose workflow reserves a signal id, gives it away, does other things, and then waits for the answer."""
    app = bide.App()

    @app.workflow("invoice")
    async def invoice(step: bide.Step, signal: str) -> list[Any]:
        await step.reserve_signal("paid", signal=signal, returns=returns)
        await step.run("send", sent.append, signal)
        go = await step.receive("go", "go", timeout=bide.FOREVER)
        try:
            return [go.payload, await step.wait_for_signal("paid", signal=signal, timeout="1h", returns=returns)]
        except bide.SignalTimeoutError:
            return [go.payload, "late"]

    return app


async def test_F7_an_answer_before_the_wait_is_checked_kept_and_taken_later(store_url: str) -> None:
    async with world(invoices([]), store=store_url) as there:
        run = await there.start("invoice", "a")
        [reserved] = await there.waits(run_id=run.id, status="reserved")
        assert (reserved.step, reserved.deadline) == ("paid", None)
        with pytest.raises(bide.BadInput):
            await there.complete("a", "seven")
        receipt = await there.complete("a", 7, dedup_key="k")
        assert (receipt.outcome, receipt.run_id) == ("queued", run.id)
        assert (await there.get(run.id)).status == "waiting"
        assert (await there.complete("a", 7, dedup_key="k")).outcome == "duplicate"
        with pytest.raises(bide.AlreadyAnswered):
            await there.complete("a", 8)
        await there.advance("10d")
        await there.crash()
        await there.signal(run.id, "go", 1)
        assert await there.result(run.id) == [1, 7]


async def test_W1_the_time_of_a_reserved_wait_counts_from_where_the_run_reaches_it(store_url: str) -> None:
    async with world(invoices([]), store=store_url) as there:
        late, answered = await there.start("invoice", "a"), await there.start("invoice", "b")
        await there.advance("5h")
        for run in (late, answered):
            await there.signal(run.id, "go")
            [wait] = await there.waits(run_id=run.id)
            assert wait.step == "paid"
            assert wait.deadline is not None
        assert (await there.complete("b", 2)).outcome == "woke"
        await there.advance("1h")
        assert await there.result(late.id) == [None, "late"]
        assert await there.result(answered.id) == [None, 2]
        assert (await ledger_names(there, late.id)).count("await_reserved") == 1


async def test_law_3_the_reservation_is_there_before_the_step_that_gives_the_id_away(store_url: str) -> None:
    app, outcomes = bide.App(), list[str]()
    places: list[Any] = []

    async def give_away(signal: str) -> None:
        outcomes.append((await places[0].client().complete(signal, 7)).outcome)

    @app.workflow("early")
    async def early(step: bide.Step) -> int:
        await step.reserve_signal("paid", signal="a", returns=int)
        await step.run("give", give_away, "a")
        return await step.wait_for_signal("paid", signal="a", timeout="1h", returns=int)

    async with world(app, store=store_url) as there:
        places.append(there)
        run = await there.start("early")
        assert outcomes == ["queued"]
        assert await there.result(run.id) == 7


async def test_F7_a_reserved_id_collides_like_an_awaited_one_and_is_freed_with_its_run(store_url: str) -> None:
    async with world(invoices([]), store=store_url) as there:
        first, second = await there.start("invoice", "a"), await there.start("invoice", "a")
        await there.signal(second.id, "go")
        info = await there.get(second.id)
        assert info.error is not None
        assert (info.status, info.error.code) == ("failed", "SignalCollisionError")
        await there.cancel(first.id)
        with pytest.raises(bide.NoTarget):
            await there.complete("a", 1)
        third = await there.start("invoice", "a")
        assert (await there.complete("a", 3)).outcome == "queued"
        await there.signal(third.id, "go")
        assert await there.result(third.id) == [None, 3]


async def test_F7_each_reservation_goes_to_the_next_wait_of_its_id(store_url: str) -> None:
    app = bide.App()

    @app.workflow("two")
    async def two(step: bide.Step) -> list[Any]:
        for name in ("a", "b"):
            await step.reserve_signal("gate", signal=name)
        await step.sleep("hour", "1h")
        gates = (step.wait_for_signal("gate", signal=name, timeout="1h") for name in ("a", "b", "c"))
        return list(await asyncio.gather(*gates))

    async with world(app, store=store_url) as there:
        run = await there.start("two")
        await there.complete("b", "B")
        await there.advance("1h")
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["gate", "gate#3"]
        await there.complete("c", "C")
        await there.complete("a", "A")
        assert await there.result(run.id) == ["A", "B", "C"]


async def test_F7_a_wait_right_after_its_reservation_is_one_wait(store_url: str) -> None:
    app = bide.App()

    @app.workflow("at once")
    async def at_once(step: bide.Step) -> Any:
        await step.reserve_signal("gate", signal="a")
        return await step.wait_for_signal("gate", signal="a", timeout="1h")

    async with world(app, store=store_url) as there:
        run = await there.start("at once")
        assert [wait.step for wait in await there.waits(run_id=run.id, status=None)] == ["gate"]
        await there.complete("a", 1)
        assert await there.result(run.id) == 1
