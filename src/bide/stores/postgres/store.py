"""The PostgreSQL store."""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from bide.core.commands import AnyCommand, Deliver, Done, Failed, Offer, Start
from bide.core.intake import decode_intake, encode_intake
from bide.core.ledger import LedgerKey
from bide.core.outside import ItemKey
from bide.core.records import (
    Chore,
    DeadLetter,
    Interaction,
    Item,
    LedgerPage,
    Name,
    Run,
    RunId,
    RunStatus,
    Signal,
    StepRow,
    Unit,
    Unused,
    Wait,
)
from bide.errors import PayloadUnreadable, StoreUnavailable
from bide.stores.interface import (
    MOST_UNUSED_OF_WAIT,
    Executed,
    InteractionFilter,
    Now,
    RunFilter,
    Streamed,
    Violation,
    WaitFilter,
)
from bide.stores.postgres import address as addresses
from bide.stores.postgres import audit, joining, listing, schema
from bide.stores.postgres.access import PostgresAccess
from bide.stores.postgres.arrays import array
from bide.stores.postgres.batches import Batch, DueRuns, DueTimers, Intake, Outcome
from bide.stores.postgres.failures import FAULTS, is_refusal, unavailable
from bide.stores.postgres.hints import Hints
from bide.stores.postgres.keys import note_keys
from bide.stores.postgres.leases import Leases
from bide.stores.postgres.lone import LoneAnswers, LoneClaim, LoneDelivery, asked_first, lone_answers, lone_delivery
from bide.stores.postgres.retention import Retention
from bide.stores.postgres.rows import read_unit
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.sessions import Connection, Sessions
from bide.stores.postgres.statements import statements
from bide.stores.postgres.transactions import PATIENCE_SECONDS, Random, Transaction, Transactions
from bide.stores.sealing import Codec, Sealing
from bide.stores.transaction import again, merge

T = TypeVar("T")
log = logging.getLogger("bide.postgres")

PASSED_OVER_SECONDS = 60.0
REDONE = 20  # how often a target may move between look-up and lock


