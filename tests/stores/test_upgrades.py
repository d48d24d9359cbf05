"""A store that an earlier bide left, with rows in its tables: after the upgrade they are all there, and runs go on.

The rows are made by the bide of today and put into the tables as they were after an earlier migration, without what
those did not have. A run is only made where the tables of that day could hold it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

import bide
from bide.core import ledger
from bide.core.access import Key, Secret, Workspace
from bide.core.requests import SettleDeadLetter
from bide.errors import BadConfiguration
from bide.stores.pages import PLAIN, SEALED_PAGE, unpack
from bide.stores.postgres import migrate
from bide.stores.postgres.statements import migrations
from bide.stores.sealing import PREFIX
from bide.stores.sqlite.connection import connect_to_write
from bide.stores.sqlite.statements import MIGRATIONS
from bide.testing import world
from bide.testing.world import World
from tests.support.postgres import Server, connect, fresh_schema, split_schema

Ctx = bide.Context[Any]
Rows = dict[str, list[dict[str, Any]]]

# Where several are named, each is the last before one that builds a table anew or changes what is in it.
POSTGRES_STARTS = {"first": 1, "before smaller rows": 4, "before units": 8, "before the stream": 11}
SQLITE_STARTS = {"first": 1, "before waits of any kind": 3, "before the stream": 10, "before quicker checks": 13}
# Those whose tables say under which keys payloads are encrypted.
SEALED_POSTGRES_STARTS = {name: newest for name, newest in POSTGRES_STARTS.items() if newest >= 11}
SEALED_SQLITE_STARTS = {name: newest for name, newest in SQLITE_STARTS.items() if newest >= 10}


# ---------------------------------------------------------------- places


class Place(Protocol):
    """A store of today and beside it an older one."""

    today: str
    older: str

    async def make_older(self, newest: int) -> frozenset[str]:
        """Make the tables as they were after that migration; their names."""

    async def fill_older(self) -> None:
        """Put what the store of today holds into the older one."""

    async def rows(self, url: str) -> Rows:
        """Every row of a store that is up to date, in words that both have."""


class OnPostgres:
    def __init__(self, today: str, older: str, patch: pytest.MonkeyPatch) -> None:
        self.today, self.older, self._patch = today, older, patch
        self._newest = 0

    async def make_older(self, newest: int) -> frozenset[str]:
        self._newest = newest
        with self._patch.context() as patched:
            known = {number: text for number, text in migrations().items() if number <= newest}
            patched.setattr("bide.stores.postgres.schema.migrations", lambda: known)
            await migrate(self.older)
        return frozenset(await self._columns(self.older))

    async def fill_older(self) -> None:
        (_, source), (_, target) = split_schema(self.today), split_schema(self.older)
        has, had = await self._columns(self.today), await self._columns(self.older)
        was_plain = self._newest < 5  # heads and pages were texts, a state was always there, and a wait had a timer
        plain = {
            ("runs", "ledger_head"): "encode(ledger_head, 'hex')",
            ("runs", "state"): "coalesce(state, input)",
        }
        connection = await connect(self.older)
        for table in had.keys() - {"schema_versions", "ledger"}:
            names = [name for name in had[table] if name in has[table]]
            values = [plain.get((table, name), f'"{name}"') if was_plain else f'"{name}"' for name in names]
            into = ", ".join(f'"{name}"' for name in names)
            await connection.execute(
                f"INSERT INTO {target}.{table} ({into}) OVERRIDING SYSTEM VALUE"
                f" SELECT {', '.join(values)} FROM {source}.{table}"
            )
        if was_plain:
            await connection.execute(
                "INSERT INTO timers (run_id, no, due_at) SELECT run_id, no, due_at FROM waits WHERE due_at IS NOT NULL"
            )
        for run_id, seq, page in await connection.fetch(f"SELECT run_id, seq, entries FROM {source}.ledger"):
            kept = unpack(page) if was_plain else _plain(page)
            await connection.execute("INSERT INTO ledger (run_id, seq, entries) VALUES ($1, $2, $3)", run_id, seq, kept)
        await connection.close()

    async def rows(self, url: str) -> Rows:
        connection = await connect(url)
        found: Rows = {}
        for table in await self._columns(url):
            rows = await connection.fetch(f"SELECT to_jsonb(each) FROM {table} AS each")
            found[table] = _comparable(table, [json.loads(row) for (row,) in rows])
        pages = await connection.fetch("SELECT run_id, seq, entries FROM ledger")
        found["ledger"] = _pages([tuple(page) for page in pages])
        await connection.close()
        return found

    async def _columns(self, url: str) -> dict[str, list[str]]:
        connection = await connect(url)
        found: dict[str, list[str]] = {}
        for table, name in await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1",
            split_schema(url)[1],
        ):
            found.setdefault(table, []).append(name)
        await connection.close()
        return found


class OnSqlite:
    def __init__(self, folder: Path) -> None:
        self._today, self._older = str(folder / "today.db"), str(folder / "older.db")
        self.today, self.older = f"sqlite:///{self._today}", f"sqlite:///{self._older}"

    async def make_older(self, newest: int) -> frozenset[str]:
        connection = connect_to_write(self._older, "OFF")
        for number in range(1, newest + 1):
            connection.execute(MIGRATIONS[number])
        connection.pragma("user_version", newest)
        tables = frozenset(self._columns(connection))
        connection.close()
        return tables

    async def fill_older(self) -> None:
        source, target = apsw.Connection(self._today), apsw.Connection(self._older)
        has, had = self._columns(source), self._columns(target)
        for table, columns in had.items():
            names = [name for name in columns if name in has[table]]
            into = ", ".join(f'"{name}"' for name in names)
            marks = ", ".join("?" for _ in names)
            for row in source.execute(f"SELECT {into} FROM {table}"):
                values = [_plain(value) if name == "entries" else value for name, value in zip(names, row, strict=True)]
                target.execute(f"INSERT INTO {table} ({into}) VALUES ({marks})", values)
        source.close()
        target.close()

    async def rows(self, url: str) -> Rows:
        connection = apsw.Connection(self._today if url == self.today else self._older)
        found: Rows = {}
        for table, names in self._columns(connection).items():
            columns = ", ".join(f'"{name}"' for name in names)
            rows = [dict(zip(names, row, strict=True)) for row in connection.execute(f"SELECT {columns} FROM {table}")]
            found[table] = (
                _pages([(r["run_id"], r["seq"], r["entries"]) for r in rows])
                if table == "ledger"
                else (_comparable(table, rows))
            )
        connection.close()
        return found

    def _columns(self, connection: apsw.Connection) -> dict[str, list[str]]:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {
            str(table): [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
            for (table,) in list(tables)
        }


def _plain(page: Any) -> bytes:
    """As an earlier bide kept it; what is sealed stays as it is."""
    return page if page[:1] == SEALED_PAGE else PLAIN + unpack(page).encode()


def _comparable(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the dates of migrations, and with a state where NULL says that it is the input."""
    if table == "schema_versions":
        return []
    if table == "runs":
        rows = [{**row, "state": row["state"] if row["state"] is not None else row["input"]} for row in rows]
    return sorted(rows, key=repr)


