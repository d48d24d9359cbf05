"""`start`, `signal`, `cancel` and `retry`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Bide

# ---------------------------------------------------------------- start


def test_start_prints_the_id_of_the_new_run_and_nothing_else(bide: Bide) -> None:
    answer = bide("start", "order", '{"order": 1}')
    assert answer.code == 0
    assert answer.err == ""
    assert bide("show", answer.out.strip(), "--json").json["input"] == {"order": 1}


def test_start_takes_key_tags_and_delay(bide: Bide) -> None:
    info = bide(
        "start", "order", "--correlation-key", "order:1", "--tag", "a=b", "--tag", "c=d=e", "--delay", "1h", "--json"
    ).json
    assert info["correlation_key"] == "order:1"
    assert info["tags"] == {"a": "b", "c": "d=e"}
    bide.work_off()
    assert bide("show", info["id"], "--json").json["status"] == "ready"


def test_start_reads_the_input_from_a_file_or_from_stdin(bide: Bide) -> None:
    Path("input.json").write_text('{"from": "file"}')
    assert bide("start", "order", "@input.json", "--json").json["input"] == {"from": "file"}
    assert bide("start", "order", "-", "--json", stdin=b'{"from": "stdin"}').json["input"] == {"from": "stdin"}


def test_start_with_wait_prints_the_result(bide: Bide) -> None:
    bide.worker()
    answer = bide("start", "echo", '{"a": [1, 2]}', "--wait", "50s")
    assert (answer.code, answer.out) == (0, '{"a":[1,2]}\n')


def test_wait_without_a_time_may_stand_before_the_input(bide: Bide) -> None:
    bide.worker()
    info = bide("start", "echo", "--wait", "7", "--json").json
    assert (info["input"], info["status"], info["result"]) == (7, "completed", 7)


def test_start_with_wait_says_how_a_run_failed_in_one_line(bide: Bide) -> None:
    bide.worker()
    answer = bide("start", "broken", "--wait")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: run run_")
    assert answer.err.endswith("failed: StepFailed: no luck at all\n")


def test_start_with_wait_gives_up_after_its_time_and_the_run_goes_on(bide: Bide) -> None:
    answer = bide("start", "echo", "1", "--wait", "10ms", "--json")
    assert (answer.code, answer.error["code"]) == (1, "run_timeout")
    assert len(bide("runs", "--json").json["items"]) == 1


def test_an_unknown_definition_is_refused_with_those_there_are(bide: Bide) -> None:
    answer = bide("start", "ordre")
    assert answer.code == 1
    assert "no definition is called 'ordre'" in answer.err
    assert "order" in answer.err


def test_a_taken_correlation_key_is_refused_naming_its_holder(bide: Bide) -> None:
    holder = bide("start", "order", "--correlation-key", "order:1").out.strip()
    answer = bide("start", "order", "--correlation-key", "order:1", "--json")
    assert (answer.code, answer.error["code"]) == (1, "duplicate_run")
    assert holder in answer.error["message"]


def test_start_refuses_what_it_cannot_read_as_usage(bide: Bide) -> None:
    for arguments, said in (
        (["order", "{order: 1}"], "the input is not JSON"),
        (["order", '{"a": 1, "a": 2}'], "the input is not JSON"),
        (["order", "@missing.json"], "the input cannot be read from 'missing.json'"),
        (["order", "--delay", "soon"], "--delay: 'soon' cannot be used as a duration"),
        (["order", "--wait=soon"], "--wait: 'soon' cannot be used as a duration"),
        (["order", "--tag", "a"], "--tag 'a': write it as name=value"),
        (["order", "1", "2"], "got unexpected extra argument"),
        (["order", "--colour", "red"], "no such option: --colour"),
        ([], "missing argument 'DEFINITION'"),
    ):
        answer = bide("start", *arguments)
        assert (answer.code, answer.out) == (2, ""), arguments
        assert answer.err.startswith(f"error: {said}"), answer.err
        assert answer.err.count("\n") == 1


def test_an_input_over_the_limit_is_refused(bide: Bide) -> None:
    answer = bide("start", "echo", "-", "--json", stdin=b'"' + b"x" * 600_000 + b'"')
    assert (answer.code, answer.error["code"]) == (1, "payload_too_large")


def test_start_without_an_app_says_how_to_name_one(bide: Bide) -> None:
    answer = bide("start", "order", "--app", "")
    assert answer.code == 2
    assert "--app module:app" in answer.err


# ---------------------------------------------------------------- signal


def test_a_signal_that_is_awaited_wakes_the_run(bide: Bide) -> None:
    run_id = bide.start("order", "--correlation-key", "order:1")
    answer = bide("signal", "order:1", "paid", '{"amount": 100}')
    assert (answer.code, answer.out) == (0, f"woke: {run_id} was waiting for it and goes on\n")
    bide.work_off()
    assert bide("show", run_id, "--json").json["result"] == {"paid": {"amount": 100}}


def test_a_signal_that_nobody_awaits_yet_is_kept(bide: Bide) -> None:
    run_id = bide.start("order")
    receipt = bide("signal", run_id, "other", "--json").json
    assert (receipt["outcome"], receipt["run_id"]) == ("queued", run_id)


def test_a_dedup_key_makes_a_signal_harmless_to_repeat(bide: Bide) -> None:
    run_id = bide.start("order")
    assert bide("signal", run_id, "paid", "1", "--dedup-key", "evt-1", "--json").json["outcome"] == "woke"
    again = bide("signal", run_id, "paid", "1", "--dedup-key", "evt-1")
    assert (again.code, again.out.split(":")[0]) == (0, "duplicate")
    other = bide("signal", run_id, "paid", "2", "--dedup-key", "evt-1", "--json")
    assert (other.code, other.error["code"]) == (1, "dedup_conflict")


def test_a_signal_to_nobody_is_refused(bide: Bide) -> None:
    run_id = bide.start("echo")
    for target in (run_id, "run_nobody", "order:9"):
        answer = bide("signal", target, "paid", "--json")
        assert (answer.code, answer.error["code"]) == (1, "no_target")


def test_an_answer_to_a_signal_id_lets_the_workflow_go_on(bide: Bide) -> None:
    run_id = bide.start("approval")
    bide.work_off()
    said = bide("explain", run_id).out
    assert "for an answer to 'approve-1' at 'gate'" in said
    assert "bide complete approve-1 true" in said
    wrong = bide("complete", "approve-1", '"yes"', "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "bad_input")
    answer = bide("complete", "approve-1", "true", "--dedup-key", "k")
    assert (answer.code, answer.out) == (0, f"woke: {run_id} has its answer and goes on\n")
    again = bide("complete", "approve-1", "true", "--dedup-key", "k")
    assert (again.code, again.out) == (0, f"duplicate: {run_id} had this answer already\n")
    bide.work_off()
    assert bide("show", run_id, "--json").json["result"] is True
    late = bide("complete", "approve-1", "true", "--json")
    assert (late.code, late.error["code"]) == (1, "already_answered")
    unknown = bide("complete", "approve-2", "true")
    assert (unknown.code, "nobody waits for 'approve-2'" in unknown.err) == (1, True)


def test_an_answer_is_held_for_a_workflow_that_does_not_wait_yet(bide: Bide) -> None:
    """F7"""
    bide.start("echo")  # which makes the store
    held = bide("complete", "approve-1", "true", "--hold", "10m")
    assert (held.code, held.out) == (0, "queued: the answer is held for the first wait of approve-1\n")
    late = bide("complete", "approve-1", "true", "--hold", "10m", "--json")
    assert (late.code, late.error["code"]) == (1, "already_answered")
    wrong = bide("complete", "approve-2", "true", "--hold", "soon", "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "bad_input")
    run_id = bide.start("approval")
    bide.work_off()
    assert bide("show", run_id, "--json").json["result"] is True


def test_signal_refuses_what_it_cannot_read(bide: Bide) -> None:
    run_id = bide.start("order")
    assert bide("signal", run_id).code == 2
    assert bide("signal", run_id, "paid", "{").code == 2
    assert bide("signal", run_id, "", "--json").error["code"] == "bad_input"


def test_a_signal_needs_no_app_only_the_store(bide: Bide) -> None:
    run_id = bide.start("order")
    answer = bide("signal", run_id, "paid", "--app", "", "--store", "sqlite:///shop.db", "--json")
    assert answer.json["outcome"] == "woke"


def test_a_signal_without_the_app_says_that_it_was_not_checked(bide: Bide) -> None:
    """S13: what a definition declares is in the app, and a store alone cannot know it."""
    run_id = bide.start("order")
    answer = bide("signal", run_id, "other", "1", "--app", "", "--store", "sqlite:///shop.db")
    assert (answer.code, "not checked" in answer.err) == (0, True)
    assert "not checked" not in bide("signal", run_id, "other", "1").err


# ---------------------------------------------------------------- cancel


def test_cancel_ends_a_run_with_its_reason_in_the_ledger(bide: Bide) -> None:
    run_id = bide.start("order", "--correlation-key", "order:1")
    answer = bide("cancel", "order:1", "--reason", "changed my mind")
    assert (answer.code, answer.out) == (0, f"{run_id} is cancelled\n")
    last = bide("ledger", "show", run_id, "--json").json["items"][-1]
    assert (last["name"], last["actor"], last["data"]["reason"]) == ("run_cancelled", "cli", "changed my mind")


def test_cancel_says_that_a_clean_up_runs_first_and_force_ends_at_once(bide: Bide) -> None:
    run_id = bide.start("tidy")
    assert "clean-up runs first" in bide("cancel", run_id).out
    assert bide("cancel", run_id, "--force", "--json").json["status"] == "cancelled"


def test_cancel_refuses_ended_and_unknown_runs(bide: Bide) -> None:
    run_id = bide.start("echo")
    ended = bide("cancel", run_id, "--json")
    assert (ended.code, ended.error["code"]) == (1, "run_is_final")
    for unknown in ("run_nobody", "order:9"):
        answer = bide("cancel", unknown, "--json")
        assert (answer.code, answer.error["code"]) == (1, "run_not_found")
    assert bide("cancel").code == 2


# ---------------------------------------------------------------- retry


def test_retry_releases_a_held_run(bide: Bide) -> None:
    run_id = bide("start", "echo", "1").out.strip()
    bide.hold(run_id, "poison")
    assert [run["id"] for run in bide("runs", "--held", "--json").json["items"]] == [run_id]
    answer = bide("retry", run_id)
    assert (answer.code, answer.out) == (0, f"released  {run_id}\nstatus    ready\n")
    assert bide("runs", "--held", "--json").json["items"] == []


def test_retry_starts_a_failed_run_anew(bide: Bide) -> None:
    run_id = bide.start("broken")
    info = bide("retry", run_id, "--json").json
    assert info["retry_of"] == run_id
    assert info["id"] != run_id


def test_retry_refuses_runs_that_are_neither_held_nor_failed(bide: Bide) -> None:
    run_id = bide.start("order")
    answer = bide("retry", run_id, "--json")
    assert (answer.code, answer.error["code"]) == (1, "not_held")
    assert bide("retry", "run_nobody").code == 1
    assert bide("retry").code == 2


# ---------------------------------------------------------------- emit


def test_emit_prints_what_the_event_did_and_the_same_id_again_changes_nothing(bide: Bide) -> None:
    """S10, F8."""
    first = bide("emit", "order.shipped", '{"order": 1}', "--id", "evt-1", "--json").json
    assert (first["outcome"], first["id"], first["started"], first["resumed"]) == ("queued", "evt-1", 0, 0)
    answer = bide("emit", "order.shipped", '{"order": 1}', "--id", "evt-1")
    assert (answer.code, answer.out) == (0, "duplicate: 0 started, 0 resumed (evt-1)\n")


def test_emit_refuses_a_name_that_is_none_and_an_id_with_other_data(bide: Bide) -> None:
    assert bide("emit", "order..shipped", "--json").error["code"] == "bad_input"
    bide("emit", "order.shipped", "1", "--id", "evt-1")
    answer = bide("emit", "order.shipped", "2", "--id", "evt-1", "--json")
    assert (answer.code, answer.error["code"]) == (1, "dedup_conflict")
