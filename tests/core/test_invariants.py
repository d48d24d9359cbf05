"""The audit of plain rows finds damage: each question that a SQL store asks is asked here too (D11)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import pytest
from msgspec.structs import replace

from bide.core import ledger
from bide.core.invariants import Rows, check
from bide.core.records import (
    NO_RUN,
    Chore,
    Interaction,
    Item,
    LedgerPage,
    Name,
    Record,
    Run,
    RunId,
    StepRow,
    Timer,
    Unit,
)
from bide.stores.memory import MemoryStore
from bide.stores.sqlite.statements import AUDITS
from tests.support.populated import WORKSPACE, Clock, populate

R = TypeVar("R", bound=Record)

NOW = Clock()()
SECOND = timedelta(seconds=1)
PARKED, DONE, RUNNING, READY = RunId("run_parked"), RunId("run_done"), RunId("run_running"), RunId("run_ready")


async def healthy() -> Rows:
    store = MemoryStore(now=Clock())
    await populate(store)
    return store.rows()


def run_of(record: Record) -> RunId:
    found: RunId = record.id if isinstance(record, Run) else record.run_id  # type: ignore[attr-defined]  # all but runs
    return found


def changed(records: Collection[R], of: RunId, /, **changes: Any) -> list[R]:
    assert any(run_of(record) == of for record in records)
    return [replace(record, **changes) if run_of(record) == of else record for record in records]


def without(records: Collection[R], run_id: RunId) -> list[R]:
    assert any(run_of(record) == run_id for record in records)
    return [record for record in records if run_of(record) != run_id]


def tell(rows: Rows, run_id: RunId, *entries: tuple[str, dict[str, Any]]) -> None:
    """Add entries to a ledger, each as a page of its own, with a chain that is whole."""
    for name, data in entries:
        [run] = [run for run in rows.runs if run.id == run_id]
        entry = ledger.append(run.ledger_head, run.ledger_seq + 1, NOW, name, "nobody", data)
        rows.pages = [*rows.pages, LedgerPage(run_id=run_id, seq=entry.seq, entries=ledger.encode_page([entry]))]
        rows.runs = changed(rows.runs, run_id, ledger_seq=entry.seq, ledger_head=entry.hash)


# ---------------------------------------------------------------- one damage for each question


def of_runs(of: RunId, /, **changes: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.runs = changed(rows.runs, of, **changes)

    return damage


def of_waits(of: RunId, /, **changes: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.waits = changed(rows.waits, of, **changes)

    return damage


def of_queue(of: RunId, /, **changes: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.queue = changed(rows.queue, of, **changes)

    return damage


def of_inbox(of: RunId, /, **changes: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.inbox = changed(rows.inbox, of, **changes)

    return damage


def of_ledger(run_id: RunId, *entries: tuple[str, dict[str, Any]]) -> Callable[[Rows], None]:
    return lambda rows: tell(rows, run_id, *entries)


def answer_is_held(rows: Rows) -> None:
    held = Name(
        workspace=WORKSPACE,
        kind="signal",
        name="gate",
        run_id=NO_RUN,
        digest="held",
        message_id="msg_1",
        created_at=NOW,
    )
    rows.names = [*rows.names, held]


def signal_is_kept(rows: Rows) -> None:
    rows.inbox = without(rows.inbox, PARKED)


def items_move(rows: Rows) -> None:
    rows.runs = changed(rows.runs, PARKED, style="pipeline")
    rows.items = [Item(run_id=PARKED, section=1, item=0, status="ready", stage=0, value="null")]


def interaction(run_id: RunId, status: Any) -> Interaction:
    return Interaction(
        workspace=WORKSPACE,
        run_id=run_id,
        no=1,
        item=0,
        status=status,
        opened_at=NOW,
        definition="order",
        step="begin",
        correlation_id="",
    )


def interactions(rows: Rows) -> None:
    rows.interactions = [interaction(DONE, "waiting")]


def correlation_key_is_freed(rows: Rows) -> None:
    rows.names = changed(rows.names, PARKED, run_id=DONE)


def nothing_left_open(rows: Rows) -> None:
    rows.timers = [*rows.timers, Timer(run_id=DONE, no=0, due_at=NOW)]


def ready_is_queued(rows: Rows) -> None:
    rows.queue = without(rows.queue, READY)


def no_early_timeout(rows: Rows) -> None:
    rows.waits = changed(rows.waits, DONE, status="timed_out", deadline=NOW + SECOND)


def deadline_is_looked_for(rows: Rows) -> None:
    rows.waits = changed(rows.waits, PARKED, due_at=None)
    rows.timers = without(rows.timers, PARKED)


def timers_agree(rows: Rows) -> None:
    rows.timers = changed(rows.timers, PARKED, due_at=NOW)


def pending_is_promised(rows: Rows) -> None:
    rows.units = [Unit(run_id=PARKED, no=1, expected=1, filled=True)]
    rows.interactions = [interaction(PARKED, "pending")]


def unit(**counts: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.units = [Unit(run_id=PARKED, no=1, **counts)]

    return damage


def a_name(kind: Any, digest: str, message_id: str) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        name = Name(
            workspace=WORKSPACE,
            kind=kind,
            name="gate",
            run_id=DONE,
            digest=digest,
            message_id=message_id,
            created_at=NOW,
        )
        rows.names = [*rows.names, name]

    return damage


def a_chore(id: str, kind: Any, run_id: RunId) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.chores = [Chore(id=id, run_id=run_id, kind=kind, data="{}", due_at=NOW, workspace=WORKSPACE)]

    return damage


def a_step(status: Any) -> Callable[[Rows], None]:
    def damage(rows: Rows) -> None:
        rows.steps = [StepRow(run_id=DONE, key="a", kind="run", status=status, seq=1)]

    return damage


def parts_belong_to_a_run(rows: Rows) -> None:
    rows.steps = [StepRow(run_id=RunId("run_nobody"), key="a", kind="run", status="done", seq=1)]


class Damage(NamedTuple):
    do: Callable[[Rows], None]
    says: str


PARENT = RunId("run_parent")
LATE = (("signal_received", {"id": "sig_late"}), ("signals_consumed", {"ids": ["sig_late"]}))

BREAKS = {
    "audit_i1_answer_is_held": Damage(answer_is_held, "an answer is held, and is not there"),
    "audit_i1_inbox_count": Damage(of_runs(PARKED, inbox_count=0), "says that 0 signals are unread, 1 are"),
    "audit_i1_signal_is_kept": Damage(signal_is_kept, "is kept, used or discarded 0 times"),
    "audit_i2_used_once": Damage(of_ledger(DONE, ("signals_consumed", {"ids": ["sig_go"]})), "was used up 2 times"),
    "audit_i3_handed_before_used": Damage(of_ledger(RUNNING, *LATE), "was used up by a turn that it came after"),
    "audit_i4_events_find_waits": Damage(of_waits(PARKED, kind="event"), "and no event would find it"),
    "audit_i4_items_move": Damage(items_move, "item 0 is ready, and nothing would move it"),
    "audit_i4_stream_releases": Damage(of_runs(PARKED, style="pipeline"), "waits for items, and none is left"),
    "audit_i4_signal_wakes": Damage(of_inbox(PARKED, name="payment"), "for a signal that is in its inbox"),
    "audit_i4_waits_for_something": Damage(of_runs(PARKED, parked_on=9), "waits for nothing"),
    "audit_i5_closed_once": Damage(of_ledger(DONE, ("await_unit_terminal", {"wait": 1})), "tells of 2 ends of wait 1"),
    "audit_i5_interactions": Damage(interactions, "is waiting, its wait is completed"),
    "audit_i5_open_waits": Damage(of_runs(PARKED, open_waits=()), "says that waits [] are open, [1] are"),
    "audit_i5_resolved_once": Damage(of_waits(DONE, cause=None), "yet its end or cause says otherwise"),
    "audit_i7_correlation_key_is_freed": Damage(correlation_key_is_freed, "which does not live"),
    "audit_i7_ended_once": Damage(of_ledger(DONE, ("run_completed", {"to": "completed"})), "tells of 2 ends"),
    "audit_i7_nothing_left_open": Damage(nothing_left_open, "yet something of it is open"),
    "audit_i7_only_a_cancel_is_passed_on": Damage(
        a_chore(f"cancel_children:{DONE}", "cancel_children", DONE), "yet its children are to be cancelled"
    ),
    "audit_i7_signal_id_is_freed": Damage(a_name("signal", "open", "1"), "signal id gate is open, wait 1 is not"),
    "audit_i8_epoch_fences": Damage(of_queue(RUNNING, epoch=7), "is at epoch 1, its queue entry at 7"),
    "audit_i8_epochs_grow": Damage(
        of_ledger(RUNNING, ("run_claimed", {"to": "running", "epoch": 1})), "was claimed at epoch 1 after 1"
    ),
    "audit_i9_ready_is_queued": Damage(ready_is_queued, "and the queue says otherwise"),
    "audit_i9_running_has_lease": Damage(of_queue(RUNNING, worker=None), "and its lease says otherwise"),
    "audit_i10_cancelled_ends_cancelled": Damage(of_runs(DONE, cancel_reason="why not"), "yet it ended as completed"),
    "audit_i10_nothing_after_a_cancel": Damage(
        of_ledger(RUNNING, ("run_cancelled", {"to": "cancelled"}), ("step_committed", {"to": "running"})),
        "was cancelled, and its ledger goes on with step_committed",
    ),
    "audit_i11_deadline_is_looked_for": Damage(deadline_is_looked_for, "nobody would look at it by then"),
    "audit_i11_no_early_timeout": Damage(no_early_timeout, "timed out early"),
    "audit_i11_timers_agree": Damage(timers_agree, "timer 1 and what it stands for differ"),
    "audit_i12_chores_have_an_owner": Damage(a_chore("dispatch:1", "dispatch", NO_RUN), "and its run is ''"),
    "audit_i12_pending_is_promised": Damage(pending_is_promised, "is pending, and nobody would send it"),
    "audit_i13_unit_counts": Damage(unit(expected=1, handed=1), "counts (1, 1, 0, 0) interactions"),
    "audit_i13_unit_releases": Damage(unit(filled=True), "wait 1 is waiting with 0 of 0"),
    "audit_i13_join_counts": Damage(of_waits(PARENT, received=0), "counted 0 ended children, 1 have ended"),
    "audit_i13_join_releases": Damage(of_waits(PARENT, received=2), "is waiting with 2 of 2"),
    "audit_i14_belongs_to_a_run": Damage(of_inbox(PARKED, run_id="run_nobody"), "signal sig_chat belongs to no run"),
    "audit_i14_parts_belong_to_a_run": Damage(parts_belong_to_a_run, "step a belongs to no run"),
    "audit_i14_one_workspace": Damage(of_waits(PARKED, workspace="other"), "wait 1 is in another workspace"),
    "audit_i15_admitted_is_told": Damage(a_name("dedup", "d", "sig_never"), "message sig_never is known as admitted"),
}


def test_every_question_of_a_sql_store_has_a_row_that_breaks_it() -> None:
    assert sorted(BREAKS) == sorted(AUDITS)


async def test_rows_that_nobody_touched_break_no_invariant() -> None:
    assert check(await healthy()) == []


@pytest.mark.parametrize("question", BREAKS)
async def test_the_audit_names_the_invariant_that_a_row_breaks(question: str) -> None:
    rows = await healthy()

    BREAKS[question].do(rows)

    invariant = question.split("_")[1].upper()
    told = [broken.detail for broken in check(rows) if broken.invariant == invariant]
    assert any(BREAKS[question].says in detail for detail in told), check(rows)


UNFIT = {
    "ended, and does not say when": (of_runs(DONE, ended_at=None), "I7"),
    "parked on nothing": (of_runs(PARKED, parked_on=None), "I7"),
    "held while it runs": (of_runs(RUNNING, held="poison"), "I7"),
    "a child of no wait": (of_runs(READY, parent_id=PARENT), "I7"),
    "more signals than came": (of_runs(PARKED, inbox_seq=0), "I7"),
    "a key for another while": (of_runs(PARKED, correlation_scope="never"), "I7"),
    "fewer attempts than none": (of_runs(RUNNING, attempt=-1), "I7"),
    "fewer claims than none": (of_runs(RUNNING, claims=-1), "I7"),
    "fewer commits than none": (of_runs(RUNNING, commits=-1), "I7"),
    "fewer waits than none": (of_runs(READY, wait_no=-1), "I7"),
    "a step that is nothing": (a_step("asleep"), "I7"),
    "a name that is nothing": (a_name("nickname", "", ""), "I7"),
    "closed, and looked for": (of_waits(DONE, due_at=NOW), "I5"),
    "more than was wanted": (of_waits(PARENT, received=9), "I5"),
}


@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_audit_names_rows_that_the_tables_of_sqlite_would_refuse(unfit: str) -> None:
    rows = await healthy()
    damage, invariant = UNFIT[unfit]

    damage(rows)

    assert any(broken.invariant == invariant and "says otherwise" in broken.detail for broken in check(rows))
