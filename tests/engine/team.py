"""Worker processes of one test: started, killed, and listened to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bide.client import Client
from tests.engine.worker_process import make_app
from tests.support.staging import DEADLINE


class Workers:
    """The workers of one test, and what they report."""

    def __init__(self, nursery: asyncio.subprocess.Process) -> None:
        self._nursery = nursery
        self._unread: list[list[str]] = []
        self.exits: dict[int, int] = {}
        self.steps: Counter[tuple[str, str]] = Counter()
        self.shares: Counter[int] = Counter()
        self.stale: Counter[int] = Counter()
        self.names: dict[int, str] = {}  # as the store knows them

    async def spawn(self, **given: str) -> int:
        """Start a worker and wait until it takes work; returns its process id."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.write((" ".join(f"{name}={value}" for name, value in given.items()) + "\n").encode())
        pid, name = await self.report("ready")
        self.names[int(pid)] = name
        return int(pid)

    async def report(self, *kinds: str) -> list[str]:
        """The next report of one of these kinds, without the kind; those of other kinds wait for whoever asks."""
        async with asyncio.timeout(DEADLINE):
            for position, words in enumerate(self._unread):
                if words[0] in kinds:
                    return self._unread.pop(position)[1:]
            while True:
                words = await self._read()
                if words[0] in kinds:
                    return words[1:]
                self._unread.append(words)

    async def _read(self) -> list[str]:
        assert self._nursery.stdout is not None
        line = await self._nursery.stdout.readline()
        assert line, "the nursery of the workers died"
        words = line.decode().split()
        match words:
            case ["exit", pid, code]:
                self.exits[int(pid)] = int(code)
            case ["step", pid, run_id, step]:
                self.steps[run_id, step] += 1
                self.shares[int(pid)] += 1
            case ["stale", pid, count]:
                self.stale[int(pid)] = int(count)
        return words

    def kill(self, pid: int, kind: signal.Signals = signal.SIGKILL) -> None:
        os.kill(pid, kind)

    async def exit_of(self, pid: int) -> int:
        async with asyncio.timeout(DEADLINE):
            while pid not in self.exits:
                self._unread.append(await self._read())
        return self.exits[pid]

    async def terminate(self, *pids: int) -> None:
        for pid in pids:
            self.kill(pid, signal.SIGTERM)
        for pid in pids:
            assert await self.exit_of(pid) == 0


@asynccontextmanager
async def workers(store: str) -> AsyncIterator[Workers]:
    nursery = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.engine.worker_process",
        store,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("BIDE_")},
    )
    try:
        yield Workers(nursery)
    finally:
        assert nursery.stdin is not None
        nursery.stdin.close()  # it kills its workers and itself then
        await nursery.wait()


@asynccontextmanager
async def leases_of_the_dead_end(client: Client, team: Workers) -> AsyncIterator[None]:
    """Meanwhile leases may be long, so that nobody loses one who only waits for the processor, and still nobody waits
    for those of workers that are gone. What one of them had sent before may be committed later: it is looked again."""
    store = (await client._open()).store

    async def end() -> None:
        while True:
            for pid in list(team.exits):
                await store.end_leases(team.names[pid])
            await asyncio.sleep(0.05)

    ending = asyncio.create_task(end())
    try:
        yield
    finally:
        ending.cancel()
        await asyncio.wait({ending})


@asynccontextmanager
async def shop(url: str) -> AsyncIterator[Client]:
    """A client in this process that runs nothing. The store is audited at the end."""
    app = make_app(url)
    client = app.client()
    await client.runs()  # the file and its tables are there before anybody else comes
    try:
        yield client
        assert await (await app.runtime()).store.audit() == []
    finally:
        await app.close()
