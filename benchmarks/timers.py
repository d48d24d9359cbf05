"""Deadlines that fall due in the same second: how late they fire, and that none is early, by the store's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import deadline_app, park_many
from benchmarks.scale import Scale
from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from bide.stores.interface import Store, WaitFilter

MOST_SECONDS_LATE = 2.0
LONGEST_SECONDS = 120
PAGE = 1000
PACE_RUNS = 500


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        late, last_resumed = await _fire(places, kind, scale.deadlines)
        report.results.setdefault("timers", {})[kind] = {
            "deadlines": scale.deadlines,
            "earliest_s": round(min(late), 4),
            "latest_s": round(max(late), 4),
            "last_resumed_s": round(last_resumed, 4),
        }
        name = f"{STORES[kind]}: {scale.deadlines:,} deadlines in one second"
        report.figures += [
            Figure.at_most(f"{name}, the latest", max(late), "s", MOST_SECONDS_LATE),
            Figure.at_least(f"{name}, the earliest", min(late), "s", 0),
            Figure(f"{name}, the last one's code", last_resumed, "s"),
        ]
    return report


async def _fire(places: Places, kind: Kind, count: int) -> tuple[list[float], float]:
    """How many seconds after its deadline each timer fired, and how long after the second the last run was resumed."""
    resumed: list[float] = []
    all_resumed = asyncio.Event()

    def note() -> None:
        resumed.append(time.time())
        if len(resumed) == count:
            all_resumed.set()

    app = deadline_app(await places.store(kind), note)
    runtime = await app.runtime()
    store = runtime.store
    second = await _second_after_parking(runtime, count)
    await park_many(runtime, "deadline", count, "late", lambda n: second + timedelta(seconds=n / count))
    assert await store.now() < second, "the machine is too slow to park the runs before their deadlines"
    async with Engine(runtime), asyncio.timeout(LONGEST_SECONDS):
        await all_resumed.wait()
    late = await _seconds_late(store)
    assert len(late) == count
    await app.close()
    return late, resumed[-1] - (second + timedelta(seconds=1)).timestamp()


async def _second_after_parking(runtime: Runtime, count: int) -> datetime:
    """The start of a second that lies behind the parking of so many runs, judged by the pace of a few."""
    began = time.perf_counter()
    await park_many(runtime, "deadline", PACE_RUNS, "late", lambda _: timedelta(days=30))
    seconds = 5 + 3 * (time.perf_counter() - began) * count / PACE_RUNS
    return (await runtime.store.now() + timedelta(seconds=seconds)).replace(microsecond=0)


async def _seconds_late(store: Store) -> list[float]:
    late: list[float] = []
    after: tuple[str, int] | None = None
    while page := await store.waits(WaitFilter(status="timed_out"), after=after, limit=PAGE):
        for wait in page:
            assert wait.deadline is not None
            assert wait.closed_at is not None
            late.append((wait.closed_at - wait.deadline).total_seconds())
        after = page[-1].run_id, page[-1].no
    return late
