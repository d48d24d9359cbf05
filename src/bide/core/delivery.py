"""Delivering a signal to an inbox (S1–S10)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import (
    REFUSED,
    Admit,
    Again,
    Deliver,
    DeliverMany,
    DuplicateRun,
    InboxFull,
    Receipt,
    Receipts,
    Reply,
    Start,
    Started,
    StartOrSignal,
    Unknown,
)
from bide.core.hiding import told_digest
from bide.core.history import receive
from bide.core.matching import dedup_name, dedup_names, takes
from bide.core.moves import close_wait, wake
from bide.core.records import FINAL, Name, Run, Signal, Unused, Wait
from bide.core.starting import start

_IGNORED = Receipt(outcome="ignored", reason="another was refused")


def deliver(draft: Draft, command: Deliver) -> Reply:
    if command.is_gone:
        return Unknown(command.unused_id or "")
    run = draft.run(command.run_id) if command.run_id is not None else None
    if run is not None and run.workspace != command.workspace:
        run = None  # another workspace's run is as unknown as one that never was (law 8)
    earlier = _admitted_before(draft, command)
    if earlier is not None:
        return _repeat(draft, command, earlier)
    if run is None:
        if command.by_correlation and draft.name(command.workspace, "correlation", command.target) is not None:
            return Again()  # the key was taken after the look-up, by a command before this one
        return _refuse(draft, command, None, "not_found")
    if command.by_correlation and run.correlation_key != command.target:
        return Again()
    if run.status in FINAL and command.by_correlation and run.correlation_scope == "live":
        return Again()  # the key was freed between look-up and lock; another run may hold it by now
    if run.status in FINAL:
        return _refuse(draft, command, run, run.status)
    unfit = unfit_for(draft, command, run)
    if unfit is not None:
        return unfit
    if command.room and run.inbox_count >= command.room and not _is_awaited(draft, command, run):
        return InboxFull(run.id, command.room)
    return admit_signal(draft, command, run)


def start_or_signal(draft: Draft, command: StartOrSignal) -> Reply:
    """One atomic call: whoever comes first starts the run, everybody's signal reaches it."""
    deliver_it = command.deliver
    if deliver_it.run_id is not None:
        return deliver(draft, deliver_it)
    earlier = _admitted_before(draft, deliver_it)
    if earlier is not None:
        return _repeat(draft, deliver_it, earlier)
    known = draft.run(command.start.run_id)
    if known is not None:  # the command was tried before: its run holds the key, or has ended and freed it
        if known.correlation_key == deliver_it.target and known.status not in FINAL:
            return Again()
        return _refuse(draft, deliver_it, known if known.workspace == command.workspace else None, known.status)
    unfit = unfit_for(draft, deliver_it, command.start)
    if unfit is not None:
        return unfit
    started = start(draft, command.start)
    if isinstance(started, DuplicateRun):
        return Again()  # somebody took the key between look-up and lock: signal that run
    assert isinstance(started, Started)
    return replace(admit_signal(draft, replace(deliver_it, run_id=started.run.id), started.run), started=True)


def admit(draft: Draft, command: Admit) -> Reply:
    """What a caller's transaction left. Its sender has gone: a refusal is kept for an operator (S11, S12)."""
    draft.intake_deleted.append(command.intake_id)
    inner = command.command
    if isinstance(inner, Deliver):
        reply = deliver(draft, inner)
        return _refuse(draft, inner, draft.run(reply.run_id), "inbox_full") if isinstance(reply, InboxFull) else reply
    reply = start(draft, inner)
    if isinstance(reply, DuplicateRun):
        draft.unused.append(
            Unused(
                workspace=inner.workspace,
                id=inner.run_id,
                run_id=reply.holder,
                target=reply.correlation_key,
                name=inner.definition,
                payload=inner.input,
                reason="duplicate_run",
                at=draft.now,
            )
        )
    return reply


def deliver_many(draft: Draft, command: DeliverMany) -> Reply:
    replies = [deliver(draft, delivery) for delivery in command.deliveries]
    for reply in replies:
        if isinstance(reply, InboxFull):
            return reply
    receipts = tuple(reply for reply in replies if isinstance(reply, Receipt))
    if len(receipts) < len(replies):
        return Again()
    if any(receipt.outcome in REFUSED for receipt in receipts):
        receipts = tuple(receipt if receipt.outcome in REFUSED else _IGNORED for receipt in receipts)
    return Receipts(receipts)


