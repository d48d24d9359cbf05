"""Figures for Prometheus: what the process counted (`bide.engine.figures`), and what is open in the store (§11, W7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from bide.engine import figures
from bide.engine.figures import Figures, Histogram
from bide.engine.runtime import Runtime
from bide.errors import Unavailable

log = logging.getLogger("bide.server")

COUNTERS: Final[Mapping[str, tuple[str, str]]] = {  # what each counts, and by what
    figures.TURNS: ("Turns of runs that this process began", "style"),
    figures.ADMITTED: ("Signals and answers admitted: they woke a run, or wait for one", "outcome"),
    figures.EARLY: ("Of these, those that came before anybody waited", ""),
    figures.DROPPED: ("Signals and answers refused or repeated", "reason"),
    figures.STALE: ("Commits refused because the claim was lost", ""),
    figures.LATE: ("Timers fired more than 100 ms after they were due", ""),
    figures.DISPATCHES: ("Interactions handed to a transport", "transport"),
    figures.NOT_DISPATCHED: ("Interactions that a transport could not deliver, each try", "transport"),
    figures.DEAD: ("Failures that became dead letters", "kind"),
    figures.REQUESTS: ("HTTP requests answered", "status"),
    **{figure: (f"Ledger entries {entry}", "") for entry, figure in figures.LIFECYCLE.items()},
}
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
STATUSES: Final = ("ready", "running", "waiting", "completed", "stopped", "failed", "cancelled")
ANSWER_SECONDS: Final = 3.0  # that the store has: whoever asks for figures does not wait long
GAUGE_SECONDS: Final = 10.0  # counting rows has its price, however often somebody asks


class _Gauges:
    """What the store says is there, asked at most every few seconds; None where it did not answer.

    What the process counted is wanted most while its store is away.
    """

    def __init__(self) -> None:
        self.runs: Mapping[str, int] | None = None
        self.open: Mapping[str, int] | None = None
        self._asked_at: float | None = None

    async def refresh(self, runtime: Runtime) -> None:
        now = runtime.ports.monotonic()
        if self._asked_at is not None and now - self._asked_at < GAUGE_SECONDS:
            return
        self._asked_at, self.runs, self.open = now, None, None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self.runs, self.open = await runtime.store.count_runs(None), await runtime.store.count_open()
        except (Unavailable, TimeoutError) as error:
            log.warning("figures without those of the store, which does not answer: %s", error)


class _Collector:
    def __init__(self, counted: Figures, gauges: _Gauges, round_trips: int) -> None:
        self._counted = counted
        self._gauges = gauges
        self._round_trips = round_trips

    def collect(self) -> Iterator[Metric]:
        counted, gauges = self._counted, self._gauges
        for name, (about, label) in COUNTERS.items():
            yield _counter(name, about, label, _by_label(counted, name))
        yield _counter("bide_store_round_trips_total", "Times that the store was asked", "", {"": self._round_trips})
        yield _histogram("bide_step_seconds", "How long the code of a step took", counted.steps)
        yield _histogram("bide_wake_seconds", "From the moment a run could go on until a worker had it", counted.wakes)
        yield _histogram("bide_timer_late_seconds", "How long after they were due timers fired", counted.lateness)
        yield _histogram("bide_batch_commands", "Commands in one commit", counted.batches)
        yield _gauge("bide_runs", "Runs by status", "status", _of(gauges.runs, STATUSES))
        yield _gauge("bide_waits_open", "Open waits by status", "status", _of(gauges.open, ("waiting", "reserved")))
        letters = {"": gauges.open.get("dead_letters", 0)} if gauges.open is not None else {}
        yield _gauge("bide_dead_letters_open", "Dead letters that wait for a person", "", letters)


def _of(counted: Mapping[str, int] | None, names: Iterable[str]) -> dict[str, int]:
    return {name: counted.get(name, 0) for name in names} if counted is not None else {}


def _by_label(counted: Figures, name: str) -> Mapping[str, int]:
    found = {label: count for (figure, label), count in counted.counts.items() if figure == name}
    if name == figures.DROPPED:
        return {reason: found.get(reason, 0) for reason in figures.REASONS}
    return found if found or COUNTERS[name][1] else {"": 0}


def _counter(name: str, about: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name.removesuffix("_total"), about, labels=[label] if label else [])
    for value, count in sorted(values.items()):
        family.add_metric([value] if label else [], count)
    return family


def _gauge(name: str, about: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label] if label else [])
    for value, count in values.items():
        family.add_metric([value] if label else [], count)
    return family


def _histogram(name: str, about: str, counted: Histogram) -> Metric:
    family = HistogramMetricFamily(name, about)
    buckets, total = [], 0
    for bound, count in zip([*map(str, counted.bounds), "+Inf"], counted.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric([], buckets, counted.sum)
    return family


_GAUGES: WeakKeyDictionary[Runtime, _Gauges] = WeakKeyDictionary()


async def exposition(runtime: Runtime) -> bytes:
    """All figures in the text format of Prometheus."""
    gauges = _GAUGES.setdefault(runtime, _Gauges())
    await gauges.refresh(runtime)
    registry = CollectorRegistry()
    registry.register(_Collector(runtime.figures, gauges, runtime.store.round_trips))
    return generate_latest(registry)
