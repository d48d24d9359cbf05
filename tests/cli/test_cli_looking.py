"""`runs`, `show`, `explain`, `waits`, `unused` and `ledger`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bide.views import RunInfo
from tests.cli.conftest import SHOP, Bide


def test_runs_are_listed_oldest_first_in_aligned_columns(bide: Bide) -> None:
    first, second = bide.start("echo", "1", "--correlation-key", "order:1"), bide.start("order")
    title, *lines = bide("runs").out.splitlines()
    assert title.split() == ["id", "status", "age", "definition", "step", "key"]
    assert [line.split()[:2] for line in lines] == [[first, "completed"], [second, "waiting"]]
    assert lines[0].index("completed") == lines[1].index("waiting") == title.index("status")


def test_the_json_of_a_run_has_the_fields_of_the_client(bide: Bide) -> None:
    bide.start("order")
    [run] = bide("runs", "--json").json["items"]
    assert set(run) == set(RunInfo.__struct_fields__)
    assert run["created_at"].endswith("Z")


def test_runs_are_found_by_status_and_definition_and_page_by_page(bide: Bide) -> None:
    ids = [bide.start("echo"), bide.start("echo"), bide.start("order")]
    assert [run["id"] for run in bide("runs", "--status", "waiting", "--json").json["items"]] == ids[2:]
    assert [run["id"] for run in bide("runs", "--definition", "echo", "--json").json["items"]] == ids[:2]
    page = bide("runs", "--limit", "2", "--json").json
    assert [run["id"] for run in page["items"]] == ids[:2]
    rest = bide("runs", "--limit", "2", "--cursor", page["next_cursor"], "--json").json
    assert ([run["id"] for run in rest["items"]], rest["next_cursor"]) == (ids[2:], None)


def test_a_page_that_is_not_the_last_says_how_to_go_on(bide: Bide) -> None:
    ids = [bide.start("echo"), bide.start("echo")]
    assert f"--cursor {ids[0]}" in bide("runs", "--limit", "1").err


def test_another_workspace_has_its_own_runs(bide: Bide) -> None:
    run_id = bide.start("order")
    assert bide("runs", "--workspace", "other", "--json").json["items"] == []
    assert bide("show", run_id, "--workspace", "other").code == 1


@pytest.mark.parametrize("verb", ["runs", "waits"])
def test_lists_refuse_what_they_cannot_read(bide: Bide, verb: str) -> None:
    bide.start("order")
    for arguments in (["--status", "done"], ["--limit", "0"], ["--limit", "many"], ["extra"]):
        answer = bide(verb, *arguments, "--json")
        assert (answer.code, answer.out) == (2, "")
        assert answer.error["message"]


def test_looking_never_makes_a_store(bide: Bide) -> None:
    for arguments in (["runs"], ["show", "run_1"], ["explain", "run_1"], ["waits"], ["audit"], ["doctor"]):
        answer = bide(*arguments)
        assert answer.code == (0 if arguments == ["doctor"] else 1)
        assert "there is no store" in answer.err + answer.out
    assert not (bide.folder / "shop.db").exists()


def test_a_memory_store_is_refused_because_nobody_else_can_see_it(bide: Bide) -> None:
    answer = bide("runs", "--store", "memory://", "--json")
    assert (answer.code, answer.error["code"]) == (1, "bad_configuration")


def test_a_wrong_store_url_is_refused(bide: Bide) -> None:
    answer = bide("runs", "--store", "mysql://user:secret@host/x", "--json")
    assert (answer.code, answer.error["code"]) == (1, "bad_configuration")
    assert "secret" not in answer.err


# ---------------------------------------------------------------- show


def test_show_has_facts_waits_and_inbox(bide: Bide) -> None:
    run_id = bide.start("order", '{"order": 1}', "--correlation-key", "order:1", "--tag", "a=b")
    bide("signal", run_id, "other", '{"x": 1}')
    said = bide("show", "order:1").out
    for part in (run_id, "order@1", "waiting", "a=b", '{"order":1}', "in 59m", "paid", "other", '{"x":1}'):
        assert part in said
    shown = bide("show", run_id, "--json").json
    assert [wait["names"] for wait in shown["waits"]] == [["paid"]]
    assert [signal["name"] for signal in shown["inbox"]] == ["other"]


TWO_WAITS = """

@app.workflow("pair")
async def pair(step):
    waits = [step.wait_for_signal(f"gate {n}", signal=f"pair-{n}", timeout="1d") for n in range(2)]
    return await step.all("both", *waits)
