"""Children whose start a policy wants approved: their parents wait until somebody said yes or no (G1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bide
from bide.testing import World, world

CANARY = "4111-canary-1111"

FILE = """machine caller
    implements
        action paid call
            machine: "payout"
            amount: 5
        compute result
            {paid: steps.paid}
        on failure
            compute result
                {type: error.type, message: error.message, step: error.step}
"""


def children(action: bide.Action) -> bide.NeedsApproval | None:
    """Runs start others with an approval alone."""
    is_child = action.kind == "start" and action.principal.startswith("run:")
    return bide.NeedsApproval(title=f"{action.definition}?", assignee="ann", timeout="1d") if is_child else None


def shop(tmp_path: Path | None = None, policy: Any = children) -> bide.App:
    app = bide.App()
    app.policy(policy)

    @app.workflow("payout", redact=["card"], retries=0)
    async def payout(step: bide.Step, order: dict[str, Any]) -> Any:
        if order.get("fails"):
            raise ValueError("no money")
        if order.get("waits"):
            await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1h")
        return order

    @app.machine("stopping")
    class Stopping:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Stop:
            return bide.Stop("no use")

    @app.workflow("invoking", retries=0)
    async def invoking(step: bide.Step, order: dict[str, Any]) -> Any:
        try:
            return {"paid": await step.invoke("pay", order.pop("definition", "payout"), order)}
        except bide.RunStoppedError as error:
            return {"stopped": str(error.error)}

    @app.workflow("launching")
    async def launching(step: bide.Step) -> str:
        return await step.launch("pay", "payout", {"amount": 5}, correlation_key="pay:5", tags={"team": "eu"})

    @app.machine("spawning")
    class Spawning:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Spawn:
            return bide.Spawn([("payout", {"amount": 1}), ("payout", {"amount": 2})], then="end")

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done([[c.definition, c.status, c.result, str(c.error or "")] for c in ctx.children])

    if tmp_path is not None:
        (tmp_path / "caller.machine").write_text(FILE)
        app.load(tmp_path / "caller.machine")
    return app


async def judge(there: World, approved: bool, reason: str = "", of: Any = None) -> None:
    """Answer the approval that is open, or the one of a child with this input."""
    asked = await there.interactions(assignee="ann")
    [task] = [each for each in asked if of is None or each.payload["data"] == of]
    await there.answer(task.id, {"approved": approved, "reason": reason}, by="ann")


async def test_G1_a_parent_waits_until_its_child_is_approved(store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("invoking", {"amount": 5, "waits": True})
        assert (await there.get(run.id)).status == "waiting"
        assert await there.runs(definition="payout") == []
        [task] = await there.interactions(assignee="ann")
        assert (task.title, task.payload["data"]) == ("payout?", {"amount": 5, "waits": True})
        assert "(payout, once it is approved) is waiting" in str(await there.client().explain(run.id))
        await judge(there, True)
        [child] = await there.runs(definition="payout")
        assert (await there.get(run.id)).status == "waiting"
        await there.complete(f"gate-{child.id}", None)
        assert await there.result(run.id) == {"paid": {"amount": 5, "waits": True}}
        assert await there.audit() == []


@pytest.mark.parametrize("how", ["no", "late"])
async def test_G1_a_child_that_is_not_approved_fails_its_parent_and_says_so(how: str, store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("invoking", {"amount": 5})
        if how == "no":
            await judge(there, False, "too much")
        await there.advance("1d")
        with pytest.raises(bide.RunFailedError) as failed:
            await there.result(run.id)
        said = {"no": "start: ann did not approve it: too much", "late": "start: it was not approved: nobody answered"}
        assert f"PolicyDenied: {said[how]}" in str(failed.value)
        assert await there.runs(definition="payout") == []
        assert await there.audit() == []


async def test_G1_an_approved_child_ends_as_it_ends(store_url: str) -> None:
    """What its parent is told is what it would be told without an approval."""
    orders: list[dict[str, Any]] = [{"fails": True}, {"definition": "stopping"}, {"waits": True}]
    found: list[list[Any]] = []
    for policy in (children, lambda action: None):
        async with world(shop(policy=policy), store=store_url) as there:
            runs = []
            for order in orders:
                runs.append(await there.start("invoking", order))
                if policy is children:
                    await judge(there, True)
            [child] = await there.runs(definition="payout", status="waiting")
            await there.cancel(child.id)
            found.append([await ending(there, run.id) for run in runs])
            assert await there.audit() == []
    assert found[0] == found[1]
    assert [end[0] for end in found[0]] == ["failed", "completed", "failed"]


async def ending(there: World, run_id: str) -> tuple[str, Any, str]:
    info = await there.get(run_id)
    message = info.error.message if info.error is not None else ""
    return info.status, info.result, " ".join(word for word in message.split() if not word.startswith("run_"))


async def test_G1_children_of_a_machine_are_approved_one_by_one(store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("spawning")
        await judge(there, True, of={"amount": 1})
        await judge(there, False, "once is enough", of={"amount": 2})
        denied = "PolicyDenied: start: ann did not approve it: once is enough"
        assert await there.result(run.id) == [
            ["payout", "completed", {"amount": 1}, ""],
            ["payout", "failed", None, denied],
        ]
        assert await there.audit() == []


@pytest.mark.parametrize("approved", [True, False])
async def test_G1_a_machine_file_waits_for_the_approval_of_what_it_calls(
    approved: bool, store_url: str, tmp_path: Path
) -> None:
    async with world(shop(tmp_path), store=store_url) as there:
        run = await there.start("caller")
        assert (await there.get(run.id)).status == "waiting"
        await judge(there, approved, "well")
        denied = {
            "type": "permission_denied",
            "message": "start: ann did not approve it: well",
            "step": "paid",
        }
        assert await there.result(run.id) == ({"paid": {"amount": 5}} if approved else denied)


@pytest.mark.parametrize("approved", [True, False])
async def test_G1_what_is_launched_starts_once_it_is_approved(approved: bool, store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("launching")
        asking = await there.result(run.id)
        assert (await there.get(asking)).definition == "bide.approval"
        await judge(there, approved)
        told, started = await there.result(asking), await there.runs(definition="payout")
        assert [(each.id, each.correlation_key, each.tags) for each in started] == (
            [(told["run_id"], "pay:5", {"team": "eu"})] if approved else []
        )


async def test_G1_a_cancelled_parent_takes_the_question_with_it(store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        asked, begun = await there.start("invoking", {"n": 1}), await there.start("invoking", {"waits": True})
        await judge(there, True, of={"waits": True})
        for run in (asked, begun):
            await there.cancel(run.id)
        await there.settle()
        assert {run.status for run in await there.runs()} == {"cancelled"}
        assert await there.interactions(assignee="ann", status="waiting") == []
        assert await there.audit() == []


async def test_G1_an_approved_child_starts_once_though_workers_die(store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("invoking", {"amount": 5}, settle=False)
        await there.crash()
        await there.settle()
        [task] = await there.interactions(assignee="ann")
        await there.answer(task.id, {"approved": True}, by="ann", settle=False)
        await there.crash()
        await there.settle()
        assert await there.result(run.id) == {"paid": {"amount": 5}}
        assert len(await there.runs(definition="payout")) == 1
        assert await there.audit() == []


async def test_G4_a_child_that_waits_for_its_approval_hides_what_it_hides(store_url: str) -> None:
    async with world(shop(), store=store_url) as there:
        run = await there.start("invoking", {"card": CANARY, "command": "pay"})
        shown = repr([await there.runs(), await there.interactions(), await there.waits()])
        await judge(there, True)
        result = await there.result(run.id)
        assert result == {"paid": {"card": CANARY, "command": "pay"}}
        infos = [await there.get(each.id) for each in await there.runs()]
        shown += repr([infos, [await there.ledger(each.id) for each in infos], await there.interactions(status=None)])
        assert CANARY not in shown
        assert (await there.get(run.id)).result == {"paid": {"card": "[redacted]", "command": "pay"}}


async def test_G1_what_is_too_large_to_wait_for_an_approval_is_denied() -> None:
    async with world(shop()) as there:
        run = await there.start("invoking", {"note": "x" * 300_000})
        assert "PolicyDenied: start: it needs an approval, and cannot wait for one" in str(
            (await there.get(run.id)).error
        )
