"""Answering an interaction or a wait by its id (W3, W7, W11, W12, U8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import interactions, replying
from bide.core.agenda import terms
from bide.core.asking import Asked, asked_in
from bide.core.batch import Draft
from bide.core.commands import Deliver, Receipt, Reply
from bide.core.completing import LATE, complete_wait
from bide.core.decisions import DecisionReceipt, seal
from bide.core.delivery import admit_signal, unfit_for
from bide.core.events import answer_of, stand_in
from bide.core.exchanging import Terms
from bide.core.expressions import Facts
from bide.core.hiding import told_digest
from bide.core.moves import close_wait, wake
from bide.core.outside import ItemKey
from bide.core.people import admitted_before, deny, remember, rescued, why_not
from bide.core.quorum import Given, Verdict, weigh
from bide.core.records import OPEN_WAIT, Interaction, Run, Unused, Wait
from bide.core.requests import Answer
from bide.core.schema import problems, problems_with

_givens = msgspec.json.Decoder(list[Given])
_encode = msgspec.json.Encoder().encode


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a task came to, as its workflow is handed it."""

    value: msgspec.Raw  # the answer that decided
    outcome: str
    decision: Any = None
    receipt: DecisionReceipt
    answers: list[Given]


def answer(draft: Draft, command: Answer) -> Reply:
    draft.reason = command.reason
    reply = _answer(draft, command)
    rescued(draft, command, reply)
    return reply


def _answer(draft: Draft, command: Answer) -> Reply:
    """In the order of the checks: does it exist, may they, is it open, does it fit (H1)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or run.workspace != command.workspace:
        return Receipt(outcome="no_target", reason="not_found")
    earlier = admitted_before(draft, command)
    if earlier is not None:
        if earlier.outcome == "conflict":
            keep(draft, command, run, wait, "dedup_conflict")
        return earlier
    if wait.kind == "request":
        item = command.item or 0
        receipt = replying.answer(draft, command, run, wait, interaction_of(draft, (run.id, wait.no, item)))
        if isinstance(receipt, Receipt) and receipt.outcome in ("woke", "queued"):
            remember(draft, command, run.id)
        return receipt
    if wait.kind in interactions.INTERACTING:
        row = interaction_of(draft, (run.id, wait.no, command.item or 0))
        if row is None:
            return Receipt(outcome="no_target", reason="not_found")
        return _answer_interaction(draft, command, run, wait, row)
    if command.item is not None:
        return Receipt(outcome="no_target", reason="not_found")
    return _answer_wait(draft, command, run, wait)


def interaction_of(draft: Draft, key: ItemKey) -> Interaction | None:
    return draft.outside.interactions.get(key) or draft.view.outside.interactions.get(key)


# ---------------------------------------------------------------- interactions


def _answer_interaction(draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction) -> Reply:
    asked = asked_in(wait)
    if wait.status == "cancelled":
        return _refuse(draft, command, run, wait, row, "no_target", interactions.why_cancelled(wait))
    reason = why_not(command.by, command.groups, assignee=row.assignee, group=row.group, claimed_by=row.claimed_by)
    if reason is None and command.by is None and not asked.is_plain:
        reason = "several people must answer it; say who answers with by="
    if reason is not None:
        return deny(draft, run, wait, command.by, reason)
    given = _givens.decode(row.answers)
    own = next((each for each in given if not asked.is_plain and each.by == command.by), None)
    if own is not None and own.digest == command.digest:
        return _duplicate(run, wait, row, own.receipt)
    if wait.status not in OPEN_WAIT:
        return _closed(draft, command, run, wait, row)
    if own is not None:
        return _refuse(draft, command, run, wait, row, "conflict", "conflict")
    if command.shown is not None and command.shown != asked.shown:
        return _refuse(draft, command, run, wait, row, "conflict", "shown")
    schema = bytes(asked.schema)
    wrong = problems_with(schema, command.data) if schema else []
    if wrong:
        return _reject(draft, command, run, wait, row, wrong)
    return _take(draft, command, run, wait, row, asked, given)


def _take(
    draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction, asked: Asked, given: list[Given]
) -> Receipt:
    shown = told_digest(draft, run, command.data, command.digest)
    receipt = seal(
        run.workspace,
        row.id,
        shown=asked.shown,
        schema=bytes(asked.schema),
        answer=shown,
        by=command.by,
        at=draft.now,
    )
    raw = msgspec.Raw(command.data.encode())
    given = [
        *given,
        Given(value=raw, by=command.by, at=draft.now, digest=command.digest, receipt=receipt.digest),
    ]
    remember(draft, command, run.id)
    told = interactions.told(row)
    run = draft.record(
        run,
        "await_answer_received",
        {
            **told,
            "id": command.message_id,
            "by": command.by,
            "digest": shown,
            "payload": raw,
            "receipt": receipt.digest,
        },
    )
    answers = _encode(given).decode()
    verdict = Verdict("answered") if asked.is_plain else weigh(asked, given)
    reply = Receipt(
        outcome="queued" if verdict is None else "woke",
        run_id=run.id,
        wait_id=wait.id,
        interaction_id=row.id,
        message_id=command.message_id,
        decision=receipt.digest,
    )
    if verdict is None:
        draft.outside.interactions[(row.run_id, row.no, row.item)] = replace(row, answers=answers)
        return reply
    row = interactions.complete(draft, row, command.data, command.digest, command.by, answers)
    received = wait.received + 1
    ended = {"status": row.status, "expected": wait.expected, "completed": received, "outcome": verdict.outcome}
    run = draft.record(run, "await_unit_item_completed", {**told, **ended})
    if run.redact:  # what a wait came to is shown; the row keeps the digests that repeats are known by
        given = [replace(e, digest=told_digest(draft, run, bytes(e.value).decode(), e.digest)) for e in given]
    outcome = Outcome(value=raw, outcome=verdict.outcome, decision=verdict.value, receipt=receipt, answers=given)
    answer = _encode(outcome).decode()
    run = close_wait(draft, run, wait, "completed", "answer", answer=answer, received=received)
    if run.status == "waiting":
        wake(draft, run, wait, wait.key)
    return reply


def _closed(draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction) -> Receipt:
    """The same answer again is the first one's repetition; another one is too late, or contradicts it (U8, W7)."""
    if wait.status == "completed":
        if row.digest == command.digest:
            return _duplicate(run, wait, row, None)
        return _refuse(draft, command, run, wait, row, "conflict", "already_completed")
    return _refuse(draft, command, run, wait, row, "late", LATE[wait.status])


