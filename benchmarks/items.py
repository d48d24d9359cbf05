"""Item streams: items a second with a transport that answers in process, payments a second end to end over Kafka,
completions of one hot wait a second, and that memory does not grow with the number of items."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bide
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Places
from benchmarks.scale import Scale
from bide.engine.admission import Admitting
from bide.engine.transport import Answer, Answered, Dispatched, Request, Sent

LEAST_COMPLETIONS = 3000
LEAST_ITEMS = 1000
MOST_GROWTH = 1.5  # of the memory, from few items to many
PAGE = 500
DEMO = Path(__file__).parent.parent / "examples" / "csv_payments" / "demo.py"


class InProcess:
    """Answers as it is asked."""

    name = "in-process"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        return [Answered(request.data) for request in requests]


class Silent:
    """Sends, and says nothing."""

    name = "silent"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        return [Sent() for _ in requests]


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        name = STORES[kind]
        found = await asyncio.to_thread(_streamed, await places.store(kind), scale.items)
        hot = await _completions(await places.store(kind), scale.items)
        report.results.setdefault("items", {})[kind] = {
            "items": scale.items,
            "items_per_s": round(found["items_per_s"]),
            "hot_completions_per_s": round(hot),
            "peak_mib": round(found["peak_mib"], 1),
        }
        report.figures += [
            Figure.at_least(
                f"{name}: items through a pipeline, answered in process", found["items_per_s"], "/s", LEAST_ITEMS
            ),
            Figure.at_least(f"{name}: completions of one wait", hot, "/s", LEAST_COMPLETIONS),
        ]
    paid = await asyncio.to_thread(_paid, await places.store("sqlite"), scale.payments)
    report.results["items"]["csv_payments"] = {
        "broker": paid["broker"],
        "payments": paid["payments"],
        "per_s": round(paid["per_s"]),
    }
    what = f"SQLite and {paid['broker']}: payments of a file, each decided by a provider"
    report.figures.append(Figure.at_least(what, paid["per_s"], "/s", LEAST_ITEMS))
    return report


async def measure_memory(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    few = await asyncio.to_thread(_streamed, await places.store("sqlite"), scale.items)
    many = await asyncio.to_thread(_streamed, await places.store("sqlite"), scale.items * scale.items_more)
    growth = many["peak_mib"] / few["peak_mib"]
    report.results["items_memory"] = {
        "few": scale.items,
        "few_peak_mib": round(few["peak_mib"], 1),
        "many": scale.items * scale.items_more,
        "many_peak_mib": round(many["peak_mib"], 1),
        "growth": round(growth, 3),
    }
    what = f"SQLite: memory of {scale.items * scale.items_more:,} items to that of {scale.items:,}"
    report.figures.append(Figure.at_most(what, growth, "x", MOST_GROWTH))
    return report


def _paid(store: str, payments: int) -> dict[str, Any]:
    """The example as it is: broker, provider, engine and store on this machine."""
    done = subprocess.run(
        [sys.executable, str(DEMO), str(payments), "--json"],
        env={**os.environ, "BIDE_STORE": store},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _streamed(store: str, items: int) -> dict[str, float]:
    """In a process of its own, because the most memory that a process ever had is counted."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.items", store, str(items)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _app(store: str, transport: InProcess | Silent) -> tuple[bide.App, bide.Pipeline]:
    app = bide.App("items", store=store)
    pipeline = (
        app.pipeline("items")
        .expand(range)
        .wait_external("ask", transport=transport, timeout="1h")
        .map(lambda number: number + 1)
        .collect(lambda numbers: sum(1 for _ in numbers))
    )
    return app, pipeline


async def _stream(store: str, items: int) -> dict[str, float]:
    import resource

    app, pipeline = _app(store, InProcess())
    async with app.engine():
        began = time.perf_counter()
        run = await app.client().start(pipeline, items)
        assert await run.result(timeout="1h") == items
        took = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"items_per_s": items / took, "peak_mib": peak}


async def _completions(store: str, items: int) -> float:
    """Answers to one wait, handed in as a transport would, with nothing else to do."""
    app = bide.App("hot", store=store)

    @app.workflow("hot")
    async def hot(step: bide.Step, count: int) -> int:
        return len(await step.request_each("ask", range(count), transport="silent", timeout="1h"))

    app.transport(Silent())
    async with app.engine():
        client = app.client()
        run = await client.start("hot", items)
        while (await client.progress(run.id)).dispatched < items:  # noqa: ASYNC110  # another task brings it about
            await asyncio.sleep(0.05)
        rows = [f"int_{run.id.removeprefix('run_')}_1_{item}" for item in range(items)]
        admission = Admitting(await app.runtime(), "silent")
        began = time.perf_counter()
        for at in range(0, items, PAGE):
            await admission.admit([Answer(interaction_id=id, data=1) for id in rows[at : at + PAGE]])
        took = time.perf_counter() - began
        assert await run.result(timeout="5m") == items
    return items / took


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_stream(sys.argv[1], int(sys.argv[2])))))
