"""A workflow of every kind of step and wait, killed at every point there is, for real: it always ends the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide.engine.runtime import open_store
from bide.engine.settings import load_settings
from bide.stores.postgres import migrate
from tests.engine.matrix_process import RESULT, STEPS
from tests.support.staging import DEADLINE

SHARES = 4  # each counts the points and takes its share of them: they are spread over the processes of the tests
AT_ONCE = 4


class Nursery:
    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._exits: dict[str, asyncio.Future[int]] = {}

    async def run(self, name: str, store: str, at: int) -> int:
        """Let a process play the run of that name until it ends or is killed; its exit code."""
        assert self._process.stdin is not None
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exits[name] = gone
        self._process.stdin.write(f"{name} {store} {self._folder / name}.trace {at}\n".encode())
        async with asyncio.timeout(2 * DEADLINE):
            return await gone

    def trace(self, name: str) -> list[str]:
        return (self._folder / f"{name}.trace").read_text(encoding="utf-8").splitlines()

    async def listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            _, name, code = line.decode().split()
            self._exits[name].set_result(int(code))


@contextlib.asynccontextmanager
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.engine.matrix_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("BIDE_")},
    )
    made = Nursery(process, folder)
    listening = asyncio.create_task(made.listen())
    try:
        yield made
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it kills its processes and itself then
        await process.wait()
        await listening


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where runs live: SQLite has a file for each run, PostgreSQL one schema for all."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        asyncio.run(migrate(url))
        return url
    return f"sqlite:///{tmp_path}/NAME.db"


@pytest.mark.parametrize("share", range(SHARES))
def test_D2_a_workflow_killed_at_any_point_goes_on_and_ends_the_same(kind: str, share: int, tmp_path: Path) -> None:
    """D2, D4, D6: before and after the code of every step, and before and after every commit."""
    asyncio.run(kill_at_every_point(kind, share, tmp_path))


async def kill_at_every_point(kind: str, share: int, folder: Path) -> None:
    async with nursery(folder) as processes:
        whole = f"whole-{share}"
        assert await processes.run(whole, kind.replace("NAME", whole), 0) == 0
        points = [line for line in processes.trace(whole) if line.startswith("point ")]
        assert {line.split()[2] for line in points} >= set(STEPS), "every step has its points"
        assert {line.split()[1] for line in points} >= {"before", "after_code", "after_commit", "before_write"}
        check(processes.trace(whole), Counter(STEPS) + Counter({"flaky": 1}))

        slots = asyncio.Semaphore(AT_ONCE)

        async def kill_and_go_on(at: int) -> int:
            name = f"killed-{share}-{at}"
            store = kind.replace("NAME", name)
            async with slots:
                code = await processes.run(name, store, at)
                if code != 0:
                    assert code == -signal.SIGKILL
                    assert await processes.run(name, store, 0) == 0
            check(processes.trace(name))
            if kind.startswith("sqlite"):
                assert await audit(store) == []
            return code

        killed = await asyncio.gather(*map(kill_and_go_on, range(1 + share, len(points) + 1, SHARES)))
        assert killed.count(-signal.SIGKILL) >= len(killed) - 3, "polls and leases move the last points a little"
        if not kind.startswith("sqlite"):
            assert await audit(kind) == []


def check(trace: list[str], exactly: Counter[str] | None = None) -> None:
    """It ends the same, whatever was killed; a step whose result is committed never runs again."""
    results = {line.removeprefix("result ") for line in trace if line.startswith("result ")}
    assert results == {repr(RESULT)}, trace
    ran = Counter(line.removeprefix("ran ") for line in trace if line.startswith("ran "))
    assert set(ran) == set(STEPS)
    if exactly is not None:
        assert ran == exactly
    for step in set(STEPS) - {"flaky"}:  # it is run again on purpose
        committed = trace.index(f"point after_commit {step}") if f"point after_commit {step}" in trace else len(trace)
        assert f"ran {step}" not in trace[committed:], f"{step} ran after its commit"
        assert ran[step] <= 2, f"one kill repeats a step once, {step} ran {ran[step]} times"


async def audit(url: str) -> list[object]:
    store = open_store(url, load_settings({"store": url}, {}))
    await store.open()
    try:
        return list(await store.audit())
    finally:
        await store.close()
