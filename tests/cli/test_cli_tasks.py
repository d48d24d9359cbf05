"""`answer`, `waits move|fail|cancel|assign`, `dead-letters`, and what `explain` says of tasks."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Bide


def open_wait(bide: Bide) -> str:
    """The only open wait."""
    [wait] = bide("waits", "--json").json["items"]
    return str(wait["id"])


def test_a_task_is_answered_from_the_command_line(bide: Bide) -> None:
    """§11, W11."""
    run = bide.start("approve")
    wait = open_wait(bide)
    refused = bide("answer", wait, "true", "--by", "eve", "--json")
    assert (refused.code, refused.error["code"]) == (1, "forbidden")
    wrong = bide("answer", wait, "7", "--by", "ann")
    assert (wrong.code, wrong.out) == (1, "")
    assert "does not fit" in wrong.err
    done = bide("answer", wait, "true", "--by", "ann")
    assert (done.code, done.out) == (0, f"woke: {run} has its answer and goes on\n")
    assert bide("answer", wait, "true", "--by", "ann", "--json").json["outcome"] == "duplicate"
    assert bide("answer", wait, "false", "--by", "ann", "--json").error["code"] == "conflicting_answer"
    assert bide("answer", "int_nowhere_1_0", "true", "--json").error["code"] == "no_target"
    bide.work_off()
    assert bide("show", run, "--json").json["result"] is True


@pytest.mark.parametrize(("verb", "code"), [("fail", "WaitFailedError"), ("cancel", "WaitCancelledError")])
def test_W10_a_wait_is_ended_with_a_reason(bide: Bide, verb: str, code: str) -> None:
    """W10."""
    run = bide.start("approve")
    wait = open_wait(bide)
    assert bide("waits", verb, wait).code == 2
    planned = bide("waits", verb, wait, "--reason", "closed", "--dry-run")
    assert "would be" in planned.out
    assert open_wait(bide) == wait
    assert bide("waits", verb, wait, "--reason", "closed").code == 0
    bide.work_off()
    error = bide("show", run, "--json").json["error"]
    assert (error["code"], "closed" in error["message"]) == (code, True)
    assert bide("waits", verb, wait, "--reason", "closed", "--json").code == 1


def test_W10_waits_are_moved_and_assigned_by_filter(bide: Bide) -> None:
    """W10."""
    bide.start("approve")
    wait = open_wait(bide)
    planned = bide(
        "waits", "move", "--channel", "chat", "--deadline", "9d", "--reason", "x", "--dry-run", "--json"
    ).json
    assert planned == {"ids": [wait], "count": 1, "dry_run": True}
    assert bide("waits", "move", "--channel", "mail", "--deadline", "9d", "--reason", "x", "--json").json["count"] == 0
    assert bide("waits", "move", "--channel", "chat", "--deadline", "9d", "--reason", "x").out == f"{wait} moved\n"
    assert bide("waits", "assign", "--definition", "approve", "--to", "bob", "--reason", "x").code == 0
    [info] = bide("waits", "--json").json["items"]
    assert (info["details"]["assignee"], "group" in info["details"]) == ("bob", False)
    assert bide("waits", "move", wait, "--deadline", "never", "--reason", "x").code == 0
    assert bide("waits", "--json").json["items"][0]["deadline"] is None


def test_W10_waits_are_answered_by_filter(bide: Bide) -> None:
    """W10: each for itself; what was refused is told, and the exit code says that something was."""
    run = bide.start("approve")
    wait = open_wait(bide)
    where = ("--channel", "chat", "--reason", "by phone")
    planned = bide("waits", "answer", "true", *where, "--dry-run")
    assert (planned.code, planned.out) == (0, f"{wait} would be answered\n")
    wrong = bide("waits", "answer", "7", *where, "--by", "ann")
    assert (wrong.code, wrong.out.startswith(f"{wait} refused, invalid: at $")) == (1, True)
    denied = bide("waits", "answer", "true", *where, "--by", "eve", "--json")
    assert (denied.code, denied.json["count"], denied.json["outcomes"][0]["outcome"]) == (1, 0, "denied")
    assert bide("waits", "answer", "true", "--channel", "mail", "--reason", "by phone").code == 0
    done = bide("waits", "answer", "true", *where, "--by", "ann")
    assert (done.code, done.out) == (0, f"{wait} answered\n")
    assert "by phone" in bide("ledger", "show", run, "--json").out


def test_what_is_unclear_is_a_usage_error(bide: Bide) -> None:
    """Bad input."""
    bide.start("approve")
    wait = open_wait(bide)
    for words in (
        ("waits", "fail", "--reason", "x"),
        ("waits", "fail", wait, "--channel", "chat", "--reason", "x"),
        ("waits", "assign", wait, "--reason", "x"),
        ("waits", "move", wait, "--deadline", "soon", "--reason", "x"),
        ("waits", "fail", "--older-than", "ages", "--reason", "x"),
        ("waits", "answer", "true", "--reason", "x"),
        ("waits", "answer", "true", "--channel", "chat"),
        ("waits", "answer", "{", "--channel", "chat", "--reason", "x"),
    ):
        assert bide(*words).code == 2, words


def test_dead_letters_are_listed_retried_and_discarded(bide: Bide) -> None:
    """U7."""
    bide.start("approve")
    [letter] = bide("dead-letters", "--json").json["items"]
    assert (letter["kind"], letter["error"]) == ("notify", "NonRetryable: no mail today")
    assert "no mail today" in bide("dead-letters").out
    assert bide("dead-letters", "retry", letter["id"]).code == 0
    assert bide("dead-letters", "--json").json["items"] == []
    bide.work_off()
    assert bide("dead-letters", "discard", letter["id"]).code == 0
    gone = bide("dead-letters", "discard", letter["id"], "--json")
    assert (gone.code, gone.error["code"]) == (1, "dead_letter_not_found")


def test_explain_says_who_can_answer_a_task_and_how(bide: Bide) -> None:
    """§11: who can answer and how, with the command, and what was refused and why."""
    run = bide.start("approve")
    wait = open_wait(bide)
    task = wait.replace("wait_", "int_") + "_0"
    bide("answer", wait, "7", "--by", "ann")
    bide("answer", wait, "true", "--by", "eve")
    said = bide("explain", run).out.replace("\n", " ")
    assert "asks: Send it?" in said
    assert "group leads" in said
    assert f"bide answer {task} true --by NAME" in said
    assert "remind" in said
    assert "refused" in said
    assert "eve" in said
