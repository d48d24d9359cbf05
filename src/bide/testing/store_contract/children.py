"""Children: spawned and joined in one commit each, counted once, cancelled by a chore."""

from __future__ import annotations

from bide.core.commands import CancelChildren, Done
from bide.core.records import RunId, Turn
from bide.stores.interface import Executed, RunFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    WORKSPACE,
    a_cancel,
    a_child,
    a_commit,
    an_offer,
    cancelled,
    ending,
    joining,
    row,
    running,
)
from bide.testing.world import VirtualClock


async def spawned(store: Store, *ids: str, **changes: object) -> dict[RunId, Turn]:
    """The first turns of the children that `run_1` waits for."""
    parent = await running(store, "run_1")
    park = joining(*map(a_child, ids), **changes)
    return (await store.execute([a_commit(parent, park)], an_offer(slots=len(ids)))).turns


async def cancel_children(store: Store, *ids: str, is_last: bool) -> Executed:
    """Do a part of the one chore that is due."""
    [chore] = await store.due_chores(9)
    children = tuple(map(RunId, ids))
    command = CancelChildren(
        workspace=WORKSPACE, chore_id=chore.id, run_id=chore.run_id, children=children, reason="x", is_last=is_last
    )
    return await store.execute([command])


class Children:
    async def test_children_are_inserted_with_the_commit_that_parks_their_parent(self, store: Store) -> None:
        await spawned(store, "run_3", "run_2")

        parent = await row(store)
        assert (parent.status, parent.has_children, parent.parked_on) == ("waiting", True, 1)
        children = await store.runs(RunFilter(parent_id="run_1"), after=None, limit=9)
        assert [(run.id, run.parent_wait, run.child_no) for run in children] == [("run_2", 1, 1), ("run_3", 1, 0)]
        [wait] = await store.waits(WaitFilter(), after=None, limit=9)
        assert (wait.kind, wait.expected, wait.received) == ("children", 2, 0)

    async def test_the_parent_is_woken_by_the_end_of_its_last_child_whatever_that_end_is(self, store: Store) -> None:
        turns = await spawned(store, "run_2", "run_3", "run_4")

        await store.execute([a_commit(turns[RunId("run_3")], ending(status="failed", error='"x"'))])
        await store.execute([a_cancel("run_2")])
        assert (await row(store)).status == "waiting"
        await store.execute([a_commit(turns[RunId("run_4")], ending())])

        parent = await row(store)
        assert (parent.status, parent.step, parent.woken_by) == ("ready", "joined", 1)
        [turn] = (await store.claim(an_offer())).turns.values()
        assert [child.status for child in turn.children] == ["cancelled", "failed", "completed"]

    async def test_children_that_end_in_one_batch_are_all_counted(self, store: Store) -> None:
        turns = await spawned(store, "run_2", "run_3", "run_4")

        done = await store.execute([a_commit(turn, ending()) for turn in turns.values()], an_offer())

        assert list(done.turns) == ["run_1"]
        [wait] = await store.waits(WaitFilter(status=None), after=None, limit=9)
        assert (wait.status, wait.received) == ("completed", 3)

    async def test_the_end_of_a_child_is_counted_once(self, store: Store) -> None:
        turns = await spawned(store, "run_2", "run_3")
        end = a_commit(turns[RunId("run_2")], ending())

        await store.execute([end, end])
        await store.execute([end, a_cancel("run_2")])

        assert (await row(store)).status == "waiting"
        [wait] = await store.waits(WaitFilter(), after=None, limit=9)
        assert wait.received == 1

    async def test_a_child_that_ends_after_the_join_timed_out_changes_nothing_of_the_parent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        turns = await spawned(store, "run_2", timeout=HOUR)
        clock.advance(HOUR)
        await store.fire_timers(9)
        before = await row(store)

        await store.execute([a_commit(turns[RunId("run_2")], ending())])

        assert await row(store) == before
        assert before.status == "ready"

    async def test_a_grandchild_tells_its_own_parent_alone(self, store: Store) -> None:
        turns = await spawned(store, "run_2")
        spawn = a_commit(turns[RunId("run_2")], joining(a_child("run_3")))
        below = (await store.execute([spawn], an_offer())).turns[RunId("run_3")]

        done = await store.execute([a_commit(below, ending())], an_offer())

        assert list(done.turns) == ["run_2"]
        assert (await row(store)).status == "waiting"

    # -- live children

    async def test_live_children_are_listed_oldest_first_up_to_a_limit(self, store: Store) -> None:
        turns = await spawned(store, "run_5", "run_2", "run_4", "run_3")
        await store.execute([a_commit(turns[RunId("run_4")], ending())])
        await running(store, "run_9")

        assert await store.live_children(RunId("run_1"), 9) == ["run_2", "run_3", "run_5"]
        assert await store.live_children(RunId("run_1"), 2) == ["run_2", "run_3"]
        assert await store.live_children(RunId("run_1"), 9, after=RunId("run_2")) == ["run_3", "run_5"]
        assert await store.live_children(RunId("run_1"), 9, after=RunId("run_5")) == []
        assert await store.live_children(RunId("run_9"), 9) == []
        assert await store.live_children(RunId("run_none"), 9) == []

    async def test_live_children_of_one_join_are_listed_alone(self, store: Store, clock: VirtualClock) -> None:
        await spawned(store, "run_2", "run_3", timeout=HOUR)
        clock.advance(HOUR)
        [late] = (await store.fire_timers(9, an_offer())).turns.values()
        await store.execute([a_commit(late, joining(a_child("run_4")))])

        assert await store.live_children(RunId("run_1"), 9) == ["run_2", "run_3", "run_4"]
        assert await store.live_children(RunId("run_1"), 9, wait_no=1) == ["run_2", "run_3"]
        assert await store.live_children(RunId("run_1"), 9, wait_no=1, after=RunId("run_2")) == ["run_3"]
        assert await store.live_children(RunId("run_1"), 9, wait_no=2) == ["run_4"]
        assert await store.live_children(RunId("run_1"), 9, wait_no=3) == []

    # -- the chore that a cancelled parent leaves

    async def test_a_cancelled_parent_leaves_a_chore(self, store: Store, clock: VirtualClock) -> None:
        await spawned(store, "run_2")
        assert await store.due_chores(9) == []

        await cancelled(store)

        [chore] = await store.due_chores(9)
        assert (chore.run_id, chore.kind, chore.due_at) == ("run_1", "cancel_children", clock())
        assert (await row(store, "run_2")).status == "running"

    async def test_a_join_that_times_out_leaves_a_chore_where_it_was_told_to(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await spawned(store, "run_2", timeout=HOUR, cancel_children=True)
        clock.advance(HOUR)

        await store.fire_timers(9)

        assert [chore.run_id for chore in await store.due_chores(9)] == ["run_1"]
        assert (await row(store)).status == "ready"

    async def test_a_chore_is_done_in_parts_and_stays_until_the_last(self, store: Store) -> None:
        await spawned(store, "run_2", "run_3", "run_4")
        await cancelled(store)

        first = await cancel_children(store, "run_2", "run_3", is_last=False)
        assert first.replies == [Done(True)]
        assert {run.id: run.status for run in first.ended} == {"run_2": "cancelled", "run_3": "cancelled"}
        assert len(await store.due_chores(9)) == 1

        await cancel_children(store, "run_4", is_last=True)
        assert await store.due_chores(9) == []
        assert await store.live_children(RunId("run_1"), 9) == []

    async def test_a_chore_touches_no_run_that_is_not_a_live_child(self, store: Store) -> None:
        turns = await spawned(store, "run_2", "run_3")
        await store.execute([a_commit(turns[RunId("run_2")], ending())])
        await running(store, "run_8")
        await cancelled(store)

        await cancel_children(store, "run_2", "run_3", "run_8", "run_none", is_last=True)

        assert (await row(store, "run_2")).status == "completed"
        assert (await row(store, "run_3")).status == "cancelled"
        assert (await row(store, "run_8")).status == "running"

    async def test_a_child_that_is_cancelled_by_the_chore_leaves_a_chore_for_its_own(self, store: Store) -> None:
        turns = await spawned(store, "run_2")
        await store.execute([a_commit(turns[RunId("run_2")], joining(a_child("run_3")))])
        await cancelled(store)

        await cancel_children(store, "run_2", is_last=True)

        assert [chore.run_id for chore in await store.due_chores(9)] == ["run_2"]

    async def test_chores_are_listed_earliest_first_up_to_a_limit(self, store: Store, clock: VirtualClock) -> None:
        for run_id in ("run_3", "run_1", "run_2"):
            turn = await running(store, run_id)
            await store.execute([a_commit(turn, joining(a_child(f"{run_id}_child")))])
            await cancelled(store, run_id)
            clock.advance(MINUTE)

        assert [chore.run_id for chore in await store.due_chores(9)] == ["run_3", "run_1", "run_2"]
        assert [chore.run_id for chore in await store.due_chores(2)] == ["run_3", "run_1"]