def _pages(pages: list[tuple[str, int, bytes]]) -> list[dict[str, Any]]:
    return [
        {"run": run, "seq": seq, "text": page.hex() if page[:1] == SEALED_PAGE else unpack(page)}
        for run, seq, page in sorted(pages)
    ]


@pytest.fixture
def on_postgres(postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnPostgres]:
    with fresh_schema(postgres_server.url()) as today, fresh_schema(postgres_server.url()) as older:
        yield OnPostgres(today, older, monkeypatch)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> OnSqlite:
    return OnSqlite(tmp_path)


@pytest.fixture
def world_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[bide.App, str], Any]:
    """A world in a place that stays."""

    @asynccontextmanager
    async def as_it_is(url: str) -> AsyncIterator[str]:
        yield url

    monkeypatch.setattr(sys.modules[World.__module__], "fresh_store", as_it_is)
    return lambda app, url: world(app, url)


# ---------------------------------------------------------------- the story


def shop(broken: list[bool], told: list[str | None], codec: bide.Codec | None = None) -> bide.App:
    app = bide.App(codec=codec)

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="ship", timeout="1h")

        async def ship(self, ctx: Ctx) -> bide.Done:
            return bide.Done("too late" if ctx.timed_out else [signal.payload for signal in ctx.awaited])

    @app.machine("basket")
    class Basket:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([bide.Child("order", 1, correlation_key="child")], then="together")

        async def together(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    @app.machine("room", cancel_grace="1h")
    class Room:
        @bide.start
        async def book(self, ctx: Ctx) -> bide.Await:
            return bide.Await("left", then="clean")

        async def clean(self, ctx: Ctx) -> bide.Done:
            return bide.Done("clean")

        async def on_cancel(self, ctx: Ctx) -> bide.Await:
            return bide.Await("left", then="clean")

    @app.workflow("letter")
    async def letter(step: bide.Step, name: str) -> list[Any]:
        draft = await step.run("draft", lambda: f"dear {name}")
        return [draft, await step.wait_for_signal("gate", signal=f"gate-{name}", timeout="1h", returns=str)]

    @app.workflow("review")
    async def review(step: bide.Step, name: str) -> Any:
        return await step.ask("review", title="Is it good?", form=bool, timeout="1h", notify="mail")

    @app.notifier
    def mail(task: bide.Task) -> None:
        if broken:
            raise ValueError("it is broken, too")
        told.append(task.title)

    @app.workflow("listener")
    async def listener(step: bide.Step, name: str) -> Any:
        event = await step.wait_for_event("shipped", event="order.shipped", match="data.n == 7", timeout="1h")
        return event.data

    @app.workflow("quotes")
    async def quotes(step: bide.Step, names: list[str]) -> list[int]:
        return await step.request_each("quotes", names, transport="interaction-api", timeout="1h", returns=int)

    def work(number: int) -> int:
        if number == 1 and broken:
            raise ValueError("it is broken")
        return number * 10

    app.pipeline("sums").expand(range).map(work, retry=bide.RetryPolicy(attempts=1)).collect(list)
    return app


async def begin(w: World, tables: frozenset[str]) -> None:
    """One run of each kind that the tables have room for, and what else they keep."""
    for key in ("paid", "late"):
        await w.start("order", 1, correlation_key=key)
    await w.signal("late", "other", "nobody waits for it", dedup_key="d1")
    await w.start("order", 1, correlation_key="delayed", delay="30m")
    await w.start("basket", correlation_key="basket")
    room = await w.start("room", correlation_key="room")
    await w.cancel(room.id, reason="a flood")
    ended = await w.start("order", 2)
    await w.signal(ended.id, "paid", "at once")
    assert (await w.signal(ended.id, "paid", "again", check=False)).outcome == "no_target"
    if "steps" in tables:
        await w.start("letter", "ann", correlation_key="letter")
    if "interactions" in tables:
        await w.start("review", "ann", correlation_key="review")
    if "event_waits" in tables:
        await w.start("listener", "ann", correlation_key="listener")
        await w.emit("order.shipped", {"n": 1}, id="evt-1")
    if "items" in tables:
        await w.start("sums", 3, correlation_key="sums")
    if "units" in tables:
        quotes = await w.start("quotes", ["ann", "bob"], correlation_key="quotes")
        await w.answer((await w.interactions(run_id=quotes.id))[0].id, 1)
    if "keys" in tables:
        await w.runtime.store.add_workspace(Workspace("other", w.now))
        await w.runtime.store.add_key(a_key(w.now))
        await w.runtime.store.secrets(Secret("s1", "abc", w.now))
    if "intake" in tables:
        async with w.connection() as connection:
            await w.client().start("order", 3, correlation_key="left", connection=connection)


async def go_on(w: World, tables: frozenset[str]) -> dict[str, Any]:
    """What each of them comes to when its answer comes, or its time has passed."""
    await w.advance("10m")  # what failed before is tried again
    await w.signal("paid", "paid", "by card")
    await w.signal("child", "paid", "by the child")
    assert (await w.get("room")).status == "waiting", "nobody leaves it: its clean-up ends when its time is over"
    assert (await w.signal("late", "other", "nobody waits for it", dedup_key="d1")).outcome == "duplicate"
    if "steps" in tables:
        await w.complete("gate-ann", "come in")
    if "interactions" in tables:
        [task] = [wait for wait in await w.waits() if wait.kind == "task"]
        await w.answer(task.id, True, by="ann")
    if "event_waits" in tables:
        assert (await w.emit("order.shipped", {"n": 1}, id="evt-1")).outcome == "duplicate"
        await w.emit("order.shipped", {"n": 7}, id="evt-2")
    if "units" in tables:
        [second] = [item for item in await w.interactions(status="waiting") if item.step == "quotes"]
        await w.answer(second.id, 2)
    if "items" in tables:
        [letter] = await w.runtime.store.dead_letters("default", after=None, limit=9)
        command = SettleDeadLetter(workspace="default", run_id=letter.run_id, id=letter.id, action="retry")
        await w.runtime.committer.submit(command)
    await w.advance("2h")
    return {
        run.correlation_key: run.result if run.status == "completed" else run.status
        for run in await w.runs()
        if run.correlation_key
    }


COMES_TO: dict[str, tuple[str, Any]] = {
    "paid": ("runs", ["by card"]),
    "late": ("runs", "too late"),
    "child": ("runs", ["by the child"]),
    "basket": ("runs", [["by the child"]]),
    "room": ("runs", "cancelled"),
    "left": ("intake", "too late"),
    "letter": ("steps", ["dear ann", "come in"]),
    "review": ("interactions", True),
    "listener": ("event_waits", {"n": 7}),
    "sums": ("items", [0, 10, 20]),
    "delayed": ("runs", "too late"),
    "quotes": ("units", [1, 2]),
}


# What every upgrade finds rows in, where that table was there, and the one that its rows come from. Those of
# `sealing_keys` are in the upgrades of what is encrypted.
FILLED = {
    **dict.fromkeys(("runs", "waits", "inbox", "names", "ledger", "unused", "queue", "timers"), "runs"),
    "intake": "intake",
    "steps": "steps",
    "interactions": "interactions",
    "chores": "interactions",  # what a notifier could not be told yet
    "units": "units",
    "items": "items",
    "dead_letters": "items",
    **dict.fromkeys(("workspaces", "keys", "secrets"), "keys"),
    **dict.fromkeys(("streams", "events", "event_waits"), "event_waits"),
}


def a_key(now: datetime) -> Key:
    return Key(
        id="key_1", workspace="default", hash="h" * 64, name="ours", scopes=("read",), created_at=now,
        expires_at=now + timedelta(days=9),
    )  # fmt: skip


@pytest.mark.parametrize("newest", POSTGRES_STARTS.values(), ids=POSTGRES_STARTS)
async def test_what_an_older_schema_of_postgresql_holds_goes_on_after_the_upgrade(
    on_postgres: OnPostgres, newest: int, world_at: Callable[[bide.App, str], Any]
) -> None:
    await upgrade(on_postgres, newest, world_at)


@pytest.mark.parametrize("newest", SQLITE_STARTS.values(), ids=SQLITE_STARTS)
async def test_what_an_older_file_of_sqlite_holds_goes_on_after_the_upgrade(
    on_sqlite: OnSqlite, newest: int, world_at: Callable[[bide.App, str], Any]
) -> None:
    await upgrade(on_sqlite, newest, world_at)


@pytest.mark.parametrize("newest", SEALED_POSTGRES_STARTS.values(), ids=SEALED_POSTGRES_STARTS)
async def test_what_an_older_schema_of_postgresql_holds_encrypted_is_opened_after_the_upgrade(
    on_postgres: OnPostgres, newest: int, world_at: Callable[[bide.App, str], Any]
) -> None:
    await upgrade_encrypted(on_postgres, newest, world_at)


@pytest.mark.parametrize("newest", SEALED_SQLITE_STARTS.values(), ids=SEALED_SQLITE_STARTS)
async def test_what_an_older_file_of_sqlite_holds_encrypted_is_opened_after_the_upgrade(
    on_sqlite: OnSqlite, newest: int, world_at: Callable[[bide.App, str], Any]
) -> None:
    await upgrade_encrypted(on_sqlite, newest, world_at)


async def upgrade_encrypted(place: Place, newest: int, world_at: Callable[[bide.App, str], Any]) -> None:
    """With the key all goes on; without it, or with another of its name, the store is still known to need it."""
    await upgrade(place, newest, world_at, bide.AesGcm({"ours": bide.AesGcm.new_key()}))
    rows = await place.rows(place.older)
    assert [key["id"] for key in rows["sealing_keys"]] == ["ours"]
    orders = [run for run in rows["runs"] if run["definition"] == "order"]
    assert all(run["input"].startswith(f"{PREFIX}ours:") for run in orders)
    another = bide.AesGcm({"ours": bide.AesGcm.new_key()})
    for codec, refusal in ((None, "encrypted under the payload key 'ours'"), (another, "'ours' is not the one")):
        with pytest.raises(BadConfiguration, match=refusal):
            async with world_at(shop([], [], codec), place.older):
                pytest.fail("what it holds cannot be read")


async def upgrade(
    place: Place, newest: int, world_at: Callable[[bide.App, str], Any], codec: bide.Codec | None = None
) -> None:
    broken, told = [True], list[str | None]()
    app = shop(broken, told, codec)
    tables = await place.make_older(newest)
    async with world_at(app, place.today) as w:
        await begin(w, tables)
        rows, moment = await place.rows(place.today), w.now
        await place.fill_older()
    filled = {table for table, kept in rows.items() if kept}
    assert {table for table, needed in FILLED.items() if {table, needed} <= tables} <= filled
    assert 0 in {timer["no"] for timer in rows["timers"]}, "the end of a clean-up, which belongs to no wait"
    assert filled - tables <= {"secrets"}, "what those tables cannot hold, but for what is made anew"
    broken.clear()
    async with world_at(app, place.older) as w:
        w.clock.set(moment)
        kept = await place.rows(place.older)
        assert {table: kept[table] for table in tables} == {table: rows[table] for table in tables}
        assert await w.audit() == []
        assert await go_on(w, tables) == {key: result for key, (table, result) in COMES_TO.items() if table in tables}
        assert told == (["Is it good?"] if "interactions" in tables else [])
        for run in await w.runs():
            row, pages = await w.runtime.store.run("default", run.id), await w.runtime.store.ledger(run.id)
            assert row is not None
            assert ledger.verify([(page.seq, page.entries) for page in pages], row.ledger_head, row.ledger_seq) is None
