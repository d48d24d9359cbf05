"""What is particular to the SQLite store: its file, its lock, its threads, its schema and its audit."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import re
import resource
import shutil
import stat
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bide.core import ledger
from bide.core.batch import Changes
from bide.core.commands import (
    Failed,
    Offer,
    Park,
    Started,
)
from bide.core.records import Record, Run, RunId, Wait
from bide.errors import BadConfiguration, BideError, SchemaTooNew, StoreCorrupt, StoreUnavailable
from bide.stores.interface import RunFilter, WaitFilter
from bide.stores.pages import DamagedPage, pack, pack_entries, unpack
from bide.stores.postgres.rows import CHANGING_RUN, CHANGING_WAIT
from bide.stores.sqlite import SqliteStore, lanes, rows
from bide.stores.sqlite import connection as sqlite_connection
from bide.stores.sqlite.audit import read_ledgers
from bide.stores.sqlite.connection import file_system_in
from bide.stores.sqlite.schema import NEWEST, migrate
from bide.stores.sqlite.statements import AUDITS, MIGRATIONS, SQL
from bide.stores.sqlite.tables import Tables
from tests.support.populated import HOUR, WORKSPACE, Clock, commit, deliver, offer, populate, start, turns_of

NOBODY = 65534
FIRST_PAGE = bytes.fromhex("012333da6a6301")  # never changes: files that are out there hold such pages
PATIENCE = 120  # seconds until a test that waits for an event gives up


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "bide.db")


@pytest.fixture
async def store(path: str, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, now=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user without privileges, as whom the test runs: root may write anything."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


# ---------------------------------------------------------------- files that cannot be a store


def overwrite(path: str, at: int, content: bytes) -> None:
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        file.seek(at)
        file.write(content)


def size_of(path: str) -> int:
    return os.path.getsize(path)


async def refused(path: str, **options: Any) -> BideError:
    store = SqliteStore(path, **options)
    with pytest.raises(BideError) as caught:
        await store.open()
    await store.close()
    assert path in str(caught.value)
    return caught.value


async def test_a_file_that_is_no_database_is_refused(path: str) -> None:
    notes = b"these are my notes, not a database. " * 200
    overwrite(path, 0, notes)

    error = await refused(path)

    assert isinstance(error, StoreCorrupt)
    assert "not a SQLite database" in str(error)
    assert size_of(path) == len(notes)


async def test_a_damaged_file_is_named_as_damaged(path: str, store: SqliteStore) -> None:
    await store.execute([start(f"run_{n}", input=f'"{"x" * 3000}"') for n in range(50)])
    await store.close()
    overwrite(path, 4096, b"\xff" * (size_of(path) - 4096))

    reopened = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        await open_and_list(reopened)
    await reopened.close()


async def open_and_list(store: SqliteStore) -> None:
    await store.open()
    await store.runs(RunFilter(), after=None, limit=100)


async def test_a_file_of_a_newer_bide_is_refused(path: str) -> None:
    with apsw.Connection(path) as connection:
        connection.pragma("user_version", NEWEST + 1)
    connection.close()

    error = await refused(path)

    assert isinstance(error, SchemaTooNew)
    assert (error.found, error.known) == (NEWEST + 1, NEWEST)


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    error = await refused(str(tmp_path))

    assert isinstance(error, StoreUnavailable)
    assert "is a folder" in str(error)


async def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    error = await refused(str(tmp_path / "missing" / "bide.db"))

    assert isinstance(error, StoreUnavailable)
    assert "does not exist" in str(error)
    assert not (tmp_path / "missing").exists()


async def test_a_file_that_cannot_be_written_is_refused(unprivileged: Path) -> None:
    path = unprivileged / "bide.db"
    store = SqliteStore(str(path))
    await store.open()
    await store.close()
    os.chmod(path, stat.S_IRUSR)

    error = await refused(str(path))

    assert isinstance(error, StoreUnavailable)
    assert "cannot be written" in str(error)


async def test_a_folder_that_cannot_be_written_is_refused(unprivileged: Path) -> None:
    os.chmod(unprivileged, stat.S_IRUSR | stat.S_IXUSR)
    try:
        error = await refused(str(unprivileged / "bide.db"))
    finally:
        os.chmod(unprivileged, stat.S_IRWXU)

    assert isinstance(error, StoreUnavailable)
    assert "cannot be written" in str(error)


@pytest.mark.parametrize("path", ["", ":memory:", "file:bide.db?mode=memory"])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(BadConfiguration, match="memory store"):
        SqliteStore(path)


def test_an_unknown_synchronous_setting_is_refused(path: str) -> None:
    with pytest.raises(BadConfiguration, match="FULL"):
        SqliteStore(path, synchronous="perhaps")


async def test_a_network_file_system_is_refused_unless_forced(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 1 0:30 / / rw - ext4 /dev/sda rw\n31 30 0:31 / {tmp_path} rw - nfs4 server:/data rw\n")
    monkeypatch.setattr(sqlite_connection, "_MOUNTS", mounts)

    error = await refused(path)
    assert isinstance(error, StoreUnavailable)
    assert "nfs4" in str(error)

    forced = SqliteStore(path, allow_network=True)
    await forced.open()
    await forced.close()


def test_the_longest_mount_point_tells_the_file_system() -> None:
    mounts = (
        "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "2 1 0:40 / /data rw shared:2 master:3 - cifs //server/data rw\n"
        "3 2 8:2 / /data/local\\040disk rw - xfs /dev/sdb rw\n"
    )
    folders = ["/home", "/data", "/data/x", "/database", "/data/local disk/x"]

    assert [file_system_in(mounts, folder) for folder in folders] == ["ext4", "cifs", "cifs", "ext4", "xfs"]


# ---------------------------------------------------------------- the life of the file


async def test_what_was_committed_is_there_after_opening_again(path: str, store: SqliteStore, clock: Clock) -> None:
    await populate(store)
    before = await store.runs(RunFilter(), after=None, limit=100)
    await store.close()

    reopened = SqliteStore(path, now=clock)
    await reopened.open()
    assert await reopened.runs(RunFilter(), after=None, limit=100) == before
    assert await reopened.audit() == []
    await reopened.close()


async def test_opening_again_leaves_the_schema_as_a_new_file_has_it(path: str, tmp_path: Path) -> None:
    for _ in range(2):
        store = SqliteStore(path)
        await store.open()
        await store.close()
    fresh = SqliteStore(str(tmp_path / "fresh.db"))
    await fresh.open()
    await fresh.close()

    assert _schema(path) == _schema(fresh.path)


async def test_a_file_from_before_the_quicker_checks_keeps_its_rows_and_its_checks(path: str, tmp_path: Path) -> None:
    old = apsw.Connection(path)
    for number in range(1, 14):
        old.execute(MIGRATIONS[number])
    old.pragma("user_version", 13)
    columns = rows.encoder(Run)(
        replace(_full(Run), status="waiting", held=None, ended_at=None, correlation_scope="live", inbox_count=0)
    )
    old.execute(SQL["insert_run"], columns)
    old.close()
    for upgraded in (SqliteStore(path), SqliteStore(str(tmp_path / "fresh.db"))):
        await upgraded.open()
        await upgraded.close()

    assert _schema(path) == _schema(str(tmp_path / "fresh.db"))
    connection = apsw.Connection(path)
    assert connection.pragma("integrity_check") == "ok"
    assert connection.execute("SELECT status FROM runs").get == "waiting"
    for wrong in ("status = 'asleep'", "ended_at = 1", "status = 'completed'"):
        with pytest.raises(apsw.ConstraintError, match="CHECK"):
            connection.execute(f"UPDATE runs SET {wrong}")
    connection.close()


def test_both_sql_stores_write_the_same_changes_of_runs_and_waits() -> None:
    apart = {"deadline", "details"}  # PostgreSQL writes these by a statement of their own
    assert {*rows.CHANGING_OF_RUN, "id"} == set(CHANGING_RUN.names)
    assert {*rows.CHANGING_OF_WAIT, "run_id", "no"} == {*CHANGING_WAIT.names, *apart}


def _schema(path: str) -> list[Any]:
    connection = apsw.Connection(path)
    try:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
        return [connection.pragma("user_version"), *rows]
    finally:
        connection.close()


async def test_two_stores_that_open_a_new_file_at_once_make_one_schema(path: str) -> None:
    stores = [SqliteStore(path) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert await store.count_runs(None) == {}
        await store.close()


async def test_a_closed_store_says_so_and_closes_twice(path: str) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.count_runs(None)
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.execute([start("run_1")])


async def test_closing_finishes_what_was_asked_before(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    asked = [asyncio.ensure_future(store.execute([start(f"run_{n}")])) for n in range(20)]
    await asyncio.sleep(0)  # let each post its batch
    await store.close()

    replies = [(await batch).replies for batch in asked]
    assert all(isinstance(reply, Started) for [reply] in replies)


async def test_a_file_that_is_moved_away_takes_no_commits(path: str, store: SqliteStore) -> None:
    os.rename(path, f"{path}.moved")
    with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
        await store.execute([start("run_1")])

    os.rename(f"{path}.moved", path)
    assert (await store.execute([start("run_1")])).replies


def renewed_in_a_fork(store: SqliteStore) -> str:
    """What `renew` says in a child process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forking beside threads
        child_process = os.fork()
    if child_process == 0:
        try:
            store.renew("w1", {RunId("run_1"): 1}, HOUR)
        except StoreUnavailable as error:
            os._exit(0 if "forked" in str(error) else 2)
        finally:
            os._exit(1)
    _, status = os.waitpid(child_process, 0)
    return {0: "forked", 2: "another error"}.get(os.waitstatus_to_exitcode(status), "no error")


