"""One transaction, tried until it is known to be committed or known not to be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg

from bide.core.batch import Changes
from bide.errors import StoreUnavailable
from bide.stores.postgres.ahead import Ahead
from bide.stores.postgres.arrays import array
from bide.stores.postgres.failures import (
    FAULTS,
    POOLER_STATES,
    Rivalled,
    is_lost_connection,
    is_refusal,
    is_transient,
    state_of,
    unavailable,
    undecided,
)
from bide.stores.postgres.progress import InProgress
from bide.stores.postgres.proving import Proof
from bide.stores.postgres.sealed import PLAIN, Rows
from bide.stores.postgres.sessions import Connection, Sessions
from bide.stores.postgres.statements import BEGIN, counted, of_one_row, together, unless_moved


class Numbered(Protocol):
    """What a transaction came to, with its number where that is known."""

    transaction: str | None


T = TypeVar("T")
N = TypeVar("N", bound=Numbered)
Random = Callable[[], float]
Part: TypeAlias = tuple[str, Sequence[Sequence[Any]]]  # a statement's name, and the columns that are its parameters
log = logging.getLogger("bide.postgres")

PATIENCE_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0
RIVALRIES = 50  # a name cannot be taken that often in between; then something else is wrong
SLOW_SECONDS = 3600.0
ASKING_SECONDS = 60.0  # how long to ask for the outcome of a commit whose answer was lost


class Transaction:
    """What the body of one attempt works with."""

    def __init__(
        self,
        connection: Connection,
        sql: Mapping[str, str],
        rows: Rows,
        in_progress: InProgress,
        ahead: Ahead | None = None,
    ) -> None:
        self._ahead = ahead
        self.in_progress = in_progress
        self._connection = connection
        self.rows = rows
        self._sql = sql
        self.backend = connection.get_server_pid()
        self.id: str | None = None  # the server's number for it, once something was written
        self.changes: Changes | None = None  # what was written under that number
        self.round_trips = 0

    async def fetch(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        if self._ahead is not None and (found := self._ahead.take((statement, *parameters))) is not None:
            return found
        self.round_trips += 1
        return await self._connection.fetch(self._sql[statement], *parameters)

    async def write(self, changes: Changes, parts: Sequence[Part]) -> None:
        """Write *changes*, of which *parts* are the statements, in one round trip."""
        texts, parameters = self._prepared(parts)
        self.round_trips += 1
        [(self.id,)] = await self._connection.fetch(together(texts), *parameters)
        self.changes = changes

    async def write_in_turn(self, changes: Changes, parts: Iterator[Part]) -> None:
        """The same with a round trip for each part, which is made ready while the server is at the one before it."""
        ready = await asyncio.to_thread(self._next_prepared, parts)
        while ready is not None:
            texts, parameters = ready
            self.round_trips += 1
            [(self.id,)], ready = await asyncio.gather(
                self._connection.fetch(together(texts), *parameters), asyncio.to_thread(self._next_prepared, parts)
            )
            self.changes = changes

    def _next_prepared(self, parts: Iterator[Part]) -> tuple[tuple[tuple[str, str], ...], list[Any]] | None:
        part = next(parts, None)
        return self._prepared([part]) if part is not None else None

    async def write_unless_moved(
        self, changes: Changes, parts: Sequence[Part], versions: Collection[str], hint: tuple[str, str] | None
    ) -> str:
        """The same as a transaction of its own, whose first part updates the runs of which *versions* were read.

        Returns its number. Raises `asyncpg.DivisionByZeroError` where a row is another by now.
        """
        texts, parameters = self._prepared(parts)
        parameters.insert(len(parts[0][1]), array(sorted(versions)))
        sizes = {name: len(columns[0]) for name, columns in parts}
        parameters += [sizes[name] for name in counted(parts)]
        parameters += hint or ()
        self.changes = changes  # before it is sent: the answer may get lost
        self.round_trips += 1
        [(number, *_)] = await self._connection.fetch(unless_moved(texts, hint is not None), *parameters)
        return str(number)

    def _prepared(self, parts: Sequence[Part]) -> tuple[tuple[tuple[str, str], ...], list[Any]]:
        """The texts of the statements, and their parameters one after the other."""
        is_one_row = all(len(columns[0]) == 1 for _, columns in parts)
        texts, parameters = [], list[Any]()
        for name, columns in parts:
            text = self._sql[name]
            values = of_one_row(text) if is_one_row else text
            if values != text:
                parameters += [value.isoformat() if isinstance(value, datetime) else value for (value,) in columns]
            else:
                parameters += map(array, columns)
            texts.append((name, values))
        return tuple(texts), parameters


class Lone(NamedTuple, Generic[N]):
    """What is to be written alone: the first of *parts* updates the runs of which *versions* were read.

    A *hint*, a channel and what to say there, goes out with the commit.
    """

    result: N
    changes: Changes
    parts: Sequence[Part]
    versions: Collection[str]
    hint: tuple[str, str] | None


class Transactions:
    def __init__(
        self, sessions: Sessions, sql: Mapping[str, str], random: Random, patience: float, rows: Rows = PLAIN
    ) -> None:
        self._sessions = sessions
        self._rows = rows
        self._sql = sql
        self._random = random
        self._patience = patience
        self._is_alone = False
        self._ahead: Ahead | None = None
        self.in_progress = InProgress()
        self.round_trips = 0

    async def close(self) -> None:
        if self._ahead is not None:
            await self._ahead.end()

    def ask_ahead(self, statement: str, *parameters: object) -> bool:
        """Begin to ask what `run_alone` will ask first; whether that was begun.

        It leaves with the next pass of the event loop, and the server is at it while this process gets on.
        """
        if self._is_alone or self._sessions.has_pooler:
            return False
        self._is_alone = True
        self._ahead = Ahead((statement, *parameters), asyncio.create_task(self._ask_settled(statement, parameters)))
        return True

    async def run(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        """What *body* returned in the attempt that was committed.

        *body* may be called several times. Raises `StoreUnavailable` where nothing was applied in the time given, and
        lets errors pass for which a row of the batch is to blame.
        """
        return await self._persistently(lambda: self._attempt(body))

    async def run_alone(self, body: Callable[[Transaction], Awaitable[Lone[N] | None]]) -> N | None:
        """What *body* made, if it was written; None where nothing was, and it is for `run` to do it or to say why not.

        There is no transaction around what *body* reads. Behind a pooler there is no connection whose settings stay.
        """
        ahead = self._ahead
        if ahead is not None and not await ahead.found():
            if ahead.is_over and self._ahead is ahead:
                self._ahead = None
            return None
        if self._is_alone or self._sessions.has_pooler:
            return None
        self._is_alone = True
        try:
            return await self._attempt_alone(body)
        finally:
            self._is_alone = False

    async def _attempt_alone(self, body: Callable[[Transaction], Awaitable[Lone[N] | None]]) -> N | None:
        try:
            connection = await self._sessions.settled()
        except FAULTS:
            return None
        transaction = Transaction(connection, self._sql, self._rows, self.in_progress, self._ahead)
        made: Lone[N] | None = None
        is_clean, lost = False, None
        try:
            made = await body(transaction)
            if made is not None:
                made.result.transaction = await transaction.write_unless_moved(
                    made.changes, made.parts, made.versions, made.hint
                )
            is_clean = True
            return made.result if made is not None else None
        except Exception as error:
            is_clean = is_refusal(error) or state_of(error)[:2] in ("40", "55")
            if transaction.changes is not None and not is_clean and is_lost_connection(error):
                lost = error
            log.info("not done alone: %s", error)
        finally:
            self.round_trips += transaction.round_trips
            if not is_clean:
                self._sessions.unsettle()
        if made is not None and lost is not None and await self._has_committed(transaction, lost):
            return made.result
        return None

    async def look(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """As `read`, for a statement that is asked again and again: on the connection whose plans are made once, where
        nobody else is at it. Its plan takes longer to make than to carry out."""
        if self._is_alone or self._sessions.has_pooler:
            return await self.read(statement, *parameters)
        self._is_alone = True
        found = await self._ask_settled(statement, parameters)
        return found if found is not None else await self.read(statement, *parameters)

    async def _ask_settled(self, statement: str, parameters: tuple[object, ...]) -> list[asyncpg.Record] | None:
        """Whoever calls this has said that the connection is taken; it is free in the end."""
        is_clean = False
        try:
            connection = await self._sessions.settled()
            self.round_trips += 1
            found: list[asyncpg.Record] = await connection.fetch(self._sql[statement], *parameters)
            is_clean = True
            return found
        except Exception as error:  # whatever it is, the others meet it, too, and know what to do
            log.info("not asked alone: %s", error)
            return None
        finally:
            self._is_alone = False
            if not is_clean:
                self._sessions.unsettle()

    async def read(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """One statement outside any transaction of ours."""
        return await self._persistently(lambda: self._fetch(statement, parameters, None))

    async def read_slowly(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """The same for a statement that may have to look at every row."""
        return await self._persistently(lambda: self._fetch(statement, parameters, SLOW_SECONDS))

    async def look_after_sessions(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """One statement on the sessions of this login."""

        async def attempt() -> list[asyncpg.Record]:
            connection = await self._sessions.connect(cached=False)
            try:
                return await self._as_login(connection, statement, *parameters)
            finally:
                connection.terminate()

        return await self._persistently(attempt)

    async def _as_login(self, connection: Connection, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """As the role that logged in: it sees its sessions and may end them, the role that it takes on may not."""
        await connection.execute("BEGIN; SET LOCAL ROLE NONE")
        found = await connection.fetch(self._sql[statement], *parameters)
        await connection.execute("COMMIT")
        return found

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + self._patience
        pause, rivalries = FIRST_PAUSE_SECONDS, 0
        while True:
            try:
                return await attempt()
            except Rivalled as error:
                rivalries += 1
                if rivalries > RIVALRIES:
                    raise unavailable(self._sessions.address, error) from error
            except StoreUnavailable:
                raise
            except Exception as error:
                if is_refusal(error):
                    raise
                if not is_transient(error) or clock() >= give_up_at:
                    raise unavailable(self._sessions.address, error) from error
                self._learn(error)
                await asyncio.sleep(pause * (0.5 + self._random()))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _learn(self, error: Exception) -> None:
        log.info("trying again: %s", error)
        self.in_progress.forget()
        if state_of(error) in POOLER_STATES and not self._sessions.has_pooler:
            log.warning(
                "a pooler stands before PostgreSQL: no prepared statements from here on; say pooler=1 in the URL"
            )
            self._sessions.has_pooler = True
        if state_of(error)[:2] not in ("40", "55"):
            self._sessions.forget_idle()

    async def _fetch(
        self, statement: str, parameters: tuple[object, ...], seconds: float | None
    ) -> list[asyncpg.Record]:
        connection = await self._sessions.acquire()
        self.round_trips += 1
        is_clean = False
        try:
            rows = await connection.fetch(self._sql[statement], *parameters, timeout=seconds)
            is_clean = True
            return rows
        finally:
            self._give_back(connection, is_clean)

    def _give_back(self, connection: Connection, is_clean: bool) -> None:
        if is_clean and not connection.is_closed():
            self._sessions.release(connection)
        else:
            self._sessions.discard(connection)

    async def _attempt(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        connection = await self._sessions.acquire()
        is_clean = False
        try:
            transaction = Transaction(connection, self._sql, self._rows, self.in_progress)
            await connection.execute(BEGIN)
            try:
                result = await body(transaction)
            except Exception as error:
                is_clean = await self._roll_back(connection, error)
                raise
            lost = await self._commit(connection)
            self.round_trips += transaction.round_trips + 2  # and those that begin and commit it
            is_clean = lost is None
        finally:
            # Also after a cancelled await: a connection in an unknown state is closed, never given back.
            self._give_back(connection, is_clean)
        if lost is not None and transaction.id is not None and not await self._has_committed(transaction, lost):
            raise lost
        return result

    async def _roll_back(self, connection: Connection, error: Exception) -> bool:
        if is_lost_connection(error) or connection.is_closed():
            return False
        try:
            await connection.execute("ROLLBACK")
        except Exception:
            return False
        return state_of(error) not in POOLER_STATES | {"0A000"}

    async def _commit(self, connection: Connection) -> Exception | None:
        """The error that hid the answer, if there was one."""
        try:
            await connection.execute("COMMIT")
        except Exception as error:
            if not is_lost_connection(error):
                raise
            self.in_progress.forget()
            return error
        return None

    async def _has_committed(self, transaction: Transaction, lost: Exception) -> bool:
        """Ask until the server says how a transaction ended whose answer was lost.

        About a third of such transactions are committed, so neither yes nor no may be assumed.
        """
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + ASKING_SECONDS
        while True:
            try:
                status = await self._status_of(transaction)
            except Exception as error:
                if clock() >= give_up_at:
                    raise undecided(self._sessions.address, lost, error) from error
                status = "in progress"
            if status == "in progress":
                await asyncio.sleep(0.05 * (0.5 + self._random()))
                continue
            log.info("the answer to a commit was lost: it was %s", status)
            return status == "committed"

    async def _status_of(self, transaction: Transaction) -> str:
        connection = await self._sessions.connect()
        try:
            if transaction.id is None:
                return await self._status_of_lone(connection, transaction)
            # A server that has never heard of the number lost it with everything after its last flush.
            status: Any = await connection.fetchval(self._sql["select_transaction_status"], transaction.id)
            if status == "in progress":
                await self._as_login(connection, "end_idle_transaction", transaction.id)
            if status == "committed" and not await self._shows(connection, transaction):
                return "aborted"
            return str(status or "aborted")
        except asyncpg.InvalidParameterValueError:
            return "aborted"
        finally:
            connection.terminate()

    async def _status_of_lone(self, connection: Connection, transaction: Transaction) -> str:
        """Its number came with the answer, and is lost: once nobody is at it any more, its page tells."""
        if await self._as_login(connection, "end_lost_backend", transaction.backend, self._sessions.name):
            return "in progress"
        return "committed" if await self._shows(connection, transaction) else "aborted"

    async def _shows(self, connection: Connection, transaction: Transaction) -> bool:
        assert transaction.changes is not None, "it has a number because something was written"
        return await Proof(connection, self._sql, self._rows).shows(transaction.changes)
