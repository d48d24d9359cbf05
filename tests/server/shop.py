"""The app that tests of the HTTP API talk to."""

from __future__ import annotations

import contextlib
from datetime import date
from typing import Annotated, Any, Literal

import msgspec

import bide

app = bide.App("shop", store="memory://")


class Approval(msgspec.Struct):
    approved: bool
    reason: str | None = None


@app.workflow("outreach")
async def outreach(step: bide.Step, event: Any) -> dict[str, Any]:
    try:
        answer = await step.wait_for_signal("gate", signal=f"approval-{step.run_id}", timeout="48h", returns=Approval)
    except bide.SignalTimeoutError:
        return {"status": "expired"}
    return {"status": "sent" if answer.approved else "rejected", "reason": answer.reason}


@app.workflow("shared")
async def shared(step: bide.Step, event: Any) -> Any:
    return await step.wait_for_signal("gate", signal="the-one-gate", timeout="48h")


@app.workflow("typed")
async def typed(step: bide.Step, event: Approval) -> Any:
    return event.approved


@app.machine("order")
class Order:
    @bide.start
    def begin(self, ctx: bide.Context[Any]) -> Any:
        return bide.Await("paid", then="ship", timeout="1h")

    def ship(self, ctx: bide.Context[Any]) -> Any:
        return bide.Done({"paid": [signal.payload for signal in ctx.awaited]})


@app.workflow("broken", retries=0)
async def broken(step: bide.Step, event: Any) -> Any:
    raise RuntimeError("it broke")


@app.workflow("task")
async def task(step: bide.Step, event: Any) -> Any:
    return await step.ask("review", title="Is this fine?", form=Approval, timeout="48h")


@app.workflow("race")
async def race(step: bide.Step, event: Any) -> Any:
    """Whoever answers first; the other is not waited for any longer."""
    asked = step.ask("review", title="Is this fine?", form=Approval, timeout="48h")
    won = await step.first("race", asked, step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="48h"))
    return won.value


@app.workflow("quote")
async def quote(step: bide.Step, event: Any) -> Any:
    """One request to a provider."""
    return await step.request("price", {"of": event}, transport="interaction-api", returns=int, timeout="48h")


@app.workflow("caught")
async def caught(step: bide.Step, event: Any) -> Any:
    """One request, and a run that goes on where it came to nothing."""
    with contextlib.suppress(bide.BideError):
        await step.request("price", {"of": event}, transport="interaction-api", returns=int, timeout="48h")
    return await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="30d")


@app.workflow("quotes")
async def quotes(step: bide.Step, event: Any) -> Any:
    """Two requests, and one wait for both."""
    return await step.request_each("prices", [1, 2], transport="interaction-api", returns=int, timeout="48h")


rows = app.pipeline("rows").expand(list).wait_external(
    "prices", transport="interaction-api", returns=int, timeout="48h"
).collect(list)  # fmt: skip


@app.workflow("event")
async def event_wait(step: bide.Step, event: Any) -> Any:
    return (await step.wait_for_event("shipped", event="order.*", timeout="48h")).data


SEEN: dict[str, str] = {}


def send_link(name: str, url: str) -> None:
    SEEN[name] = url


@app.workflow("kyc")
async def kyc(step: bide.Step, user: str) -> Any:
    """The provider is told the URL, and is slow to be waited for."""
    cb = await step.callback(
        "kyc", timeout="7d", returns=Approval, channel="webhook", title="Is <b>this</b> person real?"
    )
    await step.run("begin", send_link, user, cb.url)
    await step.wait_for_signal("ready", signal=f"ready-{step.run_id}", timeout="30d")
    try:
        answer = await cb
    except bide.WaitTimeoutError:
        return "expired"
    await step.run("again", send_link, f"{user} again", cb.url)
    return answer.approved


@app.workflow("payment")
async def payment(step: bide.Step, user: str) -> Any:
    """A provider with a body of its own, which sends other things too."""
    cb = await step.callback(
        "paid", timeout="1d", returns=Approval, accept="data.type == 'done'", extract="data.object"
    )
    await step.run("begin", send_link, user, cb.url)
    return (await cb).approved


class Everything(msgspec.Struct):
    """All that a form can show."""

    name: str
    agreed: bool
    amount: int
    colour: Literal["red", "green", "blue"]
    due: date
    tags: list[str]
    ratio: float | None = None
    inner: Approval | None = None
    notes: Annotated[str, msgspec.Meta(max_length=2000, description="Anything else?")] = ""


@app.workflow("form")
async def form(step: bide.Step, user: str) -> Any:
    cb = await step.callback(
        "form", timeout="1d", returns=Everything, title="Please decide", description="It is urgent."
    )
    await step.run("begin", send_link, user, cb.url)
    return await cb


class Defaulted(msgspec.Struct):
    approved: bool = True
    reason: str = ""


class Note(msgspec.Struct):
    note: str = "x"


ASKED: dict[str, Any] = {"default": Defaulted, "anything": Any, "nothing needed": Note}


@app.workflow("pressed")
async def pressed(step: bide.Step, kind: str) -> Any:
    """Forms that could be sent as they are."""
    cb = await step.callback("form", timeout="1d", returns=ASKED[kind], title="Please decide")
    await step.run("begin", send_link, kind, cb.url)
    return await cb


MAIL_WORKS = [False]


@app.notifier
def mail(task: bide.Task) -> None:
    if not MAIL_WORKS[-1]:
        raise bide.NonRetryable("no mail today")


@app.workflow("told")
async def told(step: bide.Step, event: Any) -> Any:
    """Its notifier fails: a dead letter."""
    return await step.ask("review", title="Is this fine?", form=Approval, timeout="48h", notify="mail")
