"""`bide.Client(url, key=…)`: the methods of the client in the app's own process, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import bide
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
