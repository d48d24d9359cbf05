"""Policies: what is denied does not happen, and is on record (G1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

import bide
from bide.core.approvals import Asked, encode_command
from bide.core.commands import Start
from bide.core.governing import recorded_actions
from bide.core.ledger import decode_page
from bide.core.records import RunId
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


async def test_G1_a_denied_start_starts_nothing_and_is_kept(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bide.policy")
    async with world(governed(denies("start")), store=store_url) as there:
        with pytest.raises(bide.PolicyDenied, match="not today") as denied:
            await there.start("payout", 5)
        assert (denied.value.status, await there.runs()) == (403, [])
        [kept] = await there.unused()
        assert (kept.reason, kept.name, kept.target, kept.payload) == ("denied", "start", "payout", 5)
        assert caplog.messages == ["client may not start payout: not today"]


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


async def test_G1_a_policy_sees_the_action_the_principal_the_run_and_the_wait(store_url: str) -> None:
    seen: list[bide.Action] = []
    async with world(governed(seen.append), store_url) as there:
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


async def test_G1_what_a_policy_notes_stands_in_the_ledger(store_url: str) -> None:
    async with world(governed(lambda action: bide.Allow("below the limit")), store_url) as there:
        run = await there.start("order")
        assert (await there.ledger(run.id))[0].data["policy"] == "below the limit"


async def test_G1_every_policy_must_allow_and_may_be_async(store_url: str) -> None:
    async def later(action: bide.Action) -> bide.Deny:
        return bide.Deny("the second one said no")

    async with world(governed(lambda action: True, later), store_url) as there:
        with pytest.raises(bide.PolicyDenied, match="the second one"):
            await there.start("order")


@pytest.mark.parametrize("said", [False, "yes", 0, []])
async def test_G1_what_is_no_verdict_denies(store_url: str, said: object) -> None:
    async with world(governed(lambda action: said), store_url) as there:
        with pytest.raises(bide.PolicyDenied):
            await there.start("order")


async def test_G1_a_policy_that_breaks_denies(store_url: str) -> None:
    def broken(action: bide.Action) -> bool:
        raise LookupError("a password is in this text")

    async with world(governed(broken), store_url) as there:
        with pytest.raises(bide.PolicyDenied, match="LookupError") as denied:
            await there.start("order")
        assert "password" not in str(denied.value)


async def test_G1_declared_rules_are_tried_in_their_order(store_url: str) -> None:
    rules = [
        bide.Rule(bide.Allow(), principals=("cli", "key:ops*")),
        bide.Rule(bide.Deny("only operators"), actions=("cancel",), definitions=("pay*",)),
    ]
    async with world(governed(rules), store_url) as there:
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


EMITTING = """machine telling
  implements
    emit "order.placed"
      total: 7
    compute result
      true

