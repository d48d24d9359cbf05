"""An answer and what else may happen to its wait, decided in either order: one of them wins, the other hears why
(D5, W7, W11, law 1)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import AnyCommand, Committed, CommitTurn, Denied, Done, Hold, NewWait, Receipt, Reply, Suspend
from bide.core.decide import decide_all
from bide.core.interactions import INTERACTION_MOVES
from bide.core.quorum import Given, Rule, weigh
from bide.core.records import OPEN_INTERACTION, Interaction, Run, Wait, interaction_id, run_of_interaction
from bide.core.requests import Agenda, Amend, Answer, Beat, ChangeWait, Fail, HandTask, NewTask, Withdraw
from tests.support.decisions import HOUR, NOW, RUN, WORKER, cancel, fire, parked, running, view_of, waiting_for

PAST = -timedelta(seconds=1)
YES, NO = '{"ok":true}', '{"ok":false}'


def task(due_in: timedelta | None = HOUR, **details: Any) -> Wait:
    return waiting_for(
        kind="task", key="gate", due_in=due_in, expected=1, details=msgspec.json.encode(details).decode()
    )


def interaction(**changes: Any) -> Interaction:
    row = Interaction(
        workspace="default",
        run_id=RUN,
        no=1,
        item=0,
        status="waiting",
        opened_at=NOW - HOUR,
        definition="order",
        step="gate",
        correlation_id="c",
    )
    return replace(row, **changes)


def asked(wait: Wait | None = None, run: Run | None = None, **row: Any) -> View:
    view = view_of(run or parked(style="workflow", step="body"), wait or task())
    view.outside.interactions[(RUN, 1, 0)] = interaction(**row)
    return view


def answer(data: str = YES, by: str | None = None, **changes: Any) -> Answer:
    command = Answer(
        workspace="default",
        run_id=RUN,
        no=1,
        item=0,
        target="int_1_1_0",
        message_id=f"msg_{by}_{data}",
        data=data,
        digest=data,
        by=by,
    )
    return replace(command, **changes)


def change(kind: Any, reason: str = "because") -> ChangeWait:
    return ChangeWait(workspace="default", run_id=RUN, no=1, change=kind, reason=reason)


def said(reply: Reply) -> str:
    return reply.outcome if isinstance(reply, Receipt) else type(reply).__name__


def row_of(view: View) -> Interaction:
    return view.outside.interactions[(RUN, 1, 0)]


def wait_of(view: View) -> Wait:
    return view.waits[(RUN, 1)]


def entries(view: View) -> list[str]:
    return [entry.name for entry in view.changes.entries.get(RUN, [])]


def consistent(view: View) -> bool:
    """An interaction is open exactly while its wait is, and the run goes on exactly when the wait has ended."""
    open_wait = wait_of(view).status == "waiting"
    return (row_of(view).status in OPEN_INTERACTION) == open_wait == (1 in view.runs[RUN].open_waits)


# ---------------------------------------------------------------- races


ENDS: dict[str, tuple[AnyCommand, str, str]] = {
    "timeout": (fire(), "timed_out", "late"),
    "fail": (change(Fail()), "failed", "late"),
    "cancel_wait": (change(Withdraw()), "cancelled", "no_target"),
    "cancel_run": (cancel(), "cancelled", "no_target"),
}


@pytest.mark.parametrize("name", ENDS)
def test_D5_an_answer_and_another_end_lead_to_one_outcome_in_either_order(name: str) -> None:
    end, status, refusal = ENDS[name]
    due_in = PAST if name == "timeout" else HOUR
    first = asked(task(due_in=due_in))
    told = decide_all(first, [answer(), end])
    assert (said(told[0]), wait_of(first).status, row_of(first).status) == ("woke", "completed", "completed")
    assert row_of(first).answer == YES
    second = asked(task(due_in=due_in))
    told = decide_all(second, [end, answer()])
    assert (said(told[1]), wait_of(second).status, row_of(second).status) == (refusal, status, status)
    assert row_of(second).answer is None
    for view in (first, second):
        assert consistent(view)
        assert entries(view).count("await_unit_completed") + entries(view).count("await_unit_terminal") == 1


def test_W11_the_last_two_answers_of_a_quorum_complete_it_once_in_either_order() -> None:
    for two in permutations([answer(YES, "ann"), answer(YES, "ben")]):
        view = asked(task(quorum=2, decides="ok"))
        told = decide_all(view, two)
        assert [said(reply) for reply in told] == ["queued", "woke"]
        assert entries(view).count("await_resume_released") == 1
        assert (wait_of(view).received, wait_of(view).expected) == (1, 1)
        assert len(msgspec.json.decode(row_of(view).answers)) == 2


def test_W11_an_answer_beyond_the_quorum_is_refused_and_counts_for_nothing() -> None:
    view = asked(task(quorum=2, decides="ok"))
    told = decide_all(view, [answer(YES, "ann"), answer(YES, "ben"), answer(NO, "cy"), answer(YES, "dan")])
    assert [said(reply) for reply in told] == ["queued", "woke", "conflict", "duplicate"]
    assert len(msgspec.json.decode(row_of(view).answers)) == 2


def test_S10_a_duplicate_of_an_answer_by_id_names_the_wait() -> None:
    view = asked()
    first, again = decide_all(view, [answer(dedup_key="k"), answer(dedup_key="k")])
    assert isinstance(first, Receipt)
    assert isinstance(again, Receipt)
    assert (again.outcome, again.wait_id) == ("duplicate", first.wait_id)
    assert first.wait_id is not None


def test_U8_the_same_answer_twice_in_one_batch_is_a_duplicate_and_another_a_conflict() -> None:
    view = asked()
    told = decide_all(view, [answer(YES), answer(YES), answer(NO)])
    assert [said(reply) for reply in told] == ["woke", "duplicate", "conflict"]
    assert [kept.reason for kept in view.changes.unused] == ["already_completed"]


def test_S12_an_answer_under_the_dedup_key_of_another_is_kept() -> None:
    view = asked()
    told = decide_all(view, [answer(YES, dedup_key="k"), answer(NO, dedup_key="k")])
    assert [said(reply) for reply in told] == ["woke", "conflict"]
    assert [(kept.payload, kept.reason) for kept in view.changes.unused] == [(NO, "dedup_conflict")]


@pytest.mark.parametrize(
    ("kind", "status", "cause", "outcome", "reason"),
    [
        ("signals", "cancelled", "operator", "no_target", "cancelled"),
        ("signals", "timed_out", "timeout", "late", "timed_out"),
        ("signal", "cancelled", "operator", "no_target", "not_found"),
        ("sleep", "waiting", None, "invalid", "invalid_payload"),
    ],
)
def test_S12_an_answer_that_a_wait_cannot_take_is_kept(
    kind: Any, status: Any, cause: str | None, outcome: str, reason: str
) -> None:
    names = () if kind == "sleep" else ("go",)
    view = view_of(parked(), waiting_for(*names, kind=kind, status=status, cause=cause))
    [reply] = decide_all(view, [answer(item=None, target="wait_1_1")])
    assert said(reply) == outcome
    assert [(kept.run_id, kept.target, kept.reason) for kept in view.changes.unused] == [(RUN, "wait_1_1", reason)]


def test_law1_an_answer_and_a_withdrawal_by_the_body_meet_in_either_order() -> None:
    withdraw = CommitTurn(
        workspace="default", run_id=RUN, parent_id=None, epoch=1, commits=0, move=Hold(), withdraws=(1,)
    )
    body = running(style="workflow", step="body", wait_no=1, open_waits=(1,))
    first = asked(run=body)
    first.offer = WORKER
    told = decide_all(first, [answer(), withdraw])
    assert (said(told[0]), isinstance(told[1], Committed), row_of(first).status) == ("woke", True, "completed")
    second = asked(run=body)
    second.offer = WORKER
    told = decide_all(second, [withdraw, answer()])
    assert (said(told[1]), row_of(second).status) == ("no_target", "cancelled")
    assert consistent(first)
    assert consistent(second)


def test_D4_an_answer_while_the_run_still_runs_is_there_when_it_suspends() -> None:
    """The question is committed before the turn ends; whoever commits second sees the other."""
    body = running(style="workflow", step="body", wait_no=1, open_waits=(1,))
    suspend = CommitTurn(
        workspace="default",
        run_id=RUN,
        parent_id=None,
        epoch=1,
        commits=0,
        move=Suspend(awaiting=(1,)),
        keep=False,
    )
    both: list[AnyCommand] = [answer(), suspend]
    for order in permutations(both):
        view = asked(run=body)
        decide_all(view, order)
        assert (view.runs[RUN].status, wait_of(view).status) == ("ready", "completed")


def test_D3_a_stale_turn_asks_nobody() -> None:
    """U7: never for a wait that was not committed."""
    new = NewWait(key="gate", kind="task", task=NewTask(), agenda=Agenda(), details='{"notify":"mail"}')
    stale = CommitTurn(
        workspace="default", run_id=RUN, parent_id=None, epoch=7, commits=0, move=Suspend(), opens=(new,)
    )
    view = view_of(running(style="workflow", step="body"))
    decide_all(view, [stale])
    assert view.outside.interactions == {}
    assert view.changes.chores == {}
    decide_all(view, [replace(stale, epoch=1)])
    assert list(view.outside.interactions) == [(RUN, 1, 0)]
    assert list(view.changes.chores) == ["notify:wait_1_1:opened:0"]


# ---------------------------------------------------------------- people


def test_H1_existence_comes_before_permission_and_permission_before_the_rest() -> None:
    closed = asked(task(due_in=PAST), assignee="ann")
    decide_all(closed, [fire()])
    told = decide_all(closed, [answer("7", "eve"), answer("7", "ann"), answer("7", "eve", workspace="other")])
    assert [said(reply) for reply in told] == ["Denied", "late", "no_target"]


def test_W11_a_claim_and_an_answer_of_another_meet_in_either_order() -> None:
    claim = HandTask(workspace="default", run_id=RUN, no=1, item=0, action="claim", by="ann")
    view = asked()
    assert [said(reply) for reply in decide_all(view, [claim, answer(by="ben")])] == ["Done", "Denied"]
    view = asked()
    told = decide_all(view, [answer(by="ben"), claim])
    assert (said(told[0]), told[1]) == ("woke", Done(False, "completed"))


def test_W9_an_escalation_ends_a_claim_and_moves_the_task() -> None:
    wait = replace(task(agenda=[(NOW, "group:leads")], assignee="ann"), due_at=NOW)
    view = asked(wait, assignee="ann", claimed_by="ann")
    told = decide_all(view, [fire(), answer(by="ann"), answer(by="lea", groups=("leads",))])
    assert [said(reply) for reply in told] == ["Done", "Denied", "woke"]
    assert (row_of(view).assignee, row_of(view).group) == (None, "leads")
    assert "agenda" not in msgspec.json.decode(wait_of(view).details)


def test_W10_a_moved_deadline_and_its_old_timer_meet_in_either_order() -> None:
    move = change(Amend(moves=True, deadline=HOUR))
    view = asked(task(due_in=PAST))
    decide_all(view, [move, fire()])
    assert (wait_of(view).status, wait_of(view).due_at) == ("waiting", NOW + HOUR)
    view = asked(task(due_in=PAST))
    told = decide_all(view, [fire(), move])
    assert (wait_of(view).status, told[1]) == ("timed_out", Done(False, "timed_out"))


def test_W13_a_heartbeat_and_the_silence_meet_in_either_order() -> None:
    wait = replace(task(heartbeat=600.0, silent_at=NOW), due_at=NOW)
    view = asked(wait)
    decide_all(view, [change(Beat()), fire()])
    assert (wait_of(view).status, wait_of(view).due_at) == ("waiting", NOW + timedelta(minutes=10))
    view = asked(wait)
    told = decide_all(view, [fire(), change(Beat())])
    assert (wait_of(view).status, told[1]) == ("failed", Done(False, "failed"))


def test_law8_another_workspace_changes_nothing() -> None:
    view = asked()
    foreign: list[AnyCommand] = [
        replace(answer(), workspace="other"),
        replace(change(Fail()), workspace="other"),
        HandTask(workspace="other", run_id=RUN, no=1, item=0, action="claim", by="ann"),
    ]
    assert [said(reply) for reply in decide_all(view, foreign)] == ["no_target", "Unknown", "Unknown"]
    assert view.changes.is_empty


# ---------------------------------------------------------------- laws of the parts


def test_a_final_interaction_is_never_left() -> None:
    """D5."""
    for status, moves in INTERACTION_MOVES.items():
        assert bool(moves) == (status in OPEN_INTERACTION)


@given(st.text(min_size=1, max_size=20), st.integers(1, 10**6), st.integers(0, 10**6))
def test_U7_an_interaction_id_names_its_run_wait_and_item(run: str, no: int, item: int) -> None:
    """U7: no look-up."""
    assert run_of_interaction(interaction_id(f"run_{run}", no, item)) == (f"run_{run}", no, item)


votes = st.lists(st.sampled_from([True, False, None, 1, "yes"]), max_size=12)


@given(votes, st.integers(2, 5), st.booleans(), st.one_of(st.none(), st.integers(5, 12)))
def test_W11_a_verdict_comes_once_and_is_what_it_says(
    given_votes: list[Any], quorum: int, veto: bool, most: int | None
) -> None:
    """Every answer after the verdict is one too many; before it, none of the reasons holds."""
    rule = Rule(quorum=quorum, decides="ok", veto=veto, most_answers=most)
    so_far: list[Given] = []
    for at, vote in enumerate(given_votes):
        so_far.append(
            Given(
                value=msgspec.Raw(msgspec.json.encode({"ok": vote})),
                by=str(at),
                at=NOW,
                digest="",
                receipt="",
            )
        )
        texts = [msgspec.json.encode(each) for each in given_votes[: at + 1]]
        verdict = weigh(rule, so_far)
        if verdict is None:
            assert max(texts.count(text) for text in texts) < quorum
            assert not (veto and b"false" in texts)
            continue
        match verdict.outcome:
            case "vetoed":
                assert veto
                assert vote is False
            case "agreed":
                assert texts.count(msgspec.json.encode(verdict.value)) == quorum
            case "undecided":
                assert most is not None
                assert max(texts.count(text) for text in texts) + most - len(texts) < quorum
            case _:
                pytest.fail(f"not with a field that decides: {verdict}")
        return


def test_a_denied_answer_is_in_the_ledger_and_changes_nothing_else() -> None:
    """G1."""
    view = asked(assignee="ann")
    [reply] = decide_all(view, [answer(by="eve")])
    assert isinstance(reply, Denied)
    assert entries(view) == ["await_answer_denied"]
    assert not view.outside.changes