"""


def test_show_has_all_waits_of_a_run_also_where_they_come_on_several_pages(
    bide: Bide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T46: a page of large rows ends early."""
    (bide.folder / "shop.py").write_text(SHOP + TWO_WAITS)
    run_id = bide.start("pair")
    whole = bide("show", run_id, "--json").json
    monkeypatch.setattr("bide.client.paging.MOST_BYTES", 1)
    assert bide("waits", "--json").json["next_cursor"] is not None
    assert bide("show", run_id, "--json").json["waits"] == whole["waits"]
    assert len(whole["waits"]) == 2


def test_show_tells_how_far_the_items_of_a_run_have_come(bide: Bide) -> None:
    """U4: expected, dispatched, answered, done and rejected; after the end, too."""
    run_id = bide.start("reviews", '["a", "b", "c", "d"]')
    task = f"{run_id.replace('run_', 'int_')}_1_"
    assert "items  0 %: 4 expected, 4 dispatched, 0 answered, 0 done, 0 rejected\n" in bide("show", run_id).out
    assert bide("answer", f"{task}0", "true").code == 0
    assert bide("waits", "fail", f"{task}1", "--reason", "no time").code == 0
    bide.work_off()
    assert "items  50 %: 4 expected, 4 dispatched, 2 answered, 1 done, 1 rejected\n" in bide("show", run_id).out
    for item in (2, 3):
        assert bide("answer", f"{task}{item}", "false").code == 0
    bide.work_off()
    assert "items  100 %: 4 expected, 4 dispatched, 4 answered, 3 done, 1 rejected\n" in bide("show", run_id).out
    told = bide("show", run_id, "--json").json["progress"]
    assert (told["expected"], told["dispatched"], told["answered"], told["done"], told["rejected"]) == (4, 4, 4, 3, 1)


def test_show_says_nothing_of_items_where_there_are_none(bide: Bide) -> None:
    assert "items" not in bide("show", bide.start("order")).out


def test_show_has_the_error_of_a_failed_run(bide: Bide) -> None:
    run_id = bide.start("broken")
    assert "error       StepFailed (ValueError): no luck\n" in bide("show", run_id).out
    assert bide("show", run_id, "--json").json["error"]["type"] == "ValueError"


def test_control_characters_in_what_came_from_outside_are_made_visible(bide: Bide) -> None:
    run_id = bide.start("order")
    bide("cancel", run_id, "--reason", "\x1b[2J gone")
    said = bide("explain", run_id).out
    assert "\x1b" not in said
    assert "\\x1b[2J gone" in said


@pytest.mark.parametrize("verb", [["show"], ["explain"], ["ledger", "show"], ["ledger", "verify"]])
def test_an_unknown_run_is_refused_and_a_missing_one_is_usage(bide: Bide, verb: list[str]) -> None:
    bide.start("echo")
    for name in ("run_nobody", "order:9"):
        answer = bide(*verb, name, "--json")
        assert (answer.code, answer.error["code"]) == (1, "run_not_found")
    assert bide(*verb).code == 2


# ---------------------------------------------------------------- explain


def test_the_command_that_explain_shows_wakes_the_run(bide: Bide) -> None:
    run_id = bide.start("order")
    said = bide("explain", run_id).out
    [command] = [line.partition(": ")[2] for line in said.splitlines() if ": bide signal" in line]
    assert bide(*shlex.split(command)[1:]).out.startswith("woke")


def test_the_command_that_explain_shows_names_store_and_workspace_where_needed(bide: Bide) -> None:
    bide("start", "order", "--correlation-key", "k 1", "--workspace", "eu")
    bide.work_off()
    said = bide("explain", "k 1", "--workspace", "eu", "--app", "", "--store", "sqlite:///shop.db").out
    assert "bide signal 'k 1' paid '{}' --store sqlite:///shop.db --workspace eu" in said


def test_explain_says_what_a_parent_waits_for(bide: Bide) -> None:
    run_id = bide.start("family")
    [child] = [
        run["id"] for run in bide("runs", "--status", "waiting", "--definition", "order", "--json").json["items"]
    ]
    said = bide("explain", run_id, "--json").json["explanation"]
    assert "1 of 2 have ended" in said[0]
    assert any(f"bide explain {child}" in sentence for sentence in said)


def test_explain_tells_of_the_last_error_and_the_next_try(bide: Bide) -> None:
    said = bide("explain", bide.start("flaky")).out
    assert "again at" in said
    assert "(in 59m)" in said
    assert "ValueError: the printer is on fire" in said


def test_explain_says_why_a_run_is_held_and_how_to_release_it(bide: Bide) -> None:
    run_id = bide("start", "echo").out.strip()
    bide.hold(run_id, "history_mismatch")
    said = bide("explain", run_id).out
    assert "is held as history_mismatch since" in said
    assert f"bide retry {run_id}" in said


