"""Looking whether runs have ended, many of them in one statement.

Whoever waits for the end of a run looks at it from time to time. A thousand who wait would ask a thousand times a
second.
"""

from __future__ import annotations

import asyncio

from bide.core.records import FINAL, RunId
from bide.stores.interface import Store


class Looks:
    """Asks as soon as the look before has been answered, for everybody who came meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[RunId, asyncio.Future[bool]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def has_news(self, run_id: RunId) -> bool:
        """Whether the run has ended or is gone. Raises `StoreUnavailable`."""
        future = self._waiting.get(run_id)
        if future is None:
            future = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(future)  # others may wait for the same answer

    async def drain(self) -> None:
        """Wait until nobody asks the store any more."""
        while self._looking is not None:
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                await self._answer(waiting)
        finally:
            self._looking = None

    async def _answer(self, waiting: dict[RunId, asyncio.Future[bool]]) -> None:
        try:
            statuses = await self._store.statuses(list(waiting))
        except Exception as error:
            for future in waiting.values():
                future.set_exception(error)
                future.exception()  # whoever asked may have gone
            return
        for run_id, future in waiting.items():
            status = statuses.get(run_id)
            future.set_result(status is None or status in FINAL)
