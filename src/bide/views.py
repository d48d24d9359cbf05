"""What callers see of runs, waits, ledgers and kept arrivals: records decoded, and their ends as results or errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bide.authoring.workflow.tasks import TaskAnswer
from bide.core import ledger
from bide.core.exchanging import UNSEEN, terms_of
from bide.core.payloads import BadPayload, decode_as
from bide.core.quorum import Given
from bide.core.records import (
    OPEN_INTERACTION,
    DeadLetter,
    Interaction,
    LedgerPage,
    RunError,
    RunStatus,
    StepRow,
    Unused,
    Wait,
    wait_id,
)
from bide.core.records import Run as RunRow
from bide.core.records import Signal as SignalRow
from bide.core.redaction import covered, covered_text, hidden_values, names_in
from bide.core.replying import refusal_of
from bide.errors import HistoryMismatch, RunCancelledError, RunFailedError, RunStoppedError

T = TypeVar("T")
Row = TypeVar("Row", SignalRow, StepRow)


class Page(list[T]):
    """A list with the cursor of the next page, or None where this is the last.

    >>> Page([1, 2], next_cursor="2").next_cursor
    '2'
    """

    def __init__(self, items: list[T], next_cursor: str | None = None) -> None:
        super().__init__(items)
        self.next_cursor = next_cursor


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stood when it was asked for.

    >>> async def is_parked(client, run_id):
    ...     return (await client.get(run_id)).status == "waiting"
    """

    id: str
    workspace: str
    definition: str
    version: str
    status: RunStatus
    held: str | None
    step: str
    state: Any
    input: Any
    result: Any
    error: RunError | None
    attempt: int
    wait_id: str | None
    wait_ids: tuple[str, ...]
    correlation_key: str | None
    parent_id: str | None
    retry_of: str | None
    tags: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a run.

    >>> async def story(client, run_id):
    ...     return [entry.name for entry in await client.ledger(run_id)]
    """

    seq: int
    at: datetime
    name: str
    actor: str
    data: Mapping[str, Any]
    prev: str
    hash: str


class WaitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A wait as it stood when it was asked for.

    >>> async def forgotten(client):
    ...     return [wait.id for wait in await client.waits(older_than="1d")]
    """

    id: str
    run_id: str
    kind: str
    status: str
    step: str
    names: tuple[str, ...]
    opened_at: datetime
    deadline: datetime | None
    closed_at: datetime | None
    cause: str | None
    expected: int
    received: int
    details: Mapping[str, Any]


class StepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a step, or a wait, of a workflow came to.

    >>> async def done(client, run_id):
    ...     return {step.id: step.result for step in await client.steps(run_id)}
    """

    id: str
    kind: str
    status: str
    attempts: int
    result: Any
    error: RunError | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run stands where it stands, in sentences.

    >>> async def why(client, run_id):
    ...     return " ".join((await client.explain(run_id)).explanation)
    """

    id: str
    status: RunStatus
    held: str | None
    explanation: tuple[str, ...]


class UnusedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Something that arrived and could not be used, and why.

    >>> async def refused(client):
    ...     return {kept.id: kept.reason for kept in await client.unused()}
    """

    id: str
    run_id: str | None
    target: str
    name: str
    payload: Any
    reason: str
    at: datetime


class InteractionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the outside sees of a wait: who is asked for what, and what was answered.

    >>> async def inbox(client, person):
    ...     return [task.title for task in await client.interactions(assignee=person)]
    """

    id: str
    run_id: str
    wait_id: str
    definition: str
    step: str
    item: int
    status: str
    title: str | None
    description: str | None
    payload: Any
    shown: str | None  # the digest of what is shown, for `answer(shown=)`
    schema: Any
    channel: str | None
    transport: str
    assignee: str | None
    group: str | None
    claimed_by: str | None
    metadata: Mapping[str, Any]
    correlation_id: str
    opened_at: datetime
    deadline: datetime | None
    quorum: int
    answers: tuple[TaskAnswer[Any], ...]
    answer: Any
    answered_by: str | None
    closed_at: datetime | None
    reason: str | None = None  # why it was declined, or came to nothing


class DeadLetterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that bide stopped retrying.

    >>> async def broken(client):
    ...     return {letter.id: letter.error for letter in await client.dead_letters()}
    """

    id: str
    run_id: str
    kind: str
    data: Any
    error: str
    tries: int
    at: datetime


class WaitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of many answers: the outcome of its receipt, or `denied`.

    >>> WaitOutcome(id="wait_7_1", outcome="denied", reason="it is for ann, not for bob").outcome
    'denied'
    """

    id: str
    outcome: str
    reason: str | None = None
    problems: tuple[str, ...] = ()  # of data that does not fit, each with its path


class WaitsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The waits that a call changed, or with a dry run would change.

    >>> WaitsChanged(ids=("wait_7_1",), dry_run=True).count
    1
    """

    ids: tuple[str, ...]
    dry_run: bool = False
    outcomes: tuple[WaitOutcome, ...] = ()  # of answers: of each wait; with a dry run of each that would refuse it

    @property
    def refused(self) -> tuple[WaitOutcome, ...]:
        """The waits that took no answer, and why."""
        return tuple(one for one in self.outcomes if one.outcome not in ("woke", "queued", "duplicate"))

    @property
    def count(self) -> int:
        return len(self.ids)


class SignalTo(msgspec.Struct, frozen=True):
    """One signal of a `signal_many`.

    >>> SignalTo("order:1", "paid", {"amount": 5}).target
    'order:1'
    """

    target: str
    signal: str | Any
    payload: Any = None
    dedup_key: str | None = None


def _shown(text: str, redact: str | None) -> Any:
    """Data as people see it: without what the definition hides (G4)."""
    value = msgspec.json.decode(text)
    return covered(value, names_in(redact)) if redact else value


def without_hidden(row: Row, run: RunRow) -> Row:
    """A signal or a step of a run, without what its definition hides."""
    if not run.redact:
        return row
    if isinstance(row, SignalRow):
        return replace(row, payload=covered_text(row.payload, run.redact) or "")
    return replace(row, result=covered_text(row.result, run.redact))


def run_info(row: RunRow) -> RunInfo:
    decode = msgspec.json.decode
    return RunInfo(
        id=row.id,
        workspace=row.workspace,
        definition=row.definition,
        version=row.version,
        status=row.status,
        held=row.held,
        step=row.step,
        state=_shown(row.state, row.redact),
        input=_shown(row.input, row.redact),
        result=_shown(row.result, row.redact) if row.result is not None else None,
        error=decode(row.error, type=RunError) if row.error is not None else None,
        attempt=row.attempt,
        wait_id=wait_id(row.id, row.parked_on) if row.parked_on is not None else None,
        wait_ids=tuple(wait_id(row.id, no) for no in row.open_waits),
        correlation_key=row.correlation_key,
        parent_id=row.parent_id,
        retry_of=row.retry_of,
        tags=decode(row.tags),
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
    )


def wait_info(row: Wait) -> WaitInfo:
    return WaitInfo(
        id=row.id,
        run_id=row.run_id,
        kind=row.kind,
        status=row.status,
        step=row.key,
        names=row.names,
        opened_at=row.opened_at,
        deadline=row.deadline or (terms_of(row).until if row.kind == "request" else None),
        closed_at=row.closed_at,
        cause=row.cause,
        expected=row.expected,
        received=row.received,
        details={name: value for name, value in msgspec.json.decode(row.details).items() if name not in UNSEEN},
    )


def interaction_info(
    row: Interaction, wait: Wait, redact: str | None = None, *, to_answer: bool = False
) -> InteractionInfo:
    """An interaction as people see it, covered as all that its run has is (G4). Who looks at an open one *to answer* it
    sees what is asked."""
    decode = msgspec.json.decode
    details = decode(wait.details)
    reason = refusal_of(row)
    answers = tuple(
        TaskAnswer(value=_shown(bytes(given.value).decode(), redact), by=given.by, at=given.at, receipt=given.receipt)
        for given in (decode(row.answers, type=list[Given]) if reason is None else ())
    )
    return InteractionInfo(
        id=row.id,
        run_id=row.run_id,
        wait_id=wait.id,
        definition=row.definition,
        step=row.step,
        item=row.item,
        status=row.status,
        title=details.get("title"),
        description=details.get("description"),
        payload=decode(row.payload) if to_answer and row.status in OPEN_INTERACTION else _shown(row.payload, redact),
        shown=details.get("shown"),
        schema=details.get("schema"),
        channel=row.channel,
        transport=row.transport,
        assignee=row.assignee,
        group=row.group,
        claimed_by=row.claimed_by,
        metadata=details.get("metadata", {}),
        correlation_id=row.correlation_id,
        opened_at=row.opened_at,
        deadline=wait.deadline or (terms_of(wait).deadline(row.opened_at) if wait.kind == "request" else None),
        quorum=details.get("quorum", 1),
        answers=answers,
        answer=_shown(row.answer, redact) if row.answer is not None else None,
        answered_by=row.answered_by,
        closed_at=row.closed_at,
        reason=reason,
    )


def dead_letter_info(row: DeadLetter) -> DeadLetterInfo:
    return DeadLetterInfo(
        id=row.id,
        run_id=row.run_id,
        kind=row.kind,
        data=msgspec.json.decode(row.data),
        error=row.error,
        tries=row.tries,
        at=row.at,
    )


def result_of(row: RunRow, returns: Any = Any) -> Any:
    """The result of a final run, read as *returns*, or the error that says why there is none."""
    error = msgspec.json.decode(row.error, type=RunError) if row.error is not None else None
    match row.status:
        case "completed":
            return _read(row, returns) if row.result is not None else None
        case "failed":
            raise RunFailedError(row.id, error)
        case "stopped":
            raise RunStoppedError(row.id, error)
        case _:
            raise RunCancelledError(row.id, error)


def _read(row: RunRow, returns: Any) -> Any:
    assert row.result is not None
    try:
        return decode_as(row.result, returns)
    except BadPayload as error:
        raise HistoryMismatch(
            f"the result of {row.id} cannot be read as {getattr(returns, '__name__', returns)}, which is what "
            f"{row.definition!r} says it returns: {error}; get({row.id!r}).result has it as plain JSON"
        ) from error


def step_info(row: StepRow) -> StepInfo:
    return StepInfo(
        id=row.key,
        kind=row.kind,
        status=row.status,
        attempts=row.attempts,
        result=msgspec.json.decode(row.result) if row.result is not None else None,
        error=msgspec.json.decode(row.error, type=RunError) if row.error is not None else None,
    )


def unused_info(row: Unused, redact: str | None) -> UnusedInfo:
    """A kept arrival as people see it; who readdresses it sends it as it came. It fits no type, so that hidden values
    may stand in it under any name."""
    names, payload = names_in(redact), msgspec.json.decode(row.payload)
    return UnusedInfo(
        id=row.id,
        run_id=row.run_id or None,
        target=row.target,
        name=row.name,
        payload=covered(payload, names, hidden_values(names, row.payload)) if names else payload,
        reason=row.reason,
        at=row.at,
    )


def ledger_entries(pages: Iterable[LedgerPage]) -> list[LedgerEntry]:
    """The entries of a run's pages, each with the hash of the one before it."""
    entries: list[LedgerEntry] = []
    previous = ""
    for page in pages:
        for entry in ledger.decode_page(page.entries):
            entries.append(
                LedgerEntry(
                    seq=entry.seq,
                    at=entry.at,
                    name=entry.name,
                    actor=entry.actor,
                    data=entry.data,
                    prev=previous,
                    hash=entry.hash,
                )
            )
            previous = entry.hash
    return entries
