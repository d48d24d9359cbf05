"""One event that many parked runs wait for: how long until all of them have gone on and come to their end.

The median of several rounds, each in a store of its own.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

import bide
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.scale import Scale
from bide.stores.interface import Executed

MOST_SECONDS = 3.0
STARTED_AT_ONCE = 500
PAUSE_SECONDS = 0.1
LONGEST_SECONDS = 120


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        rounds = [await _fan_out(places, kind, scale.listeners) for _ in range(scale.rounds)]
        emitted, ended = (median(seconds) for seconds in zip(*rounds, strict=True))
        report.results.setdefault("event_fanout", {})[kind] = {
            "runs": scale.listeners,
            "emit_s": round(emitted, 4),
            "all_ended_s": round(ended, 4),
            "all_ended_s_rounds": [round(seconds, 4) for _, seconds in rounds],
        }
        name = f"{STORES[kind]}: one event, {scale.listeners:,} runs"
        report.figures += [
            Figure(f"{name}, resumed", emitted, "s"),
            Figure.at_most(f"{name}, all ended", ended, "s", MOST_SECONDS),
        ]
    return report


async def _fan_out(places: Places, kind: Kind, count: int) -> tuple[float, float]:
    """Seconds until the emit returned, and until the last run had ended."""
    app = bide.App("bench", store=await places.store(kind))

    @app.workflow("listen")
    async def listen(step: bide.Step) -> Any:
        event = await step.wait_for_event("shipped", event="order.shipped", match="data.order > 0", timeout="1d")
        return event.data

    async with app.engine():
        client = app.client()
        for first in range(0, count, STARTED_AT_ONCE):
            some = min(STARTED_AT_ONCE, count - first)
            await asyncio.gather(*(client.start("listen") for _ in range(some)))
        runtime = await app.runtime()
        while (await runtime.store.count_runs(None)).get("waiting", 0) < count:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(PAUSE_SECONDS)
        left, all_ended = count, asyncio.Event()

        def heard(done: Executed) -> None:
            nonlocal left
            left -= len(done.ended)
            if left == 0:
                all_ended.set()

        runtime.committer.listeners.append(heard)
        began = time.perf_counter()
        receipt = await client.emit("order.shipped", {"order": 4711, "carrier": "Post"})
        emitted = time.perf_counter() - began
        assert receipt.resumed == count
        async with asyncio.timeout(LONGEST_SECONDS):
            await all_ended.wait()
        return emitted, time.perf_counter() - began
