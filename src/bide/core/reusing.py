"""What a retried run keeps of the one that failed (F16)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from bide.core.records import Run, RunError, StepRow, Wait, paused

TIMEOUTS = ("WaitTimeoutError", "SignalTimeoutError", "RunTimeoutError", "AWAIT_TIMEOUT")
ENDS_OF_CHILDREN = ("RunFailedError", "RunStoppedError", "RunCancelledError")


def reused(rows: Iterable[StepRow], error: RunError | None, from_step: str | None = None) -> tuple[StepRow, ...]:
    """The stored outcomes that the new run begins with, in their order.

    Failures are not among them, nor what the run failed of: the wait that timed out, the answer that was refused,
    the child that did not complete.
    With *from_step* neither are that step and all that came to its outcome after it. Raises `KeyError` where there is
    no such step.
    """
    known = sorted(rows, key=lambda row: row.seq)
    if from_step is not None:
        at = next((row.seq for row in known if row.key == from_step), None)
        if at is None:
            raise KeyError(from_step)
        known = [row for row in known if row.seq < at]
    kept = [row for row in known if row.status in ("done", "timed_out") and row.kind != "cancel"]
    blamed = _blamed(kept, error) if from_step is None else None
    kept = [row for row in kept if row is not blamed]
    keys = {row.key for row in kept}
    # The pause before a try belongs to a step; it stays with it, or goes with it.
    kept = [row for row in kept if (pause := _pause(row)) is None or pause[0] in keys]
    return tuple(replace(row, seq=seq) for seq, row in enumerate(kept, start=1))


def _pause(row: StepRow) -> tuple[str, int] | None:
    return paused(row.key) if row.kind == "sleep" else None


def _blamed(kept: Sequence[StepRow], error: RunError | None) -> StepRow | None:
    """The outcome that would end the new run just as it ended the old one."""
    code = error.code if error is not None else ""
    if code in TIMEOUTS and error is not None:
        late = [row for row in reversed(kept) if row.status == "timed_out" and row.kind != "sleep"]
        return next((row for row in late if row.key == error.step), late[0] if late else None)
    if code == "AnswerRefusedError" and error is not None:
        return next((row for row in kept if row.key == error.step), None)
    if code in ENDS_OF_CHILDREN:
        return next((row for row in reversed(kept) if row.kind == "children"), None)
    return None


def begins_where_it_failed(run: Run, newest_wait: Wait | None) -> bool:
    """Whether the new run of a machine can begin with the step that the old one failed in, and its state.

    A step that a wait led to was handed signals or children, which ended with the run. Without them it would see
    something that never was, so such a machine begins with its first step, as it was started.
    """
    return newest_wait is None or run.step not in (newest_wait.key, newest_wait.on_timeout)
