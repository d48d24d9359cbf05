"""Refusals that receipts tell of, as errors (S10).

An answer that is late is none to a program: its receipt says so. Over HTTP and on the command line it is refused.
"""

from __future__ import annotations

from bide.core.commands import EventReceipt, Receipt
from bide.errors import (
    AlreadyAnswered,
    BadInput,
    ConflictingAnswer,
    DedupConflict,
    InvalidAnswer,
    NoTarget,
    SignalCollisionError,
    SignalNotFound,
    WaitNotFound,
)


def raise_refusal(receipt: Receipt, target: str, dedup_key: str | None) -> None:
    if receipt.outcome == "no_target":
        raise NoTarget(target, receipt.reason)
    if receipt.outcome == "invalid" and receipt.message_id is None:  # the call was wrong, and became no message
        raise BadInput(receipt.reason or f"the signal for {target!r} cannot be taken")
    if receipt.outcome == "invalid":
        raise BadInput(f"the payload for {target} does not fit the signal's declared type: {receipt.reason}")
    if receipt.outcome == "conflict":
        raise DedupConflict(dedup_key or "", receipt.message_id)


def raise_refused_event(receipt: EventReceipt) -> None:
    if receipt.outcome == "conflict":
        raise DedupConflict(receipt.id)


def raise_late(receipt: Receipt, target: str) -> None:
    if receipt.outcome == "late":
        raise AlreadyAnswered(target, receipt.reason or "")


def raise_refused_answer(receipt: Receipt, signal_id: str, dedup_key: str | None = None) -> None:
    match receipt.outcome:
        case "no_target":
            raise SignalNotFound(signal_id)
        case "invalid":
            raise InvalidAnswer(signal_id, receipt.problems or (receipt.reason or "",))
        case "conflict" if receipt.reason == "dedup_conflict":
            raise DedupConflict(dedup_key or "", receipt.message_id)
        case "conflict":
            raise SignalCollisionError(
                signal_id, receipt.run_id or "", "say which run is meant, with run_id= or `--run`"
            )
        case _:
            return


def raise_refused_task(receipt: Receipt, target: str, dedup_key: str | None = None) -> None:
    match receipt.outcome:
        case "no_target":
            raise WaitNotFound(target, receipt.reason)
        case "invalid":
            raise InvalidAnswer(target, receipt.problems or (receipt.reason or "",))
        case "conflict" if receipt.reason == "dedup_conflict":
            raise DedupConflict(dedup_key or "", receipt.message_id)
        case "conflict":
            raise ConflictingAnswer(target, receipt.reason or "")
        case _:
            return
