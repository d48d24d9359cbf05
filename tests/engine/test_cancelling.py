"""Cancelling (W8): what it closes, what it fences, and the clean-up that a machine may ask for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import bide
from bide.core import cancelling
from bide.core.batch import Draft
from bide.core.commands import AnyCommand, Cancel, CancelChildren, Committed, CommitTurn, Continue, Hold
from bide.core.records import Run
from bide.engine.engine import REFUSED_DELAY
from bide.testing import World, world
from tests.support.staging import DEADLINE, Gate, client_of, names, rival, rows, until

Ctx = bide.Context[Any]


def plain_app(gate: Gate | None = None) -> bide.App:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            if gate is not None:
                await gate()
            return bide.Await("paid", then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    return app


# ---------------------------------------------------------------- without clean-up


async def test_W8_a_ready_run_is_cancelled_and_never_claimed(store_url: str) -> None:
    async with world(plain_app(), store=store_url) as w:
        run = await w.start("order", delay="1h")
        await w.cancel(run.id, reason="changed their mind")
        info = await w.get(run.id)
        assert (info.status, info.ended_at) == ("cancelled", w.now)
        assert await w.runtime.store.until_due(w.engine.queues) is None
        await w.advance("2h")
        entry = (await w.ledger(run.id))[-1]
        assert (entry.name, entry.data["reason"], entry.data["from"]) == (
            "run_cancelled",
            "changed their mind",
            "ready",
        )
        with pytest.raises(bide.RunCancelledError):
            await w.result(run.id)


async def test_W8_a_waiting_run_is_cancelled_with_everything_that_was_open(store_url: str) -> None:
    async with world(plain_app(), store=store_url) as w:
        run = await w.start("order", correlation_key="order:1")
        unread = await w.signal("order:1", "other")
        await w.cancel(run.id)
        assert (await w.get(run.id)).status == "cancelled"
        wait = (await w.waits(run_id=run.id, status=None))[0]
        assert (wait.status, wait.closed_at) == ("cancelled", w.now)
        assert await w.inbox(run.id) == []
        assert (await w.ledger(run.id))[-1].data["discarded"] == [unread.message_id]
        assert await w.runtime.store.until_due(w.engine.queues) is None, "its timer is gone"
        again = await w.start("order", correlation_key="order:1")
        assert again.status == "waiting", "its correlation key is free"
        with pytest.raises(bide.NoTarget, match="cancelled"):
            await w.signal(run.id, "paid")


async def test_W8_a_running_turn_of_a_cancelled_run_cannot_commit(store_url: str) -> None:
    gate = Gate()
    async with world(plain_app(gate), store=store_url) as w:
        run = await w.start("order", settle=False)
        await gate.reached()
        await w.cancel(run.id, settle=False)
        assert (await w.get(run.id)).status == "cancelled"
        before = await rows(w)
        gate.open()
        await w.settle()
        assert await rows(w) == before
        assert w.engine.stale == 1


async def test_W8_a_cancel_moves_the_epoch_on(store_url: str) -> None:
    gate = Gate()
    async with world(plain_app(gate), store=store_url) as w:
        run = await w.start("order", settle=False)
        await gate.reached()
        row = await w.runtime.store.run("default", run.id)
        await w.cancel(run.id, settle=False)
        after = await w.runtime.store.run("default", run.id)
        assert row is not None
        assert after is not None
        assert after.epoch > row.epoch
        gate.open()


async def test_W8_cancelling_twice_is_cancelling_once(store_url: str) -> None:
    async with world(plain_app(), store=store_url) as w:
        run = await w.start("order")
        await w.cancel(run.id, reason="first")
        before = await rows(w)
        await w.cancel(run.id, reason="second")
        await w.cancel(run.id, force=True)
        assert await rows(w) == before


async def test_W8_a_run_that_ended_otherwise_cannot_be_cancelled(store_url: str) -> None:
    async with world(plain_app(), store=store_url) as w:
        run = await w.start("order")
        await w.signal(run.id, "paid")
        before = await rows(w)
        with pytest.raises(bide.RunIsFinal, match="completed"):
            await w.cancel(run.id)
        assert await rows(w) == before
        with pytest.raises(bide.RunNotFound):
            await w.cancel("run_nobody")
        with pytest.raises(bide.RunNotFound):
            await w.client("elsewhere").cancel(run.id)


async def test_W8_a_handle_cancels_too(store_url: str) -> None:
    async with world(plain_app(), store=store_url) as w:
        run = await w.start("order")
        await run.cancel("by its handle")
        assert run.status == "cancelled"


# ---------------------------------------------------------------- clean-up


def cleaning_app(calls: Counter[str], *, retries: int = 3, gate: Gate | None = None) -> bide.App:
    """A machine whose input says what its clean-up does."""
    app = bide.App()

    @app.machine("order", cancel_grace="1h", retries=retries)
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", state={"seat": 7, "how": ctx.input})

        async def end(self, ctx: Ctx) -> bide.Done:
            calls["end"] += 1
            if gate is not None:
                await gate()
            return bide.Done("ended")

        async def refund(self, ctx: Ctx) -> bide.Done:
            calls["refund"] += 1
            return bide.Done({"refunded": ctx.state["seat"]})

        async def confirmed(self, ctx: Ctx) -> bide.Done:
            calls["confirmed" if ctx.awaited else "unconfirmed"] += 1
            return bide.Done()

        async def on_cancel(self, ctx: Ctx) -> Any:
            calls["on_cancel"] += 1
            assert ctx.state["seat"] == 7
            match ctx.state["how"]:
                case "next":
                    return bide.Next("refund")
                case "await":
                    return bide.Await("refund_done", then="confirmed", timeout="10m")
                case "forever":
                    return bide.Await("never", then="confirmed")
                case "retry":
                    return bide.Retry(delay="1m") if ctx.attempt == 0 else None
                case "raise":
                    raise RuntimeError("the bank is closed")
                case "spawn":
                    return bide.Spawn([("leaf", 1)], then="confirmed")
                case "wait":
                    assert gate is not None
                    await gate()
            return None

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            calls["leaf"] += 1
            return bide.Done()

    return app


async def test_W8_a_clean_up_that_returns_nothing_ends_the_run_as_cancelled(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "none")
        await w.cancel(run.id, reason="no longer wanted")
        info = await w.get(run.id)
        assert (info.status, calls) == ("cancelled", {"on_cancel": 1})
        wait = (await w.waits(run_id=run.id, status=None))[0]
        assert wait.status == "cancelled"
        entries = await w.ledger(run.id)
        asked = next(entry for entry in entries if entry.name == "run_cancel_requested")
        assert (asked.data["reason"], asked.data["from"]) == ("no longer wanted", "waiting")
        assert entries[-1].name == "run_cancelled"
        assert await w.runtime.store.until_due(w.engine.queues) is None, "the timer of its grace is gone"


async def test_W8_a_clean_up_may_take_further_steps(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "next")
        await w.cancel(run.id)
        info = await w.get(run.id)
        assert (info.status, calls) == ("cancelled", {"on_cancel": 1, "refund": 1})


async def test_W8_a_clean_up_may_wait(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        answered, silent = [await w.start("order", "await") for _ in range(2)]
        for run in (answered, silent):
            await w.cancel(run.id)
            assert (await w.get(run.id)).status == "waiting"
        assert (await w.signal(answered.id, "refund_done")).outcome == "woke"
        assert (await w.get(answered.id)).status == "cancelled"
        await w.advance("10m")
        assert (await w.get(silent.id)).status == "cancelled"
        assert calls == {"on_cancel": 2, "confirmed": 1, "unconfirmed": 1}


async def test_W8_a_clean_up_may_be_retried_and_may_spawn(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        retried, spawning = await w.start("order", "retry"), await w.start("order", "spawn")
        await w.cancel(retried.id)
        assert (await w.get(retried.id)).status == "ready"
        await w.advance("1m")
        assert (await w.get(retried.id)).status == "cancelled"
        await w.cancel(spawning.id)
        assert (await w.get(spawning.id)).status == "cancelled"
        assert calls == {"on_cancel": 3, "leaf": 1, "unconfirmed": 1}


async def test_W8_a_clean_up_that_raises_is_retried_and_then_the_run_is_cancelled_anyway(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls, retries=2), store=store_url) as w:
        run = await w.start("order", "raise")
        await w.cancel(run.id)
        await w.advance("10m")
        info = await w.get(run.id)
        assert (info.status, calls["on_cancel"]) == ("cancelled", 3)
        assert info.error is not None
        assert "the bank is closed" in info.error.message


async def test_W8_a_clean_up_that_takes_too_long_is_ended(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "forever")
        await w.cancel(run.id)
        await w.advance(timedelta(hours=1) - timedelta(microseconds=1))
        assert (await w.get(run.id)).status == "waiting"
        await w.advance(timedelta(microseconds=1))
        info = await w.get(run.id)
        assert (info.status, info.ended_at) == ("cancelled", w.now)
        assert {wait.status for wait in await w.waits(run_id=run.id, status=None)} == {"cancelled"}


async def test_W8_a_clean_up_that_still_runs_when_its_grace_passes_can_commit_nothing(store_url: str) -> None:
    calls: Counter[str] = Counter()
    gate = Gate()
    async with world(cleaning_app(calls, gate=gate), store=store_url) as w:
        run = await w.start("order", "wait")
        await w.cancel(run.id, settle=False)
        await gate.reached()
        w.clock.set(w.now + timedelta(hours=1))
        await w.engine.fire_timers()
        assert (await w.get(run.id)).status == "cancelled"
        before = await rows(w)
        gate.open()
        await w.settle()
        assert await rows(w) == before
        assert w.engine.stale == 1


async def test_W8_a_forced_cancel_skips_the_clean_up(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "none")
        await w.cancel(run.id, force=True)
        assert (await w.get(run.id)).status == "cancelled"
        assert calls == {}


async def test_W8_a_forced_cancel_ends_a_clean_up_that_is_under_way(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "await")
        await w.cancel(run.id, reason="first")
        before = await rows(w)
        await w.cancel(run.id, reason="again")
        assert await rows(w) == before, "asking again changes nothing"
        await w.cancel(run.id, force=True)
        assert (await w.get(run.id)).status == "cancelled"
        assert calls == {"on_cancel": 1}
        assert await w.runtime.store.until_due(w.engine.queues) is None


async def test_W8_a_running_turn_is_fenced_off_before_its_clean_up_starts(store_url: str) -> None:
    calls: Counter[str] = Counter()
    gate = Gate()
    async with world(cleaning_app(calls, gate=gate), store=store_url) as w:
        run = await w.start("order", "next")
        await w.signal(run.id, "paid", settle=False)
        await gate.reached()
        await w.cancel(run.id, settle=False)
        gate.open()
        await w.settle()
        assert (await w.get(run.id)).status == "cancelled"
        assert calls == {"end": 1, "on_cancel": 1, "refund": 1}
        assert w.engine.stale == 1
        assert "run_completed" not in await names(w, run.id)


async def test_W8_the_epochs_of_a_cancelled_run_only_grow(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "await")
        await w.cancel(run.id)
        await w.signal(run.id, "refund_done")
        epochs = [entry.data["epoch"] for entry in await w.ledger(run.id) if "epoch" in entry.data]
        assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
async def test_W8_a_crash_does_not_lose_a_clean_up(store_url: str, point: Any) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        for step in ("on_cancel", "refund"):
            calls.clear()
            w.crash_at(step, point)
            run = await w.start("order", "next")
            await w.cancel(run.id)
            await w.settle()
            assert (await w.get(run.id)).status == "cancelled"
            assert calls == Counter(on_cancel=1, refund=1) + Counter({step: 1} if point == "after_code" else {})


async def test_W8_a_clean_up_of_a_run_that_never_started_sees_its_input(store_url: str) -> None:
    app = bide.App()
    seen: list[Any] = []

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

        async def on_cancel(self, ctx: Ctx) -> None:
            seen.append((ctx.state, ctx.awaited, ctx.timed_out))

    async with world(app, store=store_url) as w:
        run = await w.start("order", {"a": 1}, delay="1h")
        await w.cancel(run.id)
        assert (await w.get(run.id)).status == "cancelled"
        assert seen == [({"a": 1}, [], False)]


async def test_W8_signals_reach_a_run_during_its_clean_up_and_not_after(store_url: str) -> None:
    calls: Counter[str] = Counter()
    async with world(cleaning_app(calls), store=store_url) as w:
        run = await w.start("order", "await")
        kept = await w.signal(run.id, "note")
        await w.cancel(run.id)
        assert [signal.id for signal in await w.inbox(run.id)] == [kept.message_id]
        await w.signal(run.id, "refund_done")
        assert (await w.signal(run.id, "refund_done", check=False)).outcome == "no_target"


# ---------------------------------------------------------------- clean-up beside a commit of the turn


def two_steps(style: str, calls: Counter[str], gate: Gate | None = None) -> bide.App:
    """A child that takes two steps, and cleans up in one."""
    app = bide.App()

    async def note(what: str) -> None:
        calls[what] += 1
        if what == "clean" and gate is not None:
            await gate()

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([(style, None)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.status for child in ctx.children])

    @app.workflow("workflow", on_cancel="raise")
    async def workflow(step: bide.Step) -> None:
        try:
            await step.run("one", note, "one")
            await step.run("two", note, "two")
        except bide.Cancelled:
            await step.run("clean", note, "clean")
            raise

    @app.machine("machine")
    class Machine:
        @bide.start
        async def one(self, ctx: Ctx) -> bide.Next:
            await note("one")
            return bide.Next("two")

        async def two(self, ctx: Ctx) -> bide.Done:
            await note("two")
            return bide.Done()

        async def on_cancel(self, ctx: Ctx) -> None:
            await note("clean")

    return app


def beside_first_commit(w: World, style: str, staged: Callable[[Any, CommitTurn], Awaitable[Any]]) -> None:
    """Let *staged* submit the first commit of the child that keeps its claim, and whatever comes beside it."""
    submit, seen = w.runtime.committer.submit, list[CommitTurn]()

    async def staging(command: Any) -> Any:
        move = Hold if style == "workflow" else Continue
        if seen or not isinstance(command, CommitTurn) or not isinstance(command.move, move):
            return await submit(command)
        seen.append(command)
        return await staged(submit, command)

    w.runtime.committer.submit = staging  # type: ignore[method-assign, assignment]  # to be there right at the commit


@pytest.mark.parametrize("by", ["a client", "its parent"])
@pytest.mark.parametrize("style", ["workflow", "machine"])
async def test_W8_a_cancel_in_the_batch_of_a_commit_of_the_turn_begins_the_clean_up(
    style: str, by: str, store_url: str
) -> None:
    """W8, D6: the turn that the cancel hands over is another one than that which the commit goes on with."""
    calls: Counter[str] = Counter()

    async def in_one_batch(submit: Any, command: CommitTurn) -> Any:
        cancel: AnyCommand = Cancel(workspace=command.workspace, run_id=command.run_id)
        if by == "its parent":
            assert command.parent_id is not None
            cancel = CancelChildren(
                workspace="",
                chore_id="none",
                run_id=command.parent_id,
                children=(command.run_id,),
                reason="over",
                is_last=False,
            )
        answer, _ = await asyncio.gather(submit(command), submit(cancel))
        assert isinstance(answer.reply, Committed)
        return answer

    async with world(two_steps(style, calls), store=store_url) as w:
        beside_first_commit(w, style, in_one_batch)
        parent = await w.start("parent")
        assert await w.result(parent.id) == ["cancelled"]
        assert calls == {"one": 1, "clean": 1}
        assert w.engine.stale == 1
        assert not w.engine.active


@pytest.mark.parametrize("style", ["workflow", "machine"])
async def test_D3_a_turn_that_hears_of_its_commit_after_the_clean_up_began_is_over(style: str, store_url: str) -> None:
    """D3, W8: it neither takes another step nor puts itself in the place of the clean-up, whose lease is renewed."""
    calls: Counter[str] = Counter()
    gate = Gate()

    async def answered_late(submit: Any, command: CommitTurn) -> Any:
        answer = await submit(command)
        await submit(Cancel(workspace=command.workspace, run_id=command.run_id))
        await gate.reached()
        return answer

    async with world(two_steps(style, calls, gate), store=store_url) as w:
        beside_first_commit(w, style, answered_late)
        parent = await w.start("parent", settle=False)
        await until(lambda: _is(w.engine.stale == 1))
        [(run_id, turn)] = w.engine.active.items()
        row = await w.runtime.store.run("default", run_id)
        assert row is not None
        assert (turn.run.epoch, turn.run.cancel_reason) == (row.epoch, row.cancel_reason)
        gate.open()
        await w.settle()
        assert await w.result(parent.id) == ["cancelled"]
        assert calls == {"one": 1, "clean": 1}


async def _is(condition: bool) -> bool:
    return condition


# ---------------------------------------------------------------- children


def family_app() -> bide.App:
    app = bide.App()

    @app.machine("grandchild")
    class Grandchild:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

    @app.machine("child")
    class Child:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("grandchild", no) for no in range(2)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("child", no) for no in range(3)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.status for child in ctx.children])

    return app


async def test_W8_cancelling_a_parent_cancels_the_whole_family(store_url: str) -> None:
    async with world(family_app(), store=store_url) as w:
        run = await w.start("parent")
        other = await w.start("parent")
        await w.cancel(run.id, reason="over")
        runs = {info.id: info for info in await w.runs()}
        family = {run.id}
        for _ in range(2):
            family |= {info.id for info in runs.values() if info.parent_id in family}
        assert len(family) == 10
        assert {runs[run_id].status for run_id in family} == {"cancelled"}
        assert {info.status for info in runs.values() if info.id not in family} == {"waiting"}
        assert (await w.get(other.id)).status == "waiting"


async def test_W8_a_cancelled_child_counts_as_ended(store_url: str) -> None:
    async with world(family_app(), store=store_url) as w:
        run = await w.start("parent")
        children = [info for info in await w.runs(definition="child") if info.parent_id == run.id]
        for child in children:
            assert (await w.get(run.id)).status == "waiting"
            await w.cancel(child.id)
        assert await w.result(run.id) == ["cancelled"] * 3


async def test_W8_children_are_cancelled_in_as_many_commits_as_it_takes(store_url: str) -> None:
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
            return bide.Spawn([("leaf", no) for no in range(101)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.cancel(run.id)
        assert len(await w.runs(status="cancelled", limit=1000)) == 102
        assert await w.runtime.store.due_chores(10) == []


@pytest.mark.parametrize("stubborn", [0, 5, 9])
@pytest.mark.parametrize("at_once", [100, 4])
async def test_D6_a_child_whose_cancel_is_refused_keeps_no_other_from_its_end(
    at_once: int, stubborn: int, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6, W8: neither those on its page nor those on later ones, and it is tried again until it is cancelled, too."""
    monkeypatch.setattr("bide.engine.engine.CHILDREN_AT_ONCE", at_once)
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

        async def on_cancel(self, ctx: Ctx) -> bide.Await | None:  # half of them take their time
            return bide.Await("cleaned", then="end") if ctx.input % 2 else None

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", no) for no in range(10)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        children = sorted(info.id for info in await w.runs(definition="leaf"))
        cancel, refused = cancelling._cancel, [children[stubborn]]

        def refusing(draft: Draft, child: Run, reason: str, force: bool) -> Run:
            if child.id in refused:
                raise ValueError("not this one")
            return cancel(draft, child, reason, force)

        monkeypatch.setattr(cancelling, "_cancel", refusing)
        await w.cancel(run.id)
        asked = [child for child in children if "run_cancel_requested" in await names(w, child)]
        assert asked == [child for child in children if child not in refused]
        assert await w.runtime.store.until_due(w.engine.queues) == REFUSED_DELAY, "it is not tried again and again"

        await w.advance(REFUSED_DELAY)
        assert await w.runtime.store.until_due(w.engine.queues) == REFUSED_DELAY
        refused.clear()
        await w.advance(REFUSED_DELAY)
        assert "run_cancel_requested" in await names(w, children[stubborn])
        assert await w.runtime.store.until_due(w.engine.queues) is not None, "some clean up, and have a deadline"
        for child in children:
            await w.signal(child, "cleaned", check=False)
        assert len(await w.runs(status="cancelled")) == 11
        assert await w.runtime.store.until_due(w.engine.queues) is None


