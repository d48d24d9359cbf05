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
from bide.core.ledger import Broken, Stored
from bide.core.records import LedgerPage, Run
from bide.stores.pages import pack
from bide.testing import world

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


class Tampering:
    """One transaction on the store's own tables: each change is looked at, and undone."""

    def __init__(self, connection: Any, rows: Any, run: Run, other: Run, pages: Sequence[LedgerPage]) -> None:
        self.connection, self.rows, self.run, self.other = connection, rows, run, other
        self.pages = {page.seq: ledger.decode_stored(page.entries) for page in pages}
        self.is_postgres = hasattr(connection, "fetch")

    async def do(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if not self.is_postgres:
            return list(await self.connection.execute(sql, parameters))
        for no in range(len(parameters)):
            sql = sql.replace("?", f"${no + 1}", 1)
        return [tuple(row) for row in await self.connection.fetch(sql, *parameters)]

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
