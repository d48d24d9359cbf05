"""Hold the PostgreSQL store to its word in every order in which the statements of two or three calls can happen.

A story brings the tables into a state and says which calls meet there. Each call is made by a store of its own, on a
connection of its own. The clock stands still, so that an order ends in one of few states, and each of those is judged
once: by the audit, and against what the same calls lead to when they are made one after the other. A story may go on
from there to its end, with the bodies of workflows that meet the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias

import asyncpg

import bide
from bide.core.commands import (
    AnyCommand,
    Cancelled,
    Committed,
    Done,
    DuplicateRun,
    EventReceipt,
    Failed,
    Offer,
    Receipt,
    Receipts,
    Reply,
    Started,
)
from bide.core.records import Run, RunId, Turn
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from bide.engine.settings import load_settings
from bide.stores.interface import Executed, RunFilter
from bide.stores.pages import unpack
from bide.stores.postgres import PostgresStore
from bide.stores.postgres.leases import Leases
from bide.stores.postgres.transactions import log as store_log
from bide.testing.world import VirtualClock
from tests.support.orders import Code, Connection, Ending, GatedConnection, Orders, _ungated, every_order
from tests.support.postgres import connect
from tests.support.schemas import use_no_more

Result: TypeAlias = Executed | int | set[RunId] | str

TABLES = (
    "runs", "waits", "steps", "inbox", "names", "queue", "timers", "ledger", "chores", "unused", "intake",
    "interactions", "units", "items", "dead_letters", "streams", "events", "event_waits",
)  # fmt: skip
WORKER = "worker-1"  # who has the turns of `making.running`
ABORTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@dataclass(frozen=True)
class Call:
    """One call of a store that meets others."""

    name: str
    make: Callable[[PostgresStore], Awaitable[Result]]
    nothing: Result | None = None
    """What it answers when others hold all that it wanted; None for a call that waits for them instead."""


Story: TypeAlias = Callable[[PostgresStore, VirtualClock], Awaitable[Sequence[Call]]]
"""Brings the tables of an empty store into the state where the calls meet, and says which they are."""

Finish: TypeAlias = Callable[[PostgresStore, VirtualClock], Awaitable[str]]
"""Lets a story go on after its calls, and tells in words what it came to."""


def executing(name: str, *commands: AnyCommand, offer: Offer | None = None) -> Call:
    return Call(name, lambda store: store.execute(commands, offer))


def claiming(name: str, offer: Offer) -> Call:
    return Call(name, lambda store: store.claim(offer), Executed(replies=[]))


def firing_timers(name: str = "timers", offer: Offer | None = None) -> Call:
    return Call(name, lambda store: store.fire_timers(10, offer), Executed(replies=[]))


def admitting(name: str, most: int = 10) -> Call:
    return Call(name, lambda store: store.admit(most), Executed(replies=[]))


def deleting_ended(name: str, ended_before: timedelta) -> Call:
    return Call(name, lambda store: store.delete_ended(ended_before, 10), 0)


def ending_leases(name: str, worker: str) -> Call:
    return Call(name, lambda store: store.end_leases(worker))


def renewing(name: str, run_id: str, epoch: int, lease: timedelta) -> Call:
    """The statements of `renew`, on this event loop: its thread would know no gate."""

    async def renew(store: PostgresStore) -> Result:
        leases = Leases(store._sessions, store._sql, store._now)
        leases._connection = connection = await store._sessions.acquire()
        try:
            return await leases._renew({RunId(run_id): epoch}, lease)
        finally:
            store._sessions.release(connection)

    return Call(name, renew)


def taking_turn(name: str, app: bide.App, clock: VirtualClock, turn: Turn) -> Call:
    """A worker that has claimed this turn runs the body and commits what came of it, once: it keeps no claim."""

    async def take(store: PostgresStore) -> Result:
        engine = an_engine(store, app, clock)
        try:
            engine.settle_offer(None, {turn.run.id: turn})
            await at_rest(engine)
            return "was stale" if engine.stale else "was taken"
        finally:
            engine.detach()

    return Call(name, take)


def an_engine(store: PostgresStore, app: bide.App, clock: VirtualClock) -> Engine:
    """It moves only when it is told to, and nothing of what it makes is random."""
    ports = Ports(now=clock, monotonic=lambda: clock().timestamp(), random=lambda: 0.5, random_bytes=bytes)
    settings = load_settings({"max_steps_inline": 1, "resume_secrets": f"k1:{'0' * 32}"}, {})
    engine = Engine(Runtime(store, app.registry, settings, ports))
    engine.worker = WORKER
    return engine


async def at_rest(engine: Engine) -> None:
    while engine._tasks:
        await asyncio.wait(engine._tasks)


class StoreConnection(GatedConnection):
    """A connection whose every statement but BEGIN and SET is one step: they see nothing and lock nothing, so whether
    they come before or after a rival's statement makes no difference."""

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        statement, *parameters = map(str, arguments)
        if not statement.lstrip().startswith(("BEGIN", "SET")):
            return await super().execute(*arguments, **options)
        with _ungated():  # who waits at a lock waits for the test, too, however slow the machine is
            return await super().execute(
                re.sub(r"timeout = '\d+s'", "timeout = '120s'", statement), *parameters, **options
            )


