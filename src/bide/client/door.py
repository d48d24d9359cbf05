"""What every group of calls stands on: one workspace of the app's own store, and one way to change it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from bide.authoring.checks import check_text, is_name
from bide.client.governed import governed
from bide.client.traced import name_of, tell
from bide.core.commands import AnyCommand, Failed, Reply
from bide.core.durations import BadDuration, Duration, parse_duration
from bide.core.records import Run as RunRow
from bide.engine import tracing
from bide.engine.runtime import Runtime, in_own_transaction
from bide.errors import BadInput, RunNotFound, TransactionOpen

PAGE = 100
C = TypeVar("C", bound=AnyCommand)


class Door:
    def __init__(self, runtime: Callable[[], Awaitable[Runtime]], workspace: str, actor: str = "client") -> None:
        self._open = runtime
        self.workspace = check_text(workspace, "workspace")
        self.actor = actor

    async def _submit(self, command: AnyCommand) -> Reply:
        if in_own_transaction.get():
            raise TransactionOpen(
                "this task has a connection of app.connection() open, and a write beside it would wait for itself; "
                "give it connection=…, or write after the block"
            )
        runtime = await self._open()
        name = name_of(command) if tracing.is_on() else None
        if name is None:
            return await self._execute(runtime, command)
        with tracing.span(name, kind="producer", workspace=self.workspace) as span:
            reply = await self._execute(runtime, replace(command, trace=span.context))
            await tell(runtime, span, reply)
            return reply

    async def _execute(self, runtime: Runtime, command: AnyCommand) -> Reply:
        command = await self._governed(runtime, command)
        reply = (await runtime.committer.submit(self._sent(command))).reply
        if isinstance(reply, Failed):
            raise reply.error
        return reply

    def _sent(self, command: AnyCommand) -> AnyCommand:
        """The command as it is executed: whoever repeats requests wraps it here, after the policies have seen it."""
        return command

    async def _governed(self, runtime: Runtime, command: C) -> C:
        """The command with the verdict of the app's policies, where there are any. Raises `PolicyDenied`."""
        return await governed(runtime, command) if runtime.registry.governor.is_asked else command

    async def _find(self, run_id: str) -> RunRow:
        if not is_name(run_id):
            raise RunNotFound(run_id)
        runtime = await self._open()
        row = await runtime.store.run(self.workspace, run_id)
        if row is None:
            raise RunNotFound(run_id)
        return row


def duration(value: Duration | None, what: str) -> timedelta | None:
    if value is None:
        return None
    try:
        return parse_duration(value)
    except BadDuration as error:
        raise BadInput(f"{what}={value!r}: {error}") from error
