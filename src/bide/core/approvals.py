"""Approvals that a policy asks for: the command that waits, and how it is told once a person has said yes (G1)."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.core.commands import AnyCommand, Cancel, Complete, Deliver, Once, Start
from bide.core.requests import Answer

APPROVAL = "bide.approval"  # the definition whose runs ask


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
    command: str


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The form that is put before a person."""

    approved: bool
    reason: str = ""


class _Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    start: Start | None = None
    deliver: Deliver | None = None
    complete: Complete | None = None
    answer: Answer | None = None
    cancel: Cancel | None = None


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
        case _:
            return None
    return msgspec.json.encode(waiting).decode()


def approved_command(text: str, approval: str, verdict: str) -> AnyCommand:
    """The command as it is to be executed after the yes. A repeat of it does nothing twice.

    *approval* is the id of the run that asked.
    """
    waiting = msgspec.json.decode(text, type=_Waiting)
    command = waiting.start or waiting.deliver or waiting.complete or waiting.answer or waiting.cancel
    assert command is not None, "one of them waited"
    if isinstance(command, (Deliver, Complete, Answer)) and command.dedup_key is None:
        command = msgspec.structs.replace(command, dedup_key=approval)
    return msgspec.structs.replace(command, verdict=verdict)
