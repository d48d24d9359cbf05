"""`claim`, `renew` and `end_leases`: who has which run, and until when."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bide.core.commands import Committed
from bide.core.records import RunId
from bide.stores.interface import Store
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    SECOND,
    a_commit,
    a_release,
    a_signal,
    an_offer,
    cancelled,
    ending,
    going_on,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
)
from bide.testing.world import VirtualClock


class Claims:
    async def test_runs_are_claimed_by_priority_then_due_time_then_id(self, store: Store, clock: VirtualClock) -> None:
        await started(store, "run_e", priority=-1)
        await started(store, "run_d")
        await started(store, "run_c")
        await started(store, "run_b", delay=SECOND)
        await started(store, "run_a", priority=5, delay=SECOND)
        clock.advance(MINUTE)
        await started(store, "run_f", priority=5)

        done = await store.claim(an_offer())

        assert list(done.turns) == ["run_a", "run_f", "run_c", "run_d", "run_b", "run_e"]

    async def test_no_more_are_claimed_than_there_are_slots(self, store: Store) -> None:
        for n in range(5):
            await started(store, f"run_{n}", priority=n)

        assert list((await store.claim(an_offer(slots=2))).turns) == ["run_4", "run_3"]
        assert (await store.claim(an_offer(slots=0))).turns == {}
        assert list((await store.claim(an_offer(slots=9))).turns) == ["run_2", "run_1", "run_0"]
        assert (await store.claim(an_offer(slots=9))).turns == {}

    async def test_the_best_of_all_queues_are_claimed(self, store: Store) -> None:
        await started(store, "run_1", queue="a", priority=1)
        await started(store, "run_2", queue="b", priority=3)
        await started(store, "run_3", queue="a", priority=2)
        await started(store, "run_4", queue="c", priority=9)
        await started(store, "run_5", queue="b")

        assert list((await store.claim(an_offer(slots=3, queues=frozenset("ab")))).turns) == ["run_2", "run_3", "run_1"]
        assert (await store.claim(an_offer(queues=frozenset({"none"})))).turns == {}
        assert (await store.claim(an_offer(queues=frozenset()))).turns == {}
        assert list((await store.claim(an_offer(queues=frozenset("abc")))).turns) == ["run_4", "run_5"]

    async def test_a_delayed_run_is_claimed_when_its_time_has_come_and_not_before(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await started(store, delay=HOUR)
        clock.advance(HOUR - timedelta(microseconds=1))
        assert (await store.claim(an_offer())).turns == {}

        clock.advance(timedelta(microseconds=1))
        assert list((await store.claim(an_offer())).turns) == ["run_1"]

    async def test_runs_that_wait_or_have_ended_are_not_claimed(self, store: Store) -> None:
        await parked(store, "run_1")
        await started(store, "run_2")
        await cancelled(store, "run_2")

        assert (await store.claim(an_offer())).turns == {}

    async def test_a_claim_is_a_new_epoch_and_is_counted(self, store: Store) -> None:
        await started(store)

        [turn] = (await store.claim(an_offer("w-7"))).turns.values()

        assert turn.run == await row(store)
        assert (turn.run.status, turn.run.epoch, turn.run.claims) == ("running", 1, 1)

    async def test_a_claim_comes_with_what_the_step_needs(self, store: Store) -> None:
        await parked(store, "run_1", "go")
        await store.execute([a_signal("run_1", "other"), a_signal("run_1", "go"), a_signal("run_1", "late")])
        await started(store, "run_2")
        await store.execute([a_signal("run_2", "early")])

        turns = (await store.claim(an_offer())).turns

        assert [signal.name for signal in turns[RunId("run_1")].inbox] == ["other", "go", "late"]
        assert [signal.name for signal in turns[RunId("run_2")].inbox] == ["early"]
        woken_by = turns[RunId("run_1")].woken_by
        assert woken_by is not None
        assert (woken_by.no, woken_by.status, woken_by.names) == (1, "completed", ("go",))
        assert turns[RunId("run_2")].woken_by is None

    async def test_the_worker_that_lets_go_of_a_run_may_claim_it_again(self, store: Store) -> None:
        turn = await running(store)
        await store.execute([a_commit(turn, going_on())], an_offer())

        [again] = (await store.claim(an_offer())).turns.values()

        assert again.run.epoch == turn.run.epoch + 1

    # -- leases

    async def test_a_run_whose_lease_has_ended_is_claimed_by_the_next(self, store: Store, clock: VirtualClock) -> None:
        first = await running(store, offer=an_offer("w-1"))
        clock.advance(MINUTE - timedelta(microseconds=1))
        assert (await store.claim(an_offer("w-2"))).turns == {}

        clock.advance(timedelta(microseconds=1))
        [second] = (await store.claim(an_offer("w-2"))).turns.values()

        assert (second.run.epoch, second.run.claims) == (first.run.epoch + 1, 2)
        assert (await store.claim(an_offer("w-3"))).turns == {}

    async def test_a_run_whose_lease_has_ended_takes_its_place_among_the_ready(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await running(store, "run_1", offer=an_offer(lease=MINUTE))
        await running(store, "run_2", offer=an_offer(lease=SECOND))
        await started(store, "run_3", delay=2 * SECOND)
        clock.advance(HOUR)

        assert list((await store.claim(an_offer())).turns) == ["run_2", "run_3", "run_1"]

    async def test_a_run_that_kills_its_workers_is_held(self, store: Store, clock: VirtualClock) -> None:
        await started(store, "run_1")
        offer = an_offer(max_claims=3)
        for claims in (1, 2, 3):
            [turn] = (await store.claim(offer)).turns.values()
            assert turn.run.claims == claims
            clock.advance(HOUR)

        assert (await store.claim(offer)).turns == {}

        run = await row(store)
        assert (run.status, run.held) == ("ready", "poison")
        assert (await store.claim(offer)).turns == {}
        await store.execute([a_release()])
        [turn] = (await store.claim(offer)).turns.values()
        assert turn.run.claims == 1

    async def test_a_commit_starts_the_count_of_claims_anew(self, store: Store, clock: VirtualClock) -> None:
        await running(store)
        clock.advance(HOUR)
        [turn] = (await store.claim(an_offer())).turns.values()

        await store.execute([a_commit(turn, going_on())])

        assert (await row(store)).claims == 0

    # -- renewing

    async def test_a_renewed_lease_lasts_from_now(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        clock.advance(50 * SECOND)

        assert store.renew("worker-1", {turn.run.id: turn.run.epoch}, MINUTE) == set()

        clock.advance(MINUTE - timedelta(microseconds=1))
        assert (await store.claim(an_offer("w-2"))).turns == {}
        clock.advance(timedelta(microseconds=1))
        assert list((await store.claim(an_offer("w-2"))).turns) == ["run_1"]

    async def test_renewing_tells_which_claims_are_lost_and_extends_the_others(
        self, store: Store, clock: VirtualClock
    ) -> None:
        turns = [await running(store, f"run_{n}") for n in range(6)]
        claims = {turn.run.id: turn.run.epoch for turn in turns}
        await cancelled(store, "run_1")
        await store.execute([a_commit(turns[2], waiting_for("go"))])
        await store.execute([a_commit(turns[3], going_on())])
        claims[RunId("run_4")] += 1
        claims[RunId("run_none")] = 1

        lost = store.renew("worker-1", claims, HOUR)

        assert lost == {"run_1", "run_2", "run_3", "run_4", "run_none"}
        clock.advance(MINUTE)
        assert set((await store.claim(an_offer("w-2"))).turns) == {"run_3", "run_4"}

    async def test_renewing_nothing_loses_nothing(self, store: Store) -> None:
        assert store.renew("worker-1", {}, MINUTE) == set()

    async def test_a_claim_that_somebody_else_has_is_lost(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        clock.advance(MINUTE)
        await store.claim(an_offer("w-2"))

        assert store.renew("worker-1", {turn.run.id: turn.run.epoch}, MINUTE) == {"run_1"}

    async def test_a_lease_that_has_ended_and_that_nobody_took_is_extended(
        self, store: Store, clock: VirtualClock
    ) -> None:
        turn = await running(store)
        clock.advance(HOUR)

        assert store.renew("worker-1", {turn.run.id: turn.run.epoch}, MINUTE) == set()
        assert (await store.claim(an_offer("w-2"))).turns == {}

    async def test_leases_are_renewed_from_other_threads_while_batches_are_executed(
        self, store: Store, clock: VirtualClock
    ) -> None:
        turns = [await running(store, f"run_{n}") for n in range(4)]
        claims = {turn.run.id: turn.run.epoch for turn in turns}

        *lost, _ = await asyncio.gather(
            *(asyncio.to_thread(store.renew, "worker-1", claims, HOUR) for _ in range(4)),
            store.execute([a_signal(run_id) for run_id in claims]),
        )

        assert lost == [set()] * 4
        clock.advance(MINUTE)
        assert (await store.claim(an_offer("w-2"))).turns == {}

    # -- ending leases

    async def test_ending_the_leases_of_a_worker_makes_its_runs_claimable(self, store: Store) -> None:
        for n in range(3):
            await running(store, f"run_{n}", offer=an_offer("w-1"))
        await running(store, "run_9", offer=an_offer("w-2"))

        assert await store.end_leases("w-1") == 3

        done = await store.claim(an_offer("w-3"))
        assert list(done.turns) == ["run_0", "run_1", "run_2"]
        assert [turn.run.epoch for turn in done.turns.values()] == [2, 2, 2]
        assert await store.end_leases("w-1") == 0
        assert await store.end_leases("nobody") == 0

    async def test_a_turn_whose_lease_was_ended_may_still_commit_while_nobody_took_it(self, store: Store) -> None:
        turn = await running(store)
        await store.end_leases("worker-1")

        told(Committed, await reply_to(store, a_commit(turn, ending())))