@dataclass(frozen=True)
class Outcome:
    """What one order came to: every row, and every answer."""

    rows: tuple[tuple[str, str], ...]
    answers: tuple[str, ...]
    tale: str = field(compare=False)
    """The answers and the runs in words."""
    wins: int
    """How many calls got something that can be had once."""

    @property
    def received(self) -> int:
        return self._entries("signal_received")

    @property
    def answered(self) -> int:
        return self._entries("await_answer_received")

    @property
    def closed(self) -> int:
        return self._entries("await_unit_completed") + self._entries("await_unit_terminal")

    @property
    def runs(self) -> int:
        return sum(table == "runs" for table, _ in self.rows)

    def _entries(self, name: str) -> int:
        return sum(text.count(name) for table, text in self.rows if table == "ledger")


@dataclass
class Tried:
    """All orders of a story, and what they came to."""

    tales: Counter[str] = field(default_factory=Counter)
    searches: list[Orders] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)
    """By verdict, what was wrong the first time."""

    @property
    def verdicts(self) -> Counter[str]:
        return sum((search.verdicts for search in self.searches), Counter())

    @property
    def run(self) -> int:
        return sum(search.run for search in self.searches)

    @property
    def is_complete(self) -> bool:
        return self.searches[0].is_complete

    def __str__(self) -> str:
        tales = [f"{count:6} x {tale}" for tale, count in sorted(self.tales.items())]
        details = [f"{verdict}: {detail}" for verdict, detail in self.details.items()]
        return "\n".join([*map(str, self.searches), *tales, *details])


async def try_orders(
    url: str,
    story: Story,
    *,
    cap: int,
    samples: int = 0,
    mutate: Callable[[], None] | None = None,
    dropped: Sequence[tuple[str, str]] = (),
    finish: Finish | None = None,
) -> Tried:
    """Run the calls of *story* in every order, up to *cap*; where there are more, in *samples* random ones besides.

    *finish* is how the story goes on after them: an order that leads to the rows of a serial one goes on as that does.

    *mutate* spoils the code after it was seen what the calls lead to one after the other; *dropped* are constraints,
    each with its table, that would stop some of what spoiled code does.
    """
    clock = VirtualClock()
    async with contextlib.AsyncExitStack() as stack:
        director = await stack.enter_async_context(_store(url, clock, migrate=True))
        keeper = await connect(url)
        stack.callback(keeper.terminate)
        calls = await story(director, clock)
        stage = _Stage(keeper, director, calls)
        await stage.save()
        await stage.see_serial_orders(finish and (lambda: finish(director, clock)))
        if dropped:
            use_no_more(url)
        for table, constraint in dropped:
            await keeper.execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
        if mutate is not None:
            mutate()
        sessions = []
        for call in calls:
            store = await stack.enter_async_context(_store(url, clock))
            store._sessions.connection_class = StoreConnection
            stage.stores.append(store)
            sessions.append(Code(call.name, _made_by(call, store), has_its_own=True))
        stack.enter_context(stage.listening())

        async def search(cap: int, sample: Random | None = None) -> Orders:
            return await every_order(url, sessions, setup=stage.restore, check=stage.judge, cap=cap, sample=sample)

        tried = stage.tried
        if cap:
            tried.searches.append(await search(cap))
        if samples and not (tried.searches and tried.is_complete):
            tried.searches.append(await search(samples, Random(7)))
        return tried


