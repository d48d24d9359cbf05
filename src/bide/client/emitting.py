"""Events onto the workspace's stream (F8)."""

from __future__ import annotations

from typing import Any

from bide.authoring.checks import check_key, check_text
from bide.authoring.events import check_event_name
from bide.authoring.machine import encode
from bide.client.door import Door
from bide.client.refusals import raise_refused_event
from bide.core.commands import EventReceipt


class Emitting(Door):
    async def emit(
        self, name: str, data: Any = None, *, id: str | None = None, channel: str = "api", check: bool = True
    ) -> EventReceipt:
        """Put an event on the workspace's stream; durable when this returns.

        Every run that waits for it goes on, and every definition of this app that it triggers is started with the
        data as its input, in the same commit. The same *id* again changes nothing and answers `duplicate` with the
        counts of the first; with another name or other data it raises `DedupConflict`, or with `check=False` the
        receipt says so. Raises `Invalid` for a name or data that cannot be taken.
        """
        runtime = await self._open()
        command = runtime.emissions.command(
            self.workspace,
            self.actor,
            event_id=check_key(id, "event id") if id is not None else runtime.ports.message_id(),
            name=check_event_name(name),
            data=encode(data, runtime.settings.max_payload_bytes, "the event's data"),
            channel=check_text(channel, "channel"),
        )
        receipt = await self._submit(command)
        assert isinstance(receipt, EventReceipt)
        if check:
            raise_refused_event(receipt)
        return receipt