async def test_a_forked_process_cannot_use_the_store(store: SqliteStore) -> None:
    assert renewed_in_a_fork(store) == "forked"
    assert (await store.execute([start("run_1")])).replies


# ---------------------------------------------------------------- a full disk


async def test_a_full_disk_refuses_the_batch_and_leaves_nothing_of_it(path: str, store: SqliteStore) -> None:
    await store.execute([start("run_before")])
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_of(f"{path}-wal") + 65_536, hard))
    try:
        with pytest.raises(StoreUnavailable, match="free space") as caught:
            await store.execute([start("run_small"), start("run_big", input=f'"{"x" * 1_000_000}"')])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    assert isinstance(caught.value.__cause__, apsw.Error)
    assert await store.count_runs(WORKSPACE) == {"ready": 1}
    assert await store.audit() == []
    await store.execute([start("run_small"), start("run_big", input=f'"{"x" * 1_000_000}"')])
    assert await store.count_runs(WORKSPACE) == {"ready": 3}


# ---------------------------------------------------------------- batches


async def test_a_command_that_the_tables_refuse_fails_alone(store: SqliteStore) -> None:
    executed = await store.execute([start("run_1"), start("run_2", input='"\ud800"'), start("run_3")])

    assert [type(reply) for reply in executed.replies] == [Started, Failed, Started]
    assert await store.count_runs(WORKSPACE) == {"ready": 2}
    assert await store.audit() == []


