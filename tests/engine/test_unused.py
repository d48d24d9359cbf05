"""What arrived and could not be used (S12), typed signals (S13), and calls of several parts (S11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

import bide
from bide.testing import world


class Payment(msgspec.Struct):
    amount: int


paid = bide.Signal("paid", Payment)


def shop() -> bide.App:
    app = bide.App()

    @app.machine("order", signals=[paid])
    class Order:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await([paid, "note"], then="end")

        async def end(self, ctx: bide.Context[Any]) -> bide.Done:
            [signal, *_] = ctx.awaited
            typed = isinstance(signal.payload, Payment)
            return bide.Done({"signal": signal.name, "typed": typed, "amount": getattr(signal.payload, "amount", None)})

    return app


async def test_S12_what_could_not_be_used_is_kept_with_its_reason(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        run = await w.start("order")
        await w.signal(run.id, paid.name, {"amount": "many"}, check=False)
        await w.signal(run.id, "note", dedup_key="k")
        await w.signal(run.id, "note", "late", check=False)
        await w.signal("order:unknown", "note", "unmatched", check=False)
        await w.signal(run.id, "note", "other payload", dedup_key="k", check=False)
        kept = {unused.reason: (unused.target, unused.payload) for unused in await w.unused()}
        assert kept == {
            "completed": (run.id, "late"),
            "not_found": ("order:unknown", "unmatched"),
            "dedup_conflict": (run.id, "other payload"),
            "invalid_payload": (run.id, {"amount": "many"}),
        }


async def test_S12_an_operator_re_addresses_what_was_kept_once(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        await w.signal("order:1", "note", "early", check=False)
        [kept] = await w.unused()
        refused = await w.readdress(kept.id, "order:1", check=False)
        assert (refused.outcome, len(await w.unused())) == ("no_target", 1)
        run = await w.start("order", correlation_key="order:1")
        assert (await w.readdress(kept.id, "order:1")).outcome == "woke"
        assert (await w.get(run.id)).status == "completed"
        assert await w.unused() == []
        with pytest.raises(bide.UnusedNotFound, match=kept.id):
            await w.readdress(kept.id, "order:1")


async def test_S12_only_the_newest_of_a_workspace_are_kept_and_only_for_the_retention_time(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        store = w.runtime.store
        for number in range(5):
            await w.signal("nobody", "note", number, check=False)
            await w.advance("1m")
        await w.client("other").signal("nobody", "note", "theirs", check=False)
        assert await store.trim_unused(timedelta(days=1), 3, 100) == 2
        assert [unused.payload for unused in await w.unused()] == [2, 3, 4]
        assert await store.trim_unused(timedelta(minutes=1, seconds=30), 3, 1) == 1
        assert [unused.payload for unused in await w.unused()] == [3, 4]
        await w.advance("31d")
        assert await w.unused() == []
        assert await w.client("other").unused() == []


async def test_S12_another_workspace_sees_nothing_of_what_was_kept(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        await w.signal("nobody", "note", check=False)
        [kept] = await w.unused()
        other = w.client("other")
        assert await other.unused() == []
        with pytest.raises(bide.UnusedNotFound):
            await other.readdress(kept.id, "nobody")


async def test_S13_a_declared_signal_is_checked_at_the_door_and_handed_over_as_its_type(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        run = await w.start("order", correlation_key="order:1")
        for target in (run.id, "order:1"):
            receipt = await w.signal(target, "paid", {"amount": "many"}, check=False)
            assert receipt.outcome == "invalid"
            assert "amount" in str(receipt.reason)
            with pytest.raises(bide.BadInput, match="amount"):
                await w.signal(target, paid.name, {"amount": None})
        assert (await w.get(run.id)).status == "waiting"
        assert (await w.signal(run.id, paid, Payment(amount=5))).outcome == "woke"
        assert await w.result(run.id) == {"signal": "paid", "typed": True, "amount": 5}


async def test_S13_a_kept_signal_that_is_readdressed_is_checked_too(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        await w.signal("nobody", "paid", {"amount": "many"}, check=False)
        [kept] = await w.unused()
        run = await w.start("order")
        assert (await w.readdress(kept.id, run.id, check=False)).outcome == "invalid"
        assert [each.id for each in await w.unused()] == [kept.id]
        assert await w.inbox(run.id) == []


async def test_S13_nothing_is_started_for_a_signal_that_does_not_fit(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        call: dict[str, Any] = {"correlation_key": "order:1", "name": "paid", "payload": {"amount": "many"}}
        assert (await w.start_or_signal("order", check=False, **call)).outcome == "invalid"
        assert await w.runs() == []
        [kept] = await w.unused()
        assert (kept.reason, kept.target) == ("invalid_payload", "order:1")


async def test_S13_an_undeclared_name_takes_any_json(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        run = await w.start("order")
        assert (await w.signal(run.id, "note", [1, {"a": None}])).outcome == "woke"


def approvals() -> bide.App:
    app = bide.App()

    @app.workflow("approval")
    async def approval(step: bide.Step, how: str) -> Any:
        if how == "task":
            return await step.ask("gate", title="?", form=bool, timeout="1h")
        return await step.wait_for_signal("gate", signal="s1", timeout="1h", returns=bool)

    return app


@pytest.mark.parametrize("how", ["signal id", "wait", "task"])
async def test_S12_an_answer_that_came_too_early_is_given_to_its_wait(store_url: str, how: str) -> None:
    async with world(approvals(), store=store_url) as w:
        await w.complete("s1", True, check=False)
        await w.complete("s1", "maybe", check=False)
        fits, unfit = sorted(await w.unused(), key=lambda kept: kept.payload != True)  # noqa: E712  # "maybe" is true, too
        run = await w.start("approval", how)
        [wait] = await w.waits(run_id=run.id)
        asked = [task.id for task in await w.interactions(run_id=run.id)]
        target = {"signal id": "s1", "wait": wait.id, "task": asked[0] if asked else ""}[how]

        refused = await w.readdress(unfit.id, target, check=False)
        assert (refused.outcome, refused.wait_id) == ("invalid", wait.id)
        assert len(await w.unused()) == 2, "it is kept once, and stays"
        taken = await w.readdress(fits.id, target)
        assert (taken.outcome, taken.run_id) == ("woke", run.id)
        assert await w.result(run.id) is True
        assert [kept.id for kept in await w.unused()] == [unfit.id]
        late = await w.readdress(unfit.id, target, check=False)
        assert late.outcome == ("conflict" if how == "task" else "late")
        with pytest.raises(bide.UnusedNotFound):
            await w.readdress(fits.id, target)


async def test_S12_a_kept_arrival_goes_to_the_run_whose_key_is_a_signal_id_too(store_url: str) -> None:
    app = approvals()

    @app.workflow("inbox")
    async def inbox(step: bide.Step, event: None) -> Any:
        return (await step.receive("any", "s1", timeout="1h")).payload

    async with world(app, store=store_url) as w:
        await w.complete("s1", 7, check=False)
        [kept] = await w.unused()
        await w.start("approval", "signal id")
        run = await w.start("inbox", correlation_key="s1")
        assert (await w.readdress(kept.id, "s1")).run_id == run.id
        assert await w.result(run.id) == 7


async def test_S11_start_or_signal_starts_once_and_signals_every_time(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        call: dict[str, Any] = {"correlation_key": "order:1", "name": "note"}
        first = await w.start_or_signal("order", {"n": 1}, payload=1, dedup_key="a", **call)
        assert (first.started, first.outcome) == (True, "queued")
        again = await w.start_or_signal("order", {"n": 1}, payload=1, dedup_key="a", **call)
        assert (again.started, again.outcome, again.run_id) == (False, "duplicate", first.run_id)
        [run] = await w.runs()
        assert run.status == "completed"  # the signal was there when it came to wait
        second = await w.start_or_signal("order", {"n": 2}, payload=2, dedup_key="b", **call)
        assert second.started
        assert second.run_id != first.run_id


async def test_S11_start_or_signal_signals_the_run_that_holds_the_key(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        run = await w.start("order", correlation_key="order:1")
        receipt = await w.start_or_signal("order", correlation_key="order:1", name=paid, payload=Payment(amount=1))
        assert (receipt.started, receipt.outcome, receipt.run_id) == (False, "woke", run.id)
        assert len(await w.runs()) == 1


async def test_S11_signal_many_delivers_all_or_none(store_url: str) -> None:
    async with world(shop(), store=store_url) as w:
        one, two = await w.start("order"), await w.start("order")
        with pytest.raises(bide.NoTarget, match="nobody"):
            await w.signal_many([bide.SignalTo(one.id, "note"), bide.SignalTo("nobody", "note")])
        receipts = await w.signal_many(
            [bide.SignalTo(one.id, "note"), bide.SignalTo(two.id, "paid", {"amount": "x"})], check=False
        )
        assert [receipt.outcome for receipt in receipts] == ["ignored", "invalid"]
        kept = sorted((arrival.target, arrival.reason) for arrival in await w.unused())
        assert kept == [("nobody", "not_found"), (two.id, "invalid_payload")], "S12: those for which they were refused"
        assert [(await w.get(run.id)).status for run in (one, two)] == ["waiting", "waiting"]
        assert await w.inbox(one.id) == []
        receipts = await w.signal_many([bide.SignalTo(one.id, "note"), bide.SignalTo(two.id, paid, Payment(amount=2))])
        assert [receipt.outcome for receipt in receipts] == ["woke", "woke"]
        assert [(await w.get(run.id)).status for run in (one, two)] == ["completed", "completed"]


async def test_F48_a_full_inbox_takes_what_the_run_waits_for_and_nothing_else(store_url: str) -> None:
    async with world(shop(), store=store_url, max_inbox=2) as w:
        run = await w.start("order", correlation_key="order:1")
        for number in range(2):
            await w.signal("order:1", "other", number)
        for check in (True, False):
            with pytest.raises(bide.InboxFull, match=f"{run.id} has 2 signals in its inbox") as refused:
                await w.signal(run.id, "other", 2, check=check)
        assert (refused.value.run_id, refused.value.limit, refused.value.status) == (run.id, 2, 429)
        with pytest.raises(bide.InboxFull):
            await w.signal_many([bide.SignalTo(run.id, "note"), bide.SignalTo("order:1", "other")])
        assert len(await w.inbox(run.id)) == 2
        assert (await w.signal(run.id, "note")).outcome == "woke"
        assert (await w.get(run.id)).status == "completed"
        assert await w.unused() == []
