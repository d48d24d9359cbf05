"""The accounts at the end of a simulated story: what the programs say that they were handed is what is stored."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import bide
from bide.core.records import wait_seq

CLOSED = ("await_unit_completed", "await_unit_terminal")
OF_TURNS = ("step_committed", "step_completed", "step_failed", "step_retried", "run_suspended", "run_completed")
STATUSES = {
    "value": "completed",
    "timed out": "timed_out",
    "collided": "failed",
    "failed": "failed",
    "called off": "cancelled",
}


class Broken(AssertionError):
    """A promise was broken."""


@dataclasses.dataclass(frozen=True)
class Emitted:
    """An event of a client, in the order of the stream."""

    id: str
    name: str
    data: dict[str, Any]
    at: datetime

    def is_wanted(self, pattern: str, match: str | None) -> bool:
        """Whether a wait takes it, by rules of the simulation's own."""
        is_meant = self.name == pattern or (pattern.endswith("*") and self.name.startswith(pattern[:-1]))
        if match is None or not is_meant:
            return is_meant
        found = re.fullmatch(r"data\.n (==|>) (\d)", match)
        assert found is not None
        n, number = self.data.get("n"), int(found[2])
        return isinstance(n, int) and (n == number if found[1] == "==" else n > number)


@dataclasses.dataclass
class Ended:
    """An ended run and all that is stored of it."""

    run: bide.RunInfo
    entries: list[bide.LedgerEntry]
    waits: list[bide.WaitInfo]
    steps: list[bide.StepInfo]
    children: list[bide.RunInfo]

    @property
    def last_life(self) -> list[bide.LedgerEntry]:
        begun = [no for no, entry in enumerate(self.entries) if entry.name == "run_restarted"]
        return self.entries[begun[-1] :] if begun else self.entries


def ids_of(entries: list[bide.LedgerEntry], name: str) -> Iterator[str]:
    for entry in entries:
        if entry.name == name:
            yield from entry.data["ids"]


def used_up(entries: list[bide.LedgerEntry]) -> Counter[str]:
    """The ids of signals that were taken and not put back."""
    used = Counter(ids_of(entries, "signals_consumed"))
    used.subtract(Counter(ids_of(entries, "signals_returned")))
    return +used


def by_strangers(entries: list[bide.LedgerEntry]) -> Iterator[str]:
    """What a worker wrote that did not hold the run (D3)."""
    holder: str | None = None
    for entry in entries:
        if "worker" in entry.data:
            holder = entry.data["worker"]
            continue
        if entry.name in OF_TURNS and entry.actor != f"worker:{holder}":
            yield f"entry {entry.seq}, {entry.name}, is by {entry.actor}, while {holder} held the run"
        if "to" in entry.data:
            holder = None


def twice(ended: Ended) -> Iterator[str]:
    """What may be in a ledger once, and is there more often (D2, D5)."""
    closed = Counter(entry.data["wait"] for entry in ended.entries if entry.name in CLOSED)
    for wait, times in closed.items():
        if times > 1:
            yield f"wait {wait} was closed {times} times"
    done = Counter(entry.data["step"] for entry in ended.last_life if entry.name == "step_completed")
    for step, times in done.items():
        if times > 1:
            yield f"step {step} was completed {times} times"


def misreported(
    ended: Ended, payloads: Mapping[str, Any], runs: Mapping[str, bide.RunInfo], unused: Counter[str]
) -> Iterator[str]:
    """Where a completed run tells something else than what is stored of it."""
    waits = {wait.step: wait for wait in ended.waits}
    steps = {step.id: step for step in ended.steps}
    answers = {
        entry.data["step"]: entry
        for entry in ended.last_life
        if entry.name == "await_answer_received" and "interaction" not in entry.data  # `people` counts those of tasks
    }
    received: list[Any] = []
    for key, kind, what, value in ended.run.result:
        wait, step = waits.get(key), steps.get(key)
        is_awaited = kind in ("signal", "callback", "receive", "pack", "event", "ask", "vote")
        if is_awaited and what in STATUSES and (wait is None or wait.status != STATUSES[what]):
            yield f"{key} {what}, its wait is {wait}"
        if what == "value":
            if kind in ("work", "signal", "callback") and (step is None or step.result != value):
                yield f"{key} was {value}, stored is {step}"
            if kind == "event" and (step is None or step.result["id"] != value):
                yield f"{key} was {value}, stored is {step}"
            if kind in ("signal", "callback") and (key not in answers or answers[key].data["payload"] != value):
                yield f"{key} was answered {value}, the ledger tells of {answers.get(key)}"
            if kind in ("ask", "vote") and (step is None or value != _outcome(kind, step.result)):
                yield f"{key} was {value}, stored is {step}"
            if kind == "launch" and value not in runs:
                yield f"{key} launched {value}, which is nowhere"
            received += [value] if kind == "receive" else value if kind == "pack" else ()
        if kind == "invoke" and what not in ("given up", "timed out"):
            ends = [(child.status, child.result) for child in ended.children]
            if ("completed" if what == "value" else what, value) not in ends:
                yield f"{key} {what} {value}, the children {ends}"
    used = [payloads[message_id] for message_id in used_up(ended.last_life)]
    if sorted(received) != sorted(used):
        yield f"was handed the signals {sorted(received)}, its ledger tells of {sorted(used)}"
    handed = {key for key, kind, what, _ in ended.run.result if kind in ("signal", "callback") and what == "value"}
    closed = {entry.data["step"]: entry.seq for entry in ended.last_life if entry.name == "await_unit_completed"}
    kept = {key for key in answers if key in closed and unused[f"{ended.run.id}/{wait_seq(closed[key])}"]}
    if set(answers) != handed | kept:
        yield f"was handed answers at {handed}, {kept} were kept as unused, its ledger tells of {set(answers)}"


def _outcome(kind: str, stored: Any) -> Any:
    """What a task came to, as the body tells it."""
    if kind == "ask":
        return stored["value"]
    return [stored["outcome"], stored["decision"], [[one["value"], one["by"]] for one in stored["answers"]]]