async def test_calls_of_one_moment_are_answered_each_with_its_own(store: SqliteStore) -> None:
    batches = [[start(f"run_{n}", input='"\ud800"' if n == 5 else "{}")] for n in range(40)]
    executed = await asyncio.gather(*(store.execute(batch) for batch in batches))

    assert [type(batch.replies[0]) for batch in executed] == [Failed if n == 5 else Started for n in range(40)]
    assert await store.count_runs(WORKSPACE) == {"ready": 39}


@contextmanager
def locked_by_a_rival(path: str) -> Iterator[None]:
    """Another process is writing."""
    rival = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(rival, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(rival)


async def test_a_call_that_nobody_waits_for_any_more_is_not_made(store: SqliteStore, path: str) -> None:
    with locked_by_a_rival(path):
        waiting = asyncio.ensure_future(store.execute([start("run_waiting")]))
        given_up = asyncio.ensure_future(store.execute([start("run_given_up")]))
        await asyncio.sleep(0)  # let both post their batch
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    await waiting

    assert [run.id for run in await store.runs(RunFilter(), after=None, limit=9)] == ["run_waiting"]


async def test_a_renewal_that_gets_no_answer_is_withdrawn(store: SqliteStore, path: str, clock: Clock) -> None:
    [turn] = (await turns_of(store, start("run_1"))).values()
    moment = timedelta(milliseconds=1)
    with locked_by_a_rival(path), pytest.raises(StoreUnavailable, match="did not answer"):
        store.renew("w1", {turn.run.id: turn.run.epoch}, moment)

    assert await store.until_due(frozenset({"default"})) == HOUR


async def test_a_claim_goes_by_priority_then_due_time_then_id(store: SqliteStore, clock: Clock) -> None:
    await store.execute([start("run_z"), start("run_b", priority=5, queue="other"), start("run_c", queue="third")])
    clock.advance(HOUR)
    await store.execute([start("run_a"), start("run_d", priority=5), start("run_late", priority=9, delay=HOUR)])
    wide = Offer(worker="w1", lease=HOUR, slots=3, queues=frozenset({"default", "other"}))

    first = await store.claim(wide)
    second = await store.claim(wide)

    assert list(first.turns) == ["run_b", "run_d", "run_z"]
    assert list(second.turns) == ["run_a"]
    assert await store.until_due(frozenset({"default"})) == HOUR
    assert await store.until_due(frozenset({"third"})) == -HOUR
    assert await store.until_due(frozenset({"none"})) is None


async def test_a_lease_is_renewed_while_its_epoch_holds(store: SqliteStore, clock: Clock) -> None:
    turns = await turns_of(store, start("run_1"), start("run_2"))
    claims = {turn.run.id: turn.run.epoch for turn in turns.values()}
    clock.advance(HOUR)
    taken = await store.claim(offer(slots=1))

    lost = await asyncio.to_thread(store.renew, "w1", claims, HOUR)

    assert lost == set(taken.turns)
    assert (await store.claim(offer(slots=1))).turns == {}
    assert await store.end_leases("w1") == 2
    assert len((await store.claim(offer(slots=9))).turns) == 2


async def test_what_could_not_be_used_goes_when_it_is_delivered_after_all(store: SqliteStore, clock: Clock) -> None:
    await populate(store)
    await store.execute([deliver("run_done", "go", "sig_1")])
    clock.advance(HOUR)
    await store.execute([deliver("run_done", "go", "sig_0"), deliver("run_done", "go", "sig_1")])
    assert [unused.id for unused in await store.unused(WORKSPACE, limit=10)] == ["sig_1", "sig_0"]
    assert [unused.id for unused in await store.unused(WORKSPACE, limit=1)] == ["sig_1"]

    await store.execute([msgspec.structs.replace(deliver("run_ready", "go", "sig_2"), unused_id="sig_1")])

    assert [unused.id for unused in await store.unused(WORKSPACE, limit=10)] == ["sig_0"]


async def test_retention_takes_everything_of_a_run_but_not_the_child_of_a_live_parent(
    store: SqliteStore, clock: Clock, path: str
) -> None:
    await populate(store)
    clock.advance(HOUR)

    assert await store.delete_ended(2 * HOUR, 10) == 0
    assert await store.delete_ended(timedelta(minutes=1), 10) == 1
    assert await store.run(WORKSPACE, "run_done") is None
    assert await store.run(WORKSPACE, "run_child_1") is not None
    assert await store.ledger("run_done") == []
    assert await store.waits(WaitFilter(run_id="run_done", status=None), after=None, limit=10) == []
    assert await store.audit() == []


async def test_a_parked_run_takes_well_under_a_kibibyte_and_a_half(path: str) -> None:
    store = SqliteStore(path, synchronous="OFF")
    await store.open()
    count = 2000
    ids = [f"run_01jbcdefghjkmnpqrstvwx{n:04d}" for n in range(count)]
    begun = await turns_of(store, *(start(id, step="check", input='{"order": 1234, "amount": 99}') for id in ids))
    park = Park(step="paid", state='{"order": 1234, "amount": 99}', names=("payment",), timeout=HOUR)
    await store.execute([commit(turn, park) for turn in begun.values()], offer(slots=0))
    assert await store.count_runs(None) == {"waiting": count}
    await store.close()

    assert size_of(path) / count < 1200


async def test_the_log_is_copied_into_the_file_before_it_grows_long(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LOG_PAGES", 50)
    store = SqliteStore(path)
    await store.open()
    for n in range(40):
        await store.execute([start(f"run_{n}", input=f'"{"x" * 40_000}"')])

    assert size_of(f"{path}-wal") < 20 * 40_000
    assert size_of(path) > 20 * 40_000
    await store.close()


async def test_a_log_that_a_reader_kept_is_cut_when_the_reader_leaves(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LOG_PAGES", 20)
    monkeypatch.setattr(lanes, "LONG_LOG_PAGES", 100)
    monkeypatch.setattr(lanes, "CUT_MILLISECONDS", 1)
    store = SqliteStore(path)
    await store.open()
    reader = apsw.Connection(path)
    reader.execute("BEGIN; SELECT count(*) FROM runs").fetchall()
    batches = [[start(f"run_{n}", input=f'"{"x" * 40_000}"')] for n in range(40)]
    for batch in batches[:20]:
        await store.execute(batch)
    assert size_of(f"{path}-wal") > 20 * 40_000

    reader.close()
    for batch in batches[20:]:
        await store.execute(batch)

    assert size_of(f"{path}-wal") < 20 * 40_000
    assert await store.count_runs(None) == {"ready": 40}
    await store.close()


# ---------------------------------------------------------------- several processes


async def test_two_stores_on_one_file_see_each_others_commits(path: str, store: SqliteStore, clock: Clock) -> None:
    other = SqliteStore(path, now=clock)
    await other.open()
    await asyncio.gather(
        *(each.execute([start(f"run_{n}_{who}")]) for n in range(30) for who, each in enumerate((store, other)))
    )

    assert await store.count_runs(None) == await other.count_runs(None) == {"ready": 60}
    [mine, theirs] = await asyncio.gather(store.claim(offer(slots=40)), other.claim(offer(slots=40)))
    assert len(mine.turns) + len(theirs.turns) == 60
    assert not set(mine.turns) & set(theirs.turns)
    assert await other.audit() == []
    await other.close()


async def test_a_commit_of_another_store_wakes_those_who_subscribed(path: str, store: SqliteStore) -> None:
    other = SqliteStore(path)
    await other.open()
    woken, unsubscribed = asyncio.Event(), asyncio.Event()
    stop = store.subscribe(unsubscribed.set)
    stop()
    stop = store.subscribe(woken.set)

    await other.execute([start("run_1")])
    await asyncio.wait_for(woken.wait(), PATIENCE)

    assert not unsubscribed.is_set()
    stop()
    await other.close()


# ---------------------------------------------------------------- rows


def _full(record: type[Record]) -> Any:
    """A record in which every field has a value that no other field has."""

    def value(no: int, name: str, hint: Any) -> Any:
        kinds = {hint, *get_args(hint)}
        if datetime in kinds:
            return datetime(2030, 1, 1, microsecond=no + 1, tzinfo=UTC)
        if hint == tuple[int, ...]:
            return (no, no + 1)
        if hint == tuple[str, ...]:
            return (name, "é\n")
        if bool in kinds:
            return True
        if float in kinds:
            return no + 0.5
        return no + 1 if int in kinds else f"{name} é"

    hints = get_type_hints(record)
    return record(**{name: value(no, name, hints[name]) for no, name in enumerate(record.__struct_fields__)})


@pytest.fixture
def tables() -> Iterator[Tables]:
    connection = apsw.Connection(":memory:")
    migrate(connection, ":memory:")
    connection.pragma("ignore_check_constraints", True)
    yield Tables(connection, rows.PLAIN)
    connection.close()


def test_every_field_of_a_run_and_a_wait_survives(tables: Tables) -> None:
    run, wait = _full(Run), _full(Wait)
    changes = Changes()
    changes.runs_inserted[run.id] = run
    changes.waits_inserted[(wait.run_id, wait.no)] = wait
    tables.write(changes)

    assert list(tables.load_runs([run.id])) == [run]
    assert list(tables.load_waits([(wait.run_id, wait.no)])) == [wait]


def test_every_field_that_may_change_is_updated(tables: Tables) -> None:
    now = datetime(2031, 1, 1, tzinfo=UTC)
    run, wait = _full(Run), _full(Wait)
    values = {name: getattr(run, name) for name in Run.__struct_fields__ if name not in rows.CHANGING_OF_RUN}
    plain_run = Run(
        **{
            "definition": "", "version": "", "style": "", "status": "", "step": "", "state": "",
            "updated_at": now, "ready_at": now, **values,
        }
    )  # fmt: skip
    values = {name: getattr(wait, name) for name in Wait.__struct_fields__ if name not in rows.CHANGING_OF_WAIT}
    plain_wait = Wait(**{"key": "", "status": "", **values})
    before, after = Changes(), Changes()
    before.runs_inserted[run.id], after.runs_updated[run.id] = plain_run, run
    key = (wait.run_id, wait.no)
    before.waits_inserted[key], after.waits_updated[key] = plain_wait, wait
    tables.write(before)
    assert list(tables.load_runs([run.id])) == [plain_run]
    tables.write(after)

    assert list(tables.load_runs([run.id])) == [run]
    assert list(tables.load_waits([key])) == [wait]


def test_every_kind_of_change_has_its_statements() -> None:
    written = set(re.findall(r"changes\.(\w+)", inspect.getsource(Tables.write)))

    assert written == vars(Changes()).keys()


HASH = '"hash":"' + 64 * "a" + '"'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '[{"payload":"' + "é" * 5000 + '"}]',
        '[{"name":"run_started"}]',
        f"[{{{HASH}}},{{{HASH}}}]",
        f'[{{"data":{{"hash":"mine"}},{HASH}}}]',
        HASH.replace("a", "A"),
        HASH.replace("aa", "a "),
        300 * '"hash":"a"',
        '"hash":"' + 64 * "é",
        '["msg_0123456789abcdefghi","msg_0123456789abcdefghi"]',
        '["msg_é","msg_012345678","msg_0123456789abcdefghi"]',
        '["msg_12345678901234567é"]',
        '["msg_1',
        300 * '"msg_0123456789abcdefghi"',
        f'{{"ids":["msg_0123456789abcdefghi"],{HASH}}}',
        f'{{"interaction":"int_0123456789abcdefghi_1_0","digest":"{16 * "ab"}","receipt":"{32 * "cd"}",{HASH}}}',
        f'{{"correlation":"{16 * "AB"}"}},{{"digest":"short"}},{{"digest":"{16 * "ab"}"}}',
        f'"digest":"digest":"msg_"digest":"{40 * "é"}',
        f'{{"digest":"{8 * "ab"}"}},{{"digest":"{8 * "cd"}"}}',
        f'{{"digest":"{8 * "ab"}"}},{{"digest":"{16 * "cd"}"}}',
    ],
)
def test_a_page_of_the_ledger_comes_back_as_it_was(text: str) -> None:
    assert unpack(pack(text)) == text


PIECES = [
    '"msg_',
    '"int_',
    '"digest":"',
    '"correlation":"',
    '"receipt":"',
    '"hash":"',
    *map(str, range(3)),
    "é",
    '"',
    "ab" * 8,
]


@given(st.lists(st.sampled_from(PIECES), max_size=80))
def test_a_page_of_whatever_words_comes_back_as_it_was(pieces: list[str]) -> None:
    assert unpack(pack("".join(pieces))) == "".join(pieces)


@pytest.mark.parametrize(
    "data",
    [
        [{}],
        [{"id": "msg_1"}, {"é": 1}],
        [{"id": "msg_0123456789abcdefghi"}] * 2,
        [{"hash": "mine"}],
        [{"text": "x" * 5000}],
        [{}] * 256,
    ],
)
@pytest.mark.parametrize("name", ["run_started", "signal_received", "await_answer_received", "run_completed"])
def test_packed_entries_come_back_as_they_were(data: list[dict[str, Any]], name: str) -> None:
    entries: list[ledger.Stored] = []
    for seq, each in enumerate(data, 1):
        head = entries[-1].hash if entries else ""
        entries.append(ledger.append(head, seq, datetime(2030, 1, 1, tzinfo=UTC), name, "client", each))
    assert unpack(pack_entries(entries)) == ledger.encode_page(entries)


def test_a_packing_of_a_later_time_is_named_as_damage() -> None:
    with pytest.raises(DamagedPage, match="unknown packing"):
        unpack(b"\x7f1234")


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\2",
        b"\2\1",
        b"\2\1short",
        b"\2\0\xff",
        b"\1\xff",
        b"\0\xff",
        b"\4",
        b"\4\0",
        b"\4\0\1short",
        b"\4\0\x1f\1\1",
    ],
)
def test_a_page_that_was_cut_or_changed_is_named_as_damage(page: bytes) -> None:
    with pytest.raises(DamagedPage):
        unpack(page)


