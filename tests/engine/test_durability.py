"""Durability (contract §2): what a crash, a lost claim, a wrong clock or a lost hint may and may not do."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

import bide
from bide.core.records import RunId
from bide.engine.engine import Engine
from bide.engine.heartbeat import Heartbeat
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from bide.errors import StoreUnavailable
from bide.stores.postgres import migrate
from bide.testing import world
from tests.support.postgres import connect
from tests.support.staging import DEADLINE, Gate, client_of, names, real_store, rival, rows, until

Ctx = bide.Context[Any]
POINTS: tuple[Literal["before", "after_code", "after_commit"], ...] = ("before", "after_code", "after_commit")


# ---------------------------------------------------------------- D1


async def test_D1_a_parked_run_is_rows_and_nothing_else(store_url: str) -> None:
    app = bide.App()
    alive: weakref.WeakSet[object] = weakref.WeakSet()

    @app.machine("order")
    class Order:
        def __init__(self) -> None:
            alive.add(self)

        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="ship")

        async def ship(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    async with world(app, store=store_url) as w:
        before = asyncio.all_tasks()
        threads = threading.active_count()
        runs = [await w.start("order") for _ in range(20)]
        gc.collect()
        assert len(alive) == 0
        assert not w.engine.active
        assert asyncio.all_tasks() == before
        assert threading.active_count() <= threads + 1  # a pool may have grown by a thread; runs have none
        assert await w.runtime.store.until_due(w.engine.queues) is None
        for run in runs:
            await w.signal(run.id, "paid", 5)
            assert await w.result(run.id) == 5


async def test_D1_a_parked_run_goes_on_in_another_process(store_url: str) -> None:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="ship", state={"total": 7})

        async def ship(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.state, ctx.awaited[0].payload])

    async with world(app, store=store_url) as w:
        run = await w.start("order")
        await w.engine.stop()
        async with rival(w) as other:
            assert (await client_of(other.runtime).signal(run.id, "paid", "x")).outcome == "woke"
            await other.settle()
        assert (await w.get(run.id)).result == [{"total": 7}, "x"]
        w.engine = Engine(w.runtime)


# ---------------------------------------------------------------- D2


def everything_app(calls: Counter[str]) -> bide.App:
    """A machine that leads to every kind of outcome once."""
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            calls["only"] += 1
            return bide.Done(ctx.state * 10)

    @app.machine("everything")
    class Everything:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Next:
            calls["begin"] += 1
            return bide.Next("park", {"trail": ["begin"]})

        async def park(self, ctx: Ctx) -> bide.Await:
            calls["park"] += 1
            ctx.state["trail"].append("park")
            return bide.Await("go", then="again")

        async def again(self, ctx: Ctx) -> bide.Next | bide.Retry:
            calls[f"again-{ctx.attempt}"] += 1
            if ctx.attempt == 0:
                ctx.state["trail"].append("retried")
                return bide.Retry()
            ctx.state["trail"].append(ctx.awaited[0].payload)
            return bide.Next("fan_out")

        async def fan_out(self, ctx: Ctx) -> bide.Spawn:
            calls["fan_out"] += 1
            return bide.Spawn([("leaf", 1), ("leaf", 2)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            calls["end"] += 1
            return bide.Done([*ctx.state["trail"], *(child.result for child in ctx.children)])

    return app


STEPS = ("begin", "park", "again", "fan_out", "only", "end")


@pytest.mark.parametrize("point", POINTS)
async def test_D2_a_crash_before_the_commit_repeats_the_step_and_after_it_never_does(
    store_url: str, point: Literal["before", "after_code", "after_commit"]
) -> None:
    calls: Counter[str] = Counter()
    async with world(everything_app(calls), store=store_url) as w:
        for step in STEPS:
            calls.clear()
            w.crash_at(step, point)
            run = await w.start("everything")
            await w.signal(run.id, "go", "went")
            await w.settle()
            info = await w.get(run.id)
            assert info.result == ["begin", "park", "retried", "went", 10, 20], step
            crashed_in = "again-0" if step == "again" else step
            once = {name: 2 if name == "only" else 1 for name in calls}
            expected = Counter(once) + Counter({crashed_in: 1} if point == "after_code" else {})
            assert calls == expected, step
            children = [run for run in await w.runs(definition="leaf") if run.parent_id == info.id]
            assert len(children) == 2, step
            assert not w.crashes._planned.total(), "the crash did not happen"


async def test_D2_an_outcome_is_committed_before_the_next_steps_code_starts(store_url: str) -> None:
    app = bide.App()
    seen: dict[str, tuple[str, Any]] = {}

    @app.machine("chain")
    class Chain:
        @bide.start
        async def one(self, ctx: Ctx) -> bide.Next:
            return bide.Next("two", {"from": "one"})

        async def two(self, ctx: Ctx) -> bide.Next:
            info = await w.get(ctx.run_id)
            seen["two"] = info.step, info.state
            return bide.Next("three", {"from": "two"})

        async def three(self, ctx: Ctx) -> bide.Done:
            info = await w.get(ctx.run_id)
            seen["three"] = info.step, info.state
            return bide.Done()

    async with world(app, store=store_url) as w:
        await w.start("chain")
        assert seen == {"two": ("two", {"from": "one"}), "three": ("three", {"from": "two"})}


async def test_D2_what_was_acknowledged_is_there_after_a_crash(store_url: str) -> None:
    app = bide.App()
    gate = Gate()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await gate()
            return bide.Await("paid", then="ship")

        async def ship(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    async with world(app, store=store_url) as w:
        run = await w.start("order", settle=False)
        receipt = await w.signal(run.id, "paid", 1, settle=False)
        await gate.reached()
        await w.crash()
        assert [signal.id for signal in await w.inbox(run.id)] == [receipt.message_id]
        gate.open()
        assert await w.result(run.id) == 1


# ---------------------------------------------------------------- D3


def racing_app(gate: Gate) -> bide.App:
    """A machine whose woken step stands at the gate and then leads to the outcome that the signal names."""
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("racer")
    class Racer:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="race")

        async def race(self, ctx: Ctx) -> Any:
            await gate()
            outcome = ctx.awaited[0].payload
            return {
                "next": bide.Next("end", {"by": "loser"}),
                "await": bide.Await("more", then="end", state={"by": "loser"}, timeout="1h"),
                "spawn": bide.Spawn([("leaf", 1), bide.Child("leaf", 2, correlation_key="child")], then="end"),
                "retry": bide.Retry({"by": "loser"}, delay="1m"),
                "done": bide.Done("loser"),
                "stop": bide.Stop("loser"),
            }[outcome]

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.state)

    return app


OUTCOMES = ("next", "await", "spawn", "retry", "done", "stop")


async def test_D3_a_worker_that_lost_its_claim_changes_nothing(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w, rival(w) as other:
        for outcome in OUTCOMES:
            run = await w.start("racer")
            await w.signal(run.id, "go", outcome, settle=False)
            await gate.reached(1)
            w.clock.set(w.now + w.runtime.settings.lease + timedelta(seconds=1))
            await other.claim()
            await gate.reached(2)
            before, stale = await rows(w), w.engine.stale
            gate.let_one_go()  # the first: its claim is lost
            await until(lambda: _is(not w.engine.active))
            assert await rows(w) == before, outcome
            assert w.engine.stale == stale + 1
            gate.let_one_go()  # the second holds the run
            await other.settle()
            info = await w.get(run.id)
            assert info.status == ("waiting" if outcome == "await" else "ready" if outcome == "retry" else info.status)
            assert "step_committed" in await names(w, run.id)
            if not info.ended_at:
                await w.cancel(run.id)


async def _is(value: bool) -> bool:
    return value


async def test_D3_a_turn_of_a_cancelled_run_changes_nothing(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w:
        for outcome in OUTCOMES:
            run = await w.start("racer")
            await w.signal(run.id, "go", outcome, settle=False)
            await gate.reached()
            await w.cancel(run.id, settle=False)
            before, stale = await rows(w), w.engine.stale
            gate.let_one_go()
            await w.settle()
            assert await rows(w) == before, outcome
            assert w.engine.stale == stale + 1
            assert (await w.get(run.id)).status == "cancelled"


async def test_D3_a_lease_that_ended_and_that_nobody_took_over_may_still_commit(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w:
        run = await w.start("racer")
        await w.signal(run.id, "go", "done", settle=False)
        await gate.reached()
        w.clock.set(w.now + timedelta(days=1))
        gate.let_one_go()
        await until(lambda: _is(not w.engine.active))
        assert w.engine.stale == 0
        assert (await w.get(run.id)).result == "loser"


async def test_D3_a_process_that_claims_its_own_lost_run_again_fences_its_older_turn(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w:
        run = await w.start("racer")
        await w.signal(run.id, "go", "next", settle=False)
        await gate.reached(1)
        w.clock.set(w.now + timedelta(minutes=5))
        await w.engine.claim()
        await gate.reached(2)
        before = await rows(w)
        gate.let_one_go()
        await until(lambda: _is(w.engine.stale == 1))
        assert await rows(w) == before
        gate.open()
        assert await w.result(run.id) == {"by": "loser"}
        assert w.engine.stale == 1


async def test_D3_a_worker_that_restarts_under_the_same_name_gets_no_permission_from_it(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w, rival(w) as other:
        other.worker = w.engine.worker
        run = await w.start("racer")
        await w.signal(run.id, "go", "done", settle=False)
        await gate.reached(1)
        await other.settle()
        assert not other.active, "the lease holds; its name is no reason to take it"
        w.clock.set(w.now + timedelta(minutes=5))
        await other.claim()
        await gate.reached(2)
        before = await rows(w)
        gate.let_one_go()
        await until(lambda: _is(w.engine.stale == 1))
        assert await rows(w) == before
        gate.open()
        await other.settle()
        assert (await w.get(run.id)).status == "completed"


# ---------------------------------------------------------------- D4


@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_D4_a_wake_up_is_seen_whenever_it_commits(store_url: str, moment: str) -> None:
    app = bide.App()
    gate = Gate()

    @app.machine("child")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("parker")
    class Parker:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await gate()
            return bide.Await("go", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([signal.payload for signal in ctx.awaited])

    async with world(app, store=store_url) as w:
        run = await w.start("parker", settle=False, delay="1m" if moment == "before" else None)
        if moment == "before":
            assert (await w.signal(run.id, "go", 1, settle=False)).outcome == "queued"
            gate.open()
            await w.advance("1m")
        elif moment == "during":
            await gate.reached()
            assert (await w.signal(run.id, "go", 1, settle=False)).outcome == "queued"
            gate.open()
        else:
            gate.open()
            await w.settle()
            assert (await w.signal(run.id, "go", 1, settle=False)).outcome == "woke"
        assert await w.result(run.id) == [1]


async def test_D4_park_and_delivery_that_race_for_real_always_meet(store_url: str) -> None:
    app = bide.App()
    gate = Gate()

    @app.machine("parker")
    class Parker:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await gate()
            return bide.Await("go", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w, rival(w) as other:
        sender = client_of(other.runtime)
        runs = [await w.start("parker", settle=False) for _ in range(25)]
        await gate.reached(25)
        sent = [asyncio.create_task(sender.signal(run.id, "go")) for run in runs]
        gate.open()
        outcomes = {receipt.outcome for receipt in await asyncio.gather(*sent)}
        assert outcomes <= {"woke", "queued"}
        await w.settle()
        await other.settle()
        await w.settle()
        assert {run.status for run in await w.runs(definition="parker")} == {"completed"}


async def test_D4_a_deadline_that_passed_before_the_park_is_seen(store_url: str) -> None:
    app = bide.App()

    @app.machine("late")
    class Late:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="end", timeout=datetime(2029, 1, 1, tzinfo=UTC))

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as w:
        run = await w.start("late")
        assert await w.result(run.id) is True


async def test_D4_children_that_end_while_their_parent_parks_are_counted(store_url: str) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", no) for no in range(12)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    async with world(app, store=store_url) as w, rival(w) as other:
        runs = [await w.start("parent", settle=False) for _ in range(4)]
        await asyncio.gather(w.settle(), other.settle())
        await w.settle()
        for run in runs:
            assert await w.result(run.id) == list(range(12))


async def test_D4_a_cancel_while_the_step_parks_is_seen(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w:
        run = await w.start("racer")
        await w.signal(run.id, "go", "await", settle=False)
        await gate.reached()
        await w.cancel(run.id, settle=False)
        gate.open()
        await w.settle()
        assert (await w.get(run.id)).status == "cancelled"
        assert await w.waits(run_id=run.id) == []


# ---------------------------------------------------------------- D5


async def test_D5_answer_timeout_and_cancel_that_race_end_each_wait_once(store_url: str) -> None:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done("late" if ctx.timed_out else ctx.awaited[0].payload)

    async with world(app, store=store_url) as w, rival(w) as other:
        sender, canceller = client_of(other.runtime), w.client()
        runs = [await w.start("order") for _ in range(30)]
        w.clock.set(w.now + timedelta(hours=1))
        signals = [asyncio.create_task(sender.signal(run.id, "paid", 1, check=False)) for run in runs[:20]]
        cancels = [asyncio.create_task(canceller.cancel(run.id)) for run in runs[10:]]
        fired = asyncio.create_task(other.fire_timers())
        receipts = await asyncio.gather(*signals)
        refusals = await asyncio.gather(*cancels, return_exceptions=True)
        await fired
        await w.settle()
        await other.settle()
        await w.settle()
        assert all(error is None or isinstance(error, bide.RunIsFinal) for error in refusals)
        assert {receipt.outcome for receipt in receipts} <= {"woke", "queued", "no_target"}
        for run in runs:
            wait = (await w.waits(run_id=run.id, status=None))[0]
            info = await w.get(run.id)
            assert wait.status in ("completed", "timed_out", "cancelled")
            entries = [e for e in await names(w, run.id) if e in ("await_unit_completed", "await_unit_terminal")]
            assert len(entries) == 1
            if wait.status == "cancelled":
                assert info.status == "cancelled"
            elif info.status == "completed":
                assert info.result == ("late" if wait.status == "timed_out" else 1)


async def test_D5_the_losers_of_a_race_get_a_clear_refusal(store_url: str) -> None:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as w:
        run = await w.start("order")
        await w.advance("1h")
        assert await w.result(run.id) is True
        receipt = await w.signal(run.id, "paid", check=False)
        assert (receipt.outcome, receipt.reason) == ("no_target", "completed")
        with pytest.raises(bide.NoTarget, match="completed"):
            await w.signal(run.id, "paid")
        with pytest.raises(bide.RunIsFinal, match="completed"):
            await w.cancel(run.id)


# ---------------------------------------------------------------- D6


async def test_D6_a_run_whose_worker_died_is_found_when_its_lease_ends(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w:
        async with rival(w) as doomed:
            run = await client_of(doomed.runtime).start("racer")
            await doomed.settle()
            await client_of(doomed.runtime).signal(run.id, "go", "done")
            await gate.reached()
            doomed.worker = "gone"  # so that leaving the block below ends nobody's lease: it dies, nothing more
        await w.settle()
        assert (await w.get(run.id)).status == "running"
        gate.open()
        await w.advance(w.runtime.settings.lease)
        assert (await w.get(run.id)).status == "completed"


async def test_D6_a_timer_that_came_due_while_no_engine_lived_is_found(store_url: str) -> None:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as w:
        runs = [await w.start("order") for _ in range(3)]
        await w.crash()
        w.clock.set(w.now + timedelta(days=1))
        await w.settle()
        assert [(await w.get(run.id)).result for run in runs] == [True, True, True]


async def test_D6_children_of_a_cancelled_parent_are_found_after_a_crash(store_url: str) -> None:
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
            return bide.Spawn([("leaf", no) for no in range(250)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.cancel(run.id, settle=False)
        await w.crash()
        assert len(await w.runs(definition="leaf", status="waiting", limit=1000)) == 250
        await w.settle()
        assert len(await w.runs(definition="leaf", status="cancelled", limit=1000)) == 250


async def test_D6_a_duty_that_breaks_does_not_keep_the_others_from_theirs(
    postgres_url: str,
) -> None:
    """Whatever is wrong with one table, claims before it and retention after it go on."""
    app = bide.App("shop", store=postgres_url)
    app.configure(retention="1ms", sweep_interval="1ms")

    @app.machine("echo")
    class Echo:
        def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    await migrate(postgres_url)
    runtime = await app.runtime()
    client, engine = client_of(runtime), Engine(runtime)
    connection = await connect(postgres_url)
    await connection.execute("ALTER TABLE intake RENAME TO elsewhere")
    await client.start("echo")

    async def is_gone() -> bool:
        with pytest.raises(StoreUnavailable, match="intake"):
            await engine.tick()
        return not await client.runs()

    await until(is_gone)
    await connection.execute("ALTER TABLE elsewhere RENAME TO intake")
    await connection.close()
    await engine.stop()
    await app.close()


async def test_retention_takes_fewer_runs_at_once_where_the_store_gives_up_on_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of very many items may take longer than a statement may; they must not stay for ever."""
    app = bide.App("shop", store="memory://")
    app.configure(retention="1ms", sweep_interval="1ms")

    @app.machine("echo")
    class Echo:
        def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    runtime = await app.runtime()
    client, engine = client_of(runtime), Engine(runtime)
    delete_ended, asked = runtime.store.delete_ended, list[int]()

    async def slowly(ended_before: timedelta, limit: int) -> int:
        asked.append(limit)
        if limit > 7:
            raise StoreUnavailable("canceling statement due to statement timeout")
        return await delete_ended(ended_before, limit)

    monkeypatch.setattr(runtime.store, "delete_ended", slowly)
    for _ in range(20):
        await client.start("echo")

    async def is_gone() -> bool:
        try:
            await engine.tick()
        except StoreUnavailable:
            return False
        return not await client.runs()

    await until(is_gone)
    assert asked[:6] == [200, 100, 50, 25, 12, 6]
    assert await runtime.store.audit() == []
    await engine.stop()
    await app.close()


