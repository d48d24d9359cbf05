"""The verbs that look at runs and change them, on PostgreSQL: the same words and codes as on the other stores (D11)."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from bide.stores.postgres import migrate
from tests.cli.conftest import Bide
from tests.support.postgres import PostgresServer, available_postgres, temporary_folder


@pytest.fixture
def on_postgres(bide: Bide, postgres_used_url: str, monkeypatch: pytest.MonkeyPatch) -> Bide:
    asyncio.run(migrate(postgres_used_url))
    monkeypatch.setenv("BIDE_STORE", postgres_used_url)
    monkeypatch.setenv("BIDE_RESUME_SECRETS", "cli:0123456789abcdef0123")
    return bide


def test_runs_and_waits_are_listed_shown_and_explained(on_postgres: Bide) -> None:
    done, waiting = on_postgres.start("echo", "1"), on_postgres.start("order", "--correlation-key", "order:1")
    listed = on_postgres("runs", "--json").json["items"]
    assert [(run["id"], run["status"]) for run in listed] == [(done, "completed"), (waiting, "waiting")]
    shown = on_postgres("show", waiting, "--json").json
    assert (shown["status"], [wait["names"] for wait in shown["waits"]]) == ("waiting", [["paid"]])
    assert "paid" in on_postgres("explain", waiting).out
    [wait] = on_postgres("waits", "--json").json["items"]
    assert (wait["run_id"], wait["status"]) == (waiting, "waiting")
    assert wait["id"] in on_postgres("waits").out


def test_a_person_answers_and_the_run_goes_on(on_postgres: Bide) -> None:
    run_id = on_postgres.start("approve")
    [wait] = on_postgres("waits", "--json").json["items"]
    refused = on_postgres("answer", wait["id"], "true", "--by", "ben", "--json")
    assert (refused.code, refused.error["code"]) == (1, "forbidden")
    assert on_postgres("answer", wait["id"], "true", "--by", "ann").code == 0
    on_postgres.work_off()
    assert on_postgres("show", run_id, "--json").json["result"] is True


def test_a_failed_run_is_retried_as_a_new_one(on_postgres: Bide) -> None:
    failed = on_postgres.start("broken")
    again = on_postgres("retry", failed, "--json").json
    assert again["id"] != failed
    on_postgres.work_off()
    statuses = {run["id"]: run["status"] for run in on_postgres("runs", "--json").json["items"]}
    assert statuses == {failed: "failed", again["id"]: "failed"}


def test_doctor_reaches_the_server_and_the_audit_finds_nothing(on_postgres: Bide, postgres_used_url: str) -> None:
    on_postgres.start("forever")
    health = on_postgres("doctor", "--json").json
    assert health["store"]["reachable"] is True
    said = {found["message"].split(":")[0]: found["level"] for found in health["findings"]}
    assert said["1 open wait has no deadline"] == "notice"
    audited = on_postgres("audit", "--json")
    assert (audited.code, audited.json["items"]) == (0, [])


@pytest.mark.skipif(not available_postgres(), reason="no PostgreSQL server is installed here")
def test_doctor_finds_a_server_that_may_lose_what_was_answered(bide: Bide) -> None:
    """`synchronous_commit` counts as bide's own sessions have it, the other two are the server's (F60)."""

    def durability(code: int) -> tuple[str, str]:
        answer = bide("doctor", "--store", server.url(), "--json")
        assert answer.code == code
        [found] = [found for found in answer.json["findings"] if " server" in found["message"]]
        return found["level"], found["message"]

    with PostgresServer(available_postgres()[0], temporary_folder()) as server:
        asyncio.run(migrate(server.url()))
        assert durability(0) == ("ok", "the server writes every commit to its disk before it answers")
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
            level, message = durability(1)
            assert (level, message.partition(" off")[0]) == ("problem", "synchronous_commit is")
            admin.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = local")
            admin.execute("ALTER SYSTEM SET fsync = off")
            admin.execute("ALTER SYSTEM SET full_page_writes = off")
        server.restart()
        level, message = durability(1)
        assert (level, message.partition(" off")[0]) == ("problem", "fsync, full_page_writes are")
