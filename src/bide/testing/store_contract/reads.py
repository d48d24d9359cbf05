"""The reads: filters, pages, order, and that a foreign workspace is as empty as one that never was."""

from __future__ import annotations

from typing import Any

from bide.core.records import Unused, Wait
from bide.stores.interface import RunFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_child,
    a_commit,
    a_give_back,
    a_signal,
    an_unused,
    cancelled,
    ended,
    joining,
    parked,
    running,
    started,
    waiting_for,
    woken,
)
from bide.testing.world import VirtualClock


async def a_mixed_store(store: Store) -> None:
    """Seven runs in two workspaces, of each kind that a filter knows."""
    await started(store, "run_1", tags='{"team":"red","size":"xl"}')
    await parked(store, "run_2", correlation_key="order-7", tags='{"team":"blue"}')
    await ended(store, "run_3", definition="order", correlation_key="order-7x")
    held = await running(store, "run_4", tags='{"team":"red"}')
    await store.execute([a_give_back(held, hold="poison")])
    await started(store, "run_5", definition="refund", workspace="other", correlation_key="order-7")
    parent = await running(store, "run_6")
    await store.execute([a_commit(parent, joining(a_child("run_7", correlation_key="order-8")))])


RUN_FILTERS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "everything": ({}, [1, 2, 3, 4, 5, 6, 7]),
    "a workspace": ({"workspace": "default"}, [1, 2, 3, 4, 6, 7]),
    "another workspace": ({"workspace": "other"}, [5]),
    "a status": ({"status": "ready"}, [1, 4, 5, 7]),
    "a final status": ({"status": "completed"}, [3]),
    "a definition": ({"definition": "refund"}, [5]),
    "held": ({"held": True}, [4]),
    "a correlation key": ({"correlation_key": "order-7"}, [2, 5]),
    "a correlation key of a workspace": ({"correlation_key": "order-7", "workspace": "other"}, [5]),
    "a parent": ({"parent_id": "run_6"}, [7]),
    "a parent and a key": ({"parent_id": "run_6", "correlation_key": "order-8"}, [7]),
    "a parent and another key": ({"parent_id": "run_6", "correlation_key": "order-7"}, []),
    "a tag": ({"tags": {"team": "red"}}, [1, 4]),
    "two tags": ({"tags": {"team": "red", "size": "xl"}}, [1]),
    "a tag nobody has": ({"tags": {"Team": "red"}}, []),
    "many at once": (
        {"workspace": "default", "status": "ready", "definition": "order", "tags": {"team": "red"}},
        [1, 4],
    ),
    "what does not go together": ({"status": "completed", "held": True}, []),
    "an unknown workspace": ({"workspace": "none"}, []),
    "an unknown status": ({"status": "none"}, []),
    "an unknown parent": ({"parent_id": "run_none"}, []),
    "a key with a pattern in it": ({"correlation_key": "order%"}, []),
    "a quote": ({"workspace": "' OR 1=1 --"}, []),
    "a foreign parent": ({"parent_id": "run_6", "workspace": "other"}, []),
}


