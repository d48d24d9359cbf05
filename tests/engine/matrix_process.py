"""A workflow of every kind of step and wait, in processes that a test kills: `python -m tests.engine.matrix_process`.

Reads lines `NAME URL TRACE POINT` and forks a process for each. It starts the run of that name, or finds it, plays the
outside world and ends when the run has ended. `POINT` is the number of the point at which it kills itself, or 0. Says
`exit NAME CODE` when a process is gone. What every process came to is in the file TRACE, one line for each event.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import bide
from bide.engine.engine import Engine
from bide.engine.probes import KillProbe
from bide.engine.runtime import Runtime

RESULT = ["drafted", "flaky at last", 7, "yes", ["left", "right"], "child of it"]
STEPS = ("draft", "flaky", "left", "right", "finish", "child")
SOON = bide.RetryPolicy(attempts=5, first="5ms", factor=1, most="5ms")


class Trace:
    """What happened to one run, written so that not even SIGKILL takes it back."""

    def __init__(self, path: str) -> None:
        self._path = path

    def say(self, *words: str) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (" ".join(words) + "\n").encode())
        os.close(file)

    def workers(self) -> list[str]:
        """Those that were here before."""
        if not os.path.exists(self._path):
            return []
        lines = Path(self._path).read_text(encoding="utf-8").splitlines()
        return [line.removeprefix("worker ") for line in lines if line.startswith("worker ")]

    def told(self, line: str) -> bool:
        return line in Path(self._path).read_text(encoding="utf-8").splitlines()


def make_app(store: str, trace: Trace, queue: str = "default") -> bide.App:
    app = bide.App("matrix", store=store, poll_interval="20ms", lease="5s", max_claims=1000)

    def effect(step: str, result: Any) -> Any:
        trace.say("ran", step)
        return result

    async def flaky() -> str:
        if not trace.told("ran flaky"):
            trace.say("ran", "flaky")
            raise ConnectionError("the first time")
        return str(effect("flaky", "flaky at last"))

    @app.workflow("child", step_retry=SOON, queue=queue)
    async def child(step: bide.Step, of: str) -> str:
        return str(await step.run("child", effect, "child", f"child of {of}"))

    @app.workflow("everything", step_retry=SOON, queue=queue)
    async def everything(step: bide.Step, name: str) -> list[Any]:
        draft = await step.run("draft", effect, "draft", "drafted")
        tried = await step.run("flaky", flaky)
        await step.sleep("nap", "5ms")
        item = await step.receive("item", "item", timeout="1h")
        answer = await step.wait_for_signal("gate", signal=f"gate-{name}", timeout="1h", returns=str)
        both = await asyncio.gather(
            step.run("left", effect, "left", "left"), step.run("right", effect, "right", "right")
        )
        told = await step.invoke("ask", child, "it")
        await step.run("finish", effect, "finish", None)
        return [draft, tried, item.payload, answer, both, told]

    return app


class Points(KillProbe):
    """Every step before and after its code, and every commit of the store before and after, in one count."""

    def __init__(self, at: int, trace: Trace) -> None:
        super().__init__(f"*:*:{at}")
        self._trace = trace

    def reached(self, point: str, step: str) -> None:
        self._trace.say("point", point, step)
        super().reached(point, step)

    def watch(self, runtime: Runtime) -> None:
        store: Any = runtime.store
        execute, claim, fire = store.execute, store.claim, store.fire_timers

        async def executed(commands: Any, offer: Any = None) -> Any:
            self.reached("before_write", "-")
            done = await execute(commands, offer)
            self.reached("after_write", "-")
            return done

        async def claimed(offer: Any) -> Any:
            done = await claim(offer)
            if done.turns:
                self.reached("after_claim", "-")
            return done

        async def fired(limit: int, offer: Any = None) -> Any:
            done = await fire(limit, offer)
            if done.replies:
                self.reached("after_timers", "-")
            return done

        store.execute, store.claim, store.fire_timers = executed, claimed, fired


async def play(name: str, store: str, trace: Trace, at: int) -> None:
    app, points = make_app(store, trace, queue=name), Points(at, trace)  # others share the store, not the runs
    runtime = await app.runtime()
    points.watch(runtime)
    try:
        async with Engine(runtime, queues=frozenset({name}), probe=points) as engine:
            for dead in trace.workers():
                await runtime.store.end_leases(dead)  # nobody has to wait until they end by themselves
            trace.say("worker", engine.worker)
            client = app.client()
            run = await client.start(
                "everything", name, correlation_key=name, correlation_scope="forever", if_exists="return"
            )
            answering = asyncio.create_task(answer(client, run.id, name))
            trace.say("result", repr(await run.result(timeout="60s")))
            await answering
    finally:
        await app.close()


async def answer(client: bide.Client, run_id: str, name: str) -> None:
    """The outside world: a sender that repeats itself after a lost reply, and a person who answers what is open."""
    await client.signal(run_id, "item", 7, dedup_key="item-1", check=False)
    while (await client.get(run_id)).status not in ("completed", "failed"):
        if any(f"gate-{name}" in wait.names for wait in await client.waits(run_id=run_id)):
            await client.complete(f"gate-{name}", "yes", check=False)
            return
        await asyncio.sleep(0.005)


def fork(words: list[str]) -> int:
    name, store, path, at = words
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(0)
    asyncio.run(play(name, store, Trace(path), int(at)))
    os._exit(0)


def main() -> None:
    names: dict[int, str] = {}

    def bury(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                os.write(1, f"exit {names.get(pid, '?')} {os.waitstatus_to_exitcode(status)}\n".encode())

    signal.signal(signal.SIGCHLD, bury)
    for line in iter(sys.stdin.readline, ""):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it has a name before it can be gone
        names[fork(line.split())] = line.split()[0]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
