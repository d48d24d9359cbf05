"""Workflows of every kind of step and wait, in processes that a test kills: `python -m tests.engine.matrix_process`.

Reads lines `NAME WORKFLOW URL TRACE POINT` and forks a process for each. It starts the run of that name, or finds it,
plays the outside world and ends when the run has ended. `POINT` says where it kills itself, as `BIDE_FAILPOINT` does,
or is `-`; with `BIDE_FAILPOINT=` before it, the variable itself is set. Says `exit NAME CODE` when a process is gone.
What every process came to is in the file TRACE, one line for each event.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bide
import bide.stores.postgres
import bide.stores.sqlite  # once, and not by each process that is forked
from bide.core.commands import CommitTurn
from bide.engine.engine import Engine
from bide.engine.probes import KillProbe
from bide.engine.runtime import Runtime
from bide.engine.transport import Answered, Request
from tests.engine.forking import become_a_child, serve


@dataclass(frozen=True)
class Play:
    """What a workflow comes to, whatever is killed."""

    result: Any
    steps: tuple[str, ...]  # each has its points, and is never run again once it is committed
    again: tuple[str, ...] = ()  # what is done again on purpose
    chores: tuple[str, ...] = ()  # what is done at least once, by whoever shares the store


PLAYS = {
    "everything": Play(
        result=["drafted", "flaky at last", 7, "yes", ["left", "right"], "child of it"],
        steps=("draft", "left", "right", "finish", "child"),
        again=("flaky",),
    ),
    "meeting": Play(
        result=["news", True, "called back", "early", "paid", 2, [1, 2], "paid for", True],
        steps=("open", "sweep", "close"),
        again=("stumble",),
        chores=("bell", "dispatch"),
    ),
}
VARIABLE = "BIDE_FAILPOINT="
SECRETS = "matrix:0123456789abcdef0123"
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
        path = Path(self._path)
        return path.exists() and line in path.read_text(encoding="utf-8").splitlines()

    def of_chores(self, run_id: str) -> Trace:
        """What was done for a run by any process: chores are everybody's."""
        return Trace(str(Path(self._path).with_name(f"{run_id}.trace")))


def make_app(store: str, trace: Trace, queue: str = "default") -> bide.App:
    app = bide.App("matrix", store=store, poll_interval="20ms", lease="30s", max_claims=1000, resume_secrets=SECRETS)
    app.configure(outbox_lease="1s")  # those who died with a chore do not hold it for long

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

    class AtOnce:
        """A transport that answers as it is asked."""

        name = "at-once"

        async def dispatch(self, requests: Sequence[Request]) -> Sequence[Answered]:
            for request in requests:
                trace.of_chores(request.run_id).say("ran", "dispatch")
            return [Answered("paid for") for _ in requests]

    app.transport(AtOnce())

    @app.notifier(name="bell")
    def bell(task: bide.Task) -> None:
        trace.of_chores(task.run_id).say("ran", "bell")

    @app.workflow("caretaker", step_retry=SOON, retry=SOON, queue=queue, on_cancel="raise")
    async def caretaker(step: bide.Step) -> None:
        try:
            await step.receive("end", "end", timeout="1h")
        except bide.Cancelled:
            await step.run("sweep", effect, "sweep", None)
            raise

    async def met(step: bide.Step, name: str) -> list[Any]:
        await step.run("open", effect, "open", None)
        news = await step.wait_for_event("news", event=f"matrix.{name}", timeout="1h")
        await step.emit("told", "matrix.told", name)
        asked = await step.ask("ask", title="Shall we?", form=bool, timeout="1h", assignee="ann", notify="bell")
        call = await step.callback("call", timeout="1h", returns=str)
        await step.reserve_signal("early", signal=f"early-{name}", returns=str)
        called = await call
        early = await step.wait_for_signal("early", signal=f"early-{name}", timeout="1h", returns=str)
        if not trace.told("ran stumble"):
            trace.say("ran", "stumble")
            raise ConnectionError("the body itself fails, the first time")
        paid, slow = step.receive("paid", "paid", timeout="1h"), step.sleep("slow", "1h")
        won = "paid" if await step.first("race", paid, slow) is paid else "slow"
        votes = [step.receive(f"vote-{no}", f"vote-{no}", timeout="1h") for no in range(3)]
        agreed = await step.quorum("two", 2, *votes)
        pack = await step.receive_all("pack", "item", at_least=2, timeout="1h")
        bought = await step.request("pay", {"for": name}, transport="at-once", timeout="1h", returns=str)
        launched = await step.launch("launch", caretaker, correlation_key=f"{name}-caretaker")
        items = [signal.payload for signal in pack]
        return [news.data, asked, called, early, won, len(agreed), items, bought, launched.startswith("run_")]

    @app.workflow("meeting", step_retry=SOON, retry=SOON, queue=queue)
    async def meeting(step: bide.Step, given: dict[str, Any]) -> Any:
        if given["so_far"] is None:
            return bide.Restart({**given, "so_far": await met(step, given["name"])})
        await step.run("close", effect, "close", None)
        return given["so_far"]

    return app


