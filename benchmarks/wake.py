"""From the signal to the code that it resumes: one idle run, in an empty store and beside many parked runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain
from statistics import mean, quantiles
from typing import Any

import bide
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import idle, park_many, waking_app
from benchmarks.scale import Scale
from benchmarks.signaller import READY, send
from benchmarks.stolen import Stolen, calmest, is_enough

P50_MS, P99_MS, OTHER_PROCESS_P50_MS, TIMES_EMPTY = 3.0, 15.0, 6.0, 1.2
WARM_UP_WAKES = 10
BLOCK = 25  # wakes in one store before the other has its turn
MOST_TIMES = 6  # as many blocks as count, where the machine is never calm
IDLE_SECONDS = 0.01


class Sleeper:
    """An engine with one parked run after the other, each woken by this process or by another."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.delays_ns: list[int] = []
        self.app = waking_app(url, self._resumed)
        self._woken = asyncio.Event()
        self._other: asyncio.subprocess.Process | None = None

    def _resumed(self, delay_ns: int) -> None:
        self.delays_ns.append(delay_ns)
        self._woken.set()

    @asynccontextmanager
    async def ready(self, *, other_process: bool) -> AsyncIterator[None]:
        async with self.app.engine() as engine:
            self._engine = engine
            if other_process:
                self._other = await _start_signaller(self.url)
            await self.wake(WARM_UP_WAKES)
            self.delays_ns.clear()
            yield
            if self._other is not None:
                assert self._other.stdin is not None
                self._other.stdin.close()
                await self._other.wait()

    async def wake(self, times: int) -> None:
        client = self.app.client()
        for _ in range(times):
            run = await client.start("waking")
            await idle(self._engine)
            await asyncio.sleep(IDLE_SECONDS)
            self._woken.clear()
            await self._signal(client, run.id)
            await self._woken.wait()

    async def _signal(self, client: bide.Client, run_id: str) -> None:
        if self._other is None:
            await send(client, run_id)
            return
        assert self._other.stdin is not None
        self._other.stdin.write(f"{run_id}\n".encode())

    def taken(self) -> list[int]:
        """The delays since this was asked last."""
        delays, self.delays_ns = self.delays_ns, []
        return delays


async def _start_signaller(url: str) -> asyncio.subprocess.Process:
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.signaller",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == READY, "the other process did not come up"
    return other


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        full = await _full_store(places, kind, scale)
        for origin in ("same_process", "other_process"):
            if (kind, origin) == ("sqlite", "other_process"):
                continue  # found by looking at the file, every 25 ms
            found = await _measure(await places.store(kind), full, scale, origin == "other_process")
            report.results.setdefault("wake", {}).setdefault(kind, {})[origin] = found
            report.figures += _figures(kind, origin, found, scale)
    return report


async def _full_store(places: Places, kind: Kind, scale: Scale) -> str:
    url = await places.store(kind)
    app = waking_app(url, lambda _: None)
    runtime = await app.runtime()
    await park_many(runtime, "waking", scale.parked, "woken", lambda _: timedelta(days=30))
    await app.close()
    return url


async def _measure(empty_url: str, full_url: str, scale: Scale, other_process: bool) -> dict[str, Any]:
    """Block by block in turns, so that whatever else the machine does hits both stores."""
    empty, full = Sleeper(empty_url), Sleeper(full_url)
    blocks: list[tuple[list[int], list[int]]] = []
    stolen: list[float] = []
    wanted = scale.wakes // BLOCK
    async with empty.ready(other_process=other_process), full.ready(other_process=other_process):
        while not is_enough(stolen, wanted, MOST_TIMES * wanted):
            theft = Stolen()
            await empty.wake(BLOCK)
            await full.wake(BLOCK)
            stolen.append(theft.percent())
            blocks.append((empty.taken(), full.taken()))
    (one, many), (one_of_all, many_of_all) = _percentiles(calmest(blocks, stolen, wanted)), _percentiles(blocks)
    return {
        "empty": one,
        "full": {**many, "parked": scale.parked},
        "ratio_full_to_empty": round(many["p50_ms"] / one["p50_ms"], 2),
        "stolen_percent": round(mean(calmest(stolen, stolen, wanted)), 2),
        "blocks": wanted,
        "all_blocks": {
            "empty": one_of_all,
            "full": many_of_all,
            "stolen_percent": round(mean(stolen), 2),
            "blocks": len(stolen),
        },
    }


def _percentiles(blocks: Sequence[tuple[list[int], list[int]]]) -> list[dict[str, float]]:
    """Of the empty store and of the full one."""
    return [_percentiles_ms(list(chain.from_iterable(delays))) for delays in zip(*blocks, strict=True)]


def _percentiles_ms(delays_ns: list[int]) -> dict[str, float]:
    cuts = quantiles(delays_ns, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49] / 1e6, 3), "p99_ms": round(cuts[98] / 1e6, 3)}


def _figures(kind: Kind, origin: str, found: dict[str, Any], scale: Scale) -> list[Figure]:
    where = STORES[kind] if origin == "same_process" else f"{STORES[kind]}, from another process"
    empty, full = found["empty"], found["full"]
    p50 = P50_MS if origin == "same_process" else OTHER_PROCESS_P50_MS
    p99 = f"{where}: signal to resumed code, p99"
    return [
        Figure.at_most(f"{where}: signal to resumed code, p50", empty["p50_ms"], "ms", p50),
        Figure.at_most(p99, empty["p99_ms"], "ms", P99_MS)
        if origin == "same_process"
        else Figure(p99, empty["p99_ms"], "ms"),
        Figure(f"{where}: the same with {scale.parked:,} parked, p50", full["p50_ms"], "ms"),
        Figure(f"{where}: the same with {scale.parked:,} parked, p99", full["p99_ms"], "ms"),
        Figure.at_most(f"{where}: times the empty store, p50", found["ratio_full_to_empty"], "×", TIMES_EMPTY),
        Figure(f"{where}: taken by the host meanwhile", found["stolen_percent"], "%"),
    ]
