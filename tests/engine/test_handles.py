"""Handles on runs: what a workflow says it returns is what its handle gives (contract §12, F1)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pydantic
import pytest

import bide
import bide.testing


@dataclass
class Order:
    item: str
    price: Decimal


@dataclass
class Placed:
    order: Order
    paid: bool


class Invoice(pydantic.BaseModel):
    total: Decimal


app = bide.App("handles")


@app.workflow("place-order")
async def place_order(step: bide.Step, order: Order) -> Placed:
    return Placed(order, paid=True)


@app.workflow("invoice")
async def invoice(step: bide.Step, order: Order) -> Invoice:
    return Invoice(total=order.price)


@app.workflow("nothing")
async def nothing(step: bide.Step) -> None:
    return None


@app.workflow("liar")
async def liar(step: bide.Step) -> int:
    return "seven"  # type: ignore[return-value]  # as code does that nobody checks


@app.workflow("never")
async def never(step: bide.Step) -> NoReturn:
    raise bide.NonRetryable("as it says")


@app.workflow("slow")
async def slow(step: bide.Step, order: Order) -> Placed:
    await step.sleep("while", "1h")
    return Placed(order, paid=False)


ORDER = Order("tea", Decimal("3.50"))


async def test_a_handle_gives_the_result_as_the_type_that_the_workflow_returns(store_url: str) -> None:
    """F1: the stored form, decoded by the return annotation."""
    async with bide.testing.world(app, store_url) as world:
        assert await (await world.start(place_order, ORDER)).result() == Placed(ORDER, paid=True)
        assert await (await world.start(invoice, ORDER)).result() == Invoice(total=Decimal("3.50"))
        assert await (await world.start(nothing)).result() is None  # type: ignore[func-returns-value]  # a result too


async def test_a_handle_by_name_gives_plain_values(store_url: str) -> None:
    async with bide.testing.world(app, store_url) as world:
        run = await world.start("place-order", {"item": "tea", "price": "3.50"})
        assert await run.result() == {"order": {"item": "tea", "price": "3.50"}, "paid": True}
        assert await world.result(run.id) == await run.result()


async def test_a_result_that_is_not_what_the_workflow_says_is_told_and_can_still_be_read(store_url: str) -> None:
    async with bide.testing.world(app, store_url) as world:
        run = await world.start(liar)
        with pytest.raises(bide.HistoryMismatch, match=r"cannot be read as int, which is what 'liar' says it returns"):
            await run.result()
        assert (await world.get(run.id)).result == "seven"


async def test_an_end_without_a_result_is_an_error_whatever_the_type(store_url: str) -> None:
    async with bide.testing.world(app, store_url) as world:
        run = await world.start(never)
        with pytest.raises(bide.RunFailedError, match="as it says"):
            await run.result()
        run_of_slow = await world.start(slow, ORDER)
        await run_of_slow.cancel("changed my mind")
        assert run_of_slow.status == "cancelled"
        with pytest.raises(bide.RunCancelledError):
            await run_of_slow.result()


async def test_the_run_that_holds_the_key_is_given_with_its_type(store_url: str) -> None:
    """S8: `if_exists` says what a second start leads to."""
    async with bide.testing.world(app, store_url) as world:
        first = await world.start(slow, ORDER, correlation_key="order:1")
        with pytest.raises(bide.DuplicateRun, match=first.id):
            await world.start(slow, ORDER, correlation_key="order:1")
        second = await world.start(slow, ORDER, correlation_key="order:1", if_exists="return")
        assert second.id == first.id
        await world.advance("1h")
        assert await second.result() == Placed(ORDER, paid=False)


async def test_a_run_of_another_definition_that_holds_the_key_is_not_read_as_this_one(store_url: str) -> None:
    async with bide.testing.world(app, store_url) as world:
        held = await world.start(slow, ORDER, correlation_key="order:1")
        other: bide.Run[Any] = await world.start(invoice, ORDER, correlation_key="order:1", if_exists="return")
        assert other.id == held.id
        await world.advance("1h")
        assert await other.result() == {"order": {"item": "tea", "price": "3.50"}, "paid": False}


async def test_what_is_no_definition_is_refused_before_anything_is_stored(store_url: str) -> None:
    async def plain(step: bide.Step) -> None: ...

    async with bide.testing.world(app, store_url) as world:
        with pytest.raises(bide.BadInput, match=r"is no definition; give its name, or what @app.machine or @app.workf"):
            await world.start(plain)  # type: ignore[call-overload]  # checkers refuse it too
        assert await world.runs() == []


async def test_a_workflow_called_in_the_body_of_another_is_the_function_itself() -> None:
    @app.workflow("twice")
    async def twice(step: bide.Step, order: Order) -> list[bool]:
        return [(await place_order(step, order)).paid, (await place_order(step, order)).paid]

    async with bide.testing.world(app) as world:
        assert await (await world.start(twice, ORDER)).result() == [True, True]
    assert twice.__name__ == "twice"
    assert repr(twice) == "<Workflow twice version 1>"


def test_a_result_type_that_nothing_can_be_read_as_is_refused_at_registration() -> None:
    async def opaque(step: bide.Step) -> threading.Lock:
        raise AssertionError

    with pytest.raises(bide.BadDefinition, match="cannot read its result as"):
        bide.App().workflow("opaque")(opaque)
