"""The SQL of the store: one statement per file, with the schema put in when the store is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files

PACKAGE = files("bide.stores.postgres")
_PARAMETER = re.compile(r"\$(\d+)")
# Types whose values travel as text: bytes stand in digits already, and the driver takes the first and the last moment
# that there is for infinity.
WRITTEN = frozenset({"bytea", "timestamptz"})
_COLUMN = re.compile(r"(\$\d+)::text::([a-z ]+)\[\]")
_ROWS = re.compile(rf"unnest\(((?:{_COLUMN.pattern}[,\s]*)+)\)")

# The first message of each transaction. No setting may outlast it: behind a pooler the next one runs elsewhere.
# Plans are made once and never scan a table, because statistics of tables that fill within seconds are always stale.
BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '15s';
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
"""

# The same once and for all, for the connection of statements that are transactions by themselves.
SETTLE = """
SET default_transaction_isolation = 'read committed';
SET lock_timeout = '2s';
SET statement_timeout = '10s';
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
"""


@cache
def statements(schema: str) -> Mapping[str, str]:
    """Every statement by the name of its file, for the tables of *schema*."""
    return {
        file.name.removesuffix(".sql"): with_schema(file.read_text(), schema)
        for file in PACKAGE.joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    }


@lru_cache(maxsize=1000)  # of which a process needs a few dozen
def together(parts: tuple[tuple[str, str], ...]) -> str:
    """Several statements, by name and text, as one that answers with the number of its transaction.

    A round trip costs more than most of them, and so would those that have nothing to do. They must touch different
    tables or different rows: none sees what another did.

    >>> print(together((("freed", "DELETE FROM a WHERE id = $1"), ("taken", "INSERT INTO b VALUES ($1, $2)"))))
    WITH freed AS (
    DELETE FROM a WHERE id = $1
    ), taken AS (
    INSERT INTO b VALUES ($2, $3)
    )
    SELECT pg_current_xact_id()::text
    """
    shifted, used = [], 0
    for name, text in parts:
        shifted.append(f"{name} AS (\n{_shifted(text, used).rstrip()}\n)")
        used += _parameters(text)
    return (f"WITH {', '.join(shifted)}\n" if shifted else "") + "SELECT pg_current_xact_id()::text"


def counted(parts: Iterable[tuple[str, object]]) -> list[str]:
    """The parts of a write without locks whose rows must all be there as they were read: runs come first."""
    first, *others = [name for name, _ in parts]
    return [first, *(name for name in others if name == "replace_names")]


@lru_cache(maxsize=100)
def unless_moved(parts: tuple[tuple[str, str], ...], has_hint: bool = False) -> str:
    """The same, where the first part updates runs: nothing is written unless their rows are the ones that were read.

    Which ones these are stands in a parameter after those of the first part: whoever wrote a row since is none of those
    who had written one by then, even where it reads the same. How many rows there are is told after all parts. The
    division by zero undoes everything, and it comes first: the main query is run before the parts that it does not ask
    for, so nobody else's row is touched while a run is waited for.
    The channel of a hint that goes out with the commit, and what it says, are the last parameters.

    >>> print(unless_moved((("moved", "UPDATE runs AS run … WHERE run.id = $1"), ("gone", "DELETE … $1")), True))
    WITH moved AS (
    UPDATE runs AS run … WHERE run.id = $1
       AND run.xmin::text = ANY ($2::text::text[])
    RETURNING 1
    ), gone AS (
    DELETE … $3
    )
    SELECT pg_current_xact_id()::text, 1 / (SELECT (count(*) = $4::bigint)::int FROM moved), pg_notify($5, $6)
    """
    (name, update), *others = parts
    version = 1 + _parameters(update)
    used = version + sum(_parameters(text) for _, text in others)
    guarded = f"{update.rstrip()}\n   AND run.xmin::text = ANY (${version}::text::text[])\nRETURNING 1"
    asked = [together(((name, guarded), *others))]
    for part in counted(parts):
        used += 1
        asked.append(f"1 / (SELECT (count(*) = ${used}::bigint)::int FROM {part})")
    if has_hint:
        asked.append(f"pg_notify(${used + 1}, ${used + 2})")
    return ", ".join(asked)


@lru_cache(maxsize=1000)
def of_one_row(text: str) -> str:
    """A statement over columns as one over the values of a single row. The server is done with it in half the time.

    >>> of_one_row("SELECT a FROM unnest($1::text::text[], $2::text::bytea[]) AS new (a, b)")
    'SELECT a FROM (VALUES ($1::text, $2::text::bytea)) AS new (a, b)'
    """
    return _ROWS.sub(lambda rows: f"(VALUES ({_COLUMN.sub(_value, rows[1])}))", text)


def _value(column: re.Match[str]) -> str:
    parameter, type = column.groups()
    return f"{parameter}::text::{type}" if type in WRITTEN else f"{parameter}::{type}"


def _parameters(text: str) -> int:
    return max(map(int, _PARAMETER.findall(text)), default=0)


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + by}", text)


@cache
def migrations() -> Mapping[int, str]:
    """The steps of the schema by their number, in order; `{schema}` is still to be put in."""
    steps = (file for file in PACKAGE.joinpath("migrations").iterdir() if file.name.endswith(".sql"))
    return {int(file.name[:4]): file.read_text() for file in sorted(steps, key=lambda file: file.name)}


def with_schema(text: str, schema: str) -> str:
    return text.replace("{schema}", f'"{schema}"')
