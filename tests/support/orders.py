"""Run two or three database sessions in every order in which their statements can happen.

A session is a list of steps, or real code whose statements are held at a gate. One driver lets one session at a time
take one step; a step that waits for a lock is seen in `pg_blocking_pids`, and its session cannot be chosen until the
lock is given. Which session moves is the only freedom there is: a depth-first search over these choices, each order
played from a fresh state, visits them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg

from bide.stores.postgres.sessions import Session
from tests.support.postgres import connect

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:  # generic in its stubs only
    Connection = asyncpg.Connection
Step = Callable[[Connection, dict[str, Any]], Awaitable[object]]

POLL_SECONDS = 0.001  # the first time; twice as long each time after that, so that a slow server is not kept busy by it
LONGEST_POLL_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
REPLAYS = 5

# Whoever waits looks once for a circle, when this is over: sooner than another session can be let go on, so that it
# finds none, and it is always the one who closes a circle that is aborted. A replay meets the same end then.
DEADLOCK_TIMEOUT = "1ms"

ABORTS = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)


@dataclass(frozen=True)
class Steps:
    """A session that takes its steps one by one, each with its connection and the session's own variables."""

    name: str
    steps: Sequence[Step]


@dataclass(frozen=True)
class Code:
    """A session that is real code: each statement it runs on any `GatedConnection` is one step.

    It is given a connection of its own; it may as well take one from a pool whose `connection_class` is
    `GatedConnection`. What it returns is the session's result.
    """

    name: str
    run: Callable[[GatedConnection], Awaitable[object]]
    has_its_own: bool = False
    """Whether it brings its connections along and leaves alone the one that it is given: none is made for it then."""


@dataclass(frozen=True)
class Ending:
    """How one session ended in one order."""

    name: str
    is_aborted: bool
    result: Any
    """What the code returned, or the variables of a list of steps."""


Setup = Callable[[Connection], Awaitable[object]]
Check = Callable[[Connection, Sequence[Ending]], Awaitable[str]]


@dataclass(frozen=True)
class Order:
    """One order that happened: who did what, whether it had to wait, and what came of it."""

    moves: tuple[tuple[str, str, bool], ...]
    verdict: str

    def __str__(self) -> str:
        width = max((len(name) for name, _, _ in self.moves), default=0)
        lines = [
            f"{number:3}. {name:{width}}  {label}{'  (waits)' if waited else ''}"
            for number, (name, label, waited) in enumerate(self.moves, 1)
        ]
        return "\n".join([f"{self.verdict}:", *lines])


@dataclass
class Orders:
    """What came of all orders."""

    verdicts: Counter[str] = field(default_factory=Counter)
    run: int = 0
    discarded: int = 0
    """Beginnings of orders that would have needed a session to act while it waited for a lock."""
    aborted: int = 0
    """Orders in which the server aborted at least one session."""
    first_bad: Order | None = None
    """The first order whose verdict was not "ok"."""
    is_complete: bool = True
    """False if the cap ended the search, or if orders were sampled."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        scope = "" if self.is_complete else ", not all"
        summary = f"{self.run} orders ({counts}; {self.aborted} aborted, {self.discarded} discarded{scope})"
        return f"{summary}\n{self.first_bad}" if self.first_bad else summary


async def every_order(
    url: str,
    sessions: Sequence[Steps | Code],
    *,
    setup: Setup,
    check: Check,
    cap: int = 1000,
    sample: Random | None = None,
) -> Orders:
    """Run *sessions* in every order that can happen and count what *check* says of each.

    Before each order *setup* makes the state fresh; after it *check* gives the verdict, "ok" if all is well. The search
    ends after *cap* orders. With *sample* it runs *cap* orders chosen at random instead, for sessions with too many.
    A session that ends with an error other than an abort by the server fails the search.
    """
    async with contextlib.AsyncExitStack() as stack:
        monitor = await stack.enter_async_context(_connection(url))
        own = [
            monitor
            if isinstance(session, Code) and session.has_its_own
            else await stack.enter_async_context(_connection(url))
            for session in sessions
        ]
        return await _search(_Stage(monitor, own, sessions, setup, check), cap, sample)


def statement(query: str, *arguments: object) -> Step:
    """A step that runs one statement and is called by its text."""

    async def step(connection: Connection, _: dict[str, Any]) -> None:
        await connection.execute(query, *arguments)

    step.__name__ = _one_line(query)
    return step


class Gate:
    """Where one session waits before each step until the driver lets it take that step."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.next_step: str | None = None
        self.backend: int | None = None
        self._changed = changed
        self._opened = asyncio.Event()
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def step(self, label: str, connection: Connection) -> AsyncIterator[None]:
        """Wait to be let through. Statements that a session runs side by side pass one after the other."""
        async with self._turn:
            self.next_step, self.backend = label, connection.get_server_pid()
            self._opened.clear()
            self._changed.set()
            await self._opened.wait()
            with _ungated():
                yield

    def open(self) -> None:
        self.next_step = None
        self._opened.set()


