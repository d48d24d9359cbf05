"""Idempotency keys: a command that is done once, whose first answer is given again (H2).

The key is kept in the commit of the effect, among the names and under the run that was changed, so it goes with that
run; where retention is shorter than a key's time, or the run is gone, under none. Refusals are not kept: they may be
tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from bide.core.commands import (
    REFUSED,
    AnyCommand,
    Cancelled,
    Done,
    DuplicateRun,
    Once,
    OnceKey,
    Receipt,
    Receipts,
    Release,
    Reply,
    Start,
    Started,
    UsedOtherwise,
)
from bide.core.records import NO_RUN, Chore, Name, Run, RunId
from bide.core.requests import ChangeWait, HandTask, SettleDeadLetter

if TYPE_CHECKING:
    from bide.core.batch import Draft

KEPT_FOR = timedelta(days=7)
PREFIX = "once:"


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    receipt: Receipt | None = None
    receipts: tuple[Receipt, ...] | None = None
    started: Run | None = None
    held: DuplicateRun | None = None
    cancelled: Run | None = None
    already_final: bool = False
    done: bool = False


def once_name(once: OnceKey) -> str:
    """Under which name the key is kept: it counts for one path of one workspace."""
    parts = msgspec.json.encode((once.path, once.key))
    return PREFIX + hashlib.sha256(parts).hexdigest()[:40]


def is_other(once: OnceKey, earlier: Name | None, now: datetime) -> bool:
    """Whether the key came before, not too long ago, with something else."""
    return earlier is not None and now - earlier.created_at < KEPT_FOR and earlier.digest != once.digest


def decide_once(draft: Draft, command: Once, decide: Callable[[Draft, AnyCommand], Reply]) -> Reply:
    earlier = draft.name(command.workspace, "dedup", once_name(command.once))
    if is_other(command.once, earlier, draft.now):
        return UsedOtherwise(command.once.key)
    if earlier is not None and draft.now - earlier.created_at < KEPT_FOR:
        return _again(earlier.message_id)
    reply = decide(draft, command.command)
    kept = _kept(command.command, reply)
    if kept is not None:
        run_id, text = kept
        is_alone = command.outlives_run or draft.run(run_id) is None  # a dead letter may outlive its run
        keep(draft, command.workspace, command.once, NO_RUN if is_alone else run_id, text)
    return reply


def keep(draft: Draft, workspace: str, once: OnceKey, run_id: RunId = NO_RUN, text: str = "") -> None:
    """Note that the key was used, and what was answered."""
    row = Name(
        workspace=workspace,
        kind="dedup",
        name=once_name(once),
        run_id=run_id,
        digest=once.digest,
        message_id=text,
        created_at=draft.now,
    )
    earlier = draft.name(workspace, "dedup", row.name)
    if earlier is None:
        draft.put_name(row)
    else:
        draft.replace_name(row, known=earlier)  # its time is up, and two may use it anew at once
    if run_id == NO_RUN:
        _forget_later(draft, row)


def _forget_later(draft: Draft, row: Name) -> None:
    """A key goes with its run; of one that has none, a chore sees to that."""
    id = f"forget:{len(row.workspace)}:{row.workspace}:{row.name}"
    draft.chores[id] = Chore(
        id=id, run_id=NO_RUN, kind="forget", data=row.name, due_at=draft.now + KEPT_FOR, workspace=row.workspace
    )


def _kept(command: AnyCommand, reply: Reply) -> tuple[RunId, str] | None:
    """The run that was changed and the answer as text; None where nothing was done."""
    match reply:
        case Receipt() if reply.outcome not in REFUSED and (reply.run_id is not None or reply.outcome == "queued"):
            return RunId(reply.run_id or NO_RUN), _text(_Kept(receipt=reply))
        case Receipts() if reply.receipts and all(r.outcome not in REFUSED and r.run_id for r in reply.receipts):
            return RunId(reply.receipts[0].run_id or ""), _text(_Kept(receipts=reply.receipts))
        case Started():
            return reply.run.id, _text(_Kept(started=_small(reply.run)))
        case DuplicateRun() if isinstance(command, Start) and command.takes_holder:
            return NO_RUN, _text(_Kept(held=reply))  # nothing holds the other run here, so nothing may hang on it
        case Cancelled():
            return reply.run.id, _text(_Kept(cancelled=_small(reply.run), already_final=reply.already_final))
        case Done(changed=True) if isinstance(command, (Release, ChangeWait, HandTask, SettleDeadLetter)):
            return command.run_id, _text(_Kept(done=True))
        case _:
            return None


def _small(run: Run) -> Run:
    """Without what the caller sent, and can send again."""
    return replace(run, input="null", state="null", result=None)


def _text(kept: _Kept) -> str:
    return msgspec.json.encode(kept).decode()


def _again(text: str) -> Reply:
    kept = msgspec.json.decode(text, type=_Kept)
    if kept.receipt is not None:
        return replace(kept.receipt, duplicate=True)
    if kept.receipts is not None:
        return Receipts(tuple(replace(receipt, duplicate=True) for receipt in kept.receipts))
    if kept.started is not None:
        return Started(kept.started, repeated=True)
    if kept.held is not None:
        return kept.held
    if kept.done:
        return Done(True)
    assert kept.cancelled is not None, "every kept answer has a kind"
    return Cancelled(kept.cancelled, kept.already_final)
