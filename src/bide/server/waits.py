"""Waits, definitions and what could not be used, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from bide.authoring.checks import is_name
from bide.client.refusals import raise_late
from bide.client.rescuing import raise_misdirected
from bide.core.commands import Receipt
from bide.core.records import OPEN_WAIT
from bide.errors import AlreadyAnswered, UnusedNotFound
from bide.server.calls import Answer, Call, Endpoint, Limit, PageQuery
from bide.server.interactions import Reason, answered
from bide.server.problems import telling
from bide.server.runs import Nothing
from bide.views import UnusedInfo, WaitInfo


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which waits; open ones unless another status, or `all`, is asked for."""

    run_id: str | None = None
    status: str = "waiting"
    older_than: str | None = None
    definition: str | None = None
    kind: str | None = None
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None
    cursor: str | None = None
    limit: Limit = 100


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    items: list[WaitInfo]
    next_cursor: str | None


class DefinitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs can be started of."""

    name: str
    version: str
    style: str
    queue: str
    signals: list[str]


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    items: list[DefinitionInfo]


class UnusedList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[UnusedInfo]
    next_cursor: str | None


class Readdress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a kept arrival goes: a run's id or a correlation key."""

    target: str


async def list_waits(call: Call) -> Waits:
    asked = call.ask(WaitQuery)
    options = msgspec.structs.asdict(asked)
    options["status"] = None if asked.status == "all" else asked.status
    page = await call.client.waits(**options)
    return Waits(items=list(page), next_cursor=page.next_cursor)


class ChangedWait(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different; a field that is left out stays as it is, null takes it away."""

    deadline: str | int | float | UnsetType | None = UNSET
    assignee: str | UnsetType | None = UNSET
    group: str | UnsetType | None = UNSET
    reason: str = ""


def _id(call: Call) -> str:
    return call.path["wait_id"]


async def get_wait(call: Call) -> WaitInfo:
    call.ask(Nothing)
    return await call.client.wait(_id(call))


async def wait_exists(call: Call) -> None:
    await call.client.wait(_id(call))


async def wait_is_open(call: Call) -> None:
    found = await call.client.wait(_id(call))
    if found.status not in OPEN_WAIT:
        raise AlreadyAnswered(found.id, found.status)


async def change_wait(call: Call) -> WaitInfo:
    asked = call.read(ChangedWait)
    changes = {name: getattr(asked, name) for name in ("deadline", "assignee", "group")}
    changes = {name: value for name, value in changes.items() if value is not UNSET}
    if isinstance(changes.get("deadline"), str):
        changes["deadline"] = _moment(changes["deadline"])
    return await call.client.update_wait(_id(call), **changes, reason=asked.reason)


def _moment(text: str) -> Any:
    """A deadline is written as a duration from now, or as a moment."""
    try:
        return datetime.fromisoformat(text) if "T" in text and text[:1].isdigit() else text
    except ValueError:
        return text


async def fail_wait(call: Call) -> WaitInfo:
    await call.client.fail_wait(_id(call), call.read(Reason).reason)
    return await call.client.wait(_id(call))


async def cancel_wait(call: Call) -> WaitInfo:
    await call.client.cancel_wait(_id(call), call.read(Reason).reason)
    return await call.client.wait(_id(call))


class CompleteWait(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer. `by` needs the scope `interactions:answer_as`; without it the key answers in its own name."""

    data: Any
    by: str | None = None
    dedup_key: str | None = None
    shown: str | None = None
    reason: str = ""


async def complete_wait(call: Call) -> Answer:
    asked = call.read(CompleteWait)
    await wait_exists(call)
    return await answered(call, _id(call), asked.data, asked.by, asked.dedup_key, asked.shown, asked.reason)


async def heartbeat(call: Call) -> WaitInfo:
    call.read(Nothing)
    await call.client.heartbeat(_id(call))
    return await call.client.wait(_id(call))


async def list_definitions(call: Call) -> Definitions:
    call.ask(Nothing)
    found = sorted(call.runtime.registry, key=lambda definition: (definition.name, definition.version))
    return Definitions(
        items=[
            DefinitionInfo(name=d.name, version=d.version, style=d.style, queue=d.queue, signals=sorted(d.signals))
            for d in found
        ]
    )


async def list_unused(call: Call) -> UnusedList:
    page = await call.client.unused(**msgspec.structs.asdict(call.ask(PageQuery)))
    return UnusedList(items=list(page), next_cursor=page.next_cursor)


async def readdress(call: Call) -> Answer:
    asked: Any = call.read(Readdress)
    receipt = await call.client.readdress(call.path["unused_id"], asked.target, check=False)
    with telling(receipt):
        raise_late(receipt, asked.target)
        raise_misdirected(receipt, asked.target)
    return Answer(receipt)


async def unused_exists(call: Call) -> None:
    id = call.path["unused_id"]
    if not is_name(id) or await call.runtime.store.unused_by_id(call.key.workspace, id) is None:
        raise UnusedNotFound(id)


_WAIT = "/v1/waits/{wait_id}"

ENDPOINTS = (
    Endpoint("GET", "/v1/waits", list_waits, "runs:read", "List waits", query=WaitQuery, answers={200: Waits}),
    Endpoint("GET", _WAIT, get_wait, "runs:read", "Look at a wait", answers={200: WaitInfo}, found=wait_exists,
             refusals=(404,)),
    Endpoint("PATCH", _WAIT, change_wait, "waits:operate", "Move a deadline, or give a wait to others",
             body=ChangedWait, answers={200: WaitInfo}, found=wait_exists, is_open=wait_is_open,
             refusals=(404, 409, 410)),
    Endpoint("POST", f"{_WAIT}/fail", fail_wait, "waits:operate", "Fail a wait", body=Reason,
             answers={200: WaitInfo}, found=wait_exists, is_open=wait_is_open, refusals=(404, 409, 410)),
    Endpoint("POST", f"{_WAIT}/cancel", cancel_wait, "waits:operate", "Cancel a wait", body=Reason,
             answers={200: WaitInfo}, found=wait_exists, is_open=wait_is_open, refusals=(404, 409, 410)),
    Endpoint("POST", f"{_WAIT}/complete", complete_wait, "interactions:answer", "Answer a wait", body=CompleteWait,
             answers={200: Receipt}, found=wait_exists, is_open=wait_is_open, payloads=("data",),
             refusals=(404, 409, 410)),
    Endpoint("POST", f"{_WAIT}/heartbeat", heartbeat, "interactions:answer", "Say that somebody works on it",
             body=Nothing, answers={200: WaitInfo}, found=wait_exists, is_open=wait_is_open,
             refusals=(404, 409, 410)),
    Endpoint("GET", "/v1/definitions", list_definitions, "runs:read", "What runs can be started of",
             answers={200: Definitions}),
    Endpoint("GET", "/v1/unused", list_unused, "runs:read", "What arrived and could not be used, oldest first",
             query=PageQuery, answers={200: UnusedList}),
    Endpoint("POST", "/v1/unused/{unused_id}/readdress", readdress, "waits:operate",
             "Deliver a kept arrival to a run, or give it to a wait as its answer", body=Readdress,
             answers={200: Receipt}, found=unused_exists, refusals=(404, 409, 410)),
)  # fmt: skip
