"""Events over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.core.commands import EventReceipt
from bide.server.calls import Answer, Call, Endpoint, digest_of


class EmitEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for the workspace's stream; the same `id` again changes nothing."""

    name: str
    data: Any = None
    id: str | None = None
    channel: str = "api"


async def emit(call: Call) -> Answer:
    asked = call.read(EmitEvent)
    id = asked.id
    if id is None and call.once is not None:
        id = (
            f"once:{digest_of(call.once.encode())}"  # an event is done once by its id: the idempotency key gives it one
        )
    receipt = await call.client.emit(asked.name, asked.data, id=id, channel=asked.channel)
    return Answer(receipt, 202)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/events", emit, "events:emit", "Emit an event",
        body=EmitEvent, answers={202: EventReceipt}, payloads=("data",), refusals=(409,),
    ),
)  # fmt: skip
