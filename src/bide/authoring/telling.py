"""What the log says of user code that raises: what kind of error, and where.

What the error said may hold data of users. It stays with the run, which knows what to hide; the log has it, with the
whole traceback, where the logger `bide.runs` is set to DEBUG, as `bide dev` does, and nothing is to be hidden.
"""

from __future__ import annotations

import logging
import os
from types import TracebackType

from bide.core.commands import Move, TryAgain
from bide.core.durations import format_duration
from bide.core.records import Run

log = logging.getLogger("bide.runs")
_BIDE, _PYTHON = (os.path.dirname(os.path.dirname(file)) + os.sep for file in (__file__, logging.__file__))
NOT_OF_USERS = (_BIDE, f"{_PYTHON}asyncio{os.sep}", f"{_PYTHON}concurrent{os.sep}", "<")


def tell(run: Run, step: str, error: BaseException, becomes: str, *, is_final: bool) -> None:
    """Say that *step* raised, and what becomes of it."""
    level = logging.WARNING if is_final else logging.INFO
    if not log.isEnabledFor(level):
        return
    kind, frames = type(error).__name__, _frames_of_users(error.__traceback__)
    is_whole = log.isEnabledFor(logging.DEBUG) and run.redact is None  # it hides what it names from everybody (G4)
    if is_whole and not frames:  # bide's own code raised it, and it says what is to be done
        kind = f"{kind} ({error})"
    said = f"{run.id} ({run.definition}): {step!r} raised {kind}{_where(frames)}; {becomes}"
    log.log(level, said, exc_info=(type(error), error, frames[0]) if is_whole and frames else None)


def tell_move(run: Run, step: str, error: BaseException, move: Move) -> None:
    """The same, where the error ends the turn."""
    if run.cancel_reason is not None:
        if isinstance(error, Exception):  # else it is the cancelling itself that left the body
            tell(run, step, error, "its clean-up ends, and the run with it, cancelled", is_final=True)
    elif isinstance(move, TryAgain):
        tell(run, step, error, f"the run is tried again in {format_duration(move.delay)}", is_final=False)
    else:
        tell(run, step, error, "the run fails", is_final=True)


def _frames_of_users(traceback: TracebackType | None) -> list[TracebackType]:
    """Where code that is neither bide's nor Python's own was reached, in order."""
    found = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(NOT_OF_USERS):
            found.append(traceback)
        traceback = traceback.tb_next
    return found


def _where(frames: list[TracebackType]) -> str:
    """The last line of user code that was reached."""
    if not frames:
        return ""
    code = frames[-1].tb_frame.f_code
    return f" at {code.co_filename}:{frames[-1].tb_lineno} in {code.co_name}"
