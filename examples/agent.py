"""An agent whose tools can be harmless or not: before it acts on the world, a person must agree.

Runs by itself in a temporary folder, on SQLite: `python examples/agent.py`. The model is a stand-in that needs no
network: it looks something up, then wants to send money. One payment is approved, one is refused, and the model hears
of both.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Literal

import bide

app = bide.App("agents", store="sqlite:///agents.db")


@dataclass
class Call:
    tool: str
    argument: str


@dataclass
class Reply:
    say: str
    call: Call | None = None


@dataclass
class Message:
    role: Literal["user", "assistant", "tool"]
    text: str


@dataclass
class Approval:
    approved: bool
    reason: str = ""


@dataclass
class Talk:
    messages: list[Message] = field(default_factory=list[Message])


def model(talk: Talk) -> Reply:
    """A stand-in for a language model: what it answers depends on the talk alone."""
    last = talk.messages[-1]
    if last.role == "user":
        return Reply("I look up the invoice.", Call("look_up", last.text))
    if last.text.startswith("invoice"):
        return Reply("It is due, I pay it.", Call("pay", last.text))
    return Reply("It is paid." if last.text.startswith("paid") else f"I could not pay: {last.text}")


def look_up(what: str) -> str:
    say(f"  (looks up {what!r})")
    return f"invoice of {what}: 100 EUR"


def pay(what: str) -> str:
    say(f"  (pays {what!r})")
    return f"paid {what}"


TOOLS = {"look_up": look_up, "pay": pay}
NEEDS_APPROVAL = {"pay"}


@app.workflow("agent")
async def agent(step: bide.Step, task: str) -> str:
    talk = Talk([Message("user", task)])
    for _ in range(10):
        # Asking the model is a step: its answer is stored, and a replay or a restart does not ask, or pay, again.
        reply = await step.run("model", model, talk)
        talk.messages.append(Message("assistant", reply.say))
        if reply.call is None:
            return reply.say
        talk.messages.append(Message("tool", await use_tool(step, reply.call)))
    return "I give up."


async def use_tool(step: bide.Step, call: Call) -> str:
    if call.tool in NEEDS_APPROVAL:
        try:
            answer = await step.wait_for_signal(
                "approval", signal=f"{call.tool}-{step.run_id}", timeout="1d", returns=Approval
            )
        except bide.SignalTimeoutError:
            return "nobody has answered"
        if not answer.approved:
            return f"refused: {answer.reason}"
    return await step.run(f"tool-{call.tool}", TOOLS[call.tool], call.argument)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-agents-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/agents.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()
        for task, answer in (
            ("the printer", Approval(approved=True)),
            ("a golden statue", Approval(approved=False, reason="not in the budget")),
        ):
            say(f"The task: {task}.")
            run = await client.start(agent, task)
            async with asyncio.timeout(30):
                while not await client.waits(run_id=run.id):  # noqa: ASYNC110  # nobody tells this process
                    await asyncio.sleep(0.02)
            say(f"  it wants to pay, and waits for pay-{run.id}")
            await client.complete(f"pay-{run.id}", answer)
            say(f"  the agent says: {await run.result(timeout='30s')}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
