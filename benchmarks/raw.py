"""The raw limit: the least row work a durable wait needs, straight on the database, with no engine above it.

One cycle is four transitions, each a transaction of its own when run alone:

    start    insert the run
    park     the run waits · insert its wait and a ledger row
    signal   insert the signal · the run is ready
    finish   the run is completed · delete wait and signal · insert two ledger rows

Measured in two ways. *Grouped*: the same transition of many cycles in one transaction, four transactions a batch.
*Single*: each transition of each cycle in its own transaction, one cycle at a time and sixteen at a time.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import apsw
import asyncpg

BATCH_SIZES = (300, 1000, 2000)
POSTGRES_WRITERS = (1, 2, 4)
CONCURRENT_CYCLES = 16
PAYLOAD = b'{"order": 4711, "amount": "119.00", "currency": "EUR", "lines": [1, 2, 3]}'


@dataclass(frozen=True)
class RawResult:
    """Cycles per second of each way, and the commits per second of one connection that inserts one small row each."""

    per_s_grouped: float
    per_s_single: float
    per_s_single_16: float
    commits_per_s: float
    batch_size: int
    """The batch size with which `per_s_grouped` was reached."""


class RunIds:
    """New run ids, rising with time as a real engine's would. Safe to share between threads."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lock = threading.Lock()

    def take(self, number: int) -> list[str]:
        with self._lock:
            return [f"run_{next(self._numbers):028d}" for _ in range(number)]


POSTGRES_TABLES = """
    DROP SCHEMA IF EXISTS bide_raw CASCADE;
    CREATE SCHEMA bide_raw;
    CREATE TABLE bide_raw.runs (id text PRIMARY KEY, status text NOT NULL, state bytea NOT NULL);
    CREATE TABLE bide_raw.waits (run_id text PRIMARY KEY, deadline_at timestamptz NOT NULL);
    CREATE TABLE bide_raw.signals (run_id text PRIMARY KEY, payload bytea NOT NULL);
    CREATE TABLE bide_raw.ledger (run_id text, seq int, name text NOT NULL, data bytea NOT NULL,
                                  PRIMARY KEY (run_id, seq));
    CREATE TABLE bide_raw.commits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL);
"""

# One statement, thus one round trip and one transaction, per transition of any number of runs.
# `= ANY` and not a join with unnest: it stays an index scan when the statistics are stale.
POSTGRES_TRANSITIONS = (
    """
    INSERT INTO bide_raw.runs (id, status, state)
    SELECT id, 'ready', $2 FROM unnest($1::text[]) AS new (id)
    """,
    """
    WITH parked AS (
        UPDATE bide_raw.runs SET status = 'waiting', state = $2 WHERE id = ANY ($1::text[])
    ), opened AS (
        INSERT INTO bide_raw.waits (run_id, deadline_at)
        SELECT id, now() + interval '1 day' FROM unnest($1::text[]) AS new (id)
    )
    INSERT INTO bide_raw.ledger (run_id, seq, name, data)
    SELECT id, 1, 'await_execution_waiting', $2 FROM unnest($1::text[]) AS new (id)
    """,
    """
    WITH woken AS (
        UPDATE bide_raw.runs SET status = 'ready' WHERE id = ANY ($1::text[])
    )
    INSERT INTO bide_raw.signals (run_id, payload)
    SELECT id, $2 FROM unnest($1::text[]) AS new (id)
    """,
    """
    WITH completed AS (
        UPDATE bide_raw.runs SET status = 'completed', state = $2 WHERE id = ANY ($1::text[])
    ), closed AS (
        DELETE FROM bide_raw.waits WHERE run_id = ANY ($1::text[])
    ), taken AS (
        DELETE FROM bide_raw.signals WHERE run_id = ANY ($1::text[])
    )
    INSERT INTO bide_raw.ledger (run_id, seq, name, data)
    SELECT id, seq, name, $2
      FROM unnest($1::text[]) AS new (id),
           (VALUES (2, 'await_unit_completed'), (3, 'run_completed')) AS entry (seq, name)
    """,
)
POSTGRES_ONE_COMMIT = "INSERT INTO bide_raw.commits (payload) VALUES ($1)"
POSTGRES_DROP = "DROP SCHEMA IF EXISTS bide_raw CASCADE"


async def raw_postgres(url: str, seconds: float) -> RawResult:
    """The limit of the server at *url*; each of the four figures takes about *seconds*.

    Works in a schema of its own, `bide_raw`, and drops it. The server's durability settings are left as they are.
    """
    connections = [await asyncpg.connect(url) for _ in range(CONCURRENT_CYCLES)]
    try:
        await connections[0].execute(POSTGRES_TABLES)
        return await _measure_postgres(connections, seconds)
    finally:
        await connections[0].execute(POSTGRES_DROP)
        for connection in connections:
            await connection.close()


