"""Workers that are killed in the middle of many items, for real: the rest is done, and nothing twice (U4, U5, D6)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.stores.postgres import migrate
from tests.engine.team import shop, workers

COUNT = int(os.environ.get("BIDE_TEST_ITEMS", "1000"))
KILLS = 8


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Stores that other processes can open."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'items.db'}"
        return
    made: str = request.getfixturevalue("postgres_used_url")
    asyncio.run(migrate(made))
    yield made


async def test_U4_workers_killed_in_the_middle_of_many_items_lose_none_and_do_none_twice(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times, at random moments: while items are given, sent, worked on, or committed. `BIDE_TEST_ITEMS=10000`."""
    monkeypatch.delenv("BIDE_TEST_ITEMS", raising=False)
    chance = random.Random(COUNT)
    settings = {
        "lease": "250ms",
        "outbox_lease": "250ms",
        "max_claims": "10000",
        "await_aggregate_max_output_items": "1000000",
        "DIARY": str(tmp_path / "diary"),
    }
    async with shop(url) as client, workers(url) as team:
        run = await client.start("items", COUNT)
        for _ in range(KILLS):
            after, delay = chance.randrange(1, max(2, COUNT // (2 * KILLS))), chance.choice((0, 0, 2, 10))
            doomed = await team.spawn(**settings, DOOM=f"{after}:{delay}")
            assert await team.exit_of(doomed) == -signal.SIGKILL
        progress = await client.progress(run.id)
        assert progress.done < COUNT, "the last one was killed in the middle"
        survivors = [await team.spawn(**settings) for _ in range(2)]
        assert await client.result(run.id, timeout="5m") == list(range(1, COUNT + 1))
        await team.terminate(*survivors)
        entries = await client.ledger(run.id)
    answered = Counter(entry.data["item"] for entry in entries if entry.name == "await_unit_item_completed")
    ended = Counter(item for e in entries if e.name == "items_committed" for item in e.data.get("done", ()))
    once = Counter(range(COUNT))
    assert (answered, ended) == (once, once)
    worked = Counter(line for line in (tmp_path / "diary").read_text().splitlines() if line.startswith("worked"))
    assert set(worked) == {f"worked {number}" for number in range(COUNT)}
    assert worked.total() > COUNT, "work that was not committed was done again"
