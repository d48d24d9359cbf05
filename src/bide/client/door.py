"""What every group of calls stands on: one workspace of the app's own store, and one way to change it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from bide.authoring.checks import check_text, is_name
from bide.client.traced import name_of, tell
from bide.core import commands
from bide.core.commands import AnyCommand, Failed, Reply
from bide.core.durations import BadDuration, Duration, parse_duration
from bide.core.records import Run as RunRow
from bide.core.records import RunId
from bide.core.redaction import names_in
from bide.engine import tracing
from bide.engine.governed import governed
from bide.engine.runtime import Runtime, in_own_transaction
from bide.errors import BadInput, InboxFull, RunNotFound, TransactionOpen
from bide.stores.interface import RunFilter

PAGE = 100
CHILDREN_AT_ONCE = 500
C = TypeVar("C", bound=AnyCommand)


class Door:
    def __init__(self, runtime: Callable[[], Awaitable[Runtime]], workspace: str, actor: str = "client") -> None:
        self._open = runtime
        self.workspace = check_text(workspace, "workspace")
        self.actor = actor

    async def _submit(self, command: AnyCommand, runtime: Runtime | None = None) -> Reply:
        """*runtime*, where the caller has asked for it already."""
        if in_own_transaction.get():
            raise TransactionOpen(
                "this task has a connection of app.connection() open, and a write beside it would wait for itself; "
                "give it connection=…, or write after the block"
            )
        if runtime is None:
            runtime = await self._open()
        name = name_of(command) if tracing.is_on() else None
        if name is None:
            return await self._execute(runtime, command)
        with tracing.span(name, kind="producer", workspace=self.workspace) as span:
            reply = await self._execute(runtime, replace(command, trace=span.context))
            await tell(runtime, span, reply)
            return reply

    async def _execute(self, runtime: Runtime, command: AnyCommand) -> Reply:
        if runtime.registry.governor.is_asked:
            command = await governed(runtime, command)
        reply = (await runtime.committer.submit(self._sent(command))).reply
        if isinstance(reply, Failed):
            raise reply.error
        if isinstance(reply, commands.InboxFull):
            raise InboxFull(reply.run_id, reply.room)
        return reply

    async def _foresee(self, runtime: Runtime, run_id: RunId) -> None:
        """A signal to this run comes at once, unless policies take their time first."""
        if not runtime.registry.governor.is_asked:
            await runtime.committer.foresee(run_id)

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

    # ------------------------------------------------------------ what is not shown

    async def _covering(self, row: RunRow) -> RunRow:
        """The run as it is shown: it hides what the runs that it started hide, since it has what they gave (G4)."""
        if not row.has_children:
            return row
        store, names, parents = (await self._open()).store, set(names_in(row.redact)), [row.id]
        while parents:
            wanted, after = RunFilter(workspace=row.workspace, parent_id=parents.pop()), None
            while children := await store.runs(wanted, after=after, limit=CHILDREN_AT_ONCE):
                names.update(*(names_in(child.redact) for child in children))
                parents += [child.id for child in children if child.has_children]
                after = children[-1].id
        return replace(row, redact=_joined(names))

    async def _hidden_in(self, run_ids: Iterable[str]) -> dict[str, str | None]:
        """What each of these runs hides. What belongs to no run that is known hides all that any definition does."""
        runtime = await self._open()
        everything = _joined({name for each in runtime.registry for name in names_in(each.redact)})
        hidden: dict[str, str | None] = {}
        for run_id in set(run_ids):
            row = await runtime.store.run(self.workspace, run_id) if run_id else None
            hidden[run_id] = row.redact if row is not None else everything
        return hidden


def _joined(names: Iterable[str]) -> str | None:
    return ",".join(sorted(names)) or None


async def began_before(runtime: Runtime, value: Duration | None) -> datetime | None:
    """The moment before which something began that is older than this, by the store's clock."""
    age = duration(value, "older_than")
    if age is None:
        return None
    try:
        return await runtime.store.now() - age
    except OverflowError:
        raise BadInput(f"older_than={value!r}: no calendar goes back that far") from None


def duration(value: Duration | None, what: str) -> timedelta | None:
    if value is None:
        return None
    try:
        return parse_duration(value)
    except BadDuration as error:
        raise BadInput(f"{what}={value!r}: {error}") from error
