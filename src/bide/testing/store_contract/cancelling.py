"""Cancelling: at once, or after a clean-up that has its time."""

from __future__ import annotations

from datetime import timedelta

from bide.core.commands import Cancelled, Committed, Done, Stale, Unknown
from bide.core.records import RunId
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_commit,
    a_give_back,
    a_signal,
    an_offer,
    cancelled,
    ended,
    ending,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
)
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock

GRACE = 600.0


class Cancelling:
    async def test_a_cancel_closes_everything_of_a_run(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, park=waiting_for("go", timeout=HOUR), correlation_key="order-7")
        await store.execute([a_signal(name="other")])

        run = told(Cancelled, await reply_to(store, a_cancel(reason="the customer left"))).run

        assert run == await row(store)
        assert (run.status, run.cancel_reason, run.ended_at) == ("cancelled", "the customer left", clock())
        [wait] = await store.waits(WaitFilter(status=None), after=None, limit=9)
        assert (wait.status, wait.due_at) == ("cancelled", None)
        assert await store.inbox("run_1") == []
        assert await store.holder("default", "order-7") is None
        assert await store.until_due(frozenset({"default"})) is None
        clock.advance(HOUR)
        assert (await store.fire_timers(9)).replies == []

    async def test_a_run_is_cancelled_whether_it_is_ready_delayed_running_or_held(self, store: Store) -> None:
        await started(store, "run_1")
        await started(store, "run_2", delay=HOUR)
        await running(store, "run_3")
        held = await running(store, "run_4")
        await store.execute([a_give_back(held, hold="poison")])

        await store.execute([a_cancel(f"run_{n}") for n in (1, 2, 3, 4)])

        assert await store.count_runs(None) == {"cancelled": 4}
        assert (await store.claim(an_offer())).turns == {}

    async def test_a_cancel_of_an_ended_run_says_so_and_changes_nothing(self, store: Store) -> None:
        await ended(store)
        before = await visible_rows(store)

        assert await reply_to(store, a_cancel()) == Cancelled(await row(store), already_final=True)
        assert await visible_rows(store) == before

    async def test_a_cancel_of_an_unknown_or_foreign_run_changes_nothing(self, store: Store) -> None:
        await parked(store)
        before = await visible_rows(store)

        done = await store.execute([a_cancel("run_9"), a_cancel("run_1", workspace="other")])

        assert done.replies == [Unknown("run_9"), Unknown("run_1")]
        assert await visible_rows(store) == before

    # -- clean-up

    async def test_a_clean_up_voids_the_claim_from_before_it(self, store: Store) -> None:
        turn = await running(store, cleanup_seconds=GRACE)

        await cancelled(store)

        assert await reply_to(store, a_commit(turn, ending())) == Stale(turn.run.id)
        run = await row(store)
        assert (run.status, run.step, run.cancel_reason) == ("ready", "on_cancel", "enough")

    async def test_a_run_that_was_cleaned_up_ends_cancelled(self, store: Store) -> None:
        await parked(store, cleanup_seconds=GRACE)
        await cancelled(store)
        [turn] = (await store.claim(an_offer())).turns.values()

        run = told(Committed, await reply_to(store, a_commit(turn, ending(status="completed")))).run

        assert (run.status, run.cancel_until) == ("cancelled", None)
        assert await store.until_due(frozenset({"default"})) is None

    async def test_asking_again_for_a_clean_up_changes_nothing(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, cleanup_seconds=GRACE)
        await cancelled(store)
        clock.advance(MINUTE)
        before = await visible_rows(store)

        told(Cancelled, await reply_to(store, a_cancel(reason="again")))

        assert await visible_rows(store) == before

    async def test_a_forced_cancel_needs_no_clean_up(self, store: Store) -> None:
        await parked(store, "run_1", cleanup_seconds=GRACE)
        await parked(store, "run_2", cleanup_seconds=GRACE)
        await cancelled(store, "run_2")

        await store.execute([a_cancel("run_1", force=True), a_cancel("run_2", force=True)])

        assert await store.count_runs(None) == {"cancelled": 2}

    async def test_a_clean_up_whose_time_is_over_ends_where_it_stands(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, cleanup_seconds=GRACE)
        [turn] = (await store.execute([a_cancel()], an_offer(lease=HOUR))).turns.values()
        clock.advance(timedelta(seconds=GRACE) - timedelta(microseconds=1))
        assert (await store.fire_timers(9)).replies == []

        clock.advance(timedelta(microseconds=1))
        done = await store.fire_timers(9)

        assert done.replies == [Done(True)]
        assert [(run.id, run.status) for run in done.ended] == [("run_1", "cancelled")]
        assert await reply_to(store, a_commit(turn, ending())) == Stale(RunId("run_1"))

    async def test_a_clean_up_may_wait_for_a_signal(self, store: Store) -> None:
        await parked(store, cleanup_seconds=GRACE)
        [turn] = (await store.execute([a_cancel()], an_offer())).turns.values()
        await store.execute([a_commit(turn, waiting_for("confirmed", timeout=MINUTE))])

        assert outcomes(await store.execute([a_signal(name="confirmed")])) == ["woke"]
        assert await store.until_due(frozenset({"default"})) == timedelta(0)

    async def test_a_clean_up_tells_when_its_time_is_over(self, store: Store) -> None:
        await parked(store, cleanup_seconds=GRACE)

        done = await store.execute([a_cancel()], an_offer())

        assert done.due_in == timedelta(seconds=GRACE)
