"""A seeded simulation: random actions of clients, workers, clocks and faults on the real engine and a real store.

One seed is one story. Everything between two actions stands still: steps stand at a gate until an action lets them
go on, and time moves only by an action. The invariants are checked after every action, and at the end, when the faults
are over, every run must come to its end and every acknowledged signal be accounted for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import bide
from bide.client import Client
from bide.core.durations import parse_duration
from bide.core.records import FINAL, wait_id
from bide.engine.engine import Engine
from bide.engine.heartbeat import Heartbeat
from bide.engine.ports import Ports
from bide.engine.probes import Point
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import load_settings
from bide.testing.places import fresh_store
from bide.testing.world import CrashPlan, VirtualClock
from tests.simulation.programs import INPUTS, NAMES, STEPS, WANTED, make_app
from tests.support.staging import DEADLINE, client_of

LEAPS = {"1ms": 3, "1s": 3, "10s": 3, "31s": 4, "2m": 2, "11m": 1}
POINTS: tuple[Point, ...] = ("before", "after_code", "after_commit")
KEYS = ("key:1", "key:2", "key:3")


class Broken(AssertionError):
    """A promise was broken."""


@dataclasses.dataclass
class Sent:
    """A delivery that was acknowledged."""

    message_id: str
    run_id: str
    target: str
    name: str
    payload: Any
    dedup_key: str | None


class Process:
    """One process of the simulated fleet: a runtime and an engine of its own on the common store."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.client: Client = client_of(runtime)
        self.crashes = CrashPlan()
        self.engine = Engine(runtime, probe=self.crashes)
        self.stale = 0

    async def die(self, *, leases_end: bool) -> None:
        """Killed. What it held is free at once where somebody cleans up after it, else when its leases end."""
        if not leases_end:
            self.engine.worker = "nobody"
        await self.engine.crash()
        self.stale += self.engine.stale
        self.engine = Engine(self.runtime, probe=self.crashes)


