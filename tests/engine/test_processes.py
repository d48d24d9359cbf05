"""Real worker processes on one store, killed for real: nothing that was acknowledged may be lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bide
from bide.client import Client
from bide.stores.postgres import migrate
from tests.engine.team import Workers, leases_of_the_dead_end, shop, workers
from tests.engine.worker_process import ITEMS
from tests.support.staging import DEADLINE, until

KILLS = int(os.environ.get("BIDE_TEST_KILLS", "50"))


@pytest.fixture(autouse=True)
def _without_settings_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BIDE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stores that other processes can open."""
    monkeypatch.setenv("DOOR", str(tmp_path / "door"))
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    made: str = request.getfixturevalue("postgres_used_url")
    asyncio.run(migrate(made))
    return made


async def test_two_processes_on_one_store_share_the_work(url: str) -> None:
    async with shop(url) as client, workers(url) as team:
        first, second = [await team.spawn(concurrency="2") for _ in range(2)]
        runs = 0
        async with asyncio.timeout(DEADLINE):  # neither keeps the work to itself, however long one got no processor
            while not runs or 10 * min(team.shares[first], team.shares[second]) < max(team.shares.values()):
                started = await asyncio.gather(*(client.start("chain", 2) for _ in range(150)))
                runs += len(started)
                for run in started:
                    assert await client.result(run.id, timeout="2m") == 0
                while team.shares.total() < 3 * runs:
                    await team.report("step")
        await team.terminate(first, second)
        assert team.shares.total() == 3 * runs, "no step ran twice"


