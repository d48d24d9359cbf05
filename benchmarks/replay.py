"""A run with many stored steps goes on: what its replay costs, and how long until it waits again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import bide
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import idle
from benchmarks.scale import Scale

STEPS = 1_000
MOST_MILLISECONDS = 20


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        found = await _replayed(places, kind, scale.replays)
        report.results.setdefault("replay", {})[kind] = {"steps": STEPS, **found}
        name = f"{STORES[kind]}: a run with {STEPS:,} stored steps"
        report.figures += [
            Figure.at_most(f"{name}, replayed", found["replay_ms"], "ms", MOST_MILLISECONDS),
            Figure(f"{name}, replayed, of the processor", found["replay_cpu_ms"], "ms"),
            Figure(f"{name}, from its signal until it waits again", found["turn_ms"], "ms"),
        ]
    return report


async def _replayed(places: Places, kind: Kind, replays: int) -> dict[str, Any]:
    """Medians: of the body from its first line to the end of what is stored, and of the whole way there and back."""
    app = bide.App("bench", store=await places.store(kind))
    took: list[tuple[float, float]] = []

    async def work(number: int) -> dict[str, int]:
        return {"number": number}

    @app.workflow("long")
    async def long(step: bide.Step) -> None:
        began, cpu_began = time.perf_counter(), time.process_time()
        for number in range(STEPS):
            await step.run("work", work, number)
        took.append((time.perf_counter() - began, time.process_time() - cpu_began))
        while True:
            await step.receive("again", "again", timeout="1d")

    async with app.engine() as engine:
        client = app.client()
        run = await client.start("long")
        await idle(engine)
        took.clear()
        turns = []
        for _ in range(replays):
            began = time.perf_counter()
            await client.signal(run.id, "again")
            await idle(engine)
            turns.append(time.perf_counter() - began)
    assert len(took) == replays, f"{replays} signals led to {len(took)} replays"
    return {
        "replay_ms": _milliseconds(seconds for seconds, _ in took),
        "replay_cpu_ms": _milliseconds(seconds for _, seconds in took),
        "turn_ms": _milliseconds(turns),
    }


def _milliseconds(seconds: Iterable[float]) -> float:
    return round(median(seconds) * 1000, 2)
