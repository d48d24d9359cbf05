"""Why a run stands where it stands, in sentences; each case is rows in, words out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bide.core.ages import relative, spoken, stamp
from bide.core.durations import LATEST
from bide.core.explaining import explain
from bide.core.ledger import Entry
from bide.core.parked import Facts
from bide.core.records import Interaction, Run, RunId, Signal, StepRow, Unit, Unused, Wait, earlier_pause_key, pause_key

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RUN = RunId("run_1")


def a_run(**changes: Any) -> Run:
    facts: dict[str, Any] = {
        "workspace": "default",
        "id": RUN,
        "definition": "order",
        "version": "1",
        "style": "machine",
        "status": "waiting",
        "step": "ship",
        "state": "{}",
        "input": "{}",
        "created_at": NOW - 9 * MINUTE,
        "updated_at": NOW - 3 * MINUTE,
        "ready_at": NOW - 9 * MINUTE,
        "epoch": 3,
        "commits": 1,
    }
    return Run(**{**facts, **changes})


def a_wait(**changes: Any) -> Wait:
    facts: dict[str, Any] = {
        "workspace": "default",
        "run_id": RUN,
        "no": 1,
        "key": "ship",
        "kind": "signals",
        "status": "waiting",
        "opened_at": NOW - 3 * MINUTE,
        "names": ("paid",),
        "deadline": NOW + 57 * MINUTE,
    }
    return Wait(**{**facts, **changes})


def a_signal(name: str, seq: int = 1) -> Signal:
    return Signal(
        workspace="default", run_id=RUN, seq=seq, id=f"msg_{seq}", name=name, payload="1", received_at=NOW - MINUTE
    )


def an_interaction(item: int, **changes: Any) -> Interaction:
    facts: dict[str, Any] = {
        "workspace": "default",
        "run_id": RUN,
        "no": 1,
        "item": item,
        "status": "waiting",
        "opened_at": NOW - 3 * MINUTE,
        "definition": "order",
        "step": "pay",
        "correlation_id": "cor_1",
    }
    return Interaction(**{**facts, **changes})


def an_entry(name: str, **data: Any) -> Entry:
    return Entry(1, int((NOW - 2 * MINUTE).timestamp() * 1_000_000), name, "worker:w-1", data, "")


def said(run: Run, *waits: Wait, **facts: Any) -> str:
    options = facts.pop("options", "")
    return "\n".join(explain(Facts(run, waits, **facts), NOW, options=options))


# ---------------------------------------------------------------- waiting


def test_a_waiting_run_says_for_what_since_when_until_when_and_what_then() -> None:
    words = said(a_run(), a_wait())
    assert "run_1 (order@1) is waiting for the signal 'paid' since 2030-01-01 11:57:00 UTC (3m ago)" in words
    assert "Its deadline is 2030-01-01 12:57:00 UTC (in 57m)" in words
    assert "goes on with step 'ship' all the same" in words


def test_it_says_how_to_answer_with_a_command_that_can_be_run() -> None:
    assert "bide signal run_1 paid '{}'" in said(a_run(), a_wait())


def test_a_correlation_key_is_the_better_address() -> None:
    assert "bide signal 'order 1' paid '{}'" in said(a_run(correlation_key="order 1"), a_wait())


def test_an_address_that_looks_like_an_option_is_kept_apart() -> None:
    words = said(a_run(correlation_key="-x"), a_wait(), options="--workspace eu")
    assert "bide signal --workspace eu -- -x paid '{}'" in words


def test_options_stand_behind_every_command() -> None:
    assert "bide signal run_1 paid '{}' --workspace eu" in said(a_run(), a_wait(), options="--workspace eu")


def test_it_says_who_can_answer() -> None:
    details = '{"title": "Has she paid?", "assignee": "ann", "group": "leads", "channel": "chat"}'
    words = said(a_run(), a_wait(details=details))
    assert "It asks: Has she paid?" in words
    assert "expected from ann, from group leads, by channel chat" in words


def test_a_wait_for_several_signals_names_them_all() -> None:
    words = said(a_run(), a_wait(names=("no", "yes")))
    assert "any of the signals 'no', 'yes'" in words
    assert "Or by: bide signal run_1 yes '{}'" in words


def test_each_timeout_policy_is_said() -> None:
    assert "the run fails with AWAIT_TIMEOUT" in said(a_run(), a_wait(on_timeout="!fail"))
    assert "goes on with step 'remind' instead" in said(a_run(), a_wait(on_timeout="remind"))


def test_W2_a_wait_of_a_machine_file_does_not_go_on_all_the_same() -> None:
    words = said(a_run(style="machine_file"), a_wait(kind="signal"))
    assert "its on_timeout flow runs, and without one it fails with AWAIT_TIMEOUT" in words
    assert "all the same" not in words
    assert "the sleep ends" in said(a_run(style="machine_file"), a_wait(kind="sleep", names=()))


def test_a_wait_without_a_deadline_says_that_nothing_else_will_move_it() -> None:
    for deadline in (None, LATEST):
        assert "It has no deadline: only an answer or a cancel" in said(a_run(), a_wait(deadline=deadline))
    assert "only the end of its children" in said(a_run(), a_wait(kind="children", names=(), deadline=None))


def test_a_deadline_that_passed_unnoticed_asks_for_a_worker() -> None:
    words = said(a_run(), a_wait(deadline=NOW - MINUTE))
    assert "Its deadline passed at 2030-01-01 11:59:00 UTC (1m ago)" in words
    assert "bide worker" in words


def test_closed_waits_are_not_spoken_of() -> None:
    closed = a_wait(no=1, status="timed_out", names=("ancient",), closed_at=NOW, cause="timeout")
    assert "ancient" not in said(a_run(), closed, a_wait(no=2))


def test_several_open_waits_are_all_named() -> None:
    words = said(a_run(), a_wait(), a_wait(no=2, kind="sleep", key="nap", names=()))
    assert "It is also waiting at 'nap'" in words


def test_a_run_that_waits_for_nothing_sends_to_the_audit() -> None:
    assert "bide audit" in said(a_run())


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        ("signal", "then SignalTimeoutError is raised at 'gate', unless its code gives a default there"),
        ("receive", "then WaitTimeoutError is raised at 'gate', unless its code gives a default there"),
        ("event", "then WaitTimeoutError is raised at 'gate', unless its code gives a default there"),
        ("task", "then WaitTimeoutError is raised at 'gate', unless its code gives a default there"),
        ("request", "then WaitTimeoutError is raised at 'gate', unless its code gives a default there"),
        ("children", "then RunTimeoutError is raised at 'gate', unless its code gives a default there."),
        ("sleep", "then the sleep ends and it goes on behind 'gate'."),
    ],
)
def test_W2_a_workflow_is_told_what_the_end_of_the_time_raises(kind: str, then: str) -> None:
    words = said(a_run(style="workflow"), a_wait(kind=kind, key="gate"))
    assert then in words
    assert "all the same" not in words


def test_W2_a_timer_of_the_body_goes_off() -> None:
    words = said(a_run(style="workflow"), a_wait(kind="sleep", names=(), key="asyncio.timer#2"))
    assert "a timer of its own (asyncio.sleep or asyncio.timeout)" in words
    assert "then that timer goes off." in words


def test_F12_a_pack_says_how_many_of_how_many_signals_are_there() -> None:
    pack = a_wait(kind="receive", key="pack", expected=3)
    words = said(a_run(style="workflow"), pack, inbox=[a_signal("paid", 1), a_signal("paid", 2)])
    assert "for 3 of the signal 'paid' at 'pack' since" in words
    assert "2 of 3 are there" in words
    assert "it is one of the 3 that 'pack' takes together (2 of them came)" in words
    assert "audit" not in words


def test_F12_a_pack_that_is_complete_should_have_woken_the_run() -> None:
    pack = a_wait(kind="receive", key="pack", expected=2)
    words = said(a_run(style="workflow"), pack, inbox=[a_signal("paid", 1), a_signal("paid", 2)])
    assert "should have woken the run and did not; run: bide audit" in words


def test_F4_a_wait_for_a_signal_id_says_what_it_asks_of_whom_and_who_answers() -> None:
    details = '{"title": "Sure?", "assignee": "ann", "schema": {"type": "boolean"}}'
    words = said(a_run(style="workflow"), a_wait(kind="signal", names=("gate-1",), details=details))
    assert "It asks: Sure?" in words
    assert "expected from ann" in words
    assert "with your answer in place of the example, by: bide complete gate-1 true --by ann" in words


def test_F9_a_callback_says_that_it_is_one_and_where_its_answer_goes() -> None:
    callback = a_wait(kind="signal", key="kyc", names=("callback:0af",), details='{"callback": true}')
    words = said(a_run(style="workflow"), callback, links={1: "https://shop.test/resume/t"})
    assert "is waiting for the answer to a callback at 'kyc' since" in words
    assert "posts the answer to its URL lets it go on: https://shop.test/resume/t" in words
    assert "by: bide answer wait_1_1 '{}'" in words
    assert "callback:0af" not in words


def test_F9_a_callback_whose_url_cannot_be_made_here_says_why() -> None:
    callback = a_wait(kind="signal", names=("callback:0af",), details='{"callback": true, "signed": "stripe"}')
    words = said(a_run(style="workflow"), callback)
    assert "can post the answer there if stripe signed it; it is not shown: the secrets" in words


def test_F7_what_is_reserved_comes_last_and_can_be_answered_early() -> None:
    early = a_wait(no=1, kind="signal", status="reserved", key="gate", names=("gate-1",), deadline=None)
    words = said(a_run(style="workflow"), early, a_wait(no=2, kind="sleep", key="nap", names=()))
    assert words.startswith("run_1 (order@1) is waiting at 'nap'")
    assert "It holds the signal id 'gate-1' for 'gate', which it has not reached" in words
    assert "bide complete gate-1" in words
    assert "no deadline" not in words


def test_F11_a_request_says_over_which_transport_and_how_to_answer_it() -> None:
    wait = a_wait(kind="request", key="pay", names=(), details='{"transport": "kafka", "schema": {"type": "integer"}}')
    words = said(a_run(style="workflow"), wait, interactions=[an_interaction(0)])
    assert "for the answer to a request over kafka at 'pay' since" in words
    assert (
        "In the provider's place answer it, with your answer in place of the example, by: bide answer int_1_1_0 1"
        in words
    )


def test_F11_many_requests_say_how_many_are_answered_and_until_when() -> None:
    wait = a_wait(kind="request", key="pay", names=(), deadline=None, details='{"items": true, "seconds": 3600}')
    unit = Unit(run_id=RUN, no=1, expected=5, handed=4, received=3, rejected=1, filled=True)
    words = said(a_run(style="workflow"), wait, units={1: unit}, interactions=[an_interaction(3)])
    assert "for answers to 5 requests over interaction-api at 'pay' since" in words
    assert "2 of 5 are answered, 1 came to nothing, 1 are not sent yet." in words
    assert "Answer one of them, with the answer as JSON in place of {}, by: bide answer int_1_1_3 '{}'" in words
    assert "Its deadline is 2030-01-01 12:57:00 UTC (in 57m); then WaitTimeoutError is raised at 'pay'" in words
    rejecting = a_wait(kind="request", deadline=None, details='{"items":true,"seconds":60,"on_item_timeout":"reject"}')
    words = said(a_run(style="workflow"), rejecting, interactions=[an_interaction(3)])
    assert "then the items that are out of time are rejected, and the others go on" in words


def test_U7_a_request_that_could_not_be_sent_says_so() -> None:
    dead = an_entry("chore_dead", chore="dispatch:wait_1_1:0", error="no such address")
    words = said(a_run(style="workflow"), a_wait(kind="request", details='{"transport": "kafka"}'), ledger=[dead])
    assert "It could not be sent: no such address; see: bide dead-letters" in words


def test_W11_a_task_says_who_has_answered_and_who_has_claimed_it() -> None:
    row = an_interaction(0, answers='[{"by": "ann"}]', claimed_by="bob")
    words = said(a_run(style="workflow"), a_wait(kind="task", names=(), details='{"quorum": 2}'), interactions=[row])
    assert "2 different people must answer, and 1 of 2 have (ann)." in words
    assert "bob has claimed it." in words
    assert "bide answer int_1_1_0 '{}' --by bob" in words


@pytest.mark.parametrize("key", [pause_key("print", 2), earlier_pause_key("print", 2)])
def test_F16_a_step_that_is_tried_again_says_why_and_when(key: str) -> None:
    error = '{"code": "StepFailed", "type": "ValueError", "message": "on fire"}'
    step = StepRow(run_id=RUN, key="print", kind="run", status="trying", seq=1, attempts=2, error=error)
    pause = a_wait(kind="sleep", key=key, names=())
    words = said(a_run(style="workflow"), pause, steps=[step])
    assert "is waiting to try step 'print' again since" in words
    assert "attempt 2 failed with ValueError: on fire." in words
    assert "Its deadline is 2030-01-01 12:57:00 UTC (in 57m); then attempt 3 of the step begins." in words


def test_F8_a_wildcard_event_is_emitted_under_a_name_that_fits() -> None:
    wait = a_wait(kind="event", key="e", names=("order.*",), details='{"match": "data.order == 7", "channel": "chat"}')
    words = said(a_run(style="workflow"), wait)
    assert "under any name that fits, by: bide emit order.example '{\"order\":7}' --channel chat" in words
    unclear = a_wait(kind="event", names=("a.b",), details='{"match": "data.n > 7"}')
    assert "with data of which that is true in place of {}, by: bide emit a.b '{}'" in said(
        a_run(style="workflow"), unclear
    )


def test_M6_a_join_that_is_out_of_time_says_what_becomes_of_the_children() -> None:
    words = said(a_run(), a_wait(kind="children", names=(), cancel_children=True))
    assert "and the rest of its children are cancelled." in words


def test_U4_a_pipeline_says_how_far_its_items_have_come() -> None:
    state = '{"section":1,"total":5,"done":2,"dropped":1,"rejected":1,"dead":1,"filled":true}'
    words = said(a_run(style="pipeline", state=state), a_wait(kind="items", key="report", names=(), deadline=None))
    assert "is waiting for its items at 'report' since" in words
    assert "3 of 5 are done, 1 rejected." in words
    assert "1 of them were given up, and wait for a person to retry or discard them: bide dead-letters" in words
    assert "goes on when every item has come to its end" in words


# ---------------------------------------------------------------- the inbox


def test_a_signal_of_another_name_says_why_it_wakes_nobody() -> None:
    words = said(a_run(), a_wait(), inbox=[a_signal("other")])
    assert "Signal 'other' (msg_1) came at 2030-01-01 11:59:00 UTC (1m ago): nothing waits for that name now" in words


def test_a_signal_that_the_step_was_handed_says_that_another_is_needed() -> None:
    words = said(a_run(), a_wait(seen=(1,)), inbox=[a_signal("paid")])
    assert "was handed it and chose to wait on" in words


def test_a_signal_that_should_have_woken_the_run_sends_to_the_audit() -> None:
    assert "should have woken the run and did not" in said(a_run(), a_wait(), inbox=[a_signal("paid")])


def test_many_signals_are_counted() -> None:
    inbox = [a_signal("other", seq) for seq in range(1, 9)]
    assert "3 more signals lie in the inbox" in said(a_run(), a_wait(), inbox=inbox)


def test_what_was_refused_is_told_with_its_reason() -> None:
    refused = Unused(
        workspace="default", id="msg_9", run_id=RUN, target=RUN, name="paid", payload="1", reason="completed", at=NOW
    )
    words = said(a_run(status="completed", ended_at=NOW), unused=[refused] * 7)
    assert "Signal 'paid' (msg_9) was refused at 2030-01-01 12:00:00 UTC (now): the run was completed already." in words
    assert "2 earlier arrivals were refused too" in words


# ---------------------------------------------------------------- children


def test_a_join_names_the_children_that_have_not_ended() -> None:
    wait = a_wait(kind="children", names=(), expected=3, received=1)
    children = [
        a_run(id=RunId("run_a"), status="completed", parent_id=RUN, parent_wait=1, ended_at=NOW),
        a_run(id=RunId("run_b"), status="waiting", parent_id=RUN, parent_wait=1),
        a_run(id=RunId("run_c"), status="ready", held="poison", parent_id=RUN, parent_wait=1),
        a_run(id=RunId("run_d"), status="waiting", parent_id=RUN, parent_wait=9),
    ]
    words = said(a_run(), wait, children=children)
    assert "is waiting for its 3 children" in words
    assert "1 of 3 have ended" in words
    assert "Child run_b (order) is waiting, step 'ship'." in words
    assert "Child run_c (order) is ready, held as poison" in words
    assert "run_a" not in words
    assert "run_d" not in words
    assert "bide explain run_b" in words


def test_a_child_and_a_retry_name_where_they_come_from() -> None:
    words = said(a_run(parent_id=RunId("run_p"), parent_wait=1, retry_of=RunId("run_o")), a_wait())
    assert "It is a child of run_p." in words
    assert "It retries run_o." in words


# ---------------------------------------------------------------- ready, held, running


def test_a_ready_run_that_nobody_takes_asks_for_a_worker_of_its_queue() -> None:
    words = said(a_run(status="ready", ready_at=NOW - 3 * MINUTE, queue="big"))
    assert "is ready to run step 'ship' since 2030-01-01 11:57:00 UTC (3m ago), in queue 'big'" in words
    assert "bide worker --queue big" in words
    assert "worker" not in said(a_run(status="ready", ready_at=NOW))


def test_a_delayed_run_says_why_it_waits() -> None:
    later = NOW + MINUTE
    assert "it was started with a delay" in said(a_run(status="ready", ready_at=later, commits=0))
    words = said(a_run(status="ready", ready_at=later), ledger=[an_entry("run_given_back")])
    assert "it lacks order@1" in words


def test_a_retried_step_tells_of_its_next_try_and_its_last_error() -> None:
    run = a_run(status="ready", attempt=2, ready_at=NOW + MINUTE)
    words = said(run, ledger=[an_entry("step_retried", error="ValueError: no")])
    assert "runs step 'ship' again at 2030-01-01 12:01:00 UTC (in 1m)" in words
    assert "tried 2 times so far; the last error, at 2030-01-01 11:58:00 UTC (2m ago), was ValueError: no" in words


def test_a_held_run_says_why_and_how_to_release_it() -> None:
    for held, why in (
        ("poison", "claimed 5 times in a row"),
        ("history_mismatch", "stored history do not fit"),
        ("stuck_thread", "ran past its time"),
    ):
        words = said(a_run(status="ready", held=held, claims=5), ledger=[an_entry("run_held", held=held)])
        assert f"is held as {held} since 2030-01-01 11:58:00 UTC (2m ago)" in words
        assert why in words
        assert "bide retry run_1" in words


def test_a_run_held_for_a_mismatch_says_what_was_found() -> None:
    """F17."""
    held = an_entry("run_held", held="history_mismatch", reason="step 'a' was a 'run' when it was stored")
    words = said(a_run(status="ready", held="history_mismatch"), ledger=[held])
    assert "What was found: step 'a' was a 'run' when it was stored." in words


def test_a_running_run_names_its_worker() -> None:
    words = said(a_run(status="running", claims=2), ledger=[an_entry("run_claimed", worker="w-1")])
    assert "is running step 'ship' by worker w-1 since 2030-01-01 11:58:00 UTC (2m ago), under claim 3" in words
    assert "claim number 2 without a commit" in words


def test_a_cancel_that_is_under_way_is_told() -> None:
    words = said(a_run(status="running", cancel_reason="too late", cancel_until=NOW + MINUTE))
    assert "It is being cancelled (too late): its clean-up goes on and may take until 2030-01-01 12:01:00 UTC" in words


# ---------------------------------------------------------------- ended


def test_every_end_says_how_it_ended() -> None:
    error = '{"code": "StepFailed", "message": "no", "step": "ship"}'
    ended: dict[str, Any] = {"ended_at": NOW - MINUTE}
    when = "2030-01-01 11:59:00 UTC (1m ago)"
    assert f"completed at {when} with the result [1]." in said(a_run(status="completed", result="[1]", **ended))
    assert f"completed at {when}." in said(a_run(status="completed", result="null", **ended))
    failed = said(a_run(status="failed", error=error, **ended))
    assert f"failed at {when} in step 'ship': StepFailed: no." in failed
    assert "bide retry run_1" in failed
    stopped = '{"code": "Stopped", "message": "enough"}'
    assert f"stopped at {when}: enough." in said(a_run(status="stopped", error=stopped, **ended))
    assert f"was cancelled at {when}: why not." in said(a_run(status="cancelled", cancel_reason="why not", **ended))


def test_a_long_result_is_cut_short() -> None:
    words = said(a_run(status="completed", ended_at=NOW, result=f'"{"x" * 1000}"'))
    assert len(words) < 400


# ---------------------------------------------------------------- ages


def test_ages_are_said_as_people_say_them() -> None:
    for duration, words in (
        (timedelta(0), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(minutes=3, seconds=40), "3m"),
        (timedelta(hours=2, minutes=5), "2h 5m"),
        (timedelta(hours=2, seconds=5), "2h"),
        (timedelta(days=4, hours=3), "4d 3h"),
        (timedelta(days=400), "400d"),
    ):
        assert spoken(duration) == spoken(-duration) == words
    assert relative(NOW - MINUTE, NOW) == "1m ago"
    assert relative(NOW + MINUTE, NOW) == "in 1m"
    assert relative(NOW, NOW) == "now"
    assert relative(LATEST, NOW) == "never"
    assert stamp(NOW) == "2030-01-01 12:00:00 UTC"