_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)


@contextlib.contextmanager
def _ungated() -> Iterator[None]:
    token = _gate.set(None)
    try:
        yield
    finally:
        _gate.reset(token)


def _gated(method: str) -> Callable[..., Any]:
    async def call(self: GatedConnection, *arguments: Any, **options: Any) -> Any:
        run = getattr(super(GatedConnection, self), method)
        gate = _gate.get()
        if gate is None:
            return await run(*arguments, **options)
        async with gate.step(_one_line(str(arguments[0]) if arguments else method), self):
            return await run(*arguments, **options)

    return call


def _refused(method: str) -> Callable[..., Any]:
    def call(self: GatedConnection, *arguments: Any, **options: Any) -> Any:
        if _gate.get() is not None:
            raise NotImplementedError(f"{method}() would run statements that no gate sees; use fetch() or execute()")
        return getattr(super(GatedConnection, self), method)(*arguments, **options)

    return call


class GatedConnection(Session):
    """An asyncpg connection whose every statement waits at the gate of the session that runs it.

    The gate belongs to the task, not to the connection: outside a session nothing waits. Transactions begin and end by
    `execute`, so `connection.transaction()` is gated with the rest.
    """

    execute = _gated("execute")
    executemany = _gated("executemany")
    fetch = _gated("fetch")
    fetchval = _gated("fetchval")
    fetchrow = _gated("fetchrow")
    fetchmany = _gated("fetchmany")
    copy_from_table = _gated("copy_from_table")
    copy_from_query = _gated("copy_from_query")
    copy_to_table = _gated("copy_to_table")
    copy_records_to_table = _gated("copy_records_to_table")
    prepare = _refused("prepare")
    cursor = _refused("cursor")

    async def reset(self, *, timeout: float | None = None) -> None:
        """As always, and ungated: what a pool does with a connection it got back is no step of the session."""
        with _ungated():
            await super().reset(timeout=timeout)


@dataclass
class _Session:
    """A session on its way through one order."""

    name: str
    gate: Gate
    task: asyncio.Task[Any]

    @property
    def is_moving(self) -> bool:
        return self.gate.next_step is None and not self.task.done()

    @property
    def is_ready(self) -> bool:
        return self.gate.next_step is not None and not self.task.done()


@dataclass
class _Choice:
    """A point where several sessions could have moved, and the one that did."""

    ready: tuple[int, ...]
    taken: int
    blocked: int
    """How many sessions were waiting for a lock: that many other beginnings cannot happen."""


class _Diverged(Exception):
    """A replayed order did not offer the choices it offered before."""


