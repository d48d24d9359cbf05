"""What comes back to requests: answers, refusals, what a transport says of sending, and time (U6–U9, W3, W7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import Done, Receipt, Reply, TakenIn
from bide.core.durations import deadline_after
from bide.core.exchanges import dispatch, dispatch_id, has_room, unit_of
from bide.core.exchanging import (
    INTERACTION_API,
    ExpireItems,
    Given,
    MarkDispatched,
    Marked,
    Reject,
    SentItem,
    TakeIn,
    Terms,
    terms_of,
)
from bide.core.interactions import UNSENT, told, why_cancelled
from bide.core.moves import close_wait, finish, wake
from bide.core.outside import ItemKey
from bide.core.people import deny, why_not
from bide.core.records import (
    FINAL,
    OPEN_INTERACTION,
    OPEN_WAIT,
    Chore,
    DeadLetter,
    Interaction,
    Run,
    RunError,
    Unused,
    Wait,
)
from bide.core.requests import Answer, SettleDeadLetter
from bide.core.schema import problems
from bide.core.tally import Tally

LATE = {"timed_out": "timed_out", "failed": "already_completed"}


def key(command: Reject | MarkDispatched | ExpireItems, item: int) -> ItemKey:
    return command.run_id, command.no, item


def refusal_of(row: Interaction) -> str | None:
    """What was said when an interaction came to nothing by itself; None where nobody said anything of it alone."""
    said = msgspec.json.decode(row.answers)
    return str(said[0]["reason"]) if said and "reason" in said[0] else None


def reason_of(row: Interaction) -> str:
    """Why an interaction came to nothing."""
    return refusal_of(row) or row.status


# ---------------------------------------------------------------- answers


def answer(draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction | None) -> Reply:
    """In the order of the checks: does it exist, may they, is it open, does it fit (H1, U8, W7, W11)."""
    if command.item is None and terms_of(wait).items:
        wrong = answered_one_by_one(wait.id)
        return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=wrong, problems=(wrong,))
    if row is None:
        return Receipt(outcome="no_target", reason="not_found")
    if row.transport == INTERACTION_API and wait.status != "cancelled":  # over others no person answers
        reason = why_not(command.by, command.groups, assignee=row.assignee, group=row.group, claimed_by=row.claimed_by)
        if reason is not None:
            return deny(draft, run, wait, command.by, reason)
    tally = Tally(draft, run, wait)
    receipt = _judge(tally, command, row)
    return replace(receipt, outcome="woke") if receipt.outcome == "queued" and tally.close() else receipt


def _judge(tally: Tally, given: Answer | Given, row: Interaction) -> Receipt:
    """Let an answer in, or say why not."""
    draft, run, wait = tally.draft, tally.run, tally.wait
    refused = _closed(draft, given.target, given.message_id, given.data, given.digest, run, wait, row)
    if refused is not None:
        return refused
    wrong = misfits(tally.terms, given.data)
    if wrong:
        tally.tell("await_answer_rejected", {**told(row), "by": given.by, "problems": wrong})
        _keep(draft, run, wait, given.target, given.message_id, given.data, "invalid_payload")
        return _receipt("invalid", run, wait, row, reason="; ".join(wrong), problems=tuple(wrong))
    tally.complete(row, given.data, given.digest, given.by, given.message_id)
    return _receipt("queued", run, wait, row, message_id=given.message_id)


def take_in(draft: Draft, command: TakeIn) -> Reply:
    """Many of one wait: each as if it had come alone, but the run, the counts and the stream change once."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or run.workspace != command.workspace or wait.kind != "request":
        return TakenIn((Receipt(outcome="no_target", reason="not_found"),) * len(command.given))
    tally = Tally(draft, run, wait, command.offer)
    assert tally.terms.items, f"{wait.id} has one interaction, and is answered by itself"
    receipts = [_take_in_one(tally, given) for given in command.given]
    last = max((at for at, receipt in enumerate(receipts) if receipt.outcome == "queued"), default=None)
    if last is not None and tally.close():
        receipts[last] = replace(receipts[last], outcome="woke")
    return TakenIn(tuple(receipts), tally.run, tally.handed)


def _take_in_one(tally: Tally, given: Given) -> Receipt:
    row = tally.row(given.item)
    if row is None:
        return Receipt(outcome="no_target", reason="not_found")
    tally.draft.incoming = given.data  # what must not be told of one says nothing about the others
    return _judge(tally, given, row) if given.reason is None else _decline(tally, given, given.reason, row)


def _decline(tally: Tally, given: Reject | Given, reason: str, row: Interaction) -> Receipt:
    """Let a refusal of the outside in, or say why not."""
    draft, run, wait = tally.draft, tally.run, tally.wait
    if row.status == "failed" and reason_of(row) == reason:
        return _receipt("duplicate", run, wait, row, duplicate=True, reason="duplicate")
    data = msgspec.json.encode({"reason": reason}).decode()
    refused = _closed(draft, given.target, given.message_id, data, "", run, wait, row)
    if refused is not None:
        return refused
    if tally.terms.items:
        tally.lose(row, "failed", reason)
    else:
        tally.fail(row, "failed", reason)
    return _receipt("queued", run, wait, row, message_id=given.message_id)


def answered_one_by_one(wait_id: str) -> str:
    return f"{wait_id} has an interaction for each of its items; answer those"


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
        reason = why_cancelled(wait)
        _keep(draft, run, wait, target, id, data, reason)
        return Receipt(outcome="no_target", reason=reason)
    reason = LATE.get(row.status) or LATE.get(wait.status, "already_completed")
    _keep(draft, run, wait, target, id, data, reason)
    return _receipt("late", run, wait, row, reason=reason)


