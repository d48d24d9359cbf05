"""The SQL of the store: one statement per file, with the schema put in when the store is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

PACKAGE = files("bide.stores.postgres")
_PARAMETER = re.compile(r"\$(\d+)")

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
        used += max(map(int, _PARAMETER.findall(text)), default=0)
    return (f"WITH {', '.join(shifted)}\n" if shifted else "") + "SELECT pg_current_xact_id()::text"


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + by}", text)


@cache
def migrations() -> Mapping[int, str]:
    """The steps of the schema by their number, in order; `{schema}` is still to be put in."""
    steps = (file for file in PACKAGE.joinpath("migrations").iterdir() if file.name.endswith(".sql"))
    return {int(file.name[:4]): file.read_text() for file in sorted(steps, key=lambda file: file.name)}


def with_schema(text: str, schema: str) -> str:
    return text.replace("{schema}", f'"{schema}"')
