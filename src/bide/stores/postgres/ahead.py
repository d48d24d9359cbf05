"""Rows that are read before whoever decides on them has come that far.

A signal takes a while to be made ready: its payload is encoded, an id made, a batch begun. The server could be reading
the run meanwhile. Nothing rests on that: the write takes effect only if the row is still the one that was read.
"""

from __future__ import annotations

import asyncio

import asyncpg

AHEAD_SECONDS = 0.05  # what is decided on the rows is of the moment at which they were read
WAITING_SECONDS = 0.5  # then this connection stands still, and others may be well


class Ahead:
    """One question that is under way or answered. The answer is given once, and soon or not at all."""

    def __init__(self, question: tuple[object, ...], asking: asyncio.Task[list[asyncpg.Record] | None]) -> None:
        self._question = question
        self._asking = asking
        now = asyncio.get_running_loop().time()
        self._until, self._patient_until = now + AHEAD_SECONDS, now + WAITING_SECONDS

    async def found(self) -> bool:
        """Wait for the answer, not for long; whether there is one. Whoever waits may be cancelled alone."""
        if not self._asking.done():
            patience = self._patient_until - asyncio.get_running_loop().time()
            await asyncio.wait({self._asking}, timeout=max(0.0, patience))
        return self.is_over and not self._asking.cancelled() and self._asking.result() is not None

    @property
    def is_over(self) -> bool:
        return self._asking.done()

    async def end(self) -> None:
        await asyncio.wait({self._asking})

    def take(self, question: tuple[object, ...]) -> list[asyncpg.Record] | None:
        """The answer, where it is one to this question; it must have been waited for."""
        if question != self._question or asyncio.get_running_loop().time() > self._until:
            return None
        self._question = ()
        return self._asking.result()