def reject(draft: Draft, command: Reject, row: Interaction | None) -> Reply:
    """The outside says why there will be no answer (W13)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or row is None or run.workspace != command.workspace or wait.kind != "request":
        return Receipt(outcome="no_target", reason="not_found")
    tally = Tally(draft, run, wait)
    receipt = _decline(tally, command, command.reason, row)
    if receipt.outcome != "queued":
        return receipt
    return replace(receipt, outcome="woke") if _close_declined(tally, command.reason) else receipt


def _close_declined(tally: Tally, reason: str) -> bool:
    """Put away what was declined: the only interaction of a wait takes the wait with it. Whether the run goes on."""
    if tally.terms.items:
        return tally.close()
    tally.draft.put_unit(tally.unit)
    _fail(tally.draft, tally.run, tally.wait, "failed", "WaitFailed", reason)
    return True


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
    tally = Tally(draft, run, wait, command.offer)
    for result, row in zip(command.results, rows, strict=True):
        if row is not None and row.status in OPEN_INTERACTION:
            _mark_one(tally, row, result, command)
    tally.close()
    still = draft.wait(wait.run_id, wait.no)
    unit, run_now = unit_of(draft, wait), draft.run(run.id)
    is_over = still is None or still.status not in OPEN_WAIT or run_now is None or run_now.status in FINAL
    is_all = command.item is None  # and not one that failed alone
    goes_on = is_all and not is_over and unit.handed < unit.expected and has_room(terms_of(wait), unit)
    if mine and known is not None:
        due_at = deadline_after(draft.now, command.lease)
        draft.chores[known.id] = replace(known, due_at=due_at, tries=1) if goes_on else None
        return Marked(goes_on, tally.run, tally.handed)
    return Marked(False, tally.run, tally.handed)


def _mark_one(tally: Tally, row: Interaction, result: SentItem, command: MarkDispatched) -> None:
    if result.error is not None:
        _mark_failed(tally, row, result, command)
        return
    if row.status != "waiting":
        row = tally.send(row)
    if result.answer is None:
        return
    wrong = misfits(tally.terms, result.answer)
    if wrong:
        tally.tell("await_answer_rejected", {**told(row), "problems": wrong})
        id = f"{command.chore.id}:{row.item}"
        _keep(tally.draft, tally.run, tally.wait, row.id, id, result.answer, "invalid_payload")
        return
    tally.complete(row, result.answer, result.digest, None, command.chore.id)


def _mark_failed(tally: Tally, row: Interaction, result: SentItem, command: MarkDispatched) -> None:
    """It goes on by itself: a chore of its own, or a dead letter where trying again cannot help."""
    draft, run, wait = tally.draft, tally.run, tally.wait
    if row.status == "pending":
        tally.move(row, "dispatching")
    chore = replace(dispatch(draft, run, wait, row.item), tries=1)
    if not result.is_final:
        draft.chores[chore.id] = replace(chore, due_at=deadline_after(draft.now, command.delay))
        return
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
    tally.tell("chore_dead", {"chore": chore.id, "kind": chore.kind, "tries": 1, "error": error})


def unsent(draft: Draft, command: SettleDeadLetter) -> list[Interaction]:
    """What nobody will send once this dead letter is gone: none where its wait is over, or the outbox has it again."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or run.status in FINAL or wait.status not in OPEN_WAIT:
        return []
    if command.id in draft.view.outside.chores:
        return []
    rows = map(Tally(draft, run, wait).row, command.items)
    return [row for row in rows if row is not None and row.status in UNSENT]


def decline_unsent(draft: Draft, command: SettleDeadLetter, rows: Sequence[Interaction], reason: str) -> None:
    """A person gave up sending these: as if the outside had declined each of them, so that no run is stranded (D6)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if not rows or run is None or wait is None:
        return
    tally = Tally(draft, run, wait)
    for row in rows:
        _decline(tally, Given(item=row.item, target=row.id, message_id=command.id), reason, row)
    _close_declined(tally, reason)
    _send_rest(draft, wait, command.id)


def _send_rest(draft: Draft, wait: Wait, discarded: str) -> None:
    """What was opened after the person had looked was not given up: it is sent, as it would have been."""
    run, still, unit = draft.run(wait.run_id), draft.wait(wait.run_id, wait.no), unit_of(draft, wait)
    is_open = run is not None and run.status not in FINAL and still is not None and still.status in OPEN_WAIT
    if run is None or not is_open or discarded != dispatch_id(wait):
        return
    if unit.handed < unit.expected and has_room(terms_of(wait), unit):
        draft.chores[dispatch_id(wait)] = dispatch(draft, run, wait)


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
    tally, lost = Tally(draft, run, wait), False
    for row in rows:
        deadline = tally.terms.deadline(row.opened_at) if row is not None else None
        if row is None or row.status not in OPEN_INTERACTION or deadline is None or deadline > draft.now:
            continue
        if tally.terms.on_item_timeout == "fail":
            wait = draft.put_terms(replace(wait, deadline=deadline))  # the wait ends with the time of its item
            _fail(draft, run, wait, "timed_out", "AWAIT_TIMEOUT", f"item {row.item} of wait {wait.id} timed out")
            return Done(True)
        tally.lose(row, "timed_out", "timed out")
        lost = True
    if lost:
        tally.close()
        wait = draft.wait(wait.run_id, wait.no) or wait
    if wait.status in OPEN_WAIT and command.next_at is not None:
        due_at = min(command.next_at, wait.due_at) if wait.due_at is not None else command.next_at
        draft.put_wait(replace(wait, due_at=due_at))
    return Done(True)
