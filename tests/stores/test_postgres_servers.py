"""Servers as they are: unreachable, closed, read-only, full, behind a pooler; and hints between processes."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from bide.errors import BadConfiguration, StoreUnavailable
from bide.stores.postgres import PostgresStore, hints, migrate, transactions
from bide.stores.postgres.address import parse
from bide.stores.postgres.failures import FAULTS
from bide.stores.postgres.hints import Hints
from bide.stores.postgres.sessions import Connection, Session, Sessions
from bide.stores.postgres.statements import BEGIN
from bide.testing.store_contract.making import (
    MINUTE,
    a_commit,
    a_signal,
    a_start,
    an_offer,
    ending,
    parked,
    row,
    running,
    started,
    woken,
)
from tests.support.postgres import (
    PostgresServer,
    Server,
    available_postgres,
    connect,
    split_schema,
    temporary_folder,
)
from tests.support.proxy import CuttingProxy, PoolingProxy
from tests.support.staging import until

POOLED = 3
PATIENCE = 120.0  # seconds that a call is tried again which is to succeed
BLOCKED_BY_ME = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
needs_binaries = pytest.mark.skipif(not available_postgres(), reason="no PostgreSQL server is installed here")


def with_user(url: str, user: str, password: str = "") -> str:
    parts = urlsplit(url)
    credentials = f"{user}:{password}" if password else user
    return parts._replace(netloc=f"{credentials}@{parts.hostname}:{parts.port}").geturl()


async def through_the_wait(store: PostgresStore) -> None:
    """Start, park, signal, end."""
    await parked(store, "run_1")
    turn = await woken(store, "run_1")
    await store.execute([a_commit(turn, ending(), used=turn.inbox)])
    assert (await row(store, "run_1")).status == "completed"
    assert await store.audit() == []


# The URL


def test_the_url_is_taken_apart_and_shown_without_its_password() -> None:
    address = parse("postgresql://me:secret@db.example:6432/shop?schema=orders&pooler=1&sslmode=require")
    assert address.dsn == "postgresql://me:secret@db.example:6432/shop?sslmode=require"
    assert (address.schema, address.has_pooler, address.shown) == ("orders", True, "db.example:6432/shop")
    assert parse("postgresql://localhost/shop").schema == "bide"


def test_a_url_may_name_several_servers_of_which_the_driver_takes_the_one_that_serves() -> None:
    url = "postgresql://me:secret@one:5432,two:6543/shop?target_session_attrs=read-write"
    address = parse(url)
    assert (address.dsn, address.shown) == (url, "one:5432,two:6543/shop")


@pytest.mark.parametrize("url", ["mysql://localhost/shop", "postgresql://h/d?schema=a.b", "postgresql://h:port/d"])
def test_a_url_that_cannot_be_used_is_refused_when_the_store_is_made(url: str) -> None:
    with pytest.raises(BadConfiguration):
        PostgresStore(url)


# Connections


async def test_the_types_of_postgresql_itself_are_asked_for_by_the_first_connection_of_a_process_alone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_types", {})
    sessions = Sessions(parse(postgres_url), 2, "types")
    asked = [await queries_of(sessions, "SELECT $1::bigint[], $2::timestamptz[]", [7], [NOON]) for _ in range(2)]
    assert ["typeinfo_tree" in query for queries in asked for query in queries] == [True, False, False]


async def test_a_type_of_one_server_is_asked_for_by_every_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made in a database has another number in the next."""
    monkeypatch.setattr(Session, "_types", {})
    name = f"mood_{secrets.token_hex(4)}"
    connection = await connect(postgres_url)
    await connection.execute(f"CREATE TYPE {name} AS ENUM ('glad')")
    await connection.close()
    sessions = Sessions(parse(postgres_url), 2, "types")
    schema = split_schema(postgres_url)[1]
    asked = [await queries_of(sessions, f"SELECT $1::{schema}.{name}[]", ["glad"]) for _ in range(2)]
    assert [sum("typeinfo_tree" in query for query in queries) for queries in asked] == [1, 1]


async def queries_of(sessions: Sessions, query: str, *arguments: object) -> list[str]:
    """All that a new connection asks the server for when it is to run *query*, which gives back its arguments."""
    connection, queries = await sessions.connect(), list[str]()
    connection.add_query_logger(lambda record: queries.append(record.query))
    assert tuple(await connection.fetchrow(query, *arguments) or ()) == arguments
    await connection.close()
    return [query for query in queries if "set_config" not in query]  # of a server that compiles statements


