"""Figures on a port of their own, for who asks without a key (H1): `metrics_port`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from bide.engine.runtime import Runtime
from bide.server.listening import listen, listener
from bide.server.metrics import MEDIA_TYPE, exposition


@asynccontextmanager
async def metrics_served(runtime: Runtime) -> AsyncIterator[None]:
    """Serve `/metrics` where the settings say, as long as the block lasts. Raises where nothing can listen there."""
    settings = runtime.settings
    if not settings.metrics_port:
        yield
        return

    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        is_metrics = scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD")
        body = await exposition(runtime) if is_metrics else b"see /metrics\n"
        await PlainTextResponse(body, 200 if is_metrics else 404, media_type=MEDIA_TYPE)(scope, receive, send)

    stopped, ready = asyncio.Event(), asyncio.Event()

    def listens(_: Any) -> None:
        ready.set()

    server = listener(asgi, settings.metrics_host, settings.metrics_port, grace=1)
    serving = asyncio.create_task(listen(server, stopped, listens))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if serving.done():
            serving.result()
        yield
    finally:
        stopped.set()
        if not serving.done():
            await serving
