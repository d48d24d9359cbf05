"""Runs in progress: a store may know them from what it wrote last, and must see what anybody has done to them since."""

from __future__ import annotations

import pytest

from bide.core.commands import Cancelled, Committed, Stale
from bide.core.records import RunId, Turn
from bide.stores.interface import Store
from bide.testing.store_contract.making import (
    MINUTE,
    a_cancel,
    a_commit,
    a_signal,
    a_start,
    an_offer,
    ending,
    going_on,
    outcomes,
    reply_to,
    row,
    running,
    told,
    waiting_for,
    woken,
)
from bide.testing.world import VirtualClock

WHO = pytest.mark.parametrize("who", ["this store", "another store"])


def place(who: str, store: Store, rival: Store) -> Store:
    return store if who == "this store" else rival


async def second_turn(store: Store) -> Turn:
    """A run whose second step is at work, with the signal that woke it and one that nobody has asked for."""
    told(Committed, await reply_to(store, a_commit(await running(store), waiting_for("go"))))
    assert outcomes(await store.execute([a_signal(name="other")])) == ["queued"]
    return await woken(store)


class RunsInProgress:
    @WHO
    async def test_D4_a_signal_that_came_since_the_claim_is_seen_by_the_park(
        self, store: Store, rival: Store, who: str
    ) -> None:
        turn = await running(store)
        assert outcomes(await place(who, store, rival).execute([a_signal()])) == ["queued"]

        parked = told(Committed, await reply_to(store, a_commit(turn, waiting_for("go"))))

        assert parked.run.status == "ready"  # what it waits for is there

    @WHO
    async def test_S5_what_came_since_the_claim_stays_when_the_step_goes_on(
        self, store: Store, rival: Store, who: str
    ) -> None:
        turn = await second_turn(store)
        await place(who, store, rival).execute([a_signal(), a_signal(name="other")])

        used = [signal for signal in turn.inbox if signal.name == "go"]
        told(Committed, await reply_to(store, a_commit(turn, going_on(), used=used)))

        assert [signal.name for signal in await store.inbox(RunId("run_1"))] == ["other", "go", "other"]
        assert (await row(store)).inbox_count == 3

    @WHO
    async def test_S5_an_end_clears_what_came_since_the_claim(self, store: Store, rival: Store, who: str) -> None:
        turn = await second_turn(store)
        await place(who, store, rival).execute([a_signal(name="late")])

        told(Committed, await reply_to(store, a_commit(turn, ending(), used=turn.inbox)))

        assert await store.inbox(RunId("run_1")) == []

    @WHO
    async def test_D3_a_run_that_was_cancelled_since_the_claim_takes_no_commit(
        self, store: Store, rival: Store, who: str
    ) -> None:
        turn = await second_turn(store)
        told(Cancelled, await reply_to(place(who, store, rival), a_cancel()))

        told(Stale, await reply_to(store, a_commit(turn, going_on())))

        assert (await row(store)).status == "cancelled"

    @WHO
    async def test_D3_a_run_that_was_claimed_anew_takes_no_commit_of_the_earlier_claim(
        self, store: Store, rival: Store, clock: VirtualClock, who: str
    ) -> None:
        turn = await second_turn(store)
        clock.advance(2 * MINUTE)
        other = place(who, store, rival)
        [newer] = (await other.claim(an_offer("w-2"))).turns.values()

        told(Stale, await reply_to(store, a_commit(turn, going_on())))
        told(Committed, await reply_to(other, a_commit(newer, ending(), used=newer.inbox)))

        assert (await row(store)).status == "completed"

    async def test_a_run_that_another_store_took_a_step_of_goes_on_where_that_step_left_it(
        self, store: Store, rival: Store
    ) -> None:
        turn = await second_turn(store)
        gone_on = await rival.execute([a_commit(turn, going_on("third", '{"n":3}'), keep=True)], an_offer())
        [third] = gone_on.turns.values()

        told(Stale, await reply_to(store, a_commit(turn, going_on())))
        told(Committed, await reply_to(store, a_commit(third, waiting_for("more"))))

        now = await row(store)
        assert (now.step, now.state, now.commits) == ("told", "{}", third.run.commits + 1)

    async def test_many_runs_that_are_known_and_some_that_are_not_are_decided_together(
        self, store: Store, rival: Store
    ) -> None:
        ids = [f"run_{number}" for number in range(9)]
        turns = (await store.execute([a_start(run_id) for run_id in ids], an_offer())).turns
        await rival.execute([a_signal(run_id) for run_id in ids[::2]])

        done = await store.execute([a_commit(turns[RunId(run_id)], waiting_for("go")) for run_id in reversed(ids)])

        left = [told(Committed, reply).run for reply in reversed(done.replies)]
        assert [(run.id, run.status) for run in left] == [
            (run_id, "waiting" if at % 2 else "ready") for at, run_id in enumerate(ids)
        ]
