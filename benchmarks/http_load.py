"""The load of the HTTP benchmark, in a process of its own: answers over connections that are kept open.

    python -m benchmarks.http_load PLAN

The plan and what was found are JSON. It shares two cores with the server and the store that it measures, so it does as
little as it can: requests are made beforehand and sent from callbacks of the loop, and of an answer it reads where it
ends and whether it is good.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections import deque
from collections.abc import Sequence
from statistics import quantiles
from typing import cast

import msgspec

from benchmarks.stolen import Stolen, is_enough
from bide.cli.quickly import run_quickly

BODY = b'{"data":{"approved":true,"reason":"it is fine"}}'


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send in each round: as fast as it goes, then so many in a second for a while. There are *most* rounds at
    most, and no more than it takes for *rounds* of them to be calm."""

    port: int
    key: str
    connections: int
    warm_up: int
    rounds: int
    most: int
    answers: int
    rate: int
    paced: int

    @property
    def parked(self) -> int:
        """How many runs it may answer, one after the other from the first."""
        return self.warm_up + self.most * (self.answers + self.paced)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Of each round; the milliseconds are those at the rate that was asked for."""

    per_s: list[float]
    p50_ms: list[float]
    p99_ms: list[float]
    longest_ms: list[float]
    stolen_at_most: list[float]  # percent of the processors, while it went as fast as it could
    stolen_at_rate: list[float]


class Connection(asyncio.Protocol):
    """One connection that is kept open. It reads no more of an answer than where it ends and whether it is good."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._read = b""
        self._due = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.fail(AssertionError("the server closed a connection"))

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        self._read = b""
        if head.startswith(b"HTTP/1.1 200 "):
            self._load.answered(self, self._due)
        else:
            self._load.fail(AssertionError((head, body)))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class Load:
    """Sends requests that were made beforehand, from callbacks of the loop: it shares two cores with what it measures,
    and every task that it does not make is the server's."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = (
            f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(BODY)}\r\n\r\n"
        ).encode()
        self._connections: list[Connection] = []
        self._idle: deque[Connection] = deque()
        self._requests: deque[tuple[bytes, float]] = deque()  # each with when it was due, in the order of sending
        self._left = 0
        self._delays: list[float] = []
        self._done: asyncio.Future[None] | None = None

    async def connect(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
            self._connections.append(connection)
        self._idle.extend(self._connections)

    def close(self) -> None:
        self._done = None
        for connection in self._connections:
            connection.close()

    def answered(self, connection: Connection, due: float) -> None:
        self._delays.append(time.perf_counter() - due)
        self._left -= 1
        if self._requests:
            connection.send(*self._requests.popleft())
            return
        self._idle.append(connection)
        if not self._left and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def fail(self, error: AssertionError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    async def answer(self, numbers: Sequence[int]) -> None:
        """Answer all of these, on every connection one after the other."""
        now = time.perf_counter()
        self._begin(len(numbers))
        self._send([(self._request(number), now) for number in numbers])
        await self._end()

    async def answer_at(self, rate: int, numbers: Sequence[int]) -> list[float]:
        """Answer so many in a second; how long each took from the moment at which it was due.

        Whatever is due is sent: an answer that takes long does not put off the next ones, unless every connection has
        one under way, and that wait counts too.
        """
        requests = [self._request(number) for number in numbers]
        self._begin(len(requests))
        began, sent = time.perf_counter(), 0
        while sent < len(requests):
            due = min(int((time.perf_counter() - began) * rate) + 1, len(requests))
            self._send([(requests[at], began + at / rate) for at in range(sent, due)])
            sent = due
            await asyncio.sleep(began + sent / rate - time.perf_counter())
        await self._end()
        return self._delays

    def _request(self, number: int) -> bytes:
        return b"POST /v1/signals/approval-%d/complete HTTP/1.1\r\n%b%b" % (number, self._head, BODY)

    def _begin(self, count: int) -> None:
        self._left, self._delays = count, []
        self._done = asyncio.get_running_loop().create_future()

    def _send(self, requests: list[tuple[bytes, float]]) -> None:
        self._requests.extend(requests)
        while self._requests and self._idle:
            self._idle.popleft().send(*self._requests.popleft())

    async def _end(self) -> None:
        assert self._done is not None
        await self._done


async def measure(plan: Plan) -> Found:
    load = Load(plan.port, plan.key)
    await load.connect(plan.connections)
    gc.collect()
    gc.freeze()  # its own pauses would be in the latencies
    with contextlib.closing(load):
        numbers = iter(range(plan.parked))

        def some(count: int) -> list[int]:
            return [next(numbers) for _ in range(count)]

        await load.answer(some(plan.warm_up))
        found = Found(per_s=[], p50_ms=[], p99_ms=[], longest_ms=[], stolen_at_most=[], stolen_at_rate=[])
        while not is_enough(found.stolen_at_rate, plan.rounds, plan.most):
            theft, began = Stolen(), time.perf_counter()
            await load.answer(some(plan.answers))
            found.per_s.append(plan.answers / (time.perf_counter() - began))
            found.stolen_at_most.append(theft.percent())
            theft = Stolen()
            delays = await load.answer_at(plan.rate, some(plan.paced))
            found.stolen_at_rate.append(theft.percent())
            cuts = quantiles(delays, n=100, method="inclusive")
            found.p50_ms.append(cuts[49] * 1e3)
            found.p99_ms.append(cuts[98] * 1e3)
            found.longest_ms.append(max(delays) * 1e3)
    return found


async def main() -> int:
    found = await measure(msgspec.json.decode(sys.argv[1], type=Plan))
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(run_quickly(main()))
