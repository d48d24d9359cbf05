"""The schema: numbered migrations that only go forward, run by whoever opens the file first."""

from __future__ import annotations

import apsw

from bide.errors import SchemaTooNew
from bide.stores.sqlite.statements import MIGRATIONS

NEWEST = max(MIGRATIONS)


def migrate(connection: apsw.Connection, path: str) -> None:
    """Bring the file up to date. The caller holds the lock file; each migration commits with its number."""
    found = version(connection)
    if found > NEWEST:
        raise SchemaTooNew(path, found, NEWEST)
    for number in range(found + 1, NEWEST + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(MIGRATIONS[number])
            connection.pragma("user_version", number)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def version(connection: apsw.Connection) -> int:
    number = connection.pragma("user_version")
    assert isinstance(number, int)
    return number
