"""Clients that send slowly, a byte at a time: they hold a connection for so long, and not longer (T31, T42)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from bide.server import ENDPOINTS
from bide.server.listening import Patience, listen, listener
from bide.server.router import Api
from bide.testing import world
from tests.server.shop import app

ROOM = Patience(head=120, body=120, farewell=120)  # for what is not about a limit: whoever is delayed comes in time
SHORT = Patience(head=0.2, body=0.4, farewell=0.1)
AFTER_AN_ANSWER = Patience(head=2, body=5, farewell=0.1)  # what is answered first must be so before its time is up
API_SECONDS = 0.1  # that the API waits for a body
TEST_SECONDS = 60.0  # in which a connection that nobody bounds would still be open
HALF = b"Host: localhost\r\nContent-Length: 500000\r\n"


@contextlib.asynccontextmanager
async def served(patience: Patience = ROOM, body_seconds: float = 120.0) -> AsyncIterator[tuple[int, str]]:
    """A server on a port, and a good key."""
    async with world(app) as w:

        async def opened() -> Any:
            return w.runtime

        http = w.http()
        await http.get("/v1/runs")  # its key is stored with its first request
        stopped, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        server = listener(Api(opened, ENDPOINTS, body_seconds=body_seconds), "127.0.0.1", 0, patience=patience)
        serving = asyncio.create_task(listen(server, stopped, port.set_result))
        try:
            yield await port, http.headers["Authorization"]
        finally:
            stopped.set()
            await serving


async def trickled(port: int, begin: bytes, byte: bytes = b" ") -> bytes:
    """What is answered to somebody who begins so and goes on byte by byte until the connection is closed.

    The beginning is there before the server, in the same loop, takes the connection: its clock cannot run out first.
    """
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(begin)
    client.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=client)
    answer, reading = bytearray(), asyncio.create_task(reader.read(65536))
    async with asyncio.timeout(TEST_SECONDS):
        while True:
            with contextlib.suppress(ConnectionError):
                writer.write(byte)
                await writer.drain()
            await asyncio.wait({reading}, timeout=0.02)
            if not reading.done():
                continue
            if reading.exception() is not None or not reading.result():
                break
            answer += reading.result()
            reading = asyncio.create_task(reader.read(65536))
    writer.transport.abort()
    return bytes(answer)


BODIES = {
    "no key": (b"POST /v1/runs HTTP/1.1\r\n" + HALF + b"\r\n", 401),
    "no such path": (b"POST /nope HTTP/1.1\r\n" + HALF + b"\r\n", 404),
    "a forged token": (b"POST /resume/a.b.c HTTP/1.1\r\n" + HALF + b"\r\n", 408),
    "a good key": (b"POST /v1/runs HTTP/1.1\r\nAuthorization: KEY\r\n" + HALF + b"\r\n", 408),
    "chunks": (
        b"POST /v1/runs HTTP/1.1\r\nAuthorization: KEY\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n",
        408,
    ),
    "too much": (
        b"POST /v1/runs HTTP/1.1\r\nAuthorization: KEY\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n",
        413,
    ),
    "a GET": (b"GET /healthz HTTP/1.1\r\n" + HALF + b"\r\n", 200),
    "a stream": (b"GET /v1/stream HTTP/1.1\r\nAuthorization: KEY\r\n" + HALF + b"\r\n", 200),
}


@pytest.mark.parametrize("what", BODIES)
async def test_T42_a_body_that_trickles_does_not_hold_its_connection(what: str) -> None:
    begin, status = BODIES[what]
    is_slow, is_stream = status == 408, what == "a stream"  # the others are answered, and closed, without a limit
    patience, seconds = AFTER_AN_ANSWER if is_stream else ROOM, API_SECONDS if is_slow else 120.0
    async with served(patience, seconds) as (port, key):
        answer = await trickled(port, begin.replace(b"KEY", key.encode()))

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer.lower()


@contextlib.asynccontextmanager
async def mounted(protocol: str) -> AsyncIterator[tuple[int, str]]:
    """The API in an application of somebody else, on a server that gives clients all the time they want."""
    async with world(app) as w:

        async def opened() -> Any:
            return w.runtime

        http = w.http()
        await http.get("/v1/runs")
        outer = Starlette(routes=[Mount("/flows", app=Api(opened, ENDPOINTS, body_seconds=API_SECONDS))])
        config = uvicorn.Config(
            outer, http=protocol, port=0, log_config=None, lifespan="off", timeout_keep_alive=int(2 * TEST_SECONDS)
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            serving = asyncio.create_task(server.serve([bound]))
            try:
                yield bound.getsockname()[1], http.headers["Authorization"]
            finally:
                server.should_exit = True
                await serving


@pytest.mark.parametrize("protocol", ["h11", "httptools"])
@pytest.mark.parametrize("what", sorted(BODIES.keys() - {"a stream"}))
async def test_T42_a_mounted_api_does_not_wait_for_a_body_that_trickles(what: str, protocol: str) -> None:
    """H4: it says so, and has the connection closed, whatever server it is mounted in."""
    begin, status = BODIES[what]
    begin = begin.replace(b"POST /", b"POST /flows/").replace(b"GET /", b"GET /flows/")
    async with mounted(protocol) as (port, key):
        answer = await trickled(port, begin.replace(b"KEY", key.encode()))

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.lower().count(b"connection: close") == 1


async def test_who_waits_to_be_asked_for_a_body_is_not_asked_where_it_is_refused() -> None:
    """RFC 9110, 10.1.1: `Expect: 100-continue`; the connection is closed, for the body may come all the same."""
    head = b"POST /flows/v1/runs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
    async with mounted("httptools") as (port, key):
        for more, starts in ((b"\r\n", b"HTTP/1.1 401 "), (f"Authorization: {key}\r\n\r\n".encode(), b"HTTP/1.1 100 ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + more)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(starts)
            assert (b"connection: close" in answer.lower()) is (b"401" in starts)
            writer.transport.abort()


@pytest.mark.parametrize("refused", ["no key", "no such path"])
async def test_a_refusal_of_a_request_that_is_here_leaves_its_connection_open(refused: str) -> None:
    """Whoever asks too often, or with a wrong key, need not connect anew."""
    begin, status = BODIES[refused]
    head = begin.replace(b"POST /", b"POST /flows/").replace(b"Content-Length: 500000", b"Content-Length: 2")
    async with mounted("httptools") as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(head + b"[]")
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"connection: close" not in answer.lower()
        writer.transport.abort()


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"\r\n"], ids=["nothing", "half", "lines"])
async def test_T42_a_head_that_trickles_does_not_hold_its_connection(begin: bytes) -> None:
    async with served(SHORT) as (port, _):
        answer = await trickled(port, begin, b"\r\n" if begin == b"\r\n" else b"a")

    assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize("after", [b"GET /healthz HTTP/1.1\r\nX-Slow: ", b"\r\n"], ids=["a head", "lines"])
async def test_T42_what_trickles_after_an_answer_does_not_hold_the_connection(after: bytes) -> None:
    async with served(AFTER_AN_ANSWER) as (port, _):
        good = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = await trickled(port, good + after, after[-2:] if after == b"\r\n" else b"a")

    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_request_that_comes_in_pieces_keeps_its_connection() -> None:
    """A body that comes after its head, as most clients send it, is as good as one that comes with it."""
    async with served() as (port, key):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"definition": "order"}'
        head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        for _ in range(2):
            for part in (head.encode(), body[:5], body[5:]):
                writer.write(part)
                await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert answer.startswith(b"HTTP/1.1 201 ")
            assert b"connection: close" not in answer.lower()
        writer.transport.abort()


async def test_T31_who_sends_too_much_can_read_that_it_was_too_much() -> None:
    """The connection is closed, but not under the answer."""
    async with served() as (port, key):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: 4000000\r\n\r\n"
        writer.write(head.encode() + b" " * 4_000_000)
        answer = await reader.read()
        writer.transport.abort()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"payload_too_large" in answer
