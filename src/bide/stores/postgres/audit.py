"""The audit: every row that breaks an invariant.

What the tables can be asked is one query per file `sql/audit_*.sql`, each on a snapshot of its own. What only the
ledgers tell is checked here, run by run, because a page that was tampered with must be found and not stop the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import asyncpg

from bide.core import ledger
from bide.core.records import FINAL
from bide.stores.interface import Violation
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.transactions import Transactions

RUNS_AT_ONCE = 500


async def violations(transactions: Transactions, queries: Iterable[str], reader: Rows) -> list[Violation]:
    found = [
        Violation(_invariant(query), str(id), str(detail))
        for query in queries
        for id, detail in await transactions.read_slowly(query)
    ]
    last = ""
    while rows := await transactions.read_slowly("select_ledgers", last, RUNS_AT_ONCE):
        found.extend(violation for row in rows for violation in _of_run(row, reader))
        last = rows[-1]["id"]
    return found


def _invariant(query: str) -> str:
    """
    >>> _invariant("audit_i4_signal_wakes")
    'I4'
    """
    return query.split("_")[1].upper()


def _of_run(row: asyncpg.Record, reader: Rows) -> Iterator[Violation]:
    """I16 for the chain of one run; where it is whole, what it tells of signals, ends and epochs."""
    run_id = row["id"]
    pages = [(seq, reader.page_text(run_id, seq, page)) for seq, page in zip(row["seqs"], row["pages"], strict=True)]
    broken = ledger.flaw(pages, row["ledger_head"], row["ledger_seq"], row["status"])
    if broken is not None:
        yield Violation("I16", run_id, broken.reason)
        return
    entries = [entry for _, page in pages for entry in ledger.decode_page(page)]
    yield from _of_signals(run_id, entries, row["unread"])
    yield from _of_ends(run_id, entries)
    yield from _of_epochs(run_id, entries, row["epoch"])


def _of_signals(run_id: str, entries: Sequence[ledger.Entry], unread: Sequence[str]) -> Iterator[Violation]:
    """I1, I2, I18: an admitted signal is unread, or was used up once, or is listed as discarded when its run ended."""
    used = _named(entries, "signals_consumed") - _named(entries, "signals_returned")
    fates = Counter(unread) + used + Counter(id for entry in entries for id in entry.data.get("discarded", ()))
    for entry in entries:
        if entry.name == "signal_received" and fates[entry.data["id"]] != 1:
            id = entry.data["id"]
            detail = f"signal {id} was admitted and is kept, used or discarded {fates[id]} times"
            yield Violation("I2" if used[id] > 1 else "I1", run_id, detail)


def _named(entries: Sequence[ledger.Entry], name: str) -> Counter[str]:
    return Counter(id for entry in entries if entry.name == name for id in entry.data.get("ids", ()))


def _of_ends(run_id: str, entries: Sequence[ledger.Entry]) -> Iterator[Violation]:
    """I7: a run ends once."""
    ends = sum(entry.data.get("to") in FINAL for entry in entries)
    if ends > 1:
        yield Violation("I7", run_id, f"its ledger tells of {ends} ends")


def _of_epochs(run_id: str, entries: Sequence[ledger.Entry], epoch: int) -> Iterator[Violation]:
    """I8: every claim has a greater epoch than the one before it, and none is ahead of its run."""
    before = 0
    for claimed in (entry.data["epoch"] for entry in entries if "epoch" in entry.data):
        if not before < claimed <= epoch:
            yield Violation("I8", run_id, f"was claimed at epoch {claimed} after {before}, and is at {epoch}")
        before = claimed
