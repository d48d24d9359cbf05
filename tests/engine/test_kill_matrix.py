"""Workflows of every kind of step and wait, killed at the points they come to, for real: they always end the same.

Each time that they come to a point would be too often: of the second workflow, and of the first on PostgreSQL, one time
is drawn for each kind of point. `BIDE_KILLS=all` takes them all; `BIDE_KILLS_SEED` draws others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import get_args, get_type_hints

import pytest

from bide.core.commands import NewWait
from bide.engine.probes import Point
from bide.engine.runtime import open_store
from bide.engine.settings import load_settings
from bide.stores.postgres import migrate
from tests.engine.matrix_process import PLAYS, VARIABLE
from tests.support.staging import DEADLINE

SHARES = 4  # each counts the points and takes its share of them: they are spread over the processes of the tests
AT_ONCE = 4
ALL = os.environ.get("BIDE_KILLS") == "all"
ANYBODYS = ("pay", "MarkDispatched", "SettleChore")  # chores: another process that shares the store may do them
SEED = int(os.environ.get("BIDE_KILLS_SEED", "2030"))


class Nursery:
    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._exits: dict[str, asyncio.Future[int]] = {}

    async def run(self, name: str, workflow: str, store: str, at: str) -> int:
        """Let a process play the run of that name until it ends or is killed; its exit code."""
        assert self._process.stdin is not None
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exits[name] = gone
        self._process.stdin.write(f"{name} {workflow} {store} {self._folder / name}.trace {at}\n".encode())
        async with asyncio.timeout(2 * DEADLINE):
            return await gone

    def trace(self, name: str) -> list[str]:
        """What every process of the run did, and then what any process did for it."""
        own = self._lines(name)
        runs = {line.removeprefix("run ") for line in own if line.startswith("run ")}
        return own + [line for run_id in runs for line in self._lines(run_id)]

    def _lines(self, name: str) -> list[str]:
        path = self._folder / f"{name}.trace"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

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
        url: str = request.getfixturevalue("postgres_used_url")
        asyncio.run(migrate(url))
        return url
    return f"sqlite:///{tmp_path}/NAME.db"


# ---------------------------------------------------------------- where to kill


def labels(trace: list[str]) -> list[str]:
    """The points that a run came to, in order, each as `before:draft`."""
    return [":".join(line.split()[1:]) for line in trace if line.startswith("point ")]


def every_point(points: list[str]) -> list[str]:
    """Each point as often as it is reached, in order: `before:draft:1`."""
    reached: Counter[str] = Counter()
    where = []
    for point in points:
        reached[point] += 1
        where.append(f"{point}:{reached[point]}")
    return where


def each_kind_once(points: list[str]) -> list[str]:
    """Of each kind of point one of the times that it is reached, drawn by the seed; all with `BIDE_KILLS=all`."""
    if ALL:
        return every_point(points)
    chance = Random(SEED)
    return [f"{kind}:{chance.randint(1, count)}" for kind, count in sorted(Counter(points).items())]


def by_the_variable(points: list[str]) -> list[str]:
    """The points that a program has by itself, as its environment names them."""
    return [f"{VARIABLE}{point}" for point in sorted(set(filter(is_of_a_step, points)))]


def is_of_a_step(point: str) -> bool:
    return point.removeprefix(VARIABLE).split(":")[0] in get_args(Point)


# ---------------------------------------------------------------- the matrix


@pytest.mark.parametrize("share", range(SHARES))
def test_D2_a_workflow_killed_at_any_point_goes_on_and_ends_the_same(kind: str, share: int, tmp_path: Path) -> None:
    """D2, D4, D6: before and after the code of every step, and before and after every commit."""
    points_of = every_point if kind.startswith("sqlite") else each_kind_once
    asyncio.run(kill_and_go_on("everything", points_of, kind, share, tmp_path))


@pytest.mark.parametrize("share", range(SHARES))
def test_D2_a_workflow_killed_at_each_kind_of_point_goes_on_and_ends_the_same(
    kind: str, share: int, tmp_path: Path
) -> None:
    """D2, D4, D6, W8, F14, F16: around events, tasks, links, early answers, combined waits, requests and a clean-up."""
    asyncio.run(kill_and_go_on("meeting", each_kind_once, kind, share, tmp_path))


@pytest.mark.parametrize("workflow", PLAYS)
def test_D2_a_program_killed_as_its_environment_says_goes_on_and_ends_the_same(
    kind: str, workflow: str, tmp_path: Path
) -> None:
    """D2, D6: `BIDE_FAILPOINT` itself, in processes that know nothing of this test."""
    asyncio.run(kill_and_go_on(workflow, by_the_variable, kind, None, tmp_path))


def test_the_workflows_that_are_killed_have_every_kind_of_wait_and_move(tmp_path: Path) -> None:
    asyncio.run(cover_everything(tmp_path))


async def cover_everything(folder: Path) -> None:
    seen: set[str] = set()
    async with nursery(folder) as processes:
        for workflow in PLAYS:
            assert await processes.run(workflow, workflow, f"sqlite:///{folder}/{workflow}.db", "-") == 0
            seen |= set(processes.trace(workflow))
    kinds = get_args(get_type_hints(NewWait)["kind"])
    assert {f"opens {kind}" for kind in kinds} | {"opens signal reserved"} <= seen
    assert {f"moves {move}" for move in ("Suspend", "TryAgain", "StartAgain", "End")} <= seen
    assert {f"point after_write {name}" for name in ("Cancel", "Emit", "Complete", "Deliver")} <= seen


async def kill_and_go_on(
    workflow: str, points_of: Callable[[list[str]], list[str]], kind: str, share: int | None, folder: Path
) -> None:
    async with nursery(folder) as processes:
        whole, is_first = f"whole-{share}", share in (0, None)
        assert await processes.run(whole, workflow, kind.replace("NAME", whole), "-") == 0
        points = labels(processes.trace(whole))
        assert {point.split(":")[1] for point in points} >= set(PLAYS[workflow].steps), "every step has its points"
        assert {point.split(":")[0] for point in points} >= {"before", "after_code", "after_commit", "before_write"}
        check(workflow, processes.trace(whole), is_whole=True)
        where = points_of(points)
        slots = asyncio.Semaphore(AT_ONCE)

        async def kill_and_go_on(at: int, point: str) -> int:
            name = f"killed-{share if share is not None else 'by-itself'}-{at}"
            store = kind.replace("NAME", name)
            async with slots:
                code = await processes.run(name, workflow, store, point)
                if code != 0:
                    assert code == -signal.SIGKILL, f"{point}: {processes.trace(name)}"
                    assert await processes.run(name, workflow, store, "-") == 0, point
            check(workflow, processes.trace(name), point)
            is_its_own = is_of_a_step(point) and point.split(":")[1] in PLAYS[workflow].steps  # chores are anybody's
            assert code != 0 or not is_its_own, f"{point} was not reached"
            if kind.startswith("sqlite"):
                assert await audit(store) == []
            return code

        mine = [(at, point) for at, point in enumerate(where, 1) if share is None or at % SHARES == share]
        killed = await asyncio.gather(*(kill_and_go_on(at, point) for at, point in mine))
        is_shared = not kind.startswith("sqlite")
        missed = [
            point
            for (_, point), code in zip(mine, killed, strict=True)
            if code == 0 and not (is_shared and point.split(":")[1] in ANYBODYS)
        ]
        assert len(missed) <= 3, f"polls and leases move the last commits a little: {missed}"
        assert killed or not is_first
        if not kind.startswith("sqlite"):
            assert await audit(kind) == []


def check(workflow: str, trace: list[str], killed_at: str = "", *, is_whole: bool = False) -> None:
    """It ends the same, whatever was killed; a step whose result is committed never runs again."""
    kind, _, killed_step = killed_at.removeprefix(VARIABLE).partition(":")
    play = PLAYS[workflow]
    results = {line.removeprefix("result ") for line in trace if line.startswith("result ")}
    assert results == {repr(play.result)}, trace
    ran = Counter(line.removeprefix("ran ") for line in trace if line.startswith("ran "))
    assert set(ran) == {*play.steps, *play.again, *play.chores}, f"{killed_at}: {trace}"
    if is_whole:
        assert all(ran[step] == 1 for step in play.steps), ran
    for step in play.steps:
        committed = trace.index(f"point after_commit {step}") if f"point after_commit {step}" in trace else len(trace)
        assert f"ran {step}" not in trace[committed:], f"{step} ran after its commit"
        if kind == "after_commit" and killed_step.partition(":")[0] == step:
            assert ran[step] == 1, f"{step} ran after its commit"
        assert ran[step] <= 2, f"one kill repeats a step once, {step} ran {ran[step]} times"


async def audit(url: str) -> list[object]:
    store = open_store(url, load_settings({"store": url}, {}))
    await store.open()
    try:
        return list(await store.audit())
    finally:
        await store.close()
