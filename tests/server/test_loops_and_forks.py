"""A client over HTTP that is used from one event loop after the other, or in a process that was forked (§12, H2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import bide
from bide import errors
from bide.server import ENDPOINTS
from bide.server.listening import listen, listener
from bide.server.router import Api
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app

DEADLINE = 60.0  # for a program that never ends

LOOPS = """
import asyncio, sys, bide
client = bide.Client(sys.argv[1], key=sys.argv[2])
for number in range(3):
    asyncio.run(client.start("order", number))
"""

FORKS = """
import os, sys, bide
client = bide.SyncClient(sys.argv[1], key=sys.argv[2])
client.start("order", 0)
child = os.fork()
if child == 0:
    client.start("order", 1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.start("order", 2)
client.close()
"""


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[World, str, str]]:
    """A world behind a port: its URL, and a key."""
    async with world(app) as w:

        async def opened() -> Any:
            return w.runtime

        http = w.http()
        await http.get("/v1/runs")  # its key is stored with its first request
        stopped, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        server = listener(Api(opened, ENDPOINTS), "127.0.0.1", 0)
        serving = asyncio.create_task(listen(server, stopped, port.set_result))
        try:
            yield w, f"http://127.0.0.1:{await port}", http.headers["Authorization"].removeprefix("Bearer ")
        finally:
            stopped.set()
            await serving


@pytest.mark.parametrize("program", [LOOPS, FORKS], ids=["loops", "forks"])
async def test_H2_what_another_event_loop_or_process_asks_for_is_done_once_and_raises_nothing(program: str) -> None:
    """§12: sockets belong to the loop that opened them, and a fork shares them. Each has its own."""
    async with served() as (w, url, key):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program, url, key],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},  # newer Pythons warn of every fork beside a thread
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(run.input for run in await w.runs()) == [0, 1, 2]


async def test_a_client_is_closed_once_and_says_so() -> None:
    """As a `SyncClient` does."""
    async with served() as (_, url, key):
        async with bide.Client(url, key) as client:
            assert await client.runs() == []
        await client.aclose()
        with pytest.raises(bide.BadInput, match="closed"):
            await client.runs()


async def test_connections_of_the_callers_own_that_serve_elsewhere_raise_an_error_of_bides() -> None:
    """§12: every error that leaves is a `BideError`."""

    class Elsewhere(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise RuntimeError("Event loop is closed")

    client = bide.Client("http://bide.test", http=httpx.AsyncClient(transport=Elsewhere()))
    with pytest.raises(errors.Unavailable, match="Event loop is closed"):
        await client.runs()
