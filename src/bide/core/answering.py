"""Answering an interaction or a wait by its id (W3, W7, W11, W12, U8)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import interactions, replying
from bide.core.agenda import terms
from bide.core.batch import Draft
from bide.core.commands import Deliver, Receipt, Reply
from bide.core.completing import LATE, complete_wait
from bide.core.decisions import DecisionReceipt, seal
from bide.core.delivery import admit_signal
from bide.core.moves import close_wait, wake
from bide.core.outside import ItemKey
from bide.core.people import admitted_before, deny, remember, why_not
from bide.core.quorum import Given, Rule, Verdict, rule_of, weigh
from bide.core.records import OPEN_WAIT, Interaction, Run, Unused, Wait
from bide.core.requests import Answer
from bide.core.schema import problems

_givens = msgspec.json.Decoder(list[Given])


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a task came to, as its workflow is handed it."""

    value: msgspec.Raw  # the answer that decided
    outcome: str
    decision: Any = None
    receipt: DecisionReceipt
    answers: list[Given]


def answer(draft: Draft, command: Answer) -> Reply:
    """In the order of the checks: does it exist, may they, is it open, does it fit (H1)."""
    run, wait = draft.run(command.run_id), draft.wait(command.run_id, command.no)
    if run is None or wait is None or run.workspace != command.workspace:
        return Receipt(outcome="no_target", reason="not_found")
    earlier = admitted_before(draft, command)
    if earlier is not None:
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
    details = terms(wait)
    rule = rule_of(details)
    if wait.status == "cancelled":
        return _refuse(draft, command, run, wait, row, "no_target", interactions.why_cancelled(wait))
    reason = why_not(command.by, command.groups, assignee=row.assignee, group=row.group, claimed_by=row.claimed_by)
    if reason is None and command.by is None and not rule.is_plain:
        reason = "several people must answer it; say who answers with by="
    if reason is not None:
        return deny(draft, run, wait, command.by, reason)
    given = _givens.decode(row.answers)
    own = next((each for each in given if not rule.is_plain and each.by == command.by), None)
    if own is not None and own.digest == command.digest:
        return _duplicate(run, wait, row, own.receipt)
    if wait.status not in OPEN_WAIT:
        return _closed(draft, command, run, wait, row)
    if own is not None:
        return _refuse(draft, command, run, wait, row, "conflict", "conflict")
    if command.shown is not None and command.shown != details.get("shown"):
        return _refuse(draft, command, run, wait, row, "conflict", "shown")
    wrong = problems(details.get("schema"), command.data)
    if wrong:
        return _reject(draft, command, run, wait, row, wrong)
    return _take(draft, command, run, wait, row, rule, given, details)


def _take(
    draft: Draft,
    command: Answer,
    run: Run,
    wait: Wait,
    row: Interaction,
    rule: Rule,
    given: list[Given],
    details: dict[str, Any],
) -> Receipt:
    receipt = seal(
        run.workspace,
        row.id,
        shown=details.get("shown"),
        schema=details.get("schema"),
        answer=command.digest,
        by=command.by,
        at=draft.now,
    )
    raw = msgspec.Raw(command.data.encode())
    given = [
        *given,
        Given(value=raw, by=command.by, at=draft.now, digest=command.digest, receipt=receipt.digest),
    ]
    remember(draft, command, run.id)
    run = draft.record(
        run,
        "await_answer_received",
        {
            **interactions.told(row),
            "id": command.message_id,
            "by": command.by,
            "digest": command.digest,
            "payload": raw,
            "receipt": receipt.digest,
        },
    )
    answers = msgspec.json.encode(given).decode()
    verdict = Verdict("answered") if rule.is_plain else weigh(rule, given)
    reply = Receipt(
        outcome="queued",
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
    wait = draft.put_wait(replace(wait, received=wait.received + 1))
    counts = {"expected": wait.expected, "completed": wait.received, "outcome": verdict.outcome}
    run = draft.record(run, "await_unit_item_completed", {**interactions.told(row), **counts})
    outcome = Outcome(value=raw, outcome=verdict.outcome, decision=verdict.value, receipt=receipt, answers=given)
    run = close_wait(draft, run, wait, "completed", "answer", answer=msgspec.json.encode(outcome).decode())
    if run.status == "waiting":
        wake(draft, run, wait, wait.key)
    return replace(reply, outcome="woke")


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
    if wait.kind in ("signals", "receive", "children", "sleep"):
        what = f"several signals ({', '.join(wait.names)})" if wait.names else f"no answer: it is of kind {wait.kind}"
        reason = f"{wait.id} waits for {what}"
        return Receipt(outcome="invalid", run_id=run.id, wait_id=wait.id, reason=reason, problems=(reason,))
    receipt = complete_wait(draft, run, wait, command.message_id, command.data, command.digest, command.by)
    if receipt.outcome == "woke":
        remember(draft, command, run.id)
    elif receipt.outcome in ("late", "invalid"):
        keep(draft, command, run, wait, "invalid_payload" if receipt.outcome == "invalid" else receipt.reason or "")
    return receipt


def _signal(draft: Draft, command: Answer, run: Run, wait: Wait) -> Receipt:
    if wait.status not in OPEN_WAIT:
        if wait.status == "cancelled":
            return Receipt(outcome="no_target", reason=interactions.why_cancelled(wait))
        keep(draft, command, run, wait, LATE[wait.status])
        return Receipt(outcome="late", run_id=run.id, wait_id=wait.id, reason=LATE[wait.status])
    remember(draft, command, run.id)
    return admit_signal(
        draft,
        Deliver(
            workspace=command.workspace,
            actor=command.actor,
            target=run.id,
            run_id=run.id,
            signal_id=command.message_id,
            name=wait.names[0],
            payload=command.data,
            digest=command.digest,
        ),
        run,
    )