def test_explain_tells_of_what_was_refused(bide: Bide) -> None:
    run_id = bide.start("echo")
    bide("signal", run_id, "late")
    assert "Signal 'late'" in bide("explain", run_id).out
    [refused] = bide("unused", "--json").json["items"]
    assert (refused["name"], refused["run_id"], refused["reason"]) == ("late", run_id, "completed")
    assert "late" in bide("unused").out


def test_what_could_not_be_used_is_listed_page_by_page(bide: Bide) -> None:
    ended = bide.start("echo")
    for no in range(3):
        bide("signal", ended, f"late-{no}")
    whole = bide("unused", "--json").json["items"]
    assert len(whole) == 3
    first = bide("unused", "--limit", "2", "--json").json
    assert f"--cursor {first['next_cursor']}" in bide("unused", "--limit", "2").err
    second = bide("unused", "--limit", "2", "--cursor", first["next_cursor"], "--json").json
    assert (first["items"] + second["items"], second["next_cursor"]) == (whole, None)
    assert bide("unused", "--limit", "1001").code == 2


# ---------------------------------------------------------------- waits


def test_waits_are_listed_with_their_deadlines(bide: Bide) -> None:
    bounded, endless = bide.start("order"), bide.start("forever")
    rows = [line.split() for line in bide("waits").out.splitlines()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [
        (f"wait_{bounded.removeprefix('run_')}_1", "paid"),
        (f"wait_{endless.removeprefix('run_')}_1", "yes"),
    ]
    assert "none" in rows[1]
    assert len(bide("waits", "--run", bounded, "--json").json["items"]) == 1
    assert bide("waits", "--older-than", "1d", "--json").json["items"] == []
    assert bide("waits", "--older-than", "long").code == 2


def test_a_list_without_entries_says_so_on_stderr(bide: Bide) -> None:
    bide.start("echo")
    answer = bide("waits")
    assert (answer.code, answer.out, answer.err) == (0, "", "no waits\n")


# ---------------------------------------------------------------- ledger


def test_the_ledger_of_a_run_is_printed_and_verified(bide: Bide) -> None:
    run_id = bide.start("echo")
    entries = bide("ledger", "show", run_id, "--json").json["items"]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert (entries[0]["name"], entries[-1]["name"]) == ("run_started", "run_completed")
    assert bide("ledger", "show", run_id).out.count("\n") == len(entries) + 1
    verified = bide("ledger", "verify", run_id)
    assert (verified.code, verified.out) == (0, f"{run_id}: all {len(entries)} entries hold\n")


def test_a_ledger_that_was_changed_does_not_verify(bide: Bide) -> None:
    run_id = bide.start("echo")
    bide.change("DELETE FROM ledger WHERE seq = 1")
    answer = bide("ledger", "verify", run_id, "--json")
    assert (answer.code, answer.json["verified"]) == (1, False)
    assert answer.json["reason"] == "entry 1 is missing"
    assert bide("ledger", "verify", run_id).out == f"{run_id}: entry 1 is missing\n"


def test_a_page_of_a_ledger_that_cannot_be_read_is_named(bide: Bide) -> None:
    """G2: also where what is stored is no page any more."""
    run_id = bide.start("echo")
    bide.change("UPDATE ledger SET entries = x'ffff' WHERE seq = 1")
    answer = bide("ledger", "verify", run_id, "--json")
    assert (answer.code, answer.json["first_bad"]) == (1, 1)
    assert answer.json["reason"] == "the page of entry 1 cannot be read"


def test_ledger_alone_explains_itself(bide: Bide) -> None:
    answer = bide("ledger")
    assert answer.code == 0
    assert "verify" in answer.out


HIDING = """

@app.workflow("pay", redact=["card"], retries=0)
async def pay(step, order):
    await step.run("charge", lambda: order)
    if order.get("bad"):
        raise ValueError(order["card"])
    return order
"""


@pytest.mark.parametrize("verb", ["show", "explain", "ledger show", "runs", "unused", "dead-letters"])
def test_G4_no_verb_shows_what_a_definition_hides(bide: Bide, verb: str) -> None:
    Path("shop.py").write_text(SHOP + HIDING)
    runs = [bide.start("pay", '{"card": "4111-canary"}'), bide.start("pay", '{"card": "4111-canary", "bad": true}')]
    bide.work_off()
    bide("signal", runs[0], "late", '{"card": "4111-canary"}')
    for run in runs if verb in ("show", "explain", "ledger show") else [None]:
        for options in ([], ["--json"]):
            answer = bide(*verb.split(), *([run] if run else []), *options)
            assert answer.code == 0
            assert "canary" not in answer.out
