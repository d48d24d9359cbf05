"""What must hold of the rows between any two commits (D11), as plain checks over plain rows.

SQL stores ask the same questions as queries; the memory store and the simulation ask them here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from bide.core.accounting import Account, flaws, kept_of
from bide.core.holding import chores_of, is_held
from bide.core.matching import takes
from bide.core.once import PREFIX as ONCE
from bide.core.records import (
    FINAL,
    NO_RUN,
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
    StepRow,
    Timer,
    Unit,
    Wait,
)


class Rows(msgspec.Struct, kw_only=True):
    """Every row that is looked at."""

    runs: Collection[Run]
    waits: Collection[Wait]
    inbox: Collection[Signal]
    names: Collection[Name]
    queue: Collection[QueueEntry]
    timers: Collection[Timer]
    pages: Collection[LedgerPage]
    interactions: Collection[Interaction] = ()
    units: Collection[Unit] = ()
    items: Collection[Item] = ()
    promised: frozenset[RunId] = frozenset()  # runs with something to send in the outbox, or among the dead letters
    listeners: Collection[Listener] = ()
    chores: Collection[Chore] = ()
    steps: Collection[StepRow] = ()


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
    timed = {timer.run_id for timer in rows.timers}
    pages: dict[RunId, list[LedgerPage]] = defaultdict(list)
    for page in rows.pages:
        pages[page.run_id].append(page)
    steps: dict[RunId, list[StepRow]] = defaultdict(list)
    for step in rows.steps:
        steps[step.run_id].append(step)
    admitted: dict[RunId, list[str]] = defaultdict(list)
    for name in rows.names:
        if name.kind == "dedup" and name.message_id and not name.name.startswith(ONCE):
            admitted[name.run_id].append(name.message_id)

    broken: list[BrokenRow] = []
    for run in runs.values():
        broken += _of_run(run, waits[run.id], inbox[run.id], queue.get(run.id), run.id in timed)
        broken += _of_ledger(run, pages[run.id], inbox[run.id], steps[run.id], admitted[run.id])
        broken += _of_joins(run, waits[run.id], runs)
        broken += _of_timers(run, waits[run.id], timers)
        broken += _of_waits(run, waits[run.id])
    for interaction in rows.interactions:
        broken += _of_interaction(interaction, waits[interaction.run_id].get(interaction.no))
    broken += _of_units(rows, waits)
    broken += _of_streams(rows, runs)
    broken += _of_families(rows, runs)
    broken += _of_kinds(rows)
    for name in rows.names:
        holder = runs.get(name.run_id)
        if name.kind == "correlation" and (
            holder is None
            or holder.correlation_key != name.name
            or (holder.status in FINAL and holder.correlation_scope == "live")
        ):
            broken.append(BrokenRow("I7", name.name, f"correlation key is held by {name.run_id}, which does not live"))
    broken += _of_signal_ids(rows.names, waits)
    broken += _of_chores(rows.chores, runs)
    broken += _of_listeners(rows.listeners, waits)
    broken += _of_held_answers(rows.names, rows.chores)
    return broken


def _of_signal_ids(names: Iterable[Name], waits: Mapping[RunId, dict[int, Wait]]) -> Iterator[BrokenRow]:
    """I7: a signal id is taken by a wait that is open, and remembered with one that is closed."""
    for name in names:
        if name.kind != "signal" or is_held(name):
            continue
        found = {str(no): wait for no, wait in waits[name.run_id].items()}.get(name.message_id.rstrip("!"))
        if found is None or (found.status in OPEN_WAIT) != (name.digest != "closed"):
            detail = f"signal id {name.name} is {name.digest}, wait {name.message_id} is not"
            yield BrokenRow("I7", name.run_id, detail)


def _of_chores(chores: Iterable[Chore], runs: Mapping[RunId, Run]) -> Iterator[BrokenRow]:
    """I12: a chore is a run's, but for held answers and keys. I7: only a cancel is passed on to all children."""
    for chore in chores:
        if (chore.kind in ("hold", "forget")) != (chore.run_id == NO_RUN):
            yield BrokenRow("I12", chore.id, f"is a chore of the kind {chore.kind}, and its run is {chore.run_id!r}")
        run = runs.get(chore.run_id)
        is_of_run = run is not None and chore.id == f"cancel_children:{run.id}"
        if run is not None and is_of_run and run.status != "cancelled":
            yield BrokenRow("I7", run.id, f"is {run.status}, yet its children are to be cancelled")


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


