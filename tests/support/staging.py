"""How a race is staged: steps that stand still until they are let go, a second engine, every row at a glance."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import bide
from bide.client import Client
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import load_settings
from bide.testing.places import fresh_store
from bide.testing.world import World

DEADLINE = 120.0  # seconds until a test that waits for something gives up


class Gate:
    """Await it in a step: the step stands there until the test lets it go."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self._standing: list[asyncio.Future[None]] = []
        self._changed = asyncio.Event()

    async def __call__(self) -> None:
        if self.is_open:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._standing.append(turn)
        self._changed.set()
        try:
            await turn
        finally:
            if turn in self._standing:
                self._standing.remove(turn)

    @property
    def standing(self) -> int:
        return len(self._standing)

    async def reached(self, count: int = 1) -> None:
        """Wait until this many steps stand at the gate."""
        async with asyncio.timeout(DEADLINE):
            while self.standing < count:
                self._changed.clear()
                await self._changed.wait()

    def let_one_go(self, index: int = 0) -> None:
        """The one that came first, or another."""
        turn = self._standing.pop(index)
        if not turn.done():
            turn.set_result(None)

    def open(self) -> None:
        self.is_open = True
        while self._standing:
            self.let_one_go()


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait until a condition that nobody announces holds."""
    async with asyncio.timeout(DEADLINE):
        while not await condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.002)


@asynccontextmanager
async def rival(world: World, *, clock: Callable[[], datetime] | None = None, **settings: Any) -> AsyncIterator[Engine]:
    """A second engine on the world's store, as another process would have it. It moves only when it is ticked."""
    now = clock or world.clock
    runtime = Runtime(
        world.runtime.store,
        world.runtime.registry,
        dataclasses.replace(world.runtime.settings, **settings),
        Ports(now=now, monotonic=lambda: now().timestamp(), random=lambda: 0.5),
    )
    engine = Engine(runtime)
    try:
        yield engine
    finally:
        await engine.crash()


def client_of(runtime: Runtime, workspace: str = "default") -> Client:
    async def opened() -> Runtime:
        return runtime

    return Client(opened, workspace)


@asynccontextmanager
async def real_store(app: bide.App, store: str, **settings: Any) -> AsyncIterator[Runtime]:
    """An empty store that keeps real time, for engines that run by themselves."""
    async with fresh_store(store) as url:
        loaded = load_settings({**settings, "store": url}, {})
        runtime = Runtime(open_store(url, loaded, migrate=True), app.registry, loaded, Ports())
        await runtime.open()
        try:
            yield runtime
        finally:
            await runtime.close()


async def rows(world: World) -> dict[str, Any]:
    """Everything the store says of every run."""
    return {
        run.id: (
            run,
            await world.waits(run_id=run.id, status=None),
            await world.inbox(run.id),
            await world.ledger(run.id),
        )
        for run in await world.runs(limit=1000)
    }


async def names(world: World, run_id: str) -> list[str]:
    """The names of a run's ledger entries, in order."""
    return [entry.name for entry in await world.ledger(run_id)]
