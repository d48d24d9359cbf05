"""A database that goes back to a backup: what it holds goes on, and what came after has never been (F80)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bide.core.commands import Committed, Receipt, Stale
from bide.core.records import RunId, Turn
from bide.stores.postgres import PostgresStore
from bide.testing.store_contract.making import (
    HOUR,
    a_commit,
    a_signal,
    a_start,
    an_offer,
    ending,
    parked,
    reply_to,
    row,
    running,
    told,
)
from bide.testing.world import VirtualClock
from tests.support.postgres import Server, connect
from tests.support.staging import until


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@asynccontextmanager
async def opened(url: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, now=clock, hints=False, migrate=True)
    await store.open()
    try:
        yield store
        assert await store.audit() == []
    finally:
        await store.close()


@pytest.fixture
async def backup_url(own_database_url: str, postgres_server: Server) -> AsyncIterator[str]:
    """Where `take_backup` puts the copy."""
    name = f"{urlsplit(own_database_url).path[1:]}_backup"
    yield urlsplit(own_database_url)._replace(path=f"/{name}").geturl()
    admin = await connect(postgres_server.url())
    await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await admin.close()


async def take_backup(server: Server, url: str, backup_url: str) -> None:
    """Every row as it is, as a dump would have it. Nobody may be connected."""
    admin = await connect(server.url())

    async def is_left() -> bool:
        """Sessions that were closed may be on their way out."""
        there = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"
        return not await admin.fetchval(there, urlsplit(url).path[1:])

    await until(is_left)
    await admin.execute(f"CREATE DATABASE {urlsplit(backup_url).path[1:]} TEMPLATE {urlsplit(url).path[1:]}")
    await admin.close()


async def test_what_a_backup_holds_goes_on_and_what_came_after_it_is_taken_when_it_is_sent_again(
    own_database_url: str, backup_url: str, postgres_server: Server, clock: VirtualClock
) -> None:
    """Senders who repeat themselves make up for what was lost; a worker of before that comes late is fenced off."""
    paid, later = a_signal("run_1", dedup_key="evt-7"), a_start("run_3")
    async with opened(own_database_url, clock) as store:
        await parked(store, "run_1")
        stray: Turn = await running(store, "run_2")
    await take_backup(postgres_server, own_database_url, backup_url)

    async with opened(own_database_url, clock) as store:
        turn = (await store.execute([paid, later], an_offer())).turns[RunId("run_1")]
        await store.execute([a_commit(turn, ending(), used=turn.inbox)])
        assert (await row(store, "run_1")).status == "completed"

    clock.advance(HOUR)
    async with opened(backup_url, clock) as restored:
        assert (await row(restored, "run_1")).status == "waiting"
        assert await restored.run("default", "run_3") is None
        assert told(Receipt, await reply_to(restored, paid)).outcome == "woke"
        await reply_to(restored, later)
        turns = (await restored.claim(an_offer("w-2"))).turns
        assert turns.keys() == {"run_1", "run_2", "run_3"}
        told(Stale, await reply_to(restored, a_commit(stray, ending())))
        for turn in turns.values():
            told(Committed, await reply_to(restored, a_commit(turn, ending(), used=turn.inbox)))
        assert await restored.count_runs("default") == {"completed": 3}
