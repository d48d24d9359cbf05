"""The audit on PostgreSQL finds damage: each question is answered by a row that was broken by hand (D11)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from bide.core import ledger
from bide.core.records import Run
from bide.stores.pages import pack
from bide.stores.postgres import PostgresStore
from bide.stores.postgres.sessions import Connection
from tests.support.populated import WORKSPACE, Clock, populate
from tests.support.postgres import connect

AUDITS = sorted(
    file.name.removesuffix(".sql")
    for file in files("bide.stores.postgres").joinpath("sql").iterdir()
    if file.name.startswith("audit_")
)

INTERACTION = """
INSERT INTO interactions (workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload,
                          transport, answers, digest)
VALUES ('main', 'run_done', 1, 0, 'waiting', now(), 'order', 'begin', '', 'null', 'interaction-api', '[]', '')
"""
PENDING = INTERACTION.replace("run_done", "run_parked").replace("'waiting', now()", "'pending', now()")
UNIT = "INSERT INTO units VALUES ('run_parked', 1, %s, %s, 0, 0, %s, false)"
HELD = "INSERT INTO names VALUES (now(), 'main', 'signal', 'gate', '', 'held', 'msg_1')"
ITEM = "INSERT INTO items VALUES ('run_parked', 1, 0, 'ready', 0, 'null', NULL, 0, 0, 0, NULL, NULL)"
EARLY = "UPDATE waits SET status = 'timed_out', deadline = closed_at + interval '1s' WHERE run_id = 'run_done'"

ORPHANS = """
INSERT INTO steps (run_id, key, kind, status, seq, attempts) VALUES ('run_nobody', 'a', 'run', 'done', 1, 1);
INSERT INTO units VALUES ('run_nobody', 1, 0, 0, 0, 0, false, false);
INSERT INTO items VALUES ('run_nobody', 1, 0, 'done', 0, 'null', NULL, 0, 0, 0, NULL, NULL)
"""
STEP = "INSERT INTO steps (run_id, key, kind, status, seq, attempts) VALUES ('run_done', 'a', 'run', 'asleep', 1, 1)"
CHORE = "INSERT INTO chores (id, kind, run_id, due_at, workspace, data) VALUES ('%s', '%s', '%s', now(), 'main', '{}')"
TAKEN = "INSERT INTO names VALUES (now(), 'main', 'signal', 'gate', 'run_done', 'open', '1')"

BREAKS = {
    "audit_i1_answer_is_held": HELD,
    "audit_i1_inbox_count": "UPDATE runs SET inbox_count = 0 WHERE id = 'run_parked'",
    "audit_i4_events_find_waits": "UPDATE waits SET kind = 'event' WHERE run_id = 'run_parked'",
    "audit_i4_items_move": ITEM,
    "audit_i4_stream_releases": "UPDATE runs SET style = 'pipeline' WHERE id = 'run_parked'",
    "audit_i4_signal_wakes": "UPDATE inbox SET name = 'payment' WHERE run_id = 'run_parked'",
    "audit_i4_waits_for_something": "UPDATE runs SET parked_on = 9 WHERE id = 'run_parked'",
    "audit_i5_interactions": INTERACTION,
    "audit_i5_open_waits": "UPDATE runs SET open_waits = '[]' WHERE id = 'run_parked'",
    "audit_i5_resolved_once": "UPDATE waits SET cause = NULL WHERE run_id = 'run_done'",
    "audit_i7_correlation_key_is_freed": "UPDATE names SET run_id = 'run_done'",
    "audit_i7_kinds_are_known": f"{STEP}; UPDATE names SET kind = 'nickname'",
    "audit_i7_nothing_left_open": "INSERT INTO timers (run_id, no, due_at) VALUES ('run_done', 0, now())",
    "audit_i7_only_a_cancel_is_passed_on": CHORE % ("cancel_children:run_done", "cancel_children", "run_done"),
    "audit_i7_rows_agree": "UPDATE runs SET ended_at = NULL WHERE id = 'run_done'",
    "audit_i7_signal_id_is_freed": TAKEN,
    "audit_i8_epoch_fences": "UPDATE queue SET epoch = 7 WHERE run_id = 'run_running'",
    "audit_i9_ready_is_queued": "DELETE FROM queue WHERE run_id = 'run_ready'",
    "audit_i9_running_has_lease": "UPDATE queue SET worker = NULL WHERE run_id = 'run_running'",
    "audit_i10_cancelled_ends_cancelled": "UPDATE runs SET cancel_reason = 'why not' WHERE id = 'run_done'",
    "audit_i11_deadline_is_looked_for": "UPDATE waits SET due_at = NULL WHERE run_id = 'run_parked'",
    "audit_i11_no_early_timeout": EARLY,
    "audit_i11_timers_agree": "UPDATE runs SET cancel_until = now() WHERE id = 'run_running'",
    "audit_i12_chores_have_an_owner": CHORE % ("dispatch:1", "dispatch", ""),
    "audit_i12_pending_is_promised": f"{UNIT % (1, 0, 'true')}; {PENDING}",
    "audit_i13_unit_counts": UNIT % (1, 1, "false"),
    "audit_i13_unit_releases": UNIT % (0, 0, "true"),
    "audit_i13_join_counts": "UPDATE waits SET received = 0 WHERE run_id = 'run_parent'",
    "audit_i13_join_releases": "UPDATE waits SET received = 2 WHERE run_id = 'run_parent'",
    "audit_i14_belongs_to_a_run": "UPDATE inbox SET run_id = 'run_nobody'",
    "audit_i14_parts_belong_to_a_run": ORPHANS,
    "audit_i14_one_workspace": "UPDATE waits SET workspace = 'other' WHERE run_id = 'run_parked'",
}


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, now=Clock(), migrate=True, hints=False)
    await store.open()
    await populate(store)
    assert await store.audit() == []
    yield store
    await store.close()


@pytest.fixture
async def connection(store: PostgresStore, postgres_url: str) -> AsyncIterator[Connection]:
    """On the tables of the store, without the constraints that would refuse what a test does to them."""
    connection = await connect(postgres_url)
    checks = """
        SELECT conrelid::regclass::text, quote_ident(conname)
          FROM pg_constraint
         WHERE contype = 'c'
           AND connamespace = current_schema()::regnamespace
    """
    for table, name in await connection.fetch(checks):
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    yield connection
    await connection.close()


def test_every_question_of_the_audit_has_a_row_that_breaks_it() -> None:
    assert sorted(BREAKS) == AUDITS


@pytest.mark.parametrize("question", BREAKS)
async def test_the_audit_names_the_invariant_that_a_row_breaks(
    store: PostgresStore, connection: Connection, question: str
) -> None:
    for statement in re.split(r";\s", BREAKS[question]):
        assert not (await connection.execute(statement)).endswith(" 0")

    found = await store.audit()
    text = files("bide.stores.postgres").joinpath("sql", f"{question}.sql").read_text(encoding="utf-8")
    details = {detail for _, detail in await connection.fetch(text.replace("{schema}.", ""))}
    invariant = question.split("_")[1].upper()
    assert details
    assert details <= {violation.detail for violation in found if violation.invariant == invariant}


UNFIT = {
    "UPDATE runs SET status = 'asleep' WHERE id = 'run_done'": "I7",
    "UPDATE runs SET ended_at = now() WHERE id = 'run_parked'": "I7",
    "UPDATE runs SET parked_on = NULL WHERE id = 'run_parked'": "I7",
    "UPDATE runs SET held = 'poison' WHERE id = 'run_running'": "I7",
    "UPDATE runs SET parent_id = 'run_parent' WHERE id = 'run_ready'": "I7",
    "UPDATE runs SET inbox_seq = 0 WHERE id = 'run_parked'": "I7",
    "UPDATE runs SET correlation_scope = 'never' WHERE id = 'run_parked'": "I7",
    "UPDATE runs SET attempt = -1 WHERE id = 'run_running'": "I7",
    "UPDATE runs SET claims = -1 WHERE id = 'run_running'": "I7",
    "UPDATE runs SET commits = -1 WHERE id = 'run_running'": "I7",
    "UPDATE runs SET wait_no = -1 WHERE id = 'run_ready'": "I7",
    "UPDATE waits SET status = 'asleep' WHERE run_id = 'run_done'": "I5",
    "UPDATE waits SET due_at = now() WHERE run_id = 'run_done'": "I5",
    "UPDATE waits SET received = 9 WHERE run_id = 'run_parent'": "I5",
}


@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_audit_names_rows_that_no_check_of_the_tables_refuses(
    store: PostgresStore, connection: Connection, unfit: str
) -> None:
    """Checks would cost each wake more than all that it writes."""
    assert await connection.execute(unfit) == "UPDATE 1"
    assert any(found.invariant == UNFIT[unfit] and "says otherwise" in found.detail for found in await store.audit())


# ---------------------------------------------------------------- what only the ledgers tell


class Told(NamedTuple):
    """Entries that a run's ledger gets by hand, each as a page of its own in a whole chain, and what is wrong then."""

    run_id: str
    entries: list[tuple[str, dict[str, Any]]]
    invariant: str
    detail: str