async def test_W8_children_with_a_clean_up_do_it(store_url: str) -> None:
    app = bide.App()
    cleaned: list[int] = []

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

        async def on_cancel(self, ctx: Ctx) -> None:
            cleaned.append(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", 1), ("leaf", 2)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.cancel(run.id, force=True)
        assert sorted(cleaned) == [1, 2]
        assert len(await w.runs(status="cancelled")) == 3


async def test_W8_the_children_of_a_machine_are_cancelled_when_its_clean_up_begins(store_url: str) -> None:
    """W8: and those that the clean-up spawns are not."""
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("finish", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", 1), ("leaf", 2)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

        async def on_cancel(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", 3)], then="end")

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.cancel(run.id)
        status = {info.input: info.status for info in await w.runs(definition="leaf")}
        assert status == {1: "cancelled", 2: "cancelled", 3: "waiting"}
        [last] = await w.runs(definition="leaf", status="waiting")
        await w.signal(last.id, "finish")
        assert (await w.get(run.id)).status == "cancelled"
        assert (await w.get(last.id)).status == "completed"


async def test_W8_a_join_that_times_out_cancels_its_own_children_and_no_others(store_url: str) -> None:
    """The step that the timeout leads to may spawn again at once: those children are not the rest of that join."""
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("finish", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            first = [("leaf", f"first-{no}") for no in range(3)]
            return bide.Spawn(first, then="again", timeout="1h", cancel_children=True)

        async def again(self, ctx: Ctx) -> bide.Spawn:
            assert ctx.timed_out
            return bide.Spawn([("leaf", f"second-{no}") for no in range(120)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(Counter(child.status for child in ctx.children))

    async with world(app, store=store_url) as w, rival(w) as other:
        run = await w.start("parent")
        w.clock.set(w.now + timedelta(hours=1))
        # One process fires the timer and takes the turn, before any process comes to the chore that the timer left.
        await other.fire_timers()
        while other._tasks:
            await asyncio.wait(set(other._tasks))
        await w.settle()
        status = {info.input: info.status for info in await w.runs(definition="leaf", limit=1000)}
        assert {status[f"first-{no}"] for no in range(3)} == {"cancelled"}
        assert {status[f"second-{no}"] for no in range(120)} == {"waiting"}
        client = client_of(other.runtime)
        for info in await w.runs(definition="leaf", status="waiting", limit=1000):
            await client.signal(info.id, "finish")
        await w.settle()
        await other.settle()
        assert await w.result(run.id) == {"completed": 120}
        assert await w.runtime.store.due_chores(10) == []


async def test_W8_children_whose_clean_up_takes_its_time_do_not_hold_up_the_others(store_url: str) -> None:
    """More of them than one page of the chore: each is asked once, and the chore is done."""
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

        async def on_cancel(self, ctx: Ctx) -> bide.Await:
            return bide.Await("never", then="begin")

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", no) for no in range(210)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.cancel(run.id, settle=False)
        async with asyncio.timeout(DEADLINE):
            await w.settle()
        assert await w.runtime.store.due_chores(10) == []
        leaves = await w.runs(definition="leaf", limit=1000)
        assert {(leaf.status, leaf.step) for leaf in leaves} == {("waiting", "begin")}
        asked = await w.ledger(leaves[0].id)
        assert [entry.name for entry in asked].count("run_cancel_requested") == 1
        await w.advance("1h")
        assert len(await w.runs(definition="leaf", status="cancelled", limit=1000)) == 210


async def test_W8_a_join_that_times_out_leaves_its_children_alone_unless_told(store_url: str) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("finish", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done("finished")

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", 1)], then="end", timeout="1h")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.status for child in ctx.children])

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.advance("1h")
        assert await w.result(run.id) == ["waiting"]
        leaf = (await w.runs(definition="leaf"))[0]
        await w.signal(leaf.id, "finish")
        assert await w.result(leaf.id) == "finished"
