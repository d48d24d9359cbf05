"""Servers that cannot do what they should: each is said clearly, nothing is lost, and all goes on when they can again.

An engine that was at work when the server went bad is never restarted here: what its steps had done must be committed
when the cause is gone, without being done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import bide
from bide.client import Client
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from bide.engine.settings import load_settings
from bide.errors import SchemaTooNew, StoreUnavailable
from bide.stores.postgres import PostgresStore, transactions
from bide.stores.postgres.schema import migrate
from tests.chaos.fleet import APP, ROOT, clean_environment
from tests.support.postgres import PostgresServer, available_postgres, connect, temporary_folder
from tests.support.staging import Gate, client_of, until

Ctx = bide.Context[Any]

ROLE = "keeper"
PIECE = 50_000  # random bytes, twice as many as text
SMALL_DISK = "64m"
OURS = "FROM pg_stat_activity WHERE application_name LIKE 'bide %'"

pytestmark = pytest.mark.skipif(not available_postgres(), reason="no PostgreSQL server is installed here")


@pytest.fixture(autouse=True)
def _without_settings_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BIDE_")]:
        monkeypatch.delenv(name)


@dataclass
class Place:
    """A server, and a database on it whose tables an ordinary role may use."""

    server: PostgresServer
    disk: Path | None = None  # where the tables are, if it is a small one
    log_disk: Path | None = None  # the same for the log
    database: str = field(default_factory=lambda: f"shop_{secrets.token_hex(4)}")

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}:secret@{self.server.host}:{self.server.port}/{self.database}"

    async def command(self, *statements: str, database: str | None = None) -> None:
        """As the one who may do everything, also on a server that is read-only or full."""
        url = self.server.url(database or self.database)
        admin = await connect(url, server_settings={"default_transaction_read_only": "off"})
        try:
            for statement in statements:
                await admin.execute(statement)
        finally:
            await admin.close()

    async def prepare(self) -> None:
        with contextlib.suppress(asyncpg.DuplicateObjectError):
            await self.command(f"CREATE ROLE {ROLE} LOGIN", database="postgres")
        space = ""
        if self.disk is not None:
            owner = self.server.folder.stat()
            os.chown(self.disk, owner.st_uid, owner.st_gid)
            await self.command(f"CREATE TABLESPACE small LOCATION '{self.disk}'", database="postgres")
            space = "TABLESPACE small"
        await self.command(f"CREATE DATABASE {self.database} {space}", database="postgres")
        await migrate(self.server.url(self.database))
        await self.grant()

    async def grant(self) -> None:
        await self.command(f"GRANT USAGE ON SCHEMA bide TO {ROLE}", f"GRANT ALL ON ALL TABLES IN SCHEMA bide TO {ROLE}")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(available_postgres()[0], temporary_folder(), {"max_connections": 30}) as started:
        yield started


@pytest.fixture
async def place(server: PostgresServer) -> Place:
    place = Place(server)
    await place.prepare()
    return place


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of its own for tables or for the log. Without space for tables a server refuses what it is asked; without
    space for its log it stops, and stays away until somebody has freed some and started it."""
    folder = temporary_folder()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=777", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip(f"no small disk can be mounted here, which takes root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


# ---------------------------------------------------------------- a shop at work


@dataclass
class Shop:
    """An engine at work, and a client beside it. Calls are not tried for long."""

    client: Client
    engine: Engine
    door: Gate
    steps: Counter[str] = field(default_factory=Counter)


def blob(size: int) -> str:
    """Text that cannot be made smaller."""
    return random.Random(size).randbytes(size).hex()


