"""Payloads at rest are encrypted: nothing of them is in the file or the tables, and keys can be changed (G4)."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql

import bide
from bide.core import records
from bide.errors import BadConfiguration, PayloadUnreadable
from bide.stores.interface import Store
from bide.stores.postgres import PostgresStore
from bide.stores.sealing import SEALED
from bide.stores.sqlite import SqliteStore
from bide.testing import World, world
from bide.testing.store_contract.making import a_start, an_offer, reply_to
from tests.support.worlds import ledger_names

CANARY = "canary-4111-1111"
OLD, NEW = b64encode(b"old " * 8).decode(), b64encode(b"new " * 8).decode()


def talkative(codec: bide.Codec | None) -> bide.App:
    """An app that puts the canary wherever a payload can be."""
    app = bide.App(codec=codec)

    @app.notifier
    def mail(task: bide.Task) -> None:
        raise ValueError(f"no mail about {CANARY}")

    @app.workflow("pay", retries=0)
    async def pay(step: bide.Step, order: dict[str, Any]) -> Any:
        card = await step.run("charge", lambda: {"card": order["card"]})
        await step.wait_for_signal("bank", signal=f"bank-{step.run_id}", timeout="1h")
        match = f"data.card.startsWith('{CANARY}')"
        await step.wait_for_event("shipped", event="shipped", match=match, timeout="1h")
        await step.ask(
            "ok", title=f"May {CANARY} be paid?", form=dict, notify="mail", timeout="9d", shown={"card": CANARY}
        )
        if order.get("bad"):
            raise ValueError(f"{CANARY} was refused")
        return card

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end", state={"kept": ctx.state})

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done([ctx.state, ctx.awaited[0].payload])

    app.pipeline("rows").expand(lambda cards: cards).map(lambda card: {"row": card}).collect(list)
    return app


async def talk(there: World) -> None:
    """Leave the canary in every table, and see that it is used."""
    for bad in (False, True):
        run = await there.start("pay", {"card": CANARY, "bad": bad})
        await there.complete(f"bank-{run.id}", {"card": CANARY})
        await there.emit("shipped", {"card": CANARY}, id=f"{CANARY.upper()}-{bad}")
        await there.signal(run.id, "unread", {"card": CANARY})
        [task] = await there.interactions(run_id=run.id)
        assert CANARY in str(task)
        if not bad:
            await there.advance("1d")  # the notifier fails as often as it may
            assert CANARY in str(await there.dead_letters())
        await there.answer(task.id, {"card": CANARY}, by="ann")
        info = await there.get(run.id)
        assert info.status == ("failed" if bad else "completed")
        assert CANARY in str(info.error if bad else await there.result(run.id))
    order = await there.start("order", {"card": CANARY})
    await there.signal(order.id, "other", {"card": CANARY}, dedup_key="once")
    gone = await there.start("order", {"card": CANARY})
    await there.cancel(gone.id, reason=f"no {CANARY}")
    await there.signal("nobody", "paid", {"card": CANARY}, check=False)
    assert CANARY in str(await there.unused())
    async with there.connection() as connection:
        joined = await there.client().start("order", {"card": CANARY}, connection=connection)
    await there.settle()
    await there.signal(joined.id, "paid", CANARY)
    assert await there.result(joined.id) == [{"kept": {"card": CANARY}}, CANARY]
    rows = await there.start("rows", [CANARY])
    assert await there.result(rows.id) == [{"row": CANARY}]
    assert CANARY in str(await there.ledger(order.id))
    waiting = await there.start("pay", {"card": CANARY})
    await there.complete(f"bank-{waiting.id}", {"card": CANARY})
    await there.complete("bank-of-nobody", {"card": CANARY}, dedup_key="once", hold="99d")
    async with there.connection() as connection:  # left, and not admitted yet
        await there.client().start("order", {"card": CANARY}, connection=connection)


def rows_at_rest(there: World) -> dict[str, bytes]:
    """Every row of every table, as text and with its bytes."""
    store = there.runtime.store
    if isinstance(store, SqliteStore):
        file = apsw.Connection(store.path)
        names = [str(name) for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: list(file.execute(f'SELECT * FROM "{name}"')) for name in names}
        file.close()
        return {name: _bytes(rows) for name, rows in found.items()}
    assert isinstance(store, PostgresStore)
    address = store._address
    with psycopg.connect(address.dsn) as server:
        tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [address.schema]).fetchall()
        queries = {name: sql.SQL("SELECT * FROM {}").format(sql.Identifier(address.schema, name)) for (name,) in tables}
        return {name: _bytes(server.execute(query).fetchall()) for name, query in queries.items()}


def _bytes(rows: Iterable[tuple[Any, ...]]) -> bytes:
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row if value is not None
    )


def file_at_rest(there: World) -> bytes:
    """Everything that lies on the disk, the write-ahead log too; nothing for PostgreSQL, whose rows are looked at."""
    store = there.runtime.store
    if not isinstance(store, SqliteStore):
        return b""
    place = Path(store.path)
    return b"".join(path.read_bytes() for path in place.parent.iterdir() if path.name.startswith(place.name))


@pytest.fixture(params=["sqlite", "postgres"])
def kept_url(request: pytest.FixtureRequest) -> str:
    """A store that outlives its process."""
    if request.param == "sqlite":
        return "sqlite://"
    return str(request.getfixturevalue("postgres_server").url())


async def test_G4_nothing_of_a_payload_is_found_where_it_rests(kept_url: str) -> None:
    async with world(talkative(bide.AesGcm({"k": NEW})), kept_url) as there:
        await talk(there)
        rest = rows_at_rest(there)
        assert [name for name, found in rest.items() if CANARY.encode() in found] == []
        assert CANARY.encode() not in file_at_rest(there)
        pages = [page for run in await there.runs() for page in await there.runtime.store.ledger(run.id)]
        assert rest["ledger"].count(b"\3k:") == len(pages)  # packed, so a canary in them would hide
        assert CANARY in str(pages)
        assert await there.audit() == []


async def test_G4_without_a_codec_the_canary_is_in_every_table_that_has_payloads(kept_url: str) -> None:
    """So that the test above can fail."""
    async with world(talkative(None), kept_url) as there:
        await talk(there)
        found = {name for name, rows in rows_at_rest(there).items() if CANARY.encode() in rows}
        hidden = {"ledger", "names", "chores"}  # packed; digests; done by then
        assert found | hidden >= {place.table for place in SEALED.values()} | {"intake"}


def test_G4_every_field_is_sealed_or_known_to_hold_no_payload() -> None:
    """A new field must be decided about: a name that statements ask for, or somebody's data."""
    plain = {
        "Run": "workspace id definition version style status step held queue correlation_key correlation_scope "
        "parent_id retry_of tags ledger_head open_waits redact trace",
        "Wait": "workspace run_id key kind status names on_timeout seen partial",
        "Interaction": "workspace run_id status definition step correlation_id transport channel assignee group "
        "claimed_by answered_by",
        "Item": "run_id status key",
        "Unit": "run_id",
        "Signal": "workspace run_id id name",
        "Name": "workspace kind name run_id",
        "EventRow": "workspace id name channel",
        "Listener": "run_id workspace topic eq pattern channel",
        "QueueEntry": "run_id queue worker",
        "Timer": "run_id",
        "StepRow": "run_id key kind status",
        "LedgerPage": "run_id",
        "Chore": "id run_id kind workspace",
        "DeadLetter": "workspace id run_id kind",
        "Unused": "workspace id run_id target name",
    }
    for name, record in inspect.getmembers(records, inspect.isclass):
        if not issubclass(record, records.Record) or record is records.Record:
            continue
        hints = inspect.get_annotations(record)
        texts = {field for field in record.__struct_fields__ if not set(_words(hints[field])) <= WITHOUT_TEXT}
        sealed = set(SEALED[record].fields) if record in SEALED else set()
        assert texts - sealed == set(plain[name].split()), f"decide about the fields of {name}"


