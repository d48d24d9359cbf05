"""The intake: commands that a caller's own transaction leaves, executed after it has committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bide.core.commands import Receipt, Started
from bide.core.records import RunId
from bide.errors import ForeignConnectionError
from bide.stores.interface import Executed, Store
from bide.testing.store_contract.making import (
    a_signal,
    a_signal_by_key,
    a_start,
    an_offer,
    cancelled,
    kinds,
    parked,
    row,
    started,
    told,
)
from bide.testing.store_contract.rows import visible_rows


@contextlib.asynccontextmanager
async def a_transaction(store: Store) -> AsyncIterator[Any]:
    """A caller's transaction, as the store itself gives it. Skips where it joins none."""
    try:
        block = store.connection()
    except ForeignConnectionError:
        pytest.skip("this store joins no transactions")
    async with block as connection:
        yield connection


class Intake:
    async def test_what_is_no_connection_cannot_be_joined(self, store: Store) -> None:
        with pytest.raises(ForeignConnectionError):
            await store.leave(object(), a_start())

        assert await store.run("default", "run_1") is None

    async def test_an_empty_intake_admits_nothing(self, store: Store) -> None:
        assert await store.admit(9) == Executed(replies=[])
        assert await store.admit(9, an_offer()) == Executed(replies=[])

    async def test_what_was_left_can_be_looked_at_until_it_is_admitted(self, store: Store) -> None:
        start, signal = a_start("run_2"), a_signal("run_2", "b")
        async with a_transaction(store) as connection:
            await store.leave(connection, start)
            await store.leave(connection, signal)

        assert (await store.left("run_2"), await store.left(signal.signal_id)) == (start, signal)
        assert await store.left("run_1") is None
        await store.admit(9)
        assert (await store.left("run_2"), await store.left(signal.signal_id)) == (None, None)

    async def test_what_a_committed_transaction_left_is_admitted_oldest_first(self, store: Store) -> None:
        async with a_transaction(store) as connection:
            await store.leave(connection, a_start("run_2", correlation_key="order-7"))
            await store.leave(connection, a_signal("run_2", "b", payload='{"emoji":"🦊"}'))
            await store.leave(connection, a_signal_by_key("order-7", "a"))
            await store.leave(connection, a_start("run_1", delay=timedelta(seconds=1)))

        done = await store.admit(9)

        assert kinds(done) == ["Started", "Receipt", "Receipt", "Started"]
        assert [signal.name for signal in await store.inbox("run_2")] == ["b", "a"]
        assert (await store.inbox("run_2"))[0].payload == '{"emoji":"🦊"}'
        assert done.ready
        assert await store.admit(9) == Executed(replies=[])

    async def test_nothing_counts_before_it_is_admitted(self, store: Store) -> None:
        before = await visible_rows(store)

        async with a_transaction(store) as connection:
            await store.leave(connection, a_start())

        assert {**await visible_rows(store), "until due": None} == {**before, "until due": None}
        assert await store.until_due(frozenset({"default"})) is not None

    async def test_what_a_rolled_back_transaction_left_never_was(self, store: Store) -> None:
        with contextlib.suppress(LookupError):
            async with a_transaction(store) as connection:
                await store.leave(connection, a_start())
                raise LookupError

        assert await store.admit(9) == Executed(replies=[])
        assert await store.until_due(frozenset({"default"})) is None
        assert await store.run("default", "run_1") is None

    async def test_no_more_are_admitted_than_the_limit(self, store: Store) -> None:
        async with a_transaction(store) as connection:
            for n in range(5):
                await store.leave(connection, a_start(f"run_{n}"))

        pages = [await store.admit(2) for _ in range(4)]

        assert [[told(Started, reply).run.id for reply in page.replies] for page in pages] == [
            ["run_0", "run_1"],
            ["run_2", "run_3"],
            ["run_4"],
            [],
        ]

    async def test_what_is_admitted_is_handed_over(self, store: Store) -> None:
        await parked(store, "run_1")
        async with a_transaction(store) as connection:
            await store.leave(connection, a_signal("run_1"))
            await store.leave(connection, a_start("run_2"))

        done = await store.admit(9, an_offer(slots=1))

        assert list(done.turns) == ["run_1"]
        assert [signal.name for signal in done.turns[RunId("run_1")].inbox] == ["go"]

    async def test_what_is_refused_is_kept_for_an_operator_and_not_tried_again(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")
        await started(store, "run_2")
        await cancelled(store, "run_2")
        async with a_transaction(store) as connection:
            await store.leave(connection, a_start("run_3", correlation_key="order-7"))
            await store.leave(connection, a_signal("run_2"))

        done = await store.admit(9)

        assert kinds(done) == ["DuplicateRun", "Receipt"]
        assert told(Receipt, done.replies[1]).outcome == "no_target"
        assert sorted(kept.reason for kept in await store.unused("default", limit=9)) == ["cancelled", "duplicate_run"]
        assert await store.admit(9) == Executed(replies=[])

    async def test_what_no_store_can_hold_is_kept_for_an_operator_and_its_neighbours_are_admitted(
        self, store: Store
    ) -> None:
        async with a_transaction(store) as connection:
            await store.leave(connection, a_start("run_1"))
            await store.leave(connection, a_start("run_2", priority=2**63))
            await store.leave(connection, a_start("run_3"))

        done = await store.admit(9)

        assert kinds(done) == ["Started", "Done", "Started"]
        [kept] = await store.unused("default", limit=9)
        assert (kept.id, kept.name, kept.payload) == ("run_2", "order", '{"n":1}')
        assert kept.reason.startswith("refused: ")
        assert await store.admit(9) == Executed(replies=[])
        assert await store.count_runs(None) == {"ready": 2}

    async def test_the_same_command_left_and_sent_is_executed_once(self, store: Store) -> None:
        await started(store, "run_1")
        signal = a_signal("run_1", dedup_key="d-1")
        async with a_transaction(store) as connection:
            await store.leave(connection, a_start("run_2"))
            await store.leave(connection, signal)
        await store.execute([a_start("run_2"), signal])

        done = await store.admit(9)

        assert kinds(done) == ["Started", "Receipt"]
        assert told(Receipt, done.replies[1]).outcome == "duplicate"
        assert (await row(store, "run_1")).inbox_count == 1
        assert await store.count_runs(None) == {"ready": 2}

    async def test_the_intake_is_shared_and_each_command_admitted_once(self, store: Store, rival: Store) -> None:
        async with a_transaction(store) as connection:
            for n in range(6):
                await store.leave(connection, a_start(f"run_{n}"))

        done = [await place.admit(2) for place in (store, rival, store, rival)]

        assert [len(one.replies) for one in done] == [2, 2, 2, 0]
        assert await rival.count_runs(None) == {"ready": 6}

    @pytest.mark.parametrize("by_key", [False, True], ids=["by id", "by key"])
    async def test_S11_a_signal_that_was_left_after_the_start_of_its_run_finds_it_whoever_admits(
        self, store: Store, rival: Store, by_key: bool
    ) -> None:
        """While one process admits the start, another must not decide the signal (law 2)."""
        runs, signals = range(60), []
        async with a_transaction(store) as connection:
            for n in runs:
                await store.leave(connection, a_start(f"run_{n}", correlation_key=f"key_{n}"))
            for n in runs:
                signals.append(a_signal_by_key(f"key_{n}") if by_key else a_signal(f"run_{n}"))
                await store.leave(connection, signals[-1])

        while await store.left(signals[-1].signal_id) is not None:
            await asyncio.gather(*(place.admit(40) for place in (store, rival, store, rival)))

        assert await store.unused("default", limit=100) == []
        assert [len(await store.inbox(f"run_{n}")) for n in runs] == [1 for _ in runs]
