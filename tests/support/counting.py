"""A store that counts its transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, cast

from bide.core.commands import AnyCommand, Offer
from bide.engine.runtime import Runtime
from bide.stores.interface import Executed, Store


class CountingStore:
    """Passes everything on, and counts the calls that wrote: each is one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.transactions = 0
        self.looks = 0  # calls that found nothing to do

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        return await self._count(self._store.execute(commands, offer))

    async def claim(self, offer: Offer) -> Executed:
        return await self._count(self._store.claim(offer))

    async def fire_timers(self, limit: int, offer: Offer | None = None) -> Executed:
        return await self._count(self._store.fire_timers(limit, offer))

    async def admit(self, limit: int, offer: Offer | None = None) -> Executed:
        return await self._count(self._store.admit(limit, offer))

    async def _count(self, call: Awaitable[Executed]) -> Executed:
        done = await call
        if done.replies:
            self.transactions += 1
        else:
            self.looks += 1
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def counted(runtime: Runtime) -> tuple[Runtime, CountingStore]:
    """A runtime on the same open store that counts."""
    store = CountingStore(runtime.store)
    return Runtime(cast(Store, store), runtime.registry, runtime.settings, runtime.ports), store
