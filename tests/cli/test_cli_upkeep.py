"""`audit`, `migrate` and `doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.cli import doctor
from bide.cli.upkeep import MEANINGS
from bide.stores.sqlite.statements import AUDITS
from tests.cli.conftest import Bide


def test_audit_of_a_healthy_store_says_so(bide: Bide) -> None:
    bide.start("order")
    answer = bide("audit")
    assert answer.code == 0
    assert answer.out.startswith("all invariants that were asked hold (1 runs)\nasked: I1, I2, I3, I4, I5, I7")
    assert bide("audit", "--json").json["items"] == []


def test_audit_says_which_invariants_a_store_cannot_be_asked_about(bide: Bide) -> None:
    bide.start("order")
    asked_by_a_query = {name.split("_")[1].upper() for name in AUDITS}
    chains, conserved = "I16", "I18"  # asked of each ledger, and together with I1
    said = bide("audit", "--json").json
    assert set(said["asked"]) == asked_by_a_query | {chains, conserved}
    assert set(said["not_asked"]) == set(MEANINGS) - set(said["asked"]) == {"I6", "I17"}
    assert all(f"not asked: {name}: {why}" in bide("audit").out for name, why in said["not_asked"].items())


def test_audit_prints_each_violation_and_what_should_hold(bide: Bide) -> None:
    run_id = bide.start("order")
    bide.change("DELETE FROM timers")
    answer = bide("audit")
    assert answer.code == 1
    assert "I11" in answer.out
    assert run_id in answer.out
    assert "every deadline has its timer" in answer.out
    [violation] = bide("audit", "--json").json["items"]
    assert violation["invariant"] == "I11"
    assert violation["meaning"].startswith("every deadline")


def test_migrate_says_that_sqlite_and_memory_need_nothing(bide: Bide) -> None:
    for store in ("sqlite:///shop.db", "memory://"):
        answer = bide("migrate", "--store", store)
        assert (answer.code, answer.out.startswith(f"{store}: nothing to do")) == (0, True)


def test_migrate_refuses_a_wrong_store_url(bide: Bide) -> None:
    for store in ("mysql://host/x", "postgresql:///x", "shop.db"):
        answer = bide("migrate", "--store", store, "--json")
        assert (answer.code, answer.error["code"]) == (1, "bad_configuration")


def test_migrate_brings_postgresql_up_to_date_once(bide: Bide, postgres_url: str) -> None:
    before = bide("runs", "--store", postgres_url, "--json")
    assert (before.code, before.error["code"]) == (1, "schema_missing")
    assert "bide migrate" in before.error["message"]
    assert bide("migrate", "--store", postgres_url, "--json").json["steps"][0] == 1
    again = bide("migrate", "--store", postgres_url)
    assert (again.code, again.out.endswith(": it was up to date\n")) == (0, True)
    assert bide("runs", "--store", postgres_url, "--json").json["items"] == []
    assert bide("doctor", "--store", postgres_url, "--json").json["store"]["reachable"] is True


# ---------------------------------------------------------------- doctor


def findings(bide: Bide, *arguments: str) -> dict[str, str]:
    return {found["message"]: found["level"] for found in bide("doctor", "--json", *arguments).json["findings"]}


def test_doctor_of_a_healthy_store_finds_nothing_wrong(bide: Bide) -> None:
    bide.start("order")
    answer = bide("doctor")
    assert answer.code == 0
    assert "wrong" not in answer.out
    assert "every open wait has a deadline" in answer.out
    assert set(findings(bide).values()) == {"ok"}


def test_doctor_says_how_far_it_looked(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        bide.start("order")
    monkeypatch.setattr(doctor, "SCANNED", 3)
    said = [message for message in findings(bide) if "there may be more" in message]
    assert [message.partition(" (")[0] for message in said] == [
        "every open wait has a deadline",
        "shop has every definition that live runs need",
    ]
    monkeypatch.setattr(doctor, "SCANNED", 4)
    assert not [message for message in findings(bide) if "there may be more" in message]


def test_doctor_shows_each_setting_with_its_source(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    bide.start("echo")
    monkeypatch.setenv("BIDE_LEASE", "20s")
    Path("bide.toml").write_text('grace = "5s"\n')
    shown = bide("doctor", "--json").json["settings"]
    settings = {setting["name"]: (setting["value"], setting["source"]) for setting in shown}
    assert settings["store"] == ("sqlite:///shop.db", "the app")
    assert settings["lease"] == ("20s", "BIDE_LEASE")
    assert settings["grace"] == ("5s", "bide.toml")
    assert settings["batch"] == ("500", "default")
    other = bide("doctor", "--store", "sqlite:///other.db", "--json").json["settings"]
    assert {"name": "store", "value": "sqlite:///other.db", "source": "--store"} in other


def test_doctor_flags_waits_without_a_deadline(bide: Bide) -> None:
    run_id = bide.start("forever")
    answer = bide("doctor")
    assert answer.code == 0
    assert "look   1 open wait has no deadline" in answer.out
    assert f"bide explain {run_id}" in answer.out


def test_doctor_finds_held_runs(bide: Bide) -> None:
    run_id = bide("start", "echo").out.strip()
    bide.hold(run_id, "poison")
    answer = bide("doctor")
    assert answer.code == 1
    assert f"1 run is held: {run_id} (poison)" in answer.out


def test_doctor_finds_definitions_that_the_app_lacks(bide: Bide) -> None:
    bide.start("order")
    Path("other.py").write_text("import bide\napp = bide.App('other', store='sqlite:///shop.db')\n")
    found = findings(bide, "--app", "other")
    assert found["other lacks order@1, which live runs need"] == "problem"


def test_doctor_finds_work_that_nobody_took(bide: Bide) -> None:
    bide("start", "echo")
    bide.change("UPDATE queue SET due_at = due_at - 60000000")
    bide.change("UPDATE runs SET ready_at = ready_at - 60000000")
    answer = bide("doctor")
    assert answer.code == 1
    assert "work has been due for 1m and nobody took it (1 ready runs)" in answer.out


def test_doctor_finds_settings_that_nobody_knows(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    bide.start("echo")
    monkeypatch.setenv("BIDE_LAESE", "20s")
    Path("bide.toml").write_text('garce = "5s"\n')
    said = bide("doctor").out
    assert "BIDE_LAESE" in said
    assert "'garce'" in said


def test_doctor_says_why_a_store_cannot_be_used(bide: Bide) -> None:
    Path("bad.db").write_bytes(b"this is no database, and it is long enough to be looked at closely " * 20)
    answer = bide("doctor", "--store", "sqlite:///bad.db")
    assert answer.code == 1
    assert "the store cannot be used" in answer.out


def test_doctor_refuses_a_setting_that_cannot_be_read(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_LEASE", "soon")
    answer = bide("doctor", "--json")
    assert (answer.code, answer.error["code"]) == (1, "bad_configuration")
