"""Starting runs: anew, together with a signal, or once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import msgspec

from bide.authoring.checks import check_key, check_priority, check_tags, check_text
from bide.authoring.machine import definition_name, encode
from bide.authoring.pipeline import Pipeline
from bide.authoring.signals import Signal
from bide.authoring.workflow import Workflow
from bide.client.door import duration
from bide.client.ending import Ending
from bide.client.handle import Run
from bide.client.refusals import raise_refusal
from bide.client.signalling import Signalling, run_meant
from bide.core.commands import Done, DuplicateRun, Receipt, Release, Start, Started, StartOrSignal
from bide.core.durations import Duration
from bide.core.records import REPLAYED, RunError, StepRow
from bide.core.records import Run as RunRow
from bide.core.reusing import begins_where_it_failed, reused
from bide.core.starting import new_run
from bide.core.streams import START as FIRST_STEP
from bide.engine import tracing
from bide.engine.runtime import Runtime
from bide.errors import BadInput, DefinitionNotFound, NotHeld
from bide.errors import DuplicateRun as DuplicateRunError
from bide.stores.interface import WaitFilter

In = TypeVar("In")
Out = TypeVar("Out")


class StartOptions(TypedDict, total=False):
    """The options of `start`, for the forms of it that differ in the types of input and result alone."""

    correlation_key: str | None
    correlation_scope: Literal["live", "forever"]
    if_exists: Literal["raise", "return"]
    version: str | None
    delay: Duration | None
    queue: str | None
    priority: int | None
    tags: Mapping[str, str] | None
    connection: Any


def check_if_exists(if_exists: Any) -> None:
    if if_exists not in ("raise", "return"):
        raise BadInput(f'if_exists={if_exists!r}: give "raise" or "return"')


class Starting(Signalling, Ending):
    @overload
    async def start(
        self, definition: Workflow[None, Out], input: None = None, **options: Unpack[StartOptions]
    ) -> Run[Out]: ...
    @overload
    async def start(self, definition: Workflow[In, Out], input: In, **options: Unpack[StartOptions]) -> Run[Out]: ...
    @overload
    async def start(
        self, definition: str | type[Any] | Pipeline, input: Any = None, **options: Unpack[StartOptions]
    ) -> Run[Any]: ...
    async def start(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str | None = None,
        correlation_scope: Literal["live", "forever"] = "live",
        if_exists: Literal["raise", "return"] = "raise",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> Run[Any]:
        """Start a run; durable when this returns.

        With *connection* the start joins the caller's own transaction: it is left there and admitted after the
        commit, and a refusal then is kept among the unused arrivals (`unused`).

        Raises `DefinitionNotFound`, `Invalid` for an input that cannot be taken, and `DuplicateRun` where a run
        holds the correlation key (with `if_exists="return"` that run is returned).
        """
        check_if_exists(if_exists)
        runtime = await self._open()
        command = self._start_command(
            runtime, definition, input, correlation_key, correlation_scope, version, delay, queue, priority, tags
        )
        if if_exists == "return":
            command = msgspec.structs.replace(command, takes_holder=True)
        returns = definition.returns if isinstance(definition, Workflow) else Any
        if connection is not None:
            command = msgspec.structs.replace(command, trace=tracing.current()) if tracing.is_on() else command
            await runtime.store.leave(connection, await self._governed(runtime, command))
            return Run(self, new_run(command, runtime.ports.now()), returns)
        reply = await self._submit(command, runtime)
        if isinstance(reply, DuplicateRun):
            if if_exists == "return":
                return await self._holder(reply.holder, command.definition, returns)
            raise DuplicateRunError(reply.correlation_key, reply.holder)
        assert isinstance(reply, Started)
        return Run(self, reply.run, returns)

    async def _holder(self, run_id: str, definition: str, returns: Any) -> Run[Any]:
        """The run that holds the key. Keys are shared by all definitions: another one's result has another type."""
        row = await self._find(run_id)
        return Run(self, row, returns if row.definition == definition else Any)

    def _start_command(
        self,
        runtime: Runtime,
        name: Any,
        input: Any,
        correlation_key: str | None,
        correlation_scope: Literal["live", "forever"],
        version: str | None,
        delay: Duration | None,
        queue: str | None,
        priority: int | None,
        tags: Mapping[str, str] | None,
    ) -> Start:
        definition = runtime.registry.get(definition_name(name), version)
        limit = runtime.settings.max_payload_bytes
        if correlation_scope not in ("live", "forever"):
            raise BadInput(f'correlation_scope={correlation_scope!r}: give "live" or "forever"')
        return Start(
            workspace=self.workspace,
            actor=self.actor,
            run_id=runtime.ports.run_id(),
            definition=definition.name,
            version=definition.version,
            style=definition.style,
            step=definition.first_step,
            input=definition.encode_input(input, limit),
            queue=check_text(queue, "queue") if queue is not None else definition.queue,
            priority=check_priority(priority) if priority is not None else definition.priority,
            delay=duration(delay, "delay"),
            correlation_key=check_key(correlation_key, "correlation key") if correlation_key is not None else None,
            correlation_scope=correlation_scope,
            cleanup_seconds=definition.cleanup.total_seconds() if definition.cleanup is not None else None,
            tags=encode(check_tags(tags), limit, "the tags") if tags is not None else "{}",
            redact=definition.redact,
        )

    async def start_or_signal(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str,
        name: str | Signal[Any],
        payload: Any = None,
        dedup_key: str | None = None,
        check: bool = True,
        correlation_scope: Literal["live", "forever"] = "live",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Signal the live run that holds the key, or start it and signal it: one atomic call.

        `receipt.started` says which. A repeat with the same dedup key starts nothing and answers `duplicate`.
        """
        runtime = await self._open()
        run_id = run_meant(correlation_key)
        deliver = self._deliver_command(runtime, correlation_key, run_id, name, payload, dedup_key)
        start = self._start_command(
            runtime, definition, input, correlation_key, correlation_scope, version, delay, queue, priority, tags
        )
        command = StartOrSignal(workspace=self.workspace, actor=self.actor, start=start, deliver=deliver)
        reply = await self._submit(command)
        assert isinstance(reply, Receipt)
        if check:
            raise_refusal(reply, correlation_key, dedup_key)
        return reply

    async def retry(self, run_id: str, *, from_step: str | None = None) -> Run[Any]:
        """Release a held run, or start a failed one anew; returns the run that goes on.

        The new run of a failed workflow keeps the outcomes of steps and waits that are stored, but those it failed of;
        with *from_step* only what came before that step's outcome. That of a machine begins with the step that failed,
        or with its first one where a wait led to that step.

        Raises `NotHeld`, and `BadInput` for a step that is not there, or a machine that is not known.
        """
        row = await self._find(run_id)
        if row.held is not None and from_step is not None:
            raise BadInput(f"run {run_id} is held and goes on where it stands; from_step is for failed runs")
        if row.status != "failed":
            reply = await self._submit(Release(workspace=self.workspace, actor=self.actor, run_id=row.id))
            if isinstance(reply, Done) and not reply.changed:
                raise NotHeld(run_id, reply.reason)
            return Run(self, await self._find(run_id))
        runtime = await self._open()
        step, state = await self._begins(row)
        reply = await self._submit(
            Start(
                workspace=self.workspace,
                actor=self.actor,
                run_id=runtime.ports.run_id(),
                definition=row.definition,
                version=row.version,
                style=row.style,
                step=step,
                input=row.input,
                queue=row.queue,
                priority=row.priority,
                correlation_key=row.correlation_key,
                correlation_scope=row.correlation_scope,
                cleanup_seconds=row.cleanup_seconds,
                tags=row.tags,
                redact=row.redact,
                retry_of=row.id,
                state=state,
                steps=await self._kept(row, from_step),
            )
        )
        if isinstance(reply, DuplicateRun):
            raise DuplicateRunError(reply.correlation_key, reply.holder)
        if isinstance(reply, Done):  # the repeat of a release: the run went on, and has failed since
            return Run(self, row)
        assert isinstance(reply, Started)
        return Run(self, reply.run)

    async def _begins(self, row: RunRow) -> tuple[str, str | None]:
        """The step and the state that the new run of a failed one begins with."""
        if row.style == "pipeline":
            return FIRST_STEP, None  # its items are the old run's
        if row.style == "machine":
            runtime = await self._open()
            newest = WaitFilter(workspace=row.workspace, run_id=row.id, status=None, no=row.wait_no)
            waits = await runtime.store.waits(newest, after=None, limit=1)
            if not begins_where_it_failed(row, waits[0] if waits else None):
                return self._first_step(runtime, row), None
        return row.step, row.state

    @staticmethod
    def _first_step(runtime: Runtime, row: RunRow) -> str:
        try:
            return runtime.registry.get(row.definition, row.version).first_step
        except DefinitionNotFound as error:
            raise BadInput(
                f"run {row.id} failed in a step that a wait led to, so it begins with the first step of "
                f"{row.definition!r}, which is not known here; retry it with the app that has it (--app, or --url)"
            ) from error

    async def _kept(self, row: RunRow, from_step: str | None) -> tuple[StepRow, ...]:
        if row.style not in REPLAYED:
            if from_step is not None:
                raise BadInput(f"run {row.id} is a {row.style}, which has no stored steps; leave from_step out")
            return ()
        runtime = await self._open()
        error = msgspec.json.decode(row.error, type=RunError) if row.error is not None else None
        try:
            return reused(await runtime.store.steps(row.id), error, from_step)
        except KeyError:
            raise BadInput(f"run {row.id} has no step {from_step!r} to retry from") from None
