"""A ledger that was changed in the database itself: `ledger verify` finds it and names the first bad entry (G2)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

import bide
from bide.core import ledger
from bide.core.accounting import kept_of
from bide.core.ledger import Broken, Stored
from bide.core.records import LedgerPage, Run
from bide.stores.pages import pack
from bide.testing import World, world

CHANGES = 1000


def an_app() -> bide.App:
    app = bide.App()

    @app.machine("walk")
    class Walk:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> Any:
            return bide.Await("go", then="hop", state=0)

        def hop(self, ctx: bide.Context[Any]) -> Any:
            return bide.Done(ctx.state) if ctx.state == 5 else bide.Await("go", then="hop", state=ctx.state + 1)

    return app


async def execute(connection: Any, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    if not hasattr(connection, "fetch"):
        return list(await connection.execute(sql, parameters))
    for no in range(len(parameters)):
        sql = sql.replace("?", f"${no + 1}", 1)
    return [tuple(row) for row in await connection.fetch(sql, *parameters)]


class Tampering:
    """One transaction on the store's own tables: each change is looked at, and undone."""

    def __init__(self, connection: Any, rows: Any, run: Run, other: Run, pages: Sequence[LedgerPage]) -> None:
        self.connection, self.rows, self.run, self.other = connection, rows, run, other
        self.pages = {page.seq: ledger.decode_stored(page.entries) for page in pages}

    async def do(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await execute(self.connection, sql, *parameters)

    async def found(self) -> list[LedgerPage]:
        """As `Store.ledger` reads them, in this very transaction."""
        rows = await self.do("SELECT run_id, seq, entries FROM ledger WHERE run_id = ? ORDER BY seq", self.run.id)
        return [self.rows.page_as_found(row) for row in rows]

    async def flaw(self) -> Broken | None:
        pages = [(page.seq, page.entries) for page in await self.found()]
        return ledger.flaw(pages, self.run.ledger_head, self.run.ledger_seq, self.run.status)

    async def write(self, seq: int, entries: list[Stored]) -> None:
        await self.put(seq, pack(ledger.encode_page(entries)))

    async def put(self, seq: int, packed: bytes) -> None:
        await self.do("UPDATE ledger SET entries = ? WHERE run_id = ? AND seq = ?", packed, self.run.id, seq)

    async def insert(self, seq: int, entries: list[Stored]) -> None:
        packed = pack(ledger.encode_page(entries))
        await self.do("INSERT INTO ledger (run_id, seq, entries) VALUES (?, ?, ?)", self.run.id, seq, packed)


# ------------------------------------------------------------ changes; each tells the first entry that is not as it was


async def a_byte(there: Tampering, dice: random.Random) -> range:
    """Where it can still be read, the entry is known; else the page."""
    seq = dice.choice(list(there.pages))
    [(packed,)] = await there.do("SELECT entries FROM ledger WHERE run_id = ? AND seq = ?", there.run.id, seq)
    at = dice.randrange(len(packed))
    changed = packed[:at] + bytes([packed[at] ^ (1 << dice.randrange(8))]) + packed[at + 1 :]
    await there.put(seq, changed)
    text = there.rows.page_text(there.run.id, seq, changed)
    if text == ledger.encode_page(there.pages[seq]):
        return await a_byte(there, dice)  # a bit that fills the last byte up, and says nothing
    try:
        now = ledger.decode_stored(text)
    except ValueError:
        return range(seq, seq + len(there.pages[seq]))
    bad = [old.seq for old, new in zip(there.pages[seq], now, strict=False) if old != new]
    return only(bad[0]) if bad else range(seq, seq + len(there.pages[seq]))


async def a_field(there: Tampering, dice: random.Random) -> range:
    seq, at, entries = an_entry(there, dice)
    changes: dict[str, Callable[[Stored], Any]] = {
        "seq": lambda entry: entry.seq + dice.choice((-1, 1, 7)),
        "at": lambda entry: entry.at + dice.choice((-1, 1, 3_600_000_000)),
        "name": lambda entry: dice.choice(("step_retried", "run_held", "")),
        "actor": lambda entry: entry.actor + dice.choice("xyz"),
        "data": lambda entry: Raw(dice.choice((b"{}", b'{"to":"completed","step":"another"}'))),
        "hash": lambda entry: entry.hash[:-1] + ("0" if entry.hash[-1] != "0" else "1"),
    }
    field = dice.choice(list(changes))
    entries[at] = replace(entries[at], **{field: changes[field](entries[at])})
    await there.write(seq, entries)
    return only(there.pages[seq][at].seq)


async def an_entry_less(there: Tampering, dice: random.Random) -> range:
    seq, at, entries = an_entry(there, dice)
    del entries[at]
    await there.write(seq, entries)
    return only(there.pages[seq][at].seq)


async def another_number(there: Tampering, dice: random.Random) -> range:
    seq = dice.choice(list(there.pages))
    number = dice.choice([n for n in range(1, there.run.ledger_seq + 5) if n not in there.pages])
    await there.do("UPDATE ledger SET seq = ? WHERE run_id = ? AND seq = ?", number, there.run.id, seq)
    return only(min(seq, number))


async def a_row_less(there: Tampering, dice: random.Random) -> range:
    seq = dice.choice(list(there.pages))
    await there.do("DELETE FROM ledger WHERE run_id = ? AND seq = ?", there.run.id, seq)
    return only(seq)


async def two_rows_swapped(there: Tampering, dice: random.Random) -> range:
    one, two = sorted(dice.sample(list(there.pages), 2))
    await there.write(one, there.pages[two])
    await there.write(two, there.pages[one])
    return only(one)


async def no_tail(there: Tampering, dice: random.Random) -> range:
    seq = dice.choice(list(there.pages))
    await there.do("DELETE FROM ledger WHERE run_id = ? AND seq >= ?", there.run.id, seq)
    return only(seq)


async def a_longer_tail(there: Tampering, dice: random.Random) -> range:
    """Chained as it should be: whoever wrote it knows how that is done."""
    seq, at = there.run.ledger_seq + 1, there.pages[1][0].at
    moment = ledger.EPOCH + at * ledger.MICROSECOND
    entry = ledger.append(there.run.ledger_head, seq, moment, "run_completed", "client", {"to": there.run.status})
    await there.insert(seq, [entry])
    return only(seq)


async def a_row_twice(there: Tampering, dice: random.Random) -> range:
    seq = dice.choice(list(there.pages))
    number = dice.choice([n for n in range(1, there.run.ledger_seq + 1) if n not in there.pages])
    await there.insert(number, there.pages[seq])
    return only(number)


async def a_row_of_another(there: Tampering, dice: random.Random) -> range:
    """The row goes to another run, or that run's comes here."""
    seq = dice.choice(list(there.pages))
    await there.do("DELETE FROM ledger WHERE run_id = ? AND seq = ?", there.other.id, seq)
    await there.do("UPDATE ledger SET run_id = ? WHERE run_id = ? AND seq = ?", there.other.id, there.run.id, seq)
    return only(seq)


def only(seq: int) -> range:
    return range(seq, seq + 1)


def an_entry(there: Tampering, dice: random.Random) -> tuple[int, int, list[Stored]]:
    seq = dice.choice(list(there.pages))
    return seq, dice.randrange(len(there.pages[seq])), list(there.pages[seq])


KINDS = [
    *(a_byte, a_byte, a_byte, a_field, a_field, a_field, an_entry_less, another_number, a_row_less),
    *(two_rows_swapped, no_tail, a_longer_tail, a_row_twice, a_row_of_another),
]


@asynccontextmanager
async def tampering(url: str) -> AsyncIterator[Tampering]:
    async with world(an_app(), url) as there:
        store, runs = there.runtime.store, [await there.start("walk") for _ in range(2)]
        for _ in range(5):
            for run in runs:
                await there.signal(run.id, "go")
        rows = [await store.run("default", run.id) for run in runs]
        assert rows[0] is not None
        assert rows[1] is not None
        pages = await store.ledger(rows[0].id)
        assert len(pages) >= 6
        async with there.connection() as connection:
            if hasattr(connection, "fetch"):
                await connection.execute(f"SET search_path TO {vars(store)['_address'].schema}")
            yield Tampering(connection, vars(store)["_rows"], rows[0], rows[1], pages)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_random_single_changes_of_a_stored_ledger_are_all_found_and_the_first_bad_entry_named(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """1,000 of 1,000, on the rows themselves. The column `place` orders the stream of all runs and tells nothing."""
    url = "sqlite://" if kind == "sqlite" else str(request.getfixturevalue("postgres_server").url())
    dice = random.Random(7)
    async with tampering(url) as there:
        assert await there.flaw() is None
        for no in range(CHANGES):
            change = KINDS[no % len(KINDS)]
            await there.do("SAVEPOINT untouched")
            expected = await change(there, dice)
            broken = await there.flaw()
            assert broken is not None, f"{no} {change.__name__} of {expected} was not found"
            assert broken.seq in expected, f"{no} {change.__name__}: {broken}"
            await there.do("ROLLBACK TO SAVEPOINT untouched")
            await there.do("RELEASE SAVEPOINT untouched")
        assert await there.flaw() is None


# ------------------------------------------------------------ payloads, which the ledger has digests of


def paying(app: bide.App) -> bide.App:
    @app.workflow("pay", redact=["pin"], retries=0)
    async def pay(step: bide.Step, order: dict[str, Any]) -> Any:
        charged = await step.run("charge", lambda: {"pin": order["pin"], "sum": order["sum"]})
        await step.receive("gate", "go", timeout="1h")
        if order["sum"] < 0:
            raise ValueError("too little")
        return charged

    return app


PAYLOADS = {
    "the result of step charge is not": ("steps", "result", "run_id = ? AND key = 'charge'"),
    "input, result or error are not": ("runs", "input", "id = ?"),
    "result or error are not": ("runs", "result", "id = ? AND status = 'completed'"),
    "or error are not": ("runs", "error", "id = ? AND status = 'failed'"),
}


@pytest.mark.parametrize("sum", [5, -5], ids=["completed", "failed"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_payload_that_was_changed_in_the_rows_of_an_ended_run_is_found(
    kind: str, sum: int, request: pytest.FixtureRequest
) -> None:
    """`bide audit` finds it, and so does `bide ledger verify`, by the digests of steps and of the end."""
    url = "sqlite://" if kind == "sqlite" else str(request.getfixturevalue("postgres_server").url())
    async with world(paying(bide.App()), url) as there:
        run = await there.start("pay", {"sum": sum, "pin": "1234"})
        assert await there.audit() == []
        await there.signal(run.id, "go")
        assert (await there.audit(), await flaw_of(there, run.id)) == ([], None)
        changed = 0
        for said, (table, column, where) in PAYLOADS.items():
            found = await do(there, f"SELECT {column} FROM {table} WHERE {where}", run.id)
            for (before,) in found:
                other = before.replace("5", "6").replace("little", "much")
                await do(there, f"UPDATE {table} SET {column} = ? WHERE {where}", other, run.id)
                broken = await flaw_of(there, run.id)
                assert broken is not None, said
                assert said in broken.reason
                [told] = await there.audit()
                assert (told.startswith("I16"), said in told) == (True, True)
                await do(there, f"UPDATE {table} SET {column} = ? WHERE {where}", before, run.id)
                changed += 1
        assert (changed, await there.audit()) == (3, [])


# ------------------------------------------------------------ a tail that was cut and written anew, head and all


def forged(entries: list[Stored], run: Run, cut: int) -> tuple[list[Stored], Stored]:
    """The ledger up to an entry, with an end behind it that whoever has no secret can write."""
    kept, last = entries[:cut], entries[-1]
    at = ledger.EPOCH + last.at * ledger.MICROSECOND
    data = ledger.decode_page(ledger.encode_page([last]))[0].data
    return kept, ledger.append(kept[-1].hash, cut + 1, at, last.name, last.actor, data)


async def test_a_cut_tail_with_a_rewritten_head_is_found_where_ends_are_signed(store_url: str) -> None:
    """G2: the chain holds, and tells of the status and the payloads of the row; only the signature does not fit."""
    async with world(an_app(), store_url, ledger_secrets="2030:correct horse,2029:old") as there:
        run = await there.start("walk")
        for _ in range(6):
            await there.signal(run.id, "go")
        row = await there.runtime.store.run("default", run.id)
        assert row is not None
        assert row.status == "completed"
        pages = await there.runtime.store.ledger(run.id)
        entries = [entry for page in pages for entry in ledger.decode_stored(page.entries)]
        whole = ledger.decode_page(ledger.encode_page(entries))
        secrets = {"2030": "correct horse"}
        assert str(whole[-1].data["signed"]).startswith("2030:")
        assert ledger.unsigned(run.id, whole, secrets) is None
        assert ledger.unsigned("run_other", whole, secrets) is not None
        assert ledger.unsigned(run.id, whole, {"2031": "x"}) is not None
        for cut in range(1, len(entries) - 1):
            kept, end = forged(entries, row, cut)
            text = ledger.encode_page([*kept, end])
            status, payloads = row.status, kept_of(row)
            assert ledger.flaw([(1, text)], end.hash, end.seq, status, payloads) is None, "the chain holds"
            broken = ledger.unsigned(run.id, ledger.decode_page(text), secrets)
            assert broken is not None, cut
            assert (broken.seq, "it was cut" in broken.reason) == (cut + 1, True)
        assert await there.audit() == []


@pytest.mark.parametrize("how", ["cancel", "timeout", "fail"])
async def test_every_end_is_signed_and_nothing_is_without_a_secret(store_url: str, how: str) -> None:
    for secrets in ("1:a", ""):
        async with world(paying(bide.App()), store_url, ledger_secrets=secrets) as there:
            run = await there.start("pay", {"sum": -1, "pin": "1234"})
            if how == "cancel":
                await there.cancel(run.id)
            elif how == "timeout":
                await there.advance("2h")
            else:
                await there.signal(run.id, "go")
            entries = await there.ledger(run.id)
            assert [entry.seq for entry in entries if "signed" in entry.data] == [entries[-1].seq] * bool(secrets)
            pages = await there.runtime.store.ledger(run.id)
            found = [entry for page in pages for entry in ledger.decode_page(page.entries)]
            assert (ledger.unsigned(run.id, found, {"1": "a"}) is None) == bool(secrets)


async def flaw_of(there: World, run_id: str) -> Broken | None:
    """What `bide ledger verify` finds."""
    row = await there.runtime.store.run("default", run_id)
    assert row is not None
    pages = [(page.seq, page.entries) for page in await there.runtime.store.ledger(row.id, as_found=True)]
    kept = kept_of(row, await there.runtime.store.steps(row.id))
    return ledger.flaw(pages, row.ledger_head, row.ledger_seq, row.status, kept)


async def do(there: World, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Beside the store, in a transaction of its own."""
    async with there.connection() as connection:
        if hasattr(connection, "fetch"):
            await connection.execute(f"SET search_path TO {vars(there.runtime.store)['_address'].schema}")
        return await execute(connection, sql, *parameters)
