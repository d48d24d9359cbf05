"""Requests that no HTTP library would send, over a socket: what each of them is answered with (T02, T43–T45)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bide.server.listening import LONGEST_HEAD
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app
from tests.support.doors import served

TEST_SECONDS = 30.0
GOOD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire:
    """A server on a port, the world behind it, and a good key."""

    def __init__(self, w: World, port: int, key: str) -> None:
        self.world = w
        self._port = port
        self._key = key.encode()

    async def answer(self, *pieces: bytes, after: bytes = b"") -> bytes:
        """All that comes back until the connection is closed, or until an answer is there that leaves it open.

        The server reads each piece by itself; the first of them *after* it answered that.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        async with asyncio.timeout(TEST_SECONDS):
            if after:
                writer.write(after)
                assert (await _answer(reader)).startswith(b"HTTP/1.1 200 ")
            for piece in pieces:
                writer.write(piece.replace(b"KEY", self._key))
                await writer.drain()
                if len(pieces) > 1:
                    await self.answer(GOOD)  # it came later, so the piece was read before it
            found = await _answer(reader)
        writer.transport.abort()
        return found

    async def statuses(self, requests: Sequence[bytes]) -> list[int]:
        answers = await asyncio.gather(*map(self.answer, requests))
        return [int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0 for answer in answers]


async def _answer(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while not _is_whole(found) and (more := await reader.read(65536)):
        found += more
    return found


def _is_whole(answer: bytes) -> bool:
    """Whether it is one that keeps the connection open, so that nothing more comes."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end or b"connection: close" in head.lower():
        return False
    return len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])


@asynccontextmanager
async def wired() -> AsyncIterator[Wire]:
    async with world(app) as w, served(w) as url:
        http = w.http()
        await http.get("/v1/runs")  # its key is stored with its first request
        yield Wire(w, urlsplit(url).port or 0, http.headers["Authorization"])


BODY = b'{"definition": "order"}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: KEY\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

MALFORMED = {
    "two lengths": HEAD + LENGTH + b"Content-Length: 2\r\n\r\n" + BODY,
    "two equal lengths": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": HEAD + b"Content-Length: 23, 23\r\n\r\n" + BODY,
    "a length below zero": HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length with a sign": HEAD + b"Content-Length: +23\r\n\r\n" + BODY,
    "a length and chunks": HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKS,
    "chunks, and then none": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKS,
    "almost chunks": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "a space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a chunk of no length": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk beyond all lengths": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "a folded header": HEAD + LENGTH + b"X: a\r\n b\r\n\r\n" + BODY,
    "bare line feeds": (HEAD + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare line feed": HEAD + b"X: a\n" + LENGTH + b"\r\n" + BODY,
    "a bare carriage return": HEAD + b"X: a\r" + LENGTH + b"\r\n" + BODY,
    "NUL in a header": HEAD + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "NUL in a path": b"GET /v1/runs\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
}


async def test_T44_what_two_servers_could_read_in_two_ways_is_400_and_the_connection_is_closed() -> None:
    """T44: and no run is started by any of it, though the key and the body are good."""
    async with wired() as wire:
        for what, request in MALFORMED.items():
            answer = await wire.answer(request)
            assert answer.startswith(b"HTTP/1.1 400 "), what
            assert b"connection: close" in answer.lower(), what
            assert answer.count(b"HTTP/1.1 ") == 1, what
        assert await wire.world.runs() == []
        assert await wire.statuses([HEAD + LENGTH + b"\r\n" + BODY]) == [201]


LONG = b"a" * (LONGEST_HEAD + 1)
TOO_LONG: dict[str, tuple[bytes, ...]] = {
    "a header without end": (HEAD + b"X: " + LONG,),
    "a long header": (HEAD + b"X: " + LONG + b"\r\n\r\n",),
    "in pieces": (HEAD + b"X: " + LONG[:40_000], LONG[:40_000] + b"\r\n\r\n"),
    "after empty lines": (b"\r\n\r\n" + HEAD + b"X: " + LONG + b"\r\n\r\n",),
    "many headers": (HEAD + b"".join(b"X%d: a\r\n" % n for n in range(9_000)) + b"\r\n",),
    "many parameters": (b"GET /v1/runs?" + b"a=1&" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",),
    "a token of a megabyte": (b"GET /resume/" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",),
    "an answer to it": (b"POST /resume/" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n" + LENGTH + b"\r\n" + BODY,),
}


@pytest.mark.parametrize("before", [b"", GOOD], ids=["first", "after another"])
async def test_T43_a_head_that_is_too_long_is_431(before: bytes) -> None:
    """T02, T43: with its end or without, also on a connection that was good before. Whoever sends can read it."""
    async with wired() as wire:
        for what, pieces in TOO_LONG.items():
            answer = await wire.answer(*pieces, after=before)
            assert answer.startswith(b"HTTP/1.1 431 "), what
        parameters = b"&".join(b"a%d=1" % n for n in range(7_000))
        many = b"GET /v1/runs?" + parameters + b" HTTP/1.1\r\nHost: x\r\nAuthorization: KEY\r\n\r\n"
        token = b"GET /resume/" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        assert await wire.statuses([many, token]) == [400, 404]


async def test_a_head_whose_end_comes_in_two_pieces_is_not_taken_for_longer_than_it_is() -> None:
    body = b" " * 200_000 + BODY
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    async with wired() as wire:
        for cut in (1, 2, 3):
            answer = await wire.answer(head[:-cut], head[-cut:] + body)
            assert answer.startswith(b"HTTP/1.1 201 "), cut


PATHS = {
    "/v1/%2e%2e/healthz": 404,
    "/v1/../healthz": 404,
    "/v1/..%2fhealthz": 404,
    "/v1/.%2E/healthz": 404,
    "/./healthz": 404,
    "/healthz.": 404,
    "/healthz%2e": 404,
    "/healthz/": 404,
    "//healthz": 404,
    "/healthz%00": 404,
    "/healthz%0d%0aX:%20a": 404,
    "/HEALTHZ": 404,
    "/healthz;a=b": 404,
    "/healthz": 200,
}


async def test_T45_a_path_is_what_it_says_and_nothing_else() -> None:
    """T45: nobody tidies it up on the way; so a proxy that lets some paths through lets no others through by tricks."""
    async with wired() as wire:
        requests = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in PATHS]
        assert dict(zip(PATHS, await wire.statuses(requests), strict=True)) == PATHS
        methods = [f"{method} /v1/runs HTTP/1.1\r\nHost: x\r\n\r\n".encode() for method in ("TRACE", "DELETE", "PUT")]
        assert await wire.statuses(methods) == [405] * 3