def _duplicate(run: Run, wait: Wait, row: Interaction, decision: str | None) -> Receipt:
    return Receipt(
        outcome="duplicate",
        run_id=run.id,
        wait_id=wait.id,
        interaction_id=row.id,
        duplicate=True,
        reason="duplicate",
        decision=decision,
    )


def _refuse(
    draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction, outcome: Any, reason: str
) -> Receipt:
    """Refuse, and keep what came for an operator (S12)."""
    keep(draft, command, run, wait, reason)
    return Receipt(outcome=outcome, run_id=run.id, wait_id=wait.id, interaction_id=row.id, reason=reason)


def _reject(draft: Draft, command: Answer, run: Run, wait: Wait, row: Interaction, wrong: list[str]) -> Receipt:
    """Data that does not fit: every problem, in the ledger too; the wait stays open (W3)."""
    data = {**interactions.told(row), "by": command.by, "problems": wrong}
    draft.record(run, "await_answer_rejected", data)
    keep(draft, command, run, wait, "invalid_payload")
    return Receipt(
        outcome="invalid",
        run_id=run.id,
        wait_id=wait.id,
        interaction_id=row.id,
        reason="; ".join(wrong),
        problems=tuple(wrong),
    )


def keep(draft: Draft, command: Answer, run: Run, wait: Wait, reason: str) -> None:
    if command.unused_id is not None:
        return  # it is kept already
    draft.unused.append(
        Unused(
            workspace=command.workspace,
            id=command.message_id,
            run_id=run.id,
            target=command.target,
            name=wait.key,
            payload=command.data,
            reason=reason,
            at=draft.now,
        )
    )


# ---------------------------------------------------------------- other waits


