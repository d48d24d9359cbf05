"""`delete_ended`: what is over goes in small batches, with everything of its own and nothing of others."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from bide.core.commands import CancelChildren, Started
from bide.core.records import RunId
from bide.stores.interface import MOST_UNUSED_OF_WAIT, RunFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    WORKSPACE,
    a_child,
    a_commit,
    a_signal,
    a_start,
    an_offer,
    an_unused,
    cancelled,
    ended,
    ending,
    joining,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
    woken,
)
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock


async def ids(store: Store) -> list[RunId]:
    return [run.id for run in await store.runs(RunFilter(), after=None, limit=99)]


class Retention:
    async def test_runs_that_ended_longer_ago_are_deleted(self, store: Store, clock: VirtualClock) -> None:
        await ended(store, "run_1")
        clock.advance(MINUTE)
        await ended(store, "run_2")
        await started(store, "run_3")
        await parked(store, "run_4")
        await running(store, "run_5")
        clock.advance(HOUR)

        assert await store.delete_ended(HOUR, 9) == 1
        assert await ids(store) == ["run_2", "run_3", "run_4", "run_5"]
        clock.advance(timedelta(microseconds=1))
        assert await store.delete_ended(HOUR, 9) == 1
        assert await ids(store) == ["run_3", "run_4", "run_5"]
        clock.advance(timedelta(days=9999))
        assert await store.delete_ended(HOUR, 9) == 0

    async def test_runs_are_deleted_in_small_batches(self, store: Store, clock: VirtualClock) -> None:
        for n in range(5):
            await ended(store, f"run_{n}")
        clock.advance(HOUR)

        assert [await store.delete_ended(MINUTE, 2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_everything_of_a_run_goes_with_it(self, store: Store, clock: VirtualClock) -> None:
        await started(store, "run_2")
        alone = await visible_rows(store)
        await parked(store, "run_1", correlation_key="order-7", correlation_scope="forever")
        turn = await woken(store, "run_1", dedup_key="d-1")
        await store.execute([a_commit(turn, ending())])
        clock.advance(HOUR)

        assert await store.delete_ended(MINUTE, 9) == 1

        assert await store.run("default", "run_1") is None
        assert await store.ledger("run_1") == []
        assert await store.inbox("run_1") == []
        assert await store.waits(WaitFilter(run_id="run_1", status=None), after=None, limit=9) == []
        assert {**await visible_rows(store), "until due": None} == {**alone, "until due": None}

    async def test_what_came_for_a_run_and_could_not_be_used_is_kept_longer_than_the_run(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """S12: its own time counts from when it came, also where that was long after the end."""
        await ended(store, "run_1")
        clock.advance(HOUR)
        await store.execute([a_signal("run_1")])
        clock.advance(MINUTE)

        assert await store.delete_ended(HOUR, 9) == 1
        assert await store.trim_unused(HOUR, 9, 9) == 0
        [kept] = await store.unused("default", limit=9)
        assert (kept.run_id, kept.reason) == ("run_1", "completed")
        clock.advance(HOUR)
        assert await store.trim_unused(HOUR, 9, 9) == 1

    async def test_deletion_frees_the_key_that_was_held_forever(self, store: Store, clock: VirtualClock) -> None:
        await ended(store, "run_1", correlation_key="order-7", correlation_scope="forever")
        clock.advance(HOUR)
        await store.delete_ended(MINUTE, 9)

        assert await store.holder("default", "order-7") is None
        told(Started, await reply_to(store, a_start("run_2", correlation_key="order-7")))

    async def test_deletion_spares_the_key_that_the_next_run_holds(self, store: Store, clock: VirtualClock) -> None:
        await ended(store, "run_1", correlation_key="order-7")
        await started(store, "run_2", correlation_key="order-7")
        clock.advance(HOUR)
        await store.delete_ended(MINUTE, 9)

        assert await store.holder("default", "order-7") == "run_2"

    async def test_deletion_frees_dedup_keys(self, store: Store, clock: VirtualClock) -> None:
        await started(store, "run_1")
        await store.execute([a_signal("run_1", dedup_key="d-1")])
        await cancelled(store, "run_1")
        assert outcomes(await store.execute([a_signal("run_1", dedup_key="d-1")])) == ["duplicate"]
        clock.advance(HOUR)
        await store.delete_ended(MINUTE, 9)

        assert outcomes(await store.execute([a_signal("run_1", dedup_key="d-1")])) == ["no_target"]
        told(Started, await reply_to(store, a_start("run_1")))
        assert outcomes(await store.execute([a_signal("run_1", dedup_key="d-1")])) == ["queued"]

    async def test_a_child_is_spared_while_its_parent_lives(self, store: Store, clock: VirtualClock) -> None:
        parent = await running(store, "run_1")
        spawned = await store.execute([a_commit(parent, joining(a_child("run_2"), a_child("run_3")))], an_offer())
        await store.execute([a_commit(turn, ending(result="7")) for turn in spawned.turns.values()])
        clock.advance(HOUR)

        assert await store.delete_ended(MINUTE, 9) == 0
        [turn] = (await store.claim(an_offer())).turns.values()
        assert [child.result for child in turn.children] == ["7", "7"]

        await store.execute([a_commit(turn, ending())])
        assert await store.delete_ended(MINUTE, 9) == 2
        clock.advance(HOUR)
        assert await store.delete_ended(MINUTE, 9) == 1
        assert await ids(store) == []

    async def test_a_live_child_of_a_deleted_parent_goes_on(self, store: Store, clock: VirtualClock) -> None:
        parent = await running(store, "run_1")
        [turn] = (
            await store.execute([a_commit(parent, joining(a_child("run_2"), timeout=MINUTE))], an_offer())
        ).turns.values()
        clock.advance(MINUTE)
        [late] = (await store.fire_timers(9, an_offer())).turns.values()
        await store.execute([a_commit(late, ending())])
        clock.advance(HOUR)
        assert await store.delete_ended(MINUTE, 9) == 1

        await store.execute([a_commit(turn, waiting_for("go"))])
        child = await woken(store, "run_2")
        await store.execute([a_commit(child, ending())])

        assert (await row(store, "run_2")).status == "completed"

    async def test_a_chore_outlives_the_run_that_left_it(self, store: Store, clock: VirtualClock) -> None:
        parent = await running(store, "run_1")
        await store.execute([a_commit(parent, joining(a_child("run_2")))])
        await cancelled(store, "run_1")
        clock.advance(HOUR)
        assert await store.delete_ended(MINUTE, 9) == 1

        [chore] = await store.due_chores(9)
        children = tuple(await store.live_children(chore.run_id, 9))
        await store.execute(
            [
                CancelChildren(
                    workspace=WORKSPACE,
                    chore_id=chore.id,
                    run_id=chore.run_id,
                    children=children,
                    reason="",
                    is_last=True,
                )
            ]
        )

        assert children == ("run_2",)
        assert (await row(store, "run_2")).status == "cancelled"
        assert await store.due_chores(9) == []

    # -- kept arrivals

    async def test_kept_arrivals_that_are_too_old_are_deleted_oldest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for n in range(5):
            await store.execute([an_unused(f"msg_{n}", clock())])
            clock.advance(MINUTE)

        assert await store.trim_unused(3 * MINUTE, 99, 1) == 1
        assert [unused.id for unused in await store.unused("default", limit=9)] == ["msg_1", "msg_2", "msg_3", "msg_4"]
        assert await store.trim_unused(3 * MINUTE, 99, 9) == 1
        assert await store.trim_unused(3 * MINUTE, 99, 9) == 0
        assert [unused.id for unused in await store.unused("default", limit=9)] == ["msg_2", "msg_3", "msg_4"]

    async def test_the_newest_kept_arrivals_of_each_wait_stay(self, store: Store, clock: VirtualClock) -> None:
        """S12: 100 for a wait or an interaction; a correlation key has no such limit."""
        targets = ("wait_1_1", "int_1_1_0", "order:1")
        for n in range(MOST_UNUSED_OF_WAIT + 2):
            await store.execute([an_unused(f"msg_{n:03}_{target}", clock(), target=target) for target in targets])
            clock.advance(timedelta(seconds=1))

        assert await store.trim_unused(HOUR, 10_000, 10_000) == 4

        kept = Counter(unused.target for unused in await store.unused("default", limit=1000))
        assert kept == {"wait_1_1": 100, "int_1_1_0": 100, "order:1": 102}
        assert not {"msg_000_wait_1_1", "msg_001_int_1_1_0"} & {
            unused.id for unused in await store.unused("default", limit=1000)
        }

    async def test_the_newest_kept_arrivals_of_each_workspace_stay(self, store: Store, clock: VirtualClock) -> None:
        for n in range(4):
            await store.execute([an_unused(f"msg_{n}", clock()), an_unused(f"msg_{n}", clock(), workspace="other")])
            clock.advance(MINUTE)
        await store.execute([an_unused("msg_9", clock(), workspace="third")])

        assert await store.trim_unused(HOUR, 3, 99) == 2
        assert await store.trim_unused(HOUR, 2, 1) == 1
        assert await store.trim_unused(HOUR, 2, 99) == 1

        assert [unused.id for unused in await store.unused("default", limit=9)] == ["msg_2", "msg_3"]
        assert [unused.id for unused in await store.unused("other", limit=9)] == ["msg_2", "msg_3"]
        assert len(await store.unused("third", limit=9)) == 1