LEDGER_BREAKS = {
    "lost": Told(
        "run_ready",
        [("signal_received", {"id": "sig_lost"})],
        "I1",
        "signal sig_lost was admitted and is kept, used or discarded 0 times",
    ),
    "used twice": Told(
        "run_done",
        [("signals_consumed", {"ids": ["sig_go"]})],
        "I2",
        "signal sig_go was used up 2 times",
    ),
    "used before it came": Told(
        "run_running",
        [("signals_consumed", {"ids": ["sig_never"]})],
        "I3",
        "signal sig_never was used up before it came",
    ),
    "used by a turn that was not handed it": Told(
        "run_running",
        [("signal_received", {"id": "sig_late"}), ("signals_consumed", {"ids": ["sig_late"]})],
        "I3",
        "signal sig_late was used up by a turn that it came after",
    ),
    "ended twice": Told(
        "run_done",
        [("run_completed", {"to": "completed"})],
        "I7",
        "its ledger tells of 2 ends",
    ),
    "claimed under an old epoch": Told(
        "run_running",
        [("run_claimed", {"to": "running", "epoch": 1})],
        "I8",
        "was claimed at epoch 1 after 1, and is at 1",
    ),
    "claimed ahead of its run": Told(
        "run_running",
        [("run_claimed", {"to": "running", "epoch": 5})],
        "I8",
        "was claimed at epoch 5 after 1, and is at 1",
    ),
    "ended a wait twice": Told(
        "run_done",
        [("await_unit_terminal", {"wait": 1, "status": "timed_out"})],
        "I5",
        "its ledger tells of 2 ends of wait 1",
    ),
    "progress after a cancel": Told(
        "run_running",
        [("run_cancelled", {"to": "cancelled"}), ("step_committed", {"from": "cancelled", "to": "running"})],
        "I10",
        "was cancelled, and its ledger goes on with step_committed",
    ),
    "told of another status": Told(
        "run_done",
        [("run_failed", {"from": "completed", "to": "failed"})],
        "I16",
        "the run is completed, its ledger tells of failed",
    ),
}