def test_a_page_packed_by_the_first_release_can_be_read() -> None:
    assert unpack(FIRST_PAGE) == '[{"seq":1,"at":17,"name":"run_started","actor":"client"}]'


def test_a_page_packed_with_the_second_dictionary_can_be_read() -> None:
    hash = 32 * "ab"
    page = bytes.fromhex(f"0201{hash}233b3211460000")
    assert unpack(page) == f'[{{"seq":1,"at":17,"name":"run_started","actor":"client","hash":"{hash}"}}]'


@pytest.mark.parametrize(
    "statement",
    ["due_runs", "until_due", "due_timers", "due_chores", "live_children", "children_of_wait", "find_children",
     "find_runs_by_correlation_key", "find_unused", "find_unused_of_run", "delete_ended", "load_runs", "load_waits",
     "load_inboxes", "load_signals"],
)  # fmt: skip
def test_a_hot_statement_scans_no_table_and_sorts_no_backlog(tables: Tables, statement: str) -> None:
    named = dict.fromkeys(re.findall(r":(\w+)", SQL[statement]))
    numbered = [None] * len(set(re.findall(r"\?\d", SQL[statement])))
    plan = [str(row[3]) for row in tables.connection.execute(SQL[statement], named or numbered, explain=2)]
    own = {"wanted", "levels", "moments", "CONSTANT"}  # of the statement itself, as are arrays and JSON
    scans = [line for line in plan if line.startswith("SCAN") and "VIRTUAL" not in line]

    assert [line for line in scans if line.split()[1] not in own] == []
    if statement in {"due_timers", "due_chores", "find_unused", "find_runs_by_correlation_key", "load_signals"}:
        assert not [line for line in plan if "TEMP B-TREE" in line]


