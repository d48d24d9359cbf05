"""Completing a wait by its signal id (F4, F5, W3, W7)."""

from __future__ import annotations

import msgspec

from bide.core.agenda import terms
from bide.core.batch import Draft
from bide.core.commands import Again, Complete, Receipt, Reply
from bide.core.moves import close_wait, wake
from bide.core.people import admitted_before, deny, remember, why_not
from bide.core.records import OPEN_WAIT, Run, Wait
from bide.core.schema import problems

LATE = {"completed": "already_completed", "timed_out": "timed_out", "failed": "already_completed"}


def complete(draft: Draft, command: Complete) -> Reply:
    """Resume exactly the run that waits on this id, with an answer that fits its schema."""
    name = draft.name(command.workspace, "signal", command.signal_id)
    run = draft.run(command.run_id) if command.run_id is not None else None
    wait = draft.wait(command.run_id, command.no) if command.run_id is not None else None
    earlier = admitted_before(draft, command)
    if earlier is not None:
        return earlier
    if name is None or run is None or wait is None or run.workspace != command.workspace:
        return Receipt(outcome="no_target", reason="not_found")
    if (name.run_id, name.message_id.rstrip("!")) != (run.id, str(wait.no)):
        return Again()  # another wait took the id between look-up and lock
    if command.only_run is not None and command.only_run != run.id:
        return Receipt(outcome="no_target", reason="not_found")
    details = terms(wait)
    reason = why_not(command.by, command.groups, assignee=details.get("assignee"), group=details.get("group"))
    if reason is not None and wait.status != "cancelled":
        return deny(draft, run, wait, command.by, reason)
    if wait.status not in OPEN_WAIT:
        return _late(run, wait)
    if name.message_id.endswith("!") and command.only_run is None:
        return Receipt(outcome="conflict", run_id=run.id, wait_id=wait.id, reason="collision")
    receipt = complete_wait(draft, run, wait, command.message_id, command.data, command.digest, command.by)
    if receipt.outcome in ("woke", "queued"):
        remember(draft, command, run)
    return receipt


def complete_wait(
    draft: Draft, run: Run, wait: Wait, message_id: str, data: str, digest: str, by: str | None
) -> Receipt:
    """Give an open wait its answer, if it fits the schema; a closed one says so."""
    if wait.status not in OPEN_WAIT:
        return _late(run, wait)
    wrong = problems(_schema(wait), data)
    if wrong:
        draft.record(run, "await_answer_rejected", {"wait": wait.no, "step": wait.key, "problems": wrong})
        reason = "; ".join(wrong)
        return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=reason, problems=tuple(wrong))
    told = {
        "wait": wait.no,
        "step": wait.key,
        "id": message_id,
        "digest": digest,
        "payload": msgspec.Raw(data.encode()),
    }
    if by is not None:
        told["by"] = by
    run = draft.record(run, "await_answer_received", told)
    is_early = wait.status == "reserved"  # the run is not there yet, and has nothing to wake up for (F7)
    run = close_wait(draft, run, wait, "completed", "answer", answer=data)
    if run.status == "waiting" and not is_early:
        wake(draft, run, wait, wait.key)
    return Receipt(outcome="queued" if is_early else "woke", run_id=run.id, wait_id=wait.id, message_id=message_id)


def _late(run: Run, wait: Wait) -> Receipt:
    if wait.status == "cancelled":
        return Receipt(outcome="no_target", reason="not_found")
    return Receipt(outcome="late", run_id=run.id, wait_id=wait.id, reason=LATE[wait.status])


def _schema(wait: Wait) -> object:
    details = msgspec.json.decode(wait.details)
    return details.get("schema")
