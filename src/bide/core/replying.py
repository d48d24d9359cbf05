"""What comes back to requests: answers, refusals, what a transport says of sending, and time (U6–U9, W3, W7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import streams
from bide.core.batch import Draft
from bide.core.commands import Done, Receipt, Reply
from bide.core.durations import deadline_after
from bide.core.exchanges import counts, dispatch, end, has_room, move, settle, unit_of
from bide.core.exchanging import ExpireItems, MarkDispatched, Marked, Reject, SentItem, Terms, terms_of
from bide.core.interactions import told
from bide.core.moves import close_wait, finish, wake
from bide.core.outside import ItemKey
from bide.core.records import (
    FINAL,
    OPEN_INTERACTION,
    OPEN_WAIT,
    Chore,
    DeadLetter,
    Interaction,
    InteractionStatus,
    Run,
    RunError,
    Unused,
    Wait,
)
from bide.core.requests import Answer
from bide.core.schema import problems

LATE = {"timed_out": "timed_out", "failed": "already_completed"}


def key(command: Reject | MarkDispatched | ExpireItems, item: int) -> ItemKey:
    return command.run_id, command.no, item


def _take(
    draft: Draft, run: Run, wait: Wait, row: Interaction, data: str, digest: str, by: str | None, id: str
) -> tuple[Run, bool]:
    """An answer that is let in; whether the run goes on because of it."""
    terms, unit = terms_of(wait), unit_of(draft, wait)
    row = end(draft, unit, row, "completed", answer=data, digest=digest, answered_by=by)
    unit = unit_of(draft, wait)
    unit = replace(unit, received=unit.received + 1)
    entry = {**told(row), **counts(wait, unit), "id": id, "digest": digest}
    if by is not None:
        entry["by"] = by
    run = draft.record(run, "await_unit_item_completed", entry)
    if not terms.items:
        draft.put_unit(unit)
        run = close_wait(draft, run, wait, "completed", "answer", answer=data, received=1)
        if run.status == "waiting":
            return wake(draft, run, wait, wait.key), True
        return run, False
    was_waiting = run.status == "waiting"
    run = settle(draft, draft.put_run(run), wait, unit)
    if run.style == "pipeline":
        run = streams.answered(draft, run, wait.no, row.item, data)
    return run, was_waiting and run.status != "waiting"


def _lose(draft: Draft, run: Run, wait: Wait, row: Interaction, status: InteractionStatus, reason: str) -> Run:
    """An item that comes to nothing: the others go on without it."""
    unit = unit_of(draft, wait)
    row = end(draft, unit, row, status, answers=msgspec.json.encode([{"reason": reason}]).decode())
    unit = unit_of(draft, wait)
    unit = replace(unit, received=unit.received + 1, rejected=unit.rejected + 1)
    run = draft.record(run, "await_unit_item_rejected", {**told(row), **counts(wait, unit), "reason": reason})
    run = settle(draft, draft.put_run(run), wait, unit)
    return streams.refused(draft, run, wait.no, row.item, reason) if run.style == "pipeline" else run


def refusal_of(row: Interaction) -> str | None:
    """What was said when an interaction came to nothing by itself; None where nobody said anything of it alone."""
    said = msgspec.json.decode(row.answers)
    return str(said[0]["reason"]) if said and "reason" in said[0] else None


def reason_of(row: Interaction) -> str:
    """Why an interaction came to nothing."""
    return refusal_of(row) or row.status


# ---------------------------------------------------------------- answers


def answer(draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction | None) -> Reply:
    """In the order of the checks: does it exist, is it open, does it fit (H1, U8, W7)."""
    if row is None or (command.item is None and terms_of(wait).items):
        return Receipt(outcome="no_target", reason="not_found")
    refused = _closed(draft, command.target, command.message_id, command.data, command.digest, run, wait, row)
    if refused is not None:
        return refused
    wrong = misfits(terms_of(wait), command.data)
    if wrong:
        draft.record(run, "await_answer_rejected", {**told(row), "by": command.by, "problems": wrong})
        _keep(draft, run, wait, command.target, command.message_id, command.data, "invalid_payload")
        return _receipt("invalid", run, wait, row, reason="; ".join(wrong), problems=tuple(wrong))
    run, woke = _take(draft, run, wait, row, command.data, command.digest, command.by, command.message_id)
    return _receipt("woke" if woke else "queued", run, wait, row, message_id=command.message_id)


def misfits(terms: Terms, data: str) -> list[str]:
    """What is wrong with an answer; empty where it fits (W3, U2, U3)."""
    if not terms.many:
        return problems(terms.schema, data)
    value = msgspec.json.decode(data)
    if not isinstance(value, list):
        return [f"at $: a list of items is expected, not {type(value).__name__}"]
    if terms.most is not None and len(value) > terms.most:
        return [f"at $: {len(value)} items, and await_aggregate_max_output_items is {terms.most}"]
    if terms.schema is None:
        return []
    return problems({"type": "array", "items": terms.schema, "$defs": terms.schema.get("$defs", {})}, data)


def _closed(
    draft: Draft, target: str, id: str, data: str, digest: str, run: Run, wait: Wait, row: Interaction
) -> Receipt | None:
    """Why an interaction takes no answer any more; None where it does (U8, W7)."""
    if row.status in OPEN_INTERACTION and wait.status in OPEN_WAIT:
        return None
    if row.status == "completed":
        if row.digest == digest:
            return _receipt("duplicate", run, wait, row, duplicate=True, reason="duplicate")
        _keep(draft, run, wait, target, id, data, "conflict")
        return _receipt("conflict", run, wait, row, reason="already_completed")
    if row.status == "cancelled" or wait.status == "cancelled":
        _keep(draft, run, wait, target, id, data, "cancelled")
        return Receipt(outcome="no_target", reason="cancelled")
    reason = LATE.get(row.status, "stale")
    _keep(draft, run, wait, target, id, data, reason)
    return _receipt("late", run, wait, row, reason=reason)


def reject(draft: Draft, command: Reject, row: Interaction | None) -> Reply:
    """The outside says why there will be no answer (W13)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or row is None or run.workspace != command.workspace or wait.kind != "request":
        return Receipt(outcome="no_target", reason="not_found")
    if row.status == "failed" and reason_of(row) == command.reason:
        return _receipt("duplicate", run, wait, row, duplicate=True, reason="duplicate")
    data = msgspec.json.encode({"reason": command.reason}).decode()
    refused = _closed(draft, command.target, command.message_id, data, "", run, wait, row)
    if refused is not None:
        return refused
    if terms_of(wait).items:
        was_waiting = run.status == "waiting"
        run = _lose(draft, run, wait, row, "failed", command.reason)
        woke = was_waiting and run.status != "waiting"
        return _receipt("woke" if woke else "queued", run, wait, row, message_id=command.message_id)
    said = msgspec.json.encode([{"reason": command.reason}]).decode()
    end(draft, unit_of(draft, wait), row, "failed", answers=said)
    _fail(draft, run, wait, "failed", "WaitFailed", command.reason)
    return _receipt("woke", run, wait, row, message_id=command.message_id)


