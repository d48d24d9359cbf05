"""Reminders and escalation: a question that nobody answers is asked again, then goes to somebody else.

Runs by itself in a temporary folder, on SQLite, in about a second: `python examples/reminders.py`. In life the times
are hours and days.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from typing import Any

import bide

app = bide.App("invoices", store="sqlite:///invoices.db")
escalated = asyncio.Event()


@app.groups
def groups_of(principal: str) -> list[str]:
    return ["leads"] if principal == "lea" else []


@app.notifier
async def mail(task: bide.Task) -> None:
    """Called after the commit that gave rise to it, again if it raises, and never for a task that is over."""
    whom = f"group {task.group}" if task.group else task.assignee
    say(f"  mail to {whom}, {task.cause}: {task.title}")
    if task.cause == "escalated":
        escalated.set()


@app.workflow("invoice")
async def invoice(step: bide.Step, amount: int) -> dict[str, Any]:
    task = step.ask(
        "approve",
        title=f"Pay {amount} €?",
        form=bool,
        shown={"amount": amount},
        assignee="ann",
        notify=mail,
        reminders=["200ms", "400ms"],
        escalate={"600ms": "group:leads"},
        timeout="30s",
    )
    approved = await task
    return {"paid": approved, "by": task.receipt.by if task.receipt else None}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-invoices-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/invoices.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()
        run = await client.start("invoice", 120)
        say("ann is asked, and does not answer:")
        await escalated.wait()
        [task] = await client.interactions(group="leads")
        try:
            await client.answer(task.id, True, by="ann")
        except bide.Forbidden as error:
            say(f"ann is too late, it is not hers any more: {error.reason}")
        await client.answer(task.id, True, by="lea", shown=task.shown)
        say(f"lea answers, and the run ends: {await run.result(timeout='20s')}")


def say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
