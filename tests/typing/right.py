"""How the public names infer in user code. Never run: mypy and pyright read it, both strict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, assert_type
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
closed = bide.Signal("closed")
amount = bide.Signal("amount", int)


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


@app.workflow("count")
async def count(step: bide.Step, order: Order) -> int:
    return len(order.item)


@app.workflow("asks")
async def asks(step: bide.Step) -> None:
    assert_type(await step.invoke("count", count, Order("tea")), int)
    assert_type(await step.invoke("night", nightly, timeout="1h"), None)
    placed = await step.invoke("place", place_order, Order("tea"))
    assert_type(placed, Placed)
    assert_type(await step.invoke("late", place_order, Order("tea"), timeout="1h", default=None), Placed | None)
    assert_type(await step.invoke("strict", count, Order("tea"), timeout="1h", on_timeout=bide.FAIL), int)
    assert_type(await step.invoke("name", "place-order", {"item": "tea"}), Any)
    assert_type(await step.launch("count", count, Order("tea"), correlation_key="k", queue="big"), str)
    assert_type(await step.launch("name", "place-order", {"item": "tea"}), str)

    received = await step.receive("paid", paid, "refunded", timeout="1h")
    assert_type(received, bide.Received)
    assert_type(received.payload, Any)  # an Order, or the JSON of whatever else came
    order = await step.receive("paid", paid, timeout="1h")
    assert_type(order, bide.Received[Order])
    assert_type(order.payload, Order)
    assert_type((await step.receive("closed", closed, timeout="1h")).payload, Any)
    assert_type((await step.receive("by name", "paid", timeout="1h")).payload, Any)
    assert_type(await step.receive("maybe", paid, timeout="1h", default=None), bide.Received[Order] | None)
    assert_type(await step.receive("strict", paid, timeout="1h", on_timeout=bide.FAIL), bide.Received[Order])
    assert_type(await step.receive_all("pack", paid, at_least=3, timeout="1h"), list[bide.Received[Order]])
    assert_type(await step.inbox(), list[bide.Received])
    either = await step.first("either", step.receive("a", paid, timeout="1h"), step.receive("b", amount, timeout="1h"))
    assert_type(either.value.payload, Order | int)
    both = await step.all("both", step.receive("a", paid, timeout="1h"), step.receive("b", amount, timeout="1h"))
    assert_type((both[0].payload, both[1].payload), tuple[Order, int])

    gate = step.wait_for_signal("gate", signal="gate", timeout="1h", returns=Approval)
    count_of = step.wait_for_signal("count", signal="count", timeout="1h", returns=int)
    won = await step.first("first", gate, count_of)
    assert_type(won, bide.Wait[Approval] | bide.Wait[int])
    assert_type(await step.all("all", gate, count_of), tuple[Approval, int])
    assert_type([wait.value for wait in await step.quorum("two", 1, gate, gate)], list[Approval])

    assert_type(await step.ask("ask", title="Sure?", form=Approval, timeout="1h"), Approval)
    event = await step.wait_for_event("event", event="order.*", timeout="1h")
    assert_type(event, bide.Event)
    assert_type(event.data, Any)
    assert_type(await step.wait_for_event("maybe", event="a.b", timeout="1h", default=0), bide.Event | int)
    assert_type(await step.emit("emit", "order.placed", {"n": 1}), bide.EventReceipt)

    choice: Literal["yes", "no"] = await step.wait_for_signal(
        "choice", signal="choice", timeout="1h", returns=Literal["yes", "no"]
    )
    or_nothing: Approval | None = await step.wait_for_signal(
        "union", signal="union", timeout="1h", returns=Approval | None
    )
    print(choice, or_nothing)


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
    assert_type(await client.signal(run.id, paid, Order("tea"), "evt-1"), bide.Receipt)
    assert_type(await client.signal(run.id, closed), bide.Receipt)
    assert_type(await client.signal(run.id, closed, {"any": "json"}), bide.Receipt)
    assert_type(await client.signal(run.id, "any", {"any": "json"}), bide.Receipt)
    assert_type(await client.answer("int_1", Approval(True), by="ann"), bide.Receipt)
    assert_type(await client.emit("order.shipped", {"order": 1}, id="evt-9"), bide.EventReceipt)
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
    assert_type(client.signal(run.id, paid, Order("tea")), bide.Receipt)
    assert_type(run.signal(paid, Order("tea")), bide.Receipt)
    assert_type(client.get(run.id), bide.RunInfo)


async def test_it() -> None:
    async with bide.testing.world(app) as world:
        charged = world.stub(charge, returns=Placed(1), times=1)
        run = await world.start(place_order, Order("tea"))
        assert_type(run, bide.Run[Placed])
        assert_type(charged[0].args, tuple[Any, ...])
        world.crash_at("charge", "after_code")
        assert_type(await world.signal(run.id, paid, Order("tea"), settle=False), bide.Receipt)
        assert_type(await world.result(run.id, timeout="30s"), Any)
        assert_type(await world.runs(status="waiting"), bide.Page[bide.RunInfo])
    assert_type(await bide.testing.explore(app, scenario, most=10), bide.testing.Explored)


async def scenario(world: bide.testing.World, ex: bide.testing.Exploration) -> None:
    run = await world.start(place_order, Order("tea"))
    ex.action("pay", lambda: world.signal(run.id, paid, Order("tea")))

    @ex.always
    def holds() -> bool:
        return True

    assert_type(holds(), bool)
