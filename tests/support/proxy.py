"""Loopback TCP proxies between a client and PostgreSQL: one that breaks the network, one that pools transactions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from tests.support.ports import free_port

Side = Literal["client", "server"]

CANCEL_REQUEST = 80877102
ENCRYPTION_REQUESTS = (80877103, 80877104)  # TLS, GSSAPI
AUTHENTICATION_OK = b"R" + struct.pack("!ii", 8, 0)
READY = b"Z" + struct.pack("!ic", 5, b"I")


class _Listener:
    """A loopback server whose connections are tasks of one group, all ended when it closes."""

    def __init__(self, handle: Callable[[StreamReader, StreamWriter], Coroutine[Any, Any, None]]) -> None:
        self.port = 0
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is not None:
            return
        while self._server is None:
            port = self.port or free_port()  # one that nobody takes while it refuses connections
            try:
                self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
            except OSError:
                if self.port:
                    raise
        self.port = port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def end(self) -> None:
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._handle(reader, writer)
        finally:
            writer.transport.abort()


class _Proxy:
    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._listener = _Listener(self._handle)

    async def __aenter__(self) -> Self:
        await self._listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.end()

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        return self._listener.port

    def url(self, server_url: str) -> str:
        """*server_url* with the address of the proxy in place of the server's."""
        parts = urlsplit(server_url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return parts._replace(netloc=f"{user}{self.host}:{self.port}").geturl()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        raise NotImplementedError


class CuttingProxy(_Proxy):
    """Forwards bytes until it is told to break something. Clients reach it at `host` and `port`."""

    def __init__(self, target_host: str, target_port: int) -> None:
        super().__init__(target_host, target_port)
        self.forwarded: dict[Side, int] = {"client": 0, "server": 0}
        self._left: dict[Side, int | None] = {"client": None, "server": None}
        self._writers: set[StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def connections(self) -> int:
        """How many clients are connected through to the server."""
        return len(self._writers) // 2

    def cut(self) -> None:
        """Drop every connection now, on both sides, and what was on its way."""
        for writer in self._writers:
            writer.transport.abort()

    def cut_after(self, size: int, side: Side) -> None:
        """Let *size* more bytes of that side reach the other, then drop every connection.

        The last of these bytes do arrive: only what follows them, and every answer to them, is lost. The proxy is
        whole again for connections made afterwards.
        """
        self._left[side] = size
        if size == 0:
            self._spend(side)

    def blackhole(self) -> None:
        """Accept connections and bytes and forward none of them. What is held goes on its way at `heal()`."""
        self._flowing.clear()

    def refuse(self) -> None:
        """Refuse new connections; those that exist go on."""
        self._listener.close()

    async def heal(self) -> None:
        """Forward everything and accept connections again, at the same port."""
        self._left = {"client": None, "server": None}
        self._flowing.set()
        await self._listener.open()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._flowing.wait()
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        try:
            pumps = [
                asyncio.create_task(self._pump(reader, server_writer, "client")),
                asyncio.create_task(self._pump(server_reader, writer, "server")),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers -= {writer, server_writer}
            ends = (writer, server_writer)
            for end in ends:  # all of them before any is waited for: the wait may be cancelled
                end.close()  # unlike abort, this lets bytes already forwarded arrive
            for end in ends:
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, reader: StreamReader, writer: StreamWriter, side: Side) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            left = self._left[side]
            if left is not None:
                data, self._left[side] = data[:left], max(0, left - len(data))
            writer.write(data)
            await writer.drain()
            self.forwarded[side] += len(data)
            if self._left[side] == 0:
                self._spend(side)
                return

    def _spend(self, side: Side) -> None:
        self._left[side] = None
        for writer in self._writers:
            writer.close()


@dataclass(eq=False)
class _Backend:
    """A server connection of the pool, with what the server said of itself when it was opened."""

    reader: StreamReader
    writer: StreamWriter
    parameters: bytes
    key: bytes


@dataclass
class _Exchange:
    """What a client has asked and not been answered yet."""

    replies: int = 0  # how many times the server has still to say that it is ready
    is_unfinished: bool = False  # messages were sent that no Sync has followed yet

    def ask(self, message: bytes) -> None:
        self.is_unfinished = message[:1] not in (b"Q", b"S", b"F")
        self.replies += not self.is_unfinished


class PoolingProxy(_Proxy):
    """A transaction pooler: each transaction of a client runs on another of *size* server connections.

    It speaks what a trusted client without TLS needs. Between transactions a client has no server connection, so
    nothing of a session (prepared statements, settings, advisory locks, LISTEN) lasts longer than a transaction.
    Clients with the same startup packet (user, database, settings) share their connections.
    """

    def __init__(self, target_host: str, target_port: int, size: int = 3) -> None:
        super().__init__(target_host, target_port)
        self._size = size
        # Idle connections by startup packet, taken and given back in turn; None is one that has yet to be opened.
        self._idle: dict[bytes, asyncio.Queue[_Backend | None]] = {}
        self._backends: set[_Backend] = set()
        self._serving: dict[bytes, _Backend] = {}  # by the key that the client was given for cancelling
        self._keys = (struct.pack("!ii", 0, number) for number in itertools.count(1))

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        for backend in self._backends:
            backend.writer.transport.abort()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        startup = await self._startup(reader, writer)
        if struct.unpack("!i", startup[4:8])[0] == CANCEL_REQUEST:
            await self._cancel(startup[8:])
            return
        key = next(self._keys)
        async with self._borrowed(startup, writer) as backend:
            parameters = backend.parameters
        writer.write(AUTHENTICATION_OK + parameters + b"K" + struct.pack("!i", 4 + len(key)) + key + READY)
        messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        receiving = asyncio.create_task(_receive(reader, messages))
        try:
            while (first := await messages.get()) is not None:
                async with self._borrowed(startup, writer) as backend:
                    self._serving[key] = backend
                    await self._transaction(first, messages, writer, backend)
        finally:
            self._serving.pop(key, None)
            receiving.cancel()

    async def _transaction(
        self, first: bytes, messages: asyncio.Queue[bytes | None], writer: StreamWriter, backend: _Backend
    ) -> None:
        exchange = _Exchange()
        exchange.ask(first)
        backend.writer.write(first)
        asking = asyncio.create_task(self._ask(messages, backend, exchange))
        try:
            while True:
                answer = await _read_message(backend.reader)
                writer.write(answer)
                await writer.drain()
                if answer[:1] == b"Z":
                    exchange.replies -= 1
                    if answer[5:] == b"I" and not exchange.replies and not exchange.is_unfinished:
                        return
        finally:
            asking.cancel()  # nothing is awaited since the decision, so no message slips through after it

    async def _ask(self, messages: asyncio.Queue[bytes | None], backend: _Backend, exchange: _Exchange) -> None:
        while (message := await messages.get()) is not None:
            exchange.ask(message)
            backend.writer.write(message)
        backend.writer.transport.abort()  # the client left inside a transaction: nobody else may inherit it

    @contextlib.asynccontextmanager
    async def _borrowed(self, startup: bytes, client: StreamWriter) -> AsyncIterator[_Backend]:
        """A server connection, given back if all went well and replaced by a new one if not."""
        if startup not in self._idle:
            self._idle[startup] = asyncio.Queue()
            for _ in range(self._size):
                self._idle[startup].put_nowait(None)
        idle = self._idle[startup]
        backend, given_back = await idle.get(), None
        try:
            if backend is None or backend.reader.at_eof():
                backend = await self._open(startup, client)
            yield backend
            given_back = backend
        finally:
            if given_back is None and backend is not None:
                backend.writer.transport.abort()
                self._backends.discard(backend)
            idle.put_nowait(given_back)

    async def _open(self, startup: bytes, client: StreamWriter) -> _Backend:
        reader, writer = await asyncio.open_connection(*self._target)
        backend = _Backend(reader, writer, b"", b"")
        self._backends.add(backend)
        writer.write(startup)
        while (message := await _read_message(reader))[:1] != b"Z":
            match message[:1]:
                case b"S":
                    backend.parameters += message
                case b"K":
                    backend.key = message[5:]
                case b"E":
                    client.write(message)
                    await client.drain()
                    raise ConnectionRefusedError(message)
                case _:
                    assert message == AUTHENTICATION_OK or message[:1] == b"N", f"only trust is spoken: {message!r}"
        return backend

    async def _startup(self, reader: StreamReader, writer: StreamWriter) -> bytes:
        while True:
            size = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack("!i", size)[0] - 4)
            if struct.unpack("!i", body[:4])[0] not in ENCRYPTION_REQUESTS:
                return size + body
            writer.write(b"N")

    async def _cancel(self, key: bytes) -> None:
        if backend := self._serving.get(key):
            _, writer = await asyncio.open_connection(*self._target)
            writer.write(struct.pack("!ii", 8 + len(backend.key), CANCEL_REQUEST) + backend.key)
            writer.close()
            await writer.wait_closed()


@contextlib.contextmanager
def pooling_beside(target_host: str, target_port: int) -> Iterator[PoolingProxy]:
    """A pooler on a loop of its own, in a thread: it goes on while the test holds up its own loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pooler")
    thread.start()

    def done(work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    pooler = PoolingProxy(target_host, target_port)
    try:
        done(pooler.__aenter__())
        try:
            yield pooler
        finally:
            done(pooler.__aexit__())
            done(asyncio.sleep(0))  # what was aborted is closed in the next round
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _read_message(reader: StreamReader) -> bytes:
    header = await reader.readexactly(5)
    return header + await reader.readexactly(struct.unpack("!i", header[1:])[0] - 4)


async def _receive(reader: StreamReader, messages: asyncio.Queue[bytes | None]) -> None:
    """Put every message of a client in line, and None when it leaves."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while (message := await _read_message(reader))[:1] != b"X":
            messages.put_nowait(message)
    messages.put_nowait(None)
