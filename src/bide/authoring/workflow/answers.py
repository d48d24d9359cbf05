"""What the stored row of a step or of a wait means to the body: a value, or an error that is raised there."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.authoring.workflow.asks import FAILS, RAISES, STEP_FAILED, Code, Waiting
from bide.authoring.workflow.failing import AwaitTimeout
from bide.authoring.workflow.reading import answer_as, read_as, signals_as
from bide.authoring.workflow.requests import answers_of
from bide.authoring.workflow.tasks import outcome_of
from bide.core.commands import NewStep
from bide.core.payloads import BadPayload
from bide.core.records import RunError, StepRow
from bide.errors import (
    DuplicateRun,
    HistoryMismatch,
    RunCancelledError,
    RunFailedError,
    RunStoppedError,
    RunTimeoutError,
    SignalCollisionError,
    SignalTimeoutError,
    StepFailedError,
    WaitCancelledError,
    WaitFailedError,
    WaitTimeoutError,
)


def result_of(code: Code, row: StepRow) -> Any:
    """The result of a step, read as the function says it returns; raises `StepFailedError` as it was raised first."""
    if row.status == "failed":
        raise step_failed(row)
    return decoded(row, code.returns)


def step_failed(row: StepRow | NewStep) -> StepFailedError:
    error = _error(row)
    can_retry = error.code == STEP_FAILED
    return StepFailedError(row.key, error.type or error.code, error.message, row.attempts, can_retry)


def answer_of(waiting: Waiting, row: StepRow) -> Any:
    """What ended a wait: its answer, the default of a timeout, or what it raises (F13, law 4)."""
    if row.status == "timed_out":
        if waiting.default is FAILS:
            raise AwaitTimeout(waiting.key, str(_timed_out(waiting, row)))
        if waiting.default is not RAISES:
            return waiting.default
        raise _timed_out(waiting, row)
    if row.status == "failed":
        raise _failed(waiting, _error(row))
    match waiting.kind:
        case "children":
            return _child(row, waiting.returns)
        case "sleep":
            return None
        case "request" if waiting.notes.get("items"):
            return answers_of(waiting.key, waiting.notes["answers"], waiting.returns, waiting.notes["keeps_rejected"])
        case "task":
            return outcome_of(waiting, row)
        case "signal" | "request":
            return answer_as(row.result or "null", waiting.returns, waiting.key)
        case "receive":
            return _received(waiting, row)
        case _:
            return decoded(row, waiting.returns)


def _received(waiting: Waiting, row: StepRow) -> Any:
    types, checked = waiting.notes.get("types", {}), waiting.notes.get("checked", {})
    try:
        return signals_as(row.result or "null", waiting.returns, types, checked, waiting.key)
    except (BadPayload, msgspec.ValidationError) as error:
        raise HistoryMismatch(f"what step {row.key!r} stored is no {waiting.returns!r} any more: {error}") from error


def _timed_out(waiting: Waiting, row: StepRow) -> WaitTimeoutError:
    match waiting.kind:
        case "signal" if waiting.names[0].startswith("callback:"):  # an id of bide's own, which says nothing to people
            return SignalTimeoutError(f"the callback {waiting.key!r} was not answered in time")
        case "signal":
            return SignalTimeoutError(f"signal {waiting.names[0]!r} was not answered in time (step {waiting.key!r})")
        case "children":
            return RunTimeoutError(f"{row.run_id} step {waiting.key!r}", "running")
        case _:
            names = ", ".join(waiting.names) or "an answer"
            return WaitTimeoutError(f"step {waiting.key!r} waited for {names} and the time is up")


def _failed(waiting: Waiting, error: RunError) -> Exception:
    if error.code == "WaitFailed":
        return WaitFailedError(waiting.key, error.message)
    if error.code == "WaitCancelled":
        return WaitCancelledError(waiting.key, error.message)
    if error.code == "DuplicateRun":
        return DuplicateRun(waiting.names[0], error.type or "")
    return SignalCollisionError(waiting.names[0], error.type or "")


def is_collision(row: StepRow) -> bool:
    """Whether a wait ended at once, because another run holds its signal id (F5)."""
    return row.status == "failed" and row.kind == "signal" and _error(row).code == "SignalCollision"


class _Child(msgspec.Struct, frozen=True):
    """A child's end, as `moves.finish` tells its parent of it."""

    id: str
    status: str
    result: msgspec.Raw
    error: RunError | None


def _child(row: StepRow, returns: Any) -> Any:
    child = msgspec.json.decode(row.result or "{}", type=_Child)
    match child.status:
        case "completed":
            try:
                return read_as(bytes(child.result).decode(), returns)
            except (BadPayload, TypeError) as error:
                raise HistoryMismatch(
                    f"the result of {child.id}, which step {row.key!r} invoked, cannot be read as {returns!r}: {error}"
                ) from error
        case "stopped":
            raise RunStoppedError(child.id, child.error)
        case "cancelled":
            raise RunCancelledError(child.id, child.error)
        case _:
            raise RunFailedError(child.id, child.error)


def _error(row: StepRow | NewStep) -> RunError:
    return msgspec.json.decode(row.error or "{}", type=RunError)


def decoded(row: StepRow, returns: Any) -> Any:
    """A stored result, read as its type; raises `HistoryMismatch` where it does not fit any more."""
    try:
        return read_as(row.result or "null", returns)
    except (BadPayload, TypeError) as error:
        raise HistoryMismatch(f"the stored result of step {row.key!r} is no {returns!r} any more: {error}") from error
