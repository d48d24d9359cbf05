"""Worker processes that are killed and paused, each replaced when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec

from tests.support.staging import until

ROOT = Path(__file__).parents[2]
APP = "tests.chaos.shop:app"
LOST_CLAIM = re.compile(r"claim lost; another worker|the claim of a run was lost")


def clean_environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program that hears of no setting but these, and of the secret that links are signed with."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    given = {"resume_secrets": "chaos:0123456789abcdef0123", **(settings or {})}  # workers on PostgreSQL need it (W4)
    return {**others, **{f"BIDE_{name.upper()}": value for name, value in given.items()}}


class Worker:
    """One process, from its start to its end. What it says on standard error is in *log*."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log
        self.name = ""  # as the store knows it, once it is ready

    @property
    def is_ready(self) -> bool:
        return bool(self.name) and self._process.returncode is None

    async def until_ready(self) -> None:
        assert self._process.stdout is not None
        if said := await self._process.stdout.readline():
            self.name = msgspec.json.decode(said)["workers"][0]["worker"]

    def send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def end(self) -> int:
        return await self._process.wait()

    def is_paused(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def lost(self) -> Counter[str]:
        """How many turns of which run it lost to others or to a cancel, by its own account."""
        said = self.log.read_text(errors="replace").splitlines()
        return Counter(line.split()[-1] for line in said if LOST_CLAIM.search(line))


class Fleet:
    """So many workers at any time; one that ends is replaced."""

    def __init__(self, store: str, folder: Path, settings: Mapping[str, str]) -> None:
        self._store = store
        self._folder = folder
        self._environment = clean_environment(settings)
        self._is_closing = False
        self._slots: dict[int, Worker] = {}
        self.workers: list[Worker] = []  # also those that are gone
        self.unexpected: list[str] = []

    async def keep(self, slot: int) -> None:
        """Run one worker after the other."""
        while not self._is_closing:
            worker = self._slots[slot] = await self._launch()
            if self._is_closing:  # the others were told while this one was being launched
                worker.send(signal.SIGTERM)
            await worker.until_ready()
            code = await worker.end()
            could_not_open = code == 1 and not worker.name  # the server was away: it says so and ends
            # Told to stop while Python was still loading, before it could listen to the signal.
            never_began = code == -signal.SIGTERM and not worker.name and self._is_closing
            if code not in (0, -signal.SIGKILL) and not could_not_open and not never_began:
                self.unexpected.append(f"{worker.log}: code {code}")

    async def _launch(self) -> Worker:
        log = self._folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "bide", "worker", APP, "--json", "--store", self._store),
                cwd=ROOT,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def ready(self) -> list[Worker]:
        return [worker for worker in self._slots.values() if worker.is_ready]

    async def any_ready(self, chance: Random) -> Worker:
        """One of the workers that take work, when there is one."""

        async def found() -> bool:
            return bool(self.ready())

        await until(found)
        return chance.choice(self.ready())

    async def all_ready(self, size: int) -> None:
        async def found() -> bool:
            return len(self.ready()) == size

        await until(found)

    def stop(self) -> None:
        self._is_closing = True
        for worker in self._slots.values():
            worker.send(signal.SIGTERM)

    def kill(self) -> None:
        self._is_closing = True
        for worker in self.workers:
            worker.send(signal.SIGKILL)

    def complaints(self) -> list[str]:
        """What no fault explains: workers that ended by themselves, and errors that nobody handled."""
        logs = ((worker.log, worker.log.read_text(errors="replace")) for worker in self.workers)
        return self.unexpected + [f"{log}:\n{text[-4000:]}" for log, text in logs if "Traceback" in text]


@asynccontextmanager
async def fleet(store: str, folder: Path, *, size: int, **settings: str) -> AsyncIterator[Fleet]:
    """Workers on *store* that take work; at the end they are told to stop, and all of them must have done well."""
    workers = Fleet(store, folder, settings)
    keeping = [asyncio.create_task(workers.keep(slot)) for slot in range(size)]
    try:
        await workers.all_ready(size)
        yield workers
        workers.stop()
        await asyncio.gather(*keeping)
        complaints = workers.complaints()
        assert not complaints, "\n".join(complaints)
    finally:
        workers.kill()
        await asyncio.gather(*keeping, return_exceptions=True)
