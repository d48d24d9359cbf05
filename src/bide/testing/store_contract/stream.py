"""`stream`: the ledgers of all runs in one order, in which nothing comes in later."""

from __future__ import annotations

import asyncio

import pytest

from bide.core.records import LedgerPage
from bide.stores.interface import Store, Streamed
from bide.testing.store_contract.making import HOUR, MINUTE, a_commit, ended, ending, parked, started, woken
from bide.testing.world import VirtualClock

PATIENCE = 60.0  # a store may keep a page back until everybody who began before has ended


async def streamed(
    store: Store, count: int, *, place: str = "", workspace: str = "default", shown: bool = False
) -> list[Streamed]:
    """So many pages from a place on, as soon as they are there; *shown*: without those of other workspaces."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = list(await store.stream(workspace, place, limit=999))
            found = [each for each in found if each.page is not None] if shown else found
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


def of(pages: list[LedgerPage | None], run_id: str) -> list[LedgerPage]:
    return [page for page in pages if page is not None and page.run_id == run_id]


class Streaming:
    async def test_the_stream_has_every_page_of_every_run_in_its_order(self, store: Store) -> None:
        await parked(store, "run_2")
        await parked(store, "run_1")
        turn = await woken(store, "run_2")
        await store.execute([a_commit(turn, ending(), used=turn.inbox)])
        ledgers = {run_id: list(await store.ledger(run_id)) for run_id in ("run_1", "run_2")}

        whole = await streamed(store, sum(map(len, ledgers.values())))

        for run_id, pages in ledgers.items():
            assert of([each.page for each in whole], run_id) == pages
        assert [each.place for each in whole] == list(dict.fromkeys(each.place for each in whole))

    async def test_the_stream_goes_on_from_any_place_and_in_pages(self, store: Store) -> None:
        for n in range(5):
            await ended(store, f"run_{n}")
        count = sum([len(await store.ledger(f"run_{n}")) for n in range(5)])
        whole = await streamed(store, count)

        for n, each in enumerate(whole):
            assert await store.stream("default", each.place, limit=999) == whole[n:]
            assert await store.stream("default", each.place, limit=2) == whole[n : n + 2]

    async def test_pages_of_another_workspace_have_their_places_and_are_not_shown(self, store: Store) -> None:
        await started(store, "run_1", workspace="other")
        await started(store, "run_2")
        await started(store, "run_3", workspace="other")

        mine, theirs = await streamed(store, 3), await streamed(store, 3, workspace="other")

        assert [each.page is None for each in mine] == [True, False, True]
        assert [each.page is None for each in theirs] == [False, True, False]
        assert [each.place for each in mine[:-1]] == [each.place for each in theirs[:-1]]
        for n, each in enumerate(mine[:-1]):
            assert await store.stream("default", each.place, limit=999) == mine[n:]

    async def test_the_last_place_of_the_stream_names_no_run_of_another_workspace(self, store: Store) -> None:
        """H1: readers are told where they stand. What comes next is neither lost nor given twice from there on."""
        for n in range(3):
            await started(store, f"run_{n}", workspace="default" if n == 1 else "other")

        last = (await streamed(store, 3))[-1].place

        assert "run_" not in last
        assert not [each for each in await store.stream("default", last, limit=9) if each.page is not None]
        await started(store, "run_4")
        [next_one] = await streamed(store, 1, place=last, shown=True)
        assert next_one.page is not None
        assert next_one.page.run_id == "run_4"

    async def test_the_end_of_the_stream_is_before_what_comes_next(self, store: Store) -> None:
        assert await store.stream("default", await store.stream_end(), limit=9) == []
        await started(store, "run_1")
        await streamed(store, 1)
        end = await store.stream_end()
        assert await store.stream("default", end, limit=9) == []

        await started(store, "run_2")

        [next_one] = await streamed(store, 1, place=end)
        assert next_one.page is not None
        assert next_one.page.run_id == "run_2"

    async def test_a_place_is_not_given_out_again_when_the_newest_pages_were_deleted(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await ended(store, "run_1")
        last = (await streamed(store, len(await store.ledger("run_1"))))[-1].place
        clock.advance(HOUR)
        assert await store.delete_ended(MINUTE, 9) == 1
        assert await store.stream("default", last, limit=9) == []

        await started(store, "run_2")

        assert [each.page.run_id for each in await streamed(store, 1, place=last) if each.page] == ["run_2"]

    async def test_what_is_no_place_is_refused(self, store: Store) -> None:
        for text in ("x", "-1", "1e3", "9" * 99, "\x00", "é", "१"):
            with pytest.raises(ValueError, match="place"):
                await store.stream("default", text, limit=9)
