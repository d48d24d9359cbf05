"""What callers' own transactions leave, to be admitted after their commit (S11): as text, and as commands again."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from bide.core.commands import Admit, Deliver, KeepUnused, Start
from bide.core.records import Unused

REFUSED = "refused"  # the reason begins with it where no store could ever admit something


class _Intake(msgspec.Struct, frozen=True, omit_defaults=True):
    start: Start | None = None
    deliver: Deliver | None = None


def encode_intake(command: Start | Deliver) -> str:
    """A command as the text that waits in the intake for the caller's commit."""
    intake = _Intake(start=command) if isinstance(command, Start) else _Intake(deliver=command)
    return msgspec.json.encode(intake).decode()


def decode_intake(text: str) -> Start | Deliver:
    intake = msgspec.json.decode(text, type=_Intake)
    command = intake.start or intake.deliver
    if command is None:
        raise msgspec.ValidationError("neither a start nor a delivery")
    return command


def admission(intake_id: str, text: str) -> Admit | KeepUnused:
    """The command that takes a text out of the intake: it is executed, or kept where it cannot be read."""
    try:
        command = decode_intake(text)
    except msgspec.DecodeError as error:
        return refusal(intake_id, text, str(error))
    about = {"workspace": command.workspace, "actor": command.actor, "trace": command.trace}
    return Admit(**about, intake_id=intake_id, command=command)


def refusal(intake_id: str, text: str, why: str) -> KeepUnused:
    """The command that keeps for an operator what no store will ever admit, so that nobody meets it again (S12)."""
    unused = Unused(
        workspace="default",
        id=intake_id,
        run_id="",
        target="",
        name="",
        payload=msgspec.json.encode(text).decode(),
        reason=": ".join([REFUSED, *why.splitlines()[:1]]),
        at=datetime.min.replace(tzinfo=UTC),  # the store's clock says when
    )
    try:
        command = decode_intake(text)
    except msgspec.DecodeError:
        return KeepUnused(workspace=unused.workspace, intake_id=intake_id, unused=_storable(unused))
    if isinstance(command, Deliver):
        target, name, payload = command.target, command.name, command.payload
    else:
        target, name, payload = command.correlation_key or "", command.definition, command.input
    unused = msgspec.structs.replace(unused, workspace=command.workspace, target=target, name=name, payload=payload)
    return KeepUnused(workspace=command.workspace, actor=command.actor, intake_id=intake_id, unused=_storable(unused))


def _storable(unused: Unused) -> Unused:
    """Whatever was wrong with its text, it must not be refused once more."""
    texts = {name: getattr(unused, name) for name in ("workspace", "target", "name", "payload", "reason")}
    return msgspec.structs.replace(unused, **{name: text.replace("\0", "\ufffd") for name, text in texts.items()})
