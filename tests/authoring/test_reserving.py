"""Signal ids that are held before the run waits for them (F7, W1, W3, laws 2, 3)."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

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
        assert (await there.complete("a", 8)).outcome == "late"
        await there.advance("10d")
        await there.crash()
        await there.signal(run.id, "go", 1)
        assert await there.result(run.id) == [1, 7]


async def test_F5_a_reservation_that_collides_raises_there_and_gives_nothing_away(store_url: str) -> None:
    sent: list[str] = []
    async with world(invoices(sent), store=store_url) as there:
        first = await there.start("invoice", "a")
        second = await there.start("invoice", "a")
        info = await there.get(second.id)
        assert (info.status, info.attempt, sent) == ("failed", 0, ["a"])
        assert info.error is not None
        assert info.error.code == "SignalCollisionError"
        assert first.id in info.error.message
        assert (await there.complete("a", 7, run_id=first.id)).outcome == "queued"
        await there.signal(first.id, "go", 1)
        assert await there.result(first.id) == [1, 7]


async def test_F5_a_collision_of_a_reservation_can_be_caught_and_replays_as_itself(store_url: str) -> None:
    app = bide.App()

    @app.workflow("polite")
    async def polite(step: bide.Step) -> Any:
        signal = "a"
        try:
            await asyncio.gather(step.reserve_signal("gate", signal=signal), step.run("beside", str))
        except bide.SignalCollisionError:
            signal = f"a-{step.run_id}"
            await step.reserve_signal("gate", signal=signal)
        await step.run("send", str, signal)
        await step.sleep("nap", "1h")
        return await step.wait_for_signal("gate", signal=signal, timeout="1h")

    async with world(app, store=store_url) as there:
        first, second = await there.start("polite"), await there.start("polite")
        assert (await there.complete("a", 1, run_id=first.id)).outcome == "queued"
        await there.crash()
        await there.advance("1h")
        assert await there.result(first.id) == 1
        assert (await there.complete(f"a-{second.id}", 2)).outcome == "woke"
        assert await there.result(second.id) == 2


async def test_S12_an_early_answer_that_the_run_never_waits_for_is_kept(store_url: str) -> None:
    app = bide.App()

    @app.workflow("hasty")
    async def hasty(step: bide.Step) -> str:
        cb = await step.callback("cb", timeout="1h")
        await step.reserve_signal("gate", signal=f"gate-{step.run_id}")
        if (await step.receive("go", "go", timeout="1h")).payload == "while it runs":
            await step.run("answer", answer, step.run_id)
        return cb.url

    async def answer(run_id: str) -> None:
        await there.complete(f"gate-{run_id}", 7, settle=False)

    async with world(app, store=store_url) as there:
        before, during = await there.start("hasty"), await there.start("hasty")
        assert (await there.complete(f"gate-{before.id}", 7)).outcome == "queued"
        await there.signal(before.id, "go", "now")
        await there.signal(during.id, "go", "while it runs")
        kept = {(each.run_id, each.target): (each.payload, each.reason) for each in await there.unused()}
        for run in (before, during):
            assert (await there.get(run.id)).status == "completed"
            assert kept[(run.id, f"gate-{run.id}")] == (7, "withdrawn")


async def test_S12_an_early_answer_that_a_life_never_waits_for_is_kept_when_the_run_begins_anew(store_url: str) -> None:
    """S12, F7: of each life its own, whether it came while the run waited or while it was at work."""
    app = bide.App()

    @app.workflow("rounds")
    async def rounds(step: bide.Step, round: int) -> Any:
        await step.reserve_signal("gate", signal=f"gate-{round}")
        await step.receive("go", "go", timeout="1h")
        if round == 3:
            await step.run("answer", answer, round)
        return bide.Restart(round + 1) if round < 4 else "over"

    async def answer(round: int) -> None:
        await there.complete(f"gate-{round}", round, settle=False)

    async with world(app, store=store_url) as there:
        run = await there.start("rounds", 1)
        for round in range(1, 5):
            if round != 3:
                assert (await there.complete(f"gate-{round}", round)).outcome == "queued"
            await there.signal(run.id, "go")
        assert await there.result(run.id) == "over"
        kept = {each.target: (each.payload, each.reason) for each in await there.unused()}
        assert kept == {f"gate-{round}": (round, "withdrawn") for round in range(1, 5)}


async def test_S12_an_early_answer_to_the_link_of_a_life_that_is_over_is_kept(store_url: str) -> None:
    """S12, F9: 200 said that it was admitted, so it is not gone with the life that did not wait for it."""
    app, links = bide.App(), list[str]()

    @app.workflow("skips")
    async def skips(step: bide.Step, round: int) -> Any:
        cb = await step.callback("cb" * 100, timeout="1d")
        await step.run("send", links.append, urlsplit(cb.url).path)
        await step.receive("skip", "skip", timeout="1d")
        return bide.Restart(round + 1)

    async with world(app, store=store_url) as there:
        run = await there.start("skips", 1)
        for round in range(2):
            answered = await there.http().post(links[round], json={"round": round})
            assert (answered.status_code, answered.json()["outcome"]) == (200, "queued")
            await there.signal(run.id, "skip")
        kept = await there.unused()
        assert [(each.payload["round"], each.reason) for each in kept] == [(0, "withdrawn"), (1, "withdrawn")]
        receipt = await there.readdress(kept[0].id, run.id)
        assert (receipt.outcome, receipt.run_id) == ("queued", run.id)


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


async def test_W10_a_reserved_wait_stays_with_whom_an_operator_gave_it_to(store_url: str) -> None:
    """W10: reaching it does not give it back to whom the workflow names, nor take the operator's deadline away."""
    app = bide.App()

    @app.workflow("review")
    async def review(step: bide.Step) -> Any:
        cb = await step.callback("cb", timeout="1d", assignee="ann")
        await step.reserve_signal("gate", signal=f"gate-{step.run_id}", assignee="ann")
        await step.sleep("night", "1h")
        gate = step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1d", assignee="ann", default="late")
        return await asyncio.gather(cb, gate)

    async with world(app, store=store_url) as there:
        run = await there.start("review")
        for wait in await there.waits(run_id=run.id, status="reserved"):
            await there.update_wait(wait.id, assignee="bob", reason="ann is ill")
            assert (await there.wait(wait.id)).details["assignee"] == "bob"
        await there.update_wait(wait.id, deadline="5h", reason="it is urgent")
        deadline = (await there.wait(wait.id)).deadline
        await there.advance("1h")
        waits = await there.waits(run_id=run.id, status="waiting")
        assert {(wait.step, wait.details["assignee"]) for wait in waits} == {("cb", "bob"), ("gate", "bob")}
        assert (await there.wait(wait.id)).deadline == deadline
        with pytest.raises(bide.Forbidden):
            await there.complete(waits[0].names[0], 1, by="ann")
        await there.complete(next(wait for wait in waits if wait.step == "cb").names[0], 1, by="bob")
        await there.advance("5h")
        assert await there.result(run.id) == [1, "late"]


async def test_W10_a_deadline_that_passed_before_the_body_came_there_times_out_at_once(store_url: str) -> None:
    """W10, D5: a reserved wait cannot time out, and its deadline does nothing until the run is there."""
    async with world(invoices([]), store=store_url) as there:
        run = await there.start("invoice", "a")
        [wait] = await there.waits(run_id=run.id, status="reserved")
        await there.update_wait(wait.id, deadline="30m", reason="it is urgent")
        await there.advance("2h")
        assert (await there.wait(wait.id)).status == "reserved"
        await there.signal(run.id, "go", 1)
        assert await there.result(run.id) == [1, "late"]


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
