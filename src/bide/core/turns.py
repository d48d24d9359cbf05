"""Turns: claiming a run, committing what its step led to, giving it back (D2, D3, D10, M2, M4)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_never

import msgspec
from msgspec.structs import replace

from bide.core import agenda, checkpoints, streams
from bide.core.batch import Draft
from bide.core.commands import (
    Claim,
    Committed,
    CommitTurn,
    Continue,
    Done,
    DuplicateRun,
    End,
    GiveBack,
    Hold,
    Offer,
    Park,
    Release,
    Reply,
    Stale,
    StartAgain,
    Suspend,
    TryAgain,
    Unknown,
)
from bide.core.deadlines import deadline_of
from bide.core.durations import deadline_after
from bide.core.history import record_history
from bide.core.matching import takes
from bide.core.moves import close_wait, describe, finish, grant, lease, make_ready, park
from bide.core.outbox import notify
from bide.core.records import (
    FAILURES,
    HEARING,
    LIFE,
    REPLAYED,
    Hearing,
    QueueEntry,
    Run,
    RunId,
    RunStatus,
    StepRow,
    Wait,
)
from bide.core.starting import start_child
from bide.core.streaming import Ask, Settle
from bide.core.traces import with_trace

PUT_OFF = timedelta(milliseconds=200)


def claim(draft: Draft, command: Claim) -> Reply:
    run = draft.run(command.run_id)
    if run is None or not _is_claimable(draft, run):
        return Done(False, "not claimable")
    offer = draft.view.offer
    assert offer is not None, "only a worker can claim"
    if run.claims >= offer.max_claims:
        run = replace(run, held="poison", updated_at=draft.now)
        make_ready(draft, run, draft.now, "run_held", {"held": "poison", "claims": run.claims})
        return Done(True, "poison")
    if _is_last_try(run.claims + 1, offer) and not _may_try_last(draft, offer):
        _put_off(draft, run)
        return Done(True, "put off")
    grant(draft, run, "run_claimed", {})
    return Done(True)


def _is_last_try(claims: int, offer: Offer) -> bool:
    return claims == offer.max_claims > 1


def _may_try_last(draft: Draft, offer: Offer) -> bool:
    """One run on its last try at a time: who dies with it in its company is not taken for the poison (D10)."""
    granted = (draft.view.runs[run_id] for run_id in draft.view.granted)
    return offer.last_try and not any(_is_last_try(run.claims, offer) for run in granted)


def _put_off(draft: Draft, run: Run) -> None:
    """Not now, and not at the head of the queue in the way of others."""
    at = deadline_after(draft.now, PUT_OFF)
    if run.status == "running":
        make_ready(draft, run, at, "run_put_off", {"claims": run.claims})
        return
    draft.put_run(replace(run, ready_at=at))
    draft.queue[run.id] = QueueEntry(run_id=run.id, queue=run.queue, priority=run.priority, due_at=at, epoch=run.epoch)


def _is_claimable(draft: Draft, run: Run) -> bool:
    if run.held is not None:
        return False
    return run.status == "ready" or (run.status == "running" and run.id in draft.view.expired)


def give_back(draft: Draft, command: GiveBack) -> Reply:
    """A turn that did not happen: it counts neither as a claim nor as an attempt."""
    run = draft.run(command.run_id)
    if run is None or run.status != "running" or run.epoch != command.epoch:
        return Stale(command.run_id)
    run = replace(run, claims=max(0, run.claims - 1), held=command.hold)
    name = "run_held" if command.hold else "run_given_back"
    data = {"held": command.hold, "reason": command.reason} if command.hold else {}
    _ready_for_others(draft, run, command.delay, name, data)
    return Done(True)


def release(draft: Draft, command: Release) -> Reply:
    run = draft.run(command.run_id)
    if run is None or run.workspace != command.workspace:
        return Unknown(command.run_id)
    if run.held is None:
        return Done(False, run.status)
    held = run.held
    make_ready(draft, replace(run, held=None, claims=0), draft.now, "run_released", {"held": held})
    return Done(True)


def commit(draft: Draft, command: CommitTurn) -> Reply:
    """Record what a turn led to. The epoch and the commit number decide; time and worker names do not."""
    run = draft.run(command.run_id)
    if run is None or run.status != "running" or (run.epoch, run.commits) != (command.epoch, command.commits):
        return Stale(command.run_id)
    run = replace(run, commits=run.commits + 1, claims=0, updated_at=draft.now)
    if run.style in REPLAYED:
        run = record_history(draft, draft.put_run(run), command)
    elif command.feed is not None:
        run = streams.feed(draft, draft.put_run(run), command.feed)
    if command.publishes:
        run = checkpoints.publish(draft, draft.put_run(run), command.publishes)
    match command.move:  # the frequent ones first
        case Suspend():
            return _suspend(draft, run, command, command.move)
        case End():
            if command.move.status == "completed" and _took_in_vain(draft, run, command):
                return _next_turn(draft, run, command.keep, "await_resume_released", {"step": run.step})
            run = _use_up(draft, run, command)  # what the last step was handed was used; only the rest is discarded
            status: RunStatus = command.move.status
            if run.cancel_reason is not None:
                status = "cancelled"  # whatever its clean-up says, the run was cancelled (W8)
            run = finish(draft, run, status, result=command.move.result, error=command.move.error)
            return Committed(run, False)
        case Park():
            return _park(draft, run, command, command.move)
        case Continue():
            run = _use_up(draft, run, command)
            return _go_on(draft, run, command, command.move)
        case Hold():
            if command.hears is not None:
                draft.steps[(run.id, HEARING)] = _hearing(run, command.hears)
            lease(draft, run)
            return Committed(draft.put_run(run), True)
        case Ask():
            return Committed(streams.ask(draft, run, command, command.move), False)
        case Settle():
            run, is_over = streams.settle(draft, run, command)
            if is_over:
                return _next_turn(draft, run, command.keep, "step_committed", {"next": run.step})
            return Committed(run, False)
        case StartAgain():
            return _start_again(draft, run, command, command.move)
        case TryAgain():
            return _try_again(draft, run, command.move, command.keep)
        case _:
            assert_never(command.move)


def _hearing(run: Run, hears: Hearing) -> StepRow:
    """It counts for as long as this commit is the newest (`records.hearing_of`), so nothing has to take it away."""
    text = msgspec.json.encode(hears).decode()
    return StepRow(run_id=run.id, key=HEARING, kind="hearing", status="trying", seq=run.commits, result=text)


def _use_up(draft: Draft, run: Run, command: CommitTurn) -> Run:
    """Delete exactly the signals that the step was handed as awaited (S5)."""
    if not command.consumed:
        return run
    for signal in command.consumed:
        draft.inbox[(run.id, signal.seq)] = None
    left = run.inbox_count - len(command.consumed)
    return draft.record(run, "signals_consumed", {"ids": [signal.id for signal in command.consumed]}, inbox_count=left)


def _go_on(draft: Draft, run: Run, command: CommitTurn, move: Continue) -> Reply:
    before = run.step
    run = replace(run, step=move.step, state=move.state, attempt=0, woken_by=None)
    return _next_turn(draft, run, command.keep, "step_committed", {"step": before, "next": move.step})


def _next_turn(draft: Draft, run: Run, keep: bool, name: str, data: Mapping[str, object]) -> Reply:
    """Keep the claim for the next step, or let anybody have it."""
    if not keep:
        return Committed(_ready_for_others(draft, run, timedelta(0), name, data), False)
    lease(draft, run)
    draft.granted[run.id] = True
    return Committed(draft.record(run, name, data), True)


def _ready_for_others(draft: Draft, run: Run, delay: timedelta, name: str, data: Mapping[str, object]) -> Run:
    """Ready, but not for the worker that just let go of it."""
    slots, draft.view.slots = draft.view.slots, 0
    try:
        return make_ready(draft, run, deadline_after(draft.now, delay), name, data)
    finally:
        draft.view.slots = slots


def _suspend(draft: Draft, run: Run, command: CommitTurn, move: Suspend) -> Reply:
    """Park on every open wait, unless one of them ended meanwhile: then the body goes on (D4)."""
    reached = [new.reaches for new in command.opens if new.reaches is not None]
    opened = range(run.wait_no - (len(command.opens) - len(reached)) + 1, run.wait_no + 1)
    known = {*move.awaiting, *opened, *reached}.difference(command.withdraws)
    still_open = draft.open_waits(run)
    is_over = not still_open or not known.issubset([wait.no for wait in still_open])
    if is_over or _took_in_vain(draft, run, command):
        return _next_turn(draft, run, command.keep, "await_resume_released", {"step": run.step})
    newest = next((wait for wait in reversed(still_open) if wait.status == "waiting"), still_open[-1])
    return Committed(park(draft, run, newest), False)


def _start_again(draft: Draft, run: Run, command: CommitTurn, move: StartAgain) -> Reply:
    """The same run from the top, with its inbox and nothing else of its way so far (F14)."""
    if _took_in_vain(draft, run, command):  # the next turn gives that back, and comes here again
        return _next_turn(draft, run, command.keep, "await_resume_released", {"step": run.step})
    for wait in draft.open_waits(run):
        run = close_wait(draft, run, wait, "cancelled", "run restarted")
    for key in move.forgets:
        draft.steps[(run.id, key)] = None
    draft.steps[(run.id, LIFE)] = StepRow(
        run_id=run.id, key=LIFE, kind="life", status="done", seq=0, result=str(move.life)
    )
    run = replace(run, state=move.input, attempt=0, woken_by=None)  # `input` is what it was started with
    return _next_turn(draft, run, command.keep, "run_restarted", {})


def _took_in_vain(draft: Draft, run: Run, command: CommitTurn) -> bool:
    """Whether a wait took something after the body had given it up: the next turn gives that back (law 1)."""
    for no in command.withdraws:
        wait = draft.wait(run.id, no)
        if wait is not None and wait.status == "completed" and wait.kind in ("receive", "signal"):
            return True
    return False


def _park(draft: Draft, run: Run, command: CommitTurn, move: Park) -> Reply:
    taken = _taken_key(draft, run, move)
    if taken is not None:
        return taken
    if move.joins:
        run = _use_up(draft, run, command)  # `Spawn` progresses, `Await` consumes nothing (S5)
    wait = _open_wait(draft, run, move)
    before = run.step
    run = replace(
        run,
        state=move.state,
        attempt=0,
        step=move.step,
        woken_by=None,
        wait_no=wait.no,
        open_waits=(*run.open_waits, wait.no),
        has_children=run.has_children or bool(move.children),
    )
    draft.put_run(run)
    for no, child in enumerate(move.children):
        started = start_child(draft, run, wait.no, no, child)
        run = draft.record(run, "child_started", {"id": started.id, "definition": started.definition, "wait": wait.no})
    run = draft.record(run, "step_committed", {"step": before, "next": move.step})
    if move.agenda is not None:
        notify(draft, run, wait, "opened")
    cause = _satisfied(draft, run, wait)
    if cause is not None:
        # What it waits for is there already: opened and completed in one commit, and the worker goes on.
        run = draft.record(run, "await_execution_waiting", describe(wait))
        run = close_wait(draft, run, wait, "completed", cause)
        run = replace(run, woken_by=wait.no)
        data = {"wait": wait.no, "step": move.step, "status": "completed"}
        return _next_turn(draft, run, command.keep, "await_resume_released", data)
    return Committed(park(draft, run, wait), False)


def _taken_key(draft: Draft, run: Run, move: Park) -> DuplicateRun | None:
    """A child's correlation key that a live run holds, or an earlier child of the same commit (S8)."""
    siblings: dict[str, RunId] = {}
    for child in move.children:
        key = child.correlation_key
        if key is None:
            continue
        holder = draft.name(run.workspace, "correlation", key)
        if holder is not None or key in siblings:
            return DuplicateRun(key, holder.run_id if holder is not None else siblings[key])
        siblings[key] = child.run_id
    return None


