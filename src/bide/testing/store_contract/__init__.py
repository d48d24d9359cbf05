"""The store contract: what `bide.stores.interface` promises, as tests that any implementation can be held to.

Subclass `StoreContract` in a test module and say how the store is opened:

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
            async with AsyncExitStack() as opened:

                async def open_store(now: Now) -> Store:
                    store = MyStore(tmp_path / "runs", now=now)
                    await store.open()
                    opened.push_async_callback(store.close)
                    return store

                yield open_store

It needs pytest and pytest-asyncio. What a store keeps to itself (its files, its connections, rows that were damaged
by hand) is for tests of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from bide.stores.interface import Now, Store
from bide.testing.store_contract.access import Access
from bide.testing.store_contract.answers import Answers
from bide.testing.store_contract.batches import Batches
from bide.testing.store_contract.cancelling import Cancelling
from bide.testing.store_contract.children import Children
from bide.testing.store_contract.claims import Claims
from bide.testing.store_contract.deliveries import Deliveries
from bide.testing.store_contract.events import Events
from bide.testing.store_contract.hand_over import HandOver
from bide.testing.store_contract.intake import Intake
from bide.testing.store_contract.names import Names
from bide.testing.store_contract.progress import RunsInProgress
from bide.testing.store_contract.races import Races
from bide.testing.store_contract.reads import Reads
from bide.testing.store_contract.retention import Retention
from bide.testing.store_contract.round_trips import RoundTrips
from bide.testing.store_contract.stream import Streaming
from bide.testing.store_contract.timers import Timers
from bide.testing.store_contract.turns import Turns
from bide.testing.world import VirtualClock

OpenStore = Callable[[Now], Awaitable[Store]]
"""Opens a store that reads that clock. A second call in one test opens a second one on the same place.

A store that cannot be shared gives the first one again.
"""


@pytest.mark.asyncio
class StoreContract(
    Batches,
    Deliveries,
    Names,
    HandOver,
    Turns,
    Children,
    Cancelling,
    Claims,
    Timers,
    Intake,
    Retention,
    Reads,
    RoundTrips,
    Races,
    RunsInProgress,
    Access,
    Answers,
    Events,
    Streaming,
):
    """Every promise of `bide.stores.interface.Store`. A subclass provides the fixture `open_store`."""

    @pytest.fixture
    def clock(self) -> VirtualClock:
        """Moved by the tests alone. It stands between two milliseconds: stores keep microseconds."""
        clock = VirtualClock()
        clock.set(clock().replace(microsecond=123_457))
        return clock

    @pytest_asyncio.fixture
    async def store(self, open_store: OpenStore, clock: VirtualClock) -> AsyncIterator[Store]:
        """The store under test, empty. Whatever a test does to it, no invariant may be broken afterwards."""
        store = await open_store(clock)
        yield store
        assert not await store.audit()

    @pytest_asyncio.fixture
    async def rival(self, open_store: OpenStore, clock: VirtualClock, store: Store) -> Store:
        """A second one on the same place, as another process would have it."""
        return await open_store(clock)
