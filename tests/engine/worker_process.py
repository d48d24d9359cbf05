"""Worker processes that a test may kill: `python -m tests.engine.worker_process sqlite:////tmp/x.db`.

Reads commands from its standard input and forks a worker for each, so that a new one costs no imports. Every worker
reports on the same standard output, one line per report: `ready PID WORKER`, `step PID RUN STEP`, `stopping PID`,
`stale PID COUNT`. When one is gone, this process says `exit PID CODE`, and `stopped PID` when one was put to sleep.
When its input ends, it kills what is left and ends. What is done to items stands in the file that `DIARY` names: there
may be more of it than anybody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bide
from bide.engine.transport import Answered, Request
from tests.engine.forking import become_a_child, serve

Ctx = bide.Context[Any]
ITEMS = 8  # how many items a courier carries before it is done


def report(kind: str, *words: object) -> None:
    os.write(1, (" ".join(map(str, (kind, os.getpid(), *words))) + "\n").encode())


class Doom:
    """`DOOM=40:3`: SIGKILL 3 ms after the fortieth thing that happens to items; `40:0` in the middle of it.

    However late the thread that kills gets its turn, no more than `AFTERWARDS` other things happen before.
    """

    AFTERWARDS = 50

    def __init__(self) -> None:
        doomed, _, delay = os.environ.get("DOOM", "").partition(":")
        self._doomed, self._delay = int(doomed or 0), float(delay or 0) / 1000
        self._happenings = itertools.count(1)  # items are worked on in several threads
        self._diary = os.open(os.environ.get("DIARY", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def happened(self, doing: str, number: int) -> None:
        os.write(self._diary, f"{doing} {number}\n".encode())
        since = next(self._happenings) - self._doomed
        if not self._doomed or since < 0:
            return
        if since == 0 and self._delay:
            threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif since in (0, self.AFTERWARDS):
            os.kill(os.getpid(), signal.SIGKILL)


class AtOnce:
    """A transport that answers as it is asked."""

    name = "at-once"

    def __init__(self, doom: Doom) -> None:
        self._doom = doom

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Answered]:
        self._doom.happened("sent", len(requests))
        return [Answered(request.data) for request in requests]


def _door_beside(store: str) -> Path:
    """Where the test says, or in the folder of the file that the store is."""
    return Path(os.environ.get("DOOR") or Path(urlsplit(store).path[1:]).parent / "door")


def make_app(store: str, **settings: Any) -> bide.App:
    app = bide.App("processes", store=store, poll_interval="20ms", grace="100s", **settings)
    door = _door_beside(store)

    @app.machine("courier")
    class Courier:
        """Collects items one after the other; its result says what it got, in order."""

        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            report("step", ctx.run_id, "begin")
            return bide.Await("item", then="take", state=[])

        async def take(self, ctx: Ctx) -> bide.Next:
            report("step", ctx.run_id, "take")
            return bide.Next("keep", [*ctx.state, *(signal.payload for signal in ctx.awaited)])

        async def keep(self, ctx: Ctx) -> bide.Await | bide.Done:
            report("step", ctx.run_id, "keep")
            return bide.Done(ctx.state) if len(ctx.state) >= ITEMS else bide.Await("item", then="take")

    @app.machine("chain")
    class Chain:
        """Nothing but steps."""

        @bide.start
        async def step(self, ctx: Ctx) -> bide.Next | bide.Done:
            report("step", ctx.run_id, "step")
            return bide.Done(ctx.state) if ctx.state == 0 else bide.Next("step", ctx.state - 1)

    @app.machine("visitor")
    class Visitor:
        """Stands before a door until a file of that name is there."""

        @bide.start
        async def knock(self, ctx: Ctx) -> bide.Next:
            report("step", ctx.run_id, "knock")
            while not door.exists():  # noqa: ASYNC110  # the other side is another process
                await asyncio.sleep(0.005)
            return bide.Next("enter", "knocked")

        async def enter(self, ctx: Ctx) -> bide.Done:
            report("step", ctx.run_id, "enter")
            return bide.Done([ctx.state, "entered"])

    doom = Doom()

    def numbers(count: int) -> Iterator[int]:
        for number in range(count):
            if number % 100 == 0:
                doom.happened("given", number)
            yield number

    def work(number: int) -> int:
        doom.happened("worked", number)
        return number + 1

    (
        app.pipeline("items")
        .expand(numbers)
        .wait_external("ask", transport=AtOnce(doom), timeout="1h")
        .map(work)
        .collect(list)
    )
    return app


async def work(store: str, settings: dict[str, str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with make_app(store, **settings).engine() as engine:
        report("ready", engine.worker)
        await stop.wait()
        report("stopping")
    report("stale", engine.stale)


def fork(store: str, words: list[str]) -> None:
    """Start a worker; words in capitals are its environment, the others its settings."""
    if os.fork():
        return
    become_a_child()
    given = dict(word.split("=", 1) for word in words)
    os.environ.update({name: value for name, value in given.items() if name.isupper()})
    asyncio.run(work(store, {name: value for name, value in given.items() if not name.isupper()}))
    sys.exit(0)


def bury() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            said = f"stopped {pid}" if os.WIFSTOPPED(status) else f"exit {pid} {os.waitstatus_to_exitcode(status)}"
            os.write(1, f"{said}\n".encode())


def main() -> None:
    serve(lambda line: fork(sys.argv[1], line.split()), bury)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