# ---------------------------------------------------------------- the audit

PAGE = """
INSERT INTO ledger (run_id, seq, entries)
VALUES ('run_done', 999, pack('[{"seq": 999, "name": "%s", "data": %s}]'))
"""
CAME_LATE = PAGE.replace("999", "998") % ("signal_received", '{"id": "sig_late"}')
USED_LATE = PAGE % ("signals_consumed", '{"ids": ["sig_late"]}')

INTERACTION = """
INSERT INTO interactions (workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload,
                          transport, answers, digest)
VALUES ('default', 'run_done', 1, 0, 'waiting', 0, 'order', 'begin', '', 'null', 'interaction-api', '[]', '')
"""

UNIT = "INSERT INTO units VALUES ('run_parked', 1, %s, %s, 0, 0, %s, 0)"
ITEM = "INSERT INTO items VALUES ('run_parked', 1, 0, '%s', 0, 'null', NULL, 0, 0, 0, NULL, NULL)"
PENDING = INTERACTION.replace("run_done", "run_parked").replace("'waiting', 0", "'pending', 0")

ORPHANS = """
INSERT INTO steps (run_id, key, kind, status, seq, attempts) VALUES ('run_nobody', 'a', 'run', 'done', 1, 1);
INSERT INTO units VALUES ('run_nobody', 1, 0, 0, 0, 0, 0, 0);
INSERT INTO items VALUES ('run_nobody', 1, 0, 'done', 0, 'null', NULL, 0, 0, 0, NULL, NULL)
"""
CHORE = "INSERT INTO chores (id, kind, run_id, due_at, data) VALUES ('%s', '%s', '%s', 0, '')"
TAKEN = "INSERT INTO names VALUES ('main', 'signal', 'gate', 'run_done', 'open', '1', 0)"
NEVER = "INSERT INTO names VALUES ('main', 'dedup', 'd', 'run_done', 'd', 'sig_never', 0)"
TWICE = PAGE % ("await_unit_terminal", '{"wait": 1}')
CANCELLED = PAGE.replace("999", "998") % ("run_cancelled", "{}")

