"""Every store of bide, held to the store contract."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from bide.stores.interface import Now, Store
from bide.stores.memory import MemoryStore
from bide.stores.postgres import PostgresStore
from bide.stores.sqlite import SqliteStore
from bide.testing.store_contract import OpenStore, StoreContract
from bide.testing.store_contract.races import Races
from tests.support.proxy import pooling_beside

OF_EACH_PART = int(os.environ.get("BIDE_TEST_POOLED", "2"))  # how many tests of each are held to it behind a pooler


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


class TestPostgresStoreBehindAPooler(StoreContract):
    """Each transaction on another connection of the server: a few tests of each part, and all of the races."""

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


for part in StoreContract.__bases__:
    tests = [name for name in vars(part) if name.startswith("test_")]
    assert tests, part
    for name in [] if part is Races else tests[OF_EACH_PART:]:
        setattr(TestPostgresStoreBehindAPooler, name, None)


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
