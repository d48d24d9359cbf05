"""Waits of a workflow and what meets them, decided in either order: each ends once (D4, D5, F5, laws 1, 2)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.agenda import terms
from bide.core.batch import View
from bide.core.commands import (
    AnyCommand,
    Committed,
    CommitTurn,
    Complete,
    Hold,
    Move,
    NewStep,
    NewWait,
    Receipt,
    StartAgain,
    Suspend,
    Unseen,
)
from bide.core.decide import decide_all
from bide.core.moves import signal_name
from bide.core.records import HEARING, Hearing, Run, Turn, Wait, hearing_of, live_seq, wait_seq
from bide.core.requests import Agenda, Amend, ChangeWait
from tests.support.decisions import (
    HOUR,
    NOW,
    RUN,
    WORKER,
    arrived,
    cancel,
    commit,
    fire,
    parked,
    running,
    signal,
    view_of,
    waiting_for,
)

PAST = -timedelta(seconds=1)


def wait(kind: str = "signal", **changes: Any) -> Wait:
    return waiting_for("a", **{"kind": kind, "key": "gate", **changes})


def view(run: Run, *rows: Any) -> View:
    made = view_of(replace(run, style="workflow"), *rows)
    for row in rows:
        if isinstance(row, Wait) and row.kind == "signal":
            name = signal_name(row, "open", NOW)
            made.names[("default", "signal", "a")] = name
    made.names.setdefault(("default", "signal", "a"), None)
    return made


def answer(data: str = "1", **changes: Any) -> Complete:
    command = Complete(
        workspace="default", signal_id="a", message_id="msg_a", data=data, digest="of it", run_id=RUN, no=1
    )
    return replace(command, **changes)


def turn(move: Move, **history: Any) -> CommitTurn:
    return replace(commit(move), **history)


def outcomes(replies: list[Any]) -> list[str]:
    return [reply.outcome for reply in replies if isinstance(reply, Receipt)]


# ---------------------------------------------------------------- turns that break off


def test_D4_a_turn_that_follows_one_that_broke_off_hears_what_that_would_have_heard() -> None:
    """D4, F8: it broke off where the newest commit is one that it meant to go on after."""
    there = view(running(wait_no=1, open_waits=(1,)), wait("sleep"))
    there.offer = WORKER
    began = Hearing(5, NOW - HOUR)
    decide_all(there, [turn(Hold(), hears=began)])
    row = there.changes.steps[(RUN, HEARING)]
    assert hearing_of(Turn(run=there.runs[RUN], stream_seq=9), row) == began
    decide_all(there, [turn(Suspend(awaiting=(1,)), commits=1)])
    assert there.runs[RUN].status == "waiting"
    assert hearing_of(Turn(run=there.runs[RUN], stream_seq=9), row) == Hearing(9, NOW)


# ---------------------------------------------------------------- reserved


def reached(before: Amend | None, **new: Any) -> Wait:
    """A wait that was reserved for ann, was changed by an operator, and is reached by the body."""
    reserved = wait(status="reserved", due_in=None, details='{"assignee":"ann","schema":{}}')
    there = view(running(wait_no=1, open_waits=(1,)), reserved)
    if before is not None:
        decide_all(there, [ChangeWait(workspace="default", run_id=RUN, no=1, change=before, reason="ann is ill")])
    details = msgspec.json.encode({"assignee": "cid", "title": "Well?"}).decode()
    opens = NewWait(key="gate", kind="signal", names=("a",), reaches=1, timeout=HOUR, details=details, **new)
    decide_all(there, [turn(Suspend(), opens=(opens,))])
    return there.waits[(RUN, 1)]


def test_W10_what_an_operator_said_of_a_reserved_wait_holds_when_the_body_reaches_it() -> None:
    plain = reached(None)
    assert (plain.status, plain.deadline) == ("waiting", NOW + HOUR)
    assert terms(plain) == {"assignee": "cid", "title": "Well?"}
    given = reached(Amend(assigns=True, assignee="bob"))
    assert (given.deadline, terms(given)) == (NOW + HOUR, {"assignee": "bob", "title": "Well?"})
    group = reached(Amend(assigns=True, group="ops"), agenda=Agenda(reminders=(HOUR / 2,)))
    assert {**terms(group), "agenda": None} == {"group": "ops", "title": "Well?", "agenda": None}
    anybody = reached(Amend(assigns=True))
    assert terms(anybody) == {"title": "Well?"}
    moved = reached(Amend(moves=True, deadline=3 * HOUR))
    assert (moved.deadline, moved.due_at, terms(moved)["assignee"]) == (NOW + 3 * HOUR, NOW + 3 * HOUR, "cid")


# ---------------------------------------------------------------- an answer and others


@pytest.mark.parametrize(("by", "actor", "outcome"), [
    (None, "link", "woke"),
    (None, "key:7", "denied"),
    ("bob", "key:7", "denied"),
    ("ann", "key:7", "woke"),
])  # fmt: skip
def test_W11_who_has_the_link_needs_no_name_and_others_do(by: str | None, actor: str, outcome: str) -> None:
    """W9, W11: the link is itself the permission, also after the wait was handed to somebody else."""
    there = view(parked(), wait(details='{"callback":true,"assignee":"ann","group":"ops"}'))
    [reply] = decide_all(there, [answer(by=by, actor=actor)])
    assert (reply.outcome if isinstance(reply, Receipt) else "denied") == outcome
    assert (there.runs[RUN].status == "ready") == (outcome == "woke")


def test_S10_a_duplicate_names_the_wait_that_took_the_answer_and_no_other() -> None:
    """S10: a later wait may have been known by the same signal id since."""
    there = view(parked(), wait())
    first, again = decide_all(there, [answer(dedup_key="k"), answer(dedup_key="k")])
    assert isinstance(first, Receipt)
    assert isinstance(again, Receipt)
    assert (again.outcome, again.wait_id, again.message_id) == ("duplicate", first.wait_id, first.message_id)

    later = wait(no=2, status="completed", closed_at=NOW + HOUR)
    there.waits[(RUN, 2)] = later
    there.names[("default", "signal", "a")] = signal_name(later, "closed", NOW + HOUR)
    [much_later] = decide_all(there, [answer(dedup_key="k", no=2)])
    assert isinstance(much_later, Receipt)
    assert (much_later.outcome, much_later.wait_id) == ("duplicate", None)


def test_D5_an_answer_before_the_timeout_wins_and_the_timer_does_nothing() -> None:
    there = view(parked(), wait(due_in=PAST))
    decide_all(there, [answer(), fire()])
    assert there.waits[(RUN, 1)].status == "completed"
    assert there.changes.steps[(RUN, "gate")].status == "done"  # type: ignore[union-attr]


def test_D5_an_answer_after_the_timeout_is_late() -> None:
    there = view(parked(), wait(due_in=PAST))
    replies = decide_all(there, [fire(), answer()])
    assert outcomes(replies) == ["late"]
    assert there.waits[(RUN, 1)].status == "timed_out"
    assert there.changes.steps[(RUN, "gate")].status == "timed_out"  # type: ignore[union-attr]


def test_D5_of_two_answers_in_one_batch_the_first_counts() -> None:
    there = view(parked(), wait())
    replies = decide_all(there, [answer("1"), answer("2")])
    assert outcomes(replies) == ["woke", "late"]
    assert there.changes.steps[(RUN, "gate")].result == "1"  # type: ignore[union-attr]


def test_W8_an_answer_after_a_cancel_has_no_target_and_before_it_changes_nothing_of_it() -> None:
    orders: list[tuple[list[AnyCommand], str]] = [([cancel(), answer()], "no_target"), ([answer(), cancel()], "woke")]
    for commands, said in orders:
        there = view(parked(), wait())
        assert outcomes(decide_all(there, commands)) == [said]
        assert there.runs[RUN].status == "cancelled"
        assert there.runs[RUN].open_waits == ()


def test_D4_an_answer_while_the_run_is_running_is_seen_by_its_suspension_in_either_order() -> None:
    both: list[AnyCommand] = [answer(), turn(Suspend(awaiting=(1,)))]
    for commands in permutations(both):
        there = view(running(wait_no=1, open_waits=(1,)), wait())
        decide_all(there, commands)
        assert there.runs[RUN].status == "ready"
        assert there.waits[(RUN, 1)].status == "completed"


def test_law_1_an_answer_and_a_withdrawal_end_the_wait_once_in_either_order() -> None:
    withdrawal = turn(Suspend(), withdraws=(1,), opens=(NewWait(key="other", kind="sleep"),))
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    assert outcomes(decide_all(there, [withdrawal, answer()])) == ["no_target"]
    assert (there.waits[(RUN, 1)].status, there.runs[RUN].status) == ("cancelled", "waiting")
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    assert outcomes(decide_all(there, [answer(), withdrawal])) == ["woke"]
    # The body did not see it: another turn, with the answer at hand, gives it back.
    assert (there.waits[(RUN, 1)].status, there.runs[RUN].status) == ("completed", "ready")


def test_law_1_a_withdrawn_receive_takes_no_signal() -> None:
    there = view(running(wait_no=1, open_waits=(1,)), wait("receive"))
    withdrawal = turn(Suspend(), withdraws=(1,), opens=(NewWait(key="other", kind="sleep"),))
    assert outcomes(decide_all(there, [withdrawal, signal(name="a")])) == ["queued"]
    assert there.runs[RUN].inbox_count == 1


def test_law_2_a_signal_before_or_after_a_receive_opens_completes_it() -> None:
    opening = turn(Suspend(), opens=(NewWait(key="gate", kind="receive", names=("a",)),))
    both: list[AnyCommand] = [signal(name="a"), opening]
    for commands in permutations(both):
        there = view(running())
        decide_all(there, commands)
        assert (there.runs[RUN].status, there.runs[RUN].inbox_count) == ("ready", 0)
        assert there.waits[(RUN, 1)].status == "completed"


def test_law_13_one_signal_completes_one_of_two_receives() -> None:
    opens = (NewWait(key="one", kind="receive", names=("a",)), NewWait(key="two", kind="receive", names=("a",)))
    there = view(running(), arrived(1, "a"))
    decide_all(there, [turn(Suspend(), opens=opens)])
    assert [there.waits[(RUN, no)].status for no in (1, 2)] == ["completed", "waiting"]


def unseen(*signals: Any, pack: bool = False) -> Unseen:
    told = [{"id": s.id, "name": s.name, "payload": 1, "received_at": s.received_at, "seq": s.seq} for s in signals]
    text = msgspec.json.encode(told if pack else told[0]).decode()
    return Unseen(key="gate", kind="receive", name="a", result=text, seq=1)


def test_law_1_a_signal_that_a_given_up_receive_took_unseen_goes_back_to_its_place() -> None:
    there = view(running(inbox_seq=1), arrived(2, "a"))
    opens = (NewWait(key="other", kind="sleep"),)
    decide_all(there, [turn(Suspend(), unseen=(unseen(arrived(1, "a")),), opens=opens)])
    assert list(there.inbox[RUN]) == [2, 1]
    assert there.inbox[RUN][1].payload == "1"
    assert (there.runs[RUN].status, there.runs[RUN].inbox_count) == ("waiting", 2)
    assert there.changes.steps[(RUN, "gate")] is None
    assert next(e.name for e in there.changes.entries[RUN]) == "signals_returned"


@pytest.mark.parametrize("opened", ["before", "in the same commit"])
def test_law_13_a_signal_that_goes_back_is_handed_to_another_wait_at_once(opened: str) -> None:
    other = NewWait(key="other", kind="receive", names=("a",))
    if opened == "before":
        there = view(running(wait_no=1, open_waits=(1,)), wait("receive", key="other"))
        decide_all(there, [turn(Suspend(awaiting=(1,)), unseen=(unseen(arrived(1, "a")),))])
    else:
        there = view(running())
        decide_all(there, [turn(Suspend(), unseen=(unseen(arrived(1, "a")),), opens=(other,))])
    assert (there.waits[(RUN, 1)].status, there.runs[RUN].status) == ("completed", "ready")
    assert there.runs[RUN].inbox_count == 0
    stored = there.changes.steps[(RUN, "other")]
    assert stored is not None
    assert stored.result is not None
    assert '"msg_1"' in stored.result


def test_S12_an_answer_that_a_given_up_wait_took_unseen_is_kept_for_an_operator() -> None:
    there = view(running())
    late = Unseen(key="gate", kind="signal", name="a", result="7", seq=wait_seq(5))
    decide_all(there, [turn(Suspend(), unseen=(late,), opens=(NewWait(key="other", kind="sleep"),))])
    [kept] = there.changes.unused
    assert (kept.target, kept.payload, kept.reason, kept.run_id) == ("a", "7", "withdrawn", RUN)
    assert there.changes.steps[(RUN, "gate")] is None


def test_S12_answers_of_one_step_that_nobody_saw_in_two_lives_are_kept_under_two_ids() -> None:
    ids = set()
    for life in (1, 2):
        there = view(running())
        late = Unseen(key="gate", kind="signal", name="a", result=str(life), seq=wait_seq(10 * life))
        decide_all(there, [turn(StartAgain(input="{}", forgets=("gate",), life=life), unseen=(late,))])
        [kept] = there.changes.unused
        ids.add(kept.id)
    assert len(ids) == 2


def test_F12_a_pack_is_taken_whole_when_enough_is_there_in_either_order() -> None:
    opening = turn(Suspend(), opens=(NewWait(key="gate", kind="receive", names=("a",), expected=2),))
    both: list[AnyCommand] = [signal("msg_2", name="a"), opening]
    for commands in permutations(both):
        there = view(running(inbox_seq=1), arrived(1, "a"))
        decide_all(there, commands)
        assert (there.runs[RUN].status, there.runs[RUN].inbox_count) == ("ready", 0)
        stored = there.changes.steps[(RUN, "gate")]
        assert stored is not None
        assert [told["id"] for told in msgspec.json.decode(stored.result or "")] == ["msg_1", "msg_2"]


def test_F12_a_pack_that_is_not_full_takes_nothing_and_stands_in_nobodys_way() -> None:
    opens = (
        NewWait(key="pack", kind="receive", names=("a", "b"), expected=2),
        NewWait(key="one", kind="receive", names=("a",)),
    )
    there = view(running())
    replies = decide_all(there, [turn(Suspend(), opens=opens), signal(name="b"), signal("msg_a", name="a")])
    assert outcomes(replies) == ["queued", "woke"]
    assert [there.waits[(RUN, no)].status for no in (1, 2)] == ["completed", "waiting"]
    there = view(running())
    replies = decide_all(there, [turn(Suspend(), opens=opens), signal(name="a"), signal("msg_a", name="a")])
    assert outcomes(replies) == ["woke", "queued"]
    assert [there.waits[(RUN, no)].status for no in (1, 2)] == ["waiting", "completed"]
    assert there.runs[RUN].inbox_count == 1


# ---------------------------------------------------------------- signal ids


def test_F5_an_id_that_is_withdrawn_can_be_taken_in_the_same_commit() -> None:
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    new = NewWait(key="again", kind="signal", names=("a",))
    [reply] = decide_all(there, [turn(Suspend(), withdraws=(1,), opens=(new,))])
    assert isinstance(reply, Committed)
    assert [there.waits[(RUN, no)].status for no in (1, 2)] == ["cancelled", "waiting"]
    name = there.names[("default", "signal", "a")]
    assert name is not None
    assert (name.message_id, name.digest) == ("2", "open")


def test_F5_a_collision_is_recorded_until_the_holders_wait_ends() -> None:
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    new = NewWait(key="again", kind="signal", names=("a",))
    decide_all(there, [turn(Suspend(awaiting=(1,)), opens=(new,))])
    assert there.waits[(RUN, 2)].status == "failed"
    assert outcomes(decide_all(there, [answer()])) == ["conflict"]
    assert outcomes(decide_all(there, [answer(only_run=RUN)])) == ["woke"]
    assert outcomes(decide_all(there, [answer()])) == ["late"]


def test_W3_a_refused_answer_is_in_the_ledger_and_leaves_the_wait_open() -> None:
    there = view(parked(), wait(details='{"schema":{"type":"integer"}}'))
    assert outcomes(decide_all(there, [answer('"x"'), answer("1")])) == ["invalid", "woke"]
    names = [entry.name for entry in there.changes.entries[RUN]]
    assert names[0] == "await_answer_rejected"


# ---------------------------------------------------------------- the order of replays


@pytest.mark.parametrize("ledger_seq", [1, 7, 10**9])
def test_F3_the_steps_of_a_turn_come_before_what_ended_during_it(ledger_seq: int) -> None:
    order = [
        wait_seq(ledger_seq),  # ended before the turn began
        live_seq(ledger_seq, 1),
        live_seq(ledger_seq, 10**6),
        wait_seq(ledger_seq + 1),  # ended during the turn
        live_seq(ledger_seq + 3, 1),  # of the next turn
    ]
    assert order == sorted(order)
    assert order[-1] < 2**63


def test_F1_a_step_is_stored_at_the_place_that_its_turn_gave_it() -> None:
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    step = NewStep(key="x", kind="run", status="done", seq=live_seq(4, 1), result="1")
    decide_all(there, [turn(Suspend(awaiting=(1,)), steps=(step,))])
    stored = there.changes.steps[(RUN, "x")]
    assert stored is not None
    assert (stored.seq, stored.result) == (live_seq(4, 1), "1")