BREAKS = {
    "audit_i1_answer_is_held": "INSERT INTO names VALUES ('default', 'signal', 'gate', NULL, 'held', 'msg_1', 0)",
    "audit_i1_inbox_count": "UPDATE runs SET inbox_count = 0 WHERE id = 'run_parked'",
    "audit_i1_signal_is_kept": "DELETE FROM inbox WHERE run_id = 'run_parked'",
    "audit_i2_used_once": PAGE % ("signals_consumed", '{"ids": ["sig_go"]}'),
    "audit_i3_handed_before_used": f"{CAME_LATE}; {USED_LATE}",
    "audit_i4_events_find_waits": "UPDATE waits SET kind = 'event' WHERE run_id = 'run_parked'",
    "audit_i4_items_move": ITEM % "ready",
    "audit_i4_stream_releases": "UPDATE runs SET style = 'pipeline' WHERE id = 'run_parked'",
    "audit_i4_signal_wakes": "UPDATE inbox SET name = 'payment' WHERE run_id = 'run_parked'",
    "audit_i4_waits_for_something": "UPDATE runs SET parked_on = 9 WHERE id = 'run_parked'",
    "audit_i5_closed_once": TWICE,
    "audit_i5_interactions": INTERACTION,
    "audit_i5_open_waits": "UPDATE runs SET open_waits = '[]' WHERE id = 'run_parked'",
    "audit_i5_resolved_once": "UPDATE waits SET cause = NULL WHERE run_id = 'run_done'",
    "audit_i7_correlation_key_is_freed": "UPDATE names SET run_id = 'run_done'",
    "audit_i7_ended_once": PAGE % ("run_failed", '{"to": "failed"}'),
    "audit_i7_nothing_left_open": "INSERT INTO timers VALUES ('run_done', 1, 0)",
    "audit_i7_only_a_cancel_is_passed_on": CHORE % ("cancel_children:run_done", "cancel_children", "run_done"),
    "audit_i7_signal_id_is_freed": TAKEN,
    "audit_i8_epoch_fences": "UPDATE queue SET epoch = 7 WHERE run_id = 'run_running'",
    "audit_i8_epochs_grow": PAGE % ("run_claimed", '{"to": "running", "epoch": 1}'),
    "audit_i9_ready_is_queued": "DELETE FROM queue WHERE run_id = 'run_ready'",
    "audit_i9_running_has_lease": "UPDATE queue SET worker = NULL WHERE run_id = 'run_running'",
    "audit_i10_cancelled_ends_cancelled": "UPDATE runs SET cancel_reason = 'why not' WHERE id = 'run_done'",
    "audit_i10_nothing_after_a_cancel": f"{CANCELLED}; {PAGE % ('step_committed', '{}')}",
    "audit_i11_deadline_is_looked_for": "UPDATE waits SET due_at = deadline + 1; UPDATE timers SET due_at = due_at + 1",
    "audit_i11_no_early_timeout": "UPDATE waits SET status = 'timed_out', deadline = closed_at + 1 WHERE no = 1",
    "audit_i11_timers_agree": "UPDATE timers SET due_at = due_at + 1",
    "audit_i12_chores_have_an_owner": CHORE % ("dispatch:1", "dispatch", ""),
    "audit_i12_pending_is_promised": f"{UNIT % (1, 0, 1)}; {PENDING}",
    "audit_i13_unit_counts": UNIT % (1, 1, 0),
    "audit_i13_unit_releases": UNIT % (0, 0, 1),
    "audit_i13_join_counts": "UPDATE waits SET received = 0 WHERE run_id = 'run_parent'",
    "audit_i13_join_releases": "UPDATE waits SET received = 2 WHERE run_id = 'run_parent'",
    "audit_i14_belongs_to_a_run": "UPDATE inbox SET run_id = 'run_nobody'",
    "audit_i14_parts_belong_to_a_run": ORPHANS,
    "audit_i14_one_workspace": "UPDATE waits SET workspace = 'other' WHERE run_id = 'run_parked'",
    "audit_i15_admitted_is_told": NEVER,
}