class Reads:
    # -- runs

    async def test_runs_are_listed_by_filter_oldest_first(self, store: Store) -> None:
        await a_mixed_store(store)
        for title, (fields, expected) in RUN_FILTERS.items():
            found = await store.runs(RunFilter(**fields), after=None, limit=99)

            assert [run.id for run in found] == [f"run_{n}" for n in expected], title
            assert [await store.run(run.workspace, run.id) for run in found] == list(found)

    async def test_runs_are_listed_page_by_page(self, store: Store) -> None:
        await a_mixed_store(store)
        for fields, expected in RUN_FILTERS.values():
            paged: list[str] = []
            while page := await store.runs(RunFilter(**fields), after=paged[-1] if paged else None, limit=2):
                assert len(page) <= 2
                assert page[0].id not in paged
                paged += [run.id for run in page]
            assert paged == [f"run_{n}" for n in expected]

    async def test_a_page_of_runs_begins_after_an_id_that_need_not_exist(self, store: Store) -> None:
        for run_id in ("run_b", "run_d", "run_f"):
            await started(store, run_id)

        assert [run.id for run in await store.runs(RunFilter(), after="run_c", limit=9)] == ["run_d", "run_f"]
        assert await store.runs(RunFilter(), after="run_z", limit=9) == []

    async def test_runs_are_counted_by_status(self, store: Store) -> None:
        assert await store.count_runs(None) == {}
        await a_mixed_store(store)

        assert await store.count_runs(None) == {"ready": 4, "waiting": 2, "completed": 1}
        assert await store.count_runs("default") == {"ready": 3, "waiting": 2, "completed": 1}
        assert await store.count_runs("other") == {"ready": 1}

    async def test_what_is_alive_in_a_workspace_is_counted(self, store: Store) -> None:
        assert await store.count_live("default") == {"runs": 0, "waits": 0, "inbox": 0}
        await a_mixed_store(store)
        waiting = await store.waits(WaitFilter(workspace="default"), after=None, limit=99)

        found = await store.count_live("default")

        assert (found["runs"], found["waits"]) == (5, len(waiting))
        assert await store.count_live("other") == {"runs": 1, "waits": 0, "inbox": 0}

    # -- waits

    async def test_waits_are_listed_by_filter_run_and_number(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, "run_2")
        await store.execute([a_commit(await woken(store, "run_2"), waiting_for("more"))])
        clock.advance(HOUR)
        await parked(store, "run_1")
        await parked(store, "run_3", workspace="other")
        await cancelled(store, "run_1")

        async def found(**fields: Any) -> list[tuple[str, int]]:
            return [(w.run_id, w.no) for w in await store.waits(WaitFilter(**fields), after=None, limit=99)]

        assert await found() == [("run_2", 2), ("run_3", 1)]
        assert await found(status=None) == [("run_1", 1), ("run_2", 1), ("run_2", 2), ("run_3", 1)]
        assert await found(status="completed") == [("run_2", 1)]
        assert await found(status="cancelled") == [("run_1", 1)]
        assert await found(workspace="other") == [("run_3", 1)]
        assert await found(run_id="run_2", status=None) == [("run_2", 1), ("run_2", 2)]
        assert await found(run_id="run_2", workspace="other", status=None) == []
        assert await found(run_id="run_2", status="waiting") == [("run_2", 2)]
        assert await found(opened_before=clock()) == [("run_2", 2)]
        assert await found(opened_before=clock() - HOUR) == []
        assert await found(opened_before=clock() + MINUTE, run_id="run_3") == [("run_3", 1)]
        assert await found(workspace="none", status=None) == []

    async def test_waits_are_listed_page_by_page(self, store: Store) -> None:
        await parked(store, "run_1")
        for _ in range(11):  # ten comes after nine, also where numbers might be compared as text
            turn = await woken(store, "run_1")
            await store.execute([a_commit(turn, waiting_for("go", seen=tuple(s.seq for s in turn.inbox)))])
        await parked(store, "run_2")

        for filter in (WaitFilter(status=None), WaitFilter(run_id="run_1", status=None)):
            whole = await store.waits(filter, after=None, limit=99)
            paged: list[Wait] = []
            after = None
            while page := await store.waits(filter, after=after, limit=5):
                assert len(page) <= 5
                assert page[0] not in paged
                paged += page
                after = (page[-1].run_id, page[-1].no)
            assert paged == list(whole)
            assert [wait.no for wait in whole if wait.run_id == "run_1"] == list(range(1, 13))

    # -- the rest

    async def test_what_is_open_is_counted_in_all_workspaces(self, store: Store) -> None:
        asked = store.round_trips
        await parked(store, "run_1")
        await parked(store, "run_2", workspace="other")
        await woken(store, "run_1")

        assert await store.count_open() == {"waiting": 1, "dead_letters": 0}
        assert store.round_trips > asked

    async def test_what_does_not_exist_is_none_or_empty(self, store: Store) -> None:
        assert await store.run("default", "run_1") is None
        assert await store.holder("default", "order-7") is None
        assert list(await store.runs(RunFilter(), after=None, limit=9)) == []
        assert list(await store.waits(WaitFilter(status=None), after=None, limit=9)) == []
        assert list(await store.inbox("run_1")) == []
        assert list(await store.ledger("run_1")) == []
        assert list(await store.unused("default", limit=9)) == []
        assert list(await store.due_chores(9)) == []
        assert list(await store.audit()) == []

    async def test_every_read_of_a_foreign_workspace_is_empty(self, store: Store) -> None:
        await a_mixed_store(store)
        await store.execute([a_signal("run_none")])

        for workspace in ("elsewhere", "", "DEFAULT", "default "):
            for run_id in ("run_1", "run_2", "run_5", "run_7"):
                assert await store.run(workspace, run_id) is None
            assert await store.holder(workspace, "order-7") is None
            assert list(await store.runs(RunFilter(workspace=workspace), after=None, limit=9)) == []
            assert await store.count_runs(workspace) == {}
            assert list(await store.waits(WaitFilter(workspace=workspace, status=None), after=None, limit=9)) == []
            assert list(await store.unused(workspace, limit=9)) == []
        assert await store.run("default", "run_5") is None
        assert await store.run("other", "run_1") is None

    async def test_unused_arrivals_are_listed_page_by_page_in_the_order_they_came(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for ids in (("msg_c",), ("msg_a",), ("msg_e", "msg_d"), ("msg_b",)):  # two came at the same moment
            for id in ids:
                await store.execute([an_unused(id, clock()), an_unused(id, clock(), workspace="other")])
            clock.advance(MINUTE)
        whole = await store.unused("default", limit=9)

        assert [unused.id for unused in whole] == ["msg_c", "msg_a", "msg_d", "msg_e", "msg_b"]
        assert {unused.workspace for unused in whole} == {"default"}
        for limit in (1, 2, 3):
            paged: list[Unused] = []
            after = None
            while page := await store.unused("default", after=after, limit=limit):
                assert len(page) <= limit
                paged += page
                after = (page[-1].at, page[-1].id)
            assert paged == list(whole)

    async def test_unused_arrivals_are_found_by_their_run_and_by_their_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for n, run_id in enumerate(("run_1", "run_2", "run_1")):
            for workspace in ("default", "other"):
                await store.execute([an_unused(f"msg_{n}", clock(), run_id=run_id, workspace=workspace)])
            clock.advance(MINUTE)
        first, _, third = await store.unused("default", limit=9)

        assert list(await store.unused("default", run_id="run_1", limit=9)) == [first, third]
        assert list(await store.unused("default", run_id="run_1", after=(first.at, first.id), limit=9)) == [third]
        assert list(await store.unused("elsewhere", run_id="run_1", limit=9)) == []
        assert await store.unused_by_id("default", "msg_2") == third
        assert await store.unused_by_id("default", "msg_9") is None
        assert await store.unused_by_id("elsewhere", "msg_2") is None
