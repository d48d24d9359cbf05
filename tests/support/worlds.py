"""Small things that tests of behaviour say often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import bide
from bide.engine.probes import Crash
from bide.testing import World

Ctx = bide.Context[Any]


def pairs(signals: Iterable[bide.Received]) -> list[list[Any]]:
    """Signals as (name, payload), in their order, storable in a state or result."""
    return [[signal.name, signal.payload] for signal in signals]


async def ledger_names(world: World, run_id: str) -> list[str]:
    return [entry.name for entry in await world.ledger(run_id)]


async def turns_taken(world: World, run_id: str) -> int:
    """How often user code of this run was asked to run: each commit of a step, and each end."""
    names = await ledger_names(world, run_id)
    ended = ("run_completed", "run_stopped", "run_failed")
    return sum(name in ("step_committed", "step_retried", *ended) for name in names)


class CrashAtPoint:
    """Crashes the engine at the n-th point that it comes to; 0 only counts them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points: list[str] = []

    def reached(self, point: str, step: str) -> None:
        self.points.append(f"{point} {step}")
        if len(self.points) == self.at:
            raise Crash(f"{point} {step}")


@contextmanager
def no_free_worker(world: World) -> Iterator[None]:
    """Meanwhile a run that becomes ready is not claimed: what comes next meets it woken, with nobody at work on it."""
    committer = world.runtime.committer
    offer, committer.offer = committer.offer, lambda commands: None
    try:
        yield
    finally:
        committer.offer = offer
