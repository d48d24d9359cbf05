"""Dedup keys, decided: within one batch, in both scopes, before finality (S7, S8)."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import Again, AnyCommand, DuplicateRun, Receipt, Reply, Start, Started
from bide.core.decide import decide_all
from bide.core.records import Name, Run, RunId
from tests.support.decisions import (
    NOW,
    RUN,
    arrived,
    by_key,
    cancel,
    commit,
    end,
    go_on,
    parked,
    running,
    signal,
    view_of,
    waiting_for,
)

OTHER = RunId("run_2")


def decide(view: View, *commands: AnyCommand) -> list[Reply]:
    return decide_all(view, commands)


def outcomes(view: View, *commands: AnyCommand) -> list[str]:
    return [reply.outcome for reply in decide(view, *commands) if isinstance(reply, Receipt)]


def keyed(**changes: object) -> Run:
    return running(correlation_key="order:1", **changes)


def held(view: View, key: str = "order:1", by: RunId = RUN) -> View:
    view.names[("default", "correlation", key)] = Name(
        workspace="default", kind="correlation", name=key, run_id=by, digest="", message_id="", created_at=NOW
    )
    return view


def start(run_id: RunId = OTHER, key: str | None = "order:1") -> Start:
    return Start(
        workspace="default",
        run_id=run_id,
        definition="order",
        version="1",
        style="machine",
        step="begin",
        input="null",
        correlation_key=key,
    )


def test_S7_a_dedup_key_twice_in_one_batch_is_admitted_once() -> None:
    view = view_of(parked(), waiting_for("go"))
    replies = decide(view, signal("msg_a", dedup_key="e1"), signal("msg_b", dedup_key="e1"))
    assert replies == [
        Receipt(outcome="woke", run_id=RUN, wait_id="wait_1_1", message_id="msg_a"),
        Receipt(outcome="duplicate", run_id=RUN, message_id="msg_a", duplicate=True),
    ]
    assert view.runs[RUN].inbox_count == 1


def test_S7_a_duplicate_changes_no_row() -> None:
    view = view_of(running())
    decide(view, signal("msg_a", dedup_key="e1"))
    before = view.runs[RUN]
    decide(view, signal("msg_b", dedup_key="e1"))
    assert view.runs[RUN] is before


def test_S7_another_payload_under_the_key_is_a_conflict_that_names_the_first() -> None:
    view = view_of(running())
    other = signal("msg_b", dedup_key="e1", digest="of something else")
    _, conflict = decide(view, signal("msg_a", dedup_key="e1"), other)
    assert conflict == Receipt(outcome="conflict", run_id=RUN, message_id="msg_a", reason="dedup_conflict")
    assert view.runs[RUN].inbox_count == 1


def test_S7_the_key_counts_per_name() -> None:
    view = view_of(running())
    assert outcomes(view, signal(name="a", dedup_key="e1"), signal(name="b", dedup_key="e1")) == ["queued", "queued"]


def test_S7_a_key_that_was_consumed_in_the_same_batch_is_still_a_duplicate() -> None:
    view = view_of(running())
    first, _, again = decide(
        view, signal("msg_1", dedup_key="e1"), commit(go_on(), arrived(1)), signal("msg_2", dedup_key="e1")
    )
    assert isinstance(first, Receipt)
    assert isinstance(again, Receipt)
    assert (first.outcome, again.outcome) == ("queued", "duplicate")
    assert view.runs[RUN].inbox_count == 0


def test_S7_a_duplicate_is_told_before_the_end_of_the_run_is() -> None:
    view = view_of(running())
    replies = decide(view, signal("msg_1", dedup_key="e1"), commit(end()), signal("msg_2", dedup_key="e1"))
    assert isinstance(replies[2], Receipt)
    assert replies[2].outcome == "duplicate"
    assert outcomes(view, signal("msg_3", dedup_key="e2")) == ["no_target"]


def test_S7_a_key_given_by_run_id_is_known_under_the_correlation_key_and_the_other_way_round() -> None:
    by_id, by_correlation = signal("msg_a", dedup_key="e1"), by_key("order:1", RUN, "msg_b", dedup_key="e1")
    assert outcomes(view_of(keyed()), by_id, by_correlation) == ["queued", "duplicate"]
    assert outcomes(view_of(keyed()), by_correlation, by_id) == ["queued", "duplicate"]


def test_S7_a_redelivery_by_correlation_key_never_enters_the_next_run_of_that_key() -> None:
    view = view_of(keyed())
    decide(view, by_key("order:1", RUN, "msg_a", dedup_key="e1"), commit(end()), start())
    (again,) = decide(view, by_key("order:1", OTHER, "msg_b", dedup_key="e1"))
    assert again == Receipt(outcome="duplicate", run_id=RUN, message_id="msg_a", duplicate=True)
    assert view.runs[OTHER].inbox_count == 0


def test_S7_a_redelivery_to_a_key_that_nobody_holds_any_more_is_a_duplicate() -> None:
    view = view_of(keyed())
    decide(view, by_key("order:1", RUN, "msg_a", dedup_key="e1"), commit(end()))
    assert outcomes(view, by_key("order:1", None, dedup_key="e1")) == ["duplicate"]
    assert outcomes(view, by_key("order:1", None, dedup_key="e2")) == ["no_target"]


def test_S7_the_next_run_of_a_key_has_dedup_keys_of_its_own_by_run_id() -> None:
    view = view_of(keyed())
    decide(view, signal("msg_a", dedup_key="e1"), commit(end()), start())
    (reply,) = decide(view, signal("msg_b", dedup_key="e1", target=OTHER, run_id=OTHER))
    assert isinstance(reply, Receipt)
    assert (reply.outcome, reply.run_id) == ("queued", OTHER)
    (again,) = decide(view, signal("msg_c", dedup_key="e1", target=OTHER, run_id=OTHER))
    assert again == Receipt(outcome="duplicate", run_id=OTHER, message_id="msg_b", duplicate=True)


def test_S7_a_dedup_key_that_two_runs_of_a_key_took_is_known_for_as_long_as_the_later_one_is() -> None:
    """By the first one's address it was known as the first one's alone, and forgotten with it."""
    view = view_of(keyed())
    decide(view, signal("msg_a", dedup_key="e1"), commit(end()), start())
    decide(view, signal("msg_b", dedup_key="e1", target=OTHER, run_id=OTHER))
    (again,) = decide(view, by_key("order:1", OTHER, "msg_c", dedup_key="e1"))
    assert again == Receipt(outcome="duplicate", run_id=OTHER, message_id="msg_b", duplicate=True)


def test_S7_of_two_payloads_under_one_dedup_key_the_first_stands_for_the_correlation_key() -> None:
    view = view_of(keyed())
    decide(view, by_key("order:1", RUN, "msg_a", dedup_key="e1"), commit(end()), start())
    decide(view, signal("msg_b", dedup_key="e1", target=OTHER, run_id=OTHER, payload="2", digest="other"))
    (again,) = decide(view, by_key("order:1", OTHER, "msg_c", dedup_key="e1"))
    assert again == Receipt(outcome="duplicate", run_id=RUN, message_id="msg_a", duplicate=True)


def test_law_8_a_dedup_key_of_another_workspace_says_nothing() -> None:
    elsewhere = running(id=OTHER, workspace="other")
    view = view_of(running(), elsewhere)
    replies = decide(
        view,
        signal(dedup_key="e1"),
        signal(dedup_key="e1", workspace="other", target=OTHER, run_id=OTHER),
        signal(workspace="other"),
    )
    assert [reply.outcome for reply in replies if isinstance(reply, Receipt)] == ["queued", "queued", "no_target"]


def test_S8_a_key_that_was_freed_between_look_up_and_lock_is_looked_up_again() -> None:
    view = held(view_of(keyed()))
    assert decide(view, commit(end()), by_key("order:1", RUN))[1] == Again()


def test_S8_a_key_kept_forever_answers_for_its_ended_run() -> None:
    view = held(view_of(keyed(correlation_scope="forever")))
    reply = decide(view, commit(end()), by_key("order:1", RUN))[1]
    assert reply == Receipt(outcome="no_target", run_id=RUN, reason="completed")


def test_S8_of_two_starts_in_one_batch_the_first_gets_the_key() -> None:
    view = view_of()
    first, second = decide(view, start(RUN), start(OTHER))
    assert isinstance(first, Started)
    assert second == DuplicateRun("order:1", RUN)
    assert OTHER not in view.runs


def test_S8_a_key_is_free_for_a_start_in_the_batch_of_the_end() -> None:
    for ending in (commit(end()), cancel()):
        view = held(view_of(keyed()))
        _, started = decide(view, ending, start())
        assert isinstance(started, Started)
        assert view.changes.names_inserted[("default", "correlation", "order:1")].run_id == OTHER


def test_S8_a_start_that_is_sent_twice_starts_one_run() -> None:
    view = view_of()
    first, second = decide(view, start(RUN), start(RUN))
    assert isinstance(first, Started)
    assert isinstance(second, Started)
    assert second.run.id == RUN
    assert len(view.changes.runs_inserted) == 1


def test_S8_children_of_one_commit_cannot_share_a_key() -> None:
    from bide.core.commands import NewChild, Park

    def child(run_id: str) -> NewChild:
        return NewChild(
            run_id=RunId(run_id),
            definition="order",
            version="1",
            style="machine",
            step="begin",
            input="null",
            correlation_key="k",
        )

    spawn = Park(step="told", state="{}", joins=True, children=(child("run_a"), child("run_b")))
    view = view_of(running())
    assert decide(view, commit(spawn)) == [DuplicateRun("k", RunId("run_a"))]
    assert view.changes.is_empty
    alone = replace(spawn, children=(child("run_a"),))
    decide(view, commit(alone))
    assert view.runs[RUN].status == "waiting"
