"""Hints between processes: NOTIFY after a commit, and at most one in a while.

One in a while may go out with the commit itself, which saves a round trip. More would not do: from such a commit to its
end everybody else who notifies waits for it.

Losing all of them costs latency only. Behind a pooler LISTEN cannot work; then everybody polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from bide.stores.postgres.failures import FAULTS
from bide.stores.postgres.sessions import Connection, Sessions

log = logging.getLogger("bide.postgres")

FIRST_QUIET_SECONDS = 0.005
LONGEST_QUIET_SECONDS = 0.02
HEARTBEAT_SECONDS = 5.0
LONGEST_CHANNEL = 63
RECONNECT_SECONDS = 1.0
Wake = Callable[[], None]


def channel_of(schema: str) -> str:
    """The name under which the processes on a schema hear of each other: names of channels are no longer than its own.

    >>> channel_of("bide")
    'bide_bide'
    >>> len(channel_of("s" * 63)) <= LONGEST_CHANNEL
    True
    """
    plain = f"bide_{schema}"
    return plain if len(plain) <= LONGEST_CHANNEL else f"bide_{sha256(schema.encode()).hexdigest()[:40]}"


class Hints:
    """One connection listens, another notifies; both are opened when they are first needed."""

    def __init__(self, sessions: Sessions, instance: str) -> None:
        self._sessions = sessions
        self._instance = instance
        self._channel = channel_of(sessions.address.schema)
        self._wakes: dict[object, Wake] = {}
        self._wanted = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sent_at = 0.0

    def riding(self) -> tuple[str, str] | None:
        """Channel and text of a hint that may go out with a commit; None while the last one is not long ago."""
        now = asyncio.get_running_loop().time()
        if self._wanted.is_set() or now < self._sent_at + LONGEST_QUIET_SECONDS:
            return None
        self._sent_at = now
        return self._channel, self._instance

    def send(self) -> None:
        """Tell the others that something changed, soon."""
        self._wanted.set()
        self._keep_running("sender", self._send_all)

    def subscribe(self, wake: Wake) -> Wake:
        token = object()
        self._wakes[token] = wake
        if not self._sessions.has_pooler:
            self._keep_running("listener", self._listen_always)
        return lambda: void(self._wakes.pop(token, None))

    async def close(self) -> None:
        self._wakes.clear()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    def _keep_running(self, name: str, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.get_running_loop().create_task(duty())

    async def _send_all(self) -> None:
        connection: Connection | None = None
        quiet = FIRST_QUIET_SECONDS
        try:
            while True:
                # Few hints go out as they come; many are put together.
                quiet = min(2 * quiet, LONGEST_QUIET_SECONDS) if self._wanted.is_set() else FIRST_QUIET_SECONDS
                await self._wanted.wait()
                self._wanted.clear()
                self._sent_at = asyncio.get_running_loop().time()
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._sessions.connect()
                    await connection.fetchval("SELECT pg_notify($1, $2)", self._channel, self._instance)
                except FAULTS as error:
                    log.info("a hint was not sent: %s", error)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    await asyncio.sleep(RECONNECT_SECONDS)
                await asyncio.sleep(quiet)
        finally:
            if connection is not None:
                connection.terminate()

    async def _listen_always(self) -> None:
        while True:
            try:
                await self._listen()
            except FAULTS as error:
                log.info("listening for hints again in a moment: %s", error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        connection = await self._sessions.connect()
        try:
            await connection.add_listener(self._channel, self._on_hint)
            self._wake_all()  # whatever was said while nobody listened
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                await connection.execute("SELECT 1")  # a dead connection is silent; only a question finds out
        finally:
            with contextlib.suppress(Exception):
                connection.terminate()

    def _on_hint(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload != self._instance:
            self._wake_all()

    def _wake_all(self) -> None:
        for wake in list(self._wakes.values()):
            wake()


def void(_: object) -> None:
    return None
