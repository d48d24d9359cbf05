"""The stores that keep rows outside of the process, held to the store contract with their payloads encrypted (G4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import bide
from bide.stores.interface import Now, Store
from bide.stores.postgres import PostgresStore
from bide.stores.sqlite import SqliteStore
from bide.testing.store_contract import OpenStore, StoreContract
from tests.support.contract import some_of_each_part

KEY = bide.AesGcm.new_key()


class TestSealedSqliteStore(StoreContract):
    @pytest.fixture
    async def open_store(self, sqlite_path: str) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as opened:

            async def open_store(now: Now) -> Store:
                codec = bide.AesGcm({"k1": KEY})
                store = SqliteStore(sqlite_path, now=now, synchronous="OFF", codec=codec)
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store


@some_of_each_part
class TestSealedPostgresStore(StoreContract):
    """Sealed and opened by what the store above uses, too; here it is to be seen at every kind of row."""

    @pytest.fixture
    async def open_store(self, postgres_used_url: str) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as opened:

            async def open_store(now: Now) -> Store:
                store = PostgresStore(postgres_used_url, now=now, migrate=True, codec=bide.AesGcm({"k1": KEY}))
                await store.open()
                opened.push_async_callback(store.close)
                return store

            yield open_store
