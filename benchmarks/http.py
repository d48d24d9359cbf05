"""Answers over HTTP: `bide serve` in a process of its own, the load from this one, over loopback.

Throughput is what many connections get that each send their next answer when the one before was acknowledged. Latency
is measured at half the load that is asked for: requests are sent when they are due, and count from that moment, so that
a server that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from statistics import median, quantiles
from typing import NamedTuple

from benchmarks.figures import STORES, Figure, Report
from benchmarks.http_app import app
from benchmarks.places import Kind, Places
from benchmarks.scale import Scale
from bide.cli.access import make_key

LEAST_PER_S, P99_MS = 2_000, 50.0
CONNECTIONS = 256
STARTED_AT_ONCE = 500
PAUSE_SECONDS = 0.1
WARM_UP = 500
BODY = b'{"data":{"approved":true,"reason":"it is fine"}}'
SECRETS = "bench:0123456789abcdef0123456789abcdef"


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        rates, latency = await _answers(places, kind, scale)
        rate = median(rates)
        report.results.setdefault("http", {})[kind] = {
            "per_s": round(rate),
            "per_s_rounds": [round(one) for one in rates],
            "connections": CONNECTIONS,
            "half_load_per_s": LEAST_PER_S // 2,
            **latency,
        }
        name = f"{STORES[kind]}: POST /v1/signals/{{id}}/complete"
        report.figures += [
            Figure.at_least(name, rate, "/s", LEAST_PER_S),
            Figure(f"{name} at {LEAST_PER_S // 2:,}/s, p50", latency["p50_ms"], "ms"),
            Figure.at_most(f"{name} at {LEAST_PER_S // 2:,}/s, p99", latency["p99_ms"], "ms", P99_MS),
        ]
    return report


async def _answers(places: Places, kind: Kind, scale: Scale) -> tuple[list[float], dict[str, float]]:
    """Answers a second in each round, and the latencies at half the load that is asked for."""
    url = await places.store(kind)
    paced = scale.http_seconds * LEAST_PER_S // 2
    key = await _park(url, WARM_UP + scale.rounds * scale.answers + paced)
    async with _served(url) as port, _connected(port, key) as load:
        await load.answer(range(WARM_UP))
        rates = []
        for no in range(scale.rounds):
            first = WARM_UP + no * scale.answers
            began = time.perf_counter()
            await load.answer(range(first, first + scale.answers))
            rates.append(scale.answers / (time.perf_counter() - began))
        first = WARM_UP + scale.rounds * scale.answers
        delays = await load.answer_at(LEAST_PER_S // 2, range(first, first + paced))
    cuts = quantiles(delays, n=100, method="inclusive")
    return rates, {"p50_ms": round(cuts[49] * 1e3, 2), "p99_ms": round(cuts[98] * 1e3, 2)}


async def _park(url: str, count: int) -> str:
    """Park so many runs, each on a signal id of its own; a key that may answer them."""
    app.configure(store=url)
    async with app.engine():
        client, runtime = app.client(), await app.runtime()
        for first in range(0, count, STARTED_AT_ONCE):
            some = range(first, min(first + STARTED_AT_ONCE, count))
            await asyncio.gather(*(client.start("approval", number) for number in some))
        while (await runtime.store.count_runs(None)).get("waiting", 0) < count:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(PAUSE_SECONDS)
        text, _ = await make_key(runtime, "default", ("signals:send",))
    await app.close()
    return text


@contextlib.asynccontextmanager
async def _served(url: str) -> AsyncIterator[int]:
    """The port of a `bide serve` on the store."""
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bide", "serve", "benchmarks.http_app:app", "--store", url, "--port", "0", "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BIDE_RESUME_SECRETS": SECRETS},
    )
    assert serving.stdout is not None
    try:
        said = json.loads(await serving.stdout.readline())
        yield int(said["url"].rpartition(":")[2])
    finally:
        serving.terminate()
        await serving.wait()


class _Connection(asyncio.Protocol):
    """One connection that is kept open. It reads no more of an answer than where it ends and whether it is good."""

    def __init__(self) -> None:
        self._read = b""
        self._waiting: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        self._read = b""
        assert self._waiting is not None
        if head.startswith(b"HTTP/1.1 200 "):
            self._waiting.set_result(None)
        else:
            self._waiting.set_exception(AssertionError((head, body)))

    async def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._waiting

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class _Load(NamedTuple):
    connections: list[_Connection]
    head: bytes

    def _request(self, number: int) -> bytes:
        return b"POST /v1/signals/approval-%d/complete HTTP/1.1\r\n%b%b" % (number, self.head, BODY)

    async def answer(self, numbers: Iterable[int]) -> None:
        """Answer all of these, on every connection one after the other."""
        left = iter(numbers)

        async def work(connection: _Connection) -> None:
            for number in left:
                await connection.send(self._request(number))

        await asyncio.gather(*map(work, self.connections))

    async def answer_at(self, rate: int, numbers: range) -> list[float]:
        """Answer so many in a second; how long each took from the moment at which it was due."""
        idle: asyncio.Queue[_Connection] = asyncio.Queue()
        for connection in self.connections:
            idle.put_nowait(connection)
        delays: list[float] = []
        began = time.perf_counter()

        async def send(number: int, due: float) -> None:
            connection = await idle.get()
            await connection.send(self._request(number))
            delays.append(time.perf_counter() - due)
            idle.put_nowait(connection)

        async with asyncio.TaskGroup() as sending:
            for at, number in enumerate(numbers):
                due = began + at / rate
                await asyncio.sleep(max(due - time.perf_counter(), 0.0))
                sending.create_task(send(number, due))
        return delays


@contextlib.asynccontextmanager
async def _connected(port: int, key: str) -> AsyncIterator[_Load]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(_Connection, "127.0.0.1", port) for _ in range(CONNECTIONS)]
    connections = [protocol for _, protocol in made]
    head = (
        f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n"
    )
    try:
        yield _Load(connections, head.encode())
    finally:
        for connection in connections:
            connection.close()