def make_app(door: Gate, steps: Counter[str]) -> bide.App:
    app = bide.App("shop")

    @app.machine("visitor", retries=0)
    class Visitor:
        """Stands before the door; its outcome is larger than what a full disk has left."""

        @bide.start
        async def knock(self, ctx: Ctx) -> bide.Next:
            steps["knock"] += 1
            await door()
            return bide.Next("enter", blob(4 * PIECE))

        async def enter(self, ctx: Ctx) -> bide.Done:
            steps["enter"] += 1
            return bide.Done("entered")

    @app.machine("order", retries=0)
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="ship", timeout="1h")

        async def ship(self, ctx: Ctx) -> bide.Done:
            steps["ship"] += 1
            return bide.Done([signal.payload for signal in ctx.awaited])

    return app


@asynccontextmanager
async def shop_at(url: str) -> AsyncIterator[Shop]:
    door, steps = Gate(), Counter[str]()
    settings = load_settings({"store": url, "poll_interval": "20ms", "lease": "1h"}, {})
    runtime = Runtime(PostgresStore(url, patience=0.2), make_app(door, steps).registry, settings, Ports())
    await runtime.open()
    try:
        async with Engine(runtime) as engine:
            yield Shop(client_of(runtime), engine, door, steps)
    finally:
        await runtime.close()


async def program(*arguments: str) -> tuple[int, str]:
    """The exit code of the program and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bide", *arguments),
        cwd=ROOT,
        env=clean_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


# ---------------------------------------------------------------- what may go wrong with a server

Outage = Callable[[Place], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def away(place: Place) -> AsyncIterator[None]:
    await asyncio.to_thread(place.server.stop, "immediate")
    try:
        yield
    finally:
        await asyncio.to_thread(place.server.start)


@asynccontextmanager
async def read_only(place: Place) -> AsyncIterator[None]:
    await place.command("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    await until_new_sessions_see(place, "on")
    try:
        yield
    finally:
        await place.command("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
        await until_new_sessions_see(place, "off")


async def until_new_sessions_see(place: Place, value: str) -> None:
    async def seen() -> bool:
        connection = await connect(place.url)
        try:
            return bool(await connection.fetchval("SHOW default_transaction_read_only") == value)
        finally:
            await connection.close()

    await until(seen)


@asynccontextmanager
async def without_connections(place: Place) -> AsyncIterator[None]:
    """Somebody else has them all; the last are kept for superusers.

    Sessions that end give their place back a moment later, so whoever wants them all must keep asking until it has
    counted them all: then nobody else has one.
    """
    hog: list[asyncpg.Connection[asyncpg.Record]] = []
    admin = await connect(place.url)
    settings = ("max_connections", "superuser_reserved_connections", "reserved_connections")
    total, *kept = [
        int(await admin.fetchval(f"SELECT coalesce(current_setting('{name}', true), '0')")) for name in settings
    ]
    await admin.close()

    async def has_them_all() -> bool:
        await place.command(f"SELECT pg_terminate_backend(pid) {OURS}")
        for _ in range(total):
            with contextlib.suppress(asyncpg.TooManyConnectionsError):
                hog.append(await connect(place.url))
        return len(hog) == total - sum(kept)

    try:
        await until(has_them_all)
        yield
    finally:
        for connection in hog:
            await connection.close()


@asynccontextmanager
async def without_rights(place: Place) -> AsyncIterator[None]:
    await place.command(
        f"REVOKE ALL ON ALL TABLES IN SCHEMA bide FROM {ROLE}", f"REVOKE ALL ON SCHEMA bide FROM {ROLE}"
    )
    yield
    await place.grant()


@asynccontextmanager
async def without_space(place: Place) -> AsyncIterator[None]:
    assert place.disk is not None
    with filled(place.disk):
        yield


@asynccontextmanager
async def without_log_space(place: Place) -> AsyncIterator[None]:
    """The server stops when its log has used up what it has; somebody frees space and starts it."""
    assert place.log_disk is not None
    with filled(place.log_disk):
        yield
    await asyncio.to_thread(place.server.start)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield
    filler.unlink()


OUTAGES = {
    "away": (away, "it cannot be reached; check that it runs"),
    "read-only": (read_only, "the server is read-only; connect to the primary"),
    "out of connections": (without_connections, "the server has no connection left; raise max_connections"),
    "without rights": (without_rights, "the role lacks rights; grant it USAGE on the schema"),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_an_outage_is_said_clearly_loses_nothing_and_ends_by_itself(
    name: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await live_through(place, *OUTAGES[name], caplog)


async def test_a_full_disk_is_said_clearly_loses_nothing_and_is_over_when_there_is_space(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresServer(available_postgres()[0], temporary_folder(), {"autovacuum": "off"}) as server:
        place = Place(server, small_disk)
        await place.prepare()
        await live_through(place, without_space, "the server's disk is full; free space", caplog)


async def test_a_full_log_disk_is_said_clearly_loses_nothing_and_is_over_when_there_is_space(
    small_disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server crashes under the commit of a piece and cannot recover: how that ended can be asked only after."""
    monkeypatch.setattr(transactions, "ASKING_SECONDS", 1.0)
    # The disk is met by whoever flushes the log: a commit of ours, and no duty of the server's own.
    duties: dict[str, str | int] = {"autovacuum": "off", "wal_writer_delay": "10s", "bgwriter_lru_maxpages": 0}
    settings = {**duties, "wal_keep_size": "1GB"}  # as if somebody had yet to read it: nothing of it is removed
    creation = ["--waldir", str(small_disk / "log"), "--wal-segsize", "1"]
    with PostgresServer(available_postgres()[0], temporary_folder(), settings, creation=creation) as server:
        place = Place(server, log_disk=small_disk)
        await place.prepare()
        advice, then = "the server's disk is full; free space, and start", "it cannot be reached; check that it runs"
        await live_through(place, without_log_space, advice, caplog, then=then)