async def tell(store: PostgresStore, connection: Connection, run: Run, name: str, data: dict[str, Any]) -> None:
    entry = ledger.append(run.ledger_head, run.ledger_seq + 1, await store.now(), name, "nobody", data)
    page = pack(ledger.encode_page([entry]))
    await connection.execute("INSERT INTO ledger (run_id, seq, entries) VALUES ($1, $2, $3)", run.id, entry.seq, page)
    head = bytes.fromhex(entry.hash)
    update = "UPDATE runs SET ledger_seq = $2, ledger_head = $3 WHERE id = $1"
    await connection.execute(update, run.id, entry.seq, head)


async def test_the_audit_finds_a_dedup_key_whose_message_never_came(
    store: PostgresStore, connection: Connection
) -> None:
    insert = "INSERT INTO names VALUES (now(), 'main', 'dedup', $1, 'run_done', 'd', $2)"
    for name, message in [("a", "sig_go"), ("b", "sig_never"), ("once:c", "{}"), ("d", "")]:
        await connection.execute(insert, name, message)

    [found] = await store.audit()
    assert (found.invariant, found.id) == ("I15", "run_done")
    assert found.detail == "message sig_never is known as admitted, and its ledger does not tell of it"


@pytest.mark.parametrize("name", LEDGER_BREAKS)
async def test_the_audit_names_the_invariant_that_a_ledger_breaks(
    store: PostgresStore, connection: Connection, name: str
) -> None:
    told = LEDGER_BREAKS[name]
    for entry, data in told.entries:
        run = await store.run(WORKSPACE, told.run_id)
        assert run is not None
        await tell(store, connection, run, entry, data)

    found = [(violation.invariant, violation.id, violation.detail) for violation in await store.audit()]
    assert (told.invariant, told.run_id, told.detail) in found
    assert {id for _, id, _ in found} == {told.run_id}