def test_every_question_of_the_audit_has_a_row_that_breaks_it() -> None:
    assert sorted(BREAKS) == sorted(AUDITS)


@pytest.mark.parametrize("question", BREAKS)
async def test_the_audit_names_the_invariant_that_a_row_breaks(store: SqliteStore, path: str, question: str) -> None:
    await populate(store)
    assert await store.audit() == []

    _break(path, BREAKS[question])

    found = await store.audit()
    asked = apsw.Connection(path)
    read_ledgers(asked, rows.PLAIN)
    details = {detail for _, detail in asked.execute(AUDITS[question])}
    asked.close()
    invariant = question.split("_")[1].upper()
    assert details
    assert details <= {violation.detail for violation in found if violation.invariant == invariant}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE ledger SET entries = pack(replace(unpack(entries), 'started', 'begun')) WHERE run_id = 'run_done'",
        "UPDATE ledger SET entries = pack(replace(unpack(entries), ':', ': ')) WHERE run_id = 'run_done'",
        "UPDATE ledger SET entries = pack('gone') WHERE run_id = 'run_done' AND seq = 1",
        "UPDATE ledger SET entries = x'01ffff' WHERE run_id = 'run_done' AND seq = 1",
        "UPDATE ledger SET entries = x'' WHERE run_id = 'run_done' AND seq = 1",
        "DELETE FROM ledger WHERE run_id = 'run_done' AND seq = 1",
        "DELETE FROM ledger WHERE run_id = 'run_done'",
        "UPDATE runs SET ledger_head = 'x' WHERE id = 'run_done'",
        "UPDATE runs SET status = 'stopped' WHERE id = 'run_done'",
    ],
)
async def test_the_audit_finds_a_ledger_that_was_touched(store: SqliteStore, path: str, sql: str) -> None:
    await populate(store)

    _break(path, sql)

    assert {violation.id for violation in await store.audit() if violation.invariant == "I16"} == {"run_done"}


def _break(path: str, sql: str) -> None:
    connection = apsw.Connection(path)
    connection.pragma("ignore_check_constraints", True)
    connection.create_scalar_function("pack", lambda *text: pack(*text), 1)
    connection.create_scalar_function("unpack", lambda *page: unpack(*page), 1)
    connection.execute(sql)
    assert connection.changes() > 0
    connection.close()
