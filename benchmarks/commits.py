"""Transactions of a wait cycle: one at a time, and under load."""

from __future__ import annotations

from benchmarks.bide_cycle import cycle_drivers, parked_drivers
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import cycle_app
from benchmarks.scale import Scale
from bide.client import Client
from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from tests.support.counting import counted

ALONE = 4  # start, park, signal, end
MOST_UNDER_LOAD = 0.1
CONCURRENCY = 1000
CYCLES_ALONE = 50


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        alone, under_load = await _count(places, kind, scale)
        report.results.setdefault("commits", {})[kind] = {
            "per_cycle_alone": alone,
            "per_cycle_under_load": round(under_load, 4),
        }
        name = STORES[kind]
        report.figures += [
            Figure.at_most(f"{name}: commits of a cycle alone", alone, "", ALONE),
            Figure.at_most(f"{name}: transactions of a cycle under load", under_load, "", MOST_UNDER_LOAD),
        ]
    return report


async def _count(places: Places, kind: Kind, scale: Scale) -> tuple[float, float]:
    app = cycle_app(await places.store(kind), concurrency=CONCURRENCY)
    runtime, store = counted(await app.runtime())

    async def opened() -> Runtime:
        return runtime

    async with Engine(runtime) as engine:
        client = Client(opened, "default")
        await parked_drivers(engine, client, CYCLES_ALONE, concurrency=1)
        alone = store.transactions / CYCLES_ALONE
        store.transactions = 0
        await cycle_drivers(engine, client, scale.counted_cycles, CONCURRENCY)
        under_load = store.transactions / scale.counted_cycles
    await app.close()
    return alone, under_load
