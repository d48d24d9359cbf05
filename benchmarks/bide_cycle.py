"""The wait cycle on bide: start, one step, wait for a signal, send it, one step, result.

    python -m benchmarks.bide_cycle STORE CYCLES CONCURRENCY:BATCH[,CONCURRENCY:BATCH...] [--style S] [--parked-first]

The counterpart of `peers/dbos_cycle.py`: one process with engine and driver in it, on the event loop that `bide worker`
has; of several settings each is measured over all cycles and the quickest is printed, as one JSON line. With
`--parked-first` a driver waits until its run is parked in the store, and only then signals it, as those of the peer do.
Without, it signals as soon as `start` has returned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

import bide
from benchmarks.programs import CYCLES, ORDER, PAYMENT
from bide.cli.quickly import run_quickly
from bide.core.commands import Committed
from bide.engine.engine import Engine
from bide.stores.interface import Executed

WARM_UP_CYCLES = 200


async def measure(
    store: str, cycles: int, concurrency: int, batch: int, *, style: str, parked_first: bool
) -> dict[str, Any]:
    app = CYCLES[style](store, concurrency=concurrency, batch=batch)
    async with app.engine() as engine:
        client = app.client()
        drive = parked_drivers if parked_first else cycle_drivers
        await drive(engine, client, min(cycles, WARM_UP_CYCLES), concurrency)
        began, cpu_began = time.perf_counter(), time.process_time()
        await drive(engine, client, cycles, concurrency)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {
        "cycles": cycles,
        "seconds": round(seconds, 3),
        "per_s": round(cycles / seconds, 1),
        "cpu_us": round(cpu_seconds / cycles * 1e6),  # of this process for each cycle
        "concurrency": concurrency,
        "batch": batch,
    }


async def cycle_drivers(engine: Engine, client: bide.Client, cycles: int, concurrency: int) -> None:
    """So many drivers side by side, each with one cycle after the other."""
    numbers = iter(range(cycles))

    async def driver() -> None:
        for _ in numbers:
            run = await client.start("cycle", ORDER)
            await client.signal(run.id, "paid", PAYMENT)
            check(await run.result())

    await asyncio.gather(*(driver() for _ in range(min(concurrency, cycles))))


async def parked_drivers(engine: Engine, client: bide.Client, cycles: int, concurrency: int) -> None:
    """The same, where nothing is signalled before its run is parked: the commit that does it is heard of here."""
    numbers, parked, ears = iter(range(cycles)), set[str](), dict[str, asyncio.Future[None]]()

    def hear(done: Executed) -> None:
        for reply in done.replies:
            if isinstance(reply, Committed) and reply.run.status == "waiting":
                ear = ears.pop(reply.run.id, None)
                if ear is None:
                    parked.add(reply.run.id)  # before its `start` was heard of
                else:
                    ear.set_result(None)

    async def driver() -> None:
        for _ in numbers:
            run = await client.start("cycle", ORDER)
            if run.id in parked:
                parked.discard(run.id)
            else:
                ear = ears[run.id] = asyncio.get_running_loop().create_future()
                await ear
            receipt = await client.signal(run.id, "paid", PAYMENT)
            assert receipt.outcome == "woke", f"a run was signalled before it was parked: {receipt}"
            check(await run.result())

    listeners = engine.runtime.committer.listeners
    listeners.append(hear)
    try:
        await asyncio.gather(*(driver() for _ in range(min(concurrency, cycles))))
    finally:
        listeners.remove(hear)


def check(result: Any) -> None:
    if result != PAYMENT:
        raise AssertionError(f"a cycle returned {result!r}, not {PAYMENT!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the wait cycle on bide.")
    parser.add_argument("store", help="the URL of an empty store")
    parser.add_argument("cycles", type=int)
    parser.add_argument("settings", help="CONCURRENCY:BATCH, or several with commas: the quickest is printed")
    parser.add_argument("--style", choices=list(CYCLES), default="machine")
    parser.add_argument("--parked-first", action="store_true", help="signal a run only when it is parked")
    arguments = parser.parse_args()
    tried = []
    for setting in arguments.settings.split(","):
        concurrency, batch = map(int, setting.split(":"))
        how = {"style": arguments.style, "parked_first": arguments.parked_first}
        tried.append(run_quickly(measure(arguments.store, arguments.cycles, concurrency, batch, **how)))
    print(json.dumps(max(tried, key=lambda figures: float(figures["per_s"]))), flush=True)


if __name__ == "__main__":
    main()