# Servers that do not serve


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        store = PostgresStore(f"postgresql://me:secret@127.0.0.1:{port}/shop")
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port}/shop .* cannot be reached") as caught:
            await store.open()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is not None


async def test_a_database_that_does_not_exist_is_said(postgres_url: str) -> None:
    url = urlsplit(postgres_url)._replace(path="/nowhere").geturl()
    with pytest.raises(StoreUnavailable, match="no such database"):
        await PostgresStore(url).open()
    with pytest.raises(StoreUnavailable, match="no such database"):
        await migrate(url)


async def test_a_role_that_does_not_exist_is_said(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="role"):
        await PostgresStore(with_user(postgres_url, "nobody_knows", "secret")).open()


async def test_a_role_without_rights_is_told_what_it_needs(postgres_url: str) -> None:
    await migrate(postgres_url)
    _, schema = split_schema(postgres_url)
    role = f"{schema}_guest"
    admin = await connect(postgres_url)
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    store = PostgresStore(with_user(postgres_url, role), hints=False, patience=0.1)
    try:
        with pytest.raises(StoreUnavailable, match="lacks rights"):
            await store.open()
        await admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        await admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        await store.open()
        with pytest.raises(StoreUnavailable, match="lacks rights"):
            await store.execute([a_start()])
        await admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        await started(store)
    finally:
        await store.close()
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()


