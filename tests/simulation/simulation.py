"""A seeded simulation: random actions of clients, workers, clocks and faults on the real engine and a real store.

One seed is one story. Everything between two actions stands still: steps stand at a gate until an action lets them
go on, and time moves only by an action. The invariants are checked after every action, and at the end, when the faults
are over, every run must come to its end and every acknowledged signal, answer and event be accounted for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import bide
from bide.authoring.checks import MOST_LISTED
from bide.client import Client
from bide.core.durations import parse_duration
from bide.core.records import FINAL, OPEN_WAIT, wait_id
from bide.engine.engine import Engine
from bide.engine.heartbeat import Heartbeat
from bide.engine.ports import Ports
from bide.engine.probes import Point
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import load_settings
from bide.testing.places import fresh_store
from bide.testing.world import CrashPlan, VirtualClock
from tests.simulation.accounts import Broken, Emitted, Ended, by_strangers, misreported, twice, used_up
from tests.simulation.people import People
from tests.simulation.programs import INPUTS, NAMES, STEPS, WANTED, make_app
from tests.simulation.stories import (
    CLEANED_UP,
    DESKS,
    EVENTS,
    RECEIVED,
    STORIES,
    STORY_STEPS,
    TRIGGER,
    Dice,
    add_stories,
    some_acts,
)
from tests.support.staging import DEADLINE, client_of

LEAPS = {"1ms": 3, "1s": 3, "10s": 3, "31s": 4, "2m": 2, "11m": 1}
POINTS: tuple[Point, ...] = ("before", "after_code", "after_commit")
KEYS = ("key:1", "key:2", "key:3")


@dataclasses.dataclass
class Sent:
    """A delivery that was acknowledged."""

    message_id: str
    run_id: str
    target: str
    name: str
    payload: Any
    dedup_key: str | None


@dataclasses.dataclass
class Answered:
    """An answer to a signal id that was acknowledged."""

    message_id: str
    signal_id: str
    data: Any
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


@dataclasses.dataclass(eq=False)
class TurnSeen:
    """A turn of a workflow, as its body knows it."""

    events: int  # how many there were when it began
    began_at: datetime
    awaits: set[str] = dataclasses.field(default_factory=set)  # keys


class Onlooker:
    """What the programs are seen by: where they stand still, and who hears their complaints."""

    def __init__(self, gate: Turnstile, clock: VirtualClock) -> None:
        self.gate, self.clock = gate, clock
        self.processes: list[Process] = []
        self.complaints: list[str] = []
        self.events: list[Emitted] = []  # of clients, in order
        self.turns: dict[str, TurnSeen] = {}  # the last one of each run
        self.links: dict[str, tuple[str, str]] = {}  # tokens that left, with the run and the key of their callbacks
        self._begun: Counter[tuple[str, str]] = Counter()
        self._numbers = itertools.count(1)

    @property
    def client(self) -> Client:
        return self.processes[0].client

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    def number(self) -> int:
        return next(self._numbers)

    async def pause(self, ctx: bide.Context[Any]) -> None:
        """A step of a machine."""
        if ctx.timed_out and ctx.attempt == 0 and ctx.awaited:
            waits = await self.client.waits(run_id=ctx.run_id, status="timed_out")
            closed_at = max(wait.closed_at for wait in waits if wait.closed_at is not None)
            if any(signal.received_at > closed_at for signal in ctx.awaited):
                self.complain(f"{ctx.run_id} timed out and was handed what came after")
        await self.gate.stand(ctx, ctx.step)

    def begins(self, run_id: str) -> object:
        self.turns[run_id] = TurnSeen(len(self.events), self.clock())
        return self.turns[run_id]

    def awaits(self, turn: object, key: str) -> None:
        assert isinstance(turn, TurnSeen)
        turn.awaits.add(key)

    def has(self, turn: object, key: str) -> None:
        assert isinstance(turn, TurnSeen)
        turn.awaits.discard(key)

    async def works(self, turn: object, run_id: str, key: str) -> int:
        if await self._is_current(run_id) and any(
            step.id == key and step.status == "done" for step in await self.client.steps(run_id)
        ):
            self.complain(f"{run_id} runs {key} again, whose result is stored (D2)")
        begun = self._begun[(run_id, key)]
        self._begun[(run_id, key)] += 1
        await self.gate.stand(turn, key)
        return begun

    async def leaves(self, turn: object, run_id: str, key: str, token: str) -> None:
        waits = await self.client.waits(run_id=run_id, status=None, limit=MOST_LISTED)
        if await self._is_current(run_id) and key not in {wait.step for wait in waits}:
            self.complain(f"the token of {key} leaves {run_id}, which has no such wait (law 3)")
        self.links[token] = (run_id, key)

    async def governs(self, action: bide.Action) -> None:
        """A policy that allows everything. A turn that it is asked about was claimed, and its body has not begun."""
        if action.kind == "resume":
            await self.gate.stand(object(), "resume")

    async def _is_current(self, run_id: str) -> bool:
        """Whether nobody but the holder of the claim can be at work on the run: one who lost it may do as it likes."""
        turns = [turn for process in self.processes for id, turn in process.engine.active.items() if id == run_id]
        run = await self.processes[0].runtime.store.run("default", run_id)
        return run is not None and run.status == "running" and [turn.run.epoch for turn in turns] == [run.epoch]


class Simulation:
    def __init__(self, seed: int, onlooker: Onlooker) -> None:
        self.rng = Dice(seed)
        self.onlooker = onlooker
        self.processes = onlooker.processes
        self.store = self.processes[0].runtime.store
        self.clock, self.gate, self.complaints = onlooker.clock, onlooker.gate, onlooker.complaints
        self.known: dict[str, str] = {}  # every run and its definition
        self.sent: dict[str, Sent] = {}
        self.answered: dict[str, Answered] = {}
        self.people = People(self)
        self.listening: set[str] = set()  # waits for events that were looked at
        self.finals: dict[str, str] = {}
        self.story: list[str] = []
        self.sometimes: Counter[str] = Counter()
        self._payload = 0
        machines, stories = sorted(INPUTS), list(STORIES[:2])
        self._definitions = self.rng.choice((machines, stories, stories, [*machines, *stories * 2]))
        has_stories = self._definitions is not machines
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
        if has_stories:
            actions |= {self.answer: 10, self.answer_again: 3, self.emit: 6, self.emit_again: 2}
            self.rng.people = self.rng.choice((1, 1, 5))
            actions |= {action: weight * self.rng.people for action, weight in self.people.actions.items()}
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
            await self.check_rest()
            due = await self.store.until_due(frozenset({"default"}))
            if due is None:
                break
            self.clock.set(self.clock() + max(due, timedelta(0)))
        else:
            raise Broken("it does not come to rest")
        await self.check()
        await self.account()

    async def check_rest(self) -> None:
        """L1: where nothing moves any more, nobody waits whose wait is over."""
        client = self.processes[0].client
        parked = {run.id for run in await client.runs(status="waiting", limit=MOST_LISTED)}
        for run_id in sorted(parked & set(self.onlooker.turns)):
            awaited = self.onlooker.turns[run_id].awaits
            waits = await client.waits(run_id=run_id, status=None, limit=MOST_LISTED) if awaited else []
            for wait in {wait.step: wait for wait in waits}.values():  # the newest of each key
                is_over = wait.status not in (*OPEN_WAIT, "cancelled") or str(wait.cause).startswith("cancelled")
                if wait.step in awaited and is_over:
                    raise Broken(f"{run_id} is parked, and was not handed what became of {wait}")
        await self.people.check_rest()

    async def patiently(self, work: Awaitable[Any]) -> Any:
        async with asyncio.timeout(DEADLINE):
            return await work

    def somebody(self) -> Process:
        return self.rng.choice(self.processes)

    def number(self) -> int:
        """One that nobody was given before."""
        self._payload += 1
        return self._payload

    def some_run(self) -> str:
        """Mostly one that lives."""
        live = [run_id for run_id in self.known if run_id not in self.finals]
        chosen = live if live and self.rng.random() < 0.9 else list(self.known)
        return self.rng.choice(chosen) if chosen else "run_nobody"

    # ------------------------------------------------------------ actions of clients

    async def start(self) -> str:
        definition = self.rng.choice(self._definitions)
        options: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            options["correlation_key"] = self.rng.choice(KEYS)
        if self.rng.random() < 0.1:
            options["delay"] = "5s"
        try:
            run = await self.somebody().client.start(definition, self.some_input(definition), **options)
        except bide.DuplicateRun as refusal:
            return f"{definition} refused: {refusal.correlation_key}"
        await self.quiet()
        return f"{definition} {run.id} {options}"

    def some_input(self, definition: str) -> Any:
        return some_acts(self.rng) if definition in STORIES else self.rng.choice(INPUTS[definition])

    async def signal(self) -> str:
        draw = self.rng.random()
        target = "run_unknown" if draw < 0.05 else self.rng.choice(KEYS) if draw < 0.25 else self.some_run()
        self._payload += 1
        key = f"d{self.rng.randrange(6)}" if self.rng.random() < 0.4 else None
        definition = self.known.get(target, "")
        wanted = RECEIVED if definition in STORIES else WANTED.get(definition, NAMES)
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
        for wait in await self.processes[0].client.waits(status="completed", limit=MOST_LISTED):
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

    async def answer(self) -> str:
        """To a signal id that somebody waits for, or that somebody may wait for."""
        client = self.somebody().client
        there = [wait for status in ("waiting", "reserved") for wait in await self._open("signal", status)]
        wait = self.rng.choice(there) if there and self.rng.random() < 0.6 else None
        signal_id = wait.names[0] if wait is not None else self.rng.choice((*DESKS, "desk:nobody"))
        options: dict[str, Any] = {}
        if self.rng.random() < 0.35:
            options["hold"] = self.rng.choice(("1s", "30s", "10m"))
        if self.rng.random() < 0.4:
            options["dedup_key"] = f"d{self.rng.randrange(6)}"
        if self.rng.random() < 0.3:
            options["run_id"] = wait.run_id if wait is not None and self.rng.random() < 0.8 else self.some_run()
        self._payload += 1
        data = "no number" if self.rng.random() < 0.1 else self._payload
        receipt = await client.complete(signal_id, data, **options, check=False)
        self.note_answer(receipt, signal_id, data, options.get("dedup_key"))
        await self.quiet()
        return f"{signal_id} {data} {options} -> {receipt.outcome}"

    def note_answer(self, receipt: bide.Receipt, signal_id: str, data: Any, key: str | None) -> None:
        self.sometimes[f"answer {receipt.outcome}"] += 1
        if receipt.outcome in ("woke", "queued"):
            assert receipt.message_id is not None
            self.sometimes["answer held" if receipt.run_id is None else "answer taken"] += 1
            self.answered[receipt.message_id] = Answered(receipt.message_id, signal_id, data, key)

    async def answer_again(self) -> str:
        """Blindly, with its dedup key. One that was held and came to nothing may be given again."""
        with_key = [answer for answer in self.answered.values() if answer.dedup_key is not None]
        if not with_key:
            return "nothing"
        earlier, changed = self.rng.choice(with_key), self.rng.random() < 0.2
        data = self._payload + 1_000_000 if changed else earlier.data
        receipt = await self.somebody().client.complete(
            earlier.signal_id, data, dedup_key=earlier.dedup_key, check=False
        )
        expected = "conflict" if changed else "duplicate"
        is_kept = earlier.message_id in {row.id for row in await self.processes[0].client.unused(limit=MOST_LISTED)}
        if (receipt.outcome, receipt.message_id) != (expected, earlier.message_id) and not is_kept:
            raise Broken(f"{earlier} given again was answered {receipt}")
        self.note_answer(receipt, earlier.signal_id, data, earlier.dedup_key)
        await self.quiet()
        return f"{earlier.message_id} -> {receipt.outcome}"

    async def _open(self, kind: str, status: str = "waiting") -> list[bide.WaitInfo]:
        return await self.processes[0].client.waits(kind=kind, status=status, limit=MOST_LISTED)

    async def emit(self) -> str:
        """Everybody who waits for it goes on, in the same commit."""
        name = TRIGGER if self.rng.random() < 0.1 else self.rng.choice(EVENTS)
        data = {"n": self.rng.randrange(3)} | ({"acts": some_acts(self.rng, 1)} if name == TRIGGER else {})
        event = Emitted(f"evt-{len(self.onlooker.events)}", name, data, self.clock())
        wanting = [
            wait for wait in await self._open("event") if event.is_wanted(wait.names[0], wait.details.get("match"))
        ]
        self.onlooker.events.append(event)
        receipt = await self.somebody().client.emit(name, data, id=event.id)
        expected = (name == TRIGGER, len({wait.run_id for wait in wanting}))
        if (receipt.started, receipt.resumed) != expected:
            raise Broken(f"{event} started and let go on {receipt}; it should have {expected}")
        left = {wait.id for wait in await self._open("event")} & {wait.id for wait in wanting}
        if left:
            raise Broken(f"{event} came, and {left} still wait")
        self.sometimes["event woke"] += bool(wanting)
        self.sometimes["event started"] += receipt.started
        await self.quiet()
        return f"{event.id} {name} {data} -> {receipt.started}, {receipt.resumed}"

    async def emit_again(self) -> str:
        if not self.onlooker.events:
            return "nothing"
        event, changed = self.rng.choice(self.onlooker.events), self.rng.random() < 0.2
        data = {**event.data, "n": 7} if changed else event.data
        receipt = await self.somebody().client.emit(event.name, data, id=event.id, check=False)
        if receipt.outcome != ("conflict" if changed else "duplicate"):
            raise Broken(f"{event} emitted again was answered {receipt}")
        self.sometimes[f"event {receipt.outcome}"] += 1
        return f"{event.id} -> {receipt.outcome}"

    async def cancel(self) -> str:
        run_id, force = self.some_run(), self.rng.random() < 0.3
        try:
            await self.somebody().client.cancel(run_id, force=force)
        except (bide.RunIsFinal, bide.RunNotFound) as refusal:
            return f"{run_id} refused: {type(refusal).__name__}"
        info = await self.processes[0].client.get(run_id)
        if info.status != "cancelled" and (force or info.definition not in ("careful", *CLEANED_UP)):
            raise Broken(f"{run_id} was cancelled and is {info.status}")
        self.sometimes["cancelled" if info.status == "cancelled" else "clean-up begun"] += 1
        await self.quiet()
        return f"{run_id} force={force} -> {info.status}"

    async def retry(self) -> str:
        held = await self.processes[0].client.runs(held=True)
        failed = [run_id for run_id, status in self.finals.items() if status == "failed"]
        run_id = self.rng.choice(held).id if held else self.rng.choice(failed) if failed else self.some_run()
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
        steps: Sequence[str] = STEPS if self._definitions[0] in INPUTS and self.rng.random() < 0.5 else STORY_STEPS
        if self.gate.steps and self.rng.random() < 0.6:
            steps = self.gate.steps  # which are not over yet
        step, point, is_poison = self.rng.choice(steps), self.rng.choice(POINTS), self.rng.random() < 0.4
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
                flushing = any(not process.runtime.committer.is_idle for process in self.processes)
                if turns <= self.gate.standing and not flushing:
                    return

    # ------------------------------------------------------------ promises

    async def check(self) -> None:
        broken = await self.store.audit()
        if broken:
            raise Broken("; ".join(f"{row.invariant} {row.id}: {row.detail}" for row in broken))
        if self.complaints:
            raise Broken("; ".join(self.complaints))
        runs = await self.processes[0].client.runs(limit=MOST_LISTED)
        self.known = {run.id: run.definition for run in runs}
        for run in runs:
            if run.id in self.finals and self.finals[run.id] != run.status:
                raise Broken(f"{run.id} was {self.finals[run.id]} and is {run.status}")
            if run.status in FINAL:
                self.finals[run.id] = run.status
            if run.held is not None:
                self.sometimes["held"] += 1
        for wait in await self._open("event"):
            self.check_listening(wait)

    def check_listening(self, wait: bide.WaitInfo) -> None:
        """Law 2: no event that it should have heard had come when it opened."""
        if wait.id in self.listening:
            return
        self.listening.add(wait.id)
        turn, lookback = self.onlooker.turns[wait.run_id], wait.details.get("lookback")
        since = turn.began_at - parse_duration(lookback) if lookback is not None else None
        for no, event in enumerate(self.onlooker.events):
            is_heard = no >= turn.events or (since is not None and event.at >= since)
            if is_heard and event.is_wanted(wait.names[0], wait.details.get("match")):
                raise Broken(f"{wait} was opened after {event} and did not hear it")

    async def account(self) -> None:
        """At the end every run has ended, and what was acknowledged was used up, discarded or kept, once."""
        client = self.processes[0].client
        runs = {run.id: run for run in await client.runs(limit=MOST_LISTED)}
        unused = Counter(row.id for row in await client.unused(limit=MOST_LISTED))
        self.sometimes.update(f"unused {row.reason}" for row in await client.unused(limit=MOST_LISTED))
        fates, taken = Counter[tuple[str, str]](), Counter[str]()
        for run in runs.values():
            if run.status not in FINAL:
                raise Broken(f"{run.id} {run.definition} is still {run.status} at step {run.step}")
            ended = await self.all_of(run, runs)
            entries = ended.entries
            fates.update((entry.data["id"], "received") for entry in entries if entry.name == "signal_received")
            fates.update((id, "gone") for id in used_up(entries).elements())
            discarded = [id for entry in entries for id in entry.data.get("discarded", ())]
            fates.update((id, "gone") for id in discarded)
            taken.update(entry.data["id"] for entry in entries if entry.name == "await_answer_received")
            self.sometimes.update(entry.name for entry in entries)
            self.sometimes["discarded"] += len(discarded)
            self.check_told(ended, runs, unused)
            self.check_ledger(run, entries)
            self.check_waits(ended)
            await self.people.account(ended)
            await self.check_join(run, entries[-1])
        self.check_fates(fates, taken, unused)
        self.check_started(runs)
        self.sometimes["stale commit seen"] += sum(p.stale + p.engine.stale for p in self.processes)

    async def all_of(self, run: bide.RunInfo, runs: dict[str, bide.RunInfo]) -> Ended:
        client = self.processes[0].client
        return Ended(
            run=run,
            entries=await client.ledger(run.id),
            waits=await client.waits(run_id=run.id, status=None, limit=MOST_LISTED),
            steps=await client.steps(run.id) if run.definition in STORIES else [],
            children=[child for child in runs.values() if child.parent_id == run.id],
        )

    def check_told(self, ended: Ended, runs: dict[str, bide.RunInfo], unused: Counter[str]) -> None:
        """What the run says that it was handed is what is stored."""
        run = ended.run
        payloads = {message_id: sent.payload for message_id, sent in self.sent.items()}
        wrong = [*twice(ended), *by_strangers(ended.entries)]
        if run.status == "completed" and run.definition == "packer":
            consumed = [payloads[message_id] for message_id in used_up(ended.entries)]
            if run.result != consumed:
                wrong.append(f"says that it used {run.result}, its ledger {consumed}")
        if run.status == "completed" and run.definition in STORIES and run.retry_of is None:
            self.sometimes["story told"] += 1
            self.sometimes.update(f"{kind} {what}" for _, kind, what, _ in run.result)
            wrong += misreported(ended, payloads, runs, unused)
        if wrong:
            raise Broken(f"{run.id} {'; '.join(wrong)}")

    def check_fates(self, fates: Counter[tuple[str, str]], taken: Counter[str], unused: Counter[str]) -> None:
        for message_id, sent in self.sent.items():
            if (fates[(message_id, "received")], fates[(message_id, "gone")]) != (1, 1):
                raise Broken(
                    f"signal {sent} was {fates[(message_id, 'received')]} times received, and used up "
                    f"or discarded {fates[(message_id, 'gone')]} times"
                )
        answered = {**self.answered, **self.people.given}
        for message_id, answer in answered.items():
            if taken[message_id] + unused[message_id] != 1:
                raise Broken(f"{answer} was taken {taken[message_id]} times, and {unused[message_id]} times kept")
        strangers = {id for id, _ in fates} - set(self.sent) | set(taken) - set(answered)
        if strangers:
            raise Broken(f"nobody was told that these were taken: {strangers}")

    def check_started(self, runs: dict[str, bide.RunInfo]) -> None:
        """An event starts what it triggers once, however often it is emitted."""
        started = [run.id for run in runs.values() if run.definition == "triggered" and run.retry_of is None]
        emitted = [event.id for event in self.onlooker.events if event.name == TRIGGER]
        if len(started) != len(emitted):
            raise Broken(f"{emitted} started {started}")

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

    def check_waits(self, ended: Ended) -> None:
        for wait in ended.waits:
            self.sometimes[f"wait {wait.status}"] += 1
            self.sometimes["join completed"] += wait.kind == "children" and wait.status == "completed"
            if wait.closed_at is None:
                raise Broken(f"{wait.id} of {ended.run.status} run is {wait.status}")
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
        self._standing: list[tuple[object, str, asyncio.Future[None]]] = []
        self._is_open = False
        self._stops = rng.choice((0.3, 0.7, 1.0))

    async def stand(self, owner: object, step: str) -> None:
        """*owner* is the turn: several steps of one may stand here."""
        if self._is_open or self._rng.random() > self._stops:
            return
        turn = (owner, step, asyncio.get_running_loop().create_future())
        self._standing.append(turn)
        try:
            await turn[2]
        finally:
            if turn in self._standing:
                self._standing.remove(turn)

    @property
    def standing(self) -> int:
        """How many turns."""
        return len({id(owner) for owner, _, _ in self._standing})

    @property
    def steps(self) -> list[str]:
        return [step for _, step, _ in self._standing]

    def let_one_go(self, rng: random.Random) -> str:
        if not self._standing:
            return "nobody"
        _, step, turn = self._standing.pop(rng.randrange(len(self._standing)))
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
    onlooker = Onlooker(Turnstile(random.Random(f"{seed}/gate")), clock)
    app = make_app(onlooker.pause, onlooker.complain)
    add_stories(app, onlooker)
    if taste.random() < 0.6:
        app.policy(onlooker.governs)
    async with fresh_store(store) as url:
        settings = load_settings(
            {
                "store": url,
                "max_claims": taste.choice((2, 3, 5)),
                "concurrency": taste.choice((2, 5, 50)),
                "resume_secrets": f"k1:{'0' * 32}",
            },
            {},
        )
        ids = random.Random(f"{seed}/ids")
        ports = Ports(now=clock, monotonic=lambda: clock().timestamp(), random=taste.random, random_bytes=ids.randbytes)
        opened = open_store(url, settings, clock, migrate=True)
        await opened.open()
        onlooker.processes = [Process(Runtime(opened, app.registry, settings, ports)) for _ in range(2)]
        try:
            yield Simulation(seed, onlooker)
        finally:
            for process in onlooker.processes:
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