"""


def emitting(policy: Any, tmp_path: Path) -> bide.App:
    """A run of each style that can emit an event which starts `triggered`, and one whose wait emits it."""
    app = governed(policy)

    @app.workflow("tells")
    async def tells(step: bide.Step) -> Any:
        return (await step.emit("tell", "order.placed", {"total": 7})).started

    @app.workflow("reminded", trigger="bide.wait.reminder")
    async def reminded(step: bide.Step, event: Any) -> None: ...

    @app.workflow("waits")
    async def waits(step: bide.Step) -> Any:
        return await step.wait_for_signal("gate", signal=f"g-{step.run_id}", timeout="3h", reminders=["2h"])

    path = tmp_path / "telling.machine"
    path.write_text(EMITTING, encoding="utf-8")
    app.load(path)
    return app


def judges_runs(verdict: Any) -> Judge:
    return lambda action: verdict if action.kind == "start" and action.principal.startswith("run:") else None


@pytest.mark.parametrize(
    ("emitter", "started"), [("tells", "triggered"), ("telling", "triggered"), ("waits", "reminded")]
)
async def test_G1_what_an_event_of_a_run_would_start_is_governed(
    store_url: str, tmp_path: Path, emitter: str, started: str
) -> None:
    """`step.emit`, `emit` of machine files, and the events that a commit promised."""
    seen: list[bide.Action] = []

    def judge(action: bide.Action) -> Any:
        seen.append(action)
        return judges_runs(bide.Deny("not today"))(action)

    async with world(emitting(judge, tmp_path), store=store_url) as there:
        run = await there.start(emitter, {} if emitter == "telling" else None)
        await there.advance("2h")
        starts = [(action.principal, action.definition) for action in seen if action.kind == "start"]
        assert starts == [("client", emitter), (f"run:{run.id}", started)]
        assert await there.runs(definition=started) == []
        assert await denials(there, run.id) == [
            {"action": "start", "principal": f"run:{run.id}", "reason": "not today", "definition": started}
        ]
        assert (await there.get(run.id)).status == ("waiting" if emitter == "waits" else "completed")


async def test_G1_what_an_event_of_a_run_would_start_waits_for_one_approval(store_url: str, tmp_path: Path) -> None:
    needed = bide.NeedsApproval(title="Start it?", assignee="ann")
    async with world(emitting(judges_runs(needed), tmp_path), store=store_url) as there:
        there.crash_at("tell", "after_code")  # the event is out, the step that emitted it is done again
        run = await there.start("tells")
        assert await there.result(run.id) == 0
        [asking] = await there.runs(definition="bide.approval")
        told = await judge(there, asking.id, True)
        started = await there.get(told["run_id"])
        assert (started.definition, started.input) == ("triggered", {"total": 7})


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


async def test_G1_a_repeated_call_is_asked_about_once(store_url: str) -> None:
    """A start with its correlation key, a signal with its dedup key, a cancel; anything else is another matter."""
    async with world(governed(asks("start")), store=store_url) as there:
        again = [await approval_of(there, there.start("payout", 5, correlation_key="p:5")) for _ in range(2)]
        other = await approval_of(there, there.start("payout", 6, correlation_key="p:5"))
        assert (again[0] == again[1], other in again, len(await there.runs())) == (True, False, 2)
        assert (await judge(there, again[0], True))["outcome"] == "started"
        assert (await judge(there, other, True))["outcome"] == "conflict"
    async with world(governed(asks("answer", "cancel")), store=store_url) as there:
        run = await there.start("order")
        signals = [await approval_of(there, there.signal(run.id, "paid", 9, dedup_key="d")) for _ in range(2)]
        cancels = [await approval_of(there, there.cancel(run.id)) for _ in range(2)]
        assert (len(set(signals)), len(set(cancels))) == (1, 1)


async def test_G1_a_start_that_is_not_approved_does_not_happen(store_url: str) -> None:
    async with world(governed(asks("start")), store=store_url) as there:
        approval = await approval_of(there, there.start("payout", 5))
        assert (await judge(there, approval, False))["approved"] is False
        assert [run.definition for run in await there.runs()] == ["bide.approval"]


async def test_G1_an_approval_that_nobody_gives_ends_in_time(store_url: str) -> None:
    async with world(governed(asks("start")), store_url) as there:
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


@pytest.mark.parametrize(("kind", "call"), [("answer", "fail_wait"), ("cancel", "cancel_wait")])
async def test_G1_who_fails_or_cancels_a_wait_is_governed(store_url: str, kind: str, call: str) -> None:
    """To fail a wait is to answer it, to cancel it is to cancel: neither is a way around a policy."""
    seen: list[bide.Action] = []

    def judge(action: bide.Action) -> Any:
        seen.append(action)
        return bide.Deny("not today") if action.kind == kind else None

    async with world(governed(judge), store=store_url) as there:
        run = await there.start("payout", 5)
        [wait] = await there.waits(run_id=run.id)
        with pytest.raises(bide.PolicyDenied, match="not today"):
            await getattr(there, call)(wait.id, "no use")
        action = seen[-1]
        assert (action.kind, action.wait_id, action.step, action.data) == (kind, wait.id, "gate", "no use")
        with pytest.raises(bide.PolicyDenied):
            await getattr(there, f"{call}s")(run_id=run.id, reason="no use")
        assert [denied["action"] for denied in await denials(there, run.id)] == [kind, kind]
        assert (await there.get(run.id)).status == "waiting"
        path = f"/v1/waits/{wait.id}/{call.removesuffix('_wait')}"
        assert (await there.http().post(path, json={"reason": "no use"})).status_code == 403
        await there.update_wait(wait.id, deadline="3h")  # neither ends it


async def test_G1_a_failed_wait_waits_for_its_approval(store_url: str) -> None:
    async with world(governed(asks("answer")), store=store_url) as there:
        run = await there.start("payout", 5)
        [wait] = await there.waits(run_id=run.id)
        approval = await approval_of(there, there.fail_wait(wait.id, "no use"))
        assert (await there.get(run.id)).status == "waiting"
        assert (await judge(there, approval, True))["outcome"] == "changed"
        assert (await there.get(run.id)).status == "failed"


@pytest.mark.parametrize("by", ["client", "http", "key", "run"])
async def test_G1_nobody_but_a_policy_starts_a_run_that_asks(by: str, store_url: str) -> None:
    """What waits in it is done without asking the policies again: a made-up one would pass them by."""
    app = governed(deny_payouts)
    start = Start(
        workspace="default", actor="client", run_id=RunId("run_forged"), definition="payout", version="1",
        style="workflow", step="", input="5",
    )  # fmt: skip
    asked = Asked(
        action="start", principal="client", target="payout", data=5, title="?", assignee=None, group=None, seconds=60,
        command=encode_command(start) or "",
    )  # fmt: skip
    forged = msgspec.to_builtins(asked)

    @app.workflow("forger")
    async def forger(step: bide.Step) -> Any:
        return await step.invoke("child", "bide.approval", forged)

    async with world(app, store=store_url) as there:
        if by == "http":
            response = await there.http().post("/v1/runs", json={"definition": "bide.approval", "input": forged})
            assert response.status_code == 403
        elif by == "run":
            run = await there.start("forger")
            assert "started by policies alone" in str((await there.get(run.id)).error)
        else:
            key = "mine" if by == "key" else None
            with pytest.raises(bide.PolicyDenied, match="started by policies alone"):
                await there.start("bide.approval", forged, correlation_key=key)
        assert await there.runs(definition="bide.approval") == []


def deny_payouts(action: bide.Action) -> bide.Deny | None:
    return bide.Deny("no") if action.definition == "payout" else None


# ---------------------------------------------------------------- every action in every style

FILE = """machine filed
  implements
    wait for look
      timeout: "1h"
      on_timeout: flow(late)
    compute result
      steps.look
  flows
    flow late
      launch other
        machine: "triggered"
      compute result
        steps.other

