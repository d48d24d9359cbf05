"""Machine files next to Python machines: what a wait cycle costs, and how long a long file takes to load."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import bide
from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import ORDER, PAYMENT, cycle_app, idle
from benchmarks.scale import Scale
from bide.engine.engine import Engine

STEPS = 1_000
MOST_SECONDS = 1.0
MOST_TIMES = 1.5
AT_ONCE = 500

CYCLE = """
machine cycle
    implements
        compute reserved
            input.order
        wait for paid
            timeout: "1h"
            schema
                paid as text, is required
        compute result
            {paid: steps.paid.paid}
"""


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    seconds = median(_load_seconds() for _ in range(scale.rounds))
    report.results["machine_file"] = {"load": {"steps": STEPS, "seconds": round(seconds, 3)}}
    report.figures.append(
        Figure.at_most(f"a machine file of {STEPS:,} steps, loaded", round(seconds, 3), "s", MOST_SECONDS)
    )
    for kind in places.kinds:
        found = await _cycles(places, kind, scale)
        report.results["machine_file"][kind] = found
        name = f"{STORES[kind]}: a wait cycle of a machine file"
        report.figures += [
            Figure(f"{name}, of the processor", found["cpu_us"], "µs"),
            Figure.at_most(f"{name}, times that of a Python machine", found["ratio_to_machine"], "×", MOST_TIMES),
            Figure(f"{name}, times that of a workflow that asks the same", found["ratio_to_workflow"], "×"),
        ]
    return report


def _load_seconds() -> float:
    """From the file to the definition, checked."""
    steps = "".join(
        f'        action a{number} call\n            machine: "act"\n            order: input.order\n'
        if number % 2
        else f"        compute c{number}\n            {{order: input.order, number: {number} + 1}}\n"
        for number in range(STEPS)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.machine"
        path.write_text(
            f"machine long\n    accepts\n        order as number\n    implements\n{steps}", encoding="utf-8"
        )
        began = time.perf_counter()
        bide.App("bench").load(path)
        return time.perf_counter() - began


def machine_file_app(url: str, **settings: Any) -> bide.App:
    """The cycle of `cycle_app` in words; what it waits for is an answer."""
    app = bide.App("bench", store=url, **settings)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cycle.machine").write_text(CYCLE, encoding="utf-8")
        app.load(folder)
    return app


def asking_app(url: str, **settings: Any) -> bide.App:
    """The same cycle as a workflow, for what is the language's own part of the cost."""
    app = bide.App("bench", store=url, **settings)
    form = {"type": "object", "properties": {"paid": {"type": "string"}}, "required": ["paid"]}

    @app.workflow("cycle")
    async def cycle(step: bide.Step, order: dict[str, Any]) -> Any:
        return await step.ask("paid", title="paid", form=form, timeout="1h")

    return app


async def _cycles(places: Places, kind: Kind, scale: Scale) -> dict[str, Any]:
    """Round by round in turns, so that whatever else the computer does hits all of them alike."""
    programs = (cycle_app, asking_app, machine_file_app)
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(_running(make, await places.store(kind))) for make in programs]
        for engine, client in sides:
            await _round(engine, client, AT_ONCE)
        rounds = scale.rounds * scale.file_cycles // AT_ONCE
        took = [[await _round(engine, client, AT_ONCE) for engine, client in sides] for _ in range(rounds)]
    machine, workflow, file = (median(seconds) / AT_ONCE * 1e6 for seconds in zip(*took, strict=True))
    return {
        "cycles": rounds * AT_ONCE,
        "cpu_us": round(file),
        "machine_cpu_us": round(machine),
        "workflow_cpu_us": round(workflow),
        "ratio_to_machine": round(median(file / machine for machine, _, file in took), 2),
        "ratio_to_workflow": round(median(file / workflow for _, workflow, file in took), 2),
    }


@asynccontextmanager
async def _running(make: Callable[..., bide.App], store: str) -> AsyncIterator[tuple[Engine, bide.Client]]:
    app = make(store, concurrency=AT_ONCE, batch=AT_ONCE)
    async with app.engine() as engine:
        yield engine, app.client()


async def _round(engine: Engine, client: bide.Client, size: int) -> float:
    """Seconds of the processor in which all runs are parked, then answered, then done; looking up whom to answer is not
    counted."""
    began = time.process_time()
    runs = await asyncio.gather(*(client.start("cycle", ORDER) for _ in range(size)))
    await idle(engine)
    parked = time.process_time() - began
    answers = await _answers(client, runs)
    began = time.process_time()
    results = asyncio.gather(*(run.result() for run in runs))
    await asyncio.gather(*(answer() for answer in answers))
    for result in await results:
        assert result == PAYMENT, f"a cycle returned {result!r}, not {PAYMENT!r}"
    return parked + time.process_time() - began


async def _answers(client: bide.Client, runs: list[bide.Run[Any]]) -> list[Callable[[], Any]]:
    """What ends each wait: an answer where there is an interaction, else a signal."""
    tasks = await client.interactions(status="waiting", limit=len(runs))
    if not tasks:
        return [lambda run=run: client.signal(run.id, "paid", PAYMENT) for run in runs]  # type: ignore[misc]
    return [lambda task=task: client.answer(task.id, PAYMENT) for task in tasks]  # type: ignore[misc]
