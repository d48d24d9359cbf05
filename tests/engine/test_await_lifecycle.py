"""The life of a wait in the ledger, in every style: exactly the entries that G3 names, with the same fields, each also
a figure of the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import bide
from bide.core.ledger import AWAIT_LIFECYCLE
from bide.engine.transport import Request, Sent
from bide.testing import World, world

WAITING = "await_execution_waiting"
SENT = ["await_interaction_dispatched", "await_unit_dispatch_complete"]
ANSWERED = ["await_unit_item_completed", "await_unit_completed", "await_resume_released"]
FIELDS = {
    "wait", "step", "status", "interaction", "correlation", "transport", "item", "expected", "completed", "timeout",
    "channel", "schema",
}  # fmt: skip
OTHERS = {  # what entries have beside them
    "kind", "names", "cause", "id", "digest", "by", "outcome", "from", "to", "worker", "epoch",
}  # fmt: skip


class Provider:
    name = "provider"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Sent]:
        raise AssertionError("a world sends nothing")


def an_app() -> bide.App:
    app = bide.App("lives")
    asked: dict[str, Any] = {"timeout": "1h", "returns": int, "channel": "desk"}

    @app.machine("machine", retries=0)
    class Machine:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h", channel="desk")

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done(ctx.timed_out)

    app.transport(Provider())

    @app.workflow("signal", retries=0)
    async def signal(step: bide.Step, count: int) -> Any:
        return await step.wait_for_signal("ask", signal="paid", timeout="1h", default=None)

    @app.workflow("task", retries=0)
    async def task(step: bide.Step, count: int) -> Any:
        return await step.ask("ask", title="Paid?", form=int, timeout="1h", default=None, channel="desk")

    @app.workflow("request", retries=0)
    async def request(step: bide.Step, count: int) -> Any:
        return await step.request("ask", 1, transport="provider", default=None, **asked)

    @app.workflow("each", retries=0)
    async def each(step: bide.Step, count: int) -> Any:
        return await step.request_each("ask", range(count), transport="provider", default=None, **asked)

    app.pipeline("items", retries=0).expand(range).wait_external("ask", transport="provider", **asked).collect(list)
    app.pipeline("one", retries=0).wait_external("ask", transport="provider", **asked)
    return app


async def answer(there: World, run: bide.Run[Any], style: str) -> None:
    match style:
        case "machine":
            await there.signal(run.id, "paid", 1)
        case "signal":
            await there.complete("paid", 1)
        case _:
            for row in await there.interactions(run_id=run.id):
                await there.answer(row.id, 1)


async def lives(there: World, run_id: str) -> list[bide.LedgerEntry]:
    return [entry for entry in await there.ledger(run_id) if entry.name.startswith("await_")]


def both(first: list[str], second: list[str], count: int) -> list[str]:
    """Entries of *count* interactions: each of the first kind, then what comes once."""
    return [*first[:1] * count, *first[1:], *second[:1] * count, *second[1:]]


STYLES: dict[str, list[str]] = {
    "machine": [WAITING, *ANSWERED[1:]],
    "signal": [WAITING, "await_answer_received", *ANSWERED[1:]],
    "task": [*SENT, WAITING, "await_answer_received", *ANSWERED],  # it is listed before the run waits
    "request": [WAITING, *SENT, *ANSWERED],
    "each": [WAITING, *both(SENT, ANSWERED, 3)],
    "one": [WAITING, *SENT, *ANSWERED],
    "items": [WAITING, *both(SENT, ANSWERED, 3)],
}


@pytest.mark.parametrize("style", STYLES)
async def test_G3_a_wait_that_is_answered_writes_its_life_and_nothing_else(store_url: str, style: str) -> None:
    """G3: what is told of an answer (W3, G2) is not of the wait's life."""
    async with world(an_app(), store_url) as there:
        run = await there.start(style, 3)
        await answer(there, run, style)
        assert (await there.get(run.id)).status == "completed"
        entries = await lives(there, run.id)
        assert [entry.name for entry in entries] == STYLES[style]
        check_fields(entries)


@pytest.mark.parametrize("end", ["timed_out", "cancelled"])
@pytest.mark.parametrize("style", STYLES)
async def test_G3_a_wait_that_is_not_answered_writes_its_life_and_nothing_else(
    store_url: str, style: str, end: str
) -> None:
    """G3: terminal, and released where the run goes on after it."""
    async with world(an_app(), store_url) as there:
        run = await there.start(style, 3)
        if end == "cancelled":
            await there.cancel(run.id)
        else:
            await there.advance("1h")
        entries = await lives(there, run.id)
        names = [entry.name for entry in entries]
        goes_on = end == "timed_out" and style not in ("one", "items")  # a pipeline fails (W2)
        sent = {"machine": [], "signal": [], "each": both(SENT, [], 3), "items": both(SENT, [], 3)}.get(style, SENT)
        released = ["await_resume_released"] if goes_on else []
        opened = [*sent, WAITING] if style == "task" else [WAITING, *sent]
        assert names == [*opened, "await_unit_terminal", *released]
        assert {entry.data["status"] for entry in entries if entry.name == "await_unit_terminal"} == {end}
        check_fields(entries)


def check_fields(entries: list[bide.LedgerEntry]) -> None:
    """The same names for the same things in each entry."""
    for entry in entries:
        if entry.name not in AWAIT_LIFECYCLE:
            continue
        fields = set(entry.data)
        assert fields >= {"wait", "step", "status"}, entry
        assert fields <= FIELDS | OTHERS, (entry.name, fields - FIELDS - OTHERS)
        if "interaction" in entry.name or "item" in entry.name:
            assert fields >= {"interaction", "correlation", "transport", "item", "channel"}, entry
        if "item" in entry.name or "dispatch_complete" in entry.name:
            assert fields >= {"expected", "completed"}, entry
    [opened] = [entry for entry in entries if entry.name == WAITING]
    assert opened.data["status"] == "waiting"


async def test_G3_each_entry_of_a_wait_is_a_figure_of_the_same_name(store_url: str) -> None:
    """G3, §11: what was committed by this process, no more and no less."""
    async with world(an_app(), store_url) as there:
        told: Counter[str] = Counter()
        for style in STYLES:
            done, cancelled = await there.start(style, 3), None
            await answer(there, done, style)
            cancelled = await there.start(style, 3)
            await there.cancel(cancelled.id)
            for run in (done, cancelled):
                told.update(entry.name for entry in await there.ledger(run.id))
        assert set(AWAIT_LIFECYCLE) <= set(told)
        text = (await there.http().get("/metrics")).text
    shown = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("bide_await_"))
    counted = {name: float(shown[f"bide_{name}_total"]) for name in AWAIT_LIFECYCLE}
    assert counted == {name: float(told[name]) for name in AWAIT_LIFECYCLE}
