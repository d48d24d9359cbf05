"""One turn's contact with the engine: it commits under the turn's claim, and finds out when the claim is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from bide.core.approvals import (
    APPROVAL,
    CHILD,
    FORGED,
    children_of,
    encode_command,
    launched,
    with_askers,
)
from bide.core.commands import (
    Committed,
    CommitTurn,
    Consumed,
    DuplicateRun,
    End,
    EventReceipt,
    Failed,
    GiveBack,
    Hold,
    Move,
    NewChild,
    Park,
    Suspend,
)
from bide.core.governing import Action, Allow, Deny, NeedsApproval, Verdict, actions_of_turn, asked_of, resuming
from bide.core.hiding import without_hidden
from bide.core.records import Held, Interaction, Item, Run, RunError, RunId, Turn, Unit
from bide.core.streaming import Ask, Settle
from bide.core.tokens import Signer
from bide.engine import tracing
from bide.engine.committer import Answer
from bide.engine.governed import with_allowed_starts
from bide.errors import DuplicateRun as DuplicateRunError
from bide.errors import Invalid, StoreUnavailable
from bide.stores.interface import InteractionFilter

if TYPE_CHECKING:
    from bide.engine.engine import Engine

log = logging.getLogger("bide.engine")

LONGEST_PAUSE = 5.0


def _parks(command: CommitTurn) -> bool:
    return bool(command.opens) or isinstance(command.move, (Park, Suspend, Ask, Settle))


class TurnSession:
    def __init__(self, engine: Engine, turn: Turn) -> None:
        self._engine = engine
        self._run_id = turn.run.id
        self.is_traced = tracing.is_on()  # asked once a turn
        self._steps = 0
        self._began: dict[str, float] = {}  # steps whose code is at work, and since when
        self._spans: dict[str, tuple[tracing.Span, object]] = {}  # of the same steps, where somebody traces
        self.settings = engine.settings
        self.ports = engine.runtime.ports
        self.registry = engine.runtime.registry

    async def signer(self) -> Signer:
        """What resume tokens are made with."""
        return await self._engine.runtime.signer()

    async def record(self, run: Run, **history: Any) -> Run | None:
        """Commit steps and waits of a workflow and go on with the same turn; None where the claim is lost."""
        command = self._command(run, Hold(), **history)
        if self.registry.governor.is_asked:
            allowed = await self._governed(run, command)
            if allowed is None:
                return None
            command = allowed
        answer = await (self._traced(command) if self.is_traced else self._until_taken(command))
        if isinstance(answer.reply, Committed) and (current := self._engine.turn_of(run.id, run.epoch)) is not None:
            self._engine.active[run.id] = replace(current, run=answer.reply.run)
            return answer.reply.run
        if isinstance(answer.reply, Failed):
            raise answer.reply.error
        self._engine.stale += 1
        return None

    async def give_back(self, run: Run, hold: Held, reason: str) -> None:
        """Hold the run: a person must look (D10)."""
        await self._engine.runtime.committer.submit(
            GiveBack(
                workspace=run.workspace,
                actor=self._engine.actor,
                run_id=run.id,
                epoch=run.epoch,
                hold=hold,
                reason=reason,
            )
        )

    def _command(self, run: Run, move: Move, **history: Any) -> CommitTurn:
        command = CommitTurn(
            workspace=run.workspace,
            actor=self._engine.actor,
            run_id=run.id,
            parent_id=run.parent_id,
            epoch=run.epoch,
            commits=run.commits,
            move=move,
            keep=not self._engine.stopping and self._steps < self.settings.max_steps_inline,
            **history,
        )
        if not run.redact:
            return command
        turn = self._engine.active.get(run.id)
        return without_hidden(command, turn) if turn is not None else command

    async def commit(self, turn: Turn, move: Move, consumed: tuple[Consumed, ...] = (), **history: Any) -> Turn | None:
        """Raises `bide.errors.DuplicateRun` where a child's correlation key is taken; nothing is committed then."""
        engine, run = self._engine, turn.run
        self._steps += 1
        command = self._command(run, move, consumed=consumed, **history)
        if self.registry.governor.is_asked:
            allowed = await self._governed(run, command)
            if allowed is None:
                return None
            command = allowed
        engine.committing.add(run.id)
        if isinstance(move, End):
            engine.ending(run.id, run.epoch)
        try:
            answer = await (self._traced(command) if self.is_traced else self._until_taken(command))
        finally:
            engine.committing.discard(run.id)
        reply = answer.reply
        if isinstance(reply, Committed):
            self._engine.probe.reached("after_commit", run.step)
            for step in history.get("steps", ()):
                self._engine.probe.reached("after_commit", step.key)
            if not reply.kept:
                return None
            if answer.turn is not None and engine.turn_of(run.id, run.epoch) is not None:
                engine.active[run.id] = answer.turn
                return answer.turn
        if isinstance(reply, DuplicateRun):
            raise DuplicateRunError(reply.correlation_key, reply.holder)
        if isinstance(reply, Failed):
            raise reply.error
        engine.stale += 1
        log.info("claim lost; another worker has the run or it has ended", extra={"run_id": run.id})
        return None

    async def may_resume(self, turn: Turn) -> bool:
        """Ask the policies whether a run may go on after its wait; where it may not, it has failed (G1)."""
        run = turn.run
        if run.woken_by is None or not self.registry.governor.is_asked:
            return True
        verdict = await self.registry.governor.verdict(resuming(run, turn.woken_by))
        if isinstance(verdict, Allow):
            return True
        await self._fail(self._command(run, Hold()), resuming(run, turn.woken_by), verdict)
        return False

    async def _governed(self, run: Run, command: CommitTurn) -> CommitTurn | None:
        """The commit as the policies allow it: with a run that asks in the place of each child that needs an approval.
        None where they do not; then the run has failed."""
        askers: dict[RunId, NewChild] = {}
        for action in actions_of_turn(run, command):
            verdict = await self._verdict(run, action)
            match verdict:
                case Allow():
                    pass
                case NeedsApproval() if action.kind == "start":
                    child, is_joined = children_of(command)[RunId(action.run_id or "")]
                    try:
                        askers[child.run_id] = self._asker(run, action, verdict, child, is_joined)
                    except Invalid as error:  # who asks has the input twice, to show and to start with
                        denied = Deny(f"it needs an approval, and cannot wait for one: {error}")
                        await self._fail(command, action, denied)
                        return None
                case _:
                    await self._fail(command, action, verdict)
                    return None
        return with_askers(command, askers) if askers else command

    async def _verdict(self, run: Run, action: Action) -> Verdict:
        if action.kind == "start" and run.definition == APPROVAL:
            return Allow()  # it asked, and was told yes
        if action.kind == "start" and action.definition == APPROVAL:
            return Deny(FORGED)
        return await self.registry.governor.verdict(action)

    def _asker(self, run: Run, action: Action, needed: NeedsApproval, child: NewChild, is_joined: bool) -> NewChild:
        """The run that asks in place of a child. What a parent waits for is its child's child once it is approved, and
        ends with it; what it lets go is started by itself."""
        definition = self.registry.get(APPROVAL)
        if is_joined:
            hides = ",".join(filter(None, (CHILD, child.redact)))
            asked = asked_of(action, needed, child.redact, child=msgspec.json.encode(child).decode())
        else:
            hides = "command"
            start = encode_command(launched(child, run.workspace, action.principal))
            asked = asked_of(action, needed, child.redact, command=start or "")
        return NewChild(
            run_id=self.ports.run_id(),
            definition=definition.name,
            version=definition.version,
            style=definition.style,
            step=definition.first_step,
            input=definition.encode_input(asked, self.settings.max_payload_bytes),
            redact=hides,
        )

    async def _fail(self, command: CommitTurn, action: Action, verdict: Deny | NeedsApproval) -> None:
        """End the run under its own claim. What its steps came to is kept; what was denied does not happen.

        Nobody can be asked whether a run may wait or go on: approvals are for starts, answers and cancels.
        """
        reason = verdict.reason if isinstance(verdict, Deny) else f"it needs an approval: {verdict.title}"
        error = RunError(code="PolicyDenied", message=f"{action.kind}: {reason}", step=action.step)
        end = End(status="failed", error=msgspec.json.encode(error).decode())
        denied = f"denied to {action.kind}: {reason}"
        await self._until_taken(replace(command, move=end, opens=(), feed=None, publishes=(), verdict=denied))

    async def _traced(self, command: CommitTurn) -> Answer:
        """Commit; the waits that open and the runs that start in it know of the trace that it is part of (§11)."""
        if not _parks(command):
            return await self._until_taken(replace(command, trace=tracing.current()))
        keys = ",".join(wait.key for wait in command.opens) or getattr(command.move, "step", None)
        with tracing.span("bide.park", run_id=command.run_id, waits=keys) as span:
            return await self._until_taken(replace(command, trace=span.context))

    async def _until_taken(self, command: CommitTurn) -> Answer:
        """The outcome is known and must not be lost: while the store is away, try again. A retry is fenced too."""
        pause = 0.05
        while True:
            try:
                return await self._engine.runtime.committer.submit(command)
            except StoreUnavailable as error:
                log.warning("cannot commit %s yet: %s", command.run_id, error)
                if self._engine.stopping:
                    raise
                await asyncio.sleep(pause * (0.5 + self.ports.random()))
                pause = min(LONGEST_PAUSE, pause * 2)
                command = replace(command, keep=False)

    async def answers(self, run: Run, no: int, after: int, limit: int) -> Sequence[Interaction]:
        wanted = InteractionFilter(workspace=run.workspace, run_id=run.id, no=no)
        store, last = self._engine.runtime.store, (run.id, no, after)
        return [row for row, _ in await store.interactions(wanted, after=last, limit=limit)]

    async def unit(self, run: Run, no: int) -> Unit | None:
        return await self._engine.runtime.store.unit(run.id, no)

    async def items(self, run: Run, section: int, after: int, limit: int) -> Sequence[Item]:
        return await self._engine.runtime.store.items(run.id, section, after=after, limit=limit)

    async def emit(self, run: Run, event_id: str, name: str, data: str, channel: str) -> EventReceipt:
        """Put an event on the stream of the run's workspace. Not fenced: the id makes it happen once."""
        runtime = self._engine.runtime
        command = runtime.emissions.command(
            run.workspace, f"run:{run.id}", event_id=event_id, name=name, data=data, channel=channel
        )
        reply = (await runtime.committer.submit(await with_allowed_starts(runtime, command))).reply
        if isinstance(reply, Failed):
            raise reply.error
        assert isinstance(reply, EventReceipt)
        return reply

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        return await self._engine.in_thread(call, *arguments)

    def reached(self, point: str, step: str) -> None:
        if point == "before":
            self._began[step] = self.ports.monotonic()
            if self.is_traced:
                self._spans[step] = tracing.begin(f"bide.step {step}", run_id=self._run_id, step=step)
        elif point == "after_code" and step in self._began:
            if self._spans and step in self._spans:
                tracing.finish(self._spans.pop(step))
            self._engine.runtime.figures.steps.observe(self.ports.monotonic() - self._began.pop(step))
        self._engine.probe.reached(point, step)
