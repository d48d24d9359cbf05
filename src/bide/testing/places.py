"""Where a world's store is made, and removed again."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def fresh_store(url: str) -> AsyncIterator[str]:
    """The URL of an empty store of the kind that *url* names.

    `memory://` as it is; `sqlite://` a file in a temporary folder, whatever file is named; `postgresql://` a schema
    made for it in that database and dropped at the end.
    """
    if url.startswith("sqlite://"):
        query = urlsplit(url).query
        with _temporary_file() as path:
            yield f"sqlite:///{path}{'?' if query else ''}{query}"
    elif url.startswith(("postgresql://", "postgres://")):
        async with _temporary_schema(url) as with_schema:
            yield with_schema
    else:
        yield url


@contextmanager
def _temporary_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bide-world-") as folder:
        yield f"{folder}/world.db"


@asynccontextmanager
async def _temporary_schema(url: str) -> AsyncIterator[str]:
    import asyncpg

    from bide.stores.postgres.address import parse

    schema = f"bide_world_{secrets.token_hex(6)}"
    try:
        yield f"{url}{'&' if urlsplit(url).query else '?'}schema={schema}"
    finally:
        connection = await asyncpg.connect(parse(url).dsn)
        try:
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        finally:
            await connection.close()
