"""The order of the stream on PostgreSQL, where commits become visible in another order than they began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bide.stores.interface import Streamed
from bide.stores.postgres import PostgresStore
from bide.testing.store_contract.making import a_commit, ending, parked, started, woken
from bide.testing.store_contract.stream import PATIENCE, of, streamed
from tests.support.postgres import connect

RUNS = 40
COPY = "INSERT INTO ledger (run_id, seq, entries) SELECT run_id, seq + 90, entries FROM ledger WHERE run_id = $1"


@pytest.fixture
async def store(postgres_used_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_used_url, hints=False, migrate=True)
    await store.open()
    yield store
    await store.close()


async def test_a_page_waits_for_whoever_began_before_and_may_still_write(
    store: PostgresStore, postgres_used_url: str
) -> None:
    """Nothing comes in before what was read, and an older transaction's page is seen too."""
    await started(store, "run_1")
    before = await streamed(store, 1)
    slow = await connect(postgres_used_url)
    async with slow.transaction():
        await slow.execute("SELECT pg_current_xact_id()")
        await started(store, "run_2")
        assert await store.stream("default", "", limit=9) == before
        assert await store.stream("default", await store.stream_end(), limit=9) == []
        await slow.execute(COPY, "run_1")
        assert await store.stream("default", "", limit=9) == before
    await slow.close()

    after = await streamed(store, 3, place=before[0].place)
    assert after[0] == before[0]
    assert [each.page.run_id for each in after if each.page] == ["run_1", "run_2", "run_1"]


async def test_pages_of_a_run_are_in_order_also_where_a_younger_transaction_wrote_first(
    store: PostgresStore, postgres_used_url: str
) -> None:
    """An older transaction that waited for a younger one writes after it; by their numbers alone it would come first,
    and alone, while a third one between them still runs."""
    older, between = await connect(postgres_used_url), await connect(postgres_used_url)
    await older.execute("BEGIN; SELECT pg_current_xact_id()")
    await between.execute("BEGIN; SELECT pg_current_xact_id()")
    await started(store, "run_1")  # the younger one
    await older.execute(COPY, "run_1")
    await older.execute("COMMIT")

    assert await store.stream("default", "", limit=9) == []
    await between.execute("ROLLBACK")
    pages = [each.page for each in await streamed(store, 2)]

    assert [page.seq for page in of(pages, "run_1")] == [1, 91]
    await older.close()
    await between.close()


async def test_a_reader_beside_writers_sees_every_page_once_and_in_the_order_of_its_run(
    store: PostgresStore, postgres_used_url: str
) -> None:
    """Four processes write while one reads."""
    writers = [PostgresStore(postgres_used_url, hints=False) for _ in range(4)]
    for writer in writers:
        await writer.open()
    total: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(follow(store, total))

    await asyncio.gather(*(write(writer, n) for n, writer in enumerate(writers)))
    ledgers = {run_id: list(await store.ledger(run_id)) for run_id in map(run, range(len(writers) * RUNS))}
    total.set_result(sum(map(len, ledgers.values())))
    seen = [each.page for each in await reading]

    for writer in writers:
        await writer.close()
    for run_id, pages in ledgers.items():
        assert pages
        assert of(seen, run_id) == pages


def run(n: int) -> str:
    return f"run_{n:03}"


async def write(store: PostgresStore, nth: int) -> None:
    for n in range(nth * RUNS, (nth + 1) * RUNS):
        await parked(store, run(n))
        turn = await woken(store, run(n))
        await store.execute([a_commit(turn, ending(), used=turn.inbox)])


async def follow(store: PostgresStore, total: asyncio.Future[int]) -> list[Streamed]:
    """As a connection does: from place to place."""
    seen: list[Streamed] = []
    async with asyncio.timeout(4 * PATIENCE):
        while not total.done() or len(seen) < total.result():
            found = await store.stream("default", seen[-1].place if seen else "", limit=50)
            seen += found[1:] if seen else found
    return seen
