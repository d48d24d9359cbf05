"""Human tasks: what `Step.ask` asks, and what the body gets for it (F10, W11, W12)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bide.authoring.checks import shown as printed
from bide.authoring.machine import encode
from bide.authoring.terms import agenda_of, answer_schema, terms_of
from bide.authoring.workflow.reading import answer_as
from bide.authoring.workflow.waits import Wait
from bide.core.answering import Outcome
from bide.core.decisions import DecisionReceipt, digest_of, is_genuine
from bide.core.durations import BadDuration, parse_timeout
from bide.core.payloads import canonical
from bide.core.quorum import MOST_ANSWERS
from bide.core.records import StepRow, run_of_interaction
from bide.core.redaction import covered, names_in
from bide.core.requests import NewTask
from bide.errors import BadInput, ReceiptMismatch

if TYPE_CHECKING:
    from bide.authoring.workflow.asks import Waiting
    from bide.authoring.workflow.turn import WorkflowTurn

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TaskAnswer(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One person's answer to a task.

    >>> async def who(client, interaction_id):
    ...     return [answer.by for answer in (await client.interaction(interaction_id)).answers]
    """

    value: T
    by: str | None
    at: datetime
    receipt: str  # the digest of its decision receipt


class Decision(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What several people came to: given by a task with a quorum.

    `outcome` is `agreed` (as many equal votes as the quorum), `vetoed`, `undecided` (no agreement is possible any
    more) or, without `decides`, `answered`. `value` is what they agree on: the value of the field `decides`.

    >>> async def is_approved(step) -> bool:
    ...     task = step.ask("sign", title="Sign?", form=dict, group="leads", timeout="2d", quorum=2)
    ...     return (await task).outcome == "agreed"
    """

    value: Any
    outcome: str
    answers: tuple[TaskAnswer[T], ...]


class TaskWait(Wait[T_co]):
    """The wait for a task's answer; afterwards its `receipt` says who answered what, having seen what.

    >>> async def send(step, draft: str) -> None:
    ...     task = step.ask("approve", title="Send it?", form=bool, shown=draft, timeout="2d")
    ...     if await task:
    ...         await step.options(requires=task.receipt, shown=draft).run("send", print, draft)
    """

    def __init__(self, wait: Wait[T_co], notes: Mapping[str, Any]) -> None:
        super().__init__(wait.key, wait.begin)
        self._notes = notes

    @property
    def receipt(self) -> DecisionReceipt | None:
        """Of the answer that decided; None where nobody answered in time and there was a default."""
        if not self.is_over:
            raise BadInput(f"task {self.key!r} has no receipt yet; await it first")
        outcome = self._notes.get("outcome")
        return _read_outcome(outcome).receipt if outcome is not None else None


def ask(turn: WorkflowTurn, id: str, given: Mapping[str, Any], rule: Mapping[str, Any]) -> TaskWait[Any]:
    """Check everything that can be wrong with a task, and make the wait for its answer."""
    title, form, timeout = given["title"], given["form"], given["timeout"]
    if not isinstance(title, str) or not title.strip():
        raise BadInput(f"task {id!r} has the title {printed(title)}; say in a few words what is asked")
    if timeout is None:
        raise BadInput(f"task {id!r} has no timeout; give one, or bide.FOREVER to say that it may never end")
    try:
        limit = parse_timeout(timeout)
    except BadDuration as error:
        raise BadInput(f"timeout={timeout!r}: {error}") from error
    schema = answer_schema(form, "form")
    counted = counting(id, rule, schema, given)
    details = {**terms_of(given, turn.notifiers), **counted}
    if schema is not None:
        details["schema"] = schema
    shown = given["shown"]
    payload = encode(shown, turn.limit, "what is shown")
    if shown is not None:
        details["shown"] = _digest_shown(turn, msgspec.json.decode(payload))
    notes: dict[str, Any] = {"quorum": counted.get("quorum", 1)}
    wait = turn.wait(
        id,
        "task",
        timeout=limit,
        returns=Any if isinstance(form, dict) else form,
        default=given["default"],
        on_timeout=given.get("on_timeout"),
        details=details,
        agenda=agenda_of(given, limit),
        task=NewTask(payload=payload),
        notes=notes,
    )
    return TaskWait(wait, notes)


class _Value(msgspec.Struct, frozen=True):
    """The part of an `Outcome` that most bodies want."""

    value: msgspec.Raw


_read_value = msgspec.json.Decoder(_Value).decode
_read_outcome = msgspec.json.Decoder(Outcome).decode


def outcome_of(waiting: Waiting, row: StepRow) -> Any:
    """What a task's stored outcome is to the body: the answer itself, or the decision of several."""
    text = row.result or "null"
    waiting.notes["outcome"] = text
    if waiting.notes.get("quorum", 1) == 1:
        return answer_as(bytes(_read_value(text).value).decode(), waiting.returns, waiting.key)
    stored = _read_outcome(text)
    answers = tuple(
        TaskAnswer(
            value=answer_as(bytes(given.value).decode(), waiting.returns, waiting.key),
            by=given.by,
            at=given.at,
            receipt=given.receipt,
        )
        for given in stored.answers
    )
    return Decision(value=stored.decision, outcome=stored.outcome, answers=answers)


def check_receipt(turn: WorkflowTurn, step: str, receipt: object, shown: object, is_bound: bool) -> None:
    """Refuse a step whose decision is not one of this run's, or is about something else than *shown* (W12)."""
    if receipt is None:
        raise ReceiptMismatch(step, "there is no decision receipt: nobody answered")
    if not isinstance(receipt, DecisionReceipt):
        raise ReceiptMismatch(step, f"{printed(receipt)} is no decision receipt; give task.receipt")
    named = run_of_interaction(receipt.interaction_id)
    if not is_genuine(receipt):
        raise ReceiptMismatch(step, f"the receipt of {receipt.interaction_id} was changed after it was given")
    if named is None or named[0] != turn.run.id or receipt.workspace != turn.run.workspace:
        raise ReceiptMismatch(step, f"the receipt of {receipt.interaction_id} is another run's")
    if receipt.digest not in _digests(turn):
        raise ReceiptMismatch(step, f"the receipt of {receipt.interaction_id} is of no answer that this run was given")
    if is_bound and receipt.shown != _digest_shown(turn, shown):
        raise ReceiptMismatch(step, f"{receipt.by or 'whoever answered'} was shown something else than it acts on")


def _digest_shown(turn: WorkflowTurn, shown: object) -> str:
    """Without what the definition hides: the digest is shown, and short values are found by trying all there are."""
    if not turn.run.redact:
        return digest_of(shown)
    return digest_of(covered(msgspec.json.decode(canonical(shown)), names_in(turn.run.redact)))


def _digests(turn: WorkflowTurn) -> set[str]:
    rows = (row for row in turn.stored_steps if row.kind == "task" and row.status == "done")
    outcomes = [_read_outcome(row.result or "null") for row in rows]
    return {each.receipt.digest for each in outcomes} | {given.receipt for each in outcomes for given in each.answers}


def counting(
    id: str, rule: Mapping[str, Any], schema: dict[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """How answers are counted, as details of the wait; what could never come true is refused."""
    quorum, veto, decides, most = rule["quorum"], rule["veto"], rule["decides"], rule["most_answers"]
    if not isinstance(quorum, int) or isinstance(quorum, bool) or not 1 <= quorum <= MOST_ANSWERS:
        raise BadInput(f"quorum={printed(quorum)}: give a whole number from 1 to {MOST_ANSWERS}")
    if quorum > 1 and given.get("assignee") is not None and given.get("group") is None:
        only = given["assignee"]
        raise BadInput(f"quorum={quorum}: only {only} may answer task {id!r}; give a group, or no assignee")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or not quorum <= most <= MOST_ANSWERS):
        raise BadInput(
            f"most_answers={printed(most)}: give a whole number from {quorum}, the quorum, to {MOST_ANSWERS}"
        )
    if decides is None:
        if veto is not False or most is not None:
            raise BadInput(f"task {id!r} has veto= or most_answers=, but no decides=: name the field that is counted")
        return {"quorum": quorum} if quorum > 1 else {}
    field = _field(id, decides, schema)
    if veto is True and "boolean" not in field.get("type", "boolean"):  # it may also be null: a list of types
        raise BadInput(f"veto=True: field {decides!r} is no boolean; give the value that is a veto, veto='reject'")
    counted = {"quorum": quorum, "decides": decides, "veto": veto, "most_answers": most}
    return {name: value for name, value in counted.items() if value not in (None, False)}


def _field(id: str, decides: Any, schema: dict[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    root = schema
    while "$ref" in root:
        root = schema.get("$defs", {}).get(root["$ref"].rpartition("/")[2], {})
    fields = root.get("properties", {})
    if not isinstance(decides, str) or decides not in fields:
        known = ", ".join(fields) or "none"
        raise BadInput(f"decides={printed(decides)}: the form of task {id!r} has no such field; it has: {known}")
    found: dict[str, Any] = fields[decides]
    return found
