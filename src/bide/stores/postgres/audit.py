"""The audit: every row that breaks an invariant.

What the tables can be asked is one query per file `sql/audit_*.sql`, each on a snapshot of its own. What only the
ledgers tell is checked here, run by run, because a page that was tampered with must be found and not stop the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import asyncpg
import msgspec

from bide.core.accounting import Account, flaws
from bide.core.ledger import Kept
from bide.core.records import Name, Run, StepRow
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


def _kept(row: asyncpg.Record, reader: Rows) -> Kept:
    id = row["id"]
    input, result, error = (reader.opened(Run, (id,), name, row[name]) for name in ("input", "result", "error"))
    results = zip(row["steps"], row["results"], strict=True)
    steps = [(key, reader.opened(StepRow, (id, key), "result", text)) for key, text in results]
    return Kept(input or "", result, error, row["redact"], steps)


def _names(row: asyncpg.Record, reader: Rows) -> Iterator[tuple[str, str, str, str]]:
    """Kind, name, digest and message id of what the run has admitted, and of its signal ids that are sealed."""
    for kind, name, *fields in row["names"]:
        identity = (row["workspace"], kind, name)
        digest, message_id = (
            reader.opened(Name, identity, field, text) or ""
            for field, text in zip(("digest", "message_id"), fields, strict=True)
        )
        yield kind, name, digest, message_id


def _of_run(row: asyncpg.Record, reader: Rows) -> Iterator[Violation]:
    run_id = row["id"]
    names = list(_names(row, reader))
    pages = [(seq, reader.page_text(run_id, seq, page)) for seq, page in zip(row["seqs"], row["pages"], strict=True)]
    account = Account(
        run_id=run_id,
        style=row["style"],
        status=row["status"],
        epoch=row["epoch"],
        ledger_seq=row["ledger_seq"],
        ledger_head=row["ledger_head"],
        pages=pages,
        unread=row["unread"],
        kept=_kept(row, reader),
        admitted=[message_id for kind, _, _, message_id in names if kind == "dedup"],
    )
    for flaw in flaws(account):
        yield Violation(flaw.invariant, run_id, flaw.detail)
    open_waits = {str(no) for no in msgspec.json.decode(row["open_waits"])}
    for _, name, state, no in (each for each in names if each[0] == "signal"):
        if (no.rstrip("!") in open_waits) != (state != "closed"):
            yield Violation("I7", run_id, f"signal id {name} is {state}, wait {no} is not")
