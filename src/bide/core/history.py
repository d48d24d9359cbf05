"""What a workflow's turn records: outcomes of steps, waits that open and waits that are withdrawn (F1, F4–F6, F12)."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from bide.core import agenda, exchanges
from bide.core.batch import Draft
from bide.core.commands import CommitTurn, NewChild, NewStep, NewWait, Unseen
from bide.core.completing import take_held
from bide.core.deadlines import deadline_of
from bide.core.events import listen
from bide.core.holding import is_held
from bide.core.interactions import WITHDRAWN, open_interaction
from bide.core.ledger import payload_digest
from bide.core.matching import takes
from bide.core.moves import TELLING_APART, close_wait, describe, signal_name
from bide.core.outbox import notify
from bide.core.records import Run, RunError, Signal, StepRow, Unit, Unused, Wait
from bide.core.starting import start_child, start_detached
from bide.core.traces import with_trace

ENTRIES = {"done": "step_completed", "failed": "step_failed", "trying": "step_retried"}


def record_history(draft: Draft, run: Run, command: CommitTurn) -> Run:
    for step in command.steps:
        run = _record_step(draft, run, step)
    for no in command.withdraws:
        wait = draft.wait(run.id, no)
        if wait is not None and no in run.open_waits:
            run = close_wait(draft, run, wait, "cancelled", WITHDRAWN)
    for unseen in command.unseen:
        run = _take_back(draft, run, unseen)
    for new in command.opens:
        run = _open(draft, run, new)
    for more in command.more:
        run = exchanges.add_more(draft, draft.put_run(run), more)
    for key in command.forgets:
        draft.steps[(run.id, key)] = None
    return run


def _record_step(draft: Draft, run: Run, step: NewStep) -> Run:
    data: dict[str, object] = {"step": step.key, "attempts": step.attempts}
    if step.error is not None:
        data["error"] = msgspec.Raw(step.error.encode())
    digest = payload_digest(run.redact, step.result) if step.result is not None else None
    run = draft.record(run, ENTRIES[step.status], data, digest)
    draft.steps[(run.id, step.key)] = StepRow(
        run_id=run.id,
        key=step.key,
        kind=step.kind,
        status=step.status,
        seq=step.seq,
        attempts=step.attempts,
        result=step.result,
        error=step.error,
    )
    return run


def _open(draft: Draft, run: Run, new: NewWait) -> Run:
    """Open a wait, and complete it at once where what it waits for is there already."""
    if new.reaches is not None:
        return _reach(draft, run, new, new.reaches)
    deadline = deadline_of(draft.now, new.timeout)
    wait = draft.put_wait(
        agenda.begin(
            Wait(
                workspace=run.workspace,
                run_id=run.id,
                no=run.wait_no + 1,
                key=new.key,
                kind=new.kind,
                status="reserved" if new.reserves else "waiting",
                opened_at=draft.now,
                names=new.names,
                deadline=deadline,
                due_at=deadline,
                expected=1 if new.child is not None or new.task is not None else new.expected,
                details=with_trace(new.details, draft.trace),
            ),
            new.agenda,
            draft.now,
        )
    )
    run = draft.put_run(replace(run, wait_no=wait.no, open_waits=(*run.open_waits, wait.no)))
    if new.task is not None:
        run = open_interaction(draft, run, wait, new.task)
    run = draft.record(run, "await_reserved" if new.reserves else "await_execution_waiting", describe(wait))
    if new.request is not None:
        draft.put_unit(Unit(run_id=run.id, no=wait.no))
        run = exchanges.add(draft, draft.put_run(run), wait, new.request)
    if new.agenda is not None or new.task is not None:
        notify(draft, run, wait, "opened")
    if new.child is not None and wait.kind == "launch":
        return _launch(draft, run, wait, new.child)
    if new.child is not None:
        run = draft.put_run(replace(run, has_children=True))
        child = start_child(draft, run, wait.no, 0, new.child)
        return draft.record(run, "child_started", {"id": child.id, "definition": child.definition, "wait": wait.no})
    if new.listening is not None:
        return listen(draft, run, wait, new.listening)
    if wait.kind == "signal":
        return _hold_signal_id(draft, run, wait)
    if wait.kind == "receive":
        return receive(draft, run, wait)
    return run


def _reach(draft: Draft, run: Run, new: NewWait, no: int) -> Run:
    """The body waits for a signal id that it had reserved: from now on time counts (W1). An early answer is there.

    What an operator said of it meanwhile holds (W10): whom it is for, and until when.
    """
    wait = draft.wait(run.id, no)
    if wait is None or wait.status != "reserved":
        return run
    deadline = deadline_of(draft.now, new.timeout) if wait.deadline is None else wait.deadline
    details = with_trace(agenda.reached(wait, new.details), draft.trace)
    wait = replace(wait, status="waiting", deadline=deadline, due_at=deadline, details=details)
    wait = draft.put_terms(agenda.begin(wait, new.agenda, draft.now))
    run = draft.record(run, "await_execution_waiting", describe(wait))
    if new.agenda is not None:
        notify(draft, run, wait, "opened")
    return run


def _launch(draft: Draft, run: Run, wait: Wait, new: NewChild) -> Run:
    """Start a run that has no parent; the wait is over at once, with its id or with who holds the key (S8)."""
    holder = draft.name(run.workspace, "correlation", new.correlation_key) if new.correlation_key is not None else None
    if holder is not None:
        message = f"a live run holds correlation key {new.correlation_key!r}"
        error = RunError(code="DuplicateRun", message=message, step=wait.key, type=holder.run_id)
        return close_wait(draft, run, wait, "failed", "duplicate", answer=msgspec.json.encode(error).decode())
    launched = start_detached(draft, run.workspace, new)
    run = draft.record(run, "run_launched", {"id": launched.id, "definition": launched.definition, "step": wait.key})
    return close_wait(draft, run, wait, "completed", "launched", answer=msgspec.json.encode(launched.id).decode())


def receive(draft: Draft, run: Run, wait: Wait) -> Run:
    """Hand the wait the signals that it takes, if they are there: they leave the inbox in the same commit (law 13).

    It takes the oldest that matches, or all that match once there are as many as it expects. One that names no signal
    looks at all of them and takes none.
    """
    there = draft.signals(run.id)
    if not wait.names:
        answer = msgspec.json.encode([_told(signal) for signal in there])
        return close_wait(draft, run, wait, "completed", "inbox", answer=answer.decode())
    taken = [signal for signal in there if takes(wait, signal)]
    if len(taken) < max(1, wait.expected):
        return run
    if not wait.expected:
        del taken[1:]
    for signal in taken:
        draft.inbox[(run.id, signal.seq)] = None
    run = replace(run, inbox_count=run.inbox_count - len(taken))
    run = draft.record(run, "signals_consumed", {"ids": [signal.id for signal in taken]})
    told = [_told(signal) for signal in taken]
    answer = msgspec.json.encode(told if wait.expected else told[0])
    return close_wait(draft, run, wait, "completed", "signal", answer=answer.decode())


class _Told(msgspec.Struct, frozen=True):
    """A signal as the answer of the wait that took it."""

    id: str
    name: str
    payload: msgspec.Raw
    received_at: datetime
    seq: int = 0


def _told(signal: Signal) -> _Told:
    return _Told(signal.id, signal.name, msgspec.Raw(signal.payload.encode()), signal.received_at, signal.seq)


def _take_back(draft: Draft, run: Run, unseen: Unseen) -> Run:
    """Undo the taking of a wait that was given up before the body saw what it took (law 1).

    Signals go back to their place in the inbox, where another wait may have them at once. An answer to a signal id has
    no other place to go: it is kept for an operator (S12).
    """
    draft.steps[(run.id, unseen.key)] = None
    if unseen.kind == "signal":
        draft.unused.append(
            Unused(
                workspace=run.workspace,
                id=f"{run.id}/{unseen.seq}",
                run_id=run.id,
                target=unseen.name,
                name=unseen.name,
                payload=unseen.result,
                reason=WITHDRAWN,
                at=draft.now,
            )
        )
        return run
    told = msgspec.json.decode(unseen.result, type=_Told | list[_Told])
    returned = told if isinstance(told, list) else [told]
    for one in returned:
        draft.inbox[(run.id, one.seq)] = Signal(
            workspace=run.workspace,
            run_id=run.id,
            seq=one.seq,
            id=one.id,
            name=one.name,
            payload=bytes(one.payload).decode(),
            received_at=one.received_at,
        )
    run = replace(run, inbox_count=run.inbox_count + len(returned))
    run = draft.record(run, "signals_returned", {"ids": [one.id for one in returned], "step": unseen.key})
    for wait in draft.open_waits(run):
        if wait.kind == "receive":
            run = receive(draft, run, wait)
    return run


def _hold_signal_id(draft: Draft, run: Run, wait: Wait) -> Run:
    """A signal id is held by one open wait of the workspace; the second one is told who has it (F5)."""
    [signal_id] = wait.names
    holder = draft.name(run.workspace, "signal", signal_id)
    if holder is None:
        draft.put_name(signal_name(wait, "open", draft.now))
        return run
    if holder.digest == "closed":
        draft.replace_name(signal_name(wait, "open", draft.now), holder)
        return run
    if is_held(holder):
        draft.replace_name(signal_name(wait, "open", draft.now), holder)
        return take_held(draft, run, wait, holder)
    message = f"signal id {signal_id!r} is awaited by {holder.run_id} already; put the run id into it"
    error = RunError(code="SignalCollision", message=message, step=wait.key, type=holder.run_id)
    if not holder.has_collided:
        marked = replace(holder, message_id=f"{holder.message_id}!", created_at=holder.created_at + TELLING_APART)
        draft.replace_name(marked, holder)
    return close_wait(draft, run, wait, "failed", "collision", answer=msgspec.json.encode(error).decode())
