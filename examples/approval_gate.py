"""An approval gate: a workflow drafts a letter, waits for a person, and sends it only when that person agrees.

Runs by itself in a temporary folder, on SQLite: `python examples/approval_gate.py`. Three letters are written. One is
approved, one is rejected, and nobody looks at the third in time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

import bide

app = bide.App("letters", store="sqlite:///letters.db")


@dataclass
class Letter:
    to: str
    patience: str = "48h"  # how long a person may take


@dataclass
class Approval:
    approved: bool
    reason: str = ""


def write_draft(to: str) -> str:
    say(f"  a draft for {to} is written")
    return f"Dear {to}, …"


def send(draft: str) -> None:
    say(f"  the letter is sent: {draft!r}")


@app.workflow("letter")
async def letter(step: bide.Step, order: Letter) -> dict[str, str]:
    draft = await step.run("draft", write_draft, order.to)
    try:
        answer = await step.wait_for_signal(
            "approval-gate", signal=f"approval-{step.run_id}", timeout=order.patience, returns=Approval
        )
    except bide.SignalTimeoutError:
        return {"status": "expired"}
    if not answer.approved:
        return {"status": "rejected", "reason": answer.reason}
    await step.run("send", send, draft)
    return {"status": "sent"}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-letters-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/letters.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()

        say("Ann's letter: the answer is first one that does not fit, then a yes.")
        run = await parked(client, Letter("Ann"))
        refused = await client.complete(f"approval-{run.id}", {"approved": "perhaps"}, check=False)
        say(f"  'perhaps' is refused, and the run goes on waiting: {refused.reason}")
        await client.complete(f"approval-{run.id}", Approval(approved=True))
        say(f"  the run ends: {await run.result(timeout='30s')}")

        say("Bob's letter: the answer is a no.")
        run = await parked(client, Letter("Bob"))
        await client.complete(f"approval-{run.id}", Approval(approved=False, reason="too short"))
        say(f"  the run ends: {await run.result(timeout='30s')}")

        say("Cleo's letter: nobody answers within half a second.")
        run = await parked(client, Letter("Cleo", patience="0.5s"))
        say(f"  the run ends: {await run.result(timeout='30s')}")
        late = await client.complete(f"approval-{run.id}", Approval(approved=True))
        say(f"  a yes that comes now is {late.outcome}: {late.reason}")


async def parked(client: bide.Client, order: Letter) -> bide.Run[Any]:
    """Start a run and look until its wait is open: the person who answers can only do so from then on."""
    run = await client.start(letter, order)
    async with asyncio.timeout(30):
        while not await client.waits(run_id=run.id, status=None):  # noqa: ASYNC110  # nobody tells this process
            await asyncio.sleep(0.02)
    say(f"  the run is parked: it waits for approval-{run.id}")
    return run


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
