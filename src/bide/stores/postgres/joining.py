"""Joining a caller's transaction (S11): one insert on whatever connection the caller has."""

from __future__ import annotations

import inspect
from typing import Any

from bide.errors import ForeignConnectionError


async def insert(connection: Any, statement: str, id: str, command: str) -> None:
    """Run the insert on an asyncpg, psycopg or SQLAlchemy connection. *statement* has the placeholders $1 and $2."""
    libraries = {base.__module__.partition(".")[0] for base in type(connection).__mro__}  # the caller's own class, too
    if "asyncpg" in libraries and hasattr(connection, "acquire"):
        raise ForeignConnectionError(
            "a pool is no connection: what it runs is in no transaction of yours; join with one that it hands out, "
            "inside `async with pool.acquire() as connection, connection.transaction()`"
        )
    try:
        if "asyncpg" in libraries:
            await connection.execute(statement, id, command)
        elif "psycopg" in libraries:
            done = connection.execute(_numbered(statement, "%s", "%s"), (id, command))
            if inspect.isawaitable(done):
                await done
        elif "sqlalchemy" in libraries:
            from sqlalchemy import text

            done = connection.execute(text(_numbered(statement, ":id", ":command")), {"id": id, "command": command})
            if inspect.isawaitable(done):
                await done
        else:
            raise ForeignConnectionError(
                f"{type(connection).__module__}.{type(connection).__qualname__} is no connection that bide can join; "
                "give an asyncpg or psycopg connection, or an AsyncSession or AsyncConnection of SQLAlchemy"
            )
    except Exception as error:
        if _says_no_table(error):
            raise ForeignConnectionError(
                "this connection leads to a database without bide's tables; join a transaction on the store's own "
                "database, or run `bide migrate` there"
            ) from error
        raise


def _numbered(statement: str, first: str, second: str) -> str:
    return statement.replace("$1", first).replace("$2", second)


def _says_no_table(error: BaseException) -> bool:
    codes = (getattr(error, "sqlstate", None), getattr(getattr(error, "orig", None), "sqlstate", None))
    return any(code in ("42P01", "3F000") for code in codes)