class PostgresStore(PostgresAccess):
    """Runs in a PostgreSQL schema, shared by any number of processes.

    The URL is `postgresql://user:password@host:port/database?schema=bide`; `pooler=1` says that a transaction pooler
    stands in between. *now* is for tests: without it the server's clock counts. With *migrate*, `open` brings the
    schema up to date. *patience* is how many seconds a call is tried again before it raises `StoreUnavailable`.
    *codec* encrypts users' data, *ledger_key* signs the ends of ledgers.
    """

    def __init__(
        self,
        url: str,
        *,
        now: Now | None = None,
        hints: bool = True,
        pool_size: int = 4,
        migrate: bool = False,
        random: Random = randomness.random,
        patience: float = PATIENCE_SECONDS,
        codec: Codec | None = None,
        ledger_key: LedgerKey | None = None,
    ) -> None:
        self._address = addresses.parse(url)
        self._now = now
        self._migrates = migrate
        instance = secrets.token_hex(6)
        self._sql = statements(self._address.schema)
        self._sessions = Sessions(self._address, pool_size, instance)
        self._rows = Rows(Sealing(codec) if codec is not None else None, ledger_key)
        self._transactions = Transactions(self._sessions, self._sql, random, patience, self._rows)
        self._hints = Hints(self._sessions, instance) if hints else None
        self._leases = Leases(self._sessions, self._sql, now)
        self._running: set[asyncio.Task[Any]] = set()
        self._claims_many = False
        self._passed_over = PassedOver()

    async def open(self) -> None:
        try:
            connection = await self._sessions.connect(cached=False)
        except FAULTS as error:
            raise unavailable(self._address, error) from error
        try:
            await self._look_around(connection)
        except FAULTS as error:
            raise unavailable(self._address, error) from error
        finally:
            connection.terminate()

    async def _look_around(self, connection: Connection) -> None:
        # A pooler answers the greeting itself, so the process that serves us is not the one that it named.
        if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
            self._sessions.has_pooler = True
        await schema.check(connection, self._address, migrates=self._migrates)
        await note_keys(connection, self._sql, self._rows.sealing)

    async def close(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
        if self._hints is not None:
            await self._hints.close()
        await self._transactions.close()
        await asyncio.to_thread(self._leases.close)
        await self._sessions.close()

    @property
    def batches_at_once(self) -> int:
        return 2

    @property
    def round_trips(self) -> int:
        return self._transactions.round_trips

    # -- execute

    def foresee(self, run_id: RunId) -> bool:
        return self._transactions.ask_ahead(*asked_first(run_id))

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        done = await self._in_parts(commands, offer)
        for _ in range(REDONE):
            positions = again(done.replies)
            if not positions:
                return done
            # In a transaction of their own: locks taken late would not be in the order of the ids.
            merge(done, positions, await self._redo([commands[at] for at in positions]))
        for at in again(done.replies):
            done.replies[at] = Failed(StoreUnavailable("the holder of the correlation key keeps changing; try again"))
        return done

    async def _redo(self, commands: Sequence[AnyCommand]) -> Executed:
        try:
            return await self._in_parts(commands, None)
        except StoreUnavailable as error:  # the first part of the batch was applied: only these have failed
            return Executed(replies=[Failed(error) for _ in commands])

    async def _in_parts(self, commands: Sequence[AnyCommand], offer: Offer | None) -> Executed:
        """Execute a batch; where the database refuses it, its halves, down to the command that is to blame."""
        done, _ = await self._halved(commands, offer)
        return done

    async def _halved(self, commands: Sequence[AnyCommand], offer: Offer | None) -> tuple[Executed, Offer | None]:
        if not commands:
            return Executed(replies=[]), offer
        try:
            outcome = await self._alone(commands, offer)
            if outcome is None:
                outcome = await self._transactions.run(Batch(commands, offer, self._now))
        except Exception as error:
            if not is_refusal(error):
                raise
            if len(commands) == 1:
                return Executed(replies=[Failed(error)]), offer
            return await self._both_halves(commands, offer)
        if offer is not None:
            offer = msgspec.structs.replace(offer, slots=outcome.slots)
        return self._noted(outcome), offer

    async def _alone(self, commands: Sequence[AnyCommand], offer: Offer | None) -> Outcome | None:
        if (delivery := lone_delivery(commands)) is not None:
            return await self._transactions.run_alone(LoneDelivery(delivery, offer, self._now, self._hints))
        if (answers := lone_answers(commands)) is not None:
            return await self._transactions.run_alone(LoneAnswers(answers, offer, self._now))
        return None

    async def _both_halves(self, commands: Sequence[AnyCommand], offer: Offer | None) -> tuple[Executed, Offer | None]:
        middle = len(commands) // 2
        done, offer = await self._halved(commands[:middle], offer)
        try:
            rest, offer = await self._halved(commands[middle:], offer)
        except StoreUnavailable as error:  # the first half was applied
            rest = Executed(replies=[Failed(error) for _ in commands[middle:]])
        positions = range(middle, len(commands))
        done.replies.extend(rest.replies)
        merge(done, positions, rest)
        return done, offer

    def _noted(self, outcome: Outcome | None) -> Executed:
        if outcome is None:
            return Executed(replies=[])
        self._transactions.in_progress.note(outcome.transaction, outcome.runs, outcome.executed.turns)
        if outcome.concerns_others and self._hints is not None:
            self._hints.send()
        return outcome.executed

    async def _unharmed(self, work: Awaitable[T]) -> T:
        """Let a transaction go on to its end when the caller is cancelled; only the answer is lost."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    # -- join

    async def leave(self, connection: Any, command: Start | Deliver) -> None:
        id = command.run_id if isinstance(command, Start) else command.signal_id
        await joining.insert(
            connection, self._sql["insert_intake"], id, self._rows.intake_text(id, encode_intake(command))
        )

    async def left(self, id: str) -> Start | Deliver | None:
        found = await self._transactions.read("select_intake", id)
        return decode_intake(self._rows.intake_of(id, found[0][0])) if found else None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        connection = await self._sessions.connect(cached=False)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    async def admit(self, limit: int, offer: Offer | None = None) -> Executed:
        return await self._unharmed(self._admit(limit, offer))

    async def _admit(self, limit: int, offer: Offer | None) -> Executed:
        done, ids = await self._admit_some(limit, offer)
        for _ in range(REDONE):
            positions = again(done.replies)
            if not positions:
                return done
            redone, moved = await self._admit_some(limit, None, [ids[at] for at in positions])
            by_id = dict(zip(moved, redone.replies, strict=True))
            redone.replies = [by_id.get(ids[at], Done(False, "admitted elsewhere")) for at in positions]
            merge(done, positions, redone)
        for at in again(done.replies):  # they stay in the intake for the next look
            done.replies[at] = Done(False, "the holder of the correlation key keeps changing")
        return done

    async def _admit_some(
        self, limit: int, offer: Offer | None, only: Sequence[str] | None = None
    ) -> tuple[Executed, list[str]]:
        """Admit what is in the intake, or some of it; where the database refuses it, its halves, down to the row that
        is to blame. The ids are those of the replies."""
        intake = Intake(limit, offer, self._now, only)
        try:
            done = await self._run_due(intake)
        except Exception as error:
            if not is_refusal(error) or not intake.ids:
                raise
            if len(intake.ids) > 1:
                return await self._admit_halves(intake.ids, offer)
            done = Executed(replies=[Failed(error)])
        for at, reply in enumerate(done.replies):
            if isinstance(reply, Failed):
                merge(done, [at], await self._set_aside(intake.ids[at], reply.error))
        return done, intake.ids

    async def _admit_halves(self, ids: Sequence[str], offer: Offer | None) -> tuple[Executed, list[str]]:
        middle = len(ids) // 2
        done, found = await self._admit_some(middle, offer, ids[:middle])
        try:
            rest, others = await self._admit_some(len(ids), None, ids[middle:])
        except StoreUnavailable as error:  # the first half was applied; the rest is there for the next look
            log.warning("a part of the intake was not admitted: %s", error)
            return done, found
        positions = range(len(found), len(found) + len(others))
        done.replies.extend(rest.replies)
        merge(done, positions, rest)
        return done, [*found, *others]

    async def _set_aside(self, id: str, error: Exception) -> Executed:
        """Keep for an operator what can never be admitted (S12). What is only encrypted waits for its key."""
        if isinstance(error, PayloadUnreadable):
            log.error("%s, which a transaction left, is passed over: %s", id, error)
            return Executed(replies=[Failed(error)])
        log.error("%s, which a transaction left, cannot be admitted and is kept as unused: %s", id, error)
        done = await self._run_due(Intake(1, None, self._now, [id], refused=str(error)))
        return done if done.replies else Executed(replies=[Done(False, "admitted elsewhere")])

    # -- claim

    async def claim(self, offer: Offer) -> Executed:
        return await self._unharmed(self._claim(offer))

    async def _claim(self, offer: Offer) -> Executed:
        if offer.slots and not self._claims_many:
            lone = LoneClaim(offer, self._now)
            outcome = await self._transactions.run_alone(lone)
            if outcome is not None or lone.is_nothing_due:
                return self._noted(outcome)
        done = await self._run_readable(DueRuns(offer, self._now))
        self._claims_many = len(done.replies) > 1  # then there are more, most likely
        return done

    def renew(self, worker: str, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
        return self._leases.renew(claims, lease)

    async def end_leases(self, worker: str) -> int:
        rows = await self._transactions.read("select_leases", worker)
        moment = self._moment()
        ended = [await self._transactions.read("end_lease", run_id, worker, moment) for (run_id,) in rows]
        if rows and self._hints is not None:
            self._hints.send()
        return sum(map(len, ended))

    # -- due

    async def fire_timers(self, limit: int, offer: Offer | None = None) -> Executed:
        return await self._unharmed(self._run_readable(DueTimers(limit, offer, self._now)))

    async def _run_readable(self, body: DueRuns | DueTimers) -> Executed:
        """Run what is due, and pass for a while over runs that break it: the others go on."""
        body.share.passed_over.update(self._passed_over.now())
        while True:
            try:
                return await self._run_due(body)
            except Exception as error:
                if not is_refusal(error):
                    raise
                blamed = _unreadable(error) or body.share.to_blame
                if blamed is None and body.share.halve():
                    continue
                if blamed is None or blamed in body.share.passed_over:
                    raise
                log.error("%s is due and is passed over: %s", blamed, error)
                body.share.pass_over(blamed)
                self._passed_over.add(blamed)

    async def _run_due(self, body: Callable[[Transaction], Awaitable[Outcome | None]]) -> Executed:
        return self._noted(await self._transactions.run(body))

    async def due_chores(self, limit: int) -> Sequence[Chore]:
        return [
            self._rows.read_chore(row)
            for row in await self._transactions.read("select_due_chores", self._moment(), limit)
        ]

    async def claim_chores(self, limit: int, lease: timedelta) -> Sequence[Chore]:
        claimed = await self._transactions.read("claim_chores", self._moment(), lease, limit)
        return sorted(map(self._rows.read_chore, claimed), key=lambda chore: chore.id)

    async def due_items(self, queues: frozenset[str], definitions: frozenset[str], limit: int) -> Sequence[Item]:
        parameters = (array(sorted(queues)), array(sorted(definitions)), self._moment(), limit)
        return [self._rows.read_item(row) for row in await self._transactions.read("select_due_items", *parameters)]

    async def live_children(
        self, run_id: RunId, limit: int, *, wait_no: int | None = None, after: RunId | None = None
    ) -> Sequence[RunId]:
        found = await self._transactions.read("select_live_children", run_id, limit, wait_no, after or "")
        return [child for (child,) in found]

    async def until_due(self, queues: frozenset[str]) -> timedelta | None:
        [(due_at, now)] = await self._transactions.look("select_next_due", array(sorted(queues)))
        if due_at is None:
            return None
        until: timedelta = due_at - (self._moment() or now)
        return until

    async def free_locks(self, longer_than: timedelta) -> int:
        [(ended,)] = await self._transactions.look_after_sessions("end_stuck_sessions", longer_than)
        if ended:
            log.warning("%s sessions of processes that stand still were ended: they kept rows locked", ended)
        return int(ended)

    async def delete_ended(self, ended_before: timedelta, limit: int) -> int:
        return await self._unharmed(self._transactions.run(Retention(ended_before, limit, self._moment())))

    async def trim_unused(self, older_than: timedelta, keep: int, limit: int) -> int:
        return len(
            await self._transactions.read("trim_unused", self._moment(), older_than, keep, limit, MOST_UNUSED_OF_WAIT)
        )

    async def trim_events(self, older_than: timedelta, limit: int) -> int:
        return len(await self._transactions.read("trim_events", self._moment(), older_than, limit))

    def _moment(self) -> datetime | None:
        """A test's time; None leaves it to the server's clock."""
        return self._now() if self._now is not None else None

    # -- read

    async def now(self) -> datetime:
        if self._now is not None:
            return self._now()
        [(now,)] = await self._transactions.read("select_clock")
        assert isinstance(now, datetime)
        return now

    async def run(self, workspace: str, run_id: str) -> Run | None:
        rows = await self._transactions.read("select_run", workspace, run_id)
        return self._rows.read_run(rows[0]) if rows else None

    async def statuses(self, ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
        return dict(map(tuple, await self._transactions.read("select_statuses", array(ids))))

    async def holder(self, workspace: str, correlation_key: str) -> RunId | None:
        rows = await self._transactions.read("select_holder", workspace, correlation_key)
        return rows[0][0] if rows else None

    async def name(self, workspace: str, kind: str, name: str) -> Name | None:
        rows = await self._transactions.read("select_names", array([workspace]), array([kind]), array([name]))
        return self._rows.read_name(rows[0]) if rows else None

    async def runs(self, filter: RunFilter, *, after: str | None, limit: int) -> Sequence[Run]:
        statement, parameters = listing.of_runs(filter, after, limit)
        return [self._rows.read_run(row) for row in await self._transactions.read(statement, *parameters)]

    async def count_runs(self, workspace: str | None) -> Mapping[str, int]:
        return dict(map(tuple, await self._transactions.read("count_runs", workspace)))

    async def count_open(self) -> Mapping[str, int]:
        return dict(map(tuple, await self._transactions.read("count_open")))

    async def count_live(self, workspace: str) -> Mapping[str, int]:
        return dict(map(tuple, await self._transactions.read("count_live", workspace)))

    async def waits(self, filter: WaitFilter, *, after: tuple[str, int] | None, limit: int) -> Sequence[Wait]:
        statement, parameters = listing.of_waits(filter, after, limit)
        return [self._rows.read_wait(row) for row in await self._transactions.read(statement, *parameters)]

    async def interactions(
        self, filter: InteractionFilter, *, after: tuple[str, int, int] | None, limit: int
    ) -> Sequence[tuple[Interaction, Wait]]:
        statement, parameters = listing.of_interactions(filter, after, limit)
        return [self._rows.read_pair(row) for row in await self._transactions.read(statement, *parameters)]

    async def dead_letters(
        self, workspace: str, *, after: tuple[datetime, str] | None, limit: int
    ) -> Sequence[DeadLetter]:
        at, id = after or (datetime.min.replace(tzinfo=UTC), "")
        rows = await self._transactions.read("select_dead_letters", workspace, at, id, limit)
        return [self._rows.read_letter(row) for row in rows]

    async def unit(self, run_id: str, no: int) -> Unit | None:
        rows = await self._transactions.read("select_units", array([run_id]), array([no]))
        return read_unit(rows[0]) if rows else None

    async def some_interactions(self, keys: Collection[ItemKey]) -> Sequence[Interaction]:
        columns = [array(list(column)) for column in zip(*keys, strict=True)]
        return [
            self._rows.read_interaction(row) for row in await self._transactions.read("select_interactions", *columns)
        ]

    async def pending(self, run_id: str, no: int, *, limit: int) -> Sequence[Interaction]:
        return [
            self._rows.read_interaction(row)
            for row in await self._transactions.read("select_pending", run_id, no, limit)
        ]

    async def items(self, run_id: str, section: int, *, after: int = -1, limit: int) -> Sequence[Item]:
        found = await self._transactions.read("select_items_page", run_id, section, after, limit)
        return [self._rows.read_item(row) for row in found]

    async def inbox(self, run_id: str) -> Sequence[Signal]:
        return [self._rows.read_signal(row) for row in await self._transactions.read("select_inboxes", array([run_id]))]

    async def steps(self, run_id: str) -> Sequence[StepRow]:
        return [
            self._rows.read_step(row)
            for row in await self._transactions.read("select_steps", array([run_id]), array([]))
        ]

    async def ledger(self, run_id: str, *, as_found: bool = False) -> Sequence[LedgerPage]:
        read = self._rows.page_as_found if as_found else self._rows.read_page
        return [read(row) for row in await self._transactions.read("select_ledger", run_id)]

    async def stream(self, workspace: str, place: str, *, limit: int) -> Sequence[Streamed]:
        rows = await self._transactions.read("select_stream", workspace, *_place(place), limit)
        found = [self._streamed(*row) for row in rows]
        if len(found) < limit and found and found[-1].page is None:
            # Readers are told the last place, and this one names a run that is none of theirs. All that has its number
            # was given: it is settled. So the next number will do.
            found[-1] = Streamed(str(int(rows[-1][0]) + 1), None)
        return found

    def _streamed(self, place: str, run_id: str, seq: int, entries: bytes | None) -> Streamed:
        page = self._rows.read_page((run_id, seq, entries)) if entries is not None else None
        return Streamed(f"{place}.{run_id}.{seq}", page)

    async def stream_end(self) -> str:
        [(last,)] = await self._transactions.read("select_stream_end")
        return str(int(last) + 1) if last is not None else ""

    async def unused(
        self, workspace: str, *, run_id: str | None = None, after: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Unused]:
        page = [workspace, *(after or (datetime.min.replace(tzinfo=UTC), "")), limit]
        if run_id is None:
            rows = await self._transactions.read("select_unused", *page)
        else:
            rows = await self._transactions.read("select_unused_of_run", *page, run_id)
        return [self._rows.read_unused(row) for row in rows]

    async def unused_by_id(self, workspace: str, id: str) -> Unused | None:
        rows = await self._transactions.read("select_unused_by_id", workspace, id)
        return self._rows.read_unused(rows[0]) if rows else None

    async def audit(self) -> Sequence[Violation]:
        queries = [name for name in sorted(self._sql) if name.startswith("audit_")]
        return await audit.violations(self._transactions, queries, self._rows)

    async def unsafe_settings(self) -> Sequence[str]:
        """Settings that are off though without them an answered commit may be gone after a crash of the server."""
        return [name for (name,) in await self._transactions.read("select_unsafe_settings")]

    # -- subscribe

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._hints.subscribe(wake) if self._hints is not None else _nothing


def _unreadable(error: Exception) -> RunId | None:
    """The run that cannot be decrypted; the error itself names it."""
    return RunId(error.run_id) if isinstance(error, PayloadUnreadable) and error.run_id else None


class PassedOver:
    """Runs that broke a batch. Only for a while: whatever is wrong may be put right."""

    def __init__(self) -> None:
        self._until: dict[RunId, float] = {}

    def add(self, run_id: RunId) -> None:
        self._until[run_id] = asyncio.get_running_loop().time() + PASSED_OVER_SECONDS

    def now(self) -> set[RunId]:
        if self._until:
            moment = asyncio.get_running_loop().time()
            self._until = {run_id: until for run_id, until in self._until.items() if until > moment}
        return set(self._until)


def _nothing() -> None:
    return None


def _place(text: str) -> tuple[str, str, int]:
    """The number of a place, and the run and page that have it.

    >>> _place("771.run_7.3"), _place("771"), _place("")
    (('771', 'run_7', 3), ('771', '', 0), ('0', '', 0))
    """
    found = re.fullmatch(r"([0-9]{0,19})(?:\.([!-~]{1,200})\.([0-9]{1,9}))?", text)
    if found is None:
        raise ValueError(f"{text!r} is no place of this store")
    return found[1] or "0", found[2] or "", int(found[3] or 0)
