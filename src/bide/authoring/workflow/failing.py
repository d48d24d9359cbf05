"""What an error that the body did not catch leads to: another try of the run, or its end (F16, W8)."""

from __future__ import annotations

from collections.abc import Iterator

from bide.authoring.machine import failure, message_of
from bide.core.commands import End, TryAgain
from bide.core.records import Run
from bide.core.retrying import RetryPolicy
from bide.errors import (
    BideError,
    DuplicateRun,
    Invalid,
    NotInAStep,
    ReceiptMismatch,
    RunEnded,
    SignalCollisionError,
    StepFailedError,
    WaitFailedError,
    WaitTimeoutError,
)


class BadWait(Exception):
    """The body waits for what will never come."""


class AwaitTimeout(Exception):
    """The time of a wait is up, and its policy is that the run fails (W2): nothing that the body could catch."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(step, message)
        self.step, self.message = step, message

    def __str__(self) -> str:
        return self.message


# What replays as itself, or would be refused again: trying the run again changes nothing (F16, law 4).
NEVER_RETRIED = (
    DuplicateRun,
    SignalCollisionError,
    Invalid,
    BadWait,
    AwaitTimeout,
    NotInAStep,
    WaitTimeoutError,
    WaitFailedError,
    ReceiptMismatch,
    RunEnded,
)


def after_error(
    error: BaseException, run: Run, policy: RetryPolicy, jitter: float
) -> tuple[End | TryAgain, tuple[str, ...]]:
    """The move, and the steps that another try runs anew.

    Those are the ones whose failure ended this try; one that the body caught stays as it was answered.
    """
    failures, causes = run.attempt + 1, list(_leaves(error))
    never = next((cause for cause in causes if _is_final(cause)), None)
    is_over = run.cancel_reason is not None  # whatever its clean-up says, the run is cancelled (W8)
    gives_up = any(policy.gives_up(failures, cause) for cause in causes)
    if is_over or never is not None or not isinstance(error, Exception) or gives_up:
        worst = never if never is not None else error
        step = worst.step if isinstance(worst, WaitFailedError | AwaitTimeout) else run.step
        return failure(_code(run, worst), worst, step), ()
    failed = tuple(sorted({cause.step for cause in causes if isinstance(cause, StepFailedError)}))
    said = f"{type(error).__name__}: {message_of(error)}"
    return TryAgain(state=run.state, delay=policy.pause(failures, jitter), error=said), failed


def _is_final(error: BaseException) -> bool:
    return isinstance(error, NEVER_RETRIED) or (isinstance(error, StepFailedError) and not error.can_retry)


def _code(run: Run, error: BaseException) -> str:
    if isinstance(error, AwaitTimeout):
        return "AWAIT_TIMEOUT"
    if run.style == "machine_file" and isinstance(error, WaitTimeoutError):
        return "AWAIT_TIMEOUT"  # a wait of a machine file has a flow for its timeout, or fails the run (W2)
    return type(error).__name__ if isinstance(error, (BideError, BadWait)) else "RunFailed"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, or the one error."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
