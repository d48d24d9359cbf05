"""Policies: what is denied does not happen, and is on record (G1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bide
from bide.testing import World, world

Judge = Callable[[bide.Action], Any]


def governed(*policies: Any) -> bide.App:
    app = bide.App()
    for policy in policies:
        app.policy(policy)

    @app.workflow("payout")
    async def payout(step: bide.Step, amount: int) -> Any:
        await step.run("reserve", lambda: amount)
        answer = await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1h")
        return [amount, answer]

    @app.workflow("triggered", trigger="order.*")
    async def triggered(step: bide.Step, order: Any) -> Any:
        return order

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        return await step.invoke("child", "payout", 7)

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end", channel="chat")

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done([signal.payload for signal in ctx.awaited])

    return app


def denies(kind: str) -> Judge:
    return lambda action: bide.Deny("not today") if action.kind == kind else None


async def denials(there: World, run_id: str) -> list[dict[str, Any]]:
    return [dict(entry.data) for entry in await there.ledger(run_id) if entry.name == "policy_denied"]


async def test_G1_a_denied_start_starts_nothing_and_is_kept(store_url: str) -> None:
    async with world(governed(denies("start")), store=store_url) as there:
        with pytest.raises(bide.PolicyDenied, match="not today") as denied:
            await there.start("payout", 5)
        assert (denied.value.status, await there.runs()) == (403, [])
        [kept] = await there.unused()
        assert (kept.reason, kept.name, kept.target, kept.payload) == ("denied", "start", "payout", 5)


async def test_G1_a_start_inside_the_callers_transaction_is_governed_too() -> None:
    async with world(governed(denies("start")), store="sqlite://") as there:
        async with there.connection() as connection:
            with pytest.raises(bide.PolicyDenied):
                await there.client().start("payout", 5, connection=connection)
        await there.settle()
        assert await there.runs() == []


async def test_G1_a_denied_cancel_leaves_the_run_as_it_is_and_is_in_its_ledger(store_url: str) -> None:
    async with world(governed(denies("cancel")), store=store_url) as there:
        run = await there.start("payout", 5)
        with pytest.raises(bide.PolicyDenied):
            await there.cancel(run.id)
        assert (await there.get(run.id)).status == "waiting"
        assert await denials(there, run.id) == [{"action": "cancel", "principal": "client", "reason": "not today"}]
        assert await there.audit() == []


async def test_G1_a_denied_signal_reaches_no_inbox(store_url: str) -> None:
    async with world(governed(denies("answer")), store=store_url) as there:
        run = await there.start("order", correlation_key="order:1")
        for target in (run.id, "order:1"):
            with pytest.raises(bide.PolicyDenied):
                await there.signal(target, "paid", 1)
        with pytest.raises(bide.PolicyDenied):
            await there.signal_many([bide.SignalTo(run.id, "paid", 1)])
        assert (await there.inbox(run.id), len(await denials(there, run.id))) == ([], 3)


async def test_G1_a_denied_answer_leaves_the_wait_open(store_url: str) -> None:
    async with world(governed(denies("answer")), store=store_url) as there:
        run = await there.start("payout", 5)
        with pytest.raises(bide.PolicyDenied):
            await there.complete(f"gate-{run.id}", True)
        assert [wait.status for wait in await there.waits(run_id=run.id)] == ["waiting"]


@pytest.mark.parametrize("definition", ["payout", "order"])
async def test_G1_a_denied_suspension_fails_the_run(store_url: str, definition: str) -> None:
    async with world(governed(denies("suspend")), store=store_url) as there:
        run = await there.start(definition, 5)
        with pytest.raises(bide.RunFailedError, match="PolicyDenied: suspend: not today"):
            await there.result(run.id)
        assert [entry.data["policy"] for entry in await there.ledger(run.id) if "policy" in entry.data] == [
            "denied to suspend: not today"
        ]
        assert (await there.waits(run_id=run.id), await there.audit()) == ([], [])


async def test_G1_what_a_step_did_before_a_denied_suspension_is_kept(store_url: str) -> None:
    async with world(governed(denies("suspend")), store=store_url) as there:
        run = await there.start("payout", 5)
        names = [entry.name for entry in await there.ledger(run.id)]
        assert names == ["run_started", "step_completed", "run_failed"]


async def test_G1_a_denied_resumption_fails_the_run(store_url: str) -> None:
    async with world(governed(denies("resume")), store=store_url) as there:
        run = await there.start("order")
        await there.signal(run.id, "paid", 1)
        with pytest.raises(bide.RunFailedError, match="PolicyDenied: resume"):
            await there.result(run.id)
        assert await there.audit() == []


async def test_G1_a_child_is_started_in_the_name_of_its_parent(store_url: str) -> None:
    seen: list[bide.Action] = []
    async with world(governed(seen.append), store=store_url) as there:
        run = await there.start("parent")
        starts = [(action.definition, action.principal) for action in seen if action.kind == "start"]
        assert starts == [("parent", "client"), ("payout", f"run:{run.id}")]


async def test_G1_a_timeout_is_not_denied_but_the_resumption_after_it_is(store_url: str) -> None:
    async with world(governed(denies("resume")), store=store_url) as there:
        run = await there.start("payout", 5)
        await there.advance("2h")
        names = [entry.name for entry in await there.ledger(run.id)]
        assert "await_unit_terminal" in names
        assert (await there.get(run.id)).status == "failed"


async def test_G1_a_policy_sees_the_action_the_principal_the_run_and_the_wait() -> None:
    seen: list[bide.Action] = []
    async with world(governed(seen.append)) as there:
        run = await there.start("payout", 5, correlation_key="payout:5", tags={"team": "eu"})
        start, suspend = seen
        assert (start.kind, start.data, start.definition, start.principal) == ("start", 5, "payout", "client")
        assert (suspend.kind, suspend.step, suspend.names) == ("suspend", "gate", (f"gate-{run.id}",))
        assert (suspend.run_id, suspend.correlation_key, suspend.tags) == (run.id, "payout:5", {"team": "eu"})
        seen.clear()
        order = await there.start("order")
        await there.signal(order.id, "paid", 9)
        _, suspend, answer, resume = seen
        assert (suspend.channel, answer.data, answer.names, resume.channel) == ("chat", 9, ("paid",), "chat")
        assert (answer.definition, resume.wait_kind) == ("order", "signals")


async def test_G1_what_a_policy_notes_stands_in_the_ledger() -> None:
    async with world(governed(lambda action: bide.Allow("below the limit"))) as there:
        run = await there.start("order")
        assert (await there.ledger(run.id))[0].data["policy"] == "below the limit"


async def test_G1_every_policy_must_allow_and_may_be_async() -> None:
    async def later(action: bide.Action) -> bide.Deny:
        return bide.Deny("the second one said no")

    async with world(governed(lambda action: True, later)) as there:
        with pytest.raises(bide.PolicyDenied, match="the second one"):
            await there.start("order")


@pytest.mark.parametrize("said", [False, "yes", 0, []])
async def test_G1_what_is_no_verdict_denies(said: object) -> None:
    async with world(governed(lambda action: said)) as there:
        with pytest.raises(bide.PolicyDenied):
            await there.start("order")


async def test_G1_a_policy_that_breaks_denies() -> None:
    def broken(action: bide.Action) -> bool:
        raise LookupError("a password is in this text")

    async with world(governed(broken)) as there:
        with pytest.raises(bide.PolicyDenied, match="LookupError") as denied:
            await there.start("order")
        assert "password" not in str(denied.value)


async def test_G1_declared_rules_are_tried_in_their_order() -> None:
    rules = [
        bide.Rule(bide.Allow(), principals=("cli", "key:ops*")),
        bide.Rule(bide.Deny("only operators"), actions=("cancel",), definitions=("pay*",)),
    ]
    async with world(governed(rules)) as there:
        run, order = await there.start("payout", 1), await there.start("order")
        with pytest.raises(bide.PolicyDenied, match="only operators"):
            await there.cancel(run.id)
        await there.cancel(order.id)
        assert (await there.get(order.id)).status == "cancelled"


@pytest.mark.parametrize("policy", [[], [1], "deny"])
def test_G1_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(bide.BadConfiguration, match="a policy is a function"):
        bide.App().policy(policy)


async def test_G1_an_event_is_not_denied_but_what_it_would_start_is(store_url: str) -> None:
    async with world(governed(denies("start")), store=store_url) as there:
        receipt = await there.emit("order.placed", 7)
        assert (receipt.started, await there.runs()) == (0, [])
        assert [(kept.reason, kept.target) for kept in await there.unused()] == [("denied", "triggered")]


# ---------------------------------------------------------------- approvals


def asks(*kinds: str) -> Judge:
    def policy(action: bide.Action) -> bide.NeedsApproval | None:
        if action.kind not in kinds:
            return None
        return bide.NeedsApproval(title=f"{action.kind} {action.definition}?", assignee="ann", timeout="1d")

    return policy


async def approval_of(there: World, call: Any) -> str:
    with pytest.raises(bide.ApprovalNeeded) as needed:
        await call
    await there.settle()
    return str(needed.value.approval)


async def judge(there: World, approval: str, approved: bool) -> Any:
    [task] = await there.interactions(run_id=approval)
    await there.answer(task.id, {"approved": approved}, by="ann")
    return await there.result(approval)


async def test_G1_an_approved_start_happens_and_says_who_approved(store_url: str) -> None:
    async with world(governed(asks("start")), store=store_url) as there:
        approval = await approval_of(there, there.start("payout", 5))
        assert [run.definition for run in await there.runs()] == ["bide.approval"]
        told = await judge(there, approval, True)
        assert (told["outcome"], told["by"]) == ("started", "ann")
        started = await there.get(told["run_id"])
        assert (started.definition, started.status, started.input) == ("payout", "waiting", 5)
        entry = (await there.ledger(started.id))[0]
        assert (entry.actor, entry.data["policy"]) == ("client", f"approved by ann in {approval}")
        assert await there.audit() == []


async def test_G1_a_start_that_is_not_approved_does_not_happen(store_url: str) -> None:
    async with world(governed(asks("start")), store=store_url) as there:
        approval = await approval_of(there, there.start("payout", 5))
        assert (await judge(there, approval, False))["approved"] is False
        assert [run.definition for run in await there.runs()] == ["bide.approval"]


async def test_G1_an_approval_that_nobody_gives_ends_in_time() -> None:
    async with world(governed(asks("start"))) as there:
        approval = await approval_of(there, there.start("payout", 5))
        await there.advance("2d")
        assert (await there.result(approval))["reason"] == "nobody answered in time"


async def test_G1_a_cancel_an_answer_and_a_signal_wait_for_their_approval(store_url: str) -> None:
    async with world(governed(asks("answer", "cancel")), store=store_url) as there:
        gate, order, gone = await there.start("payout", 5), await there.start("order"), await there.start("order")
        answered = await approval_of(there, there.complete(f"gate-{gate.id}", "yes"))
        signalled = await approval_of(there, there.signal(order.id, "paid", 9))
        cancelled = await approval_of(there, there.cancel(gone.id))
        for run in (gate, order, gone):
            assert (await there.get(run.id)).status == "waiting"
        told = [await judge(there, approval, True) for approval in (answered, signalled, cancelled)]
        assert [each["outcome"] for each in told] == ["woke", "woke", "cancelled"]
        assert (await there.result(gate.id), await there.result(order.id)) == ([5, "yes"], [9])
        assert (await there.get(gone.id)).status == "cancelled"


async def test_G1_what_was_approved_happens_once_though_the_worker_dies(store_url: str) -> None:
    def policy(action: bide.Action) -> bide.NeedsApproval | None:
        is_signal = action.kind == "answer" and action.definition == "order"
        return bide.NeedsApproval(title="Paid?", assignee="ann") if is_signal else None

    async with world(governed(policy), store=store_url) as there:
        order = await there.start("order")
        approval = await approval_of(there, there.signal(order.id, "paid", 9))
        there.crash_at("perform", "after_code")
        told = await judge(there, approval, True)
        assert (told["outcome"], await there.result(order.id)) == ("duplicate", [9])
