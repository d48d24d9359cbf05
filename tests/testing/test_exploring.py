"""`bide.testing.explore`: bugs that are planted are found, in the shortest order that shows them (contract §12)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import bide
from bide.testing import Exploration, PropertyBroken, World, explore
from tests.support.worlds import Ctx

shipped: list[str] = []


def shop(*, forgets: bool = False) -> bide.App:
    """A shop that ships what is paid; one that *forgets* ships again for every payment."""
    app = bide.App("shop")

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="ship", timeout="1h")

        def ship(self, ctx: Ctx) -> Any:
            if ctx.timed_out:
                return bide.Stop("never paid")
            if ctx.run_id not in shipped or forgets:
                shipped.append(ctx.run_id)
            return bide.Await("returned", then="end", timeout="1d") if not forgets else bide.Await("paid", then="ship")

        def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    return app


async def an_order(world: World, ex: Exploration) -> None:
    shipped.clear()
    run = await world.start("order")
    ex.action("pay", lambda: world.signal(run.id, "paid", 100))

    @ex.always
    def ships_at_most_once() -> None:
        assert len(shipped) <= 1, f"shipped {len(shipped)} times"


async def test_a_machine_that_ships_twice_is_found_in_the_shortest_order() -> None:
    with pytest.raises(PropertyBroken) as broken:
        await explore(shop(forgets=True), an_order, crashes=0)
    assert broken.value.order == ("pay", "pay")
    assert str(broken.value).splitlines() == [
        "ships_at_most_once breaks in 2 moves (AssertionError: shipped 2 times):",
        "  pay",
        "  pay",
        "play it again with: explore(…, order=['pay', 'pay'])",
    ]


async def test_a_machine_that_ships_once_passes_in_every_order() -> None:
    explored = await explore(shop(), an_order)
    assert explored.is_complete
    assert explored.orders > 50


async def test_an_order_that_was_found_is_played_again() -> None:
    with pytest.raises(PropertyBroken, match="ships_at_most_once breaks in 2 moves"):
        await explore(shop(forgets=True), an_order, order=["pay", "pay"])
    assert (await explore(shop(forgets=True), an_order, order=["pay"])).orders == 1
    with pytest.raises(bide.BadInput, match="no move 'payed'; it has: pay"):
        await explore(shop(), an_order, order=["payed"])


def workflow_shop(charged: list[str], *, checks: bool) -> bide.App:
    """A workflow that charges a card: once, where it looks first (D2: a crash before the commit repeats a step)."""
    app = bide.App("shop")

    def charge(run_id: str) -> None:
        if not checks or run_id not in charged:
            charged.append(run_id)

    @app.workflow("order")
    async def order(step: bide.Step) -> str:
        await step.receive("ready", "ready", timeout="1h")
        await step.run("charge", charge, step.run_id)
        return "charged"

    return app


@pytest.mark.parametrize("checks", [True, False])
async def test_D2_a_step_that_a_crash_repeats_is_found_where_it_is_not_idempotent(checks: bool) -> None:
    charged: list[str] = []

    async def scenario(world: World, ex: Exploration) -> None:
        charged.clear()
        run = await world.start("order")
        ex.action("ready", lambda: world.signal(run.id, "ready"), times=1)
        ex.at_end(lambda: len(charged) <= 1)

    if checks:
        assert (await explore(workflow_shop(charged, checks=True), scenario)).is_complete
        return
    with pytest.raises(PropertyBroken) as broken:
        await explore(workflow_shop(charged, checks=False), scenario)
    assert broken.value.order == ("crash after_code", "ready")


async def test_a_timeout_and_a_cancel_are_moves_of_their_own() -> None:
    ends: set[str] = set()

    async def scenario(world: World, ex: Exploration) -> None:
        run = await world.start("order")
        ex.action("pay", lambda: world.signal(run.id, "paid"), times=1)

        @ex.at_end
        async def note() -> None:
            ends.add((await world.get(run.id)).status)

    shipped.clear()
    await explore(shop(), scenario, crashes=0, races=0)
    assert ends == {"waiting", "stopped", "cancelled", "completed"}


async def test_two_answers_may_come_before_anybody_works() -> None:
    """S4: a step is handed all that is there when it is claimed."""
    app = bide.App("shop")

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end")

        def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(len(ctx.awaited))

    async def scenario(world: World, ex: Exploration) -> None:
        run = await world.start("order")
        ex.action("pay", lambda: world.signal(run.id, "paid"))

        @ex.at_end
        async def one_payment() -> bool:
            return (await world.get(run.id)).result in (None, 1)

    with pytest.raises(PropertyBroken) as broken:
        await explore(app, scenario)
    assert broken.value.order == ("nobody works yet", "pay", "pay")
    await explore(app, scenario, races=0)


async def test_what_lies_beyond_the_bound_is_sampled_and_shrunk() -> None:
    """Seven actions have more orders than are tried; one pair of them is the bug."""
    app = bide.App("shop")

    @app.workflow("order")
    async def order(step: bide.Step) -> None:
        await step.receive("never", "never", timeout=bide.FOREVER)

    async def scenario(world: World, ex: Exploration) -> None:
        came: list[str] = []
        await world.start("order")
        for name in "abcdefg":
            ex.action(name, partial(came.append, name), times=1)

        @ex.always
        def not_g_then_c_then_a() -> None:
            found = [name for name in came if name in "gca"]
            assert found != ["g", "c", "a"]

    options: dict[str, Any] = {"crashes": 0, "cancels": 0, "races": 0, "most": 20, "samples": 200}
    with pytest.raises(PropertyBroken) as broken:
        await explore(app, scenario, seed=7, **options)
    assert broken.value.order == ("g", "c", "a")
    with pytest.raises(PropertyBroken):
        await explore(app, scenario, seed=7, **options)


async def test_a_name_is_given_to_one_action() -> None:
    async def scenario(world: World, ex: Exploration) -> None:
        ex.action("pay", lambda: None)
        ex.action("pay", lambda: None)

    with pytest.raises(bide.BadInput, match="a move 'pay' already"):
        await explore(shop(), scenario)