def _answer_wait(draft: Draft, command: Answer, run: Run, wait: Wait) -> Reply:
    """A wait without interactions, by its id: as if its signal had come, or its signal id had been completed."""
    details = terms(wait)
    reason = why_not(command.by, command.groups, assignee=details.get("assignee"), group=details.get("group"))
    if reason is not None and wait.status != "cancelled":
        return deny(draft, run, wait, command.by, reason)
    if wait.kind in ("signals", "receive") and len(wait.names) == 1:
        return _signal(draft, command, run, wait)
    reason = _takes_none(wait.id, wait.kind, wait.names)
    if reason is not None:
        keep(draft, command, run, wait, "invalid_payload")
        return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=reason, problems=(reason,))
    receipt = _stand_in(draft, command, run, wait) if wait.kind == "event" else _complete(draft, command, run, wait)
    if receipt.outcome == "woke":
        remember(draft, command, run.id)
    elif receipt.outcome in ("late", "invalid", "no_target"):
        keep(draft, command, run, wait, "invalid_payload" if receipt.outcome == "invalid" else receipt.reason or "")
    return receipt


def _complete(draft: Draft, command: Answer, run: Run, wait: Wait, answer: str | None = None) -> Receipt:
    return complete_wait(draft, run, wait, command.message_id, command.data, command.digest, command.by, answer=answer)


def _stand_in(draft: Draft, command: Answer, run: Run, wait: Wait) -> Receipt:
    """A wait for an event that got lost: the data is the event's, and must be what the wait listens for (F8, W10).
    This run alone is told; nothing comes onto the stream."""
    match = terms(wait).get("match", "")
    if wait.status in OPEN_WAIT and not Facts(command.data).satisfy(match):
        wrong = (_unlike(wait.id, match),)
        draft.record(run, "await_answer_rejected", {"wait": wait.no, "step": wait.key, "problems": list(wrong)})
        return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=wrong[0], problems=wrong)
    event = stand_in(wait, command.message_id, command.data, command.digest, draft.now)
    return _complete(draft, command, run, wait, answer_of(event))


def _signal(draft: Draft, command: Answer, run: Run, wait: Wait) -> Receipt:
    if wait.status not in OPEN_WAIT:
        if wait.status == "cancelled":
            reason = interactions.why_cancelled(wait)
            keep(draft, command, run, wait, reason)
            return Receipt(outcome="no_target", reason=reason)
        keep(draft, command, run, wait, LATE[wait.status])
        return Receipt(outcome="late", run_id=run.id, wait_id=wait.id, reason=LATE[wait.status])
    signal = Deliver(
        workspace=command.workspace,
        actor=command.actor,
        target=run.id,
        run_id=run.id,
        signal_id=command.message_id,
        name=wait.names[0],
        payload=command.data,
        digest=command.digest,
        misfits=command.misfits,
    )
    unfit = unfit_for(draft, signal, run)
    if unfit is not None:
        wrong = (unfit.reason or "",)
        draft.record(run, "await_answer_rejected", {"wait": wait.no, "step": wait.key, "problems": list(wrong)})
        return replace(unfit, wait_id=wait.id, problems=wrong)
    remember(draft, command, run.id)
    return admit_signal(draft, signal, run)


# ---------------------------------------------------------------- before anybody answers


def foreseen(id: str, kind: str, names: Sequence[str], details: Mapping[str, Any], data: str) -> list[str]:
    """What would be wrong with an answer to an open wait, by its id; empty where it would fit (W10).

    Who gives it, and what policies say to that, is not looked at.

    >>> foreseen("wait_7_1", "task", (), {"schema": {"type": "boolean"}}, "7")
    ['at $: 7 is not of type "boolean"']
    >>> foreseen("wait_7_1", "sleep", (), {}, "true")
    ['wait_7_1 waits for no answer: it is of kind sleep']
    """
    reason = _takes_none(id, kind, names)
    if reason is not None:
        return [reason]
    if kind in ("signals", "receive"):
        return []
    if kind == "request":
        asked = msgspec.convert(details, Terms)
        return [replying.answered_one_by_one(id)] if asked.items else replying.misfits(asked, data)
    match = details.get("match", "") if kind == "event" else ""
    return problems(details.get("schema"), data) if Facts(data).satisfy(match) else [_unlike(id, match)]


def _takes_none(id: str, kind: str, names: Sequence[str]) -> str | None:
    """Why a wait takes no answer at all; None where it does."""
    if kind in ("signals", "receive") and len(names) == 1:
        return None
    if kind in ("signals", "receive", "children", "sleep", "items", "launch"):
        what = f"several signals ({', '.join(names)})" if names else f"no answer: it is of kind {kind}"
        return f"{id} waits for {what}"
    return None


def _unlike(id: str, match: str) -> str:
    return f"at $: {id} takes only an event whose data satisfies {match}"