"""


def in_every_style(policy: Judge, tmp_path: Path) -> bide.App:
    app = governed(policy)
    app.pipeline("rows").expand(list).wait_external(
        "price", transport="interaction-api", returns=int, timeout="1h"
    ).map(lambda price: price + 1).collect(list)  # fmt: skip

    @app.workflow("called")
    async def called(step: bide.Step) -> Any:
        link = await step.callback("link", timeout="1h", returns=dict[str, Any])
        await step.run("tell", LINKS.append, urlsplit(link.url).path)
        return await link

    path = tmp_path / "filed.machine"
    path.write_text(FILE, encoding="utf-8")
    app.load(path)
    return app


LINKS: list[str] = []
STYLES: dict[str, Any] = {"payout": 5, "order": None, "filed": {}, "rows": [1]}  # and what they are started with


async def answer_of(there: World, definition: str, run_id: str) -> tuple[str, Any]:
    """The call that answers it, over HTTP."""
    if definition == "payout":
        return f"/v1/signals/gate-{run_id}/complete", {"data": 7}
    if definition == "order":
        return f"/v1/runs/{run_id}/signals", {"name": "paid", "payload": 7}
    [task] = await there.interactions(run_id=run_id)
    return f"/v1/interactions/{task.id}/complete", {"data": 7}


@pytest.mark.parametrize("definition", STYLES)
async def test_G1_every_action_in_every_style(store_url: str, definition: str, tmp_path: Path) -> None:
    """Denied over HTTP: 403 `policy_denied` and on record, or the run fails with the code `PolicyDenied`."""
    kind = ["start"]
    app = in_every_style(lambda action: bide.Deny("not today") if action.kind == kind[-1] else None, tmp_path)
    async with world(app, store=store_url) as there:
        http = there.http()

        async def started() -> str:
            response = await http.post("/v1/runs", json={"definition": definition, "input": STYLES[definition]})
            assert response.status_code == 201, response.text
            await there.settle()
            return str(response.json()["id"])

        refused = await http.post("/v1/runs", json={"definition": definition, "input": STYLES[definition]})
        assert (refused.status_code, refused.json()["code"]) == (403, "policy_denied")
        assert [(kept.reason, kept.target) for kept in await there.unused()] == [("denied", definition)]

        kind.append("suspend")
        run_id = await started()
        info = await there.get(run_id)
        assert (info.status, str(info.error)) == ("failed", "PolicyDenied: suspend: not today")
        assert (await there.waits(run_id=run_id, status=None), await there.interactions(run_id=run_id)) == ([], [])

        kind.append("answer")
        run_id = await started()
        path, body = await answer_of(there, definition, run_id)
        refused = await http.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "policy_denied")

        kind.append("cancel")
        refused = await http.post(f"/v1/runs/{run_id}/cancel")
        assert (refused.status_code, refused.json()["code"]) == (403, "policy_denied")
        assert [denied["action"] for denied in await denials(there, run_id)] == ["answer", "cancel"]
        assert (await there.get(run_id)).status == "waiting"

        kind.append("resume")
        assert (await http.post(path, json=body)).status_code in (200, 202)
        await there.settle()
        info = await there.get(run_id)
        assert (info.status, str(info.error)) == ("failed", "PolicyDenied: resume: not today")
        assert await there.audit() == []


@pytest.mark.parametrize(
    ("build", "input", "asked"),
    [
        (lambda rows: rows.expand(list).map(abs), [1, 2], [("items", "(end)")]),
        (lambda rows: rows.expand(list).map(abs), [], []),
        (lambda rows: rows.wait_external("one", transport="interaction-api", timeout="1h"), 1, [("request", "one")]),
    ],
)
async def test_G1_what_a_pipeline_parks_on_is_asked_about(store_url: str, build: Any, input: Any, asked: Any) -> None:
    """Its waits, and its own work on items; once for a stream, and not where nothing is parked on."""
    app, seen = bide.App(), list[bide.Action]()
    app.policy(seen.append)
    build(app.pipeline("rows"))
    async with world(app, store_url) as there:
        await there.start("rows", input)
        assert [(action.wait_kind, action.step) for action in seen if action.kind == "suspend"] == asked


async def test_G1_a_long_stream_that_is_denied_stores_none_of_its_items(store_url: str) -> None:
    """Its first items are committed before it is through."""
    app = bide.App()
    app.policy(denies("suspend"))
    app.pipeline("rows").expand(range).map(abs)
    async with world(app, store=store_url) as there:
        run = await there.start("rows", 1200)
        assert str((await there.get(run.id)).error) == "PolicyDenied: suspend: not today"
        assert (await there.progress(run.id)).expected == 0


@pytest.mark.parametrize("is_form", [False, True], ids=["json", "form"])
async def test_G1_an_answer_to_a_resume_link_is_governed(store_url: str, is_form: bool, tmp_path: Path) -> None:
    async with world(in_every_style(denies("answer"), tmp_path), store=store_url) as there:
        http, run = there.http(), await there.start("called")
        page = (await http.get(LINKS[-1])).text
        hidden = {name: unescape(value) for name, value in re.findall(r'name="([^"]+)"[^>]*? value="([^"]*)"', page)}
        sent: Any = {"data": {**hidden, "data": '{"ok": true}'}} if is_form else {"json": {"ok": True}}
        refused = await http.post(LINKS[-1], **sent)
        assert refused.status_code == 403
        assert "not today" in refused.text
        assert [denied["action"] for denied in await denials(there, run.id)] == ["answer"]
        assert (await there.get(run.id)).status == "waiting"


async def test_G1_what_the_flow_of_a_timeout_starts_is_governed(store_url: str, tmp_path: Path) -> None:
    """G1: a timeout cannot be denied; the steps of its flow are governed."""

    def judge(action: bide.Action) -> Any:
        return bide.Deny("not today") if action.kind == "start" and action.principal.startswith("run:") else None

    async with world(in_every_style(judge, tmp_path), store=store_url) as there:
        run = await there.start("filed", {})
        await there.advance("1h")
        info = await there.get(run.id)
        assert (info.status, str(info.error)) == ("failed", "PolicyDenied: start: not today")
        assert await there.runs(definition="triggered") == []


@pytest.mark.parametrize("definition", STYLES)
async def test_G1_what_was_asked_is_what_a_ledger_tells_of(store_url: str, definition: str, tmp_path: Path) -> None:
    """`bide policy test` judges by ledgers: it agrees with what is enforced where both see the same actions."""
    seen: list[bide.Action] = []
    async with world(in_every_style(seen.append, tmp_path), store=store_url) as there:
        for end in ("answer", "cancel", "fail"):
            seen.clear()
            run = await there.start(definition, STYLES[definition])
            path, body = f"/v1/runs/{run.id}/cancel", {"reason": "no more"}
            if end == "answer":
                path, body = await answer_of(there, definition, run.id)
            if end == "fail":
                [wait] = [each for each in await there.waits(run_id=run.id) if each.kind != "items"]
                path = f"/v1/waits/{wait.id}/fail"
            await there.http().post(path, json=body)
            await there.settle()

            row = await there.runtime.store.run("default", run.id)
            assert row is not None
            entries = [e for page in await there.runtime.store.ledger(row.id) for e in decode_page(page.entries)]
            told = [action for _, action in recorded_actions(row, entries)]

            # a pipeline asks at once about all that it will be parked on, and a cancel can come before
            asked = [action for action in seen if end == "answer" or action.wait_kind != "items"]
            assert sorted(map(key, told)) == sorted(map(key, asked)), end


def key(action: bide.Action) -> Any:
    """What both know: the ledger has no data of answers to requests, and policies no kind of the wait that ended."""
    where = (action.step, action.wait_kind) if action.kind == "suspend" else None
    data = action.data if (action.definition, action.kind) != ("rows", "answer") else None
    return action.kind, action.principal, action.definition, action.run_id, repr(data), where
