"""Runs in progress on PostgreSQL: what is known of them, until when, and what that spares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bide.core.commands import Committed, Stale
from bide.core.records import Run, RunId, Turn
from bide.stores.postgres import PostgresStore
from bide.stores.postgres.progress import MOST, InProgress
from bide.stores.postgres.sessions import Connection
from bide.testing.store_contract.making import (
    a_commit,
    a_signal,
    a_start,
    an_offer,
    ending,
    going_on,
    reply_to,
    running,
    told,
    waiting_for,
)
from tests.stores.test_postgres_batches import until_blocked
from tests.support.postgres import connect

AT = datetime(2030, 1, 1, tzinfo=UTC)
A_RUN = Run(
    workspace="default",
    id=RunId("run_1"),
    definition="order",
    version="1",
    style="machine",
    status="running",
    step="begin",
    state="{}",
    input="{}",
    created_at=AT,
    updated_at=AT,
    ready_at=AT,
)


@pytest.fixture
async def store(postgres_used_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_used_url, hints=False, migrate=True)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


@pytest.fixture
async def rival(store: PostgresStore, postgres_used_url: str) -> AsyncIterator[Connection]:
    connection = await connect(postgres_used_url)
    yield connection
    await connection.close()


async def test_D3_a_row_that_a_rival_is_about_to_write_is_not_taken_for_the_known_one(
    store: PostgresStore, rival: Connection
) -> None:
    turn = await running(store)
    claiming = rival.transaction()
    await claiming.start()
    await rival.execute("UPDATE runs SET epoch = epoch + 1 WHERE id = 'run_1'")

    commit = asyncio.create_task(reply_to(store, a_commit(turn, going_on())))
    await until_blocked(rival, commit)
    await claiming.commit()

    told(Stale, await commit)
    await rival.execute("UPDATE runs SET epoch = epoch - 1 WHERE id = 'run_1'")


async def test_a_row_that_a_rival_leaves_as_it_was_is_the_known_one(store: PostgresStore, rival: Connection) -> None:
    turn = await running(store)
    claiming = rival.transaction()
    await claiming.start()
    await rival.execute("UPDATE runs SET epoch = epoch + 1 WHERE id = 'run_1'")

    commit = asyncio.create_task(reply_to(store, a_commit(turn, waiting_for("go"))))
    await until_blocked(rival, commit)
    await claiming.rollback()

    assert told(Committed, await commit).run.status == "waiting"


async def test_a_known_run_and_its_inbox_are_not_read_again(store: PostgresStore, postgres_used_url: str) -> None:
    other = PostgresStore(postgres_used_url, hints=False)
    await other.open()
    run_ids = ["run_1", "run_2"]
    turns = (await store.execute([a_start(run_id) for run_id in run_ids], an_offer())).turns
    await store.execute([a_commit(turns[RunId(run_id)], waiting_for("go")) for run_id in run_ids])
    turns = (await store.execute([a_signal(run_id) for run_id in run_ids], an_offer())).turns
    spent = []
    for place, run_id in ((store, "run_1"), (other, "run_2")):
        before, turn = place.round_trips, turns[RunId(run_id)]
        told(Committed, await reply_to(place, a_commit(turn, ending(), used=turn.inbox)))
        spent.append(place.round_trips - before)
    await other.close()

    assert spent == [4, 5]  # begin, lock, (read the inbox,) write, commit


def test_only_runs_that_are_running_are_kept() -> None:
    known = InProgress()
    known.note("771", [A_RUN, replace(A_RUN, id=RunId("run_2"), status="waiting")], {})
    assert len(known) == 1
    assert known.unmoved([(A_RUN.id, "771")])[A_RUN.id].run is A_RUN

    known.note("772", [replace(A_RUN, status="completed")], {})
    assert len(known) == 0


def test_a_run_that_others_have_written_or_that_was_written_alone_is_not_known() -> None:
    known = InProgress()
    known.note("771", [A_RUN], {})
    assert known.unmoved([(A_RUN.id, "772")]) == {}
    assert len(known) == 0

    known.note("771", [A_RUN], {})
    known.note(None, [A_RUN], {})
    assert not known.knows_any([A_RUN.id])


def test_versions_are_the_last_bits_of_the_number_of_a_transaction() -> None:
    known = InProgress()
    known.note(str(2**32 + 7), [A_RUN], {})
    assert known.unmoved([(A_RUN.id, "7")])


def test_an_inbox_counts_only_where_all_of_it_is_there() -> None:
    known = InProgress()
    known.note("771", [replace(A_RUN, inbox_count=1)], {A_RUN.id: Turn(run=A_RUN)})
    assert known.unmoved([(A_RUN.id, "771")])[A_RUN.id].inbox is None


def test_so_many_runs_are_kept_and_none_after_a_connection_was_lost() -> None:
    known = InProgress()
    known.note("771", [replace(A_RUN, id=RunId(f"run_{number}")) for number in range(MOST + 10)], {})
    assert len(known) == MOST
    assert not known.knows_any([RunId("run_9")])

    known.forget()
    assert len(known) == 0
