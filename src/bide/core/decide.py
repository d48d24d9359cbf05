"""Decide what each command of a batch leads to.

Nothing that changes a run may live elsewhere. A refusal is a reply, never an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from bide.core import (
    answering,
    archive,
    cancelling,
    checkpoints,
    completing,
    delivery,
    events,
    governing,
    holding,
    operating,
    outbox,
    replying,
    starting,
    streams,
    timing,
    turns,
)
from bide.core.batch import Draft, View
from bide.core.commands import (
    REFUSED,
    Admit,
    AdmitCheckpoint,
    Again,
    AnyCommand,
    Cancel,
    CancelChildren,
    Claim,
    CommitTurn,
    Complete,
    Deliver,
    DeliverMany,
    Done,
    Emit,
    Failed,
    FireTimer,
    GiveBack,
    InboxFull,
    KeepUnused,
    NoteDenial,
    Once,
    Receipts,
    Release,
    Reply,
    Restore,
    Start,
    StartOrSignal,
    Unwelcome,
)
from bide.core.exchanging import ExpireItems, MarkDispatched, Reject, TakeIn
from bide.core.hiding import incoming_of, scrubbed_reply
from bide.core.once import decide_once
from bide.core.requests import Answer, ChangeWait, HandTask, KeepPoison, LetGo, SettleChore, SettleDeadLetter
from bide.core.streaming import ClaimItems, FinishItems, RenewItems


def decide_all(view: View, commands: Sequence[AnyCommand]) -> list[Reply]:
    """Answer the commands in order, each on what the ones before it left. One that breaks leaves the others alone."""
    replies: list[Reply] = []
    for command in commands:
        if command.key and not _is_welcome(view, command.key):
            replies.append(Unwelcome())
            continue
        draft = Draft(view, command.actor, command.verdict, incoming_of(command), command.trace)
        try:
            reply = scrubbed_reply(decide(draft, command), draft)
        except Exception as error:
            replies.append(Failed(error))
            continue
        if _counts(reply):
            view.take(draft)
        elif isinstance(reply, Receipts):
            view.changes.unused.extend(draft.unused)  # those of them for which it was refused (S12)
        replies.append(reply)
    return replies


def _is_welcome(view: View, key: str) -> bool:
    """Whether a key is good at the moment of the commit, however long ago whoever took the command in looked (G5)."""
    known = view.keys.get(key)
    return known is not None and known.is_good(view.now)


def _counts(reply: Reply) -> bool:
    """Whether what a command changed stands: not where it comes again, nor where it was refused as a whole (S11)."""
    if isinstance(reply, Receipts):
        return not any(receipt.outcome in REFUSED for receipt in reply.receipts)
    return not isinstance(reply, (Again, InboxFull))


def decide(draft: Draft, command: AnyCommand) -> Reply:
    match command:  # the frequent ones first
        case CommitTurn():
            return turns.commit(draft, command)
        case Start():
            return starting.start(draft, command)
        case Deliver():
            return delivery.deliver(draft, command)
        case Answer():
            return answering.answer(draft, command)
        case StartOrSignal():
            return delivery.start_or_signal(draft, command)
        case DeliverMany():
            return delivery.deliver_many(draft, command)
        case Admit():
            return delivery.admit(draft, command)
        case Once():
            return decide_once(draft, command, decide)
        case Complete():
            return completing.complete(draft, command)
        case Emit():
            return events.emit(draft, command)
        case AdmitCheckpoint():
            return checkpoints.admit(draft, command)
        case KeepUnused():
            draft.unused.append(replace(command.unused, at=draft.now))
            if command.intake_id is not None:
                draft.intake_deleted.append(command.intake_id)
            return Done(True)
        case Restore():
            return archive.restore(draft, command)
        case NoteDenial():
            return governing.deny(draft, command)
        case Claim():
            return turns.claim(draft, command)
        case GiveBack():
            return turns.give_back(draft, command)
        case Release():
            return turns.release(draft, command)
        case FireTimer():
            return timing.fire(draft, command)
        case Cancel():
            return cancelling.cancel(draft, command)
        case CancelChildren():
            return cancelling.cancel_children(draft, command)
        case ChangeWait():
            return operating.change_wait(draft, command)
        case HandTask():
            return operating.hand_task(draft, command)
        case SettleChore():
            return outbox.settle_chore(draft, command)
        case LetGo():
            return holding.let_go(draft, command)
        case KeepPoison():
            return outbox.keep_poison(draft, command)
        case SettleDeadLetter():
            return outbox.settle_letter(draft, command)
        case Reject():
            return replying.reject(draft, command, answering.interaction_of(draft, replying.key(command, command.item)))
        case TakeIn():
            return replying.take_in(draft, command)
        case MarkDispatched():
            keys = (replying.key(command, result.item) for result in command.results)
            return replying.mark(draft, command, [answering.interaction_of(draft, key) for key in keys])
        case ExpireItems():
            keys = (replying.key(command, item) for item in command.items)
            return replying.expire(draft, command, [answering.interaction_of(draft, key) for key in keys])
        case ClaimItems():
            return streams.claim(draft, command)
        case RenewItems():
            return streams.renew(draft, command)
        case FinishItems():
            return streams.finish(draft, command)
        case _:
            assert_never(command)
