"""How far the items of a run have come."""

from __future__ import annotations

import msgspec

from bide.core.records import Run
from bide.core.streams import progress_of
from bide.stores.interface import Store


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the items of a run have come: those of its newest stream, or of its open requests.

    *expected* grows until `is_filled`. *dispatched* and *answered* are interactions; *done*, *dropped*, *rejected* and
    *dead* are items that came to their end, or wait for a person.

    >>> async def bar(client, run_id):
    ...     progress = await client.progress(run_id)
    ...     return f"{progress.done + progress.rejected} of {progress.expected}"
    """

    expected: int = 0
    dispatched: int = 0
    answered: int = 0
    done: int = 0
    dropped: int = 0
    rejected: int = 0
    dead: int = 0
    is_filled: bool = True


async def progress_now(store: Store, run: Run) -> Progress:
    """Counts only: no item is read."""
    if run.style == "pipeline":
        stream = progress_of(run)
        numbers = [no for no in stream.waits if no]
        found = [unit for no in numbers if (unit := await store.unit(run.id, no)) is not None]
        return Progress(
            expected=stream.total,
            dispatched=sum(unit.handed for unit in found),
            answered=sum(unit.received for unit in found),
            done=stream.done,
            dropped=stream.dropped,
            rejected=stream.rejected,
            dead=stream.dead,
            is_filled=stream.filled or not stream.section,
        )
    found = [unit for no in run.open_waits if (unit := await store.unit(run.id, no)) is not None]
    return Progress(
        expected=sum(unit.expected for unit in found),
        dispatched=sum(unit.handed for unit in found),
        answered=sum(unit.received for unit in found),
        done=sum(unit.received - unit.rejected for unit in found),
        rejected=sum(unit.rejected for unit in found),
        is_filled=all(unit.filled for unit in found),
    )