async def live_through(
    place: Place, outage: Outage, advice: str, caplog: pytest.LogCaptureFixture, *, then: str | None = None
) -> None:
    """See that whoever meets the outage is given *advice*, whoever comes later *then*, and that all is well after."""
    async with shop_at(place.url) as shop:
        client = shop.client
        order, visitor = await client.start("order"), await client.start("visitor")
        await shop.door.reached()
        await until(lambda: is_parked(client, order.id))
        with caplog.at_level(logging.WARNING, "bide.engine"):
            async with outage(place):
                taken, refusal = await fill_up(client, order.id)
                assert advice in refusal
                assert place.database in refusal
                assert "secret" not in refusal
                await the_program_says(place, then or advice)
                shop.door.open()  # the step ends now, and what it did cannot be committed
                await until(lambda: was_said(caplog, f"cannot commit {visitor.id} yet"))
        await until(lambda: answers(client))  # what is tried for 0.2 seconds only may meet connections that broke
        assert await client.result(visitor.id, timeout="2m") == "entered"
        pieces = len(await client.inbox(order.id))
        assert pieces == taken or ("is not known" in refusal and pieces == taken + 1), "what was acknowledged, no more"
        await send(client, order.id, taken)
        assert len(await client.inbox(order.id)) == taken + 1, "what was refused is sent again, and counts once"
        assert (await client.signal(order.id, "paid", 5, "payment")).outcome == "woke"
        assert await client.result(order.id, timeout="2m") == [5]
        assert (await client.start("order")).id != order.id
        assert shop.steps == {"knock": 1, "enter": 1, "ship": 1}, "no step ran twice"
        assert await shop.engine.runtime.store.audit() == []
    assert (await program("audit", "--store", place.url))[0] == 0


async def fill_up(client: Client, run_id: str) -> tuple[int, str]:
    """Send pieces until one is refused; how many were taken, and the refusal."""
    taken = 0
    while True:
        try:
            await send(client, run_id, taken)
        except StoreUnavailable as error:
            return taken, str(error)
        taken += 1