class Simulation:
    def __init__(
        self, seed: int, processes: list[Process], clock: VirtualClock, gate: Turnstile, complaints: list[str]
    ) -> None:
        self.rng = random.Random(seed)
        self.processes = processes
        self.store = processes[0].runtime.store
        self.clock = clock
        self.gate = gate
        self.complaints = complaints  # of the programs themselves
        self.known: dict[str, str] = {}  # every run and its definition
        self.sent: dict[str, Sent] = {}
        self.finals: dict[str, str] = {}
        self.story: list[str] = []
        self.sometimes: Counter[str] = Counter()
        self._payload = 0
        actions: dict[Callable[[], Awaitable[str]], int] = {
            self.start: 4,
            self.signal: 12,
            self.send_again: 3,
            self.let_one_go: 14,
            self.let_all_go: 2,
            self.duty: 10,
            self.leap: 4,
            self.heartbeat: 1,
            self.kill: 2,
            self.plan_crash: 2,
            self.cancel: 2,
            self.retry: 3,
        }
        # Each seed has a taste of its own: some actions come often, some never. The common ones always come.
        weights = [weight * self.rng.choice((0, 1, 1, 3)) if weight < 4 else weight for weight in actions.values()]
        self._actions, self._weights = list(actions), weights

    # ------------------------------------------------------------ the story

    async def act(self) -> None:
        action = self.rng.choices(self._actions, self._weights)[0]
        self.story.append(f"{action.__name__} …")
        said = await action()
        self.story[-1] = f"{action.__name__} {said}"
        await self.bury()
        await self.check()

    async def heal(self) -> None:
        """The faults are over: everything that can move moves, until every run has ended."""
        self.story.append("heal")
        self.gate.open()
        for process in self.processes:
            process.crashes._planned.clear()
        for _ in range(500):
            for process in self.processes * 2:
                await self.patiently(process.engine.settle())
            for run in await self.processes[0].client.runs(held=True, limit=1000):
                await self.processes[0].client.retry(run.id)
            due = await self.store.until_due(frozenset({"default"}))
            if due is None:
                break
            self.clock.set(self.clock() + max(due, timedelta(0)))
        else:
            raise Broken("it does not come to rest")
        await self.check()
        await self.account()

    async def patiently(self, work: Awaitable[Any]) -> Any:
        async with asyncio.timeout(DEADLINE):
            return await work

    def somebody(self) -> Process:
        return self.rng.choice(self.processes)

    def some_run(self) -> str:
        """Mostly one that lives."""
        live = [run_id for run_id in self.known if run_id not in self.finals]
        chosen = live if live and self.rng.random() < 0.9 else list(self.known)
        return self.rng.choice(chosen) if chosen else "run_nobody"

    # ------------------------------------------------------------ actions of clients

    async def start(self) -> str:
        definition = self.rng.choice(sorted(INPUTS))
        options: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            options["correlation_key"] = self.rng.choice(KEYS)
        if self.rng.random() < 0.1:
            options["delay"] = "5s"
        try:
            run = await self.somebody().client.start(definition, self.rng.choice(INPUTS[definition]), **options)
        except bide.DuplicateRun as refusal:
            return f"{definition} refused: {refusal.correlation_key}"
        await self.quiet()
        return f"{definition} {run.id} {options}"

    async def signal(self) -> str:
        draw = self.rng.random()
        target = "run_unknown" if draw < 0.05 else self.rng.choice(KEYS) if draw < 0.25 else self.some_run()
        self._payload += 1
        key = f"d{self.rng.randrange(6)}" if self.rng.random() < 0.4 else None
        wanted = WANTED.get(self.known.get(target, ""), NAMES)
        name = self.rng.choice(wanted if self.rng.random() < 0.8 else NAMES)
        receipt = await self.somebody().client.signal(target, name, self._payload, key, check=False)
        if receipt.outcome in ("woke", "queued"):
            assert receipt.message_id is not None
            assert receipt.run_id is not None
            self.sent[receipt.message_id] = Sent(receipt.message_id, receipt.run_id, target, name, self._payload, key)
        self.sometimes[receipt.outcome] += 1
        if receipt.outcome == "woke":
            await self._note_race(receipt.wait_id)
        await self.quiet()
        return f"{target} {name} {self._payload} {key} -> {receipt.outcome}"

    async def _note_race(self, wait_id: str | None) -> None:
        for wait in await self.processes[0].client.waits(status="completed", limit=10_000):
            if wait.id == wait_id and wait.deadline is not None and self.clock() >= wait.deadline:
                self.sometimes["timeout lost to signal"] += 1

    async def send_again(self) -> str:
        """A sender that did not hear the reply sends again, with its dedup key."""
        with_key = [sent for sent in self.sent.values() if sent.dedup_key is not None]
        if not with_key:
            return "nothing"
        sent = self.rng.choice(with_key)
        changed = self.rng.random() < 0.2
        payload = f"other than {sent.payload}" if changed else sent.payload
        receipt = await self.somebody().client.signal(sent.target, sent.name, payload, sent.dedup_key, check=False)
        expected = "conflict" if changed else "duplicate"
        if (receipt.outcome, receipt.message_id) != (expected, sent.message_id):
            raise Broken(f"{sent} sent again was answered {receipt}")
        self.sometimes[f"{expected} replied"] += 1
        return f"{sent.message_id} -> {receipt.outcome}"

    async def cancel(self) -> str:
        run_id, force = self.some_run(), self.rng.random() < 0.3
        try:
            await self.somebody().client.cancel(run_id, force=force)
        except (bide.RunIsFinal, bide.RunNotFound) as refusal:
            return f"{run_id} refused: {type(refusal).__name__}"
        info = await self.processes[0].client.get(run_id)
        if info.status != "cancelled" and (force or info.definition != "careful"):
            raise Broken(f"{run_id} was cancelled and is {info.status}")
        self.sometimes["cancelled" if info.status == "cancelled" else "clean-up begun"] += 1
        await self.quiet()
        return f"{run_id} force={force} -> {info.status}"

    async def retry(self) -> str:
        held = await self.processes[0].client.runs(held=True)
        run_id = self.rng.choice(held).id if held else self.some_run()
        try:
            run = await self.somebody().client.retry(run_id)
        except (bide.NotHeld, bide.RunNotFound, bide.DuplicateRun) as refusal:
            return f"{run_id} refused: {type(refusal).__name__}"
        self.sometimes["retried"] += 1
        await self.quiet()
        return f"{run_id} -> {run.id}"

    # ------------------------------------------------------------ actions of workers, time and fate

    async def let_one_go(self) -> str:
        step = self.gate.let_one_go(self.rng)
        await self.quiet()
        return step

    async def let_all_go(self) -> str:
        """As far as the steps get on their own, without any duty done."""
        count = 0
        while self.gate.standing and count < 50:
            self.gate.let_one_go(self.rng)
            await self.quiet()
            count += 1
        return str(count)

    async def duty(self) -> str:
        process = self.somebody()
        engine = process.engine
        name, work = self.rng.choice(
            [
                ("claim", engine.claim),
                ("claim", engine.claim),
                ("fire_timers", engine.fire_timers),
                ("do_chores", engine.do_chores),
                ("tick", engine.tick),
            ]
        )
        moved = await self.patiently(work())
        await self.quiet()
        return f"{self.processes.index(process)} {name} -> {moved}"

    async def leap(self) -> str:
        leap = self.rng.choices(list(LEAPS), list(LEAPS.values()))[0]
        self.clock.set(self.clock() + parse_duration(leap))
        return leap

    async def heartbeat(self) -> str:
        process = self.somebody()
        Heartbeat(process.engine, asyncio.get_running_loop()).tick()
        await self.quiet()
        return str(self.processes.index(process))

    async def kill(self) -> str:
        process, cleaned = self.somebody(), self.rng.random() < 0.5
        self.sometimes["killed with turns"] += bool(process.engine.active)
        await process.die(leases_end=cleaned)
        return f"{self.processes.index(process)} leases end={cleaned}"

    async def plan_crash(self) -> str:
        """At a point of a step, once; or each time that anybody comes to it, for a while: poison."""
        step, point, is_poison = self.rng.choice(STEPS), self.rng.choice(POINTS), self.rng.random() < 0.4
        for process in self.processes if is_poison else [self.somebody()]:
            for _ in range(5 if is_poison else 1):
                process.crashes.plan(step, point)
        return f"{point} {step} poison={is_poison}"

    async def bury(self) -> None:
        for process in self.processes:
            if process.engine.crashed:
                self.sometimes["crashed at a point"] += 1
                await process.die(leases_end=self.rng.random() < 0.7)

    async def quiet(self) -> None:
        """Until every turn stands at the gate or has ended, and nothing is being committed."""
        async with asyncio.timeout(DEADLINE):
            for spins in itertools.count():
                await asyncio.sleep(0 if spins < 20 else 0.0005)  # a store with threads of its own takes a moment
                turns = sum(len(process.engine._tasks) for process in self.processes)
                flushing = any(process.runtime.committer._flushing is not None for process in self.processes)
                if turns <= self.gate.standing and not flushing:
                    return

    # ------------------------------------------------------------ promises

    async def check(self) -> None:
        broken = await self.store.audit()
        if broken:
            raise Broken("; ".join(f"{row.invariant} {row.id}: {row.detail}" for row in broken))
        if self.complaints:
            raise Broken("; ".join(self.complaints))
        runs = await self.processes[0].client.runs(limit=10_000)
        self.known = {run.id: run.definition for run in runs}
        for run in runs:
            if run.id in self.finals and self.finals[run.id] != run.status:
                raise Broken(f"{run.id} was {self.finals[run.id]} and is {run.status}")
            if run.status in FINAL:
                self.finals[run.id] = run.status
            if run.held is not None:
                self.sometimes["held"] += 1

    async def account(self) -> None:
        """At the end every run has ended, and every acknowledged signal was used up or discarded, once."""
        client = self.processes[0].client
        fate: dict[str, list[str]] = {message_id: [] for message_id in self.sent}
        for run in await client.runs(limit=10_000):
            if run.status not in FINAL:
                raise Broken(f"{run.id} {run.definition} is still {run.status} at step {run.step}")
            entries = await client.ledger(run.id)
            received = [entry.data["id"] for entry in entries if entry.name == "signal_received"]
            consumed = [id for entry in entries if entry.name == "signals_consumed" for id in entry.data["ids"]]
            discarded = [id for entry in entries for id in entry.data.get("discarded", ())]
            for message_id in received:
                fate[message_id].append("received")
            for message_id in (*consumed, *discarded):
                fate[message_id].append("gone")
            self.sometimes["discarded"] += len(discarded)
            if run.status == "completed" and run.definition == "packer":
                payloads = [self.sent[message_id].payload for message_id in consumed]
                if run.result != payloads:
                    raise Broken(f"{run.id} says that it used {run.result}, its ledger {payloads}")
            self.check_ledger(run, entries)
            await self.check_waits(run)
            await self.check_join(run, entries[-1])
        for message_id, happened in fate.items():
            if sorted(happened) != ["gone", "received"]:
                raise Broken(f"signal {self.sent[message_id]} was {happened}")
        self.sometimes["stale commit seen"] += sum(p.stale + p.engine.stale for p in self.processes)

    def check_ledger(self, run: bide.RunInfo, entries: list[bide.LedgerEntry]) -> None:
        to = [entry.data["to"] for entry in entries if "to" in entry.data]
        came_from = [entry.data["from"] for entry in entries if "from" in entry.data]
        if to[-1] != run.status or came_from != to[:-1]:
            raise Broken(f"the ledger of {run.id} tells {to}, from {came_from}; it is {run.status}")
        epochs = [entry.data["epoch"] for entry in entries if "epoch" in entry.data]
        if epochs != sorted(set(epochs)):
            raise Broken(f"the epochs of {run.id} are {epochs}")
        cancelled = next((no for no, entry in enumerate(entries) if entry.name == "run_cancel_requested"), None)
        if cancelled is not None and run.status != "cancelled":
            raise Broken(f"{run.id} was cancelled and is {run.status}")

    async def check_waits(self, run: bide.RunInfo) -> None:
        for wait in await self.processes[0].client.waits(run_id=run.id, status=None, limit=10_000):
            self.sometimes[f"wait {wait.status}"] += 1
            self.sometimes["join completed"] += wait.kind == "children" and wait.status == "completed"
            if wait.closed_at is None:
                raise Broken(f"{wait.id} of {run.status} run is {wait.status}")
            early = wait.deadline is not None and wait.closed_at < wait.deadline
            if wait.status == "timed_out" and early:
                raise Broken(f"{wait.id} timed out at {wait.closed_at}, before {wait.deadline}")

    async def check_join(self, run: bide.RunInfo, last: bide.LedgerEntry) -> None:
        """A child that was cancelled because its join timed out belongs to a join that did."""
        if not str(last.data.get("reason", "")).startswith("the join of"):
            return
        child = await self.store.run("default", run.id)
        assert child is not None
        assert child.parent_id is not None
        joins = await self.processes[0].client.waits(run_id=child.parent_id, status=None)
        join = next(wait for wait in joins if wait.id == wait_id(child.parent_id or "", child.parent_wait or 0))
        self.sometimes["cancelled with its join"] += 1
        if join.status != "timed_out":
            raise Broken(f"{run.id} was cancelled with its join {join.id}, which is {join.status}")


