"""Taking connections: what is slow, too long or malformed is turned away before it holds anything (T42–T44)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bide.errors import BadConfiguration
from bide.server.senders import Door, sender

LONGEST_HEAD = 64 * 1024
END = b"\r\n\r\n"  # of a head
KEEP_ALIVE_SECONDS = 15
MOST_CONNECTIONS = 10_000
BACKLOG = 2048


@dataclass(frozen=True)
class Patience:
    """For how many seconds a client is waited for, however it spreads what it sends over them."""

    head: float = 10.0  # of each request
    body: float = 35.0  # of each request: the API itself gives up a little earlier, and says so
    farewell: float = 2.0  # after an answer that came before the whole request did


PATIENT = Patience()


class Config(uvicorn.Config):
    """With the door that all connections of a server come through, and how long they may take."""

    door: Door
    patience: Patience


class Corked:
    """A transport that sends in one go what one turn of the loop writes: the head of an answer and its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, farewell: float) -> None:
        self._transport = transport
        self._loop = loop
        self._farewell = farewell
        self._held: list[bytes] = []
        self._is_leaving = False
        self.is_owed = False  # the client has not sent all of its request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._is_leaving:
            return
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)

    def is_closing(self) -> bool:
        return self._is_leaving or self._transport.is_closing()

    def close(self) -> None:
        """Close, now or soon: closing while a client still sends would take the answer from it (RFC 9112, 9.6)."""
        self._send()
        if not self.is_owed:
            self._transport.close()
        elif not self.is_closing():
            self._is_leaving = True
            self._transport.write_eof()
            self._loop.call_later(self._farewell, self._transport.close)

    def _send(self) -> None:
        held, self._held = self._held, []
        if held:
            self._transport.write(b"".join(held))


class Punctual(HttpToolsProtocol):
    """Gives a client so many seconds for the head and for the body of each request, and so many bytes for the head.

    The connection is closed after an answer that did not wait for the whole request: nobody would bound the rest.
    """

    config: Config
    transport: Corked  # type: ignore[assignment]  # it passes on what it does not do itself
    _clock: asyncio.TimerHandle | None = None
    _head = 0  # bytes of it that came so far
    _last = b""  # of those, where its end may have begun
    _is_in_head = False
    _keeps_alive = False  # whether the client may send another request after this one
    _inside: str | None = None  # who is counted for this connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        corked = Corked(transport, self.loop, self.config.patience.farewell)
        super().connection_made(corked)  # type: ignore[arg-type]  # as above
        who = sender(self.client[0] if self.client else None)
        if not self.config.door.enter(who):
            self._turn_away(b"429 Too Many Requests\r\nretry-after: 5")
            return
        self._inside = who
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        if self._inside is not None:
            self.config.door.leave(self._inside)
            self._inside = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # it was answered
        if not self.transport.is_owed and self._is_too_long(data):
            self.transport.is_owed = True  # it still sends, and is to read why it need not
            self._turn_away(b"431 Request Header Fields Too Large")
            return
        super().data_received(data)
        if self._clock is None:  # most requests come whole, and need no clock
            if self.transport.is_owed:
                self._set_clock(self.config.patience.body)
            elif self._is_in_head or self.cycle is None or self.cycle.response_complete:
                self._expect_head()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head, self._last = 0, b""
        self._stop_clock()
        super().on_headers_complete()
        self.transport.is_owed = True
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_message_complete(self) -> None:
        self._stop_clock()
        self.transport.is_owed = False
        self.cycle.keep_alive = self._keeps_alive
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.flow.resume_reading()  # what is left of the request is read, and thrown away
        super().on_response_complete()

    def shutdown(self) -> None:
        self._keeps_alive = False
        super().shutdown()

    def _is_too_long(self, data: bytes) -> bool:
        """Whether this is more of a head than it may have, also where the end of it is there."""
        ends_between = END in self._last + data[:3]
        self._last = (self._last + data[-3:])[-3:]
        if ends_between:
            return False
        begin = len(data) - len(data.lstrip(b"\r\n")) if not self._head and data[:1] in (b"\r", b"\n") else 0
        end = data.find(END, begin)
        self._head += (end if end >= 0 else len(data)) - begin
        return self._head > LONGEST_HEAD

    def _expect_head(self) -> None:
        self._set_clock(self.config.patience.head)

    def _set_clock(self, seconds: float) -> None:
        self._clock = self.loop.call_later(seconds, self._turn_away, b"408 Request Timeout")

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _turn_away(self, status: bytes) -> None:
        self._stop_clock()
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # another answer is under way
        elif not self.transport.is_closing():
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


def listener(
    asgi: Any,
    host: str,
    port: int,
    *,
    grace: float = 10.0,
    per_address: int = 0,
    patience: Patience = PATIENT,
) -> Listener:
    """A server for the application; nothing is opened yet. It writes no access log: paths may be resume links (T11).

    One address may have *per_address* connections at once, 0 for any number (T42).
    """
    config = Config(
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
        backlog=BACKLOG,
    )
    config.door = Door(per_address)
    config.patience = patience
    return Listener(config)


def bind(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to; they are answered once somebody listens on it.

    Raises `BadConfiguration` where nothing can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error.strerror or error}; take another with --port or --host"
        raise BadConfiguration(said) from error


async def listen(
    server: Listener, stopped: asyncio.Event, ready: Any = None, bound: socket.socket | None = None
) -> None:
    """Serve until *stopped*; *ready* is called with the port once connections are taken.

    *bound* is a socket to listen on, where the server's own address is not bound here. It is closed at the end.
    """
    if bound is None:
        bound = bind(server.config.host, server.config.port)
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