# ---------------------------------------------------------------- D7


def order_app() -> bide.App:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="pause")

        async def pause(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="spread", timeout="20ms")

        async def spread(self, ctx: Ctx) -> bide.Spawn | bide.Retry:
            return bide.Spawn([("leaf", 1), ("leaf", 2)], then="end") if ctx.attempt else bide.Retry(delay="10ms")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    return app


async def test_D7_polling_alone_is_enough(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine hears nothing: the client commits elsewhere, and every hint on the way is dropped."""
    app = order_app()
    async with real_store(app, store_url, hints=False, poll_interval="10ms") as runtime:
        monkeypatch.setattr(runtime.store, "subscribe", lambda wake: lambda: None)
        monkeypatch.setattr(Engine, "_heard", lambda self, done: None)
        deaf = Runtime(runtime.store, app.registry, runtime.settings, Ports())
        client = client_of(runtime)
        async with Engine(deaf):
            runs = [await client.start("order") for _ in range(5)]
            for run in runs:
                await client.signal(run.id, "paid")
            for run in runs:
                assert await client.result(run.id, timeout="2m") == [1, 2]
        assert await runtime.store.audit() == []


async def test_D7_hints_that_come_for_nothing_do_no_harm(store_url: str) -> None:
    app = order_app()
    async with real_store(app, store_url, poll_interval="20ms") as runtime, Engine(runtime) as engine:
        client = client_of(runtime)
        run = await client.start("order")
        hint = engine._hint()
        for _ in range(100):
            hint()
        await client.signal(run.id, "paid")
        for _ in range(100):
            hint()
        assert await client.result(run.id, timeout="2m") == [1, 2]


# ---------------------------------------------------------------- D8


@pytest.mark.parametrize("skew", [timedelta(hours=1), timedelta(hours=-1)])
async def test_D8_a_workers_clock_decides_nothing(store_url: str, skew: timedelta) -> None:
    app = bide.App()
    gate = Gate()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="work", timeout="10m")

        async def work(self, ctx: Ctx) -> bide.Done:
            await gate()
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as w, rival(w, clock=lambda: w.clock() + skew) as skewed:
        begun = w.now
        client = client_of(skewed.runtime)
        run = await client.start("order")
        delayed = await client.start("order", delay="5m")
        await skewed.settle()
        wait = (await w.waits(run_id=run.id))[0]
        assert (wait.opened_at, wait.deadline) == (begun, begun + timedelta(minutes=10))
        assert (await w.get(delayed.id)).status == "ready"

        w.clock.set(begun + timedelta(minutes=10) - timedelta(microseconds=1))
        await skewed.fire_timers()
        assert (await w.waits(run_id=run.id))[0].status == "waiting"
        w.clock.set(begun + timedelta(minutes=10))
        await skewed.fire_timers()
        await gate.reached()
        assert (await w.waits(run_id=run.id, status="timed_out"))[0].closed_at == w.now

        w.clock.set(w.now + w.runtime.settings.lease - timedelta(microseconds=1))
        await w.engine.claim()
        assert run.id not in w.engine.active, "the lease holds by the store's clock"
        gate.open()
        await skewed.settle()
        assert (await w.get(run.id)).result is True
        for entry in await w.ledger(run.id):
            assert begun <= entry.at <= w.now


# ---------------------------------------------------------------- leases and user code that blocks (F09)


async def test_a_heartbeat_keeps_the_lease_while_user_code_blocks_the_event_loop(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bide.App()
    renewed: list[str] = []
    enough = threading.Event()

    @app.machine("blocker")
    class Blocker:
        async def only(self, ctx: Ctx) -> bide.Done:
            assert enough.wait(DEADLINE), "no heartbeat came while the loop was blocked"  # blocks the whole event loop
            return bide.Done("kept")

    # One slot: a commit that takes longer than the lease once must not find that its own engine has claimed the run.
    async with real_store(app, store_url, lease="150ms", poll_interval="10ms", concurrency=1) as runtime:
        renew = runtime.store.renew

        def watched(worker: str, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
            lost = renew(worker, claims, lease)
            renewed.extend(set(claims) - lost)
            if len(renewed) >= 8:  # well over two leases: each beat comes a third of one after the last
                enough.set()
            return lost

        monkeypatch.setattr(runtime.store, "renew", watched)
        client = client_of(runtime)
        async with Engine(runtime) as engine:
            run = await client.start("blocker")
            assert await client.result(run.id, timeout="2m") == "kept"
            assert engine.stale == 0
        assert set(renewed) == {run.id}
        claims = [entry for entry in await client.ledger(run.id) if "epoch" in entry.data]
        assert len(claims) == 1


async def test_a_turn_whose_claim_is_lost_is_told_by_the_heartbeat(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w, rival(w) as other:
        run = await w.start("racer")
        await w.signal(run.id, "go", "done", settle=False)
        await gate.reached(1)
        w.clock.set(w.now + timedelta(minutes=5))
        await other.claim()
        await gate.reached(2)
        Heartbeat(w.engine, asyncio.get_running_loop()).tick()
        await until(lambda: _is(gate.standing == 1))
        assert w.engine.stale == 1
        assert run.id in other.active
        gate.open()
        await other.settle()
        assert (await w.get(run.id)).status == "completed"


async def test_a_heartbeat_renews_what_it_holds_and_nothing_else(store_url: str) -> None:
    gate = Gate()
    async with world(racing_app(gate), store=store_url) as w, rival(w) as other:
        run = await w.start("racer")
        await w.signal(run.id, "go", "done", settle=False)
        await gate.reached(1)
        lease = w.runtime.settings.lease
        for _ in range(5):
            w.clock.set(w.now + lease - timedelta(seconds=1))
            await asyncio.to_thread(Heartbeat(w.engine, asyncio.get_running_loop()).tick)
            await other.claim()
            assert not other.active
        gate.open()
        assert await w.result(run.id) == "loser"
        assert w.engine.stale == 0


# ---------------------------------------------------------------- D10


def poison_app() -> bide.App:
    app = bide.App()

    @app.machine("poison")
    class Poison:
        async def drink(self, ctx: Ctx) -> bide.Done:
            return bide.Done("survived")

    @app.machine("healthy")
    class Healthy:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    return app


async def test_D10_a_run_that_kills_its_worker_each_time_is_held(store_url: str) -> None:
    async with world(poison_app(), store=store_url, max_claims=3) as w:
        for _ in range(3):
            w.crash_at("drink", "before")
        run = await w.start("poison")
        assert (run.status, run.info.held) == ("ready", "poison")
        assert not w.crashes._planned.total()
        assert [held.id for held in await w.runs(held=True)] == [run.id]
        assert (await w.ledger(run.id))[-1].name == "run_held"

        await w.settle()
        await w.advance("1d")
        assert (await w.get(run.id)).held == "poison", "nothing but a person lets it go"
        neighbour = await w.start("healthy")
        assert neighbour.status == "completed"


async def test_D10_a_held_run_is_released_by_retry(store_url: str) -> None:
    async with world(poison_app(), store=store_url, max_claims=2) as w:
        for _ in range(2):
            w.crash_at("drink", "after_code")
        run = await w.start("poison")
        assert run.info.held == "poison"
        released = await w.retry(run.id)
        assert released.id == run.id
        assert await w.result(run.id) == "survived"
        assert await w.runs(held=True) == []
        with pytest.raises(bide.NotHeld):
            await w.retry(run.id)


async def test_D10_a_held_run_can_be_signalled_and_cancelled(store_url: str) -> None:
    async with world(poison_app(), store=store_url, max_claims=1) as w:
        w.crash_at("drink", "before")
        run = await w.start("poison")
        assert run.info.held == "poison"
        assert (await w.signal(run.id, "hello")).outcome == "queued"
        assert (await w.get(run.id)).held == "poison"
        await w.cancel(run.id)
        info = await w.get(run.id)
        assert (info.status, info.held) == ("cancelled", None)


async def test_D10_the_neighbours_of_a_poison_run_go_on(store_url: str) -> None:
    """Also those whose own step takes so long that the poison kills the worker under it every time."""
    app = poison_app()

    @app.machine("slow")
    class Slow:
        async def only(self, ctx: Ctx) -> bide.Done:
            for _ in range(1000):
                await asyncio.sleep(0)
            return bide.Done("slow and fine")

    async with world(app, store=store_url) as w:
        for _ in range(w.runtime.settings.max_claims):
            w.crash_at("drink", "before")
        slow = [await w.start("slow", delay="1s", settle=False) for _ in range(3)]
        poison = await w.start("poison", delay="1s", settle=False)
        slow += [await w.start("slow", delay="1s", settle=False) for _ in range(3)]
        healthy = [await w.start("healthy", delay="1s", settle=False) for _ in range(10)]
        await w.advance("1m")
        assert not w.crashes._planned.total()
        assert [run.id for run in await w.runs(held=True)] == [poison.id]
        assert {(await w.get(run.id)).status for run in (*slow, *healthy)} == {"completed"}


async def test_D10_a_claim_that_is_given_back_counts_for_nothing(store_url: str) -> None:
    """A worker that lacks the code of a run returns it for others, with a longer pause each time that it meets it."""
    app = bide.App()

    @app.machine("order", version="1")
    class Old:
        async def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done("old")

    newer = bide.App()

    @newer.machine("order", version="2")
    class New:
        async def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done("new")

    async with world(newer, store=store_url, max_claims=2) as w:
        registry, w.runtime.registry = w.runtime.registry, app.registry
        run = await w.start("order", delay="1s")
        w.runtime.registry = registry
        await w.advance("1d")
        info = await w.get(run.id)
        assert (info.status, info.held) == ("ready", None)
        assert (await names(w, run.id)).count("run_given_back") < 24 * 6 + 10
        w.runtime.registry = app.registry
        await w.advance("10m")
        assert await w.result(run.id) == "old"


# ---------------------------------------------------------------- workers of another deploy (F20)


async def test_a_worker_that_lacks_the_version_of_a_run_leaves_it_to_others(store_url: str) -> None:
    """It gives the run back, for longer each time; that is no try, and the run never fails of it."""
    app = bide.App()

    @app.machine("order", version="2")
    class Order:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done("by one who knows")

    async with world(app, store=store_url) as w:
        ports = Ports(now=w.clock, monotonic=lambda: w.clock().timestamp(), random=lambda: 0.5)
        run = await client_of(Runtime(w.runtime.store, app.registry, w.runtime.settings, ports)).start("order")
        stranger = Engine(Runtime(w.runtime.store, bide.App().registry, w.runtime.settings, ports))
        pauses = []
        for _ in range(4):
            await stranger.settle()
            due = await w.runtime.store.until_due(w.engine.queues)
            assert due is not None
            pauses.append(due.total_seconds())
            w.clock.advance(due)
        assert pauses == [5, 10, 20, 40]
        found = await w.get(run.id)
        assert (found.status, found.held) == ("ready", None)
        await stranger.crash()
        await w.settle()
        assert await w.result(run.id) == "by one who knows"