def _fail(draft: Draft, run: Run, wait: Wait, status: Any, code: str, message: str) -> Run:
    """The whole wait comes to nothing: a workflow is told, a pipeline fails (W2)."""
    error = msgspec.json.encode(RunError(code=code, message=message, step=wait.key)).decode()
    run = close_wait(draft, run, wait, status, f"{status}: {message}", answer=error)
    if run.style == "pipeline":
        return finish(draft, run, "failed", error=error)
    return wake(draft, run, wait, wait.key) if run.status == "waiting" else run


def _receipt(outcome: Any, run: Run, wait: Wait, row: Interaction, **more: Any) -> Receipt:
    return Receipt(outcome=outcome, run_id=run.id, wait_id=wait.id, interaction_id=row.id, **more)


def _keep(draft: Draft, run: Run, wait: Wait, target: str, id: str, data: str, reason: str) -> None:
    draft.unused.append(
        Unused(
            workspace=run.workspace,
            id=id,
            run_id=run.id,
            target=target,
            name=wait.key,
            payload=data,
            reason=reason,
            at=draft.now,
        )
    )


# ---------------------------------------------------------------- sending


def mark(draft: Draft, command: MarkDispatched, rows: Sequence[Interaction | None]) -> Reply:
    """Note what went out. Answers that came first stay answers (F98); what failed alone is tried again by itself."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    known = draft.view.outside.chores.get(command.chore.id)
    mine = known is not None and known.tries == command.chore.tries
    if run is None or wait is None or run.status in FINAL or wait.status not in OPEN_WAIT:
        if mine:
            draft.chores[command.chore.id] = None
        return Marked(False)
    for result, row in zip(command.results, rows, strict=True):
        if row is not None and row.status in OPEN_INTERACTION:
            run = _mark_one(draft, run, wait, row, result, command)
            run = draft.run(run.id) or run
    if draft.wait(wait.run_id, wait.no) == wait:
        run = settle(draft, draft.put_run(run), wait, unit_of(draft, wait))
    still = draft.wait(wait.run_id, wait.no)
    unit, run_now = unit_of(draft, wait), draft.run(run.id)
    is_over = still is None or still.status not in OPEN_WAIT or run_now is None or run_now.status in FINAL
    is_all = command.item is None  # and not one that failed alone
    goes_on = is_all and not is_over and unit.handed < unit.expected and has_room(terms_of(wait), unit)
    if mine and known is not None:
        due_at = deadline_after(draft.now, command.lease)
        draft.chores[known.id] = replace(known, due_at=due_at, tries=1) if goes_on else None
        return Marked(goes_on)
    return Marked(False)


def _mark_one(draft: Draft, run: Run, wait: Wait, row: Interaction, result: SentItem, command: MarkDispatched) -> Run:
    if result.error is not None:
        return _mark_failed(draft, run, wait, row, result, command)
    if row.status != "waiting":
        row = move(draft, unit_of(draft, wait), row, "waiting")
        run = draft.record(run, "await_interaction_dispatched", {**told(row), "timeout": wait.deadline})
    if result.answer is None:
        return run
    wrong = misfits(terms_of(wait), result.answer)
    if wrong:
        run = draft.record(run, "await_answer_rejected", {**told(row), "problems": wrong})
        _keep(draft, run, wait, row.id, f"{command.chore.id}:{row.item}", result.answer, "invalid_payload")
        return run
    run, _ = _take(draft, run, wait, row, result.answer, result.digest, None, command.chore.id)
    return run


def _mark_failed(
    draft: Draft, run: Run, wait: Wait, row: Interaction, result: SentItem, command: MarkDispatched
) -> Run:
    """It goes on by itself: a chore of its own, or a dead letter where trying again cannot help."""
    if row.status == "pending":
        move(draft, unit_of(draft, wait), row, "dispatching")
    chore = replace(dispatch(draft, run, wait, row.item), tries=1)
    if not result.is_final:
        draft.chores[chore.id] = replace(chore, due_at=deadline_after(draft.now, command.delay))
        return run
    error = result.error or ""
    draft.outside.letters[(chore.workspace, chore.id)] = DeadLetter(
        workspace=chore.workspace,
        id=chore.id,
        run_id=chore.run_id,
        kind=chore.kind,
        data=chore.data,
        error=error,
        tries=1,
        at=draft.now,
    )
    return draft.record(run, "chore_dead", {"chore": chore.id, "kind": chore.kind, "tries": 1, "error": error})


# ---------------------------------------------------------------- time


def look(draft: Draft, run: Run, wait: Wait) -> Reply:
    """Some item may have had its time; the chore looks which, so that no timer has to read interactions."""
    draft.put_wait(replace(wait, due_at=None))
    id = f"expire:{wait.id}"
    data = msgspec.json.encode({"no": wait.no, "item": None}).decode()
    draft.chores[id] = Chore(id=id, run_id=run.id, kind="expire", data=data, due_at=draft.now, workspace=run.workspace)
    return Done(True)


def expire(draft: Draft, command: ExpireItems, rows: Sequence[Interaction | None]) -> Reply:
    """End what has had its time: alone, or the whole wait with it (U4)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    draft.chores[command.chore.id] = None
    if run is None or wait is None or run.status in FINAL or wait.status not in OPEN_WAIT:
        return Done(False, "wait is closed")
    terms = terms_of(wait)
    for row in rows:
        deadline = terms.deadline(row.opened_at) if row is not None else None
        if row is None or row.status not in OPEN_INTERACTION or deadline is None or deadline > draft.now:
            continue
        if terms.on_item_timeout == "fail":
            wait = draft.put_terms(replace(wait, deadline=deadline))  # the wait ends with the time of its item
            _fail(draft, run, wait, "timed_out", "AWAIT_TIMEOUT", f"item {row.item} of wait {wait.id} timed out")
            return Done(True)
        run = _lose(draft, run, wait, row, "timed_out", "timed out")
        run = draft.run(run.id) or run
        wait = draft.wait(wait.run_id, wait.no) or wait
    if wait.status in OPEN_WAIT and command.next_at is not None:
        due_at = min(command.next_at, wait.due_at) if wait.due_at is not None else command.next_at
        draft.put_wait(replace(wait, due_at=due_at))
    return Done(True)