class Turnstile:
    """Where steps stand until the simulation lets them go on. Some walk through without stopping."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._standing: list[tuple[str, asyncio.Future[None]]] = []
        self._is_open = False
        self._stops = rng.choice((0.3, 0.7, 1.0))

    async def __call__(self, ctx: bide.Context[Any]) -> None:
        if self._is_open or self._rng.random() > self._stops:
            return
        turn = (ctx.step, asyncio.get_running_loop().create_future())
        self._standing.append(turn)
        try:
            await turn[1]
        finally:
            if turn in self._standing:
                self._standing.remove(turn)

    @property
    def standing(self) -> int:
        return len(self._standing)

    def let_one_go(self, rng: random.Random) -> str:
        if not self._standing:
            return "nobody"
        step, turn = self._standing.pop(rng.randrange(len(self._standing)))
        if not turn.done():
            turn.set_result(None)
        return step

    def open(self) -> None:
        self._is_open = True
        while self._standing:
            self.let_one_go(self._rng)


@asynccontextmanager
async def simulation(seed: int, store: str) -> AsyncIterator[Simulation]:
    taste = random.Random(f"{seed}/world")
    clock = VirtualClock()
    gate = Turnstile(random.Random(f"{seed}/gate"))
    complaints: list[str] = []

    async def pause(ctx: bide.Context[Any]) -> None:
        if ctx.timed_out and ctx.attempt == 0 and ctx.awaited:
            waits = await processes[0].client.waits(run_id=ctx.run_id, status="timed_out")
            closed_at = max(wait.closed_at for wait in waits if wait.closed_at is not None)
            if any(signal.received_at > closed_at for signal in ctx.awaited):
                complaints.append(f"{ctx.run_id} timed out and was handed what came after")
        await gate(ctx)

    app = make_app(pause, complaints.append)
    async with fresh_store(store) as url:
        settings = load_settings(
            {"store": url, "max_claims": taste.choice((2, 3, 5)), "concurrency": taste.choice((2, 5, 50))}, {}
        )
        ids = random.Random(f"{seed}/ids")
        ports = Ports(now=clock, monotonic=lambda: clock().timestamp(), random=taste.random, random_bytes=ids.randbytes)
        opened = open_store(url, settings, clock, migrate=True)
        await opened.open()
        processes = [Process(Runtime(opened, app.registry, settings, ports)) for _ in range(2)]
        try:
            yield Simulation(seed, processes, clock, gate, complaints)
        finally:
            for process in processes:
                await process.engine.crash()
            await opened.close()


async def simulate(seed: int, store: str = "memory://", length: int = 60) -> Simulation:
    """Live through one story; raises `Broken` with what it came to, or returns it."""
    async with simulation(seed, store) as story:
        try:
            for _ in range(length):
                await story.act()
            await story.heal()
        except Exception as error:
            told = "\n".join(f"  {no:3} {line}" for no, line in enumerate(story.story, 1))
            raise Broken(f"seed {seed} on {store}: {type(error).__name__}: {error}\n{told}") from error
        return story


async def shortest(seed: int, store: str, length: int) -> str:
    """The story of the fewest actions of this seed that break a promise."""
    for fewer in range(length + 1):
        try:
            await simulate(seed, store, fewer)
        except Broken as error:
            return str(error)
    return f"seed {seed} on {store} broke a promise once and does not when it is told again"