async def _measure_postgres(connections: Sequence[asyncpg.Connection], seconds: float) -> RawResult:
    ids = RunIds()

    async def rate(writers: int, batch: int, seconds: float) -> float:
        async def cycles(connection: asyncpg.Connection) -> int:
            runs = ids.take(batch)
            for transition in POSTGRES_TRANSITIONS:
                await connection.execute(transition, runs, PAYLOAD)
            return batch

        await asyncio.gather(*(cycles(each) for each in connections[:writers]))  # statements are prepared once
        return await _rate_of_tasks(cycles, connections[:writers], seconds)

    async def one_commit(connection: asyncpg.Connection) -> int:
        await connection.execute(POSTGRES_ONE_COMMIT, PAYLOAD)
        return 1

    trials = [(writers, batch) for writers in POSTGRES_WRITERS for batch in BATCH_SIZES]
    grouped = {trial: await rate(*trial, seconds / len(trials)) for trial in trials}
    best = max(grouped, key=lambda trial: grouped[trial])
    return RawResult(
        per_s_grouped=grouped[best],
        per_s_single=await rate(1, 1, seconds),
        per_s_single_16=await rate(CONCURRENT_CYCLES, 1, seconds),
        commits_per_s=await _rate_of_tasks(one_commit, connections[:1], seconds),
        batch_size=best[1],
    )


async def _rate_of_tasks(
    work: Callable[[asyncpg.Connection], Awaitable[int]],
    connections: Sequence[asyncpg.Connection],
    seconds: float,
) -> float:
    """What *work* gets done per second, repeated side by side on each connection for *seconds*."""
    began = time.perf_counter()

    async def repeat(connection: asyncpg.Connection) -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            done += await work(connection)
        return done

    total = sum(await asyncio.gather(*(repeat(each) for each in connections)))
    return total / (time.perf_counter() - began)


SQLITE_TABLES = """
    CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE waits (run_id TEXT PRIMARY KEY, deadline_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE signals (run_id TEXT PRIMARY KEY, payload BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE ledger (run_id TEXT, seq INTEGER, name TEXT NOT NULL, data BLOB NOT NULL,
                         PRIMARY KEY (run_id, seq)) WITHOUT ROWID;
    CREATE TABLE commits (id INTEGER PRIMARY KEY, payload BLOB NOT NULL);
"""

# The statements of each transition, run for every run of the batch inside one transaction.
SQLITE_TRANSITIONS = (
    ("INSERT INTO runs (id, status, state) VALUES (:id, 'ready', :payload)",),
    (
        "UPDATE runs SET status = 'waiting', state = :payload WHERE id = :id",
        "INSERT INTO waits (run_id, deadline_at) VALUES (:id, unixepoch() + 86400)",
        "INSERT INTO ledger (run_id, seq, name, data) VALUES (:id, 1, 'await_execution_waiting', :payload)",
    ),
    (
        "INSERT INTO signals (run_id, payload) VALUES (:id, :payload)",
        "UPDATE runs SET status = 'ready' WHERE id = :id",
    ),
    (
        "UPDATE runs SET status = 'completed', state = :payload WHERE id = :id",
        "DELETE FROM waits WHERE run_id = :id",
        "DELETE FROM signals WHERE run_id = :id",
        "INSERT INTO ledger (run_id, seq, name, data) VALUES (:id, 2, 'await_unit_completed', :payload),"
        " (:id, 3, 'run_completed', :payload)",
    ),
)
SQLITE_ONE_COMMIT = "INSERT INTO commits (payload) VALUES (?)"
SQLITE_BUSY_TIMEOUT_MS = 30_000


def raw_sqlite(path: str | Path, seconds: float) -> RawResult:
    """The limit of a new SQLite file at *path* (WAL, `synchronous=FULL`); each of the four figures takes about
    *seconds*. The file is left behind."""
    connections = [_open_sqlite(path) for _ in range(CONCURRENT_CYCLES)]
    try:
        connections[0].execute(SQLITE_TABLES)
        return _measure_sqlite(connections, seconds)
    finally:
        for connection in connections:
            connection.close()


def _open_sqlite(path: str | Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(SQLITE_BUSY_TIMEOUT_MS)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _measure_sqlite(connections: Sequence[apsw.Connection], seconds: float) -> RawResult:
    ids = RunIds()

    def rate(writers: int, batch: int, seconds: float) -> float:
        def cycles(connection: apsw.Connection) -> int:
            runs = [{"id": run_id, "payload": PAYLOAD} for run_id in ids.take(batch)]
            for statements in SQLITE_TRANSITIONS:
                with _transaction(connection):
                    for statement in statements:
                        connection.executemany(statement, runs)
            return batch

        return _rate_of_threads(cycles, connections[:writers], seconds)

    def one_commit(connection: apsw.Connection) -> int:
        connection.execute(SQLITE_ONE_COMMIT, (PAYLOAD,))
        return 1

    # One writer: SQLite has a single write lock, and a second batch would only wait for it.
    grouped = {batch: rate(1, batch, seconds / len(BATCH_SIZES)) for batch in BATCH_SIZES}
    best = max(grouped, key=lambda batch: grouped[batch])
    return RawResult(
        per_s_grouped=grouped[best],
        per_s_single=rate(1, 1, seconds),
        per_s_single_16=rate(CONCURRENT_CYCLES, 1, seconds),
        commits_per_s=_rate_of_threads(one_commit, connections[:1], seconds),
        batch_size=best,
    )


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _rate_of_threads(
    work: Callable[[apsw.Connection], int], connections: Sequence[apsw.Connection], seconds: float
) -> float:
    """What *work* gets done per second, repeated side by side on each connection for *seconds*."""
    began = time.perf_counter()

    def repeat(connection: apsw.Connection) -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            done += work(connection)
        return done

    with ThreadPoolExecutor(len(connections)) as threads:
        total = sum(threads.map(repeat, connections))
    return total / (time.perf_counter() - began)
