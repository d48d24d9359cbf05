"""Events and what meets them at one run, decided in either order (D4, D5, F8, S7, laws 1, 2)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import AnyCommand, CommitTurn, Emit, EventReceipt, Listening, NewWait, Start, Suspend
from bide.core.decide import decide_all
from bide.core.explaining import explain
from bide.core.meetings import Hearing, listener_of
from bide.core.parked import Facts
from bide.core.records import Listener, Run, RunId, Wait
from tests.support.decisions import NOW, RUN, cancel, commit, fire, parked, running, view_of, waiting_for

PAST = -timedelta(seconds=1)
LISTENING = Listening(match="data.order == 1")


def wait(**changes: Any) -> Wait:
    return waiting_for("order.shipped", **{"kind": "event", "key": "shipped", **changes})


def view(run: Run, *waits: Wait) -> View:
    """What a store would have loaded, the stream taken."""
    made = view_of(replace(run, style="workflow"), *waits)
    made.stream.seqs["default"] = 0
    return made


def emit(id: str = "evt-1", data: str = '{"order":1}', **changes: Any) -> Emit:
    command = Emit(workspace="default", event_id=id, name="order.shipped", data=data, digest=data)
    return replace(command, **changes)


def hitting(*nos: int, **changes: Any) -> Emit:
    return emit(hits=tuple((RUN, no) for no in nos), **changes)


def opening(**changes: Any) -> CommitTurn:
    new = NewWait(key="shipped", kind="event", names=("order.shipped",), listening=LISTENING)
    return replace(commit(Suspend()), opens=(new,), **changes)


def receipts(replies: list[Any]) -> list[tuple[str, int]]:
    return [(reply.outcome, reply.resumed) for reply in replies if isinstance(reply, EventReceipt)]


# ---------------------------------------------------------------- an event and a park


def test_law_2_an_event_and_the_wait_for_it_meet_in_either_order_of_one_batch() -> None:
    both: list[AnyCommand] = [emit(), opening()]
    for commands in permutations(both):
        there = view(running())
        decide_all(there, commands)
        assert (there.runs[RUN].status, there.waits[(RUN, 1)].status) == ("ready", "completed")
        assert there.waits[(RUN, 1)].cause == "event"
        assert there.changes.listeners.get((RUN, 1)) is None


def test_F8_an_event_that_does_not_match_meets_nobody_in_either_order() -> None:
    both: list[AnyCommand] = [emit(data='{"order":2}'), opening()]
    for commands in permutations(both):
        there = view(running())
        assert receipts(decide_all(there, commands)) == [("queued", 0)]
        assert (there.runs[RUN].status, there.waits[(RUN, 1)].status) == ("waiting", "waiting")
        assert isinstance(there.changes.listeners[(RUN, 1)], Listener)


def test_D4_an_event_while_the_run_is_running_is_seen_by_its_suspension_in_either_order() -> None:
    both: list[AnyCommand] = [hitting(1), commit(Suspend(awaiting=(1,)))]
    for commands in permutations(both):
        there = view(running(wait_no=1, open_waits=(1,)), wait())
        assert receipts(decide_all(there, commands)) == [("woke", 1)]
        assert (there.runs[RUN].status, there.waits[(RUN, 1)].status) == ("ready", "completed")


# ---------------------------------------------------------------- an event and the end of its wait


def test_D5_an_event_and_a_timeout_end_the_wait_once_in_either_order() -> None:
    orders: list[tuple[list[AnyCommand], str, int]] = [
        ([hitting(1), fire()], "completed", 1),
        ([fire(), hitting(1)], "timed_out", 0),
    ]
    for commands, ended, resumed in orders:
        there = view(parked(), wait(due_in=PAST))
        assert receipts(decide_all(there, commands)) == [("woke" if resumed else "queued", resumed)]
        assert (there.waits[(RUN, 1)].status, there.runs[RUN].status) == (ended, "ready")
        assert there.changes.listeners[(RUN, 1)] is None


def test_W8_an_event_and_a_cancel_leave_nothing_open_in_either_order() -> None:
    both: list[AnyCommand] = [hitting(1), cancel()]
    for commands in permutations(both):
        there = view(parked(), wait())
        decide_all(there, commands)
        assert (there.runs[RUN].status, there.runs[RUN].open_waits) == ("cancelled", ())
        assert there.changes.listeners[(RUN, 1)] is None


def test_law_1_an_event_and_a_withdrawal_end_the_wait_once_in_either_order() -> None:
    withdrawal = replace(commit(Suspend()), withdraws=(1,), opens=(NewWait(key="other", kind="sleep"),))
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    assert receipts(decide_all(there, [withdrawal, hitting(1)])) == [("queued", 0)]
    assert (there.waits[(RUN, 1)].status, there.runs[RUN].status) == ("cancelled", "waiting")
    there = view(running(wait_no=1, open_waits=(1,)), wait())
    assert receipts(decide_all(there, [hitting(1), withdrawal])) == [("woke", 1)]
    assert there.waits[(RUN, 1)].status == "completed"


def test_D5_of_two_events_in_one_batch_the_first_counts() -> None:
    there = view(parked(), wait())
    replies = decide_all(there, [hitting(1), hitting(1, id="evt-2", data='{"order":1,"no":2}')])
    assert receipts(replies) == [("woke", 1), ("queued", 0)]
    row = there.changes.steps[(RUN, "shipped")]
    assert row is not None
    assert row.result is not None
    assert '"id":"evt-1"' in row.result
    assert [event.seq for event in there.changes.events] == [1, 2]


# ---------------------------------------------------------------- repeats and workspaces


def test_S7_a_repeat_in_the_same_batch_changes_nothing() -> None:
    start = Start(
        workspace="default",
        run_id=RunId("run_2"),
        definition="order",
        version="1",
        style="workflow",
        step="body",
        input="1",
    )
    there = view(parked(), wait())
    commands = [hitting(1, starts=(start,)), hitting(1, starts=(replace(start, run_id=RunId("run_3")),))]
    first, second = decide_all(there, commands)
    assert first == EventReceipt(outcome="woke", id="evt-1", started=1, resumed=1)
    assert second == EventReceipt(outcome="duplicate", id="evt-1", started=1, resumed=1, duplicate=True)
    assert set(there.changes.runs_inserted) == {"run_2"}
    assert len(there.changes.events) == 1


def test_S7_the_same_id_with_other_data_is_refused_and_kept() -> None:
    there = view(parked(), wait())
    decide_all(there, [emit(data="1")])
    assert receipts(decide_all(there, [hitting(1, data="2")])) == [("conflict", 0)]
    assert [row.reason for row in there.changes.unused] == ["dedup_conflict"]
    assert there.waits[(RUN, 1)].status == "waiting"


def test_law_8_an_event_of_another_workspace_completes_nothing_even_where_it_is_aimed() -> None:
    there = view(parked(), wait())
    there.stream.seqs["other"] = 0
    assert receipts(decide_all(there, [hitting(1, workspace="other")])) == [("queued", 0)]
    assert there.waits[(RUN, 1)].status == "waiting"


def test_F8_who_may_want_an_event_is_looked_up_by_topic_and_equality() -> None:
    listener = listener_of(wait(), LISTENING)
    lookups = set(Hearing(emit()).lookups())
    assert ("default", listener.topic, listener.eq) in lookups
    assert ("default", listener.topic, "") in lookups
    assert ("default", listener.topic, listener.eq) not in set(Hearing(emit(data='{"order":2}')).lookups())


# ---------------------------------------------------------------- what people are told


def test_a_run_that_waits_for_an_event_says_which_and_how_to_emit_it() -> None:
    """Contract §11, law 12."""
    asked = wait(details='{"match":"data.order == 1","channel":"webhook"}')
    said = " ".join(explain(Facts(replace(parked(), style="workflow"), [asked]), NOW))
    assert "for an event 'order.shipped' of which data.order == 1 is true by channel webhook" in said
    assert """bide emit order.shipped '{"order":1}' --channel webhook""" in said
    wide = " ".join(explain(Facts(replace(parked(), style="workflow"), [wait(names=("order.*",))]), NOW))
    assert "for an event 'order.*'" in wide
    assert "bide emit order.example" in wide
