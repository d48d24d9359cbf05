"""Every store gives the same replies and keeps the same rows, whatever is asked of it in whatever order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from bide.core.commands import (
    AnyCommand,
    CancelChildren,
    CommitTurn,
    Deliver,
    DuplicateRun,
    Failed,
    GiveBack,
    Move,
    Offer,
    Reply,
    Start,
    StartOrSignal,
)
from bide.core.records import Turn
from bide.stores.interface import Executed, Store
from bide.stores.memory import MemoryStore
from bide.stores.postgres import PostgresStore
from bide.stores.sqlite import SqliteStore
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_child,
    a_commit,
    a_give_back,
    a_release,
    a_signal,
    a_signal_by_key,
    a_start,
    an_offer,
    an_unused,
    ending,
    going_on,
    joining,
    many,
    redoing,
    waiting_for,
)
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock

T = TypeVar("T")

STORIES = int(os.environ.get("BIDE_TEST_STORIES", "40"))
ACTIONS = 30
NAMES = ("go", "näme")
KEYS = ("order-1", "order-2", "Order-1", "órder")
WORKSPACES = ("default", "other")


class Story:
    """One random sequence of calls. All that it decides on is what the first store answered."""

    def __init__(self, seed: int, stores: list[Store], clock: VirtualClock) -> None:
        self.random = Random(seed)
        self.stores = stores
        self.clock = clock
        self.ids: list[str] = []
        self.starts: list[Start] = []
        self.current: dict[str, Turn] = {}  # the turns that may still commit, as far as anybody knows
        self.lost: list[Turn] = []

    async def go_on(self) -> None:
        act = self.random.choices(
            [
                self.execute,
                self.claim,
                self.fire,
                self.let_time_pass,
                self.renew,
                self.end_leases,
                self.chores,
                self.tidy,
            ],
            weights=[12, 4, 3, 3, 1, 1, 2, 1],
        )[0]
        await act()

    async def all_say(self, call: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """The answer of every store, which must be the same one."""
        answer = await call(self.stores[0])
        for store in self.stores[1:]:
            assert _comparable(await call(store)) == _comparable(answer), type(store).__name__
        return answer

    # -- actions

    async def execute(self) -> None:
        commands = [self.command() for _ in range(self.random.randint(1, 6))]
        offer = self.offer() if self.random.random() < 0.6 else None
        done = await self.all_say(lambda store: store.execute(commands, offer))
        for command, reply in zip(commands, done.replies, strict=True):
            if isinstance(command, CommitTurn | GiveBack) and not isinstance(reply, Failed | DuplicateRun):
                self.lose(command.run_id)
        self.take(done)

    async def claim(self) -> None:
        offer = self.offer()
        done = await self.all_say(lambda store: store.claim(offer))
        self.take(done)

    async def fire(self) -> None:
        limit, offer = self.random.randint(1, 4), self.offer()
        self.take(await self.all_say(lambda store: store.fire_timers(limit, offer)))

    async def let_time_pass(self) -> None:
        self.clock.advance(self.random.choice([timedelta(microseconds=1), timedelta(seconds=30), MINUTE, HOUR]))

    async def renew(self) -> None:
        claims = {turn.run.id: turn.run.epoch for turn in [*self.current.values(), *self.lost[-3:]]}
        await self.all_say(lambda store: asyncio.to_thread(store.renew, "w-1", claims, HOUR))

    async def end_leases(self) -> None:
        await self.all_say(lambda store: store.end_leases("w-2"))

    async def chores(self) -> None:
        for chore in await self.all_say(lambda store: _listed(store.due_chores(3))):
            children = await self.all_say(lambda store, id=chore.run_id: _listed(store.live_children(id, 2)))  # type: ignore[misc]  # mypy takes the default for a parameter
            command = CancelChildren(
                workspace="default",
                chore_id=chore.id,
                run_id=chore.run_id,
                children=tuple(children),
                reason="parent gone",
                is_last=len(children) < 2,
            )
            self.take(await self.all_say(lambda store, command=command: store.execute([command])))  # type: ignore[misc]

    async def tidy(self) -> None:
        await self.all_say(lambda store: store.delete_ended(2 * HOUR, 1000))
        await self.all_say(lambda store: store.trim_unused(HOUR, 6, 3))

    def take(self, done: Executed) -> None:
        for turn in done.turns.values():
            self.lose(turn.run.id)
            self.current[turn.run.id] = turn

    def lose(self, run_id: str) -> None:
        turn = self.current.pop(run_id, None)
        if turn is not None:
            self.lost.append(turn)

    # -- commands

    def offer(self) -> Offer:
        return an_offer(
            self.random.choice(["w-1", "w-2"]),
            slots=self.random.randint(0, 4),
            queues=frozenset(self.random.choice([["default"], ["slow"], ["default", "slow"]])),
            definitions=frozenset(self.random.choice([["order"], ["order", "refund"]])),
            max_claims=self.random.choice([2, 5]),
        )

    def command(self) -> AnyCommand:
        makers: list[Callable[[], AnyCommand]] = [
            self.start,
            self.signal,
            self.signal_by_key,
            self.start_or_signal,
            lambda: many(*(self.random.choice([self.signal, self.signal_by_key])() for _ in range(3))),
            lambda: an_unused(f"msg_u{self.random.randint(1, 5)}", self.clock(), workspace=self.workspace()),
            lambda: a_cancel(self.run_id(), force=self.random.random() < 0.3, workspace=self.workspace()),
            lambda: a_release(self.run_id()),
            lambda: self.of_turn(lambda turn: a_give_back(turn, **self.chance(hold="poison", delay=MINUTE))),
            lambda: self.of_turn(self.commit),
        ]
        return self.random.choices(makers, weights=[3, 8, 4, 2, 2, 1, 1, 1, 1, 16])[0]()

    def start(self) -> Start:
        if self.starts and self.random.random() < 0.1:
            return self.random.choice(self.starts)  # tried again
        run_id = self.new_id()
        options = self.chance(
            correlation_key=self.random.choice(KEYS),
            correlation_scope="forever",
            queue="slow",
            definition="refund",
            delay=MINUTE,
            cleanup_seconds=90.5,
            priority=self.random.randint(-2, 2),
        )
        self.starts.append(a_start(run_id, workspace=self.workspace(), input=f'"{run_id} ✓"', **options))
        return self.starts[-1]

    def signal(self) -> Deliver:
        return a_signal(self.run_id(), self.random.choice(NAMES), workspace=self.workspace(), **self.dedup())

    def signal_by_key(self) -> Deliver:
        key = self.random.choice(KEYS)
        return a_signal_by_key(key, self.random.choice(NAMES), workspace=self.workspace(), **self.dedup())

    def start_or_signal(self) -> StartOrSignal:
        deliver, start = self.signal_by_key(), self.start()
        start = replace(start, workspace=deliver.workspace, correlation_key=deliver.target)
        return StartOrSignal(workspace=deliver.workspace, start=start, deliver=deliver)

    def of_turn(self, maker: Callable[[Turn], AnyCommand]) -> AnyCommand:
        is_late = self.lost and self.random.random() < 0.1
        turns = self.lost if is_late else list(self.current.values())
        return maker(self.random.choice(turns)) if turns else self.start()

    def commit(self, turn: Turn) -> AnyCommand:
        move, used = self.move(turn)
        return a_commit(turn, move, used=turn.inbox if used else (), keep=self.random.random() < 0.6)

    def move(self, turn: Turn) -> tuple[Move, bool]:
        random = self.random
        match random.choice(["go on", "wait", "wait", "wait", "join", "redo", "end"]):
            case "go on":
                return going_on(random.choice(["pay", "ship"]), f'"{random.random()}"'), random.random() < 0.7
            case "wait":
                names = random.sample(NAMES, random.randint(1, 2))
                seen = tuple(signal.seq for signal in turn.inbox)
                options = self.chance(
                    timeout=random.choice([MINUTE, HOUR]), on_timeout=random.choice(["late", "!fail"]), seen=seen
                )
                return waiting_for(*names, **options), False
            case "join":
                children = [
                    a_child(self.new_id(), **self.chance(correlation_key=random.choice(KEYS), queue="slow"))
                    for _ in range(random.randint(0, 3))
                ]
                return joining(*children, **self.chance(timeout=HOUR, cancel_children=True)), random.random() < 0.7
            case "redo":
                return redoing(random.choice([timedelta(0), MINUTE])), False
            case _:
                return ending(status=random.choice(["completed", "stopped", "failed"])), False

    # -- dice

    def chance(self, **options: Any) -> dict[str, Any]:
        return {name: value for name, value in options.items() if self.random.random() < 0.35}

    def dedup(self) -> dict[str, Any]:
        return {"payload": self.random.choice("112"), "dedup_key": self.random.choice([None, "d-1", "d-2"])}

    def workspace(self) -> str:
        return self.random.choices(WORKSPACES, weights=[9, 1])[0]

    def new_id(self) -> str:
        self.ids.append(f"run_{len(self.ids):03}")
        return self.ids[-1]

    def run_id(self) -> str:
        return self.random.choice(self.ids[-6:]) if self.ids and self.random.random() < 0.95 else "run_none"


def _comparable(answer: Any) -> Any:
    """The answer without what may differ: how an error is worded, and the order of what has none."""
    if not isinstance(answer, Executed):
        return answer
    return (
        [_wordless(reply) for reply in answer.replies],
        list(answer.turns.items()),
        (answer.ready, answer.due_in),
        sorted(answer.ended, key=lambda run: run.id),
    )


def _wordless(reply: Reply) -> Reply | type[Failed]:
    return Failed if isinstance(reply, Failed) else reply


async def _listed(found: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await found)


@pytest.fixture
async def stores(sqlite_path: str, postgres_used_url: str, clock: VirtualClock) -> AsyncIterator[list[Store]]:
    """One of each kind, empty, the memory store first. They read the same clock."""
    made: list[Store] = [
        MemoryStore(now=clock),
        SqliteStore(sqlite_path, now=clock, synchronous="OFF"),
        PostgresStore(postgres_used_url, now=clock, migrate=True, hints=False),
    ]
    async with AsyncExitStack() as opened:
        for store in made:
            await store.open()
            opened.push_async_callback(store.close)
        yield made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.mark.parametrize("seed", range(STORIES))
async def test_stores_agree(seed: int, stores: list[Store], clock: VirtualClock) -> None:
    story = Story(seed, stores, clock)
    for _ in range(ACTIONS):
        await story.go_on()

    await story.all_say(visible_rows)
    assert [list(await store.audit()) for store in stores] == [[], [], []]
    clock.advance(2 * HOUR)
    await story.all_say(lambda store: store.until_due(frozenset({"default", "slow"})))
    while (await story.all_say(lambda store: store.fire_timers(5))).replies:
        pass
    await story.all_say(visible_rows)
