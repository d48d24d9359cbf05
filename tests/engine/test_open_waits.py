"""What the outside may do to open waits, and what happens to them while their runs sleep (W9, W10, W13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

import bide
from bide.testing import World, world
from tests.support.worlds import Ctx, ledger_names


def waiting(**terms: Any) -> bide.App:
    """A wait of each kind that takes terms."""
    app = bide.App("waits")
    every: Any = {"timeout": "10d", **terms}

    def workflow(kind: str, open_it: Callable[[bide.Step], Awaitable[Any]]) -> None:
        @app.workflow(kind)
        async def gate(step: bide.Step) -> Any:
            try:
                return await open_it(step)
            except bide.WaitFailedError as error:
                return f"{type(error).__name__}: {error.reason}"
            except bide.WaitTimeoutError:
                return "expired"

    async def callback(step: bide.Step) -> Any:
        return await (await step.callback("gate", **every))

    async def event(step: bide.Step) -> Any:
        return (await step.wait_for_event("gate", event="go", **every)).data

    async def receive(step: bide.Step) -> Any:
        return (await step.receive("gate", "go", **every)).payload

    async def pack(step: bide.Step) -> Any:
        return [signal.payload for signal in await step.receive_all("gate", "go", at_least=2, **every)]

    workflow("task", lambda step: step.ask("gate", title="Well?", form=bool, **every))
    workflow("signal", lambda step: step.wait_for_signal("gate", signal=f"go-{step.run_id}", **every))
    workflow("callback", callback)
    workflow("event", event)
    workflow("receive", receive)
    workflow("pack", pack)
    workflow("request", lambda step: step.request("gate", 1, transport="interaction-api", **every))

    @app.machine("machine")
    class Machine:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="end", **every)

        def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done("expired" if ctx.timed_out else ctx.awaited[0].payload)

        def on_error(self, error: Exception, ctx: Ctx) -> Any:
            if isinstance(error, bide.WaitFailedError):
                return bide.Done(f"{type(error).__name__}: {error.reason}")
            return bide.Stop(str(error))

    return app


async def parked(w: World, definition: str) -> bide.WaitInfo:
    run = await w.start(definition)
    [wait] = await w.waits(run_id=run.id)
    return wait


async def named(w: World, run_id: str, name: str) -> list[bide.LedgerEntry]:
    return [entry for entry in await w.ledger(run_id) if entry.name == name]


KINDS = ["task", "signal", "callback", "event", "receive", "pack", "request", "machine"]
every_kind = pytest.mark.parametrize("kind", KINDS)


# ---------------------------------------------------------------- reminders, escalation


@every_kind
async def test_W9_reminders_and_escalation_happen_while_the_run_sleeps(store_url: str, kind: str) -> None:
    """W9."""
    app = waiting(reminders=["24h", "4h"], escalate={"60h": "group:leads"}, assignee="ann")
    async with world(app, store_url) as w:
        wait = await parked(w, kind)
        await w.advance("4h")
        [first] = await named(w, wait.run_id, "await_reminder")
        assert first.at == w.now
        await w.advance("20h")
        assert len(await named(w, wait.run_id, "await_reminder")) == 2
        assert await named(w, wait.run_id, "await_escalated") == []
        await w.advance("36h")
        [escalated] = await named(w, wait.run_id, "await_escalated")
        assert escalated.data["recipient"] == "group:leads"
        after = await w.wait(wait.id)
        assert (after.details["group"], "assignee" in after.details) == ("leads", False)
        assert (await w.get(wait.run_id)).status == "waiting"
        assert (await ledger_names(w, wait.run_id)).count("run_claimed") <= 1
        await w.advance("10d")
        assert await w.result(wait.run_id) == "expired"
        assert (await w.wait(wait.id)).closed_at == wait.deadline


async def test_W9_a_reminder_and_an_escalation_are_events_too(store_url: str) -> None:
    """W9: other runs may react."""
    app = waiting(reminders=["1h"], escalate={"2h": "group:leads"})

    @app.workflow("page", trigger="bide.wait.escalated")
    async def page(step: bide.Step, event: dict[str, Any]) -> Any:
        return [event["wait_id"], event["group"]]

    @app.workflow("note", trigger="bide.wait.reminder")
    async def note(step: bide.Step, event: dict[str, Any]) -> Any:
        return event["id"]

    async with world(app, store_url) as w:
        wait = await parked(w, "task")
        await w.advance("2h")
        assert [run.result for run in await w.runs(definition="page")] == [[wait.id, "leads"]]
        assert [run.result for run in await w.runs(definition="note")] == [f"{wait.id.replace('wait_', 'int_')}_0"]


async def test_W9_after_an_escalation_the_task_is_for_others(store_url: str) -> None:
    """W9: reassigned."""
    app = waiting(escalate={"1h": "group:leads"}, assignee="ann")

    @app.groups
    def groups_of(principal: str) -> list[str]:
        return ["leads"] if principal == "lea" else []

    async with world(app, store_url) as w:
        wait = await parked(w, "task")
        await w.advance("1h")
        [task] = await w.interactions(group="leads")
        assert task.assignee is None
        with pytest.raises(bide.Forbidden):
            await w.answer(task.id, True, by="ann")
        await w.answer(task.id, True, by="lea")
        assert await w.result(wait.run_id) is True


async def test_W9_a_reminder_that_nobody_fired_in_time_does_not_delay_the_deadline(store_url: str) -> None:
    """W9: the engine was away for all of it."""
    async with world(waiting(reminders=["1h"]), store_url) as w:
        wait = await parked(w, "task")
        w.clock.advance((wait.deadline or w.now) - w.now)
        await w.settle()
        assert await w.result(wait.run_id) == "expired"
        assert await named(w, wait.run_id, "await_reminder") == []


# ---------------------------------------------------------------- notifiers


async def test_F10_a_notifier_hears_of_the_opening_and_of_each_reminder_and_escalation(store_url: str) -> None:
    """F10, U7."""
    app = waiting(notify="mail", reminders=["4h"], escalate={"8h": "bob"}, assignee="ann")
    told: list[bide.Task] = []

    @app.notifier
    def mail(task: bide.Task) -> None:
        told.append(task)

    async with world(app, store_url, public_url="https://bide.example") as w:
        wait = await parked(w, "task")
        [task] = await w.interactions()
        assert [each.cause for each in told] == ["opened"]
        assert (told[0].id, told[0].title, told[0].deadline) == (task.id, "Well?", task.deadline)
        assert told[0].url == f"https://bide.example/interactions/{task.id}"
        await w.advance("8h")
        assert [(each.cause, each.assignee) for each in told] == [
            ("opened", "ann"),
            ("reminder", "ann"),
            ("escalated", "bob"),
        ]
        assert len(await named(w, wait.run_id, "chore_done")) == 3


@every_kind
async def test_W9_every_kind_of_wait_may_have_an_async_notifier(store_url: str, kind: str) -> None:
    """W9."""
    app = waiting(notify="chat")
    told: list[str] = []

    @app.notifier
    async def chat(task: bide.Task) -> None:
        told.append(task.id)

    async with world(app, store_url) as w:
        wait = await parked(w, kind)
        assert told == [wait.id.replace("wait_", "int_") + "_0" if kind in ("task", "request") else wait.id]


async def test_U7_a_notifier_that_fails_is_tried_again_and_ends_as_a_dead_letter(store_url: str) -> None:
    """U7: with backoff, then a dead letter, until a person decides."""
    app = waiting(notify="mail")
    tries: list[Any] = []
    broken = True

    @app.notifier
    def mail(task: bide.Task) -> None:
        tries.append(w.now)
        if broken:
            raise ConnectionError("no mail today")

    async with world(app, store_url) as w:
        wait = await parked(w, "task")
        assert len(tries) == 1
        await w.advance("1d")
        assert len(tries) == 10
        gaps = [second - first for first, second in pairwise(tries)]
        assert gaps == sorted(gaps)
        [letter] = await w.dead_letters()
        assert (letter.run_id, letter.kind, letter.tries) == (wait.run_id, "notify", 10)
        assert letter.error == "ConnectionError: no mail today"
        assert await named(w, wait.run_id, "chore_dead")
        assert (await w.get(wait.run_id)).status == "waiting"
        broken = False
        await w.retry_dead_letter(letter.id)
        assert len(tries) == 11
        assert await w.dead_letters() == []
        with pytest.raises(bide.DeadLetterNotFound):
            await w.retry_dead_letter(letter.id)


async def test_U7_a_dead_letter_can_be_discarded(store_url: str) -> None:
    """U7."""
    app = waiting(notify="mail")

    @app.notifier
    def mail(task: bide.Task) -> None:
        raise bide.NonRetryable("wrong address")

    async with world(app, store_url) as w:
        wait = await parked(w, "task")
        [letter] = await w.dead_letters()
        assert letter.tries == 1
        assert await w.client("other").dead_letters() == []
        with pytest.raises(bide.DeadLetterNotFound):
            await w.client("other").discard_dead_letter(letter.id)
        await w.discard_dead_letter(letter.id)
        assert await w.dead_letters() == []
        assert await named(w, wait.run_id, "chore_discarded")


async def test_U7_nobody_is_told_of_a_wait_that_has_ended(store_url: str) -> None:
    """U7: what is over is dropped."""
    app = waiting(notify="mail")
    told: list[str] = []

    @app.notifier
    def mail(task: bide.Task) -> None:
        told.append(task.cause)
        raise ConnectionError("try later")

    async with world(app, store_url) as w:
        wait = await parked(w, "task")
        assert told == ["opened"]
        await w.answer(wait.id, True, settle=False)
        await w.advance("1d")
        assert told == ["opened"]
        assert await w.dead_letters() == []


async def test_U7_a_crash_between_the_call_and_its_record_calls_again(store_url: str) -> None:
    """U7: at least once, after the lease."""
    app = waiting(notify="mail")
    told: list[str] = []

    @app.notifier
    async def mail(task: bide.Task) -> None:
        told.append(task.cause)
        if len(told) == 1:
            await w.engine.crash()  # the process is gone before it can say that it was done

    async with world(app, store_url) as w:
        await w.start("task", settle=False)
        try:
            await w.settle()
        finally:
            await w.crash()
        await w.advance("2m")
        assert told == ["opened", "opened"]


# ---------------------------------------------------------------- heartbeats


@every_kind
async def test_W13_silence_fails_a_wait_early(store_url: str, kind: str) -> None:
    """W13: failed, not timed out."""
    async with world(waiting(heartbeat="10m"), store_url) as w:
        wait = await parked(w, kind)
        await w.advance("9m")
        await w.heartbeat(wait.id)
        await w.advance("9m")
        assert (await w.get(wait.run_id)).status == "waiting"
        await w.advance("1m")
        assert await w.result(wait.run_id) == "WaitFailedError: no heartbeat for 10m"
        assert (await w.wait(wait.id)).status == "failed"
        with pytest.raises(bide.AlreadyAnswered):
            await w.heartbeat(wait.id)


# ---------------------------------------------------------------- operators


@every_kind
async def test_W10_an_operator_fails_a_wait_and_the_run_is_told(store_url: str, kind: str) -> None:
    """W10, W13."""
    async with world(waiting(), store_url) as w:
        wait = await parked(w, kind)
        await w.fail_wait(wait.id, "the provider is closed")
        assert await w.result(wait.run_id) == "WaitFailedError: the provider is closed"
        after = await w.wait(wait.id)
        assert (after.status, after.cause) == ("failed", "failed: the provider is closed")
        for call in (w.fail_wait(wait.id, "again"), w.update_wait(wait.id, deadline="1h")):
            with pytest.raises(bide.AlreadyAnswered):
                await call
        if kind == "task":
            [task] = await w.interactions(status=None)
            assert task.status == "failed"


@every_kind
async def test_W10_an_operator_cancels_a_wait_and_the_run_is_told(store_url: str, kind: str) -> None:
    """W10."""
    async with world(waiting(), store_url) as w:
        wait = await parked(w, kind)
        await w.cancel_wait(wait.id, "not needed")
        assert await w.result(wait.run_id) == "WaitCancelledError: not needed"
        receipt = await w.answer(wait.id, True, check=False)
        is_known = kind not in ("signal", "callback", "event")  # of those the id is free again
        assert (receipt.outcome, receipt.reason) == ("no_target", "cancelled" if is_known else "not_found")


async def test_W13_a_run_that_does_not_catch_it_fails_at_once(store_url: str) -> None:
    """W13: never retried."""
    app = bide.App()

    @app.workflow("careless")
    async def careless(step: bide.Step) -> Any:
        await step.sleep("nap", "10d")

    @app.machine("careless-machine")
    class Careless:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="end", timeout="10d")

        def end(self, ctx: Ctx) -> bide.Done:
            raise AssertionError("it must not run: its wait has failed")

    async with world(app, store_url) as w:
        for definition in ("careless", "careless-machine"):
            wait = await parked(w, definition)
            await w.fail_wait(wait.id, "enough")
            info = await w.get(wait.run_id)
            assert (info.status, info.error and info.error.code) == ("failed", "WaitFailedError")
            assert "step_retried" not in await ledger_names(w, wait.run_id)


@every_kind
async def test_W10_an_operator_moves_a_deadline_both_ways(store_url: str, kind: str) -> None:
    """W10."""
    async with world(waiting(), store_url) as w:
        wait = await parked(w, kind)
        moved = await w.update_wait(wait.id, deadline="20d", reason="holidays")
        assert moved.deadline is not None
        assert (moved.deadline - w.now).days == 20
        await w.advance("11d")
        assert (await w.get(wait.run_id)).status == "waiting"
        assert (await w.update_wait(wait.id, deadline=None, reason="no hurry")).deadline is None
        await w.advance("30d")
        assert (await w.get(wait.run_id)).status == "waiting"
        await w.update_wait(wait.id, deadline="1h", reason="hurry now")
        await w.advance("1h")
        assert await w.result(wait.run_id) == "expired"
        reasons = [entry.data["reason"] for entry in await named(w, wait.run_id, "await_updated")]
        assert reasons == ["holidays", "no hurry", "hurry now"]


@every_kind
async def test_W10_an_operator_gives_a_wait_to_others(store_url: str, kind: str) -> None:
    """W10, W11: enforced for every kind."""
    async with world(waiting(assignee="ann"), store_url) as w:
        wait = await parked(w, kind)
        with pytest.raises(bide.Forbidden):
            await w.answer(wait.id, True, by="bob")
        await w.update_wait(wait.id, assignee="bob", reason="ann is ill")
        with pytest.raises(bide.Forbidden):
            await w.answer(wait.id, True, by="ann")
        if kind == "pack":
            assert (await w.answer(wait.id, False, by="bob")).outcome == "queued"
        assert (await w.answer(wait.id, True, by="bob")).outcome == "woke"
        assert await w.result(wait.run_id) == ([False, True] if kind == "pack" else True)


async def test_a_signal_id_with_an_assignee_is_completed_by_them_alone(store_url: str) -> None:
    """W11."""
    async with world(waiting(assignee="ann"), store_url) as w:
        wait = await parked(w, "signal")
        [signal_id] = wait.names
        with pytest.raises(bide.Forbidden):
            await w.complete(signal_id, True)
        with pytest.raises(bide.Forbidden):
            await w.answer(signal_id, True, by="bob")
        await w.answer(signal_id, True, by="ann", dedup_key="click")
        assert (await w.answer(signal_id, True, by="ann", dedup_key="click")).outcome == "duplicate"
        with pytest.raises(bide.DedupConflict):
            await w.answer(signal_id, False, by="ann", dedup_key="click")
        assert (await w.answer(signal_id, True, by="ann")).outcome == "late"


async def test_W10_waits_are_changed_in_bulk_by_filter_with_a_dry_run(store_url: str) -> None:
    """W10."""
    async with world(waiting(channel="chat"), store_url) as w:
        old = [await parked(w, "task"), await parked(w, "machine")]
        await w.advance("1d")
        young = await parked(w, "task")
        planned = await w.fail_waits(definition="task", older_than="1h", reason="stale", dry_run=True)
        assert (planned.ids, planned.dry_run) == ((old[0].id,), True)
        assert len(await w.waits()) == 3
        done = await w.fail_waits(definition="task", older_than="1h", reason="stale")
        assert done.ids == planned.ids
        assert await w.result(old[0].run_id) == "WaitFailedError: stale"
        moved = await w.update_waits(channel="chat", deadline="1h", to_assignee="ann", reason="hurry")
        assert set(moved.ids) == {old[1].id, young.id}
        cancelled = await w.cancel_waits(assignee="ann", kind="signals", reason="enough")
        assert cancelled.ids == (old[1].id,)
        assert (await w.cancel_waits(group="nobody", reason="enough")).count == 0


@every_kind
async def test_W10_a_reason_for_an_answer_is_in_the_ledger(store_url: str, kind: str) -> None:
    """W10: of every wait that can be answered, by its id; told once."""
    async with world(waiting(), store_url) as w:
        wait = await parked(w, kind)
        await w.answer(wait.id, True, by="ann", reason="the page is down")
        told = [entry for entry in await w.ledger(wait.run_id) if entry.data.get("reason") == "the page is down"]
        assert [entry.data.get("id") is not None for entry in told] == [True]
        assert told[0].name in ("await_answer_received", "await_unit_item_completed", "signal_received")


async def test_W10_a_reason_rides_with_an_answer_to_a_signal_id_though_it_is_held(store_url: str) -> None:
    async with world(waiting(), store_url) as w:
        run = await w.start("signal", delay="1m")
        await w.complete(f"go-{run.id}", True, hold="1h", reason="by phone")
        await w.advance("1m")
        [received] = await named(w, run.id, "await_answer_received")
        assert (received.data["reason"], await w.result(run.id)) == ("by phone", True)


async def test_W10_waits_are_answered_in_bulk_each_for_itself(store_url: str) -> None:
    """W10: what one refuses, and why, is told; the others go on."""
    async with world(waiting(channel="chat"), store_url) as w:
        takes = [await parked(w, kind) for kind in ("task", "signal", "callback", "event", "receive", "request")]
        held = [await parked(w, kind) for kind in ("task", "signal")]
        await w.update_waits(run_id=held[0].run_id, to_assignee="bob", reason="his")
        await w.update_waits(run_id=held[1].run_id, to_group="leads", reason="theirs")

        done = await w.answer_waits(True, channel="chat", by="ann", reason="the form is down")

        assert sorted(done.ids) == sorted(wait.id for wait in takes)
        assert {one.id: one.outcome for one in done.outcomes} == {
            **{wait.id: "woke" for wait in takes},
            **{wait.id: "denied" for wait in held},
        }
        assert {one.id for one in done.refused} == {wait.id for wait in held}
        assert "it is for bob, not for ann" in str(next(one.reason for one in done.refused if one.id == held[0].id))
        assert [await w.result(wait.run_id) for wait in takes] == [True] * len(takes)
        assert {wait.id for wait in await w.waits()} == {wait.id for wait in held}


async def test_W10_an_answer_in_bulk_that_does_not_fit_one_wait_leaves_it_open(store_url: str) -> None:
    """W3, W10: and a dry run says so beforehand, and changes nothing."""
    app = bide.App()

    @app.workflow("number")
    async def number(step: bide.Step) -> Any:
        return await step.ask("gate", title="How many?", form=int, timeout="1d")

    @app.workflow("text")
    async def text(step: bide.Step) -> Any:
        return await step.wait_for_signal("gate", signal=f"t-{step.run_id}", returns=str, timeout="1d")

    @app.workflow("list")
    async def many(step: bide.Step) -> Any:
        return await step.request_each("gate", [1, 2], transport="interaction-api", timeout="1d")

    @app.workflow("order")
    async def order(step: bide.Step) -> Any:
        return (await step.wait_for_event("gate", event="paid", match="data > 10", timeout="1d")).data

    @app.workflow("nap")
    async def nap(step: bide.Step) -> Any:
        await step.sleep("gate", "1d")

    async with world(app, store_url) as w:
        kinds = ("number", "text", "list", "order", "nap")
        waits = {kind: await parked(w, kind) for kind in kinds}
        await w.advance("1h")
        ledgers = [await w.ledger(wait.run_id) for wait in waits.values()]

        planned = await w.answer_waits(7, older_than="1m", reason="by phone", dry_run=True)

        refused = {waits[kind].id for kind in kinds[1:]}
        assert (planned.ids, planned.dry_run) == ((waits["number"].id,), True)
        assert {(one.id, one.outcome) for one in planned.outcomes} == {(id, "invalid") for id in refused}
        assert [await w.ledger(wait.run_id) for wait in waits.values()] == ledgers
        done = await w.answer_waits(7, older_than="1m", reason="by phone")
        assert done.ids == planned.ids
        assert sorted(done.refused, key=str) == sorted(planned.refused, key=str)
        assert await w.result(waits["number"].run_id) == 7
        assert {wait.id for wait in await w.waits()} == refused
        assert (await w.answer_waits("x", kind="signal", reason="by phone")).ids == (waits["text"].id,)


async def test_W10_a_wait_that_opens_after_an_answer_in_bulk_is_not_answered_by_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W10: nobody has seen its question."""
    monkeypatch.setattr("bide.client.operating.AT_ONCE", 1)
    app = bide.App()

    @app.workflow("two")
    async def two(step: bide.Step) -> Any:
        return [await step.ask(id, title="Well?", form=bool, timeout="1d") for id in ("first", "second")]

    @app.policy
    async def slow(action: bide.Action) -> None:
        if action.kind == "answer":
            await w.settle()  # meanwhile runs that were answered have come to their next question

    async with world(app, store_url) as w:
        runs = [await w.start("two") for _ in range(3)]
        done = await w.answer_waits(True, definition="two", reason="all of them")
        assert (done.count, {wait.step for wait in await w.waits()}) == (3, {"second"})
        assert {wait.run_id for wait in await w.waits()} == {run.id for run in runs}


