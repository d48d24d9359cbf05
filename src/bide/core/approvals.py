"""Approvals that a policy asks for: the command that waits, and how it is told once a person has said yes (G1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.commands import AnyCommand, Cancel, CommitTurn, Complete, Deliver, NewChild, Once, Park, Start
from bide.core.records import Run, RunError, RunId, RunStatus
from bide.core.requests import Answer, ChangeWait, Fail, Withdraw

APPROVAL = "bide.approval"  # the definition whose runs ask
CHILD = "bide:child"
FORGED = f"runs of {APPROVAL} are started by policies alone"  # what waits in them was never judged otherwise


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a run that asks for an approval."""

    action: str
    principal: str
    target: str
    data: Any
    title: str
    assignee: str | None
    group: str | None
    seconds: float
    command: str = ""
    # A child whose parent waits for it, as JSON. It is hidden by this name, and a parent hides what its children hide:
    # nothing of its own may be called so.
    child: str | None = msgspec.field(default=None, name=CHILD)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an approved child ended, as the run that asked for it tells its parent."""

    id: RunId
    status: RunStatus
    result: Any = None
    error: RunError | None = None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The form that is put before a person."""

    approved: bool
    reason: str = ""


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """A `ChangeWait` that ends a wait: one that moves it is not governed, and cannot be read back from JSON."""

    workspace: str
    actor: str
    run_id: RunId
    no: int
    item: int | None
    message_id: str
    reason: str
    fails: bool

    def command(self) -> ChangeWait:
        about = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "fails"}
        return ChangeWait(change=Fail() if self.fails else Withdraw(), **about)


class _Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    start: Start | None = None
    deliver: Deliver | None = None
    complete: Complete | None = None
    answer: Answer | None = None
    cancel: Cancel | None = None
    end: _End | None = None


def encode_command(command: AnyCommand) -> str | None:
    """The command as the text that waits; None for those that cannot: several at once."""
    match command:
        case Once():
            return encode_command(command.command)
        case Start():
            waiting = _Waiting(start=command)
        case Deliver():
            waiting = _Waiting(deliver=command)
        case Complete():
            waiting = _Waiting(complete=command)
        case Answer():
            waiting = _Waiting(answer=command)
        case Cancel():
            waiting = _Waiting(cancel=command)
        case ChangeWait():
            end = _End(
                workspace=command.workspace,
                actor=command.actor,
                run_id=command.run_id,
                no=command.no,
                item=command.item,
                message_id=command.message_id,
                reason=command.reason,
                fails=isinstance(command.change, Fail),
            )
            waiting = _Waiting(end=end)
        case _:
            return None
    return msgspec.json.encode(waiting).decode()


def approval_key(command: AnyCommand, event_id: str | None = None) -> str | None:
    """The correlation key of the run that asks, by what makes a repeat of the command the same; None: nothing does."""
    match command:
        case Once():
            return approval_key(command.command, event_id)
        case Start():
            again, what = event_id or command.correlation_key, (command.definition, command.input)
        case Deliver():
            again, what = command.dedup_key, (command.target, command.digest)
        case Complete():
            again, what = command.dedup_key, (command.signal_id, command.digest)
        case Answer():
            again, what = command.dedup_key, (command.target, command.digest)
        case Cancel():
            again, what = "cancel", (command.run_id, command.reason)
        case ChangeWait():
            again, what = "change", (f"{command.run_id}/{command.no}/{command.item}", command.reason)
        case _:
            return None
    if again is None:
        return None
    known_by = (type(command).__name__, command.workspace, command.actor, again, *what)
    return "approval:" + hashlib.sha256(msgspec.json.encode(known_by)).hexdigest()[:40]


def approved_command(text: str, approval: str, verdict: str) -> AnyCommand:
    """The command as it is to be executed after the yes. A repeat of it does nothing twice.

    *approval* is the id of the run that asked.
    """
    waiting = msgspec.json.decode(text, type=_Waiting)
    ends = waiting.end.command() if waiting.end is not None else None
    command = waiting.start or waiting.deliver or waiting.complete or waiting.answer or waiting.cancel or ends
    assert command is not None, "one of them waited"
    if isinstance(command, (Deliver, Complete, Answer)) and command.dedup_key is None:
        command = msgspec.structs.replace(command, dedup_key=approval)
    return msgspec.structs.replace(command, verdict=verdict)


# ---------------------------------------------------------------- children


def children_of(command: CommitTurn) -> dict[RunId, tuple[NewChild, bool]]:
    """The runs that a turn starts, and of each whether it waits for it."""
    found = {wait.child.run_id: (wait.child, wait.kind != "launch") for wait in command.opens if wait.child is not None}
    if isinstance(command.move, Park):
        found |= {child.run_id: (child, True) for child in command.move.children}
    return found


def with_askers(command: CommitTurn, askers: Mapping[RunId, NewChild]) -> CommitTurn:
    """The commit with runs that ask in the place of runs that need an approval."""
    move = command.move
    if isinstance(move, Park):
        move = replace(move, children=tuple(askers.get(child.run_id, child) for child in move.children))
    opens = tuple(
        replace(wait, child=askers.get(wait.child.run_id, wait.child)) if wait.child is not None else wait
        for wait in command.opens
    )
    return replace(command, move=move, opens=opens)


def launched(child: NewChild, workspace: str, actor: str) -> Start:
    """The start of a run that nobody waits for, as it waits for its approval."""
    return Start(workspace=workspace, actor=actor, **msgspec.structs.asdict(child))


def as_parents_see(run: Run) -> Run:
    """A child's end as its parent is told of it: of one that needed an approval as if it had been started at once, or a
    failure with `PolicyDenied` where nobody approved it."""
    if run.definition != APPROVAL:
        return run
    asked = msgspec.json.decode(run.input, type=Asked)
    if asked.child is None:
        return run
    run = replace(run, definition=asked.target)
    if run.status != "completed":
        return run
    told = msgspec.json.decode(run.result or "{}")
    if not told["approved"]:
        by = f"{told['by']} did not approve it" if told.get("by") else "it was not approved"
        message = f"start: {by}" + (f": {told['reason']}" if told["reason"] else "")
        error = RunError(code="PolicyDenied", type="PolicyDenied", message=message)
        return replace(run, status="failed", result=None, error=msgspec.json.encode(error).decode())
    ended = msgspec.convert(told["child"], Ended)
    return replace(
        run,
        id=ended.id,
        status=ended.status,
        result=msgspec.json.encode(ended.result).decode() if ended.status == "completed" else None,
        error=msgspec.json.encode(ended.error).decode() if ended.error is not None else None,
    )
