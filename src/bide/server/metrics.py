"""Figures for Prometheus: counted as commands are answered, and asked of the store when they are read (W7)."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from bide.core.commands import Receipt, Receipts, Stale
from bide.engine.runtime import Runtime
from bide.stores.interface import Executed

DROPPED: Final = "bide_await_completion_dropped_total"
REASONS: Final = frozenset(
    {
        "not_found", "duplicate", "stale", "already_completed", "timed_out", "cancelled", "bad_token",
        "invalid_payload", "wrong_workspace", "conflict",
    }
)  # fmt: skip


class Figures:
    """What one runtime has done since it was first asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.admitted = Counter(
            "bide_await_completions_admitted", "Deliveries admitted", ["outcome"], registry=self.registry
        )
        self.dropped = Counter(
            "bide_await_completion_dropped", "Answers refused or repeated", ["reason"], registry=self.registry
        )
        self.stale = Counter("bide_stale_commits", "Commits under a lost claim", registry=self.registry)
        self.runs = Gauge("bide_runs", "Runs by status", ["status"], registry=self.registry)
        self.requests = Counter("bide_http_requests", "Requests by status", ["status"], registry=self.registry)
        for reason in sorted(REASONS):
            self.dropped.labels(reason)

    def heard(self, done: Executed) -> None:
        for reply in done.replies:
            if isinstance(reply, Receipt):
                self._count(reply)
            elif isinstance(reply, Receipts):
                for receipt in reply.receipts:
                    self._count(receipt)
            elif isinstance(reply, Stale):
                self.stale.inc()

    def _count(self, receipt: Receipt) -> None:
        match receipt.outcome:
            case "woke" | "queued":
                if receipt.duplicate:
                    self.dropped.labels("duplicate").inc()
                else:
                    self.admitted.labels(receipt.outcome).inc()
            case "duplicate":
                self.dropped.labels("duplicate").inc()
            case "invalid":
                self.dropped.labels("invalid_payload").inc()
            case "conflict":
                self.dropped.labels("conflict").inc()
            case "late" | "no_target":
                reason = receipt.reason if receipt.reason in REASONS else "not_found"
                self.dropped.labels(reason).inc()
            case _:
                return


_OF: WeakKeyDictionary[Runtime, Figures] = WeakKeyDictionary()


def figures_of(runtime: Runtime) -> Figures:
    """The figures of a runtime, counted from the first time that this is called."""
    found = _OF.get(runtime)
    if found is None:
        found = _OF[runtime] = Figures()
        runtime.committer.listeners.append(found.heard)
    return found


async def figures(runtime: Runtime) -> str:
    found = figures_of(runtime)
    counts = await runtime.store.count_runs(None)
    for status in ("ready", "running", "waiting", "completed", "stopped", "failed", "cancelled"):
        found.runs.labels(status).set(counts.get(status, 0))
    return generate_latest(found.registry).decode()
