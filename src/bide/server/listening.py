"""Taking connections: what is slow, too long or malformed is turned away before it holds anything (T42–T44)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bide.errors import BadConfiguration

HEAD_SECONDS = 10.0
LONGEST_HEAD = 64 * 1024
KEEP_ALIVE_SECONDS = 15
MOST_CONNECTIONS = 10_000


class Corked:
    """A transport that sends in one go what one turn of the loop writes: the head of an answer and its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._held = self._held, []
        if held:
            self._transport.write(b"".join(held))


class Punctual(HttpToolsProtocol):
    """Gives a client so many seconds, and so many bytes, for the head of each request."""

    head_seconds = HEAD_SECONDS
    _clock: asyncio.TimerHandle | None = None
    _head = 0
    _is_in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]  # it passes everything on
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._clock is not None:
            self._head += len(data)
            if self._head > LONGEST_HEAD and b"\r\n\r\n" not in data:
                self._turn_away(b"431 Request Header Fields Too Large")
                return
        super().data_received(data)
        if self._is_in_head and self._clock is None:  # most heads come whole, and need no clock
            self._expect_head()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        if self._clock is None:
            self._head = 0
            self._clock = self.loop.call_later(self.head_seconds, self._turn_away, b"408 Request Timeout")

    def _head_is_there(self) -> None:
        self._is_in_head = False
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _turn_away(self, status: bytes) -> None:
        self._head_is_there()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


class Listener(uvicorn.Server):
    """A server whose stopping is the caller's: signals stay with the program."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        leave = getattr(self.config.app, "leave", None)
        if leave is not None:
            leave()
        self.should_exit = True


def listener(asgi: Any, host: str, port: int, *, grace: float = 10.0) -> Listener:
    """A server for the application; nothing is opened yet. It writes no access log: paths may be resume links (T11)."""
    config = uvicorn.Config(
        asgi,
        host=host,
        port=port,
        http=Punctual,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who a proxy says is asking
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(grace),
        limit_concurrency=MOST_CONNECTIONS,
        backlog=2048,
    )
    return Listener(config)


async def listen(server: Listener, stopped: asyncio.Event, ready: Any = None) -> None:
    """Serve until *stopped*; *ready* is called with the port once connections are taken.

    Raises `BadConfiguration` where nothing can listen there.
    """
    host, port = server.config.host, server.config.port
    try:
        bound = socket.create_server((host, port), backlog=server.config.backlog)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error.strerror or error}; take another with --port or --host"
        raise BadConfiguration(said) from error
    serving, stopping = asyncio.create_task(server.serve([bound])), asyncio.create_task(stopped.wait())
    listening = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if ready is not None and server.started:
            ready(bound.getsockname()[1])
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        listening.cancel()
        stopping.cancel()
        server.stop()
        await serving
        bound.close()