def _made_by(call: Call, store: PostgresStore) -> Callable[[GatedConnection], Awaitable[Result]]:
    async def made(_: GatedConnection) -> Result:
        return await call.make(store)

    return made


@contextlib.asynccontextmanager
async def _store(url: str, clock: VirtualClock, *, migrate: bool = False) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, now=clock, hints=False, pool_size=1, migrate=migrate, random=lambda: 0.0)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class _Stage:
    def __init__(self, keeper: Connection, director: PostgresStore, calls: Sequence[Call]) -> None:
        self.tried = Tried()
        self._keeper = keeper
        self._director = director
        self._calls = calls
        self.stores: list[PostgresStore] = []  # of the sessions
        self._restore = ""
        self._runs: Sequence[Run] = ()
        self._serial: dict[Outcome, str] = {}  # with their tales
        self._judged: dict[tuple[object, ...], tuple[str, str]] = {}
        self._aborts: list[BaseException] = []

    # -- the state where the calls meet

    async def save(self) -> None:
        has_rows = await self._keeper.fetchrow(f"SELECT {', '.join(f'EXISTS (TABLE {table})' for table in TABLES)}")
        assert has_rows is not None
        kept = [table for table, is_used in zip(TABLES, has_rows, strict=True) if is_used]
        for table in kept:
            await self._keeper.execute(f"CREATE TEMPORARY TABLE saved_{table} AS TABLE {table}")
        emptying = [f"DELETE FROM {table}" for table in TABLES]
        filling = [f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM saved_{table}" for table in kept]
        self._restore = "; ".join(emptying + filling)
        self._runs = await self._director.runs(RunFilter(), after=None, limit=100)

    async def restore(self, _: Connection) -> None:
        await self._keeper.execute(self._restore)
        self._aborts.clear()
        version = await self._keeper.fetchval("SELECT max(xmin::text) FROM runs")  # all rows are of one transaction
        for store in (self._director, *self.stores):  # each knows the runs in progress, as who has written them does
            store._transactions.in_progress.forget()
            store._transactions.in_progress.note(version, self._runs, {})

    # -- what the calls lead to

    async def see_serial_orders(self, finish: Callable[[], Awaitable[str]] | None) -> None:
        """Make the calls one after the other, in every order, also without those that others may keep from acting."""
        passing = [call for call in self._calls if call.nothing is not None]
        for count in range(len(passing) + 1):
            for absent in itertools.combinations(passing, count):
                for order in itertools.permutations([call for call in self._calls if call not in absent]):
                    await self.restore(self._keeper)
                    answers = {call.name: await call.make(self._director) for call in order}
                    outcome = await self._outcome([answers.get(call.name, call.nothing) for call in self._calls])
                    if outcome not in self._serial:
                        self._serial[outcome] = outcome.tale + (f" -> {await finish()}" if finish is not None else "")
                        assert not await self._director.audit(), self._serial[outcome]

    async def judge(self, _: Connection, endings: Sequence[Ending]) -> str:
        if any(ending.is_aborted for ending in endings):
            return "aborted"
        results = [ending.result for ending in endings]
        key = (await self._rows(), repr(results))
        if key not in self._judged:
            outcome = await self._outcome(results)
            self._judged[key] = (await self._verdict(outcome, results), self._serial.get(outcome, outcome.tale))
        verdict, tale = self._judged[key]
        self.tried.tales[tale] += 1
        if verdict == "ok" and self._aborts:
            self.tried.details.setdefault("aborted", str(self._aborts[0]))
            return "aborted"
        return verdict

    async def _verdict(self, outcome: Outcome, results: Sequence[Result]) -> str:
        verdict, detail = await self._looked_into(outcome, results)
        if verdict != "ok":
            self.tried.details.setdefault(verdict, f"{detail} ({outcome.tale})")
        return verdict

    async def _looked_into(self, outcome: Outcome, results: Sequence[Result]) -> tuple[str, str]:
        violations = await self._director.audit()
        if asleep := [violation for violation in violations if violation.invariant == "I4"]:
            return "lost", str(asleep)
        if failed := [reply for reply in _replies(results) if isinstance(reply, Failed)]:
            return "failed", str(failed)
        for kind in ("received", "answered", "closed", "runs", "wins"):
            amount, serial = getattr(outcome, kind), [getattr(other, kind) for other in self._serial]
            if not min(serial) <= amount <= max(serial):
                return "lost" if amount < min(serial) else "doubled", f"{amount} {kind}"
        if violations:
            return f"breaks {violations[0].invariant}", str(violations)
        if outcome not in self._serial:
            return "unlike any serial order", str(outcome.answers)
        return "ok", ""

    async def _outcome(self, results: Sequence[Result | None]) -> Outcome:
        done = [result for result in results if result is not None]
        runs = await self._director.runs(RunFilter(), after=None, limit=100)
        answers = [f"{call.name} {_told(result)}" for call, result in zip(self._calls, done, strict=True)]
        return Outcome(
            rows=await self._rows(),
            answers=tuple(_exactly(result) for result in done),
            tale=f"{', '.join(answers)}: {', '.join(f'{run.id} {run.status}' for run in runs) or 'no run'}",
            wins=sum(_wins(result) for result in done),
        )

    async def _rows(self) -> tuple[tuple[str, str], ...]:
        tables = (
            f"SELECT '{table}', {'(row.id, row.command)' if table == 'intake' else 'row'}::text FROM {table} AS row"
            for table in TABLES
            if table != "ledger"
        )
        rows = [(table, text) for table, text in await self._keeper.fetch(" UNION ALL ".join(tables))]
        pages = await self._keeper.fetch("SELECT run_id, seq, entries FROM ledger")
        rows += [("ledger", f"({run_id},{seq},{unpack(entries)})") for run_id, seq, entries in pages]
        return tuple(sorted(rows))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of transactions that the server aborted and the store tried again."""
        handler = _Listener(self._aborts)
        level = store_log.level
        store_log.setLevel(logging.INFO)
        store_log.addHandler(handler)
        try:
            yield
        finally:
            store_log.removeHandler(handler)
            store_log.setLevel(level)


class _Listener(logging.Handler):
    def __init__(self, aborts: list[BaseException]) -> None:
        super().__init__()
        self._aborts = aborts

    def emit(self, record: logging.LogRecord) -> None:
        for error in record.args if isinstance(record.args, tuple) else ():
            if isinstance(error, ABORTS):
                self._aborts.append(error)


# -- answers


def _replies(results: Sequence[Result]) -> Iterator[Reply]:
    for result in results:
        if isinstance(result, Executed):
            yield from result.replies


def _exactly(result: Result) -> str:
    """What must be the same as in some serial order: not when to look next, which is only a hint."""
    return repr((result.replies, result.turns) if isinstance(result, Executed) else result)


def _told(result: Result) -> str:
    """An answer in words.

    >>> _told(Executed(replies=[Receipt(outcome="woke"), Done(False)]))
    'woke+idle'
    """
    match result:
        case Executed():
            words = [*map(_word, result.replies), *(f"got {turn.run.id}" for turn in result.turns.values())]
            return "+".join(words) or "nothing"
        case set():
            return "lost it" if result else "kept it"
        case _:
            return str(result)


def _word(reply: Reply) -> str:
    match reply:
        case Receipt():
            return f"started+{reply.outcome}" if reply.started else reply.outcome
        case EventReceipt():
            return reply.outcome
        case Receipts():
            return "+".join(receipt.outcome for receipt in reply.receipts)
        case Done():
            return "done" if reply.changed else "idle"
        case Cancelled():
            return "found it final" if reply.already_final else "cancelled"
        case DuplicateRun():
            return "taken"
        case _:
            return type(reply).__name__.lower()


def _wins(result: Result) -> int:
    if not isinstance(result, Executed):
        return 0
    return len(result.turns) + sum(map(_is_win, result.replies))


def _is_win(reply: Reply) -> bool:
    match reply:
        case Receipt():
            return reply.outcome == "woke" or reply.started
        case EventReceipt():
            return reply.outcome == "woke"
        case Committed() | Started():
            return True
        case Cancelled():
            return not reply.already_final
        case _:
            return False
