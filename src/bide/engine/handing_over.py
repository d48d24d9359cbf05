"""Checkpoints on their way: who admits what a commit published, and may it start (U12, G1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bide.core.checkpoints import handoff_of
from bide.core.commands import Admission, AdmitCheckpoint, Failed, Start
from bide.core.governing import Allow, Deny, about, actions_of
from bide.core.records import Chore
from bide.core.streaming import Publication
from bide.engine.definitions import Definition
from bide.engine.emissions import start_of
from bide.errors import Invalid

if TYPE_CHECKING:
    from bide.engine.engine import Engine


class Handoffs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def do(self, chore: Chore) -> None:
        """Start what admits these checkpoints, and end the chore with it; raises where nobody here admits them."""
        handoff, runtime = handoff_of(chore), self._engine.runtime
        pipelines = runtime.registry.admitting(handoff.checkpoint)
        if handoff.to is not None:
            pipelines = [each for each in pipelines if each.name == handoff.to]
        if not pipelines:
            raise LookupError(f"no pipeline that is registered in this process admits {handoff.checkpoint!r}")
        self._engine.probe.reached("before", handoff.checkpoint)
        admissions = [
            await self._admission(chore, each, pipeline) for each in handoff.publications for pipeline in pipelines
        ]
        command = AdmitCheckpoint(
            workspace=chore.workspace, actor="outbox", run_id=chore.run_id, chore=chore, admissions=tuple(admissions)
        )
        reply = (await runtime.committer.submit(command)).reply
        if isinstance(reply, Failed):
            raise reply.error
        self._engine.probe.reached("after_commit", handoff.checkpoint)

    async def _admission(self, chore: Chore, publication: Publication, pipeline: Definition) -> Admission:
        runtime = self._engine.runtime
        try:
            value = msgspec.json.decode(publication.value)
            text = pipeline.encode_input(value, runtime.settings.max_payload_bytes)
        except Invalid as error:
            return Admission(publication=publication, definition=pipeline.name, refusal=str(error))
        tags = {"checkpoint": publication.checkpoint, "key": publication.key}
        start = start_of(
            pipeline,
            chore.workspace,
            f"run:{chore.run_id}",
            runtime.ports.run_id(),
            text,
            tags=msgspec.json.encode(tags).decode(),
        )
        refusal = await self._refusal(start)
        allowed = start if refusal is None else None
        return Admission(publication=publication, definition=pipeline.name, start=allowed, refusal=refusal or "")

    async def _refusal(self, start: Start) -> str | None:
        """Why the policies do not let it start; None where they do. Nobody can be asked here: it is a dead letter."""
        governor = self._engine.runtime.registry.governor
        for action in actions_of(start) if governor.is_asked else ():
            verdict = await governor.verdict(about(action, None, None))
            match verdict:
                case Allow():
                    pass
                case Deny():
                    return f"PolicyDenied: {verdict.reason}"
                case _:
                    return f"PolicyDenied: it needs an approval: {verdict.title}"
        return None