def _of_run(
    run: Run, waits: dict[int, Wait], inbox: list[Signal], entry: QueueEntry | None, has_timer: bool
) -> Iterator[BrokenRow]:
    open_waits = sorted(no for no, wait in waits.items() if wait.status in OPEN_WAIT)
    if list(run.open_waits) != open_waits:
        yield BrokenRow("I5", run.id, f"says that waits {list(run.open_waits)} are open, {open_waits} are")
    if run.inbox_count != len(inbox):
        yield BrokenRow("I1", run.id, f"says that {run.inbox_count} signals are unread, {len(inbox)} are")
    if run.status == "waiting":
        for wait in (waits[no] for no in open_waits):
            if sum(takes(wait, signal) for signal in inbox) >= max(1, wait.expected):
                yield BrokenRow("I4", run.id, f"waits at {wait.id} for a signal that is in its inbox")
        parked_on = waits.get(run.parked_on) if run.parked_on is not None else None
        if parked_on is None or parked_on.status != "waiting":
            yield BrokenRow("I4", run.id, "waits for nothing")
    left = (open_waits, inbox, entry is not None, has_timer, run.cancel_until is not None, run.held is not None)
    if run.status in FINAL and any(left):
        yield BrokenRow("I7", run.id, f"is {run.status}, yet something of it is open")
    if not _agrees(run):
        yield BrokenRow("I7", run.id, f"is {run.status}, and its row says otherwise")
    if run.status in FINAL and run.status != "cancelled" and run.cancel_reason is not None:
        yield BrokenRow("I10", run.id, f"was cancelled, yet it ended as {run.status}")
    if (run.status == "running") != (entry is not None and entry.worker is not None):
        yield BrokenRow("I9", run.id, f"is {run.status}, and its lease says otherwise")
    is_offered = entry is not None and entry.worker is None
    if (run.status == "ready" and run.held is None) != is_offered or (is_offered and not _is_in_place(run, entry)):
        yield BrokenRow("I9", run.id, f"is {run.status}, and the queue says otherwise")
    if entry is not None and entry.epoch != run.epoch:
        yield BrokenRow("I8", run.id, f"is at epoch {run.epoch}, its queue entry at {entry.epoch}")


def _of_kinds(rows: Rows) -> Iterator[BrokenRow]:
    """I7: every step came to something that a step can come to, and every name is of a kind that there is."""
    for step in rows.steps:
        if step.status not in ("done", "failed", "timed_out", "trying"):
            detail = f"step {step.key} is {step.status}, and what a step can be says otherwise"
            yield BrokenRow("I7", step.run_id, detail)
    for name in rows.names:
        if name.kind not in ("correlation", "dedup", "signal"):
            detail = f"name {name.name} is a {name.kind}, and what a name can be says otherwise"
            yield BrokenRow("I7", name.run_id, detail)


def _agrees(run: Run) -> bool:
    """Whether what goes with some statuses is there with these alone, and no count is one that cannot be."""
    is_ended, is_parked = run.ended_at is not None, run.parked_on is not None
    is_held_fitly = run.held is None or run.status == "ready"
    is_child_fitly = (run.parent_id is None) == (run.parent_wait is None)
    is_counted = min(run.attempt, run.claims, run.epoch, run.commits, run.wait_no) >= 0
    return (
        is_ended == (run.status in FINAL)
        and is_parked == (run.status == "waiting")
        and is_held_fitly
        and is_child_fitly
        and is_counted
        and 0 <= run.inbox_count <= run.inbox_seq
        and run.correlation_scope in ("live", "forever")
    )


