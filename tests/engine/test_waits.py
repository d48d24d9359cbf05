"""Waits and timeouts (contract §6: W1, W2, W6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import bide
from bide.core.commands import Deliver
from bide.engine.engine import STUCK_PAUSE, Engine
from bide.stores.interface import Executed
from bide.testing import world
from bide.testing.world import World
from tests.support.staging import client_of, names, real_store, rival, until

Ctx = bide.Context[Any]


def waiting_app(**options: Any) -> bide.App:
    """A machine that waits for `paid` as the options say, and tells how it was woken."""
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="woken", **options)

        async def woken(self, ctx: Ctx) -> bide.Done:
            return bide.Done({"timed_out": ctx.timed_out, "got": [signal.payload for signal in ctx.awaited]})

        async def elsewhere(self, ctx: Ctx) -> bide.Done:
            return bide.Done({"elsewhere": ctx.timed_out})

    return app


# ---------------------------------------------------------------- W1


@pytest.mark.parametrize(
    ("timeout", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("PT1H", timedelta(hours=1)),
        (45, timedelta(seconds=45)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(days=400), timedelta(days=400)),
    ],
)
async def test_W1_a_timeout_is_written_in_many_forms(store_url: str, timeout: Any, length: timedelta) -> None:
    async with world(waiting_app(timeout=timeout), store_url) as w:
        run = await w.start("order")
        assert (await w.waits(run_id=run.id))[0].deadline == w.now + length
        w.clock.set(w.now + length - timedelta(microseconds=1))
        await w.settle()
        assert (await w.get(run.id)).status == "waiting"
        await w.advance(timedelta(microseconds=1))
        assert (await w.result(run.id))["timed_out"] is True


async def test_W1_a_deadline_may_be_a_moment(store_url: str) -> None:
    moment = datetime(2031, 5, 1, 12, tzinfo=UTC)
    async with world(waiting_app(timeout=moment), store=store_url) as w:
        run = await w.start("order")
        assert (await w.waits(run_id=run.id))[0].deadline == moment
        w.clock.set(moment)
        assert (await w.result(run.id))["timed_out"] is True


async def test_W1_there_is_no_longest_timeout(store_url: str) -> None:
    async with world(waiting_app(timeout="36500000d"), store=store_url) as w:
        run = await w.start("order")
        assert run.status == "waiting"
        await w.advance("36500d")
        assert (await w.get(run.id)).status == "waiting"
        await w.signal(run.id, "paid", "at last")
        assert (await w.result(run.id))["got"] == ["at last"]


async def test_W1_a_wait_may_say_that_it_has_no_deadline(store_url: str) -> None:
    async with world(waiting_app(timeout=bide.FOREVER), store=store_url) as w:
        run = await w.start("order")
        assert (await w.waits(run_id=run.id))[0].deadline is None
        assert await w.runtime.store.until_due(w.engine.queues) is None


async def test_W1_time_counts_from_the_commit_that_opens_the_wait(store_url: str) -> None:
    app = bide.App()

    @app.machine("slow")
    class Slow:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            w.clock.set(w.now + timedelta(seconds=20))  # the step itself takes a while
            return bide.Await("paid", then="end", timeout="1m")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        begun = w.now
        run = await w.start("slow")
        wait = (await w.waits(run_id=run.id))[0]
        assert wait.opened_at == begun + timedelta(seconds=20)
        assert wait.deadline == begun + timedelta(seconds=80)


async def test_W1_what_people_see_of_a_wait_is_kept_with_it(store_url: str) -> None:
    shown = {
        "channel": "webhook",
        "title": "Pay for order 7",
        "description": "A **card** or cash",
        "assignee": "ann",
        "group": "finance",
        "metadata": {"order": 7, "lines": [1, 2]},
    }
    async with world(waiting_app(**shown), store=store_url) as w:
        run = await w.start("order")
        wait = (await w.waits(run_id=run.id))[0]
        assert wait.details == shown
        assert (wait.names, wait.step, wait.status) == (("paid",), "woken", "waiting")
        assert (await w.get(run.id)).wait_id == wait.id


@pytest.mark.parametrize("timeout", ["soon", -1, "-5m", float("nan"), [], datetime(2030, 1, 1)])  # noqa: DTZ001
async def test_W1_a_timeout_that_says_no_time_fails_the_run_clearly(store_url: str, timeout: Any) -> None:
    async with world(waiting_app(timeout=timeout), store_url) as w:
        run = await w.start("order")
        assert run.status == "failed"
        assert run.info.error is not None
        assert run.info.error.code == "BadOutcome"
        assert "timeout=" in run.info.error.message


async def test_W1_a_deadline_passed_on_does_not_restart_the_clock(store_url: str) -> None:
    app = bide.App()

    @app.machine("pack")
    class Pack:
        @bide.start
        async def collect(self, ctx: Ctx) -> Any:
            if ctx.timed_out or len(ctx.awaited) == 3:
                return bide.Done([signal.payload for signal in ctx.awaited])
            return bide.Await("item", then="collect", timeout=ctx.deadline or "1h")

    async with world(app, store=store_url) as w:
        run = await w.start("pack")
        begun = w.now
        await w.advance("20m")
        await w.signal(run.id, "item", 1)
        await w.advance("20m")
        await w.signal(run.id, "item", 2)
        assert {wait.deadline for wait in await w.waits(run_id=run.id, status=None)} == {begun + timedelta(hours=1)}
        await w.advance("20m")
        assert await w.result(run.id) == [1, 2]


# ---------------------------------------------------------------- W2


async def test_W2_a_machine_is_woken_with_what_arrived(store_url: str) -> None:
    async with world(waiting_app(timeout="1h"), store=store_url) as w:
        run = await w.start("order")
        await w.advance("1h")
        assert await w.result(run.id) == {"timed_out": True, "got": []}
        wait = (await w.waits(run_id=run.id, status=None))[0]
        assert (wait.status, wait.cause, wait.closed_at) == ("timed_out", "timeout", wait.deadline)
        assert "await_unit_terminal" in await names(w, run.id)


async def test_W2_a_timeout_may_lead_to_another_step(store_url: str) -> None:
    async with world(waiting_app(timeout="1h", on_timeout="elsewhere"), store=store_url) as w:
        late, paid = await w.start("order"), await w.start("order")
        await w.signal(paid.id, "paid", 1)
        await w.advance("1h")
        assert await w.result(late.id) == {"elsewhere": True}
        assert await w.result(paid.id) == {"timed_out": False, "got": [1]}


async def test_W2_a_timeout_may_fail_the_run(store_url: str) -> None:
    async with world(waiting_app(timeout="1h", on_timeout=bide.FAIL), store=store_url) as w:
        late, paid = await w.start("order"), await w.start("order")
        await w.signal(paid.id, "paid", 1)
        await w.signal(late.id, "something else")
        await w.advance("1h")
        info = await w.get(late.id)
        assert info.status == "failed"
        assert info.error is not None
        assert info.error.code == "AWAIT_TIMEOUT"
        assert str(info.error).startswith("AWAIT_TIMEOUT: ")
        with pytest.raises(bide.RunFailedError, match="AWAIT_TIMEOUT"):
            await w.result(late.id)
        assert await w.inbox(late.id) == []
        assert (await w.result(paid.id))["got"] == [1]


async def test_W2_a_failing_timeout_is_never_retried(store_url: str) -> None:
    async with world(waiting_app(timeout="1s", on_timeout=bide.FAIL), store=store_url) as w:
        run = await w.start("order")
        await w.advance("1d")
        assert (await names(w, run.id)).count("run_failed") == 1
        assert "step_retried" not in await names(w, run.id)


async def test_W2_a_join_times_out_by_the_same_policies(store_url: str) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", 1)], then="end", timeout="1h", on_timeout=ctx.input)

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(["end", ctx.timed_out, [child.status for child in ctx.children]])

        async def elsewhere(self, ctx: Ctx) -> bide.Done:
            return bide.Done(["elsewhere", ctx.timed_out])

    async with world(app, store=store_url) as w:
        wake, other, fail = [await w.start("parent", policy) for policy in (None, "elsewhere", bide.FAIL)]
        await w.advance("1h")
        assert await w.result(wake.id) == ["end", True, ["waiting"]]
        assert await w.result(other.id) == ["elsewhere", True]
        failed = (await w.get(fail.id)).error
        assert failed is not None
        assert failed.code == "AWAIT_TIMEOUT"


async def test_W2_the_step_that_a_timeout_leads_to_must_exist(store_url: str) -> None:
    async with world(waiting_app(timeout="1h", on_timeout="nowhere"), store_url) as w:
        run = await w.start("order")
        assert run.info.error is not None
        assert run.info.error.code == "BadOutcome"
        assert "nowhere" in run.info.error.message


# ---------------------------------------------------------------- W6


async def test_W6_no_deadline_fires_early_by_the_stores_clock(store_url: str) -> None:
    async with world(waiting_app(timeout="1h"), store=store_url) as w:
        run = await w.start("order")
        w.clock.set(w.now + timedelta(hours=1) - timedelta(microseconds=1))
        assert await w.engine.fire_timers() is False
        await w.settle()
        assert (await w.get(run.id)).status == "waiting"
        w.clock.set(w.now + timedelta(microseconds=1))
        assert await w.engine.fire_timers() is True
        await w.settle()
        assert (await w.get(run.id)).status == "completed"


async def pause_of(engine: Engine) -> float:
    await engine._look()
    return engine._pause()


async def test_W6_an_idle_engine_pauses_until_the_next_due_moment_in_the_store(store_url: str) -> None:
    async with world(waiting_app(timeout="700ms"), store=store_url, poll_interval="1s") as w:
        assert await pause_of(w.engine) == 1.0, "nothing is due: the poll interval"
        run = await w.start("order")
        assert await pause_of(w.engine) == pytest.approx(0.7)
        w.clock.set(w.now + timedelta(milliseconds=600))
        assert await pause_of(w.engine) == pytest.approx(0.1)
        delayed = await w.start("order", delay="50ms", settle=False)
        assert await pause_of(w.engine) == pytest.approx(0.05), "a delayed start is due first"
        w.clock.set(w.now + timedelta(milliseconds=200))
        assert await pause_of(w.engine) == 0.0, "overdue"
        await w.settle()
        await w.cancel(delayed.id)
        assert (await w.get(run.id)).status == "completed"
        assert await pause_of(w.engine) == 1.0


async def test_W6_a_pause_is_never_longer_than_the_poll_interval(store_url: str) -> None:
    async with world(waiting_app(timeout="1h"), store=store_url, poll_interval="250ms") as w:
        await w.start("order")
        assert await pause_of(w.engine) == 0.25


async def test_W6_a_full_engine_does_not_spin_on_work_that_it_cannot_take(store_url: str) -> None:
    async with world(waiting_app(), store=store_url, concurrency=1) as w:
        w.engine._reserved = 1
        await w.start("order", settle=False)
        assert await pause_of(w.engine) == 1.0
        w.engine._reserved = 0
        assert await pause_of(w.engine) == 0.0


async def test_W6_what_this_process_commits_sets_the_alarm_of_its_engine() -> None:
    async with world(waiting_app(), poll_interval="1h") as w:  # no alarm goes off while this looks
        loop = w.engine._wake
        loop.clear()
        w.engine._heard(Executed(replies=[], due_in=timedelta(minutes=30)))
        first = w.engine._alarm
        assert first is not None
        w.engine._heard(Executed(replies=[], due_in=timedelta(minutes=50)))
        assert w.engine._alarm is first, "a later moment leaves the earlier alarm"
        w.engine._heard(Executed(replies=[], due_in=timedelta(minutes=10)))
        assert first.cancelled()
        w.engine._heard(Executed(replies=[], due_in=timedelta(hours=2)))
        alarm = w.engine._alarm
        assert alarm is not None
        assert not loop.is_set(), "two hours from now: the loop itself will look in time"
        alarm.cancel()
        w.engine._heard(Executed(replies=[], ready=True))
        assert loop.is_set()


async def test_W6_runs_that_were_left_behind_are_claimed_when_many_slots_are_free_or_soon() -> None:
    """W6: one free slot of many is no reason to claim at once, and none to wait for the next poll either."""
    async with world(waiting_app(), concurrency=100) as w:
        w.engine._left_behind = True
        w.engine._reserved = 99
        w.engine._wake.clear()
        w.engine._heard(Executed(replies=[]))
        assert not w.engine._wake.is_set()
        alarm = w.engine._alarm
        assert alarm is not None
        assert w.engine._alarm_at <= asyncio.get_running_loop().time() + STUCK_PAUSE
        w.engine._reserved = 75
        w.engine._heard(Executed(replies=[]))
        assert w.engine._wake.is_set()
        alarm.cancel()
        w.engine._reserved = 0


async def test_W6_a_running_engine_fires_deadlines_by_itself_and_never_early(store_url: str) -> None:
    app = waiting_app(timeout="30ms")
    async with real_store(app, store_url) as runtime, Engine(runtime):
        client = client_of(runtime)
        runs = [await client.start("order") for _ in range(10)]
        for run in runs:
            assert (await client.result(run.id, timeout="2m"))["timed_out"] is True
            wait = (await client.waits(run_id=run.id, status=None))[0]
            assert wait.deadline is not None
            assert wait.closed_at is not None
            assert wait.closed_at >= wait.deadline >= wait.opened_at + timedelta(milliseconds=30)


async def test_W6_a_timer_fires_by_the_due_moment_in_the_store_not_by_the_poll_interval(store_url: str) -> None:
    """The engine that fires it was not there when the run parked, and polls once an hour."""
    app = waiting_app(timeout="1s")
    async with real_store(app, store_url, poll_interval="1h") as runtime:
        client = client_of(runtime)
        run = await client.start("order")
        earlier = Engine(runtime)
        await earlier.settle()
        earlier.detach()

        async def timed_out() -> bool:
            return (await client.get(run.id)).status == "completed"

        async with Engine(runtime):
            await until(timed_out)
        [wait] = await client.waits(run_id=run.id, status=None)
        assert wait.status == "timed_out"


async def test_W6_a_deadline_that_another_process_set_is_seen(store_url: str) -> None:
    app = waiting_app(timeout="30ms")
    async with world(app, store=store_url) as w, rival(w) as other:
        run = await client_of(other.runtime).start("order")
        await other.settle()
        assert await pause_of(w.engine) == pytest.approx(0.03)
        await w.advance("30ms")
        assert (await w.get(run.id)).status == "completed"


# ---------------------------------------------------------------- timeout and signal in one moment (F33)


async def _parked_at_its_deadline(w: World) -> str:
    run = await w.start("order")
    w.clock.set(w.now + timedelta(hours=1))
    return run.id


async def test_a_signal_that_commits_at_the_deadline_before_the_timer_wins(store_url: str) -> None:
    async with world(waiting_app(timeout="1h"), store=store_url) as w:
        run_id = await _parked_at_its_deadline(w)
        assert (await w.signal(run_id, "paid", 1)).outcome == "woke"
        assert await w.result(run_id) == {"timed_out": False, "got": [1]}


async def test_a_signal_that_commits_at_the_deadline_after_the_timer_stays_in_the_inbox(store_url: str) -> None:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="woken", timeout="1h")

        async def woken(self, ctx: Ctx) -> Any:
            if ctx.timed_out:
                assert not ctx.awaited
                return bide.Await("paid", then="woken", timeout="1h")
            return bide.Done([signal.payload for signal in ctx.awaited])

    async with world(app, store=store_url) as w, rival(w) as other:
        run_id = await _parked_at_its_deadline(w)
        await other.runtime.store.fire_timers(10)
        receipt = await client_of(other.runtime).signal(run_id, "paid", 1)
        assert receipt.outcome == "queued"
        await w.settle()
        assert await w.result(run_id) == [1], "the next wait takes it"


async def test_a_batch_with_signal_and_timer_has_an_order(store_url: str) -> None:
    """Both commands in one commit: the first decides, the second finds the wait closed."""
    async with world(waiting_app(timeout="1h"), store=store_url) as w:
        run_id = await _parked_at_its_deadline(w)
        run = await w.get(run_id)
        signals = [
            Deliver(
                workspace=run.workspace,
                target=run_id,
                run_id=run_id,  # type: ignore[arg-type]  # a plain string is an id
                signal_id=f"msg_{no}",
                name="paid",
                payload=str(no),
                digest=str(no),
            )
            for no in range(2)
        ]
        done = await w.runtime.store.execute(signals)
        assert [getattr(reply, "outcome", None) for reply in done.replies] == ["woke", "queued"]
        await until(lambda: _settled(w, run_id))
        assert await w.result(run_id) == {"timed_out": False, "got": [0, 1]}


async def _settled(w: World, run_id: str) -> bool:
    await w.settle()
    return (await w.get(run_id)).status == "completed"
