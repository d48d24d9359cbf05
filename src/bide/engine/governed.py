"""A command before the app's policies: allowed, denied, or put before a person first (G1)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NoReturn, TypeVar, cast

import msgspec

from bide.core.approvals import APPROVAL, FORGED, approval_key, encode_command
from bide.core.commands import AnyCommand, Complete, Deliver, DuplicateRun, Emit, NoteDenial, Once, Start
from bide.core.governing import Action, Allow, Deny, NeedsApproval, about, actions_of, asked_of, target_of
from bide.core.records import RunId, Wait
from bide.engine.runtime import Runtime, in_own_transaction
from bide.errors import ApprovalNeeded, PolicyDenied
from bide.stores.interface import WaitFilter

log = logging.getLogger("bide.policy")

C = TypeVar("C", bound=AnyCommand)
MOST_WAITS = 1000


async def governed(runtime: Runtime, command: C, event_id: str | None = None) -> C:
    """The command with the verdict of the policies in it; *event_id* is the event that brings it about.

    Raises `PolicyDenied`, with the denial on record, and `ApprovalNeeded`, with a run that asks for it.
    """
    if isinstance(command, Emit):
        return cast(C, await with_allowed_starts(runtime, command))
    notes = []
    for found in actions_of(command):
        action = await _looked_up(runtime, found, command)
        if action.kind == "start" and action.definition == APPROVAL and not _is_again(command):
            await _refuse(runtime, command, action, FORGED)
        verdict = await runtime.registry.governor.verdict(action)
        match verdict:
            case Allow():
                notes += [verdict.note] if verdict.note else []
            case Deny():
                await _refuse(runtime, command, action, verdict.reason)
            case NeedsApproval():
                await _ask(runtime, command, action, verdict, event_id)
    return msgspec.structs.replace(command, verdict="; ".join(notes)) if notes else command


async def with_allowed_starts(runtime: Runtime, command: Emit) -> Emit:
    """An event is a fact and is not denied; what it would start may be, each for itself, whoever emits it."""
    if not runtime.registry.governor.is_asked:
        return command
    allowed = []
    for start in command.starts:
        with suppress(PolicyDenied):  # it is on record, or somebody is asked
            allowed.append(await governed(runtime, start, command.event_id))
    return msgspec.structs.replace(command, starts=tuple(allowed))


def _is_again(command: AnyCommand) -> bool:
    """Whether a start is a retry, whose input is that of a run that there was."""
    inner = command.command if isinstance(command, Once) else command
    return isinstance(inner, Start) and inner.retry_of is not None


async def _looked_up(runtime: Runtime, action: Action, command: AnyCommand) -> Action:
    """The action with the run and the wait that it concerns. They may move before the command is decided; what may
    happen to them then, the core decides."""
    inner = command.command if isinstance(command, Once) else command
    run_id, no = action.run_id, None
    if isinstance(inner, Deliver) and run_id is None:
        run_id = await runtime.store.holder(inner.workspace, inner.target)
    elif isinstance(inner, Complete):
        name = await runtime.store.name(inner.workspace, "signal", inner.signal_id)
        if name is not None:
            run_id, no = name.run_id, name.message_id.rstrip("!")
    row = await runtime.store.run(action.workspace, run_id) if run_id is not None else None
    wait = await _wait(runtime, action, run_id, no) if row is not None else None
    return about(action, row, wait)


async def _wait(runtime: Runtime, action: Action, run_id: str | None, no: str | None) -> Wait | None:
    if action.wait_id is None and no is None:
        return None
    waits = await runtime.store.waits(WaitFilter(run_id=run_id, status=None), after=None, limit=MOST_WAITS)
    return next((wait for wait in waits if wait.id == action.wait_id or str(wait.no) == no), None)


def _concerned(action: Action) -> RunId | None:
    """The run whose ledger has the denial. What was to start is no run; who wanted to start it may be one."""
    if action.kind != "start":
        return RunId(action.run_id) if action.run_id is not None else None
    return RunId(action.principal.removeprefix("run:")) if action.principal.startswith("run:") else None


async def _refuse(runtime: Runtime, command: AnyCommand, action: Action, reason: str) -> NoReturn:
    denied = NoteDenial(
        workspace=action.workspace,
        actor=command.actor,
        id=runtime.ports.message_id(),
        action=action.kind,
        principal=action.principal,
        reason=reason,
        target=target_of(action),
        payload=msgspec.json.encode(action.data).decode(),
        run_id=_concerned(action),
    )
    log.info("%s may not %s %s: %s", action.principal, action.kind, denied.target, reason)
    if not in_own_transaction.get():  # whose lock the record would wait for
        await runtime.committer.submit(denied)
    raise PolicyDenied(action.kind, denied.target, reason)


async def _ask(
    runtime: Runtime, command: AnyCommand, action: Action, needed: NeedsApproval, event_id: str | None
) -> NoReturn:
    """Start the run that asks; what was to happen waits in it. A repeat finds the run that asks already."""
    text = encode_command(command)
    if text is None or in_own_transaction.get():
        await _refuse(runtime, command, action, f"it needs an approval, and cannot wait for one: {needed.title}")
    definition = runtime.registry.get(APPROVAL)
    asked = asked_of(action, needed, await _hidden(runtime, action), command=text)
    start = Start(
        workspace=action.workspace,
        actor=command.actor,
        run_id=runtime.ports.run_id(),
        definition=definition.name,
        version=definition.version,
        style=definition.style,
        step=definition.first_step,
        input=definition.encode_input(asked, runtime.settings.max_payload_bytes),
        redact="command",  # people need not see it, and it may have what its definition hides
        correlation_key=approval_key(command, event_id),
        correlation_scope="live" if event_id is None else "forever",  # an event happens once
    )
    reply = (await runtime.committer.submit(start)).reply
    asking = reply.holder if isinstance(reply, DuplicateRun) else start.run_id
    raise ApprovalNeeded(action.kind, asked.target, needed.title, asking)


async def _hidden(runtime: Runtime, action: Action) -> str | None:
    """The names of the fields that the definition concerned hides."""
    if action.kind == "start":
        return runtime.registry.get(action.definition or "", action.version).redact
    row = await runtime.store.run(action.workspace, action.run_id) if action.run_id is not None else None
    return row.redact if row is not None else None
