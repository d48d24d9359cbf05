"""A payment raced against a change of mind and against the clock: whichever comes first decides, and the rest is over.

Runs by itself in a temporary folder, on SQLite: `python examples/payment_race.py`. Three orders are placed. One is
paid, one is called off by its customer, and nobody does anything about the third in time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass

import bide

app = bide.App("orders", store="sqlite:///orders.db")


@dataclass
class Order:
    item: str
    patience: str = "1h"


def reserve(item: str) -> str:
    say(f"  {item} is put aside")
    return item


def ship(item: str) -> None:
    say(f"  {item} is shipped")


def put_back(item: str) -> None:
    say(f"  {item} is put back on the shelf")


@app.workflow("order")
async def order(step: bide.Step, order: Order) -> str:
    item = await step.run("reserve", reserve, order.item)
    paid = step.receive("paid", "paid", timeout=bide.FOREVER)
    called_off = step.receive("called-off", "called-off", timeout=bide.FOREVER)
    too_late = step.sleep("too-late", order.patience)
    won = await step.first("outcome", paid, called_off, too_late)
    if won is paid:
        await step.run("ship", ship, item)
        return f"paid by {paid.value.payload}"
    await step.run("put-back", put_back, item)
    return "called off" if won is called_off else "never paid"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-orders-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/orders.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()

        say("Ann pays, and changes her mind a moment too late.")
        run = await client.start(order, Order("a lamp"), correlation_key="order:ann")
        await client.signal("order:ann", "paid", "ann", dedup_key="payment-1")
        say(f"  the run ends: {await run.result(timeout='30s')}")
        late = await client.signal(run.id, "called-off", check=False)
        say(f"  calling it off now: {late.outcome}")

        say("Bob calls his order off.")
        run = await client.start(order, Order("a chair"), correlation_key="order:bob")
        await run.signal("called-off")
        say(f"  the run ends: {await run.result(timeout='30s')}")

        say("Cleo does nothing for half a second.")
        run = await client.start(order, Order("a table", patience="0.5s"))
        say(f"  the run ends: {await run.result(timeout='30s')}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
