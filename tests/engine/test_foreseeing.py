"""Which signals a store is told of before they are made ready, so that it may begin to read for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import bide
from bide.core.records import RunId
from bide.errors import PayloadTooLarge
from bide.stores.memory import MemoryStore
from bide.testing import world
from bide.testing.world import World


def shop() -> bide.App:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end")

        async def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[RunId]:
    runs: list[RunId] = []

    def foresee(_: MemoryStore, run_id: RunId) -> bool:
        runs.append(run_id)
        return True

    monkeypatch.setattr(MemoryStore, "foresee", foresee)
    return runs


@pytest.fixture
async def shop_world(foreseen: list[RunId]) -> AsyncIterator[World]:
    async with world(shop()) as opened:
        yield opened


async def test_a_signal_to_a_run_is_foreseen(shop_world: World, foreseen: list[RunId]) -> None:
    run = await shop_world.start("order")
    await shop_world.signal(run.id, "paid", 7)
    assert foreseen == [run.id]
    assert (await shop_world.get(run.id)).result == 7


async def test_a_signal_that_needs_more_than_the_row_of_its_run_is_not(
    shop_world: World, foreseen: list[RunId]
) -> None:
    run = await shop_world.start("order", correlation_key="order:1")
    await shop_world.signal(run.id, "seen", dedup_key="evt-1")
    await shop_world.signal("order:1", "paid", 7)
    assert foreseen == []
    assert (await shop_world.get(run.id)).status == "completed"


async def test_what_no_store_could_have_is_not_foreseen(shop_world: World, foreseen: list[RunId]) -> None:
    with pytest.raises(bide.NoTarget):
        await shop_world.signal("run_\x00", "paid")
    assert foreseen == []


async def test_a_signal_that_cannot_be_sent_was_foreseen_in_vain(shop_world: World, foreseen: list[RunId]) -> None:
    run = await shop_world.start("order")
    with pytest.raises(PayloadTooLarge):
        await shop_world.signal(run.id, "paid", "x" * 600_000)
    assert foreseen == [run.id]
    assert (await shop_world.get(run.id)).status == "waiting"


async def test_G1_nothing_is_foreseen_where_a_policy_may_take_its_time(foreseen: list[RunId]) -> None:
    app = shop()
    app.policy(lambda action: bide.Allow())
    async with world(app) as governed:
        run = await governed.start("order")
        await governed.signal(run.id, "paid", 7)
        assert (await governed.get(run.id)).status == "completed"
    assert foreseen == []


async def test_over_http_the_commit_looks_at_the_key_too(shop_world: World, foreseen: list[RunId]) -> None:
    run = await shop_world.start("order")
    async with shop_world.http() as http:
        answer = await http.post(f"/v1/runs/{run.id}/signals", json={"name": "paid", "payload": 7})
    assert answer.status_code == 202
    assert foreseen == []