@dataclass
class _Stage:
    """What stays the same from order to order."""

    monitor: Connection
    own: Sequence[GatedConnection]
    sessions: Sequence[Steps | Code]
    setup: Setup
    check: Check

    async def play(self, path: list[_Choice], pick: Callable[[tuple[int, ...]], int]) -> tuple[Order, list[Ending]]:
        """Run one order: first the choices of *path*, then those of *pick*, which are added to *path*."""
        await self.setup(self.monitor)
        changed = asyncio.Event()
        running = [self._start(session, own, changed) for session, own in zip(self.sessions, self.own, strict=True)]
        moves: list[tuple[_Session, str, bool]] = []
        try:
            await self._settle(running, changed)
            while any(not session.task.done() for session in running):
                ready = tuple(index for index, session in enumerate(running) if session.is_ready)
                if not ready:  # they wait for each other: the server will abort one of them
                    await self._settle(running, changed, is_deadlocked=True)
                    continue
                blocked = sum(session.is_moving for session in running)
                depth = len(moves)
                if depth == len(path):
                    path.append(_Choice(ready, pick(ready), blocked))
                elif path[depth].ready != ready:
                    raise _Diverged
                session = running[path[depth].taken]
                label = session.gate.next_step or ""
                session.gate.open()
                await self._settle(running, changed)
                moves.append((session, label, session.is_moving))
            endings = [await self._ending(session) for session in running]
            verdict = await self.check(self.monitor, endings)
            return Order(tuple((session.name, label, waited) for session, label, waited in moves), verdict), endings
        except Exception as error:
            told = [(session.name, label, waited) for session, label, waited in moves]
            if told and not isinstance(error, _Diverged):
                error.add_note(str(Order(tuple(told), "the order that failed")))
            raise
        finally:
            await self._clear(running)

    def _start(self, session: Steps | Code, own: GatedConnection, changed: asyncio.Event) -> _Session:
        gate = Gate(changed)
        task = asyncio.create_task(_perform(session, own, gate))
        task.add_done_callback(lambda _: changed.set())
        return _Session(session.name, gate, task)

    async def _settle(
        self, running: Sequence[_Session], changed: asyncio.Event, *, is_deadlocked: bool = False
    ) -> None:
        """Wait until every session is at its gate, has ended or waits for a lock of another.

        With *is_deadlocked* that is so already, and the server's intervention is waited for first.
        """
        pause = POLL_SECONDS
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while moving := [session for session in running if session.is_moving]:
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # not wait_for, which makes a task each time
                    await changed.wait()
                is_deadlocked = False
                continue
            if loop.time() > deadline:
                raise TimeoutError
            pause = min(2 * pause, LONGEST_POLL_SECONDS)
            if not is_deadlocked and await self._all_blocked(moving, running):
                return

    async def _all_blocked(self, moving: Sequence[_Session], running: Sequence[_Session]) -> bool:
        backends = [session.gate.backend for session in running if session.gate.backend is not None]
        waiting = [session.gate.backend for session in moving if session.gate.backend is not None]
        blocked = await self.monitor.fetchval(
            # Only waits for one another count: a lock that the server's own workers hold passes by itself.
            "SELECT count(*) FROM unnest($1::int[]) AS backend WHERE pg_blocking_pids(backend) && $2::int[]",
            waiting,
            backends,
        )
        return bool(blocked == len(moving)) and all(session.is_moving for session in moving)

    async def _ending(self, session: _Session) -> Ending:
        try:
            return Ending(session.name, False, await session.task)
        except Exception as error:
            if not _is_abort(error):
                raise
            return Ending(session.name, True, None)

    async def _clear(self, running: Sequence[_Session]) -> None:
        for session in running:
            session.task.cancel()
        await asyncio.gather(*(session.task for session in running), return_exceptions=True)


async def _search(stage: _Stage, cap: int, sample: Random | None) -> Orders:
    orders = Orders(is_complete=sample is None)
    path: list[_Choice] = []
    counted = 0  # how much of the path was there before this order, so that a discarded beginning is counted once
    while True:
        order, endings = await _replayed(stage, path, sample)
        orders.run += 1
        orders.verdicts[order.verdict] += 1
        orders.aborted += any(ending.is_aborted for ending in endings)
        orders.discarded += sum(choice.blocked for choice in path[counted:])
        if order.verdict != "ok" and orders.first_bad is None:
            orders.first_bad = order
        if sample is not None:
            path = []
        elif not _advance(path):
            return orders
        counted = len(path)
        if orders.run == cap:
            orders.is_complete = False
            return orders


async def _replayed(stage: _Stage, path: list[_Choice], sample: Random | None) -> tuple[Order, list[Ending]]:
    known = len(path)
    for _ in range(REPLAYS):
        with contextlib.suppress(_Diverged):
            return await stage.play(path, sample.choice if sample is not None else min)
        del path[known:]
    raise RuntimeError(f"the sessions do not repeat themselves: {REPLAYS} replays of one order went another way")


def _advance(path: list[_Choice]) -> bool:
    """Turn *path* into the beginning of the next order, depth first. False when there is none."""
    while path:
        last = path[-1]
        later = [index for index in last.ready if index > last.taken]
        if later:
            last.taken = later[0]
            return True
        path.pop()
    return False


async def _perform(session: Steps | Code, connection: GatedConnection, gate: Gate) -> Any:
    try:
        if isinstance(session, Code):
            _gate.set(gate)  # seen by this task and those it starts
            return await session.run(connection)
        variables: dict[str, Any] = {}
        for step in session.steps:
            async with gate.step(getattr(step, "__name__", repr(step)), connection):
                await step(connection, variables)
        return variables
    finally:
        with _ungated():
            if connection.is_in_transaction():
                await connection.execute("ROLLBACK")


def _is_abort(error: BaseException | None) -> bool:
    """Whether the server aborted the transaction, also when the code under test has given that another name."""
    while error is not None:
        if isinstance(error, ABORTS):
            return True
        error = error.__cause__
    return False


@contextlib.asynccontextmanager
async def _connection(url: str) -> AsyncIterator[GatedConnection]:
    connection = await connect(url, connection_class=GatedConnection)
    assert isinstance(connection, GatedConnection)
    try:
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # a server of others: slower, but as good
            await connection.execute(f"SET deadlock_timeout = '{DEADLOCK_TIMEOUT}'")
        yield connection
    finally:
        connection.terminate()


def _one_line(query: str) -> str:
    text = " ".join(re.sub("--.*", "", query).split())
    return text if len(text) <= 100 else f"{text[:99]}…"
