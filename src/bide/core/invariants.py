"""What must hold of the rows between any two commits (D11), as plain checks over plain rows.

SQL stores ask the same questions as queries; the memory store and the simulation ask them here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bide.core import ledger
from bide.core.holding import chores_of
from bide.core.matching import takes
from bide.core.records import (
    FINAL,
    OPEN_INTERACTION,
    OPEN_WAIT,
    Chore,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    QueueEntry,
    Run,
    RunId,
    Signal,
    Timer,
    Unit,
    Wait,
)


class Rows(msgspec.Struct, kw_only=True):
    runs: Iterable[Run]
    waits: Iterable[Wait]
    inbox: Iterable[Signal]
    names: Iterable[Name]
    queue: Iterable[QueueEntry]
    timers: Iterable[Timer]
    pages: Iterable[LedgerPage]
    interactions: Iterable[Interaction] = ()
    units: Iterable[Unit] = ()
    items: Iterable[Item] = ()
    promised: frozenset[RunId] = frozenset()  # runs with something to send in the outbox, or among the dead letters
    listeners: Iterable[Listener] = ()
    chores: Iterable[Chore] = ()


class BrokenRow(msgspec.Struct, frozen=True):
    invariant: str
    id: str
    detail: str


def check(rows: Rows) -> list[BrokenRow]:
    """Every row that breaks an invariant."""
    runs = {run.id: run for run in rows.runs}
    waits: dict[RunId, dict[int, Wait]] = defaultdict(dict)
    for wait in rows.waits:
        waits[wait.run_id][wait.no] = wait
    inbox: dict[RunId, list[Signal]] = defaultdict(list)
    for signal in rows.inbox:
        inbox[signal.run_id].append(signal)
    queue = {entry.run_id: entry for entry in rows.queue}
    timers = {(timer.run_id, timer.no): timer for timer in rows.timers}
    pages: dict[RunId, list[LedgerPage]] = defaultdict(list)
    for page in rows.pages:
        pages[page.run_id].append(page)

    broken: list[BrokenRow] = []
    for run in runs.values():
        broken += _of_run(run, waits[run.id], inbox[run.id], queue.get(run.id))
        broken += _of_ledger(run, pages[run.id])
        broken += _of_joins(run, waits[run.id], runs)
        broken += _of_timers(run, waits[run.id], timers)
    for interaction in rows.interactions:
        broken += _of_interaction(interaction, waits[interaction.run_id].get(interaction.no))
    broken += _of_units(rows, waits)
    broken += _of_streams(rows, runs)
    for row in (*inbox, *waits, *queue):
        if row not in runs:
            broken.append(BrokenRow("I14", row, "belongs to no run"))
    for name in rows.names:
        holder = runs.get(name.run_id)
        if name.kind == "correlation" and (
            holder is None
            or holder.correlation_key != name.name
            or (holder.status in FINAL and holder.correlation_scope == "live")
        ):
            broken.append(BrokenRow("I7", name.name, f"correlation key is held by {name.run_id}, which does not live"))
    broken += _of_listeners(rows.listeners, waits)
    broken += _of_held_answers(rows.names, rows.chores)
    return broken


def _of_held_answers(names: Iterable[Name], chores: Iterable[Chore]) -> Iterator[BrokenRow]:
    """I1: an answer that is held is there, and the first wait of its signal id finds it."""
    told, kept = chores_of(names), {chore.id for chore in chores if chore.kind == "hold"}
    for id in sorted(told - kept):
        yield BrokenRow("I1", id, "an answer is held, and is not there")
    for id in sorted(kept - told):
        yield BrokenRow("I1", id, "is an answer that no wait would find")


def _of_listeners(listeners: Iterable[Listener], waits: Mapping[RunId, dict[int, Wait]]) -> Iterator[BrokenRow]:
    """I4: an event finds exactly the waits for events that are open."""
    found = {(listener.run_id, listener.no) for listener in listeners}
    are_open = {
        (wait.run_id, wait.no)
        for each in waits.values()
        for wait in each.values()
        if wait.kind == "event" and wait.status in OPEN_WAIT
    }
    for run_id, no in sorted(are_open - found):
        yield BrokenRow("I4", run_id, f"waits for an event at {no}, and no event would find it")
    for run_id, no in sorted(found - are_open):
        yield BrokenRow("I4", run_id, f"an event would find wait {no}, which is not open")


def _of_run(run: Run, waits: dict[int, Wait], inbox: list[Signal], entry: QueueEntry | None) -> Iterator[BrokenRow]:
    open_waits = sorted(no for no, wait in waits.items() if wait.status in OPEN_WAIT)
    if list(run.open_waits) != open_waits:
        yield BrokenRow("I5", run.id, f"says that waits {list(run.open_waits)} are open, {open_waits} are")
    if run.inbox_count != len(inbox):
        yield BrokenRow("I1", run.id, f"says that {run.inbox_count} signals are unread, {len(inbox)} are")
    if run.status == "waiting":
        for wait in (waits[no] for no in open_waits):
            if sum(takes(wait, signal) for signal in inbox) >= max(1, wait.expected):
                yield BrokenRow("I4", run.id, f"waits at {wait.id} for a signal that is in its inbox")
        if not open_waits:
            yield BrokenRow("I4", run.id, "waits for nothing")
    if run.status in FINAL and (open_waits or inbox or entry is not None or run.cancel_until is not None):
        yield BrokenRow("I7", run.id, f"is {run.status}, yet something of it is open")
    if (run.status == "running") != (entry is not None and entry.worker is not None):
        yield BrokenRow("I9", run.id, f"is {run.status}, and its lease says otherwise")
    if (run.status == "ready" and run.held is None) != (entry is not None and entry.worker is None):
        yield BrokenRow("I9", run.id, f"is {run.status}, and the queue says otherwise")
    if entry is not None and entry.epoch != run.epoch:
        yield BrokenRow("I8", run.id, f"is at epoch {run.epoch}, its queue entry at {entry.epoch}")
    spaces = {wait.workspace for wait in waits.values()} | {signal.workspace for signal in inbox}
    if spaces - {run.workspace}:
        yield BrokenRow("I14", run.id, "has rows of another workspace")


def _of_interaction(row: Interaction, wait: Wait | None) -> Iterator[BrokenRow]:
    """I5 for what the outside sees: an interaction is open only while its wait is, and answered with it."""
    if wait is None or wait.workspace != row.workspace:
        yield BrokenRow("I14", row.id, "belongs to no wait of its workspace")
        return
    if row.status in OPEN_INTERACTION and wait.status not in OPEN_WAIT:
        yield BrokenRow("I5", row.id, f"is {row.status}, its wait is {wait.status}")
    if (row.status == "completed") != (row.answer is not None):
        yield BrokenRow("I5", row.id, f"is {row.status}, and its answer says otherwise")
    if wait.status == "completed" and wait.received == wait.expected == 1 and row.status != "completed":
        yield BrokenRow("I5", row.id, f"is {row.status}, its wait was answered")


def _of_units(rows: Rows, waits: Mapping[RunId, dict[int, Wait]]) -> Iterator[BrokenRow]:
    """I13 and I12 for requests: the counts are those of the interactions, and what is pending will be sent."""
    interactions: dict[tuple[RunId, int], list[Interaction]] = defaultdict(list)
    for row in rows.interactions:
        interactions[(row.run_id, row.no)].append(row)
    for unit in rows.units:
        wait, found = waits[unit.run_id].get(unit.no), interactions[(unit.run_id, unit.no)]
        if wait is None or wait.status not in (*OPEN_WAIT, "completed"):
            continue
        counted = (unit.expected, unit.handed, unit.received, unit.rejected)
        there = (
            len(found),
            sum(row.status != "pending" for row in found),
            sum(row.closed_at is not None for row in found),
            sum(row.status in ("failed", "timed_out") for row in found),
        )
        if counted != there:
            yield BrokenRow("I13", unit.run_id, f"wait {unit.no} counts {counted} interactions, there are {there}")
        if (wait.status == "completed") != (unit.filled and unit.received == unit.expected):
            detail = f"wait {unit.no} is {wait.status} with {unit.received} of {unit.expected}"
            yield BrokenRow("I13", unit.run_id, detail)
        if unit.handed == unit.received and unit.run_id not in rows.promised:
            for row in found:
                if row.status == "pending":
                    detail = f"interaction {row.item} of wait {row.no} is pending, and nobody would send it"
                    yield BrokenRow("I12", row.run_id, detail)


def _of_streams(rows: Rows, runs: Mapping[RunId, Run]) -> Iterator[BrokenRow]:
    """I4 for items: of a waiting run, something moves each of them, and there is one that is not at its end."""
    asked = {(row.run_id, row.item) for row in rows.interactions if row.closed_at is None}
    asking = {run_id for run_id, _ in asked}
    items: dict[RunId, list[Item]] = defaultdict(list)
    for item in rows.items:
        items[item.run_id].append(item)
    for run in runs.values():
        if run.status != "waiting" or run.style != "pipeline":
            continue
        newest = max((item.section for item in items[run.id]), default=0)
        for item in (item for item in items[run.id] if item.section == newest):
            is_stuck = item.status == "ready" and item.due_at is None
            if is_stuck or (item.status == "waiting" and (run.id, item.item) not in asked):
                yield BrokenRow("I4", run.id, f"item {item.item} is {item.status}, and nothing would move it")
        if run.id not in asking and not any(item.status in ("ready", "waiting", "dead") for item in items[run.id]):
            yield BrokenRow("I4", run.id, "waits for items, and none is left")


def _of_ledger(run: Run, pages: list[LedgerPage]) -> Iterator[BrokenRow]:
    pages = sorted(pages, key=lambda page: page.seq)
    texts = [(page.seq, page.entries) for page in pages]
    broken = ledger.flaw(texts, run.ledger_head, run.ledger_seq, run.status)
    if broken is not None:
        yield BrokenRow("I16", run.id, broken.reason)


def _of_joins(run: Run, waits: dict[int, Wait], runs: dict[RunId, Run]) -> Iterator[BrokenRow]:
    for wait in waits.values():
        if wait.kind != "children" or wait.status not in ("waiting", "completed"):
            continue
        ended = sum(
            1
            for child in runs.values()
            if child.parent_id == run.id and child.parent_wait == wait.no and child.status in FINAL
        )
        if wait.received != ended and not (run.status in FINAL and ended < wait.received):  # retention took the rest
            yield BrokenRow("I13", wait.id, f"counted {wait.received} ended children, {ended} have ended")
        if (wait.status == "completed") != (wait.received == wait.expected):
            yield BrokenRow("I13", wait.id, f"is {wait.status} with {wait.received} of {wait.expected}")


def _of_timers(run: Run, waits: dict[int, Wait], timers: dict[tuple[RunId, int], Timer]) -> Iterator[BrokenRow]:
    due = {no: wait.due_at for no, wait in waits.items() if wait.status == "waiting"}
    due[0] = run.cancel_until
    for no, moment in due.items():
        timer = timers.get((run.id, no))
        if (timer.due_at if timer is not None else None) != moment:
            yield BrokenRow("I11", run.id, f"timer {no} and what it stands for differ")
