"""Renewing leases, on a thread and a connection of its own: it works while user code blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import timedelta

from bide.core.records import RunId
from bide.stores.interface import Now
from bide.stores.postgres.arrays import array
from bide.stores.postgres.failures import FAULTS, unavailable
from bide.stores.postgres.sessions import Connection, Sessions

RENEW_SECONDS = 5.0
TRIES = 2  # the first may find a connection that died while nobody used it


class Leases:
    def __init__(self, sessions: Sessions, sql: Mapping[str, str], now: Now | None) -> None:
        self._sessions = sessions
        self._sql = sql
        self._now = now
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._turn: asyncio.Lock | None = None

    def renew(self, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
        """Blocking, from any thread. Returns the claims that do not hold any more."""
        if not claims:
            return set()
        call = asyncio.run_coroutine_threadsafe(self._renew(dict(claims), lease), self._running_loop())
        try:
            return call.result(RENEW_SECONDS)
        except FAULTS as error:
            call.cancel()
            raise unavailable(self._sessions.address, error) from error

    def close(self) -> None:
        with self._starting:
            if self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="bide-leases", daemon=True)
                self._thread.start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            loop.close()

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._disconnect()
        self._turn = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _renew(self, claims: dict[RunId, int], lease: timedelta) -> set[RunId]:
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:  # a connection does one thing at a time
            for attempt in range(1, TRIES + 1):
                try:
                    return await self._ask(claims, lease)
                except BaseException as error:
                    self._disconnect()
                    if attempt == TRIES or isinstance(error, asyncio.CancelledError):
                        raise
        raise AssertionError("either it worked or it raised")

    async def _ask(self, claims: dict[RunId, int], lease: timedelta) -> set[RunId]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._sessions.connect()
        now = self._now() if self._now is not None else None
        rows = await self._connection.fetch(
            self._sql["renew_leases"], array(list(claims)), array(list(claims.values())), now, lease
        )
        left = set(claims) - {run_id for (run_id,) in rows}
        # Lost, or just being written by somebody: the difference is worth a statement each.
        return {
            run_id
            for run_id in left
            if not await self._connection.fetch(self._sql["renew_lease"], run_id, claims[run_id], now, lease)
        }
