"""The audit of a store on the shared server, asked all at once.

Nearly every test ends with an audit, and a connection that never asked before needs its 30 queries prepared one by one.
Here a connection that stays asks them as one, and keeps it prepared. Where it finds anything, the audit itself says
what, as it does for every store elsewhere; ledgers are always its own business.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
from psycopg import sql

from bide.stores.interface import Violation
from bide.stores.postgres import audit
from bide.stores.postgres.address import Address
from bide.stores.postgres.sealed import Rows
from bide.stores.postgres.statements import statements
from bide.stores.postgres.transactions import Transactions
from tests.support.schemas import kept_connection

_asked_one_by_one = audit.violations


async def asked_at_once(transactions: Transactions, queries: Iterable[str], reader: Rows) -> list[Violation]:
    """In place of `bide.stores.postgres.audit.violations`."""
    names = list(queries)
    is_clean = finds_nothing(transactions._sessions.address, names)
    return await _asked_one_by_one(transactions, [] if is_clean else names, reader)


def finds_nothing(address: Address, names: list[str]) -> bool:
    """Whether these queries have no row at all; False also where nobody can say."""
    connection = kept_connection(address.dsn)
    if connection is None:
        return False
    texts = statements(address.schema)
    asked = "\n UNION ALL\n".join(f"SELECT 1 FROM (\n{texts[name]}\n) AS {name}" for name in names)
    try:
        return connection.execute(sql.SQL(f"{asked}\n LIMIT 1"), prepare=True).fetchone() is None
    except psycopg.Error:  # a test may hold a lock that this would wait for, or have changed a table
        return False
