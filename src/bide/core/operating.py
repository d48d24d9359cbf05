"""What the outside may do to an open wait beside answering it (W10, W13), and claims on tasks."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

import msgspec
from msgspec.structs import replace

from bide.core import agenda, interactions
from bide.core.answering import interaction_of
from bide.core.batch import Draft
from bide.core.commands import REFUSED, Conflicting, Done, Receipt, Reply, Unknown
from bide.core.deadlines import deadline_of
from bide.core.exchanging import Reject, terms_of
from bide.core.moves import cancel_later, close_wait, finish, wake
from bide.core.people import deny, why_not
from bide.core.quorum import rule_of
from bide.core.records import OPEN_INTERACTION, OPEN_WAIT, Run, RunError, Wait, WaitStatus, interaction_id
from bide.core.replying import reject
from bide.core.requests import Amend, Beat, ChangeWait, Fail, HandTask, Withdraw


def change_wait(draft: Draft, command: ChangeWait) -> Reply:
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or run.workspace != command.workspace:
        return Unknown(command.run_id)
    if command.item is not None and isinstance(command.change, Fail):
        if wait.kind == "request" and terms_of(wait).items:
            return _fail_item(draft, command, command.item)
        if wait.status == "failed" and wait.cause == _cause("failed", command.reason):
            return Done(True, "as it was")  # who lost the reply asks again (law 5)
    if wait.status not in OPEN_WAIT:
        return Done(False, wait.status)
    row = interaction_of(draft, (run.id, wait.no, command.item)) if command.item is not None else None
    if row is not None and row.status not in OPEN_INTERACTION:
        return Done(False, row.status)  # one of many that has ended, though others have not
    match command.change:
        case Amend():
            return _amend(draft, run, wait, command.change, command.reason)
        case Fail():
            end_early(draft, run, wait, "failed", "failed", command.reason)
        case Withdraw():
            end_early(draft, run, wait, "cancelled", "cancelled", command.reason)
        case Beat():
            beaten = agenda.beat(wait, draft.now)
            if beaten is not None:
                draft.put_terms(beaten)
        case _:
            assert_never(command.change)
    return Done(True)


def _fail_item(draft: Draft, command: ChangeWait, item: int) -> Reply:
    """One item of many comes to nothing; the others go on (U4). The same again is no news."""
    row = interaction_of(draft, (command.run_id, command.no, item))
    id = interaction_id(command.run_id, command.no, item)
    rejection = Reject(
        workspace=command.workspace,
        actor=command.actor,
        run_id=command.run_id,
        no=command.no,
        item=item,
        target=id,
        reason=command.reason,
        message_id=command.message_id,
    )
    receipt = reject(draft, rejection, row)
    assert isinstance(receipt, Receipt)
    if receipt.outcome == "no_target":
        return Unknown(id)
    return Done(receipt.outcome not in REFUSED, row.status if row is not None else "")


def _amend(draft: Draft, run: Run, wait: Wait, change: Amend, reason: str) -> Reply:
    data: dict[str, object] = {"wait": wait.no, "step": wait.key, "reason": reason}
    if change.moves:
        data |= {"deadline": {"from": wait.deadline, "to": deadline_of(draft.now, change.deadline)}}
        wait = _moved(wait, deadline_of(draft.now, change.deadline))
    if change.assigns:
        data |= {"assignee": change.assignee, "group": change.group}
        wait = assign(draft, wait, change.assignee, change.group)
    by_item = wait.kind == "request" and terms_of(wait).items
    draft.put_terms(wait if by_item else agenda.look(wait))
    draft.record(run, "await_updated", data)
    return Done(True)


def _moved(wait: Wait, deadline: datetime | None) -> Wait:
    """The wait with another deadline. Where each item has its time, all of them have this one now."""
    if wait.kind != "request" or not terms_of(wait).items:
        return replace(wait, deadline=deadline)
    details = agenda.terms(wait)
    for name, value in (("seconds", None), ("until", deadline)):
        details.pop(name, None)
        if value is not None:
            details[name] = value.isoformat()
    return agenda.with_terms(replace(wait, due_at=deadline), details)


def assign(draft: Draft, wait: Wait, assignee: str | None, group: str | None) -> Wait:
    """The wait, and what of it is open, for these from now on."""
    if wait.kind in interactions.INTERACTING:
        interactions.assign_all(draft, wait, assignee, group)
    return agenda.assigned(wait, assignee, group)


def end_early(draft: Draft, run: Run, wait: Wait, status: WaitStatus, how: str, reason: str) -> Run:
    """End a wait without an answer and let its run go on: it is told how, and why."""
    code = {"failed": "WaitFailed", "cancelled": "WaitCancelled"}[status]
    error = RunError(code=code, message=reason or how, step=wait.key)
    told = msgspec.json.encode(error).decode()
    run = close_wait(draft, run, wait, status, _cause(how, reason), answer=told)
    if run.style == "pipeline":  # its stages cannot be told of it (W2)
        return finish(draft, run, "failed", error=told)
    if wait.kind == "children" and wait.cancel_children:
        cancel_later(draft, run.id, f"the join of {run.id} was {how}", wait.no)
    if run.status == "waiting":
        run = wake(draft, run, wait, wait.key)
    return run


def _cause(how: str, reason: str) -> str:
    return f"{how}: {reason}" if reason else how


def hand_task(draft: Draft, command: HandTask) -> Reply:
    """Claim a task or let go of it. Who claims it must be somebody who may answer it."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    row = interaction_of(draft, (command.run_id, command.no, command.item))
    if run is None or wait is None or row is None or run.workspace != command.workspace:
        return Unknown(interaction_id(command.run_id, command.no, command.item))
    reason = why_not(command.by, command.groups, assignee=row.assignee, group=row.group)
    if reason is not None:
        return deny(draft, run, wait, command.by, reason)
    if wait.status not in OPEN_WAIT:
        return Done(False, wait.status)
    if row.status not in OPEN_INTERACTION:
        return Done(False, row.status)
    if row.claimed_by not in (None, command.by):
        return Conflicting(row.id, f"{row.claimed_by} has claimed it")
    if command.action == "claim" and not rule_of(agenda.terms(wait)).is_plain:
        return Conflicting(row.id, "several people must answer it, so nobody can have it alone")
    claimed_by = command.by if command.action == "claim" else None
    if row.claimed_by == claimed_by:
        return Done(True, "as it was")
    row = replace(row, claimed_by=claimed_by)
    draft.outside.interactions[(row.run_id, row.no, row.item)] = row
    name = "await_interaction_claimed" if command.action == "claim" else "await_interaction_released"
    draft.record(run, name, {**interactions.told(row), "by": command.by})
    return Done(True)
