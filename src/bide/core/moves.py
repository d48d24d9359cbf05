"""The legal moves of a run and of a wait, and the few ways in which every rule makes them.

What is absent from these tables is forbidden. No other module sets a status.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.approvals import as_parents_see
from bide.core.asking import told_of
from bide.core.batch import Draft
from bide.core.durations import deadline_after
from bide.core.interactions import INTERACTING, close_all
from bide.core.ledger import Kept, end_digest
from bide.core.records import (
    CANCELLED,
    FINAL,
    REPLAYED,
    Chore,
    Name,
    QueueEntry,
    Run,
    RunId,
    RunStatus,
    StepRow,
    Timer,
    Wait,
    WaitStatus,
    wait_seq,
)

RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    "ready": frozenset({"running", "ready", "cancelled"}),
    "running": frozenset({"running", "ready", "waiting", "completed", "stopped", "failed", "cancelled"}),
    "waiting": frozenset({"ready", "running", "failed", "cancelled"}),
    "completed": frozenset(),
    "stopped": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

WAIT_MOVES: Mapping[WaitStatus, frozenset[WaitStatus]] = {
    "reserved": frozenset({"waiting", "completed", "failed", "cancelled"}),
    "waiting": frozenset({"completed", "timed_out", "failed", "cancelled"}),
    "completed": frozenset(),
    "timed_out": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


NOTHING: Mapping[str, Any] = {}


class IllegalMove(Exception):
    """A rule asked for a move that the tables do not have: a defect of bide, caught before anything was written."""

    def __init__(self, record: str, id: str, old: str, new: str) -> None:
        super().__init__(record, id, old, new)
        self.record, self.id, self.old, self.new = record, id, old, new

    def __str__(self) -> str:
        return f"{self.record} {self.id} cannot go from {self.old} to {self.new}; this is a defect of bide, report it"


def _check(run: Run, to: RunStatus) -> None:
    if to not in RUN_MOVES[run.status]:
        raise IllegalMove("run", run.id, run.status, to)


def make_ready(draft: Draft, run: Run, at: datetime, entry: str, data: Mapping[str, Any]) -> Run:
    """Let a worker have the run from *at* on; an offering worker with a free slot gets it in this very commit."""
    offer = draft.view.offer
    if (
        offer is not None
        and run.held is None
        and at <= draft.now
        and draft.view.slots > draft.slots_taken
        and run.queue in offer.queues
        and run.definition in offer.definitions
    ):
        draft.slots_taken += 1
        return grant(draft, run, entry, data)
    _check(run, "ready")
    draft.queue[run.id] = (
        QueueEntry(run_id=run.id, queue=run.queue, priority=run.priority, due_at=at, epoch=run.epoch)
        if run.held is None
        else None
    )
    draft.granted[run.id] = False
    data = {**data, **_from(run), "to": "ready"}
    return draft.record(run, entry, data, status="ready", ready_at=at, updated_at=draft.now)


def grant(draft: Draft, run: Run, entry: str, data: Mapping[str, Any]) -> Run:
    """Give the run to the offering worker under a new epoch."""
    offer = draft.view.offer
    assert offer is not None, "only a worker can be given a run"
    _check(run, "running")
    epoch = run.epoch + 1
    data = {**data, **_from(run), "to": "running", "epoch": epoch, "worker": offer.worker}
    changes: dict[str, Any] = {"status": "running", "epoch": epoch, "claims": run.claims + 1, "updated_at": draft.now}
    run = draft.record(run, entry, data, **changes)
    lease(draft, run)
    draft.granted[run.id] = True
    return run


def _from(run: Run) -> dict[str, str]:
    return {"from": run.status} if run.ledger_seq else {}  # a run that starts comes from nowhere


def lease(draft: Draft, run: Run) -> None:
    """The offering worker has the run until its lease ends; then anybody may claim it."""
    offer = draft.view.offer
    assert offer is not None, "only a worker can hold a lease"
    draft.queue[run.id] = QueueEntry(
        run_id=run.id,
        queue=run.queue,
        priority=run.priority,
        due_at=draft.view.leased_until,
        epoch=run.epoch,
        worker=offer.worker,
    )


def park(draft: Draft, run: Run, wait: Wait) -> Run:
    _check(run, "waiting")
    before = run.status
    draft.queue[run.id] = None
    draft.granted[run.id] = False
    changes: dict[str, Any] = {"status": "waiting", "parked_on": wait.no, "updated_at": draft.now}
    if run.style in REPLAYED or run.style == "pipeline":  # each of its waits was told of when it opened
        data = {"waits": run.open_waits, "from": before, "to": "waiting"}
        return draft.record(run, "run_suspended", data, **changes)
    data = {**describe(wait), "from": before, "to": "waiting"}
    return draft.record(run, "await_execution_waiting", data, **changes)


def describe(wait: Wait) -> dict[str, Any]:
    """The fields that every await entry of the ledger has, as far as they are set (G3)."""
    data: dict[str, Any] = {"wait": wait.no, "step": wait.key, "status": wait.status, "kind": wait.kind}
    if wait.names:
        data["names"] = wait.names
    if wait.expected:
        data["expected"] = wait.expected
        data["completed"] = wait.received
    if wait.deadline is not None:
        data["timeout"] = wait.deadline
    if wait.details.startswith('{"'):  # details of nothing at all are empty
        data |= told_of(wait)
    return data


def close_wait(
    draft: Draft,
    run: Run,
    wait: Wait,
    status: WaitStatus,
    cause: str,
    *,
    answer: str | None = None,
    told: Mapping[str, Any] = NOTHING,
    **changes: Any,
) -> Run:
    """Bring a wait to its one final status (D5). The ledger is *told* more of it, and it *changes* otherwise."""
    if status not in WAIT_MOVES[wait.status]:
        raise IllegalMove("wait", wait.id, wait.status, status)
    wait = draft.put_wait(replace(wait, status=status, cause=cause, closed_at=draft.now, due_at=None, **changes))
    if wait.kind == "signal":
        _free_signal_id(draft, wait)
    elif wait.kind == "event":
        draft.listeners[(wait.run_id, wait.no)] = None
    still_open = tuple([no for no in run.open_waits if no != wait.no])
    entry = "await_unit_completed" if status == "completed" else "await_unit_terminal"
    data = {"wait": wait.no, "step": wait.key, "status": status, "cause": cause, **told}
    if wait.expected:
        data |= {"expected": wait.expected, "completed": wait.received}
    if wait.kind in INTERACTING and status in ("timed_out", "failed", "cancelled"):
        close_all(draft, wait, status)
    run = draft.record(run, entry, data, open_waits=still_open)
    if run.style in REPLAYED and (status != "cancelled" or answer is not None):
        draft.steps[(run.id, wait.key)] = StepRow(
            run_id=run.id,
            key=wait.key,
            kind=wait.kind,
            status="done" if status == "completed" else "timed_out" if status == "timed_out" else "failed",
            seq=wait_seq(run.ledger_seq),
            result=answer if status == "completed" else None,
            error=answer if status in ("failed", "cancelled") else None,
        )
    return run


# The row of a signal id is known by its moment (see `replace_name`), so an open one, one that others collided with and
# a closed one have different moments, also where the clock stood still.
TELLING_APART = timedelta(microseconds=1)


def _free_signal_id(draft: Draft, wait: Wait) -> None:
    """An answered or timed-out id is remembered, so that a late answer hears so; a cancelled one is forgotten."""
    [signal_id] = wait.names
    if wait.status == "cancelled":
        draft.drop_name(wait.workspace, "signal", signal_id)
    elif wait.cause != "collision":
        closed = signal_name(wait, "closed", max(draft.now, wait.opened_at + 2 * TELLING_APART))
        draft.replace_name(closed, draft.name(wait.workspace, "signal", signal_id))


def signal_name(wait: Wait, state: str, now: datetime) -> Name:
    return Name(
        workspace=wait.workspace,
        kind="signal",
        name=wait.names[0],
        run_id=wait.run_id,
        digest=state,
        message_id=str(wait.no),
        created_at=now,
    )


def wake(draft: Draft, run: Run, wait: Wait, step: str) -> Run:
    """Release a parked run because *wait* reached its end."""
    if run.style in REPLAYED:
        step = run.step  # its body runs from the top
    run = replace(run, parked_on=None, woken_by=wait.no, step=step, claims=0)
    ended = draft.wait(run.id, wait.no) or wait
    data = {"wait": wait.no, "step": step, "status": ended.status}
    return make_ready(draft, run, draft.now, "await_resume_released", data)


def finish(draft: Draft, run: Run, status: RunStatus, *, result: str | None = None, error: str | None = None) -> Run:
    """End a run: everything of it that was open is closed in this commit (W8, S5), and its parent is told."""
    _check(run, status)
    before = run.status
    for wait in draft.open_waits(run):
        run = close_wait(draft, run, wait, "cancelled", f"run {status}")
    discarded = draft.signals(run.id)
    for signal in discarded:
        draft.inbox[(run.id, signal.seq)] = None
    if run.correlation_key is not None and run.correlation_scope == "live":
        draft.drop_name(run.workspace, "correlation", run.correlation_key)
    if run.cancel_until is not None:
        draft.timers[(run.id, 0)] = None
    draft.queue[run.id] = None
    draft.granted[run.id] = False
    data: dict[str, Any] = {"from": before, "to": status}
    if discarded:
        data["discarded"] = [signal.id for signal in discarded]
    if run.cancel_reason:
        data["reason"] = run.cancel_reason
    digest = end_digest(Kept(run.input, result, error, run.redact))
    run = draft.record(
        run,
        f"run_{status}",
        data,
        digest,
        status=status,
        result=result,
        error=error,
        parked_on=None,
        woken_by=None,
        held=None,
        inbox_count=0,
        cancel_until=None,
        ended_at=draft.now,
        updated_at=draft.now,
    )
    if run.has_children and status == "cancelled":
        cancel_later(draft, run.id, f"parent {run.id} was cancelled")
    _tell_parent(draft, run)
    return run


def cancel_later(draft: Draft, run_id: RunId, reason: str, wait_no: int | None = None) -> None:
    """Leave the children of a run, or of one join, to a chore: there may be more than one commit should carry."""
    id = f"cancel_children:{run_id}" if wait_no is None else f"cancel_children:{run_id}:{wait_no}"
    draft.chores[id] = Chore(id=id, run_id=run_id, kind="cancel_children", data=reason, due_at=draft.now)


def join_of(chore: Chore) -> int | None:
    """The number of the join whose children the chore cancels; None where it is all children of the run."""
    _, _, no = chore.id.removeprefix(f"cancel_children:{chore.run_id}").partition(":")
    return int(no) if no else None


def _tell_parent(draft: Draft, child: Run) -> None:
    """Count a child's end with the wait of its parent, exactly once: the end itself happens once (law 15)."""
    if child.parent_id is None or child.parent_wait is None:
        return
    parent = draft.run(child.parent_id)
    wait = draft.wait(child.parent_id, child.parent_wait)
    if parent is None or wait is None or parent.status in FINAL or wait.status != "waiting":
        return
    wait = draft.put_wait(replace(wait, received=wait.received + 1))
    if wait.received < wait.expected:
        return
    parent = close_wait(draft, parent, wait, "completed", "children", answer=_told(child))
    if parent.status == "waiting":
        wake(draft, parent, wait, wait.key)


