"""Every store of bide, held to the store contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from bide.stores.interface import Now, Store
from bide.stores.memory import MemoryStore
from bide.stores.postgres import PostgresStore
from bide.stores.sqlite import SqliteStore
from bide.testing.store_contract import OpenStore, StoreContract
from tests.support.contract import some_of_each_part
from tests.support.proxy import pooling_beside


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        opened: list[MemoryStore] = []

        async def open_store(now: Now) -> Store:
            if not opened:
                opened.append(MemoryStore(now=now))
            return opened[0]

        return open_store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def open_store(self, sqlite_path: str) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as opened:

            async def open_store(now: Now) -> Store:
                store = SqliteStore(sqlite_path, now=now, synchronous="OFF")
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def open_store(self, postgres_used_url: str) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as opened:

            async def open_store(now: Now) -> Store:
                store = PostgresStore(postgres_used_url, now=now, migrate=True)
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store


@some_of_each_part
class TestPostgresStoreBehindAPooler(StoreContract):
    """Each transaction on another connection of the server."""

    @pytest.fixture
    async def open_store(self, postgres_used_url: str) -> AsyncIterator[OpenStore]:
        server = urlsplit(postgres_used_url)
        async with AsyncExitStack() as opened:
            pooler = opened.enter_context(pooling_beside(server.hostname or "", server.port or 5432))

            async def open_store(now: Now) -> Store:
                store = PostgresStore(pooler.url(postgres_used_url), now=now, migrate=True)
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store


class TestPostgresStoreOfOtherVersions(StoreContract):
    @pytest.fixture
    async def open_store(self, other_postgres_used_url: str) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as opened:

            async def open_store(now: Now) -> Store:
                store = PostgresStore(other_postgres_used_url, now=now, migrate=True)
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store
