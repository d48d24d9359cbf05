"""The heartbeat renews leases from a thread of its own: user code that blocks the event loop keeps its runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from bide.errors import StoreUnavailable

if TYPE_CHECKING:
    from bide.engine.engine import Engine

log = logging.getLogger("bide.engine")


class Heartbeat:
    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bide-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        interval = self._engine.settings.lease.total_seconds() / 3
        while not self._stopped.wait(interval):
            try:
                self.tick()
            except Exception:  # whatever it was, the next beat must come: a dead heartbeat loses every lease
                log.exception("a heartbeat broke; trying again")

    def tick(self) -> None:
        """Renew every lease once, in one call."""
        claims = {run_id: turn.run.epoch for run_id, turn in list(self._engine.active.items())}
        if not claims:
            return
        try:
            lost = self._engine.runtime.store.renew(self._engine.worker, claims, self._engine.settings.lease)
        except StoreUnavailable as error:
            log.warning("leases could not be renewed: %s", error)
            return
        for run_id in lost:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is gone anyway
                self._loop.call_soon_threadsafe(self._engine.lose, run_id, claims[run_id])
