"""The tail of the stream of all ledgers: tells those who follow it that there may be more.

What this process commits is heard of at once. For the rest one look is taken every poll interval, or when the store
gives a hint, however many follow; and none while nobody does (D7).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bide.errors import StoreUnavailable
from bide.stores.interface import Store

log = logging.getLogger("bide.engine")


class Tail:
    def __init__(self, store: Store, poll_seconds: float) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._followers = 0
        self._watching: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._news = asyncio.Event()  # replaced each time that it is set, so that everybody who waits hears of it
        self.length = 0  # grows with whatever may have been written
        self.is_closed = False

    def grew(self) -> None:
        """Something was committed in this process."""
        if self._followers:
            self._tell()

    def close(self) -> None:
        """Let those who follow go: the process ends."""
        self.is_closed = True
        self._tell()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Keep watch as long as the block lasts."""
        self._followers += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                watching, self._watching = self._watching, None
                watching.cancel()
                await asyncio.wait({watching})

    async def beyond(self, length: int, seconds: float) -> bool:
        """Wait until there may be more than when the tail had that length; False when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.length == length and not self.is_closed:
                    await self._news.wait()
        return self.length != length

    def _tell(self) -> None:
        self.length += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()

        def hint() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to tell
                loop.call_soon_threadsafe(self._hint.set)

        unsubscribe = self._store.subscribe(hint)
        seen = ""
        try:
            while True:
                self._hint.clear()
                try:
                    end = await self._store.stream_end()
                except StoreUnavailable as error:
                    log.warning("the store did not answer; trying again: %s", error)
                else:
                    if end != seen:
                        seen = end
                        self._tell()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._hint.wait()
        finally:
            unsubscribe()
