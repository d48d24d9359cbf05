"""The two ways into the HTTP API of a world: in the test's own process, and over a socket as `bide serve` listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import httpx

from bide.engine.runtime import Runtime
from bide.server import Server, listening
from bide.server.listening import Patience
from bide.testing.world import World

NewClient = Callable[..., httpx.AsyncClient]
"""Makes clients as `World.http` does, with its arguments."""

WayIn = Callable[[World], AbstractAsyncContextManager[NewClient]]

ROOM = 120.0  # seconds: where nothing is about a limit, a busy machine reaches none


@asynccontextmanager
async def served(w: World) -> AsyncIterator[str]:
    """The URL under which the world answers, with the server of `bide serve` in front of it."""

    async def opened() -> Runtime:
        return w.runtime

    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    patience = Patience(head=ROOM, body=ROOM, farewell=ROOM)
    server = listening.listener(Server(opened), "127.0.0.1", 0, patience=patience)
    serving = asyncio.create_task(listening.listen(server, stop, port.set_result))
    try:
        yield f"http://127.0.0.1:{await port}"
    finally:
        stop.set()
        await serving


@asynccontextmanager
async def in_process(w: World) -> AsyncIterator[NewClient]:
    yield w.http


@asynccontextmanager
async def over_a_socket(w: World) -> AsyncIterator[NewClient]:
    async with served(w) as url, AsyncExitStack() as clients:

        def client(workspace: str = "default") -> httpx.AsyncClient:
            inside = w.http(workspace)

            async def let_the_key_be_known(request: httpx.Request) -> None:
                await inside.get("/healthz")

            async def settled(response: httpx.Response) -> None:
                await response.aread()
                if response.request.method != "GET":
                    await w.settle()

            http = httpx.AsyncClient(
                base_url=url,
                timeout=ROOM,
                verify=False,  # there is no TLS, and reading certificates takes longer than a test
                headers={"Authorization": inside.headers["Authorization"]},
                event_hooks={"request": [let_the_key_be_known], "response": [settled]},
            )
            clients.push_async_callback(http.aclose)
            return http

        yield client


WAYS_IN: dict[str, WayIn] = {"in process": in_process, "over a socket": over_a_socket}
