"""The audit: every invariant that the tables can be asked about, as one query each, and the chains of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import apsw
import msgspec

from bide.core import ledger
from bide.core.accounting import kept_of
from bide.core.records import Name
from bide.stores.interface import Violation
from bide.stores.sqlite.rows import Rows
from bide.stores.sqlite.statements import AUDITS, SQL
from bide.stores.sqlite.tables import Tables


def audit(connection: apsw.Connection, rows: Rows) -> list[Violation]:
    """Every row that breaks an invariant, in one snapshot that the caller holds."""
    read_ledgers(connection, rows)
    violations = [
        Violation(_invariant(name), str(id), str(detail))
        for name, statement in AUDITS.items()
        for id, detail in connection.execute(statement)
    ]
    violations += _of_ledgers(connection, rows)
    return violations


def read_ledgers(connection: apsw.Connection, rows: Rows) -> None:
    """Let statements ask what is in a page of a ledger, as `ledger_json(run_id, seq, entries)`, and what a name stands
    for, as `name_text(workspace, kind, name, field, value)`: both may be sealed."""

    def ledger_json(*page: Any) -> str:
        return _json_of(rows.page_text(*page))

    def name_text(*place: Any) -> str | None:
        *identity, field, value = place
        return rows.opened(Name, tuple(identity), field, value)

    connection.create_scalar_function("ledger_json", ledger_json, 3, deterministic=True)
    connection.create_scalar_function("name_text", name_text, 5, deterministic=True)


def _invariant(name: str) -> str:
    """
    >>> _invariant("audit_i4_signal_wakes")
    'I4'
    """
    return name.split("_")[1].upper()


def _json_of(text: str) -> str:
    """The entries of a page for the queries; none where it is damaged, which I16 tells."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return "[]"
    return text


def _of_ledgers(connection: apsw.Connection, rows: Rows) -> Iterator[Violation]:
    """I16: the chain of every run is whole, and it tells of the status and the payloads that the rows have."""
    tables = Tables(connection, rows)
    pages: Iterator[tuple[Any, ...]] = connection.execute(SQL["ledgers"])
    for (run_id, status, seq, head), group in groupby(pages, key=lambda row: row[:4]):
        kept = [(first, rows.page_text(run_id, first, entries)) for *_, first, entries in group if first is not None]
        [run] = tables.load_runs([run_id])
        broken = ledger.flaw(kept, head, seq, status, kept_of(run, tables.load_steps([run_id])))
        if broken is not None:
            yield Violation("I16", run_id, broken.reason)
