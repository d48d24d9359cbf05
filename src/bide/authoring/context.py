"""What a machine's step is handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bide.core.approvals import as_parents_see
from bide.core.payloads import decode_as
from bide.core.records import ChildResult, Run, RunError, Turn
from bide.core.records import Signal as SignalRow

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Payload = TypeVarWithDefault("Payload", default=Any)  # so that plain `Received` is what it always was
else:
    Payload = TypeVar("Payload")

State = TypeVar("State")


@dataclass(frozen=True)
class Received(Generic[Payload]):
    """A signal as a step sees it. The payload of one that was declared with a type is of that type (S13).

    >>> from datetime import UTC
    >>> Received("msg_1", "paid", {"amount": 100}, datetime(2030, 1, 1, tzinfo=UTC)).payload
    {'amount': 100}
    """

    id: str
    name: str
    payload: Payload
    received_at: datetime


@dataclass
class Context(Generic[State]):
    """The run as its step sees it (M3). `state` may be changed in place; the outcome carries it on by default.

    >>> async def count(self, ctx: Context[dict[str, int]]) -> None:
    ...     ctx.state["seen"] += len(ctx.awaited)
    """

    run_id: str
    definition: str
    version: str
    step: str
    attempt: int
    state: State
    input: Any
    awaited: Sequence[Received]
    all: Sequence[Received]
    timed_out: bool
    deadline: datetime | None
    children: Sequence[ChildResult]
    workspace: str
    correlation_key: str | None


def awaited_rows(turn: Turn) -> list[SignalRow]:
    """The signals a step is handed as awaited (S4).

    All that match what it waited for; after a timeout only what was there when the timeout committed, so that a
    signal which lost the race is not mistaken for one that won. A redo sees those that came since as well.
    """
    wait = turn.woken_by
    if wait is None or wait.kind != "signals":
        return []
    rows = [signal for signal in turn.inbox if signal.name in wait.names]
    if wait.status == "timed_out" and turn.run.attempt == 0:
        return [signal for signal in rows if signal.seq in wait.partial]
    return rows


def received(row: SignalRow, declared: Mapping[str, Any] | None = None) -> Received:
    """A signal for user code; the payload of a declared one is decoded as its type (S13)."""
    type_ = (declared or {}).get(row.name, Any)
    return Received(row.id, row.name, decode_as(row.payload, type_), row.received_at)


def child_result(child: Run) -> ChildResult:
    child = as_parents_see(child)
    return ChildResult(
        id=child.id,
        definition=child.definition,
        status=child.status,
        result=msgspec.json.decode(child.result) if child.result is not None else None,
        error=msgspec.json.decode(child.error, type=RunError) if child.error is not None else None,
    )
