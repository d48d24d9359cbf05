"""PostgreSQL schemas that are used again: making the tables takes longer than most tests do.

A schema is emptied after each use and goes after a number of them, so that dead rows do not pile up. One whose tables
a test has changed is not used again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import sql

Cleaner = psycopg.Connection[tuple[object, ...]]
MOST_USES = 150
KEPT = "schema_versions"

# Whoever still holds locks there belongs to a test that has ended.
END_HOLDERS = """
    SELECT pg_terminate_backend(pid, 5000)
      FROM (SELECT DISTINCT pg_locks.pid
              FROM pg_locks
              JOIN pg_class ON pg_class.oid = pg_locks.relation
             WHERE pg_class.relnamespace = to_regnamespace(%s)
               AND pg_locks.pid <> pg_backend_pid()) AS holders
"""
SHAPE = """
    SELECT md5(string_agg(concat_ws(' ', relname, relkind, attname, atttypid, attnotnull, attisdropped, reloptions), ','
                          ORDER BY relname, attnum))
      FROM pg_class
      LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
     WHERE relnamespace = to_regnamespace(%s)
"""
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"


@dataclass
class Schema:
    name: str
    uses: int = 0
    shape: str | None = None  # of its tables after the first use


_changed: set[str] = set()  # names of schemas that go after this use
_free: defaultdict[str, list[Schema]] = defaultdict(list)  # of this process, by server
_cleaners: dict[str, Cleaner] = {}  # a connection of this process to each server: a new one knows no table yet


@contextlib.contextmanager
def used_schema(url: str) -> Iterator[str]:
    """The URL of a schema with nothing in it: new and without tables, or with all of them and no rows."""
    schema = _free[url].pop() if _free[url] else Schema(f"bide_used_{secrets.token_hex(6)}")
    try:
        yield f"{url}{'&' if urlsplit(url).query else '?'}schema={schema.name}"
    finally:
        connection = _cleaner(url)
        connection.execute(END_HOLDERS, [schema.name])
        if _is_emptied(connection, schema):
            _free[url].append(schema)
        else:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema.name)))


def use_no_more(url: str) -> None:
    """The schema of this URL goes at the end of its use: a test changes its tables, perhaps in its first use, when
    nobody knows yet what they should be like."""
    if name := dict(parse_qsl(urlsplit(url).query)).get("schema"):
        _changed.add(name)


def forget(url: str) -> None:
    """The server goes: leave it."""
    _free.pop(url, None)
    if cleaner := _cleaners.pop(url, None):
        cleaner.close()


def kept_connection(url: str) -> Cleaner | None:
    """The connection to that server, once a schema of it was emptied. It waits for nobody for long."""
    return _cleaners.get(url)


def _cleaner(url: str) -> Cleaner:
    kept = _cleaners.get(url)
    if kept is not None:
        try:
            kept.execute("SELECT 1")
            return kept
        except psycopg.OperationalError:  # a test may have cut every connection
            kept.close()
    made = _cleaners[url] = psycopg.connect(url, autocommit=True)
    made.execute("SET client_min_messages = warning; SET lock_timeout = '10s'")
    return made


@contextlib.asynccontextmanager
async def used_schema_for_a_world(url: str) -> AsyncIterator[str]:
    """In place of the schema that a world makes for itself."""
    with used_schema(url) as with_schema:
        yield with_schema


def _is_emptied(connection: Cleaner, schema: Schema) -> bool:
    """Empty it and say whether it can be used again."""
    schema.uses += 1
    [shape] = connection.execute(SHAPE, [schema.name]).fetchone() or (None,)
    if shape is None or schema.uses > MOST_USES or schema.shape not in (None, shape) or schema.name in _changed:
        return False
    schema.shape = str(shape)
    tables = [str(name) for (name,) in connection.execute(TABLES, [schema.name]) if name != KEPT]
    emptying = [sql.SQL("DELETE FROM {}").format(sql.Identifier(schema.name, table)) for table in tables]
    connection.execute(sql.SQL("; ").join(emptying))
    return True
