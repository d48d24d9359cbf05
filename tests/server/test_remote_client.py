"""`bide.Client(url, key=…)`: the methods of the client in the app's own process, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

import bide
from bide.core.samples import sample
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app


def remote(w: World, **options: Any) -> Any:
    return bide.Client("http://bide.test", http=w.http(**options))


async def test_a_run_is_started_watched_and_answered(store_url: str) -> None:
    """§12: the same methods."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("outreach", {"contact": 1}, correlation_key="c:1", tags={"city": "Bern"})

        assert (await run.refresh()).status == "waiting"
        assert [found.id for found in await client.runs(tags={"city": "Bern"})] == [run.id]
        assert [wait.run_id for wait in await client.waits(run_id=run.id)] == [run.id]
        receipt = await client.complete(f"approval-{run.id}", {"approved": True})
        assert receipt.outcome == "woke"
        assert await run.result(timeout="60s") == {"status": "sent", "reason": None}
        assert await client.result(run.id) == {"status": "sent", "reason": None}
        assert (await client.ledger(run.id))[0].name == "run_started"
        assert [step.id for step in await client.steps(run.id)] == ["gate"]
        assert await client.get(run.id) == await w.get(run.id)


async def test_errors_are_the_ones_of_the_client_in_process(store_url: str) -> None:
    """Typed errors, by the code of the problem."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("order", correlation_key="order:1")

        with pytest.raises(bide.RunNotFound):
            await client.get("run_7")
        with pytest.raises(bide.DefinitionNotFound):
            await client.start("ordr")
        with pytest.raises(bide.DuplicateRun):
            await client.start("order", correlation_key="order:1")
        with pytest.raises(bide.NoTarget):
            await client.signal("nobody", "paid")
        with pytest.raises(bide.Invalid):
            await client.start("typed", {"approved": "x"})
        with pytest.raises(bide.Forbidden):
            await remote(w, scopes=["runs:read"]).cancel(run.id)
        with pytest.raises(bide.RunTimeoutError):
            await client.result(run.id, timeout="1ms")
        with pytest.raises(bide.Unauthorized):
            await bide.Client("http://bide.test", http=httpx.AsyncClient(transport=w.http()._transport)).get("run_7")
        assert (await client.signal("nobody", "paid", check=False)).outcome == "no_target"
        await run.cancel("enough")
        assert run.status == "cancelled"
        with pytest.raises(bide.RunCancelledError):
            await run.result()


async def test_a_call_whose_answer_is_lost_is_made_again_and_done_once(store_url: str) -> None:
    """H2, law 5: the retry carries the same idempotency key."""
    async with world(app, store_url) as w:
        http = w.http()
        lost = 2

        class Lossy(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                nonlocal lost
                response = await http._transport.handle_async_request(request)
                if lost and request.method == "POST":
                    lost -= 1
                    raise httpx.ReadError("the connection broke")
                return response

        client = bide.Client("http://bide.test", http=httpx.AsyncClient(transport=Lossy(), headers=http.headers))
        run = await client.start("outreach")
        lost = 1
        receipt = await client.complete(f"approval-{run.id}", {"approved": True})

        assert receipt.duplicate
        assert [one.id for one in await client.runs()] == [run.id]
        assert (await run.result(timeout="60s"))["status"] == "sent"


async def test_tasks_and_events_over_http(store_url: str) -> None:
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("task")
        [task] = await client.interactions(run_id=run.id)
        assert (await client.claim(task.id, "ann")).claimed_by == "ann"
        moved = await client.update_wait(task.wait_id, deadline="1d", reason="holidays")
        assert moved.deadline is not None
        assert (await client.answer(task.id, {"approved": True}, by="ann")).outcome == "woke"
        assert (await client.emit("order.shipped", {"order": 1}, id="evt-1")).started == 0


async def test_start_or_signal_is_one_call(store_url: str) -> None:
    """S11."""
    async with world(app, store_url) as w:
        client = remote(w)
        call = {"correlation_key": "order:1", "name": "paid", "payload": {"n": 1}, "dedup_key": "evt-1"}

        first = await client.start_or_signal("order", {"item": 7}, tags={"city": "Bern"}, **call)
        again = await client.start_or_signal("order", {"item": 7}, **call)

        assert (first.started, again.outcome, again.run_id) == (True, "duplicate", first.run_id)
        assert await client.result(first.run_id, timeout="1m") == {"paid": [{"n": 1}]}
        assert (await client.get(first.run_id)).tags == {"city": "Bern"}
        with pytest.raises(bide.DefinitionNotFound):
            await client.start_or_signal("ordr", correlation_key="order:2", name="paid")
        with pytest.raises(bide.Forbidden):
            await remote(w, scopes=["signals:send"]).start_or_signal("order", correlation_key="order:2", name="paid")


async def test_many_signals_are_delivered_together_or_not_at_all(store_url: str) -> None:
    """S11: `signal_many` is all or nothing."""
    async with world(app, store_url) as w:
        client = remote(w)
        first = await client.start("order", correlation_key="order:1")
        second = await client.start("order")

        with pytest.raises(bide.NoTarget):
            await client.signal_many([bide.SignalTo("order:1", "paid", 1), bide.SignalTo("nobody", "paid", 2)])
        assert await client.inbox(first.id) == []
        receipts = await client.signal_many([bide.SignalTo("order:1", "paid", 1), bide.SignalTo(second.id, "paid", 2)])

        assert [receipt.run_id for receipt in receipts] == [first.id, second.id]
        assert [(await run.result(timeout="1m"))["paid"] for run in (first, second)] == [[1], [2]]


async def test_a_run_is_found_by_the_correlation_key_that_it_holds(store_url: str) -> None:
    """S2: no key looks like an id, so that one call takes both."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("order", correlation_key="order/1")

        assert (await client.get("order/1")).id == (await w.get("order/1")).id == run.id
        with pytest.raises(bide.RunNotFound):
            await remote(w, workspace="other").get("order/1")
        await run.cancel()
        with pytest.raises(bide.RunNotFound):
            await client.get("order/1")


