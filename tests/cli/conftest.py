"""A folder with an app in it, and the program to call there."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.app import App
from bide.cli import run
from bide.cli.apps import find_app
from bide.core.commands import GiveBack, Offer
from bide.core.records import Held
from bide.engine.engine import Engine

PATIENCE_SECONDS = 120.0

SHOP = """
import asyncio
import os
import bide

app = bide.App("shop", store="sqlite:///shop.db")


@app.machine("order")
class Order:
    @bide.start
    def begin(self, ctx):
        return bide.Await("paid", then="ship", timeout="1h", title="Has the customer paid?", channel="webhook")

    def ship(self, ctx):
        if ctx.timed_out:
            return bide.Stop("payment never came")
        return bide.Done({"paid": ctx.awaited[0].payload})


@app.workflow("approval")
async def approval(step):
    return await step.wait_for_signal("gate", signal="approve-1", timeout="48h", returns={"type": "boolean"})


@app.machine("forever")
class Forever:
    @bide.start
    def begin(self, ctx):
        return bide.Await(["yes", "no"], then="end", assignee="ann")

    def end(self, ctx):
        return bide.Done()


@app.machine("family")
class Family:
    @bide.start
    def begin(self, ctx):
        return bide.Spawn([("order", 1), ("echo", 2)], then="end", timeout="1d")

    def end(self, ctx):
        return bide.Done()


@app.groups
def groups_of(principal):
    return ["leads"] if principal == "ann" else []


@app.notifier
def mail(task):
    raise bide.NonRetryable("no mail today")


@app.workflow("approve")
async def approve(step):
    task = step.ask(
        "gate", title="Send it?", form=bool, group="leads", timeout="1d", reminders=["4h"], notify=mail, channel="chat"
    )
    return await task


(
    app.pipeline("reviews")
    .expand(lambda names: names)
    .wait_external("review", transport="interaction-api", timeout="1d", returns=bool)
    .collect(list)
)


@app.machine("echo")
class Echo:
    def go(self, ctx):
        return bide.Done(ctx.input)


@app.machine("broken", retries=0)
class Broken:
    def go(self, ctx):
        raise ValueError("no luck\\nat all")


@app.machine("flaky", retry=bide.RetryPolicy(attempts=9, first="1h", most="1h"))
class Flaky:
    def go(self, ctx):
        raise ValueError("the printer is on fire")


@app.machine("tidy")
class Tidy:
    @bide.start
    def begin(self, ctx):
        return bide.Await("never", then="begin", timeout="1d")

    def on_cancel(self, ctx):
        return None


@app.machine("slow")
class Slow:
    async def go(self, ctx):
        open("slow-began", "w").close()
        while not os.path.exists("slow-may-end"):
            await asyncio.sleep(0.01)
        return bide.Done("slow and steady")
"""


@dataclass(frozen=True)
class Answer:
    """What a call of the program gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


class Bide:
    """The program in one folder, called in this process; the store is a real SQLite file."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._captured = captured
        self._patch = patch
        self._processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Answer:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._captured.readouterr()
        code = run(arguments)
        captured = self._captured.readouterr()
        return Answer(code, captured.out, captured.err)

    def start(self, *arguments: str) -> str:
        """Start a run, let an engine do all there is to do, and return the run's id."""
        answer = self("start", *arguments)
        assert answer.code == 0, answer.err
        self.work_off()
        return answer.out.strip()

    def app(self) -> App:
        return find_app("shop:app")

    def work_off(self) -> None:
        asyncio.run(_work_off(self.app()))

    def hold(self, run_id: str, held: Held) -> None:
        """Claim a ready run and hold it, as an engine does that has a reason to."""
        asyncio.run(_hold(self.app(), run_id, held))

    def change(self, statement: str) -> None:
        """Change the file behind bide's back."""
        connection = apsw.Connection(str(self.folder / "shop.db"))
        try:
            connection.execute(statement)
        finally:
            connection.close()

    def process(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """The real program in a process of its own; killed at the end of the test if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "bide", *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def worker(self, *arguments: str) -> subprocess.Popen[str]:
        """A worker that has said that it is ready."""
        process = self.process("worker", "shop.py", *arguments)
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "ready" in said, f"{said}{process.communicate(timeout=PATIENCE_SECONDS)}"
        return process

    def finished(self, process: subprocess.Popen[str]) -> Answer:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Answer(process.returncode, out, err)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def bide(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bide]:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in os.environ if name.startswith("BIDE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BIDE_APP", "shop:app")
    before = set(sys.modules)
    importlib.invalidate_caches()
    program = Bide(tmp_path, capsys, monkeypatch)
    try:
        yield program
    finally:
        program.close()
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]


async def _work_off(app: App) -> None:
    try:
        engine = Engine(await app.runtime())
        await engine.settle()
        engine.detach()
    finally:
        await app.close()


async def _hold(app: App, run_id: str, held: Held) -> None:
    try:
        runtime = await app.runtime()
        offer = Offer(worker="w-test", lease=runtime.settings.lease, slots=1, queues=frozenset({"default"}))
        turns = (await runtime.store.claim(offer)).turns
        [run] = [turn.run for turn in turns.values()]
        assert run.id == run_id
        command = GiveBack(workspace=run.workspace, run_id=run.id, epoch=run.epoch, hold=held)
        await runtime.committer.submit(command)
    finally:
        await app.close()