def _told(child: Run) -> str:
    """A child's end as a workflow that invoked it is handed it."""
    child = as_parents_see(child)
    result = msgspec.Raw((child.result or "null").encode())
    error = msgspec.Raw((child.error or "null").encode())
    told = {"id": child.id, "status": child.status, "result": result, "error": error}
    return msgspec.json.encode(told).decode()


def begin_cleanup(draft: Draft, run: Run, reason: str, grace: timedelta) -> Run:
    """Close what is open and let the definition's clean-up run; a claim from before it is void (W8)."""
    for wait in draft.open_waits(run):
        run = close_wait(draft, run, wait, "cancelled", "run cancelled")
        if wait.kind == "children":  # join by join: the clean-up may have children of its own
            cancel_later(draft, run.id, f"parent {run.id} was cancelled", wait.no)
    until = deadline_after(draft.now, grace)
    draft.timers[(run.id, 0)] = Timer(run_id=run.id, no=0, due_at=until)
    run = replace(
        run,
        cancel_reason=reason or "cancelled",
        cancel_until=until,
        parked_on=None,
        woken_by=None,
        held=None,
        attempt=0,
        claims=0,
        epoch=run.epoch + 1,
    )
    data = {"reason": reason, "until": until, "step": run.step}
    if run.style == "machine":
        run = replace(run, step="on_cancel")
    run = make_ready(draft, run, draft.now, "run_cancel_requested", data)
    if run.style in REPLAYED:
        draft.steps[(run.id, CANCELLED)] = StepRow(
            run_id=run.id, key=CANCELLED, kind="cancel", status="done", seq=wait_seq(run.ledger_seq)
        )
    return run
