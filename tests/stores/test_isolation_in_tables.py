"""Every table says whose its rows are: by workspace, or by the run that they hang on (decision 0023)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

import bide
from bide.stores.postgres import migrate

OF_THE_SERVER = {"workspaces", "secrets", "sealing_keys", "intake"}
OF_THE_DATABASE = {"sqlite_sequence", "schema_versions"}


def without_owner(columns: dict[str, set[str]]) -> set[str]:
    owned = {table for table, names in columns.items() if names & {"workspace", "run_id"}}
    return columns.keys() - owned - OF_THE_SERVER - OF_THE_DATABASE


async def test_a_table_of_sqlite_has_a_workspace_or_a_run(tmp_path: Path) -> None:
    runtime = await bide.App("shop", store=f"sqlite:///{tmp_path}/shop.db").open_runtime()
    await runtime.close()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
        tables = [str(name) for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {table: {row[1] for row in file.execute(f"PRAGMA table_info({table})")} for table in tables}
    assert {"runs", "steps", "ledger", *OF_THE_SERVER} <= columns.keys()
    assert without_owner(columns) == set()


async def test_a_table_of_postgresql_has_a_workspace_or_a_run(postgres_url: str) -> None:
    await migrate(postgres_url)
    url, _, schema = postgres_url.partition("?schema=")
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", (schema,)
        ).fetchall()
    columns: dict[str, set[str]] = {}
    for table, column in found:
        columns.setdefault(table, set()).add(column)
    assert {"runs", "steps", "ledger", *OF_THE_SERVER} <= columns.keys()
    assert without_owner(columns) == set()
