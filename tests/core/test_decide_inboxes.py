"""How full an inbox may be, decided (F48)."""

from __future__ import annotations

from bide.core.commands import Admit, DeliverMany, InboxFull, Receipt, Receipts
from bide.core.decide import decide_all
from bide.core.records import RunId
from tests.support.decisions import RUN, arrived, parked, running, signal, view_of, waiting_for

OTHER = RunId("run_2")


def test_F48_a_full_inbox_takes_no_more() -> None:
    view = view_of(running())
    first, second = signal("msg_1", room=1), signal("msg_2", room=1)
    replies = decide_all(view, [first, second])
    assert isinstance(replies[0], Receipt)
    assert replies[1] == InboxFull(RUN, 1)
    assert view.runs[RUN].inbox_count == 1
    assert not view.changes.unused, "whoever sent it still has it"


def test_F48_what_the_run_waits_for_is_taken_into_a_full_inbox() -> None:
    view = view_of(parked(), waiting_for("go"), arrived(1, "other"))
    replies = decide_all(view, [signal("msg_a", name="other", room=1), signal("msg_b", name="go", room=1)])
    assert replies[0] == InboxFull(RUN, 1)
    assert isinstance(replies[1], Receipt)
    assert replies[1].outcome == "woke"


def test_F48_a_repeat_is_told_as_one_although_the_inbox_is_full() -> None:
    view = view_of(running())
    first, again = signal("msg_1", dedup_key="e1", room=1), signal("msg_2", dedup_key="e1", room=1)
    replies = decide_all(view, [first, again])
    assert [reply.outcome for reply in replies if isinstance(reply, Receipt)] == ["queued", "duplicate"]


def test_F48_of_many_signals_none_is_taken_where_one_finds_no_room() -> None:
    view = view_of(running(), running(id=OTHER), arrived(1))
    deliveries = (signal("msg_a", target=OTHER, run_id=OTHER, room=1), signal("msg_b", room=1))
    [reply] = decide_all(view, [DeliverMany(workspace="default", deliveries=deliveries)])
    assert reply == InboxFull(RUN, 1)
    assert view.runs[OTHER].inbox_count == 0
    [reply] = decide_all(view, [DeliverMany(workspace="default", deliveries=deliveries[:1])])
    assert isinstance(reply, Receipts)


def test_F48_what_a_transaction_left_for_a_full_inbox_is_kept() -> None:
    """S12: its sender has gone."""
    view = view_of(running(), arrived(1))
    [reply] = decide_all(view, [Admit(workspace="default", intake_id="in_1", command=signal("msg_a", room=1))])
    assert isinstance(reply, Receipt)
    assert (reply.outcome, reply.reason) == ("no_target", "inbox_full")
    assert [(kept.id, kept.reason) for kept in view.changes.unused] == [("msg_a", "inbox_full")]
    assert view.changes.intake_deleted == ["in_1"]