WITHOUT_TEXT = {"int", "float", "bool", "datetime", "None"}


def _words(hint: Any) -> list[str]:
    return [part.strip() for part in str(hint).split("|")]


# ---------------------------------------------------------------- keys


class Places:
    """One store, opened again and again with other keys."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, keys: str = "") -> Store:
        codec = bide.AesGcm.parse(keys) if keys else None
        store: SqliteStore | PostgresStore
        if self.url.startswith("postgres"):
            store = PostgresStore(self.url, migrate=True, hints=False, codec=codec)
        else:
            store = SqliteStore(self.url, codec=codec)
        await store.open()
        return store

    async def started(self, keys: str, id: str, input: str) -> str:
        store = await self.open(keys)
        await reply_to(store, a_start(id, input=input))
        await store.close()
        return await self.column("input", id)

    async def input(self, keys: str, id: str) -> str:
        store = await self.open(keys)
        try:
            run = await store.run("default", id)
            assert run is not None
            assert [page.seq for page in await store.ledger(id)] == [1]
            return run.input
        finally:
            await store.close()

    async def column(self, name: str, id: str) -> str:
        return str((await self.execute(f"SELECT {name} FROM runs WHERE id = '{id}'"))[0][0])

    async def execute(self, statement: str) -> list[Any]:
        if not self.url.startswith("postgres"):
            connection = apsw.Connection(self.url)
            try:
                return list(connection.execute(statement))
            finally:
                connection.close()
        schema = self.url.partition("schema=")[2]
        with psycopg.connect(self.url.partition("?")[0]) as server:
            server.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
            cursor = server.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "sqlite":
        return Places(str(tmp_path / "bide.db"))
    return Places(request.getfixturevalue("postgres_url"))


async def test_G4_after_a_rotation_old_rows_open_and_new_ones_have_the_new_key(places: Places) -> None:
    assert (await places.started(f"old:{OLD}", "run_1", '"one"')).startswith("bide:sealed:old:")
    both = f"new:{NEW},old:{OLD}"
    assert (await places.started(both, "run_2", '"two"')).startswith("bide:sealed:new:")
    assert [await places.input(both, id) for id in ("run_1", "run_2")] == ['"one"', '"two"']


async def test_G4_a_key_that_is_needed_and_missing_is_named_at_the_start(places: Places) -> None:
    await places.started(f"old:{OLD}", "run_1", '"one"')
    with pytest.raises(BadConfiguration, match="'old', which is not given"):
        await places.open(f"new:{NEW}")
    with pytest.raises(BadConfiguration, match="encrypted under the payload key 'old'"):
        await places.open()
    with pytest.raises(BadConfiguration, match="'old' is not the one that this store was sealed with"):
        await places.open(f"old:{NEW}")
    assert await places.input(f"old:{OLD}", "run_1") == '"one"'


async def test_G4_a_key_that_nothing_needs_any_more_may_go(places: Places) -> None:
    await places.started(f"old:{OLD}", "run_1", '"one"')
    for table in ("queue", "ledger", "runs"):
        await places.execute(f"DELETE FROM {table}")
    await (await places.open(f"new:{NEW}")).close()
    assert [id for (id,) in await places.execute("SELECT id FROM sealing_keys")] == ["new"]


async def test_G4_encryption_is_turned_on_and_off_while_rows_are_there(places: Places) -> None:
    assert await places.started("", "run_1", '"one"') == '"one"'
    assert (await places.started(f"k:{NEW}", "run_2", '"two"')).startswith("bide:sealed:k:")
    assert await places.started(f"plain,k:{NEW}", "run_3", '"three"') == '"three"'
    for keys in (f"k:{NEW}", f"plain,k:{NEW}"):
        assert [await places.input(keys, f"run_{n}") for n in (1, 2, 3)] == ['"one"', '"two"', '"three"']


async def test_G4_what_is_moved_to_another_row_does_not_open(places: Places) -> None:
    keys = f"k:{NEW}"
    for id, input in (("run_1", '"one"'), ("run_2", '"two"')):
        await places.started(keys, id, input)
    stolen = await places.column("input", "run_1")
    await places.execute(f"UPDATE runs SET input = '{stolen}', state = '{stolen}' WHERE id = 'run_2'")
    with pytest.raises(PayloadUnreadable, match="of runs run_2 does not open under the key 'k'"):
        await places.input(keys, "run_2")
    assert await places.input(keys, "run_1") == '"one"'


async def test_G4_a_row_that_does_not_open_does_not_stop_the_others(places: Places) -> None:
    keys = f"k:{NEW}"
    for id in ("run_1", "run_2", "run_3"):
        await places.started(keys, id, '"x"')
    await places.execute(
        "UPDATE runs SET input = 'bide:sealed:k:AAAA', state = 'bide:sealed:k:AAAA' WHERE id = 'run_2'"
    )
    store = await places.open(keys)
    claimed = await store.claim(an_offer(slots=10))
    assert {turn.run.id for turn in claimed.turns.values()} == {"run_1", "run_3"}
    await store.close()


async def test_G4_the_ledger_of_another_run_does_not_open(places: Places) -> None:
    keys = f"k:{NEW}"
    for id in ("run_1", "run_2"):
        await places.started(keys, id, '"x"')
    await places.execute(
        "UPDATE ledger SET entries = (SELECT entries FROM ledger WHERE run_id = 'run_1') WHERE run_id = 'run_2'"
    )
    store = await places.open(keys)
    assert [(found.invariant, found.id) for found in await store.audit()] == [("I16", "run_2")]
    with pytest.raises(PayloadUnreadable, match="entries of ledger run_2/1"):
        await store.ledger("run_2")
    await store.close()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("k1", "no id"),
        ("k1:short", "has 3 bytes|not base64"),
        ("k1:AAAA", "has 3 bytes"),
        (f"k-1:{NEW}", "letters and digits"),
        (f"plain:{NEW}", "cannot have the id 'plain'"),
        (f"k1:{NEW},k1:{OLD}", "two payload keys"),
        ("plain", "no payload key"),
        (",", "no payload key"),
    ],
)
def test_G4_keys_that_cannot_be_used_are_refused_and_never_shown(keys: str, why: str) -> None:
    with pytest.raises(BadConfiguration, match=why) as refused:
        bide.AesGcm.parse(keys)
    assert NEW not in str(refused.value)
    assert NEW not in repr(bide.AesGcm({"k": NEW}))


async def test_G4_the_setting_turns_encryption_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_PAYLOAD_KEYS", f"k:{NEW}")
    app = bide.App(store=f"sqlite:///{tmp_path}/bide.db")
    app.machine("order")(type("Order", (), {"end": lambda self, ctx: bide.Done()}))
    async with app.opened():
        await app.client().start("order", {"card": CANARY})
    assert NEW not in repr(app.settings())
    assert CANARY not in str(await Places(f"{tmp_path}/bide.db").execute("SELECT input FROM runs"))


async def test_G4_ledgers_read_the_same_with_and_without_encryption(kept_url: str) -> None:
    names = []
    for codec in (None, bide.AesGcm({"k": NEW})):
        async with world(talkative(codec), kept_url) as there:
            run = await there.start("order", {"card": CANARY})
            await there.signal(run.id, "paid", {"card": CANARY})
            names.append(await ledger_names(there, run.id))
    assert names[0] == names[1]
