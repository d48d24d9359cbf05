"""The workflows of the examples, crashed at every point they come to, in virtual time: they end the same.

The same with real processes and a real SIGKILL is `tests/engine/test_kill_matrix.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import bide
import bide.testing
from bide.testing import World
from examples import agent, approval_gate, payment_race, saga
from tests.support.worlds import CrashAtPoint

Scenario = Callable[[World], Awaitable[bide.Run[Any]]]


async def letter_is_approved(world: World) -> bide.Run[Any]:
    run = await world.start(approval_gate.letter, approval_gate.Letter("Ann"))
    await world.complete(f"approval-{run.id}", {"approved": True})
    return run


async def letter_expires(world: World) -> bide.Run[Any]:
    run = await world.start(approval_gate.letter, approval_gate.Letter("Cleo"))
    await world.advance(timedelta(hours=48))
    return run


async def order_is_paid(world: World) -> bide.Run[Any]:
    run = await world.start(payment_race.order, payment_race.Order("a lamp"))
    await world.signal(run.id, "paid", "ann", dedup_key="payment-1")
    return run


async def order_is_called_off(world: World) -> bide.Run[Any]:
    run = await world.start(payment_race.order, payment_race.Order("a lamp"))
    await world.signal(run.id, "called-off")
    return run


async def order_is_never_paid(world: World) -> bide.Run[Any]:
    run = await world.start(payment_race.order, payment_race.Order("a lamp"))
    await world.advance("1h")
    return run


async def trip_is_booked(world: World) -> bide.Run[Any]:
    run = await world.start(saga.trip, saga.Trip("Ann"))
    await world.signal(run.id, "confirmed")
    return run


async def trip_is_undone(world: World) -> bide.Run[Any]:
    return await world.start(saga.trip, saga.Trip("Bob", hotel="Nowhere"))


async def trip_is_cancelled(world: World) -> bide.Run[Any]:
    run = await world.start(saga.trip, saga.Trip("Cleo"))
    await world.cancel(run.id)
    return run


async def agent_may_pay(world: World) -> bide.Run[Any]:
    run = await world.start(agent.agent, "the printer")
    await world.complete(f"pay-{run.id}", {"approved": True})
    return run


async def agent_may_not_pay(world: World) -> bide.Run[Any]:
    run = await world.start(agent.agent, "a statue")
    await world.complete(f"pay-{run.id}", {"approved": False, "reason": "no"})
    return run


SCENARIOS: dict[Scenario, tuple[bide.App, str, Any]] = {
    letter_is_approved: (approval_gate.app, "completed", {"status": "sent"}),
    letter_expires: (approval_gate.app, "completed", {"status": "expired"}),
    order_is_paid: (payment_race.app, "completed", "paid by ann"),
    order_is_called_off: (payment_race.app, "completed", "called off"),
    order_is_never_paid: (payment_race.app, "completed", "never paid"),
    trip_is_booked: (saga.app, "completed", "booked"),
    trip_is_undone: (saga.app, "completed", "not possible"),
    trip_is_cancelled: (saga.app, "cancelled", None),
    agent_may_pay: (agent.app, "completed", "It is paid."),
    agent_may_not_pay: (agent.app, "completed", "I could not pay: refused: no"),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_crash_at_any_point_changes_nothing_about_the_end(scenario: Scenario, store_url: str) -> None:
    """D2, D6, F15. The store is audited at the end."""
    app, *end = SCENARIOS[scenario]
    async with bide.testing.world(app, store_url) as world:
        points = await play(world, scenario, end, 0)
        assert len(points) >= 3
        for at in range(1, len(points) + 1):
            reached = await play(world, scenario, end, at)
            assert len(reached) >= at, "this crash never came"
            committed = [point for point in reached if point.startswith("after_commit ") and point[13:] != "body"]
            assert len(set(committed)) == len(committed), f"a step was committed twice, crash at {points[at - 1]}"


async def play(world: World, scenario: Scenario, end: list[Any], at: int) -> list[str]:
    probe: Any = CrashAtPoint(at)
    world.crashes = world.engine.probe = probe
    run = await scenario(world)
    await world.settle()
    info = await world.get(run.id)
    assert [info.status, info.result] == end, f"crash {at} of {probe.points}: {info}"
    return list(probe.points)
