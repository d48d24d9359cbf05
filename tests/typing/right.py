"""How the public names infer in user code. Never run: mypy and pyright read it, both strict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_type
from uuid import UUID

import bide
import bide.testing

app = bide.App("typing")


@dataclass
class Order:
    item: str


@dataclass
class Placed:
    total: int


@dataclass
class Approval:
    approved: bool


def price(item: str, *, amount: int) -> int:
    return len(item) * amount


async def charge(amount: int) -> Placed:
    return Placed(amount)


paid = bide.Signal("paid", Order)


@app.workflow("place-order", retries=2)
async def place_order(step: bide.Step, order: Order) -> Placed:
    total = await step.run("price", price, order.item, amount=2)
    assert_type(total, int)
    placed = await step.options(timeout="30s").run("charge", charge, total)
    assert_type(placed, Placed)
    answer = await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1d", returns=Approval)
    assert_type(answer, Approval)
    or_none = await step.wait_for_signal("again", signal="again", timeout="1d", returns=Approval, default=None)
    assert_type(or_none, Approval | None)
    assert_type(await step.now(), datetime)
    assert_type(await step.uuid(), UUID)
    return placed


@app.workflow("nightly")
async def nightly(step: bide.Step) -> None:
    await step.sleep("night", "8h")


@app.machine("hello")
class Hello:
    @bide.start
    def begin(self, ctx: bide.Context[dict[str, Any]]) -> bide.Done:
        return bide.Done(ctx.state)


assert_type(place_order, bide.Workflow[Order, Placed])
assert_type(nightly, bide.Workflow[None, None])


async def use(client: bide.Client) -> None:
    run = await client.start(place_order, Order("tea"), correlation_key="order:1", if_exists="return")
    assert_type(run, bide.Run[Placed])
    assert_type(run.id, str)
    assert_type(await run.result(timeout="30s"), Placed)
    assert_type(await run.refresh(), bide.Run[Placed])
    assert_type(await run.signal(paid, Order("tea")), bide.Receipt)
    assert_type(await client.start(nightly), bide.Run[None])
    assert_type(await client.start("place-order", {"item": "tea"}), bide.Run[Any])
    assert_type(await client.start(Hello, {"any": "json"}), bide.Run[Any])
    assert_type(await client.get(run.id), bide.RunInfo)
    assert_type(await client.runs(status="waiting"), bide.Page[bide.RunInfo])
    assert_type(await client.waits(older_than="1d"), bide.Page[bide.WaitInfo])
    assert_type(await client.ledger(run.id), list[bide.LedgerEntry])


def use_blocking(client: bide.SyncClient) -> None:
    run = client.start(place_order, Order("tea"))
    assert_type(run, bide.SyncRun[Placed])
    assert_type(run.result(timeout="30s"), Placed)
    assert_type(client.start("place-order", {"item": "tea"}), bide.SyncRun[Any])
    assert_type(client.signal(run.id, "paid", dedup_key="evt-1"), bide.Receipt)
    assert_type(client.get(run.id), bide.RunInfo)


async def test_it() -> None:
    async with bide.testing.world(app) as world:
        charged = world.stub(charge, returns=Placed(1), times=1)
        run = await world.start(place_order, Order("tea"))
        assert_type(run, bide.Run[Placed])
        assert_type(charged[0].args, tuple[Any, ...])
        world.crash_at("charge", "after_code")
