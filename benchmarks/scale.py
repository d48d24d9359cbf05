"""How much is measured: everything, or just enough to see that the benchmark works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    rounds: int = 3  # turns of bide and DBOS each; the median counts
    cycles: int = 6_000
    dbos_cycles: int = 120
    raw_seconds: float = 1.5
    wakes: int = 300  # that count: more are measured where the machine is busy, as of the rounds over HTTP
    parked: int = 100_000  # what a full store holds
    weighed: int = 10_000  # parked runs whose bytes and memory are counted
    counted_cycles: int = 4_000
    deadlines: int = 10_000
    listeners: int = 10_000  # runs that one event resumes
    replays: int = 30  # of one run with many steps
    file_cycles: int = 2_000  # of a machine file, and of the same in Python
    items: int = 10_000  # of one stream
    items_more: int = 100  # times as many, to see what memory does
    payments: int = 10_000  # rows of a file, each sent over Kafka
    answers: int = 5_000  # over HTTP, in each round
    http_seconds: int = 5  # at half the load
    http_rounds: int = 5  # that count; the median of them is the figure


FULL = Scale()
QUICK = Scale(
    rounds=1,
    cycles=1_000,
    dbos_cycles=40,
    raw_seconds=0.5,
    wakes=50,
    parked=5_000,
    weighed=2_000,
    counted_cycles=1_000,
    deadlines=1_000,
    listeners=1_000,
    replays=5,
    file_cycles=500,
    items=2_000,
    items_more=5,
    payments=1_000,
    answers=1_000,
    http_seconds=1,
    http_rounds=1,
)
