"""An event on its way to the stream: the command for it, with the runs that it triggers here (F8, L7)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from bide.core.commands import Emit, Start
from bide.core.events import Promised
from bide.core.payloads import canonical, digest
from bide.core.records import Chore, RunId, Unused
from bide.engine.definitions import Definition, Registry
from bide.engine.ports import Ports
from bide.engine.settings import Settings
from bide.errors import Invalid

_AT_THE_COMMIT = datetime(1970, 1, 1, tzinfo=UTC)  # set by the store's clock when it is kept


class Emissions:
    """Makes commands of events. Ids are chosen here, so that a repeated command is the same one."""

    def __init__(self, registry: Registry, settings: Settings, ports: Ports) -> None:
        self._registry = registry
        self._limit = settings.max_payload_bytes
        self._ports = ports

    def command(
        self, workspace: str, actor: str, *, event_id: str, name: str, data: str, channel: str, **options: Any
    ) -> Emit:
        """*data* is JSON that was checked at the door. An input that does not fit is kept, and starts nothing (S12)."""
        starts: list[Start] = []
        misfits: list[Unused] = []
        value = msgspec.json.decode(data)
        for definition in self._registry.triggered_by(name):
            try:
                text = definition.encode_input(value, self._limit)
            except Invalid:
                misfits.append(self._misfit(workspace, definition, name, data))
            else:
                starts.append(start_of(definition, workspace, actor, self._ports.run_id(), text))
        return Emit(
            workspace=workspace,
            actor=actor,
            event_id=event_id,
            name=name,
            data=data,
            digest=digest(canonical(value))[:32],
            channel=channel,
            starts=tuple(starts),
            misfits=tuple(misfits),
            **options,
        )

    def promised(self, chore: Chore) -> Emit:
        """The event that a commit promised, in the name of the run that it was made for."""
        event = msgspec.json.decode(chore.data, type=Promised)
        return self.command(
            event.workspace,
            f"run:{chore.run_id}",
            event_id=event.event_id,
            name=event.name,
            data=event.data,
            channel=event.channel,
            chore_id=chore.id,
        )

    def _misfit(self, workspace: str, definition: Definition, name: str, data: str) -> Unused:
        return Unused(
            workspace=workspace,
            id=self._ports.message_id(),
            run_id="",
            target=definition.name,
            name=name,
            payload=data,
            reason="invalid_payload",
            at=_AT_THE_COMMIT,
        )


def start_of(definition: Definition, workspace: str, actor: str, run_id: RunId, input: str, **more: Any) -> Start:
    """The start of a run that no client asked for."""
    return Start(
        workspace=workspace,
        actor=actor,
        run_id=run_id,
        definition=definition.name,
        version=definition.version,
        style=definition.style,
        step=definition.first_step,
        input=input,
        queue=definition.queue,
        priority=definition.priority,
        cleanup_seconds=definition.cleanup.total_seconds() if definition.cleanup is not None else None,
        redact=definition.redact,
        **more,
    )
