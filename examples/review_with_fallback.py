"""Human review with a fallback: what a model drafted goes out only after a person has read it, and when nobody does in
time, the customer gets a safe answer instead of none.

Runs by itself in a temporary folder, on SQLite: `python examples/review_with_fallback.py`. The model is a stand-in that
needs no network. One draft is sent as it is, one is corrected first, and nobody looks at the third.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass

import bide

app = bide.App("support", store="sqlite:///support.db")

STANDARD = "Thank you, we have your question and will be back tomorrow."


@dataclass
class Question:
    customer: str
    text: str
    patience: str = "4h"  # how long a person may take


@dataclass
class Review:
    """The form that the reviewer fills in."""

    good: bool
    better: str = ""  # what is to be said instead


@dataclass
class Sent:
    text: str
    source: str


def draft_answer(question: str) -> str:
    """A stand-in for a language model, which may be wrong."""
    return "We open at nine." if "open" in question else "You get your money back."


def send(customer: str, text: str) -> None:
    say(f"  to {customer}: {text}")


def note_for_tomorrow(customer: str) -> None:
    say(f"  (somebody calls {customer} tomorrow)")


@app.workflow("answer-question")
async def answer_question(step: bide.Step, question: Question) -> Sent:
    draft = await step.run("draft", draft_answer, question.text)
    try:
        review = await step.ask(
            "review",
            title=f"May {question.customer} be told this?",
            form=Review,
            shown={"question": question.text, "draft": draft},
            group="support",
            timeout=question.patience,
        )
    except bide.WaitTimeoutError:  # silence is no approval: the draft is not sent
        await step.run("send-standard", send, question.customer, STANDARD)
        await step.run("follow-up", note_for_tomorrow, question.customer)
        return Sent(STANDARD, "fallback")
    text, source = (draft, "model") if review.good else (review.better or STANDARD, "person")
    await step.run("send", send, question.customer, text)
    return Sent(text, source)


@app.groups
def groups_of(principal: str) -> list[str]:
    return ["support"] if principal == "rea" else []


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-support-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/support.db"
        asyncio.run(tell())
    return 0


async def tell() -> None:
    async with app.engine():
        client = app.client()

        say("Ann asks when the shop opens. The draft is right.")
        run, task = await asked(client, Question("Ann", "When do you open?"))
        await client.answer(task, Review(good=True), by="rea")
        say(f"  what was sent came from: {(await run.result(timeout='30s')).source}")

        say("Bob wants his money back. The draft promises too much, and rea corrects it.")
        run, task = await asked(client, Question("Bob", "Can I return it?"))
        await client.answer(task, Review(good=False, better="Please send it to us first."), by="rea")
        say(f"  what was sent came from: {(await run.result(timeout='30s')).source}")

        say("Cleo asks too, and nobody has time within half a second.")
        run = await client.start(answer_question, Question("Cleo", "Can I return it?", patience="0.5s"))
        say(f"  what was sent came from: {(await run.result(timeout='30s')).source}")
        [task] = [one.id for one in await client.interactions(run_id=run.id, status=None)]
        late = await client.answer(task, Review(good=True), by="rea", check=False)
        say(f"  rea's answer is too late now: {late.reason}")


async def asked(client: bide.Client, question: Question) -> tuple[bide.Run[Sent], str]:
    """Start a run and look until a person can answer; gives the run and the id of the task."""
    run = await client.start(answer_question, question)
    async with asyncio.timeout(30):
        while not (open_tasks := await client.interactions(run_id=run.id)):  # noqa: ASYNC110  # nobody tells this process
            await asyncio.sleep(0.02)
    shown = open_tasks[0].payload
    say(f"  rea reads: {shown['draft']}")
    return run, open_tasks[0].id


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