def _is_in_place(run: Run, entry: QueueEntry | None) -> bool:
    place = (run.queue, run.priority, run.ready_at)
    return entry is not None and (entry.queue, entry.priority, entry.due_at) == place


def _of_waits(run: Run, waits: Mapping[int, Wait]) -> Iterator[BrokenRow]:
    """I5: a wait that is closed says since when and why, and only such a wait, and none counts more than it wants. I11:
    none timed out early."""
    for wait in waits.values():
        is_open = wait.status in OPEN_WAIT
        is_dated = is_open == (wait.closed_at is None) and (is_open or wait.due_at is None)
        if not is_dated or is_open != (wait.cause is None) or not 0 <= wait.received <= wait.expected:
            detail = f"wait {wait.no} is {wait.status}, yet its end or cause says otherwise"
            yield BrokenRow("I5", run.id, detail)
        elif wait.status == "timed_out" and not _is_past(wait.deadline, wait.closed_at):
            yield BrokenRow("I11", run.id, f"wait {wait.no} timed out early")


def _is_past(deadline: datetime | None, moment: datetime | None) -> bool:
    return deadline is not None and moment is not None and deadline <= moment


def _of_families(rows: Rows, runs: Mapping[RunId, Run]) -> Iterator[BrokenRow]:
    """I14: every row belongs to a run, and everything of a run, its children too, is in its workspace."""
    belongs: list[tuple[RunId, str | None, str]] = [
        *((wait.run_id, wait.workspace, f"wait {wait.no}") for wait in rows.waits),
        *((signal.run_id, signal.workspace, f"signal {signal.id}") for signal in rows.inbox),
        *((name.run_id, name.workspace, f"{name.kind} name {name.name}") for name in rows.names),
        *((entry.run_id, None, "queue entry") for entry in rows.queue),
        *((timer.run_id, None, f"timer {timer.no}") for timer in rows.timers),
        *((page.run_id, None, f"ledger page {page.seq}") for page in rows.pages),
        *((step.run_id, None, f"step {step.key}") for step in rows.steps),
        *((unit.run_id, None, f"unit {unit.no}") for unit in rows.units),
        *((item.run_id, None, f"item {item.item} of stream {item.section}") for item in rows.items),
    ]
    for run_id, workspace, what in belongs:
        run = runs.get(run_id)
        if run is None and run_id != NO_RUN:  # the name of an answer that is held belongs to none yet
            yield BrokenRow("I14", run_id, f"{what} belongs to no run")
        elif run is not None and workspace not in (None, run.workspace):
            yield BrokenRow("I14", run_id, f"{what} is in another workspace")
    for child in runs.values():
        parent = runs.get(child.parent_id) if child.parent_id is not None else None
        if parent is not None and parent.workspace != child.workspace:
            yield BrokenRow("I14", parent.id, f"child {child.id} is in another workspace")


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


def _of_ledger(
    run: Run, pages: list[LedgerPage], inbox: list[Signal], steps: list[StepRow], admitted: list[str]
) -> Iterator[BrokenRow]:
    pages = sorted(pages, key=lambda page: page.seq)
    account = Account(
        run_id=run.id,
        style=run.style,
        status=run.status,
        epoch=run.epoch,
        ledger_seq=run.ledger_seq,
        ledger_head=run.ledger_head,
        pages=[(page.seq, page.entries) for page in pages],
        unread=[signal.id for signal in inbox],
        kept=kept_of(run, steps),
        admitted=admitted,
    )
    for flaw in flaws(account):
        yield BrokenRow(flaw.invariant, run.id, flaw.detail)


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
    for wait in waits.values():
        if wait.status != "waiting" or wait.deadline is None:
            continue
        if wait.due_at is None or wait.due_at > wait.deadline:
            detail = f"wait {wait.no} has a deadline, and nobody would look at it by then"
            yield BrokenRow("I11", run.id, detail)