async def test_a_role_that_may_not_make_schemas_can_use_one_that_is_there(postgres_url: str) -> None:
    _, schema = split_schema(postgres_url)
    role = f"{schema}_owner"
    admin = await connect(postgres_url)
    await admin.execute(f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {schema} TO {role}")
    try:
        assert await migrate(with_user(postgres_url, role)) != []
    finally:
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()


@pytest.mark.parametrize("goes", ["open", "migrate"])
async def test_a_database_that_lacks_most_characters_is_refused_before_any_is_lost(
    postgres_server: Server, goes: str
) -> None:
    name = f"bide_{secrets.token_hex(6)}"
    admin = await connect(postgres_server.url())
    await admin.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    url = postgres_server.url(name)
    try:
        with pytest.raises(BadConfiguration, match=r"encoded as LATIN1.*ENCODING 'UTF8'"):
            await (migrate(url) if goes == "migrate" else PostgresStore(url, migrate=True).open())
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


async def test_a_role_to_which_nothing_is_the_word_null_is_refused(own_database_url: str) -> None:
    admin = await connect(own_database_url)
    await admin.execute(f"ALTER DATABASE {urlsplit(own_database_url).path[1:]} SET array_nulls = off")
    await admin.close()
    with pytest.raises(BadConfiguration, match="array_nulls is off"):
        await PostgresStore(own_database_url, migrate=True).open()


async def test_the_server_that_takes_writes_is_found_among_several(own_database_url: str) -> None:
    parts = urlsplit(own_database_url)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{closed.getsockname()[1]},127.0.0.1:{parts.port}"
        url = parts._replace(netloc=f"{parts.username}@{hosts}", query="target_session_attrs=read-write").geturl()
        store = PostgresStore(url, migrate=True)
        await store.open()
        await through_the_wait(store)
        await store.close()


async def test_a_read_only_server_is_said_and_used_again_when_it_is_not(postgres_url: str) -> None:
    await migrate(postgres_url)
    _, schema = split_schema(postgres_url)
    role = f"{schema}_reader"
    admin = await connect(postgres_url)
    await admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = on")
    store = PostgresStore(with_user(postgres_url, role), hints=False, patience=0.1)
    await store.open()
    try:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.execute([a_start()])
        assert await store.run("default", "run_1") is None, "reading goes on"
        await admin.execute(f"ALTER ROLE {role} RESET default_transaction_read_only")
        store._transactions._patience = PATIENCE  # a connection of before is tried first
        await started(store)
    finally:
        await store.close()
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()


async def test_a_server_with_no_connection_left_is_said_and_used_again_when_it_has(postgres_url: str) -> None:
    await migrate(postgres_url)
    _, schema = split_schema(postgres_url)
    role = f"{schema}_crowd"
    admin = await connect(postgres_url)
    await admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1; GRANT ALL ON SCHEMA {schema} TO {role}")
    await admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    url = with_user(postgres_url, role)
    store = PostgresStore(url, hints=False, patience=0.1)

    async def is_nobody_there() -> bool:
        """A session that was closed counts until the server has noticed."""
        return not await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", role)

    await store.open()
    await until(is_nobody_there)
    other = await connect(url)
    try:
        with pytest.raises(StoreUnavailable, match="no connection left"):
            await store.execute([a_start()])
        await other.close()
        store._transactions._patience = PATIENCE
        await started(store)
    finally:
        await store.close()
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()


@needs_binaries
async def test_what_was_acknowledged_outlives_a_crash_of_the_server() -> None:
    with PostgresServer(available_postgres()[0], temporary_folder()) as server:
        store = PostgresStore(server.url(), hints=False, migrate=True)
        await store.open()
        await parked(store, "run_1")
        await asyncio.to_thread(server.restart, "immediate")
        turn = await woken(store, "run_1")
        assert turn.run.status == "running"
        assert await store.audit() == []
        await store.close()


# Behind a pooler


@pytest.fixture
async def pooler(postgres_url: str) -> AsyncIterator[PoolingProxy]:
    server = urlsplit(postgres_url)
    assert server.hostname is not None
    async with PoolingProxy(server.hostname, server.port or 5432, POOLED) as pooler:
        yield pooler


@pytest.mark.parametrize("said", [True, False], ids=["said", "found out"])
async def test_a_wait_works_through_a_transaction_pooler(postgres_url: str, pooler: PoolingProxy, said: bool) -> None:
    url = pooler.url(postgres_url) + ("&pooler=1" if said else "")
    store = PostgresStore(url, migrate=True)
    await store.open()
    stop = store.subscribe(lambda: None)
    await through_the_wait(store)
    turn = await running(store, "run_2")
    assert await asyncio.to_thread(store.renew, "worker-1", {turn.run.id: turn.run.epoch}, MINUTE) == set()
    await asyncio.gather(*(started(store, f"run_{number}") for number in range(10, 30)))
    stop()
    await store.close()


async def test_nothing_of_a_session_is_left_behind_at_a_pooler(postgres_url: str, pooler: PoolingProxy) -> None:
    assert await left_behind(postgres_url, pooler) == []


async def test_a_setting_that_outlasts_its_transaction_would_be_found_at_the_pooler(
    postgres_url: str, pooler: PoolingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "BEGIN", BEGIN.replace("SET LOCAL", "SET"))
    assert {name for name, _ in await left_behind(postgres_url, pooler)} == set(SETTINGS)


SETTINGS = re.findall(r"SET LOCAL (\w+)", BEGIN)


async def left_behind(url: str, pooler: PoolingProxy) -> list[tuple[str, str]]:
    """What the pooler's connections to the server keep of a store that has worked on them."""
    store = PostgresStore(pooler.url(url), migrate=True)
    await store.open()
    for _ in range(POOLED):
        await asyncio.gather(*(store.execute([a_start(f"run_{secrets.token_hex(4)}")]) for _ in range(POOLED)))
    fresh = await connect(url)
    async with AsyncExitStack() as stack:
        # As many transactions at once as there are connections: none is left out.
        used = [await stack.enter_async_context(store.connection()) for _ in range(POOLED)]
        assert len({await connection.fetchval("SELECT pg_backend_pid()") for connection in used}) == POOLED
        found = [
            (name, value)
            for connection in used
            for name in SETTINGS
            if (value := await connection.fetchval(f"SHOW {name}")) != await fresh.fetchval(f"SHOW {name}")
        ]
        for connection in used:
            kept = await connection.fetch("SELECT name FROM pg_prepared_statements WHERE name <> ''")
            found += [("prepared statement", name) for (name,) in kept]
    await fresh.close()
    await store.close()
    return found


# Roles that a login takes on


@pytest.fixture
async def login(postgres_url: str) -> AsyncIterator[str]:
    """The URL for a login that acts as another role, which owns the tables: what that one may see of sessions is
    not what the login may."""
    await migrate(postgres_url)
    _, schema = split_schema(postgres_url)
    admin = await connect(postgres_url)
    owner, user = f"{schema}_owner", f"{schema}_login"
    await admin.execute(f"CREATE ROLE {owner} NOLOGIN; CREATE ROLE {user} LOGIN IN ROLE {owner}")
    await admin.execute(f"ALTER ROLE {user} SET role = '{owner}'")
    await admin.execute(f"GRANT ALL ON SCHEMA {schema} TO {owner}")
    await admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {owner}")
    yield with_user(postgres_url, user)
    await admin.execute(f"DROP OWNED BY {owner}, {user}; DROP ROLE {user}, {owner}")
    await admin.close()


async def test_F57_an_answer_that_is_lost_while_its_write_still_waits_doubles_nothing_under_another_role(
    login: str, postgres_url: str
) -> None:
    server = urlsplit(postgres_url)
    assert server.hostname is not None
    async with CuttingProxy(server.hostname, server.port or 5432) as proxy:
        store = PostgresStore(proxy.url(login), hints=False)
        await store.open()
        await started(store, "run_1")
        rival = await connect(postgres_url)
        writing = rival.transaction()
        await writing.start()
        await rival.execute("SELECT 1 FROM runs WHERE id = 'run_1' FOR UPDATE")
        call = asyncio.create_task(store.execute([a_signal("run_1", signal_id="msg_1")]))

        async def is_blocked() -> bool:
            return bool(await rival.fetchval(BLOCKED_BY_ME))

        await until(is_blocked)
        proxy.cut()

        async def is_back() -> bool:
            return proxy.connections > 0

        await until(is_back)  # it asks how that ended, before it has
        await writing.rollback()
        await call
        assert [signal.id for signal in await store.inbox("run_1")] == ["msg_1"]
        assert await store.audit() == []
        await store.close()
        await rival.close()


async def stopped_in_a_commit(url: str) -> Connection:
    """A session of a process that has locked rows, and stands between two messages of a statement."""
    address = parse(url)
    stopped = await Sessions(address, 1, "stopped").connect()
    await stopped.execute(BEGIN)
    await stopped.execute(f"SELECT 1 FROM {address.schema}.queue FOR UPDATE")
    await stopped.prepare(f"SELECT 'never executed' FROM {address.schema}.runs")
    return stopped


async def test_D6_sessions_of_a_login_that_acts_as_another_role_are_freed(login: str) -> None:
    store = PostgresStore(login, hints=False)  # who sends one stands between two messages, too, for a moment
    await store.open()
    await started(store, "run_1")
    stopped = await stopped_in_a_commit(login)
    assert await store.free_locks(timedelta(0)) == 1
    with pytest.raises(FAULTS):
        await stopped.execute("COMMIT")
    await store.close()


# Processes that stand still


async def test_D6_what_a_process_keeps_locked_that_stopped_in_the_middle_of_a_commit_is_freed(
    own_database_url: str,
) -> None:
    """The driver prepares a statement and executes it in two messages: between them no timeout of the server counts."""
    store = PostgresStore(own_database_url, hints=False, migrate=True)
    await store.open()
    await started(store, "run_1")
    stopped = await stopped_in_a_commit(own_database_url)
    assert (await store.claim(an_offer())).turns == {}
    assert await store.free_locks(timedelta(hours=1)) == 0
    assert await store.free_locks(timedelta(0)) == 1
    assert (await store.claim(an_offer())).turns.keys() == {"run_1"}
    with pytest.raises(FAULTS):
        await stopped.execute("COMMIT")
    await store.close()


async def test_D6_a_program_that_takes_its_time_in_its_own_transaction_is_left_alone(own_database_url: str) -> None:
    store = PostgresStore(own_database_url, migrate=True)
    await store.open()
    async with store.connection() as own:
        await own.fetch("SELECT 1")
        assert await store.free_locks(timedelta(0)) == 0
        assert await own.fetchval("SELECT 2") == 2
    await store.close()


# Hints


class Bell:
    """Counts wakes and can be waited for."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()

    def __call__(self) -> None:
        self.rung.set()

    async def wait(self) -> None:
        async with asyncio.timeout(120):
            await self.rung.wait()
        self.rung.clear()


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    pair = PostgresStore(postgres_url, migrate=True), PostgresStore(postgres_url, migrate=True)
    for store in pair:
        await store.open()
    yield pair
    for store in pair:
        await store.close()


async def test_a_commit_that_makes_a_run_ready_wakes_the_other_process_only(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    own, other = Bell(), Bell()
    stores[0].subscribe(own)
    stores[1].subscribe(other)
    await own.wait()  # both listen from here on
    await other.wait()
    await started(stores[0], "run_1")
    await other.wait()
    await started(stores[1], "run_2")
    await own.wait()
    assert not other.rung.is_set()


async def test_every_signal_that_comes_alone_wakes_the_other_process_however_soon_after_the_last(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    runs = [f"run_{number}" for number in range(6)]
    for run_id in runs:
        await parked(stores[0], run_id)
    own, other = Bell(), Bell()
    stores[0].subscribe(other)
    stores[1].subscribe(own)
    await own.wait()
    await other.wait()
    await stores[1].execute([a_signal(runs[0])])
    await other.wait()
    hints = stores[1]._hints
    assert hints is not None
    assert "sender" not in hints._tasks, "the first one went out with the commit"
    for run_id in runs[1:]:
        other.rung.clear()
        await stores[1].execute([a_signal(run_id)])
        await other.wait()
    assert not own.rung.is_set()


@pytest.mark.parametrize(("quiet", "ride"), [(60.0, 1), (0.0, 5)], ids=["soon after each other", "apart"])
async def test_hints_that_ride_with_commits_keep_their_distance(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, quiet: float, ride: int
) -> None:
    """Commits that notify wait for each other, so of a process only one in 20 ms may (F68)."""
    assert hints.LONGEST_QUIET_SECONDS == 0.02
    monkeypatch.setattr(hints, "LONGEST_QUIET_SECONDS", quiet)  # however long this machine takes for a commit
    commits: list[str] = []

    class Overheard(Session):
        async def fetch(self, query: str, *args: object, **options: Any) -> Any:
            commits.append(query)
            return await super().fetch(query, *args, **options)

    runs = [f"run_{number}" for number in range(5)]
    other = PostgresStore(postgres_url, hints=False, migrate=True)
    await other.open()
    for run_id in runs:
        await parked(other, run_id)
    await other.close()
    store = PostgresStore(postgres_url)
    store._sessions.connection_class = Overheard
    await store.open()
    for run_id in runs:
        await store.execute([a_signal(run_id)])
    written = [query for query in commits if "pg_current_xact_id" in query]
    assert len(written) == len(runs)
    assert sum("pg_notify" in query for query in written) == ride
    await store.close()


async def test_hints_go_on_after_the_driver_has_lost_its_way(postgres_url: str) -> None:
    """Seen where a proxy cut connections: the task that sends hints ended with an error that nobody looked at."""
    astray = asyncio.Event()

    class Cut(asyncpg.Connection):
        async def fetchval(self, query: str, *args: object, **options: Any) -> Any:
            if not astray.is_set():
                astray.set()
                raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
            return await super().fetchval(query, *args, **options)

    sessions, bell = Sessions(parse(postgres_url), 1, "cut"), Bell()
    sessions.connection_class = Cut
    sender, listener = Hints(sessions, "cut"), Hints(Sessions(parse(postgres_url), 1, "other"), "other")
    listener.subscribe(bell)
    await bell.wait()
    sender.send()
    sending = sender._tasks["sender"]
    await astray.wait()
    sender.send()
    await bell.wait()
    assert not sending.done()
    await sender.close()
    await listener.close()


async def test_a_subscriber_that_stopped_is_not_woken(stores: tuple[PostgresStore, PostgresStore]) -> None:
    stopped, other = Bell(), Bell()
    stop = stores[1].subscribe(stopped)
    stores[1].subscribe(other)
    await stopped.wait()
    await other.wait()
    stop()
    await started(stores[0], "run_1")
    await other.wait()
    assert not stopped.rung.is_set()


@pytest.mark.parametrize("is_silent", [False, True], ids=["cut", "silent"])
async def test_listening_goes_on_after_the_connection_broke(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_silent: bool
) -> None:
    """A connection that stands and says nothing is as dead as one that was cut (F69)."""
    caplog.set_level("INFO", "bide.postgres")
    monkeypatch.setattr("bide.stores.postgres.hints.HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr("bide.stores.postgres.hints.RECONNECT_SECONDS", 0.01)
    server = urlsplit(postgres_url)
    assert server.hostname is not None
    async with CuttingProxy(server.hostname, server.port or 5432) as proxy:
        store = PostgresStore(proxy.url(postgres_url), migrate=True)
        await store.open()
        bell = Bell()
        with monkeypatch.context() as patched:  # of the one that listens alone: whoever works may take its time
            if is_silent:
                patched.setattr("bide.stores.postgres.sessions.COMMAND_SECONDS", 0.3)
            store.subscribe(bell)
            await bell.wait()
        if is_silent:
            proxy.blackhole()
            caplog.clear()
            await until(lambda: is_said("listening for hints again", caplog))
            await proxy.heal()
        else:
            proxy.cut()
        await bell.wait()  # it listens again, and something may have been said meanwhile
        other = PostgresStore(postgres_url)
        await other.open()
        await started(other, "run_1")
        await bell.wait()
        await other.close()
        await store.close()


async def is_said(text: str, log: pytest.LogCaptureFixture) -> bool:
    return text in log.text


async def test_without_hints_everything_works_and_nobody_listens(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, hints=False, migrate=True)
    await store.open()
    store.subscribe(lambda: None)()
    await through_the_wait(store)
    await store.execute([a_start("run_2"), a_signal("run_2")], an_offer(slots=0))
    watcher = await connect(postgres_url)
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND query LIKE '%' || $1 || '%'"
    assert await watcher.fetchval(listening, split_schema(postgres_url)[1]) == 0
    await watcher.close()
    await store.close()
    await store.close()
