"""A saga: a trip is booked step by step, and what was booked is undone when a step fails or the trip is cancelled.

Runs by itself in a temporary folder, on SQLite: `python examples/saga.py`. One trip works out, one fails at the hotel,
and one is cancelled while it waits for the traveller's word.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass

import bide

app = bide.App("trips", store="sqlite:///trips.db")


@dataclass
class Trip:
    traveller: str
    hotel: str = "Seaview"


def book(what: str) -> str:
    if what.startswith("hotel Nowhere"):
        raise bide.NonRetryable("there is no such hotel")
    say(f"  booked: {what}")
    return what


def undo(what: str) -> None:
    say(f"  undone: {what}")


@app.workflow("trip", retries=0, on_cancel="raise")
async def trip(step: bide.Step, trip: Trip) -> str:
    booked: list[str] = []
    try:
        for kind, name in (("flight", "north"), ("hotel", trip.hotel)):
            booked.append(await step.run(f"book-{kind}", book, f"{kind} {name} for {trip.traveller}"))
        await step.receive("confirmed", "confirmed", timeout="2d")
        return "booked"
    except (bide.StepFailedError, bide.WaitTimeoutError, bide.Cancelled) as reason:
        for what in reversed(booked):  # each is a step: it is undone once, also when this process dies in between
            await step.run("undo", undo, what)
        if isinstance(reason, bide.Cancelled):
            raise
        return "not possible"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-trips-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/trips.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()

        say("Ann's trip works out.")
        run = await client.start(trip, Trip("Ann"))
        await run.signal("confirmed")
        say(f"  the run ends: {await run.result(timeout='30s')}")

        say("Bob's hotel does not exist.")
        run = await client.start(trip, Trip("Bob", hotel="Nowhere"))
        say(f"  the run ends: {await run.result(timeout='30s')}")

        say("Cleo's trip is cancelled before she has confirmed it.")
        run = await client.start(trip, Trip("Cleo"))
        async with asyncio.timeout(30):
            while not await client.waits(run_id=run.id):  # noqa: ASYNC110  # nobody tells this process
                await asyncio.sleep(0.02)
        await run.cancel("a change of plans")
        try:
            await run.result(timeout="30s")
        except bide.RunCancelledError:
            say("  the run ends: cancelled")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
