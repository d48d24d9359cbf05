"""Timers: deadlines of waits, and the end of a clean-up's grace (W2, W6, W8)."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec

from bide.core import agenda, replying
from bide.core.ages import spoken
from bide.core.batch import Draft
from bide.core.commands import Done, FireTimer, Reply
from bide.core.events import publish
from bide.core.exchanging import terms_of
from bide.core.moves import cancel_later, close_wait, finish, wake
from bide.core.operating import assign, end_early
from bide.core.outbox import notify, told_id
from bide.core.records import FINAL, Run, RunError, RunStatus, Wait

FAIL = "!fail"  # the timeout policy that fails the run


def fire(draft: Draft, command: FireTimer) -> Reply:
    """Act on a timer if it is still due. The timer only asked for a look: the wait row decides (law 1)."""
    run = draft.run(command.run_id)
    if run is None or run.status in FINAL:
        draft.timers[(command.run_id, command.no)] = None
        return Done(False, "run is final")
    if command.no == 0:
        return _end_grace(draft, run)
    wait = draft.wait(command.run_id, command.no)
    if wait is None or wait.status != "waiting" or wait.due_at is None:
        draft.timers[(command.run_id, command.no)] = None
        return Done(False, "wait is closed")
    if wait.due_at > draft.now:
        return Done(False, "not due")
    draft.view.late.append((draft.now - wait.due_at).total_seconds())
    if wait.kind == "request" and terms_of(wait).items:
        return replying.look(draft, run, wait)
    if wait.deadline is not None and wait.deadline <= draft.now:
        return _time_out(draft, run, wait)
    silent_at = agenda.silent_at(wait)
    if silent_at is not None and silent_at <= draft.now:
        quiet = spoken(timedelta(seconds=agenda.terms(wait)["heartbeat"]))
        end_early(draft, run, wait, "failed", "silent", f"no heartbeat for {quiet}")
        return Done(True)
    return _remind(draft, run, wait)


def _remind(draft: Draft, run: Run, wait: Wait) -> Reply:
    """Reminders and escalations that are due: the run sleeps on (W9)."""
    due, wait = agenda.take_due(wait, draft.now)
    for step in due:
        data: dict[str, object] = {"wait": wait.no, "step": wait.key, "due": step.at}
        if step.to is None:
            run = draft.record(run, "await_reminder", data)
        else:
            assignee, group = agenda.recipient(step.to)
            wait = assign(draft, wait, assignee, group)
            run = draft.record(run, "await_escalated", {**data, "recipient": step.to})
        _tell(draft, run, wait, step)
    draft.put_terms(wait)
    return Done(True)


def _tell(draft: Draft, run: Run, wait: Wait, step: agenda.Due) -> None:
    """The event and the notifier's call, each of this reminder alone: the ledger's number is in their ids."""
    cause: Literal["reminder", "escalated"] = "reminder" if step.to is None else "escalated"
    details = agenda.terms(wait)
    said: dict[str, object] = {"run_id": run.id, "wait_id": wait.id, "definition": run.definition, "step": wait.key}
    said |= {"deadline": wait.deadline, "recipient": step.to, "id": told_id(wait)}
    said |= {name: details.get(name) for name in ("title", "channel", "assignee", "group", "metadata")}
    data = msgspec.json.encode(said).decode()
    publish(draft, run, id=f"{wait.id}:{cause}:{run.ledger_seq}", name=f"bide.wait.{cause}", data=data)
    notify(draft, run, wait, cause, nth=run.ledger_seq)


def _time_out(draft: Draft, run: Run, wait: Wait) -> Reply:
    there = tuple(signal.seq for signal in draft.signals(run.id) if signal.name in wait.names)
    run = close_wait(draft, run, wait, "timed_out", "timeout", partial=there)
    if wait.kind == "children" and wait.cancel_children:
        cancel_later(draft, run.id, f"the join of {run.id} timed out", wait.no)
    if wait.on_timeout == FAIL:
        error = RunError(code="AWAIT_TIMEOUT", message=f"wait {wait.id} timed out", step=wait.key)
        status: RunStatus = "cancelled" if run.cancel_reason is not None else "failed"
        finish(draft, run, status, error=msgspec.json.encode(error).decode())
        return Done(True)
    if run.status == "waiting":
        wake(draft, run, wait, wait.on_timeout or wait.key)
    return Done(True)


def _end_grace(draft: Draft, run: Run) -> Reply:
    """The clean-up had its time; the run is over, and a turn of it that still runs can commit nothing."""
    if run.cancel_until is None:
        draft.timers[(run.id, 0)] = None
        return Done(False, "no clean-up under way")
    if run.cancel_until > draft.now:
        return Done(False, "not due")
    finish(draft, msgspec.structs.replace(run, epoch=run.epoch + 1), "cancelled")
    return Done(True)
