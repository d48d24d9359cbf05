"""Two things that meet at one run, decided in either order: nothing is lost, nothing happens twice (D3–D5, S3–S6)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import AnyCommand, Cancelled, Committed, Done, GiveBack, Move, Receipt, Reply, Stale, TryAgain
from bide.core.decide import decide_all
from bide.core.moves import join_of
from bide.core.records import FAILURES, FINAL, Run, RunError, RunStatus, Turn, Wait, failures_of
from bide.core.requests import Misfit
from tests.support.decisions import (
    HOUR,
    NOW,
    RUN,
    WORKER,
    arrived,
    cancel,
    commit,
    end,
    fire,
    go_on,
    park,
    parked,
    redo,
    running,
    signal,
    view_of,
    waiting_for,
)

PAST = -timedelta(seconds=1)


def decide(view: View, *commands: AnyCommand) -> list[Reply]:
    return decide_all(view, commands)


def wait_of(view: View, no: int = 1) -> Wait:
    return view.waits[(RUN, no)]


def inbox_of(view: View) -> list[str]:
    return [row.id for _, row in sorted(view.inbox.get(RUN, {}).items())]


def entries(view: View) -> list[str]:
    return [entry.name for entry in view.changes.entries.get(RUN, [])]


# ---------------------------------------------------------------- a signal and a park


def test_D4_a_signal_before_the_park_satisfies_it_in_the_same_commit() -> None:
    view = view_of(running())
    delivered, committed = decide(view, signal("msg_a"), commit(park("go")))
    assert isinstance(delivered, Receipt)
    assert delivered.outcome == "queued"
    assert isinstance(committed, Committed)
    assert (wait_of(view).status, wait_of(view).cause) == ("completed", "signal")
    assert (view.runs[RUN].status, view.runs[RUN].woken_by, view.runs[RUN].parked_on) == ("ready", 1, None)
    assert inbox_of(view) == ["msg_a"]


def test_D4_a_signal_after_the_park_wakes_it() -> None:
    view = view_of(running())
    _, delivered = decide(view, commit(park("go")), signal("msg_a"))
    assert delivered == Receipt(outcome="woke", run_id=RUN, wait_id="wait_1_1", message_id="msg_a")
    assert (wait_of(view).status, view.runs[RUN].status, view.runs[RUN].woken_by) == ("completed", "ready", 1)
    assert inbox_of(view) == ["msg_a"]


def test_D4_either_order_of_park_and_signal_leads_to_the_same_turn() -> None:
    first, second = view_of(running()), view_of(running())
    decide(first, signal("msg_a"), commit(park("go")))
    decide(second, commit(park("go")), signal("msg_a"))
    for view in (first, second):
        run = view.runs[RUN]
        assert (run.status, run.step, run.woken_by, run.attempt, run.inbox_count) == ("ready", "told", 1, 0, 1)


def test_S3_a_signal_of_another_name_satisfies_no_park_in_either_order() -> None:
    both: list[AnyCommand] = [signal(name="other"), commit(park("go"))]
    for commands in permutations(both):
        view = view_of(running())
        decide_all(view, commands)
        assert (view.runs[RUN].status, wait_of(view).status) == ("waiting", "waiting")
        assert view.runs[RUN].inbox_count == 1


def test_S4_the_second_of_two_signals_in_one_batch_is_queued_behind_the_wake() -> None:
    view = view_of(parked(), waiting_for("go"))
    replies = decide(view, signal("msg_a"), signal("msg_b"))
    assert [reply.outcome for reply in replies if isinstance(reply, Receipt)] == ["woke", "queued"]
    assert inbox_of(view) == ["msg_a", "msg_b"]
    assert entries(view).count("await_resume_released") == 1


def test_D4_a_signal_to_a_run_that_is_woken_and_not_yet_claimed_is_queued_for_that_turn() -> None:
    view = view_of(running(status="ready", step="told", woken_by=1), waiting_for("go", status="completed"))
    (reply,) = decide(view, signal())
    assert isinstance(reply, Receipt)
    assert reply.outcome == "queued"
    assert (view.runs[RUN].status, view.runs[RUN].woken_by) == ("ready", 1)


def test_a_wake_goes_to_the_worker_that_offers_a_slot_in_the_same_commit() -> None:
    view = view_of(parked(), waiting_for("go"), offer=WORKER)
    decide(view, signal())
    assert (view.runs[RUN].status, view.runs[RUN].epoch) == ("running", 2)
    assert list(view.granted) == [RUN]


# ---------------------------------------------------------------- what a park was handed (S6)


def test_S6_a_park_is_not_woken_by_what_its_step_was_handed() -> None:
    view = view_of(running(), arrived(1), arrived(2))
    decide(view, commit(park("go", seen=(1, 2))))
    assert (view.runs[RUN].status, wait_of(view).status) == ("waiting", "waiting")


def test_S6_a_signal_that_committed_out_of_order_still_wakes_the_park() -> None:
    view = view_of(running(), arrived(1), arrived(2), arrived(3))
    decide(view, commit(park("go", seen=(1, 3))))
    assert (wait_of(view).status, view.runs[RUN].woken_by) == ("completed", 1)


def test_S6_a_latecomer_that_the_parking_step_was_not_handed_satisfies_the_park_at_once() -> None:
    view = view_of(running(), arrived(1))
    decide(view, signal("msg_late"), commit(park("go", seen=(1,))))
    assert wait_of(view).status == "completed"
    assert inbox_of(view) == ["msg_1", "msg_late"]


def test_S6_being_handed_one_name_does_not_hide_a_new_signal_of_another() -> None:
    view = view_of(running(), arrived(1, "a"), arrived(2, "b"))
    decide(view, commit(park("a", "b", seen=(1,))))
    assert wait_of(view).status == "completed"


# ---------------------------------------------------------------- consumption (S5)


def test_S5_a_progressing_commit_deletes_exactly_what_it_was_handed() -> None:
    view = view_of(running(), arrived(1), arrived(2), arrived(3, "other"))
    decide(view, signal("msg_late"), commit(go_on(), arrived(1), arrived(2)))
    assert inbox_of(view) == ["msg_3", "msg_late"]
    assert view.runs[RUN].inbox_count == 2
    assert list(view.changes.inbox_deleted) == [(RUN, 1), (RUN, 2)]


@pytest.mark.parametrize("move", [park("go", seen=(1,)), redo(), redo(HOUR)])
def test_S5_a_park_and_a_redo_delete_nothing(move: Move) -> None:
    view = view_of(running(), arrived(1))
    decide(view, commit(move, arrived(1)))
    assert inbox_of(view) == ["msg_1"]
    assert not view.changes.inbox_deleted


def test_S5_a_spawn_deletes_what_it_was_handed() -> None:
    view = view_of(running(), arrived(1), arrived(2))
    decide(view, commit(replace(park(), joins=True), arrived(1)))
    assert inbox_of(view) == ["msg_2"]


def test_S5_an_end_clears_the_inbox_with_what_came_in_the_same_batch() -> None:
    view = view_of(running(), arrived(1, "other"))
    decide(view, signal("msg_late"), commit(end()))
    assert inbox_of(view) == []
    assert view.runs[RUN].inbox_count == 0
    assert list(view.changes.inbox_deleted) == [(RUN, 1)]
    assert not view.changes.inbox_inserted


# ---------------------------------------------------------------- a timeout and a signal


def test_D5_a_signal_before_the_timeout_wins_and_the_timer_does_nothing() -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST))
    delivered, fired = decide(view, signal(), fire())
    assert isinstance(delivered, Receipt)
    assert delivered.outcome == "woke"
    assert fired == Done(False, "wait is closed")
    assert (wait_of(view).status, wait_of(view).partial) == ("completed", ())


def test_D5_a_signal_after_the_timeout_loses_and_stays_in_the_inbox() -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST))
    fired, delivered = decide(view, fire(), signal("msg_late"))
    assert fired == Done(True)
    assert isinstance(delivered, Receipt)
    assert delivered.outcome == "queued"
    assert (wait_of(view).status, wait_of(view).partial) == ("timed_out", ())
    assert inbox_of(view) == ["msg_late"]


def test_S4_a_timeout_records_what_was_there_and_of_its_names_only() -> None:
    view = view_of(parked(), waiting_for("go", "also", due_in=PAST, seen=(1, 2)), arrived(1), arrived(2, "x"))
    decide(view, signal("msg_3", "x"), fire(), signal("msg_late"))
    assert wait_of(view).partial == (1,)


def test_a_timer_fires_once() -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST))
    replies = decide(view, fire(), fire())
    assert replies == [Done(True), Done(False, "wait is closed")]
    assert entries(view).count("await_resume_released") == 1


def test_a_timer_that_is_not_due_does_nothing() -> None:
    view = view_of(parked(), waiting_for("go"))
    assert decide(view, fire()) == [Done(False, "not due")]
    assert view.changes.is_empty


def test_law_1_the_timer_of_a_wait_that_is_closed_never_acts_on_the_next_one() -> None:
    first = waiting_for("go", status="completed", due_in=PAST)
    second = waiting_for("go", no=2)
    view = view_of(parked(wait_no=2, parked_on=2, open_waits=(2,)), first, second)
    assert decide(view, fire(1)) == [Done(False, "wait is closed")]
    assert wait_of(view, 2).status == "waiting"
    assert view.runs[RUN].status == "waiting"


def test_M4_a_timeout_leaves_the_attempt_alone() -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST))
    decide(view, fire())
    assert view.runs[RUN].attempt == 0


def test_W2_a_timeout_may_lead_to_another_step_or_fail_the_run() -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST, on_timeout="late"))
    decide(view, fire())
    assert (view.runs[RUN].status, view.runs[RUN].step) == ("ready", "late")
    view = view_of(parked(), waiting_for("go", due_in=PAST, on_timeout="!fail"))
    decide(view, fire())
    run = view.runs[RUN]
    assert run.status == "failed"
    assert msgspec.json.decode(run.error or "", type=RunError).code == "AWAIT_TIMEOUT"


@pytest.mark.parametrize("commands", list(permutations([signal(), fire(), cancel()])))
def test_D5_answer_timeout_and_cancel_in_any_order_close_the_wait_once(commands: list[AnyCommand]) -> None:
    view = view_of(parked(), waiting_for("go", due_in=PAST))
    decide_all(view, commands)
    wait = wait_of(view)
    expected = {"Deliver": "completed", "FireTimer": "timed_out", "Cancel": "cancelled"}
    assert wait.status == expected[type(commands[0]).__name__]
    assert sum(name in ("await_unit_completed", "await_unit_terminal") for name in entries(view)) == 1
    assert view.runs[RUN].status == "cancelled"
    assert inbox_of(view) == []


# ---------------------------------------------------------------- a cancel and a commit


@pytest.mark.parametrize("move", [go_on(), park("go"), redo(), redo(HOUR), end()])
def test_D3_a_commit_after_a_cancel_is_stale_and_changes_nothing(move: Move) -> None:
    view = view_of(running(), arrived(1))
    cancelled, committed = decide(view, cancel(), commit(move, arrived(1)))
    assert isinstance(cancelled, Cancelled)
    assert committed == Stale(RUN)
    run = view.runs[RUN]
    assert (run.status, run.commits, run.epoch) == ("cancelled", 0, 2)
    assert entries(view) == ["run_cancelled"]
    assert not view.changes.waits_inserted


def test_D5_a_cancel_after_the_end_is_told_so_and_changes_nothing() -> None:
    view = view_of(running())
    _, cancelled = decide(view, commit(end()), cancel())
    assert isinstance(cancelled, Cancelled)
    assert cancelled.already_final
    assert view.runs[RUN].status == "completed"
    assert entries(view) == ["run_completed"]


def test_D4_a_cancel_after_a_park_closes_its_wait_and_timer() -> None:
    view = view_of(running())
    decide(view, commit(park("go", timeout=HOUR)), cancel())
    assert (view.runs[RUN].status, wait_of(view).status) == ("cancelled", "cancelled")
    assert view.changes.timers[(RUN, 1)] is None
    assert view.runs[RUN].open_waits == ()


def test_D3_a_claim_from_before_a_clean_up_commits_nothing() -> None:
    view = view_of(running(cleanup_seconds=60.0))
    _, committed = decide(view, cancel(), commit(end()))
    assert committed == Stale(RUN)
    assert (view.runs[RUN].status, view.runs[RUN].step) == ("ready", "on_cancel")


def test_W8_a_clean_up_leaves_a_chore_for_the_children_of_each_open_join() -> None:
    """Of the joins, not of the run: the clean-up may have children of its own."""
    run = running(cleanup_seconds=60.0, wait_no=3, open_waits=(1, 2, 3), has_children=True)
    joins = [waiting_for(no=no, kind="children", expected=1) for no in (1, 3)]
    view = view_of(run, waiting_for("go", no=2), *joins)
    decide(view, cancel())
    chores = [chore for chore in view.changes.chores.values() if chore is not None]
    assert [(chore.kind, join_of(chore)) for chore in chores] == [("cancel_children", 1), ("cancel_children", 3)]
    assert {wait.status for wait in view.waits.values()} == {"cancelled"}


def test_W8_whatever_a_clean_up_says_the_run_ends_cancelled() -> None:
    view = view_of(running(cleanup_seconds=60.0, cancel_reason="enough", cancel_until=NOW + HOUR, step="on_cancel"))
    decide(view, commit(end()))
    assert view.runs[RUN].status == "cancelled"
    assert view.changes.timers[(RUN, 0)] is None


def test_M5_failures_in_a_row_are_counted_until_a_commit_that_is_none() -> None:
    """M4, M5: they are known by the commit that counted them, so that nothing has to forget them."""
    view = view_of(running(commits=7, attempt=3), offer=WORKER)
    failed = TryAgain(state="{}", delay=timedelta(0), error="OSError: down", failures=2)
    decide(view, commit(failed, commits=7, keep=True))
    run, row = view.runs[RUN], view.changes.steps[(RUN, FAILURES)]
    assert row is not None
    assert failures_of(Turn(run=run, steps=(row,))) == 2
    decide(view, commit(redo(), commits=8, keep=True))
    assert (view.runs[RUN].attempt, failures_of(Turn(run=view.runs[RUN], steps=(row,)))) == (5, 0)


@pytest.mark.parametrize("status", sorted(FINAL))
def test_S2_a_final_run_is_no_target_also_for_a_payload_that_does_not_fit(status: RunStatus) -> None:
    """S2, H1: 404 goes before 422."""
    unfit = signal(misfits=(Misfit("order", "1", "at $: expected an integer"),))
    final, live = view_of(running(status=status, ended_at=NOW)), view_of(running())
    [gone], [invalid] = decide(final, unfit), decide(live, unfit)
    assert isinstance(gone, Receipt)
    assert isinstance(invalid, Receipt)
    assert (gone.outcome, gone.reason, invalid.outcome) == ("no_target", status, "invalid")
    assert [kept.reason for kept in final.changes.unused] == [status]


# ---------------------------------------------------------------- stale commits


@pytest.mark.parametrize(
    "run",
    [
        running(epoch=2),
        running(commits=1),
        running(status="ready"),
        parked(),
        *(running(status=status) for status in sorted(FINAL)),
    ],
)
@pytest.mark.parametrize("move", [go_on(), park("go"), replace(park(), joins=True), redo(), end()])
def test_law_14_a_stale_commit_changes_no_row(run: Run, move: Move) -> None:
    view = view_of(run, arrived(1), *([waiting_for("go")] if run.open_waits else []))
    assert decide(view, commit(move, arrived(1))) == [Stale(RUN)]
    assert view.changes.is_empty
    assert inbox_of(view) == ["msg_1"]


def test_D3_a_commit_that_is_sent_twice_counts_once() -> None:
    view = view_of(running(), arrived(1), arrived(2), offer=WORKER)
    first, second = decide(view, commit(go_on(), arrived(1), keep=True), commit(go_on(), arrived(1), keep=True))
    assert isinstance(first, Committed)
    assert second == Stale(RUN)
    assert (view.runs[RUN].commits, view.runs[RUN].inbox_count) == (1, 1)


def test_D3_giving_back_a_claim_that_was_lost_changes_nothing() -> None:
    view = view_of(running(epoch=2))
    assert decide(view, GiveBack(workspace="default", run_id=RUN, epoch=1)) == [Stale(RUN)]
    assert view.changes.is_empty


def test_a_command_that_breaks_leaves_its_neighbours_alone() -> None:
    broken = signal("msg_broken", payload="\ud800")
    view = view_of(parked(), waiting_for("go"))
    replies = decide(view, signal("msg_a", "other"), broken, signal("msg_b"))
    assert [type(reply).__name__ for reply in replies] == ["Receipt", "Failed", "Receipt"]
    assert inbox_of(view) == ["msg_a", "msg_b"]
    assert wait_of(view).status == "completed"


# ---------------------------------------------------------------- attempts (M4)


@pytest.mark.parametrize("move", [go_on(), park("go"), replace(park(), joins=True)])
def test_M4_going_on_and_parking_reset_the_attempt(move: Move) -> None:
    view = view_of(running(attempt=3))
    decide(view, commit(move))
    assert view.runs[RUN].attempt == 0


def test_M4_a_redo_adds_one_and_keeps_the_wait_that_woke_it() -> None:
    view = view_of(running(attempt=3, woken_by=1), waiting_for("go", status="completed"), arrived(1))
    decide(view, commit(redo(), arrived(1)))
    run = view.runs[RUN]
    assert (run.attempt, run.woken_by, run.step, inbox_of(view)) == (4, 1, "begin", ["msg_1"])


def test_W1_a_timeout_counts_from_the_commit_that_opens_the_wait() -> None:
    view = view_of(running(created_at=NOW - 5 * HOUR))
    decide(view, commit(park("go", timeout=HOUR)))
    assert wait_of(view).deadline == NOW + HOUR
    timer = view.changes.timers[(RUN, 1)]
    assert timer is not None
    assert timer.due_at == NOW + HOUR


def test_M3_a_moment_given_as_timeout_is_kept_as_it_is_also_in_the_past() -> None:
    for moment in (NOW + HOUR, NOW - HOUR):
        view = view_of(running())
        decide(view, commit(park("go", timeout=moment)))
        assert wait_of(view).deadline == moment