def admit_signal(draft: Draft, command: Deliver, run: Run) -> Receipt:
    signal = Signal(
        workspace=run.workspace,
        run_id=run.id,
        seq=run.inbox_seq + 1,
        id=command.signal_id,
        name=command.name,
        payload=command.payload,
        received_at=draft.now,
    )
    draft.inbox[(run.id, signal.seq)] = signal
    if command.unused_id is not None:
        draft.unused_deleted.append((command.workspace, command.unused_id))
    if command.dedup_key is not None:
        for name in dedup_names(command, run.correlation_key):
            _remember(draft, command, run, name)
    run = draft.record(
        run,
        "signal_received",
        {
            "id": signal.id,
            "signal": signal.name,
            "digest": told_digest(draft, run, command.payload, command.digest),
            "payload": msgspec.Raw(signal.payload.encode()),
        },
        inbox_seq=signal.seq,
        inbox_count=run.inbox_count + 1,
        updated_at=draft.now,
    )
    for wait in draft.open_waits(run):
        if takes(wait, signal):
            run = receive(draft, run, wait) if wait.kind == "receive" else _end_wait(draft, run, wait)
            if wait.no in run.open_waits:
                continue  # it wants more than there is
            if run.status == "waiting":
                wake(draft, run, wait, wait.key)
            return Receipt(outcome="woke", run_id=run.id, wait_id=wait.id, message_id=signal.id)
    return Receipt(outcome="queued", run_id=run.id, message_id=signal.id)


def _remember(draft: Draft, command: Deliver, run: Run, name: str) -> None:
    """Keep a dedup key under one of its names (S7).

    An earlier run of the correlation key may have it there. With the same payload the later run takes it over, so that
    it is known for as long as either is; with another one the first stands.
    """
    earlier = draft.name(run.workspace, "dedup", name)
    if earlier is not None and earlier.digest != command.digest:
        return
    row = Name(
        workspace=run.workspace,
        kind="dedup",
        name=name,
        run_id=run.id,
        digest=command.digest,
        message_id=command.signal_id,
        created_at=draft.now,
    )
    if earlier is None:
        draft.put_name(row)
    else:
        draft.replace_name(row, known=earlier)


def _is_awaited(draft: Draft, command: Deliver, run: Run) -> bool:
    """Whether an open wait is for signals of this name: a run can always get at what it waits for."""
    return any(wait.kind in ("signals", "receive") and command.name in wait.names for wait in draft.open_waits(run))


def _end_wait(draft: Draft, run: Run, wait: Wait) -> Run:
    return close_wait(draft, run, wait, "completed", "signal")


def _admitted_before(draft: Draft, command: Deliver) -> Name | None:
    """The admission of this dedup key (S7); asked before anything else, also of ended runs."""
    if command.dedup_key is None:
        return None
    return draft.name(command.workspace, "dedup", dedup_name(command))


def _repeat(draft: Draft, command: Deliver, earlier: Name) -> Receipt:
    if earlier.digest == command.digest:
        return Receipt(outcome="duplicate", run_id=earlier.run_id, message_id=earlier.message_id, duplicate=True)
    _keep(draft, command, earlier.run_id, "dedup_conflict")
    return Receipt(outcome="conflict", run_id=earlier.run_id, message_id=earlier.message_id, reason="dedup_conflict")


def _refuse(draft: Draft, command: Deliver, run: Run | None, reason: str) -> Receipt:
    """Nobody would ever read it (S2): refused, and kept for an operator (S12)."""
    _keep(draft, command, run.id if run is not None else "", reason)
    return Receipt(outcome="no_target", run_id=run.id if run is not None else None, reason=reason)


def unfit_for(draft: Draft, command: Deliver, run: Run | Start) -> Receipt | None:
    """Refuse a payload that is not what the run's definition declares for this signal (S13); None lets it in."""
    for misfit in command.misfits:
        if (misfit.definition, misfit.version) == (run.definition, run.version):
            run_id = run.id if isinstance(run, Run) else None
            _keep(draft, command, run_id or "", "invalid_payload")
            return Receipt(outcome="invalid", run_id=run_id, message_id=command.signal_id, reason=misfit.problem)
    return None


def _keep(draft: Draft, command: Deliver, run_id: str, reason: str) -> None:
    if command.unused_id is not None:
        return  # it is kept already
    draft.unused.append(
        Unused(
            workspace=command.workspace,
            id=command.signal_id,
            run_id=run_id,
            target=command.target,
            name=command.name,
            payload=command.payload,
            reason=reason,
            at=draft.now,
        )
    )
