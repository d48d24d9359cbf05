"""The HTTP door: every call of the API, the pages behind resume links, health and metrics, as one ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from starlette.types import Receive, Scope, Send

from bide.engine.runtime import Runtime
from bide.server import events, interactions, letters, meta, resume, runs, signals, stream, waits
from bide.server.router import Api

ENDPOINTS = (
    *runs.ENDPOINTS,
    *signals.ENDPOINTS,
    *events.ENDPOINTS,
    *interactions.ENDPOINTS,
    *waits.ENDPOINTS,
    *letters.ENDPOINTS,
    *stream.ENDPOINTS,
    *resume.ENDPOINTS,
    *meta.ENDPOINTS,
)


class Server:
    """`app.asgi()`: takes requests, and the lifespan of a server that it is not mounted in."""

    def __init__(
        self,
        runtime: Callable[[], Awaitable[Runtime]],
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
    ) -> None:
        self._lifespan = lifespan
        self.api = Api(runtime, ENDPOINTS)

    def leave(self) -> None:
        """End streams, so that their connections do not hold up a stop."""
        self.api.leave()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.api(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        alive = self._lifespan()
        await receive()
        try:
            await alive.__aenter__()
        except BaseException as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            await alive.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})
