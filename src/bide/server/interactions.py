"""Interactions over HTTP: what people and programs are asked, and what they answer."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.client.refusals import raise_late, raise_refused_task
from bide.core.commands import Receipt
from bide.core.records import OPEN_INTERACTION
from bide.errors import AlreadyAnswered, Forbidden, NotFound
from bide.server.calls import Answer, Call, Endpoint, Limit, problems_of
from bide.server.problems import Refusal, telling
from bide.server.runs import Nothing
from bide.views import InteractionInfo


class InteractionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which interactions; open ones unless other statuses, or `all`, are asked for."""

    run_id: str | None = None
    status: list[str] = []
    assignee: str | None = None
    group: str | None = None
    channel: str | None = None
    definition: str | None = None
    cursor: str | None = None
    limit: Limit = 100


class Interactions(msgspec.Struct, frozen=True, kw_only=True):
    items: list[InteractionInfo]
    next_cursor: str | None


class CompleteInteraction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer. `by` needs the scope `interactions:answer_as`; without it the key answers in its own name."""

    data: Any
    by: str | None = None
    dedup_key: str | None = None
    shown: str | None = None
    reason: str = ""
    resume_token: str | None = None


class HandOver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: str | None = None


class Assign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    assignee: str | None = None
    group: str | None = None
    reason: str = ""


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str


def _id(call: Call) -> str:
    return call.path["interaction_id"]


async def list_interactions(call: Call) -> Interactions:
    asked = call.ask(InteractionQuery)
    options = {name: value for name, value in msgspec.structs.asdict(asked).items() if name != "status"}
    if asked.status:
        options["status"] = None if asked.status == ["all"] else asked.status
    page = await call.client.interactions(**options)
    return Interactions(items=list(page), next_cursor=page.next_cursor)


async def get(call: Call) -> InteractionInfo:
    call.ask(Nothing)
    return await _told(call)


async def _told(call: Call) -> InteractionInfo:
    """Who may answer sees what is asked; who may only look does not see what is hidden of it (G4)."""
    return await call.client._look_at(_id(call), to_answer=call.key.may("interactions:answer"))


async def exists(call: Call) -> None:
    await call.client.interaction(_id(call))


async def is_open(call: Call) -> None:
    found = await call.client.interaction(_id(call))
    if found.status not in OPEN_INTERACTION:
        raise AlreadyAnswered(found.id, found.status)


async def takes_failure(call: Call) -> None:
    """One that has failed may be told so again: whether it is the same, the rule says."""
    found = await call.client.interaction(_id(call))
    if found.status not in OPEN_INTERACTION and found.status != "failed":
        raise AlreadyAnswered(found.id, found.status)


def principal(call: Call, id: str, by: str | None) -> str:
    """Who acts: the key, or whom it may speak for (W11)."""
    if by is not None and not call.key.may("interactions:answer_as"):
        raise Forbidden(id, "to act in the name of another, the key needs the scope interactions:answer_as")
    return by or call.key.name or call.key.id


async def complete(call: Call) -> Answer:
    asked = call.read(CompleteInteraction)
    try:
        await exists(call)
    except NotFound:
        call.runtime.figures.drop("not_found")  # W7
        raise
    if asked.resume_token is not None:
        await _check_token(call, asked.resume_token)
    return await answered(call, _id(call), asked.data, asked.by, asked.dedup_key, asked.shown, asked.reason)


async def _check_token(call: Call, token: str) -> None:
    """A token need not be given by who has a key; one that is given must be that of this interaction (W4)."""
    bound = (await call.runtime.signer()).read(token)
    if bound is None or (bound.workspace, bound.signal_id) != (call.key.workspace, _id(call)):
        call.runtime.figures.drop("bad_token")
        raise Refusal(404, "bad_token", "the resume token is not that of this interaction")


async def answered(
    call: Call, id: str, data: Any, by: str | None, dedup_key: str | None, shown: str | None, reason: str
) -> Answer:
    """Answer an interaction or a wait by its id, as who the key is or may speak for."""
    who = principal(call, id, by)
    receipt = await call.client.answer(id, data, by=who, dedup_key=dedup_key, shown=shown, reason=reason, check=False)
    with telling(receipt):
        if receipt.outcome == "invalid":
            errors = problems_of(receipt.problems or (receipt.reason or "",))
            raise Refusal(422, "invalid", "the data does not fit what is asked for", errors=errors)
        raise_late(receipt, id)
        raise_refused_task(receipt, id, dedup_key)
    return Answer(receipt)


async def claim(call: Call) -> InteractionInfo:
    return await call.client.claim(_id(call), principal(call, _id(call), call.read(HandOver).by))


async def release(call: Call) -> InteractionInfo:
    return await call.client.release(_id(call), principal(call, _id(call), call.read(HandOver).by))


async def assign(call: Call) -> InteractionInfo:
    asked = call.read(Assign)
    await call.client.assign(_id(call), assignee=asked.assignee, group=asked.group, reason=asked.reason)
    return await _told(call)


async def fail(call: Call) -> InteractionInfo:
    await call.client.fail_wait(_id(call), call.read(Reason).reason)
    return await _told(call)


_ONE = "/v1/interactions/{interaction_id}"

ENDPOINTS = (
    Endpoint("GET", "/v1/interactions", list_interactions, "runs:read", "List interactions, oldest first",
             query=InteractionQuery, repeats=("status",), answers={200: Interactions}),
    Endpoint("GET", _ONE, get, "runs:read", "Look at an interaction", answers={200: InteractionInfo},
             found=exists, refusals=(404,)),
    Endpoint("POST", f"{_ONE}/complete", complete, "interactions:answer", "Answer an interaction",
             body=CompleteInteraction, answers={200: Receipt}, found=exists, is_open=is_open,
             payloads=("data",), refusals=(404, 409, 410)),
    Endpoint("POST", f"{_ONE}/claim", claim, "interactions:answer", "Take a task", body=HandOver,
             answers={200: InteractionInfo}, found=exists, is_open=is_open, refusals=(404, 409, 410)),
    Endpoint("POST", f"{_ONE}/release", release, "interactions:answer", "Let go of a task", body=HandOver,
             answers={200: InteractionInfo}, found=exists, is_open=is_open, refusals=(404, 409, 410)),
    Endpoint("POST", f"{_ONE}/assign", assign, "waits:operate", "Give a task to others", body=Assign,
             answers={200: InteractionInfo}, found=exists, is_open=is_open, refusals=(404, 409, 410)),
    Endpoint("POST", f"{_ONE}/fail", fail, "waits:operate", "Fail an interaction: its item, or its wait", body=Reason,
             answers={200: InteractionInfo}, found=exists, is_open=takes_failure, refusals=(404, 409, 410)),
)  # fmt: skip
