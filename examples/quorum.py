"""Parallel approvals: two of the board must agree, any of them can stop it, and only what they saw is signed.

Runs by itself in a temporary folder, on SQLite: `python examples/quorum.py`. Three contracts are put to the board: one
is agreed on, one is vetoed, and one is changed after the board has seen it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

import bide

app = bide.App("contracts", store="sqlite:///contracts.db")
BOARD = {"ann", "ben", "cy"}


@dataclass
class Vote:
    approved: bool
    note: str = ""


@app.groups
def groups_of(principal: str) -> list[str]:
    return ["board"] if principal in BOARD else []


def sign(text: str) -> str:
    say(f"  signed: {text!r}")
    return text


@app.workflow("contract", retries=0)
async def contract(step: bide.Step, draft: dict[str, Any]) -> str:
    task = step.ask(
        "vote",
        title=f"Sign {draft['text']!r}?",
        form=Vote,
        shown=draft["text"],
        group="board",
        quorum=2,
        decides="approved",
        veto=True,
        timeout="1h",
    )
    decision = await task
    said = ", ".join(f"{vote.by} {'yes' if vote.value.approved else 'no'}" for vote in decision.answers)
    if not decision.value:
        return f"{decision.outcome} ({said})"
    text = draft["text"] + draft.get("small_print", "")
    # The receipt is of an answer to what the board saw: a text that was changed since is not signed.
    await step.options(requires=task.receipt, shown=text).run("sign", sign, text)
    return f"{decision.outcome} ({said})"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-contracts-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/contracts.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()
        await put(client, {"text": "Rent the hall"}, {"ann": True, "ben": True})
        await put(client, {"text": "Buy the hall"}, {"ann": True, "cy": False})
        await put(client, {"text": "Paint it", "small_print": " in gold"}, {"ben": True, "cy": True})


async def put(client: bide.Client, draft: dict[str, Any], votes: dict[str, bool]) -> None:
    run = await client.start("contract", draft)
    task = await the_task(client, run.id)
    say(f"{task.title}")
    for member, approved in votes.items():
        receipt = await client.answer(task.id, {"approved": approved}, by=member)
        say(f"  {member} says {'yes' if approved else 'no'}: {receipt.outcome}")
    try:
        say(f"  {await run.result(timeout='20s')}")
    except bide.RunFailedError as failed:
        say(f"  not signed: {failed.error.message if failed.error else failed}")


async def the_task(client: bide.Client, run_id: str) -> bide.InteractionInfo:
    while True:
        tasks = await client.interactions(run_id=run_id)
        if tasks:
            return tasks[0]
        await asyncio.sleep(0.01)


def say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
