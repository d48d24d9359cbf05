"""Hints of the SQLite store (D7): others' commits wake, its own do not. The poll is called by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide.stores.sqlite import SqliteStore
from tests.support.populated import start

NEVER = 3600.0  # seconds between two polls


class Watched:
    """A store, and how often it was told that somebody changed the file."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.wakes = 0
        self._runs = 0
        store.subscribe(self._wake)

    async def commit(self) -> None:
        self._runs += 1
        await self.store.execute([start(f"run_{id(self)}_{self._runs}")])

    async def poll(self) -> int:
        """Look at the file once; how often it woke, also what the look at the writer's connection found."""
        before = self.wakes
        self.store._open_lanes()[2]._poll()
        await self.store.end_leases("nobody")  # the writer has done what was posted before
        await asyncio.sleep(0)  # and its wakes are on their way
        return self.wakes - before

    def _wake(self) -> None:
        self.wakes += 1


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Watched]:
    store = SqliteStore(str(tmp_path / "bide.db"), poll_seconds=NEVER)
    await store.open()
    yield Watched(store)
    await store.close()


@pytest.fixture
async def there(here: Watched) -> AsyncIterator[Watched]:
    store = SqliteStore(here.store.path, poll_seconds=NEVER)
    await store.open()
    yield Watched(store)
    await store.close()


async def test_D7_what_a_process_commits_itself_does_not_wake_it(here: Watched) -> None:
    for _ in range(3):
        await here.commit()
        assert await here.poll() == 0


async def test_D7_what_another_process_commits_wakes(here: Watched, there: Watched) -> None:
    for _ in range(3):
        await there.commit()
        assert await here.poll() > 0
        assert await here.poll() == 0, "once"


async def test_D7_a_commit_of_another_process_is_seen_among_ones_own(here: Watched, there: Watched) -> None:
    """A poll finds only that there was a change; whose, the connection that writes can tell."""
    await here.commit()
    await here.poll()
    for first, second in ((here, there), (there, here)):
        before = here.wakes
        await first.commit()
        await second.commit()
        await here.poll()
        assert here.wakes > before


async def test_D7_an_empty_transaction_wakes_nobody(here: Watched, there: Watched) -> None:
    await here.commit()
    await there.poll()
    await here.poll()
    await here.store.end_leases("nobody")
    assert await there.poll() == 0


async def test_S11_a_transaction_of_the_callers_own_wakes(here: Watched) -> None:
    async with here.store.connection() as connection:
        await here.store.leave(connection, start("run_joined"))
        assert here.wakes == 0, "nothing is committed yet"
    await asyncio.sleep(0)
    assert here.wakes > 0


async def test_a_poll_while_the_store_is_closed_does_no_harm(here: Watched) -> None:
    hints = here.store._open_lanes()[2]
    await here.commit()
    writer = here.store._open_lanes()[0]
    await writer.close()
    hints._poll()
    await hints.close()
