"""The SQLite store. `lanes` has its threads, `tables` its rows, `connection` its file, `sql/` its statements."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import apsw
import msgspec

from bide.core.commands import (
    AnyCommand,
    Claim,
    Deliver,
    Failed,
    FireTimer,
    Offer,
    Start,
)
from bide.core.intake import admission, decode_intake, encode_intake, refusal
from bide.core.ledger import LedgerKey
from bide.core.outside import ItemKey
from bide.core.records import (
    OPEN_INTERACTION,
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
from bide.errors import BadConfiguration, ForeignConnectionError, PayloadUnreadable, StoreUnavailable
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
from bide.stores.pages import place_number
from bide.stores.sealing import Codec, Sealing
from bide.stores.sqlite import rows
from bide.stores.sqlite.access import SqliteAccess
from bide.stores.sqlite.audit import audit
from bide.stores.sqlite.connection import explain
from bide.stores.sqlite.joining import SqliteConnection, own_transaction
from bide.stores.sqlite.lanes import Call, Hints, Readers, Writer
from bide.stores.sqlite.rows import microseconds, moment
from bide.stores.sqlite.statements import SQL
from bide.stores.sqlite.tables import Tables
from bide.stores.transaction import merge, transact

T = TypeVar("T")
log = logging.getLogger("bide.sqlite")

SYNCHRONOUS = ("FULL", "EXTRA", "NORMAL", "OFF")
LONGEST_RENEWAL = timedelta(seconds=10)


class SqliteStore(SqliteAccess):
    """Everything in one file, which several processes of one machine may share.

    With `synchronous="FULL"` a commit that was acknowledged survives a loss of power; `NORMAL` keeps that promise
    only for a crash of the process. *now* is the clock, the wall clock unless told. *allow_network* opens the file
    even on a network file system, where SQLite cannot keep it safe. *codec* encrypts users' data,
    *ledger_key* signs the ends of ledgers.
    """

    def __init__(
        self,
        path: str,
        *,
        now: Now | None = None,
        synchronous: str = "FULL",
        poll_seconds: float = 0.025,
        allow_network: bool = False,
        codec: Codec | None = None,
        ledger_key: LedgerKey | None = None,
    ) -> None:
        if not path or path == ":memory:" or path.startswith("file:"):
            raise BadConfiguration(f"{path!r} is no path of a file; use the memory store where nothing is to be kept")
        if synchronous.upper() not in SYNCHRONOUS:
            raise BadConfiguration(f"synchronous cannot be {synchronous!r}; use one of {', '.join(SYNCHRONOUS)}")
        if not poll_seconds > 0:
            raise BadConfiguration(f"poll_seconds cannot be {poll_seconds!r}; use a positive number")
        self.path = os.path.abspath(path)
        self._now = now or _wall_clock
        self._synchronous = synchronous.upper()
        self._poll_seconds = poll_seconds
        self._allow_network = allow_network
        self._rows = rows.Rows(Sealing(codec) if codec is not None else None, ledger_key)
        self._lanes: tuple[Writer, Readers, Hints] | None = None
        self._process = os.getpid()
        self.round_trips = 0
        self.batches_at_once = 1

    async def open(self) -> None:
        if self._lanes is not None:
            self._check_process()
            return
        writer = Writer(self.path, self._now, self._rows, self._synchronous, allow_network=self._allow_network)
        try:
            await writer.open()
        except BaseException:
            await writer.close()
            raise
        readers = Readers(self.path)
        readers.start()
        self._process = os.getpid()
        self._lanes = writer, readers, Hints(self.path, self._poll_seconds, writer)

    async def close(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is None or self._process != os.getpid():
            return  # after a fork the threads and the file belong to the process that opened them
        writer, readers, hints = lanes
        await hints.close()
        await readers.close()
        await writer.close()

    # -- execute, claim

    def foresee(self, run_id: RunId) -> bool:
        return False  # the writer would have to be asked twice, and it reads what is in memory anyway

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        return await self._write(lambda tables, now: _batch(tables, commands, now, offer))

    async def claim(self, offer: Offer) -> Executed:
        actor = f"worker:{offer.worker}"
        queues = _json(sorted(offer.queues))
        look = {"queues": queues, "now": microseconds(self._now()), "limit": 1}
        if not await self._read(lambda c: c.execute(SQL["due_runs"], look).get):
            return Executed(replies=[])  # as most looks find: no reason to take the lock

        def work(tables: Tables, now: datetime) -> Executed:
            parameters = {"queues": queues, "now": microseconds(now), "limit": offer.slots}
            due = tables.connection.execute(SQL["due_runs"], parameters).fetchall()
            commands = [Claim(workspace="", run_id=RunId(str(run_id)), actor=actor) for run_id, _ in due]
            expired = {RunId(str(run_id)) for run_id, worker in due if worker is not None}
            return _batch(tables, commands, now, offer, expired)

        return await self._write(work)

    def renew(self, worker: str, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
        """The writer's thread does it: it needs no event loop, and a renewal waits for one transaction at most."""
        if not claims:
            return set()
        text = _json(claims)

        def work(tables: Tables, now: datetime) -> set[RunId]:
            parameters = {"claims": text, "until": microseconds(now + lease)}
            extended = tables.connection.execute(SQL["renew"], parameters).fetchall()
            return set(claims) - {RunId(str(run_id)) for (run_id,) in extended}

        waiter: Future[set[RunId]] = Future()
        self._open_lanes()[0].post(Call(work, waiter))
        try:
            return waiter.result(min(lease, LONGEST_RENEWAL).total_seconds())
        except FutureTimeoutError:
            if waiter.cancel():
                raise StoreUnavailable(f"{self.path} did not answer in time; another process holds its lock") from None
            return waiter.result()  # it is being committed now

    async def end_leases(self, worker: str) -> int:
        def work(tables: Tables, now: datetime) -> int:
            parameters = {"worker": worker, "now": microseconds(now)}
            return len(tables.connection.execute(SQL["end_leases"], parameters).fetchall())

        return await self._write(work)

    # -- join

    async def leave(self, connection: Any, command: Start | Deliver) -> None:
        if not isinstance(connection, SqliteConnection) or connection.path != self.path:
            raise ForeignConnectionError(
                f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection of this store: "
                "another SQLite library on the same file would break its locks; use `async with app.connection()`"
            )
        id = command.run_id if isinstance(command, Start) else command.signal_id
        await connection.execute(SQL["insert_intake"], (id, self._rows.intake_text(id, encode_intake(command))))

    async def left(self, id: str) -> Start | Deliver | None:
        text = await self._read(lambda c: c.execute(SQL["one_intake"], (id,)).get)
        return decode_intake(self._rows.intake_of(id, str(text))) if text is not None else None

    def connection(self) -> AbstractAsyncContextManager[SqliteConnection]:
        writer, _, hints = self._open_lanes()
        return own_transaction(writer, self.path, hints.tell)

    async def admit(self, limit: int, offer: Offer | None = None) -> Executed:
        if not await self._read(lambda c: c.execute(SQL["oldest_intake"], (1,)).get):
            return Executed(replies=[])

        def work(tables: Tables, now: datetime) -> Executed:
            left = tables.connection.execute(SQL["oldest_intake"], (limit,)).fetchall()
            texts = dict(self._readable(left))
            done = _batch(tables, [admission(id, text) for id, text in texts.items()], now, offer)
            for at, (id, text) in enumerate(texts.items()):
                reply = done.replies[at]
                if isinstance(reply, Failed) and not isinstance(reply.error, PayloadUnreadable):
                    log.error("%s, which a transaction left, cannot be admitted and is kept as unused", id)
                    merge(done, [at], _batch(tables, [refusal(id, text, str(reply.error))], now, None))
            return done

        return await self._write(work)

    def _readable(self, left: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str]]:
        """What was left in the intake; what is only encrypted waits there for its key."""
        for id, text in left:
            try:
                yield str(id), self._rows.intake_of(str(id), str(text))
            except PayloadUnreadable as error:
                log.error("%s, which a transaction left, is passed over: %s", id, error)

    # -- due

    async def fire_timers(self, limit: int, offer: Offer | None = None) -> Executed:
        look = {"now": microseconds(self._now()), "limit": 1}
        if not await self._read(lambda c: c.execute(SQL["due_timers"], look).get):
            return Executed(replies=[])

        def work(tables: Tables, now: datetime) -> Executed:
            parameters = {"now": microseconds(now), "limit": limit}
            due: list[Any] = tables.connection.execute(SQL["due_timers"], parameters).fetchall()
            commands = [FireTimer(workspace="", run_id=RunId(id), no=no, actor="timer") for id, no in due]
            return _batch(tables, commands, now, offer)

        return await self._write(work)

    async def due_chores(self, limit: int) -> Sequence[Chore]:
        parameters = {"now": microseconds(self._now()), "limit": limit}
        return await self._read(
            lambda c: [self._rows.chore_of(row) for row in c.execute(SQL["due_chores"], parameters)]
        )

    async def claim_chores(self, limit: int, lease: timedelta) -> Sequence[Chore]:
        def work(tables: Tables, now: datetime) -> list[Chore]:
            parameters = {"now": microseconds(now), "until": microseconds(now + lease), "limit": limit}
            return [self._rows.chore_of(row) for row in tables.connection.execute(SQL["claim_chores"], parameters)]

        return sorted(await self._write(work), key=lambda chore: chore.id)

    async def due_items(self, queues: frozenset[str], definitions: frozenset[str], limit: int) -> Sequence[Item]:
        parameters = {
            "queues": _json(sorted(queues)),
            "definitions": _json(sorted(definitions)),
            "now": microseconds(self._now()),
            "limit": limit,
        }
        return await self._read(lambda c: [self._rows.item_of(row) for row in c.execute(SQL["due_items"], parameters)])

    async def live_children(
        self, run_id: RunId, limit: int, *, wait_no: int | None = None, after: RunId | None = None
    ) -> Sequence[RunId]:
        parameters = {"run_id": run_id, "limit": limit, "wait_no": wait_no, "after": after or ""}
        return await self._read(lambda c: [RunId(str(id)) for (id,) in c.execute(SQL["live_children"], parameters)])

    async def until_due(self, queues: frozenset[str]) -> timedelta | None:
        parameters = {"queues": _json(sorted(queues))}
        earliest = await self._read(lambda c: c.execute(SQL["until_due"], parameters).get)
        return moment(earliest) - self._now() if earliest is not None else None

    async def free_locks(self, longer_than: timedelta) -> int:
        return 0  # locks of files end with their process, and nobody else can free them

    async def delete_ended(self, ended_before: timedelta, limit: int) -> int:
        def work(tables: Tables, now: datetime) -> int:
            parameters = {"before": microseconds(now - ended_before), "limit": limit}
            return len(tables.connection.execute(SQL["delete_ended"], parameters).fetchall())

        return await self._write(work)

    async def trim_unused(self, older_than: timedelta, keep: int, limit: int) -> int:
        def work(tables: Tables, now: datetime) -> int:
            bounds = {"keep": keep, "keep_of_wait": MOST_UNUSED_OF_WAIT, "limit": limit}
            parameters = {"before": microseconds(now - older_than), **bounds}
            return len(tables.connection.execute(SQL["trim_unused"], parameters).fetchall())

        return await self._write(work)

    async def trim_events(self, older_than: timedelta, limit: int) -> int:
        def work(tables: Tables, now: datetime) -> int:
            parameters = {"before": microseconds(now - older_than), "limit": limit}
            return len(tables.connection.execute(SQL["trim_events"], parameters).fetchall())

        return await self._write(work)

    # -- read

    async def now(self) -> datetime:
        return self._now()

    async def run(self, workspace: str, run_id: str) -> Run | None:
        found = await self._read(lambda c: Tables(c, self._rows).load_runs([RunId(run_id)]))
        return next((run for run in found if run.workspace == workspace), None)

    async def statuses(self, ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
        return await self._read(lambda c: dict(c.execute(SQL["statuses"], (apsw.carray(tuple(ids)),))))

    async def holder(self, workspace: str, correlation_key: str) -> RunId | None:
        key = (workspace, correlation_key)
        holders: Mapping[tuple[str, str], RunId] = await self._read(lambda c: Tables(c, self._rows).holders([key]))
        return holders.get(key)

    async def name(self, workspace: str, kind: str, name: str) -> Name | None:
        return next(iter(await self._read(lambda c: Tables(c, self._rows).load_names([(workspace, kind, name)]))), None)

    async def runs(self, filter: RunFilter, *, after: str | None, limit: int) -> Sequence[Run]:
        parameters = {
            "workspace": filter.workspace,
            "status": filter.status,
            "definition": filter.definition,
            "held": filter.held,
            "correlation_key": filter.correlation_key,
            "parent_id": filter.parent_id,
            "tags": _json(filter.tags),
            "after": after or "",
            "limit": limit,
        }
        statement = "find_runs"
        if filter.correlation_key is not None:
            statement = "find_runs_by_correlation_key"
        elif filter.parent_id is not None:
            statement = "find_children"

        def work(connection: apsw.Connection) -> list[Run]:
            ids = [RunId(str(id)) for (id,) in connection.execute(SQL[statement], parameters)]
            return sorted(Tables(connection, self._rows).load_runs(ids), key=lambda run: run.id)

        return await self._read(work)

    async def count_runs(self, workspace: str | None) -> Mapping[str, int]:
        parameters = {"workspace": workspace}
        return await self._read(lambda c: {str(key): n for key, n in c.execute(SQL["count_runs"], parameters)})

    async def count_open(self) -> Mapping[str, int]:
        return await self._read(lambda c: {str(key): int(n) for key, n in c.execute(SQL["count_open"])})

    async def count_live(self, workspace: str) -> Mapping[str, int]:
        parameters = {"workspace": workspace}
        return await self._read(lambda c: {str(key): int(n) for key, n in c.execute(SQL["count_live"], parameters)})

    async def waits(self, filter: WaitFilter, *, after: tuple[str, int] | None, limit: int) -> Sequence[Wait]:
        after_run, after_no = after or ("", 0)
        parameters = {
            "workspace": filter.workspace,
            "run_id": filter.run_id,
            "status": filter.status,
            "opened_before": microseconds(filter.opened_before) if filter.opened_before is not None else None,
            **{name: getattr(filter, name) for name in ("no", "kind", "definition", "channel", "assignee", "group")},
            "after_run": after_run,
            "after_no": after_no,
            "limit": limit,
        }
        return await self._read(lambda c: [self._rows.wait_of(row) for row in c.execute(SQL["find_waits"], parameters)])

    async def interactions(
        self, filter: InteractionFilter, *, after: tuple[str, int, int] | None, limit: int
    ) -> Sequence[tuple[Interaction, Wait]]:
        after_run, after_no, after_item = after or ("", 0, 0)
        names = ("workspace", "run_id", "no", "item", "definition", "channel", "assignee", "group")
        parameters = {
            **{name: getattr(filter, name) for name in names},
            "statuses": _json(filter.statuses),
            "after_run": after_run,
            "after_no": after_no,
            "after_item": after_item,
            "limit": limit,
        }
        is_open = filter.workspace is not None and filter.statuses and OPEN_INTERACTION.issuperset(filter.statuses)
        statement = "find_open_interactions" if is_open else "find_interactions"
        width = rows.INTERACTION_WIDTH
        found = await self._read(lambda c: c.execute(SQL[statement], parameters).fetchall())
        return [(self._rows.interaction_of(row[:width]), self._rows.wait_of(row[width:])) for row in found]

    async def dead_letters(
        self, workspace: str, *, after: tuple[datetime, str] | None, limit: int
    ) -> Sequence[DeadLetter]:
        at, id = (microseconds(after[0]), after[1]) if after is not None else (-(2**63), "")
        parameters = {"workspace": workspace, "after_at": at, "after_id": id, "limit": limit}
        return await self._read(
            lambda c: [self._rows.letter_of(row) for row in c.execute(SQL["find_dead_letters"], parameters)]
        )

    async def unit(self, run_id: str, no: int) -> Unit | None:
        found = await self._read(lambda c: Tables(c, self._rows).load_units([(RunId(run_id), no)]))
        return next(iter(found), None)

    async def some_interactions(self, keys: Collection[ItemKey]) -> Sequence[Interaction]:
        return await self._read(lambda c: list(Tables(c, self._rows).load_interactions(keys)))

    async def pending(self, run_id: str, no: int, *, limit: int) -> Sequence[Interaction]:
        parameters = {"run_id": run_id, "no": no, "limit": limit}
        return await self._read(
            lambda c: [self._rows.interaction_of(row) for row in c.execute(SQL["find_pending"], parameters)]
        )

    async def items(self, run_id: str, section: int, *, after: int = -1, limit: int) -> Sequence[Item]:
        parameters = {"run_id": run_id, "section": section, "after": after, "limit": limit}
        return await self._read(lambda c: [self._rows.item_of(row) for row in c.execute(SQL["find_items"], parameters)])

    async def inbox(self, run_id: str) -> Sequence[Signal]:
        return await self._read(lambda c: Tables(c, self._rows).load_inboxes([RunId(run_id)]))

    async def steps(self, run_id: str) -> Sequence[StepRow]:
        return await self._read(lambda c: list(Tables(c, self._rows).load_steps([RunId(run_id)])))

    async def ledger(self, run_id: str, *, as_found: bool = False) -> Sequence[LedgerPage]:
        read = self._rows.page_as_found if as_found else self._rows.page_of
        return await self._read(lambda c: [read(row) for row in c.execute(SQL["load_ledger"], (run_id,))])

    async def stream(self, workspace: str, place: str, *, limit: int) -> Sequence[Streamed]:
        parameters = {"workspace": workspace, "place": place_number(place), "limit": limit}
        return await self._read(lambda c: [self._streamed(row) for row in c.execute(SQL["stream"], parameters)])

    def _streamed(self, row: rows.Row) -> Streamed:
        place, *page = row
        return Streamed(str(place), self._rows.page_of(tuple(page)) if page[-1] is not None else None)

    async def stream_end(self) -> str:
        last = await self._read(lambda c: c.execute(SQL["stream_end"]).get)
        return str(last + 1) if last is not None else ""

    async def unused(
        self, workspace: str, *, run_id: str | None = None, after: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Unused]:
        at, id = (microseconds(after[0]), after[1]) if after is not None else (-(2**63), "")
        parameters: dict[str, Any] = {"workspace": workspace, "after_at": at, "after_id": id, "limit": limit}
        statement = "find_unused"
        if run_id is not None:
            statement, parameters["run_id"] = "find_unused_of_run", run_id
        return await self._read(lambda c: [self._rows.unused_of(row) for row in c.execute(SQL[statement], parameters)])

    async def unused_by_id(self, workspace: str, id: str) -> Unused | None:
        row = await self._read(lambda c: c.execute(SQL["load_unused"], (workspace, id)).fetchone())
        return self._rows.unused_of(row) if row is not None else None

    async def audit(self) -> Sequence[Violation]:
        return await self._read(lambda c: audit(c, self._rows))

    # -- subscribe

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """A transaction of `connection` wakes too. *wake* runs on the event loop that subscribed, if one did."""
        return self._open_lanes()[2].add(wake)

    # -- lanes

    async def _write(self, work: Callable[[Tables, datetime], T]) -> T:
        self.round_trips += 1
        result: T = await self._open_lanes()[0].call(work)
        return result

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        self.round_trips += 1
        result: T = await self._open_lanes()[1].call(work)
        return result

    def _open_lanes(self) -> tuple[Writer, Readers, Hints]:
        if self._lanes is None:
            raise StoreUnavailable(f"{self.path} is not open; call `open` first")
        self._check_process()
        return self._lanes

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise StoreUnavailable(
                f"{self.path} was opened by process {self._process} before it forked; make a new store in this process"
            )


def _batch(
    tables: Tables,
    commands: Sequence[AnyCommand],
    now: datetime,
    offer: Offer | None,
    expired: Collection[RunId] = (),
) -> Executed:
    """Execute a batch; a command that the tables refuse fails alone."""
    if not commands:
        return Executed(replies=[])
    try:
        with tables.savepoint():
            return transact(tables, commands, now, offer, expired, tables.rows.ledger_key)
    except Exception as error:
        if explain("", error) is not None and not isinstance(error, PayloadUnreadable):
            raise  # the file is at fault, not a command
        if len(commands) == 1:
            return Executed(replies=[Failed(error)])
    result = Executed(replies=[])
    if offer is not None:
        offer = msgspec.structs.replace(offer, slots=0)  # claims go on; new ones wait for the next batch
    for at, command in enumerate(commands):
        alone = _batch(tables, [command], now, offer, expired)
        result.replies.extend(alone.replies)
        merge(result, [at], alone)
    return result


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