async def test_a_key_that_may_only_start_runs_gets_a_handle(store_url: str) -> None:
    """G5: the run is there, so the call that started it has not failed."""
    async with world(app, store_url) as w:
        run = await remote(w, scopes=["runs:start"]).start("order", {"item": 7}, correlation_key="order:1")

        found = await w.get(run.id)
        assert (run.info.correlation_key, run.info.input) == (found.correlation_key, {"item": 7})


async def test_W10_waits_are_found_and_changed_by_filter(store_url: str) -> None:
    """W10, over HTTP as in process."""
    async with world(app, store_url) as w:
        client = remote(w)
        runs = [await client.start("task") for _ in range(3)]
        await client.start("order")

        dry = await client.fail_waits(definition="task", reason="why not", dry_run=True)
        changed = await client.update_waits(definition="task", kind="task", to_assignee="ann", reason="holidays")
        failed = await client.fail_waits(run_id=runs[0].id, reason="why not")

        assert (dry.count, dry.ids) == (3, changed.ids)
        assert {one.assignee for one in await client.interactions(assignee="ann")} == {"ann"}
        left = [id for id in changed.ids if id not in failed.ids]
        assert [wait.id for wait in await client.waits(assignee="ann")] == left
        with pytest.raises(bide.BadInput):
            await client.cancel_waits(reason="all of them?")


async def test_W10_waits_are_answered_by_filter_over_http(store_url: str) -> None:
    """W10: as in process, with the reason in the ledger."""
    async with world(app, store_url) as w:
        client = remote(w)
        runs = [await client.start("task") for _ in range(2)]
        await w.settle()
        schema = (await client.waits(run_id=runs[0].id))[0].details["schema"]

        dry = await client.answer_waits(sample(schema), definition="task", reason="by phone", dry_run=True)
        wrong = await client.answer_waits([[]], definition="task", reason="by phone")
        done = await client.answer_waits(sample(schema), definition="task", reason="by phone")

        assert (dry.count, dry.ids) == (2, done.ids)
        assert [(one.outcome, bool(one.problems)) for one in wrong.outcomes] == [("invalid", True)] * 2
        entries = await client.ledger(runs[0].id)
        assert "by phone" in [entry.data.get("reason") for entry in entries if entry.name == "await_answer_received"]
        assert await client.waits(definition="task") == []


async def test_a_run_explains_itself_over_http(store_url: str) -> None:
    async with world(app, store_url) as w:
        run = await remote(w).start("order")

        said = await remote(w).explain(run.id, options="--url http://bide.test")

        assert said == await w.client().explain(run.id, options="--url http://bide.test")
        assert any(sentence.endswith("--url http://bide.test") for sentence in said.explanation)
        assert (await remote(w).progress(run.id)).expected == 0


@pytest.mark.parametrize("hold", ["10m", 600, timedelta(minutes=10)])
async def test_F7_an_answer_is_held_over_http_too(hold: Any) -> None:
    async with world(app) as w:
        receipt = await remote(w).complete("nobody-yet", {"approved": True}, hold=hold)
        assert (receipt.outcome, receipt.run_id) == ("queued", None)
        await w.advance("9m")
        assert await w.unused() == []
        await w.advance("1m")
        assert [kept.reason for kept in await w.unused()] == ["expired"]