async def send(client: Client, run_id: str, number: int) -> None:
    await client.signal(run_id, "piece", blob(PIECE), f"piece-{number}")


async def the_program_says(place: Place, advice: str) -> None:
    for _ in range(20):  # a full disk may have room for a few more, and a server may take its time to stop
        code, said = await program("start", "keeper", f'"{blob(PIECE)}"', "--app", APP, "--store", place.url)
        if code != 0 and "starting up or shutting down" not in said:
            break
    assert code == 1
    assert said.startswith("error: ")
    assert advice in said
    assert "secret" not in said
    assert "Traceback" not in said


async def answers(client: Client) -> bool:
    try:
        await client.runs()
    except StoreUnavailable:
        return False
    return True


async def is_parked(client: Client, run_id: str) -> bool:
    return (await client.get(run_id)).status == "waiting"


async def was_said(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


# ---------------------------------------------------------------- stores that are not ours to open


async def test_a_database_made_by_a_newer_bide_is_left_alone_until_it_fits(place: Place) -> None:
    app = bide.App("late", store=place.url)
    async with shop_at(place.url) as shop:
        await place.command("INSERT INTO bide.schema_versions (version) VALUES (99)")
        with pytest.raises(SchemaTooNew, match=r"has schema 99.*made by a newer bide: upgrade this one"):
            await app.client().runs()
        with pytest.raises(SchemaTooNew):
            async with app.engine():
                pytest.fail("an engine must not work on what it does not understand")
        verbs = (["runs"], ["audit"], ["migrate"], ["worker", APP])
        for code, said in await asyncio.gather(*(program(*verb, "--store", place.url) for verb in verbs)):
            assert (code, said[:7], said.count("\n")) == (1, "error: ", 1), said
            assert "made by a newer bide" in said
            assert "secret" not in said
        code, said = await program("doctor", "--store", place.url)
        assert (code, "made by a newer bide" in " ".join(said.split())) == (1, True), said
        order = await shop.client.start("order")  # who was there before works on what it knew
        await place.command("DELETE FROM bide.schema_versions WHERE version = 99")
        assert [run.id for run in await app.client().runs()] == [order.id]
        await app.close()


async def test_a_role_that_may_not_create_tables_is_told_so_when_it_migrates(place: Place) -> None:
    code, said = await program("migrate", "--store", f"{place.url}?schema=another")
    assert (code, said[:7], said.count("\n")) == (1, "error: ", 1), said
    assert "permission denied" in said
    await place.command(f"GRANT CREATE ON DATABASE {place.database} TO {ROLE}")
    assert (await program("migrate", "--store", f"{place.url}?schema=another"))[0] == 0
    assert (await program("audit", "--store", f"{place.url}?schema=another"))[0] == 0


async def test_a_database_without_tables_says_how_to_make_them(place: Place) -> None:
    code, said = await program("runs", "--store", f"{place.url}?schema=another")
    assert (code, said.count("\n")) == (1, 1), said
    assert "run `bide migrate`" in said


async def test_a_wrong_address_is_said_clearly(place: Place) -> None:
    changes = {
        ("/shop", "/nothing"): "there is no such database; create it or correct the store URL",
        (ROLE, "nobody"): "the role was refused; check the user in the store URL",
        ("127.0.0.1:", "127.0.0.1:1"): "port out of range",
        ("127.0.0.1", "nowhere.invalid"): "check that it runs and that host and port in the store URL are right",
    }
    urls = {place.url.replace(*change): advice for change, advice in changes.items()}
    for url, advice in urls.items():
        with pytest.raises(bide.BideError) as raised:
            await bide.App("lost", store=url).client().runs()
        assert advice in str(raised.value).replace("Port", "port")
        assert "secret" not in str(raised.value)
    for code, said in await asyncio.gather(*(program("worker", APP, "--store", url) for url in urls)):
        assert (code, said[:7], said.count("\n")) == (1, "error: ", 1), said
        assert "secret" not in said