class Points(KillProbe):
    """Every step before and after its code, and every commit of the store before and after, in one count."""

    def __init__(self, at: str, trace: Trace) -> None:
        super().__init__(at)
        self._trace = trace

    def reached(self, point: str, step: str) -> None:
        self._trace.say("point", point, step)
        super().reached(point, step)

    def _note(self, command: Any) -> None:
        if isinstance(command, CommitTurn):
            self._trace.say("moves", type(command.move).__name__)
            for new in command.opens:
                self._trace.say("opens", new.kind, *(["reserved"] if new.reserves else []))

    def watch(self, runtime: Runtime) -> None:
        store: Any = runtime.store
        execute, claim, fire = store.execute, store.claim, store.fire_timers

        async def executed(commands: Any, offer: Any = None) -> Any:
            # Each kind by itself: which commands share a batch is a matter of moments.
            names = sorted({type(command).__name__ for command in commands}) or ["-"]
            for name in names:
                self.reached("before_write", name)
            done = await execute(commands, offer)
            for command in commands:
                self._note(command)
            for name in names:
                self.reached("after_write", name)
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


async def play(name: str, workflow: str, store: str, trace: Trace, at: str) -> None:
    app = make_app(store, trace, queue=name)  # others share the store, not the runs
    runtime = await app.runtime()
    try:
        async with engine_of(app, runtime, name, trace, at) as engine:
            for dead in trace.workers():
                await runtime.store.end_leases(dead)  # nobody has to wait until they end by themselves
            trace.say("worker", engine.worker)
            client = app.client()
            given = name if workflow == "everything" else {"name": name, "so_far": None}
            run = await client.start(
                workflow, given, correlation_key=name, correlation_scope="forever", if_exists="return"
            )
            trace.say("run", run.id)
            if workflow == "everything":
                answering = asyncio.create_task(answer(client, run.id, name))
            else:
                answering = asyncio.create_task(meet(client, run.id, name, trace.of_chores(run.id)))
            trace.say("result", repr(await run.result(timeout="3m")))
            await answering
    finally:
        await app.close()


@contextlib.asynccontextmanager
async def engine_of(app: bide.App, runtime: Runtime, name: str, trace: Trace, at: str) -> AsyncIterator[Engine]:
    """One that kills itself at a point of ours, or as its environment tells every engine of a real program."""
    queues = frozenset({name})
    if at.startswith(VARIABLE):
        os.environ["BIDE_FAILPOINT"] = at.removeprefix(VARIABLE)
        async with app.engine(queues=queues) as engine:
            yield engine
        return
    points = Points(at, trace)
    points.watch(runtime)
    async with Engine(runtime, queues=queues, probe=points) as engine:
        yield engine


async def answer(client: bide.Client, run_id: str, name: str) -> None:
    """The outside world: a sender that repeats itself after a lost reply, and a person who answers what is open."""
    await client.signal(run_id, "item", 7, dedup_key="item-1", check=False)
    while (await client.get(run_id)).status not in ("completed", "failed"):
        if any(f"gate-{name}" in wait.names for wait in await client.waits(run_id=run_id)):
            await client.complete(f"gate-{name}", "yes", check=False)
            return
        await asyncio.sleep(0.005)


async def meet(client: bide.Client, run_id: str, name: str, chores: Trace) -> None:
    """The outside world of a meeting: everything that it waits for, and somebody who cancels what it launched."""
    said: dict[str, list[Any]] = {"paid": ["paid"], "vote-0": [0], "vote-2": [2], "item": [1, 2]}
    for signal_name, payloads in said.items():
        for no, payload in enumerate(payloads):
            await client.signal(run_id, signal_name, payload, dedup_key=f"{signal_name}-{no}", check=False)
    caretaker = ""
    answered: set[str] = set()  # each once: a run that takes its time has no more points than one that is quick
    while True:
        for wait in await client.waits(run_id=run_id):
            if wait.id in answered or (wait.kind == "task" and not chores.told("ran bell")):
                continue  # nobody is told of a task that was answered before
            if wait.kind == "event":
                await client.emit(f"matrix.{name}", "news", id=f"news-{name}", check=False)
            elif wait.kind == "task":
                await client.answer(wait.id, True, by="ann", check=False)
            elif wait.kind == "signal":
                is_early = wait.names == (f"early-{name}",)
                await client.complete(wait.names[0], "early" if is_early else "called back", check=False)
            answered.add(wait.id)
        for run in [] if caretaker else await client.runs(correlation_key=f"{name}-caretaker"):
            caretaker = run.id
            await client.cancel(run.id, reason="the meeting is over")
        status = (await client.get(run_id)).status
        if status == "failed":
            return
        # It may have been launched, and the meeting have ended, since the last look for it.
        if status == "completed" and caretaker and (await client.get(caretaker)).status == "cancelled":
            return
        await asyncio.sleep(0.005)


def fork(words: list[str]) -> int:
    name, workflow, store, path, at = words
    pid = os.fork()
    if pid:
        return pid
    become_a_child()
    asyncio.run(play(name, workflow, store, Trace(path), at))
    os._exit(0)


def main() -> None:
    names: dict[int, str] = {}

    def begin(line: str) -> None:
        names[fork(line.split())] = line.split()[0]

    def bury() -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                os.write(1, f"exit {names[pid]} {os.waitstatus_to_exitcode(status)}\n".encode())

    serve(begin, bury)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
