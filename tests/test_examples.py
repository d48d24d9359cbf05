"""Every example runs by itself, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
PROGRAMS = [path for path in EXAMPLES if "def main(" in path.read_text(encoding="utf-8")]


def run(example: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**{name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}, **environment},
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("example", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_an_example_runs_and_leaves_nothing_behind(example: Path, tmp_path: Path) -> None:
    done = run(example, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if " raised " not in line] == [], "but for steps that are to fail"
    assert not list(tmp_path.iterdir())


def test_the_approval_gate_is_answered_rejected_and_expired(tmp_path: Path) -> None:
    [example] = [path for path in PROGRAMS if path.stem == "approval_gate"]
    said = run(example, tmp_path).stdout
    for sentence in (
        "'perhaps' is refused, and the run goes on waiting: at $.approved",
        "the letter is sent: 'Dear Ann, …'",
        "the run ends: {'status': 'sent'}",
        "the run ends: {'status': 'rejected', 'reason': 'too short'}",
        "the run ends: {'status': 'expired'}",
        "a yes that comes now is late: timed_out",
    ):
        assert sentence in said
    for name in ("Ann", "Bob", "Cleo"):
        assert said.count(f"a draft for {name} is written") == 1, "a replay does not repeat a step"
    assert said.count("the letter is sent") == 1


def test_W9_nobody_answers_so_it_is_asked_again_and_goes_to_others(tmp_path: Path) -> None:
    """W9."""
    [example] = [path for path in PROGRAMS if path.stem == "reminders"]
    said = run(example, tmp_path).stdout
    told = [line.split(",")[1].split(":")[0].strip() for line in said.splitlines() if line.startswith("  mail")]
    assert sorted(told) == ["escalated", "opened", "reminder", "reminder"]
    assert "ann is too late, it is not hers any more" in said
    assert "the run ends: {'paid': True, 'by': 'lea'}" in said


def test_W12_two_of_the_board_agree_one_stops_it_and_only_what_they_saw_is_signed(tmp_path: Path) -> None:
    """W11, W12."""
    [example] = [path for path in PROGRAMS if path.stem == "quorum"]
    said = run(example, tmp_path).stdout
    assert "agreed (ann yes, ben yes)" in said
    assert "vetoed (ann yes, cy no)" in said
    assert said.count("signed: '") == 1
    assert "was shown something else than it acts on" in said


STORIES = {
    "payment_race": (
        ["a lamp is shipped", "the run ends: paid by ann", "calling it off now: no_target"],
        ["a chair is put back", "the run ends: called off", "a table is put back", "the run ends: never paid"],
    ),
    "saga": (
        ["the run ends: booked", "undone: flight north for Bob", "the run ends: not possible"],
        ["undone: hotel Seaview for Cleo", "undone: flight north for Cleo", "the run ends: cancelled"],
    ),
    "agent": (
        ["(looks up 'the printer')", "(pays 'invoice of the printer: 100 EUR')", "the agent says: It is paid."],
        ["(looks up 'a golden statue')", "the agent says: I could not pay: refused: not in the budget"],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_an_example_tells_its_story_in_order_and_does_everything_once(name: str, tmp_path: Path) -> None:
    [example] = [path for path in PROGRAMS if path.stem == name]
    said = run(example, tmp_path).stdout
    sentences = [sentence for part in STORIES[name] for sentence in part]
    places = [said.find(sentence) for sentence in sentences]
    assert -1 not in places, said
    assert places == sorted(places)
    assert all(said.count(sentence) == 1 for sentence in sentences)


def test_F9_an_answer_that_comes_early_is_held_for_its_callback(tmp_path: Path) -> None:
    """F9."""
    [example] = [path for path in PROGRAMS if path.stem == "kyc_callback"]
    said = run(example, tmp_path).stdout
    assert said.splitlines() == ["202 ignored", "200 queued", "200 duplicate", "ann has an account"]


TOLD = {
    "mail_link": [
        "mail to lea@example.com: May 120 EUR be spent? https://expenses.example/resume/…",
        "the page: 200 - the run is waiting",
        "the form: 200",
        "the run ends: approved",
        "mail to lea@example.com: May 70 EUR be spent? https://expenses.example/resume/…",
        "the run ends: nobody answered",
        "the link says: 410",
    ],
    "webhook": [
        "503 {'outcome': 'no_target'}",
        "401 {'error': 'the header stripe-signature is missing'}",
        "200 {'outcome': 'woke'}",
        "200 {'outcome': 'duplicate'}",
        "order 7: 49 paid",
    ],
}


@pytest.mark.parametrize("name", TOLD)
def test_an_example_with_http_says_what_was_answered(name: str, tmp_path: Path) -> None:
    """W4, W5, S7: a page decides nothing, an event counts once."""
    [example] = [path for path in PROGRAMS if path.stem == name]
    assert run(example, tmp_path).stdout.splitlines() == TOLD[name]


def test_an_order_and_its_run_are_one_transaction_of_a_web_application(tmp_path: Path, postgres_url: str) -> None:
    """S11, H4."""
    [example] = [path for path in PROGRAMS if path.stem == "fastapi_order"]
    migrated = subprocess.run([sys.executable, "-m", "bide", "migrate", "--store", postgres_url], check=False)
    assert migrated.returncode == 0
    done = run(example, tmp_path, BIDE_STORE=postgres_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "order 1001 is shipped",
        "without stock: 409",
        "mounted: 200",
        "runs: 1",
        "orders: [1001]",
    ]


def test_F10_a_draft_is_sent_after_a_review_and_never_without_one(tmp_path: Path) -> None:
    """F10, F13: silence is no approval; what was planned for it happens instead."""
    [example] = [path for path in PROGRAMS if path.stem == "review_with_fallback"]
    said = run(example, tmp_path).stdout
    assert "to Ann: We open at nine." in said
    assert "to Bob: Please send it to us first." in said
    assert "to Cleo: Thank you, we have your question and will be back tomorrow." in said
    assert said.count("You get your money back.") == 1, "only rea has read it"
    assert [line.split(": ")[1] for line in said.splitlines() if "came from" in line] == ["model", "person", "fallback"]
    assert "rea's answer is too late now: timed_out" in said
