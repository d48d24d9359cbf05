"""`ledger export`, `ledger import` and `ledger verify --file`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Bide


def test_an_ended_run_is_exported_and_put_back_as_it_was(bide: Bide) -> None:
    """G2."""
    run_id = bide.start("echo", '{"order": 1}')
    before = bide("ledger", "show", run_id, "--json").json["items"]
    Path("one.jsonl").write_text(bide("ledger", "export", run_id).out)
    there = ("--store", "sqlite:///other.db")
    assert bide("ledger", "import", "one.jsonl", *there).out == f"{run_id}: imported\n"
    assert bide("ledger", "show", run_id, "--json", *there).json["items"] == before
    assert bide("show", run_id, "--json", *there).json["result"] == {"order": 1}
    assert bide("ledger", "verify", run_id, *there).code == 0
    assert bide("audit", *there).code == 0
    again = bide("ledger", "import", "one.jsonl", *there)
    assert (again.code, again.out) == (1, f"{run_id}: {run_id} is there already\n")


def test_an_archive_is_put_back_on_postgresql_too(bide: Bide, postgres_url: str) -> None:
    run_id = bide.start("echo", "1")
    Path("one.jsonl").write_text(bide("ledger", "export", run_id).out)
    assert bide("migrate", "--store", postgres_url).code == 0
    assert bide("ledger", "import", "one.jsonl", "--store", postgres_url).code == 0
    assert bide("ledger", "verify", run_id, "--store", postgres_url).code == 0
    assert bide("ledger", "import", "one.jsonl", "--store", postgres_url).code == 1


def test_a_folder_gets_every_ended_run_once(bide: Bide) -> None:
    ended = [bide.start("echo"), bide.start("broken")]
    bide.start("order")
    assert bide("ledger", "export", "--to", "kept").out == "2 archives written to kept\n"
    assert sorted(file.stem for file in Path("kept").iterdir()) == sorted(ended)
    assert bide("ledger", "export", "--to", "kept", "--json").json == {"written": 0, "folder": "kept"}


def test_a_run_that_still_lives_is_not_exported(bide: Bide) -> None:
    answer = bide("ledger", "export", bide.start("order"), "--json")
    assert (answer.code, answer.error["code"]) == (1, "bad_archive")


def test_a_signed_archive_that_was_changed_or_cut_is_found(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_LEDGER_SECRETS", "2030:correct horse")
    file = Path("one.jsonl")
    file.write_text(bide("ledger", "export", bide.start("echo", "1")).out)
    assert "signed with 2030" in bide("ledger", "verify", "--file", "one.jsonl").out
    assert "correct horse" not in bide("doctor").out
    whole = file.read_text()
    for changed in (whole.replace('"definition":"echo"', '"definition":"ecko"', 1), "\n".join(whole.splitlines()[:-1])):
        file.write_text(changed)
        answer = bide("ledger", "verify", "--file", "one.jsonl", "--json")
        assert (answer.code, answer.error["code"]) == (1, "bad_archive")
        assert answer.error["message"].startswith("one.jsonl: ")


def test_a_file_is_verified_without_any_store(bide: Bide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G2: whoever is handed an archive needs nothing else."""
    text = bide("ledger", "export", bide.start("echo", "1")).out
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("BIDE_APP", raising=False)
    Path("one.jsonl").write_text(text)

    assert "entries hold" in bide("ledger", "verify", "one.jsonl").out
    Path("two.jsonl").write_text(text.replace('"result":"1"', '"result":"2"'))
    changed = bide("ledger", "verify", "two.jsonl")
    assert (changed.code, "its header was changed" in changed.err) == (1, True)
    assert [file.name for file in elsewhere.iterdir() if file.suffix != ".jsonl"] == []


def test_an_archive_of_another_workspace_is_not_put_back(bide: Bide) -> None:
    Path("one.jsonl").write_text(bide("ledger", "export", bide.start("echo")).out)
    answer = bide("ledger", "import", "one.jsonl", "--store", "sqlite:///other.db", "--workspace", "other")
    assert (answer.code, "belongs to the workspace 'default'" in answer.out) == (1, True)


def test_export_wants_a_run_or_a_folder(bide: Bide) -> None:
    assert bide("ledger", "export").code == 2
    assert bide("ledger", "verify", "--file", "nothing.jsonl").code == 2


def test_an_end_that_is_not_signed_is_found_where_ends_are_signed(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    """G2: whoever writes a tail anew in the live store has no secret."""
    unsigned = bide.start("echo", "1")
    assert bide("ledger", "verify", unsigned).code == 0
    monkeypatch.setenv("BIDE_LEDGER_SECRETS", "2030:correct horse")
    signed = bide.start("echo", "1")
    assert bide("ledger", "verify", signed).code == 0
    refused = bide("ledger", "verify", unsigned, "--json")
    assert (refused.code, refused.json["first_bad"], "is not signed" in refused.json["reason"]) == (1, 3, True)
    monkeypatch.setenv("BIDE_LEDGER_SECRETS", "2031:battery")
    assert "which is not configured" in bide("ledger", "verify", signed).out
    monkeypatch.setenv("BIDE_LEDGER_SECRETS", "2031:battery,2030:correct horse")
    assert bide("ledger", "verify", signed).code == 0
