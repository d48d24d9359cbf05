"""What a process counts of its own work: plain numbers that cost next to nothing, under the names they are shown by.

Whoever shows them (`bide.server.metrics`) reads them; nothing here knows of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from bide.core.commands import Receipt, Receipts, Stale, TakenIn
from bide.core.ledger import AWAIT_LIFECYCLE
from bide.stores.interface import Executed

TURNS: Final = "bide_turns_total"
ADMITTED: Final = "bide_await_completions_admitted_total"
EARLY: Final = "bide_await_completions_early_held_total"
DROPPED: Final = "bide_await_completion_dropped_total"
STALE: Final = "bide_stale_commits_total"
LATE: Final = "bide_timers_late_total"
DISPATCHES: Final = "bide_dispatches_total"
NOT_DISPATCHED: Final = "bide_dispatch_failures_total"
DEAD: Final = "bide_dead_letters_total"
REQUESTS: Final = "bide_http_requests_total"
LIFECYCLE: Final = {name: f"bide_{name}_total" for name in AWAIT_LIFECYCLE}  # G3

REASONS: Final = (
    "not_found", "duplicate", "stale", "already_completed", "timed_out", "cancelled", "bad_token",
    "invalid_payload", "wrong_workspace", "conflict",
)  # fmt: skip

LATE_SECONDS: Final = 0.1  # an idle engine is to fire a due deadline within this (W6)
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Histogram:
    """How many values were at most each of some bounds.

    >>> sizes = Histogram([1, 10])
    >>> sizes.observe(1), sizes.observe(7), sizes.observe(99)
    (None, None, None)
    >>> sizes.counts, sizes.sum
    ([1, 1, 1], 107.0)
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: above all bounds
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Figures:
    """What one runtime has done since it was made."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # by name of the figure, and reason, style or transport
        self.steps = Histogram(SECONDS)
        self.wakes = Histogram(SECONDS)
        self.lateness = Histogram(SECONDS)
        self.batches = Histogram(SIZES)

    def heard(self, done: Executed) -> None:
        """A batch was committed."""
        for late in done.late:
            self.lateness.observe(late)
            if late > LATE_SECONDS:
                self.counts[(LATE, "")] += 1
        self.counts[(EARLY, "")] += done.early
        for name, count in done.told.items():
            if name in LIFECYCLE:
                self.counts[(LIFECYCLE[name], "")] += count
        for kind in done.dead:
            self.counts[(DEAD, kind)] += 1
        for reply in done.replies:
            if isinstance(reply, Receipt):
                self._count(reply)
            elif isinstance(reply, (Receipts, TakenIn)):
                for receipt in reply.receipts:
                    self._count(receipt)
            elif isinstance(reply, Stale):
                self.counts[(STALE, "")] += 1

    def drop(self, reason: str) -> None:
        self.counts[(DROPPED, reason)] += 1

    def _count(self, receipt: Receipt) -> None:
        reason = dropped(receipt)
        if reason is not None:
            self.drop(reason)
        elif receipt.outcome in ("woke", "queued"):
            self.counts[(ADMITTED, receipt.outcome)] += 1
            if receipt.outcome == "queued" and receipt.interaction_id is None:
                self.counts[(EARLY, "")] += 1


_ENDED: Final = {"completed": "already_completed", "stopped": "already_completed", "failed": "already_completed"}


def dropped(receipt: Receipt) -> str | None:
    """Why an answer or signal was not admitted, as W7 names it; None where it was.

    >>> dropped(Receipt(outcome="late", reason="timed_out")), dropped(Receipt(outcome="woke"))
    ('timed_out', None)
    """
    if receipt.duplicate or receipt.outcome == "duplicate":
        return "duplicate"
    match receipt.outcome:
        case "invalid":
            return "invalid_payload"
        case "conflict":
            return "conflict"
        case "late" | "no_target":
            said = receipt.reason or ""
            said = _ENDED.get(said, said)
            return said if said in REASONS else "already_completed" if receipt.outcome == "late" else "not_found"
        case _:
            return None