def _open_wait(draft: Draft, run: Run, move: Park) -> Wait:
    deadline = deadline_of(draft.now, move.timeout)
    return draft.put_wait(
        agenda.begin(
            Wait(
                workspace=run.workspace,
                run_id=run.id,
                no=run.wait_no + 1,
                key=move.step,
                kind="children" if move.joins else "signals",
                status="waiting",
                opened_at=draft.now,
                names=move.names,
                seen=move.seen,
                deadline=deadline,
                due_at=deadline,
                on_timeout=move.on_timeout,
                expected=len(move.children),
                cancel_children=move.cancel_children,
                details=with_trace(move.details, draft.trace),
            ),
            move.agenda,
            draft.now,
        )
    )


def _satisfied(draft: Draft, run: Run, wait: Wait) -> str | None:
    """What completes a wait the moment it opens: a signal that came first (S3), or no children at all (M6)."""
    if wait.kind == "children":
        return "children" if wait.received >= wait.expected else None
    return "signal" if any(takes(wait, signal) for signal in draft.signals(run.id)) else None


def _try_again(draft: Draft, run: Run, move: TryAgain, keep: bool) -> Reply:
    """Redo the step: it keeps what it was handed (M4)."""
    # A pipeline's state tells of its items, and goes on while the stage that feeds them waits for its next try.
    state = run.state if run.style == "pipeline" else move.state
    run = replace(run, attempt=run.attempt + 1, state=state)
    if move.failures:
        draft.steps[(run.id, FAILURES)] = StepRow(
            run_id=run.id, key=FAILURES, kind="failures", status="trying", seq=run.commits, attempts=move.failures
        )
    data: dict[str, object] = {"step": run.step, "attempt": run.attempt}
    if move.error is not None:
        data["error"] = move.error
    if move.delay > timedelta(0):
        return Committed(_ready_for_others(draft, run, move.delay, "step_retried", data), False)
    return _next_turn(draft, run, keep, "step_retried", data)
