"""The workspace's stream: emits, triggers, repeats, receipts, retention (F8, S7, S9, S10, S12, L7, law 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import bide
from bide.core import cancelling
from bide.core.batch import Draft
from bide.core.commands import Cancel
from bide.core.events import publish
from bide.testing import world

Step = bide.Step


class Order(msgspec.Struct):
    order: int


def triggered(trigger: Any, input: Any = Any) -> bide.App:
    app = bide.App()

    @app.workflow("ship", trigger=trigger)
    async def ship(step: Step, data: Any) -> Any:
        return data

    ship.__annotations__["data"] = input
    return app


# ---------------------------------------------------------------- triggers


async def test_F8_an_event_starts_a_run_with_its_data_as_the_input(store_url: str) -> None:
    async with world(triggered("order.placed"), store=store_url) as there:
        receipt = await there.emit("order.placed", {"order": 1})
        assert (receipt.outcome, receipt.started, receipt.resumed) == ("woke", 1, 0)
        [run] = await there.runs()
        assert (run.definition, run.status, run.result) == ("ship", "completed", {"order": 1})


async def test_F8_one_event_starts_one_run_of_each_definition_that_it_triggers(store_url: str) -> None:
    app = triggered(["order.placed", "order.*"])

    @app.machine("count", trigger="*.placed")
    class Count:
        async def count(self, ctx: bide.Context[Any]) -> Any:
            return bide.Done(ctx.state)

    async with world(app, store=store_url) as there:
        assert (await there.emit("order.placed", 1)).started == 2
        assert (await there.emit("order.paid", 2)).started == 1
        assert (await there.emit("cart.filled", 3)).started == 0
        runs = await there.runs()
        assert sorted((run.definition, run.result) for run in runs) == [("count", 1), ("ship", 1), ("ship", 2)]


async def test_F17_only_the_newest_version_is_triggered(store_url: str) -> None:
    app = triggered("order.placed")

    @app.workflow("ship", version="2", trigger="order.paid")
    async def ship(step: Step, data: Any) -> Any:
        return data

    async with world(app, store=store_url) as there:
        assert (await there.emit("order.placed")).started == 0
        assert (await there.emit("order.paid")).started == 1


async def test_S12_data_that_does_not_fit_the_input_starts_nothing_and_is_kept(store_url: str) -> None:
    app = bide.App()

    @app.workflow("ship", trigger="order.*")
    async def ship(step: Step, data: Order) -> Any:
        return data.order

    @app.workflow("log", trigger="order.*")
    async def log(step: Step, data: Any) -> Any:
        return "seen"

    async with world(app, store=store_url) as there:
        assert (await there.emit("order.placed", {"order": "many"})).started == 1
        [run] = await there.runs()
        assert run.definition == "log"
        [kept] = await there.unused()
        assert (kept.reason, kept.name, kept.target) == ("invalid_payload", "order.placed", "ship")


@pytest.mark.parametrize("trigger", ["", "order..x", "a*", 7, ["ok", ""]])
def test_a_trigger_that_is_no_pattern_is_refused_at_registration(trigger: Any) -> None:
    """F8"""
    app = bide.App()
    with pytest.raises(bide.BadDefinition):

        @app.workflow("ship", trigger=trigger)
        async def ship(step: Step) -> None: ...


# ---------------------------------------------------------------- repeats


async def test_S7_the_same_event_again_changes_nothing_and_hears_what_the_first_did(store_url: str) -> None:
    app = triggered("order.placed")

    @app.workflow("wait")
    async def wait(step: Step) -> Any:
        return (await step.wait_for_event("placed", event="order.placed", timeout="1h")).data

    async with world(app, store=store_url) as there:
        await there.start("wait")
        first = await there.emit("order.placed", {"a": 1, "b": 2}, id="evt-1")
        waiting = await there.start("wait")
        again = await there.emit("order.placed", {"b": 2, "a": 1}, id="evt-1")
        assert (first.outcome, first.started, first.resumed, first.duplicate) == ("woke", 1, 1, False)
        assert (again.outcome, again.started, again.resumed, again.duplicate) == ("duplicate", 1, 1, True)
        assert (await there.get(waiting.id)).status == "waiting"
        assert len(await there.runs(definition="ship")) == 1


async def test_S7_the_same_id_with_other_data_is_a_conflict_and_the_first_stands(store_url: str) -> None:
    async with world(triggered("order.*"), store=store_url) as there:
        await there.emit("order.placed", 1, id="evt-1")
        for name, data in (("order.placed", 2), ("order.paid", 1)):
            with pytest.raises(bide.DedupConflict):
                await there.emit(name, data, id="evt-1")
        receipt = await there.emit("order.placed", 2, id="evt-1", check=False)
        assert (receipt.outcome, receipt.started) == ("conflict", 0)
        assert len(await there.runs()) == 1
        assert {kept.reason for kept in await there.unused()} == {"dedup_conflict"}


async def test_S7_two_emits_of_one_id_at_once_count_once(store_url: str) -> None:
    async with world(triggered("order.placed"), store=store_url) as there:
        client = there.client()
        receipts = await asyncio.gather(*(client.emit("order.placed", 1, id="evt-1") for _ in range(5)))
        await there.settle()
        assert sorted(receipt.outcome for receipt in receipts) == ["duplicate"] * 4 + ["woke"]
        assert len(await there.runs()) == 1


async def test_law_8_an_id_is_known_in_its_own_workspace_only(store_url: str) -> None:
    async with world(triggered("order.placed"), store=store_url) as there:
        assert (await there.emit("order.placed", 1, id="evt-1")).outcome == "woke"
        assert (await there.client("other").emit("order.placed", 2, id="evt-1")).outcome == "woke"


async def test_an_event_is_kept_for_the_event_retention_and_its_id_with_it(store_url: str) -> None:
    """§11: in small batches."""
    async with world(triggered("order.placed"), store=store_url, event_retention="1d") as there:
        for no in range(250):
            await there.emit("order.note", no, id=f"evt-{no}", settle=False)
        await there.advance("23h")
        assert (await there.emit("order.note", 0, id="evt-0")).outcome == "duplicate"
        await there.advance("2h")
        assert (await there.emit("order.note", 0, id="evt-0")).outcome == "queued"
        assert (await there.emit("order.note", 249, id="evt-249")).outcome == "queued"


# ---------------------------------------------------------------- receipts and bad input


async def test_S10_an_event_that_nobody_reacts_to_is_queued(store_url: str) -> None:
    async with world(bide.App(), store=store_url) as there:
        receipt = await there.emit("order.placed")
        assert (receipt.outcome, receipt.started, receipt.resumed) == ("queued", 0, 0)
        assert receipt.id


@pytest.mark.parametrize("name", ["", "order..x", ".", "order.*", "*", "a b", "a\nb", "x" * 201, 7, None])
async def test_F8_a_name_that_cannot_be_used_is_refused_at_the_door(name: Any) -> None:
    async with world(bide.App()) as there:
        with pytest.raises(bide.BadInput, match="event name"):
            await there.emit(name)


@pytest.mark.parametrize("id", ["", "run_1", "wait_1", "x" * 201, 7])
async def test_S2_an_event_id_that_looks_like_one_of_our_own_is_refused(id: Any) -> None:
    async with world(bide.App()) as there:
        with pytest.raises(bide.BadInput, match="event id"):
            await there.emit("order.placed", id=id)


async def test_S9_data_that_cannot_be_stored_is_refused(store_url: str) -> None:
    async with world(bide.App(), store=store_url) as there:
        with pytest.raises(bide.PayloadTooLarge):
            await there.emit("order.placed", "x" * 600_000)
        for bad in (float("nan"), {"a": object()}, "\ud800", 2**64):
            with pytest.raises(bide.Invalid):
                await there.emit("order.placed", bad)
        assert (await there.emit("order.placed", {"text": 'ü "quoted" \\ \n 😀'})).outcome == "queued"


async def test_a_run_is_resumed_by_an_app_that_does_not_know_its_definition(store_url: str) -> None:
    """F8: no registry is needed to find who waits."""
    app = bide.App()

    @app.workflow("wait")
    async def wait(step: Step) -> Any:
        return (await step.wait_for_event("placed", event="order.placed", timeout="1h")).data

    async with world(app, store=store_url) as there:
        run = await there.start("wait")
        there.runtime.registry._newest.clear()
        assert (await there.client().emit("order.placed", 1)).resumed == 1
        assert (await there.get(run.id)).status == "ready"


# ---------------------------------------------------------------- promised by other commands


async def test_W9_an_event_that_a_commit_promises_is_emitted_once(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W9, D6: it rides in the commit as a chore, and goes in the commit that emits it."""
    app = triggered("run.*")

    @app.workflow("sleep")
    async def sleep(step: Step) -> None:
        await step.sleep("long", "30d")

    real = cancelling.cancel

    def cancel(draft: Draft, command: Cancel) -> Any:
        reply = real(draft, command)
        run = draft.run(command.run_id)
        assert run is not None
        publish(draft, run, id=f"cancelled-{run.id}", name="run.cancelled", data='{"run":1}')
        return reply

    monkeypatch.setattr(cancelling, "cancel", cancel)
    async with world(app, store=store_url) as there:
        run = await there.start("sleep")
        await there.cancel(run.id)
        [started] = await there.runs(definition="ship")
        assert started.result == {"run": 1}
        assert await there.runtime.store.due_chores(10) == []
        assert (await there.emit("run.cancelled", {"run": 1}, id=f"cancelled-{run.id}", check=False)) is not None