async def test_workers_that_are_killed_at_random_moments_lose_nothing(url: str) -> None:
    """Fifty times. What this test was told is delivered, it remembers itself, and finds again."""
    chance = random.Random(2030)
    async with shop(url) as client, workers(url) as team:
        settings = {"lease": "250ms", "max_claims": "10000", "concurrency": "5"}
        alive = [await team.spawn(**settings) for _ in range(2)]
        runs = await asyncio.gather(*(client.start("courier") for _ in range(KILLS // 2)))
        acknowledged: dict[str, list[tuple[str, int]]] = {run.id: [] for run in runs}

        async def send_all() -> None:
            """Each courier gets its items in order; one of four is sent twice, as after a lost reply."""
            for no in range(ITEMS):
                for run in runs:
                    receipt = await client.signal(run.id, "item", no, f"item-{no}")
                    assert receipt.message_id is not None
                    acknowledged[run.id].append((receipt.message_id, no))
                    if chance.random() < 0.25:
                        assert (await client.signal(run.id, "item", no, f"item-{no}")).outcome == "duplicate"
            chains.extend(await start_chains())  # there are steps to be killed at also where all couriers are done

        async def start_chains() -> list[bide.Run[Any]]:
            return await asyncio.gather(*(client.start("chain", 20) for _ in range(5)))

        chains: list[bide.Run[Any]] = []
        sending = asyncio.create_task(send_all())
        killed: list[int] = []
        while len(killed) < KILLS:
            pid, *_ = await team.report("step")
            if int(pid) in alive and chance.random() < 0.3:
                team.kill(int(pid))
                killed.append(int(pid))
                alive.remove(int(pid))
                alive.append(await team.spawn(**settings))
                if sending.done():
                    chains += await start_chains()
        await sending
        for run in (*runs, *chains):
            result = await client.result(run.id, timeout="2m")
            if run.id not in acknowledged:
                continue
            assert result == list(range(ITEMS)), "every item once, in order"
            consumed = [id for entry in await client.ledger(run.id) for id in entry.data.get("ids", ())]
            discarded = [id for entry in await client.ledger(run.id) for id in entry.data.get("discarded", ())]
            assert sorted(consumed + discarded) == sorted(id for id, _ in acknowledged[run.id])
        await team.terminate(*alive)
        for each in killed:
            await team.exit_of(each)
        assert Counter(team.exits.values()) == {-signal.SIGKILL: KILLS, 0: 2}


async def test_D12_a_worker_that_is_told_to_stop_finishes_its_step_and_ends_well(url: str, tmp_path: Path) -> None:
    async with shop(url) as client, workers(url) as team:
        first = await team.spawn(lease="1h")
        run = await client.start("visitor")
        await team.report("step")
        team.kill(first, signal.SIGTERM)
        await team.report("stopping")
        (tmp_path / "door").touch()
        assert await team.exit_of(first) == 0
        info = await client.get(run.id)
        assert (info.status, info.step, info.state) == ("ready", "enter", "knocked")
        second = await team.spawn(lease="1h")
        assert await client.result(run.id, timeout="2m") == ["knocked", "entered"]
        await team.terminate(second)
        assert team.steps == {(run.id, "knock"): 1, (run.id, "enter"): 1}


async def test_D12_workers_that_come_and_go_under_load_leave_nothing_to_a_lease(url: str) -> None:
    """A lease lasts an hour here: a run that waited for one would not be done in time."""
    async with shop(url) as client, workers(url) as team:
        runs = await asyncio.gather(*(client.start("chain", 5) for _ in range(60)))
        for _ in range(8):
            pid = await team.spawn(lease="1h", concurrency="8")
            for _ in range(20):
                if (await team.report("step"))[0] == str(pid):
                    break
            await team.terminate(pid)
        assert await client.runs(status="running") == []
        last = await team.spawn(lease="1h")
        for run in runs:
            assert await client.result(run.id, timeout="2m") == 0
        await team.terminate(last)
        assert set(team.steps.values()) == {6}, "no step ran twice"


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
async def test_D2_a_worker_killed_between_two_commits_repeats_only_what_was_not_committed(url: str, point: str) -> None:
    async with shop(url) as client, workers(url) as team:
        run = await client.start("courier")
        await asyncio.gather(*(client.signal(run.id, "item", no) for no in range(ITEMS)))
        async with leases_of_the_dead_end(client, team):
            for step in ("begin", "take", "keep"):
                doomed = await team.spawn(lease="1h", BIDE_FAILPOINT=f"{point}:{step}")
                assert await team.exit_of(doomed) == -signal.SIGKILL
            survivor = await team.spawn(lease="1h")
            assert sorted(await client.result(run.id, timeout="2m")) == list(range(ITEMS))
        await team.terminate(survivor)
        repeated = {"before": 1, "after_code": 2, "after_commit": 1}[point]
        assert team.steps == {(run.id, step): repeated for step in ("begin", "take", "keep")}


async def test_D3_a_worker_that_slept_past_its_lease_changes_nothing_when_it_wakes(url: str, tmp_path: Path) -> None:
    async with shop(url) as client, workers(url) as team:
        sleeper = await team.spawn(lease="150ms", max_claims="10000")
        run = await client.start("visitor")
        await team.report("step")
        await put_to_sleep(team, sleeper, client, run.id)
        other = await team.spawn(lease="1h", max_claims="10000")
        (tmp_path / "door").touch()
        assert await client.result(run.id, timeout="2m") == ["knocked", "entered"]
        before: Any = await client.ledger(run.id)
        team.kill(sleeper, signal.SIGCONT)
        await team.terminate(sleeper, other)
        assert await client.ledger(run.id) == before
        assert team.stale[sleeper] >= 1
        assert team.stale[other] == 0


async def put_to_sleep(team: Workers, pid: int, client: Client, run_id: str) -> None:
    """Stop a worker where it holds no lock: stopped inside a write, it would stop everybody who wants the same."""
    while True:
        team.kill(pid, signal.SIGSTOP)
        await team.report("stopped")  # until its first thread gets to it the others go on, and may take the lock yet
        write = asyncio.create_task(client.signal(run_id, "is it free?"))
        if (await asyncio.wait({write}, timeout=1))[0] and write.exception() is None:
            return
        team.kill(pid, signal.SIGCONT)
        await asyncio.wait({write})


async def test_D10_a_step_that_kills_its_process_each_time_is_held_and_the_others_are_served(url: str) -> None:
    async with shop(url) as client, workers(url) as team:
        poison = await client.start("visitor")
        healthy = await asyncio.gather(*(client.start("chain", 3) for _ in range(10)))
        settings = {"lease": "1h", "max_claims": "3", "BIDE_FAILPOINT": "before:knock"}

        async def held() -> list[bide.RunInfo]:
            return await client.runs(held=True)

        async with leases_of_the_dead_end(client, team):
            for _ in range(3):
                doomed = await team.spawn(**settings)
                assert await team.exit_of(doomed) == -signal.SIGKILL
            survivor = await team.spawn(**settings)
            for run in healthy:
                assert await client.result(run.id, timeout="2m") == 0
            await until(held)
        assert [(run.id, run.held, run.status) for run in await held()] == [(poison.id, "poison", "ready")]
        await team.terminate(survivor)