async def test_W10_policies_are_asked_about_each_answer_in_bulk(store_url: str) -> None:
    """G1."""
    app = waiting()

    @app.policy
    def not_the_signal(action: bide.Action) -> bide.Deny | None:
        return bide.Deny("not by hand") if action.kind == "answer" and action.definition == "signal" else None

    async with world(app, store_url) as w:
        denied, taken = await parked(w, "signal"), await parked(w, "task")
        await w.advance("1h")
        done = await w.answer_waits(True, older_than="1m", reason="all of them")
        assert (done.ids, [one.id for one in done.refused]) == ((taken.id,), [denied.id])
        assert (done.refused[0].outcome, "not by hand" in str(done.refused[0].reason)) == ("denied", True)
        assert len(await named(w, denied.run_id, "policy_denied")) == 1
        assert (await w.get(denied.run_id)).status == "waiting"


async def test_bulk_changes_need_a_filter_and_a_reason(store_url: str) -> None:
    """Bad input: not all waits by a slip."""
    async with world(waiting(), store_url) as w:
        wait = await parked(w, "task")
        for call in (
            w.fail_waits(reason="oops"),
            w.fail_waits(definition="task", reason=" "),
            w.cancel_waits(older_than="soon", reason="oops"),
            w.update_waits(definition="task", reason="nothing to change"),
            w.client().fail_waits(colour="red", reason="oops"),  # type: ignore[call-arg]
            w.answer_waits(True, reason="oops"),
            w.answer_waits(True, definition="task", reason=" "),
            w.answer_waits(object(), definition="task", reason="oops"),
            w.answer_waits(True, definition="task", reason="o" * 4001),
            w.answer(wait.id, True, reason="o" * 4001),
            w.fail_wait(wait.id, ""),
            w.update_wait(wait.id),
            w.update_wait(wait.id, deadline="soon"),
            w.update_wait(wait.id, assignee=""),
            w.answer("run_7", True),
        ):
            with pytest.raises(bide.BadInput):
                await call
        assert (await w.get(wait.run_id)).status == "waiting"


async def test_W7_what_has_no_answer_says_so(store_url: str) -> None:
    """W7: a sleep cannot be answered, it can be failed."""
    app = bide.App()

    @app.workflow("nap")
    async def nap(step: bide.Step) -> Any:
        await step.sleep("nap", "10d")

    async with world(app, store_url) as w:
        wait = await parked(w, "nap")
        with pytest.raises(bide.InvalidAnswer, match="sleep"):
            await w.answer(wait.id, True)
