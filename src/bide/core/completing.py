"""Completing a wait by its signal id (F4, F5, F7, W3, W7)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bide.core.agenda import terms
from bide.core.batch import Draft
from bide.core.commands import REFUSED, Again, Complete, Receipt, Reply
from bide.core.hiding import told_digest
from bide.core.holding import expire, hand_over, held_under, hold, is_held, keep_unused
from bide.core.moves import close_wait, wake
from bide.core.people import admitted_before, deny, remember, rescued, why_not
from bide.core.records import NO_RUN, OPEN_WAIT, Name, Run, Unused, Wait
from bide.core.schema import problems

BY_LINK = "link"  # who acts where a resume link was followed
LATE = {"completed": "already_completed", "timed_out": "timed_out", "failed": "already_completed"}


def complete(draft: Draft, command: Complete) -> Reply:
    """Resume exactly the run that waits on this id, with an answer that fits its schema."""
    draft.reason = command.reason
    reply = _complete(draft, command)
    if isinstance(reply, Receipt) and reply.outcome in REFUSED and command.unused_id is None:
        _keep_unused(draft, command, reply)
    rescued(draft, command, reply)
    return reply


def _complete(draft: Draft, command: Complete) -> Reply:
    known = name = draft.name(command.workspace, "signal", command.signal_id)
    held = held_under(draft, name) if name is not None and is_held(name) else None
    if name is not None and is_held(name) and held is None:
        return Again()  # a rival has just taken it
    if held is not None and held.until <= draft.now:
        expire(draft, command.workspace, held)
        name = held = None
    earlier = admitted_before(draft, command)
    if earlier is not None:
        return earlier
    if held is not None:
        return Receipt(outcome="late", message_id=held.message_id, reason="already_completed")
    run = draft.run(command.run_id) if command.run_id is not None else None
    wait = draft.wait(command.run_id, command.no) if command.run_id is not None else None
    if name is None or run is None or wait is None or run.workspace != command.workspace:
        if command.hold is None:
            return Receipt(outcome="no_target", reason="not_found")
        return hold(draft, command, known) if name is None else Again()  # a wait took the id since it was looked up
    if (name.run_id, name.message_id.rstrip("!")) != (run.id, str(wait.no)):
        return Again()  # another wait took the id between look-up and lock
    if wait.status not in OPEN_WAIT and command.hold is not None:
        return hold(draft, command, name)
    if command.only_run is not None and command.only_run != run.id:
        return Receipt(outcome="no_target", reason="not_found")
    reason = _why_not(wait, command.actor, command.by, command.groups)
    if reason is not None and wait.status != "cancelled":
        return deny(draft, run, wait, command.by, reason)
    if wait.status not in OPEN_WAIT:
        return _late(run, wait)
    if name.has_collided and command.only_run is None:
        return Receipt(outcome="conflict", run_id=run.id, wait_id=wait.id, reason="collision")
    if command.unreadable:
        return _reject(draft, run, wait, command.unreadable)
    receipt = complete_wait(draft, run, wait, command.message_id, command.data, command.digest, command.by)
    if receipt.outcome in ("woke", "queued"):
        remember(draft, command, run.id)
    return receipt


def take_held(draft: Draft, run: Run, wait: Wait, name: Name) -> Run:
    """Give a wait that opens the answer that was held for it (F7). One that it cannot take is kept for an operator,
    and the wait stays open."""
    held = held_under(draft, name)
    if held is None:
        return run  # a rival took it; this commit meets its name and is decided again
    if held.until <= draft.now:
        keep_unused(draft, run.workspace, held, "expired")
        return run
    if held.only_run not in (None, run.id):
        keep_unused(draft, run.workspace, held, "not_found", run.id)
        return run
    own = draft.actor, draft.verdict, draft.reason, draft.incoming
    draft.actor, draft.verdict, draft.reason, draft.incoming = held.actor, held.verdict, held.why, held.data
    reason = _why_not(wait, held.actor, held.by, held.groups)
    if reason is not None:
        deny(draft, run, wait, held.by, reason)
        keep_unused(draft, run.workspace, held, "denied", run.id)
    elif complete_wait(draft, run, wait, held.message_id, held.data, held.digest, held.by).outcome == "invalid":
        keep_unused(draft, run.workspace, held, "invalid_payload", run.id)
    else:
        hand_over(draft, run.workspace, held, run.id)
    draft.actor, draft.verdict, draft.reason, draft.incoming = own
    return draft.runs[run.id]


def _keep_unused(draft: Draft, command: Complete, refused: Receipt) -> None:
    """What was refused, and why, for an operator (S12)."""
    reason = "invalid_payload" if refused.outcome == "invalid" else refused.reason or refused.outcome
    draft.unused.append(
        Unused(
            workspace=command.workspace,
            id=command.message_id,
            run_id=refused.run_id or NO_RUN,
            target=refused.wait_id or command.signal_id,
            name=command.signal_id,
            payload=command.data,
            reason=reason,
            at=draft.now,
        )
    )


def complete_wait(
    draft: Draft,
    run: Run,
    wait: Wait,
    message_id: str,
    data: str,
    digest: str,
    by: str | None,
    *,
    answer: str | None = None,
) -> Receipt:
    """Give an open wait its answer, if it fits the schema; a closed one says so. *answer* is what the run is handed,
    where that is more than the data."""
    if wait.status not in OPEN_WAIT:
        return _late(run, wait)
    wrong = problems(_schema(wait), data)
    if wrong:
        return _reject(draft, run, wait, wrong)
    told = {
        "wait": wait.no,
        "step": wait.key,
        "id": message_id,
        "digest": told_digest(draft, run, data, digest),
        "payload": msgspec.Raw(data.encode()),
    }
    if by is not None:
        told["by"] = by
    run = draft.record(run, "await_answer_received", told)
    is_early = wait.status == "reserved"  # the run is not there yet, and has nothing to wake up for (F7)
    run = close_wait(draft, run, wait, "completed", "answer", answer=data if answer is None else answer)
    if run.status == "waiting" and not is_early:
        wake(draft, run, wait, wait.key)
    return Receipt(outcome="queued" if is_early else "woke", run_id=run.id, wait_id=wait.id, message_id=message_id)


def _reject(draft: Draft, run: Run, wait: Wait, wrong: Sequence[str]) -> Receipt:
    """Say every problem, in the ledger too; the wait stays open (W3)."""
    draft.record(run, "await_answer_rejected", {"wait": wait.no, "step": wait.key, "problems": list(wrong)})
    reason = "; ".join(wrong)
    return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=reason, problems=tuple(wrong))


def _late(run: Run, wait: Wait) -> Receipt:
    if wait.status == "cancelled":
        return Receipt(outcome="no_target", reason="not_found")
    return Receipt(outcome="late", run_id=run.id, wait_id=wait.id, reason=LATE[wait.status])


def _why_not(wait: Wait, actor: str, by: str | None, groups: tuple[str, ...]) -> str | None:
    if actor == BY_LINK:
        return None  # its token was proven, and says nothing of who has it (W4)
    details = terms(wait)
    return why_not(by, groups, assignee=details.get("assignee"), group=details.get("group"))


def _schema(wait: Wait) -> object:
    details = msgspec.json.decode(wait.details)
    return details.get("schema")
