"""Events over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.client.refusals import raise_refused_event
from bide.core.commands import EventReceipt
from bide.server.calls import Answer, Call, Endpoint
from bide.server.problems import telling


class EmitEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for the workspace's stream; the same `id` again changes nothing."""

    name: str
    data: Any = None
    id: str | None = None
    channel: str = "api"


async def emit(call: Call) -> Answer:
    asked = call.read(EmitEvent)
    id = asked.id if asked.id is not None else call.client.event_id
    receipt = await call.client.emit(asked.name, asked.data, id=id, channel=asked.channel, check=False)
    if receipt.outcome == "conflict" and asked.id is None:
        call.client.refuse_other()
    with telling(receipt):
        raise_refused_event(receipt)
    return Answer(receipt, 202)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/events", emit, "events:emit", "Emit an event",
        body=EmitEvent, answers={202: EventReceipt}, payloads=("data",), refusals=(409,), commits=True,
    ),
)  # fmt: skip
