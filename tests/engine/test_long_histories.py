"""A workflow of ten thousand steps: each is stored once, and all are handed back when it goes on (D2, F1, F6)."""

from __future__ import annotations

import asyncio
from typing import Any

import bide
from bide.core import ledger
from bide.testing import world

STEPS, AT_ONCE = 10_000, 1_000  # steps that end together are recorded in few commits


async def test_ten_thousand_steps_are_replayed_and_none_of_them_runs_again(store_url: str) -> None:
    """The audit of the world goes through the whole ledger at its end."""
    app, ran, seen = bide.App(), list[int](), list[int]()

    @app.workflow("long", retries=0)
    async def long(step: bide.Step) -> Any:
        seen.clear()
        for first in range(0, STEPS, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            seen.extend(await asyncio.gather(*(step.run(f"count {no}", count, no) for no in numbers)))
        total = sum(seen)
        return total + (await step.receive("go", "go", timeout="1h")).payload

    async def count(no: int) -> int:
        ran.append(no)
        return no

    async with world(app, store_url) as w:
        run = await w.start("long")
        assert (await w.get(run.id)).status == "waiting"
        assert seen == list(range(STEPS))
        seen.clear()
        await w.signal(run.id, "go", 1)
        assert await w.result(run.id) == sum(range(STEPS)) + 1
        assert sorted(ran) == list(range(STEPS)), "none of them ran again"
        assert seen == list(range(STEPS)), "the body got every result back"
        pages = await w.runtime.store.ledger(run.id)
        told = [entry.name for page in pages for entry in ledger.decode_page(page.entries)]
        assert told.count("step_completed") == STEPS
