"""What is read of an inbox: what a decision needs of it, however much is there (F48)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import plan
from bide.core.commands import NewWait, Suspend, Unseen
from bide.core.records import Run, Wait
from bide.core.requests import Answer
from tests.support.decisions import RUN, commit, parked, running, signal, waiting_for

FULL: dict[str, Any] = {"style": "workflow", "inbox_count": 100_000}


def receiving(*names: str, **changes: Any) -> NewWait:
    return NewWait(key="next", kind="receive", names=names, **changes)


def opening(*waits: NewWait, **history: Any) -> plan.Reads:
    command = replace(commit(Suspend()), opens=waits, **history)
    return plan.reads([command], {RUN: running(**FULL)})


def arriving(name: str, wait: Wait, run: Run | None = None) -> set[plan.Named]:
    """What is read of the inbox when a signal comes to a run with this open wait."""
    wanted = plan.reads([signal(name=name)], {RUN: run or parked(**FULL)})
    assert not wanted.inboxes
    assert not wanted.oldest
    return plan.packs([wait], wanted)


def test_a_signal_for_a_wait_that_takes_one_reads_nothing_of_the_inbox() -> None:
    """Had one been there, the wait would not be open."""
    assert arriving("go", waiting_for("go", kind="receive")) == set()
    assert arriving("go", waiting_for("go", kind="receive", expected=1)) == set()


def test_a_signal_for_a_pack_reads_the_signals_that_the_pack_counts() -> None:
    pack = waiting_for("go", "come", kind="receive", expected=3)
    assert arriving("go", pack) == {(RUN, "go"), (RUN, "come")}
    assert arriving("other", pack) == set(), "it wakes nobody (S3)"
    assert arriving("go", pack, parked(style="workflow")) == set(), "the inbox is empty"
    assert arriving("go", replace(pack, status="timed_out")) == set()


def test_an_answer_to_a_wait_may_be_a_signal_for_any_pack_of_its_run() -> None:
    answer = Answer(
        workspace="default", run_id=RUN, no=1, item=None, target="wait_1_1", message_id="m", data="1", digest="d"
    )
    wanted = plan.reads([answer], {RUN: parked(**FULL)})
    assert plan.packs([waiting_for("go", kind="receive", expected=2)], wanted) == {(RUN, "go")}
    assert plan.packs([waiting_for("go", kind="receive")], wanted) == set()


def test_a_wait_that_opens_reads_the_oldest_of_its_names_and_two_waits_the_oldest_two() -> None:
    one, two = opening(receiving("go", "come")), opening(receiving("go"), receiving("go", "come"))
    assert one.oldest == {(RUN, "go"): 1, (RUN, "come"): 1}
    assert two.oldest == {(RUN, "go"): 2, (RUN, "come"): 1}
    assert not one.inboxes | two.inboxes


def test_a_pack_that_opens_reads_all_of_its_names() -> None:
    wanted = opening(receiving("go", expected=2))
    assert (plan.packs([], wanted), wanted.oldest, wanted.inboxes) == ({(RUN, "go")}, {}, set())


@pytest.mark.parametrize("kind", ["sleep", "signal", "event", "task"])
def test_a_wait_for_something_else_reads_nothing_of_the_inbox(kind: Any) -> None:
    wanted = opening(NewWait(key="next", kind=kind, names=("go",)))
    assert not wanted.inboxes
    assert not wanted.oldest
    assert not plan.packs([], wanted)


def test_who_looks_at_the_inbox_or_gives_back_what_was_taken_reads_it_whole() -> None:
    assert opening(receiving()).inboxes == {RUN}
    assert opening(unseen=(Unseen(key="old", kind="receive", name="go", result="{}", seq=1),)).inboxes == {RUN}


def test_M5_only_the_redo_of_a_machines_step_reads_how_often_it_failed() -> None:
    assert plan.turn_reads([running(attempt=1)]).histories == {RUN}
    assert plan.turn_reads([running()]).histories == set()


def test_S4_the_step_of_a_machine_is_handed_its_inbox_and_a_workflow_is_not() -> None:
    assert plan.turn_reads([running(inbox_count=3)]).inboxes == {RUN}
    assert plan.turn_reads([running(**FULL)]).inboxes == set()
