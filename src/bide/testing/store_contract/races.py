"""Races: two stores on one place, many calls at once, and whatever order they take, one truth at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any, TypeVar

import pytest

from bide.core.commands import Committed, Deliver, Done, Receipt, Receipts, Stale, Started
from bide.core.records import FINAL, RunId, Turn
from bide.stores.interface import Executed, RunFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    a_cancel,
    a_child,
    a_commit,
    a_signal,
    a_signal_by_key,
    a_start,
    a_start_or_signal,
    an_offer,
    ended,
    ending,
    going_on,
    joining,
    kinds,
    many,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
)
from bide.testing.world import VirtualClock

T = TypeVar("T")

ROUNDS = 10  # enough for everything to be done, also where rivals pass over what the other has in hand


async def at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    return list(await asyncio.gather(*calls))


def all_outcomes(done: Iterable[Executed]) -> list[str]:
    return [outcome for one in done for outcome in outcomes(one)]


class Races:
    async def test_two_stores_on_one_place_see_each_other(self, store: Store, rival: Store) -> None:
        turn = await running(store)

        told(Committed, await reply_to(rival, a_commit(turn, waiting_for("go"))))
        assert outcomes(await store.execute([a_signal()])) == ["woke"]
        [turn] = (await rival.claim(an_offer("w-2"))).turns.values()

        assert (await store.claim(an_offer("w-1"))).turns == {}
        told(Committed, await reply_to(store, a_commit(turn, ending())))
        assert await rival.audit() == []

    async def test_a_run_that_many_claim_at_once_has_one_worker(self, store: Store, rival: Store) -> None:
        await store.execute([a_start(f"run_{n:02}", priority=n % 3) for n in range(30)])

        claimed: Counter[RunId] = Counter()
        for _ in range(ROUNDS):
            done = await at_once(place.claim(an_offer(f"w-{n}", slots=4)) for n, place in enumerate((store, rival) * 4))
            for one in done:
                claimed.update(list(one.turns))

        assert claimed == {f"run_{n:02}": 1 for n in range(30)}
        assert {run.epoch for run in await store.runs(RunFilter(), after=None, limit=99)} == {1}

    @pytest.mark.parametrize("ready", [10, 1])
    async def test_many_more_workers_than_ready_runs_claim_each_run_once(
        self, store: Store, rival: Store, ready: int
    ) -> None:
        await store.execute([a_start(f"run_{n}") for n in range(ready)])

        claimed: Counter[RunId] = Counter()
        for _ in range(2):  # who finds nothing looks again, and finds what others had in hand and passed over
            offers = (an_offer(f"w-{n}", slots=1) for n in range(64))
            for one in await at_once(
                place.claim(offer) for place, offer in zip((store, rival) * 32, offers, strict=True)
            ):
                claimed.update(list(one.turns))

        assert claimed == {f"run_{n}": 1 for n in range(ready)}
        assert {run.epoch for run in await store.runs(RunFilter(), after=None, limit=99)} == {1}
        assert await store.audit() == []

    async def test_overlapping_batches_of_signals_all_arrive_once_and_wake_once(
        self, store: Store, rival: Store
    ) -> None:
        random = Random(7)
        ids = [f"run_{n}" for n in range(6)]
        for run_id in ids:
            await parked(store, run_id)
        batches = [[a_signal(random.choice(ids)) for _ in range(5)] for _ in range(40)]

        done = await at_once(place.execute(batch) for place, batch in zip((store, rival) * 20, batches, strict=True))

        sent = [signal for batch in batches for signal in batch]
        woke = Counter(s.run_id for s, outcome in zip(sent, all_outcomes(done), strict=True) if outcome == "woke")
        assert set(woke.values()) == {1}
        for run_id in ids:
            there = await rival.inbox(run_id)
            assert {signal.id for signal in there} == {s.signal_id for s in sent if s.run_id == run_id}
            assert [signal.seq for signal in there] == list(range(1, len(there) + 1))

    async def test_batches_that_lock_the_same_runs_in_other_orders_do_not_block_each_other(
        self, store: Store, rival: Store
    ) -> None:
        ids = [f"run_{n}" for n in range(5)]
        await store.execute([a_start(run_id, correlation_key=f"key {run_id}") for run_id in ids])
        forwards = [many(*map(a_signal, ids)) for _ in range(10)]
        backwards = [many(*(a_signal_by_key(f"key {run_id}") for run_id in reversed(ids))) for _ in range(10)]

        done = await at_once(
            place.execute([command])
            for pair in zip(forwards, backwards, strict=True)
            for place, command in zip((store, rival), pair, strict=True)
        )

        assert {kinds(one)[0] for one in done} == {"Receipts"}
        assert all(r.outcome == "queued" for one in done for r in told(Receipts, one.replies[0]).receipts)
        assert [len(await store.inbox(run_id)) for run_id in ids] == [20] * 5

    async def test_a_signal_and_a_park_meet_in_either_order(self, store: Store, rival: Store) -> None:
        turns = [await running(store, f"run_{n}") for n in range(12)]

        calls = []
        for n, turn in enumerate(turns):
            park, signal = store.execute([a_commit(turn, waiting_for("go"))]), rival.execute([a_signal(turn.run.id)])
            calls += [park, signal] if n % 2 else [signal, park]
        await at_once(calls)

        assert await store.count_runs(None) == {"ready": 12}
        claimed = (await store.claim(an_offer(slots=99))).turns
        assert all(len(turn.inbox) == 1 and turn.woken_by is not None for turn in claimed.values())

    async def test_an_answer_a_timeout_and_a_cancel_at_once_close_a_wait_once(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        ids = [f"run_{n}" for n in range(8)]
        for run_id in ids:
            await parked(store, run_id, park=waiting_for("go", timeout=HOUR))
        clock.advance(HOUR)

        calls: list[Coroutine[Any, Any, Executed]] = []
        for run_id in ids:
            calls += [store.execute([a_signal(run_id)]), rival.fire_timers(2), rival.execute([a_cancel(run_id)])]
        done = await at_once(calls)

        assert sum(len(one.ended) for one in done) == 8
        waits = await store.waits(WaitFilter(status=None), after=None, limit=99)
        assert len(waits) == 8
        assert {wait.status for wait in waits} <= {"completed", "timed_out", "cancelled"}
        assert await store.count_runs(None) == {"cancelled": 8}

    async def test_one_turn_that_is_committed_twice_at_once_counts_once(self, store: Store, rival: Store) -> None:
        turns = [await running(store, f"run_{n}") for n in range(8)]

        for turn in turns:
            done = await at_once(place.execute([a_commit(turn, going_on())]) for place in (store, rival, store))
            assert sorted(kind for one in done for kind in kinds(one)) == ["Committed", "Stale", "Stale"]

        assert {run.commits for run in await store.runs(RunFilter(), after=None, limit=99)} == {1}

    async def test_a_commit_and_a_cancel_at_once_end_a_run_once(self, store: Store, rival: Store) -> None:
        turns = [await running(store, f"run_{n}") for n in range(8)]

        done = await at_once(
            call
            for turn in turns
            for call in (store.execute([a_commit(turn, ending())]), rival.execute([a_cancel(turn.run.id)]))
        )

        assert sum(len(one.ended) for one in done) == 8
        for commit, cancel in zip(done[::2], done[1::2], strict=True):
            is_stale = isinstance(commit.replies[0], Stale)
            assert is_stale == bool(cancel.ended)

    async def test_one_of_many_starts_at_once_gets_the_key(self, store: Store, rival: Store) -> None:
        done = await at_once(
            place.execute([a_start(f"run_{n}", correlation_key="order-7"), a_start(f"run_x{n}")])
            for n, place in enumerate((store, rival) * 5)
        )

        replies = [one.replies[0] for one in done]
        [winner] = [reply.run.id for reply in replies if isinstance(reply, Started)]
        assert {reply.holder for reply in replies if not isinstance(reply, Started)} == {winner}  # type: ignore[union-attr]
        assert await rival.holder("default", "order-7") == winner
        assert await store.count_runs(None) == {"ready": 11}

    async def test_a_start_that_is_tried_twice_at_once_starts_one_run(self, store: Store, rival: Store) -> None:
        starts = [a_start(f"run_{n}") for n in range(6)]

        done = await at_once(place.execute([start]) for start in starts for place in (store, rival))

        assert {kind for one in done for kind in kinds(one)} == {"Started"}
        assert await store.count_runs(None) == {"ready": 6}
        assert [len(await store.ledger(start.run_id)) for start in starts] == [1] * 6

    async def test_many_start_or_signal_at_once_start_one_run_and_all_signals_reach_it(
        self, store: Store, rival: Store
    ) -> None:
        done = await at_once(
            place.execute([a_start_or_signal(f"run_{n}", "order-7")]) for n, place in enumerate((store, rival) * 5)
        )

        receipts = [told(Receipt, one.replies[0]) for one in done]
        assert sum(receipt.started for receipt in receipts) == 1
        [winner] = {receipt.run_id for receipt in receipts}
        assert len(await store.inbox(winner or "")) == 10
        assert await store.count_runs(None) == {"ready": 1}

    async def test_a_signal_that_is_sent_many_times_at_once_is_admitted_once(self, store: Store, rival: Store) -> None:
        await parked(store, correlation_key="order-7")

        done = await at_once(
            place.execute([a_signal(dedup_key="d-1") if n % 3 else a_signal_by_key("order-7", dedup_key="d-1")])
            for n, place in enumerate((store, rival) * 6)
        )

        assert Counter(all_outcomes(done)) == {"woke": 1, "duplicate": 11}
        assert len(await store.inbox("run_1")) == 1

    async def test_signals_to_a_key_that_moves_find_a_live_run_or_none(self, store: Store, rival: Store) -> None:
        """The key goes from run to run while signals to it are under way; none reaches a run that has ended."""
        signals: list[Deliver] = []
        for n in range(8):
            turn = await running(store, f"run_{n}", correlation_key="order-7")
            batch = [a_signal_by_key("order-7") for _ in range(3)]
            signals += batch
            moved = store.execute([a_commit(turn, ending()), a_start(f"run_x{n}", correlation_key="order-7")])
            _, *done = await at_once([moved, *(rival.execute([signal]) for signal in batch)])
            assert set(all_outcomes(done)) <= {"queued", "no_target"}
            for one in done:
                receipt = told(Receipt, one.replies[0])
                assert receipt.run_id in (f"run_{n}", f"run_x{n}", None)
            await store.execute([a_cancel(f"run_x{n}")])

        assert await store.count_runs(None) == {"completed": 8, "cancelled": 8}

    async def test_children_that_end_at_once_wake_their_parent_once(self, store: Store, rival: Store) -> None:
        ids = [f"run_c{n}" for n in range(12)]
        parent = await running(store, "run_1")
        spawned = await store.execute([a_commit(parent, joining(*map(a_child, ids)))], an_offer(slots=99))

        done = await at_once(
            place.execute([a_commit(turn, ending())], an_offer(f"w-{n}"))
            for n, (place, turn) in enumerate(zip((store, rival) * 6, spawned.turns.values(), strict=True))
        )

        woken: list[Turn] = [turn for one in done for turn in one.turns.values()]
        assert [turn.run.id for turn in woken] == ["run_1"]
        assert [child.id for child in woken[0].children] == ids
        [wait] = await store.waits(WaitFilter(run_id="run_1", status=None), after=None, limit=9)
        assert (wait.status, wait.received) == ("completed", 12)

    async def test_a_timer_that_many_fire_at_once_fires_once(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        for n in range(20):
            await parked(store, f"run_{n}", park=waiting_for("go", timeout=HOUR))
        clock.advance(HOUR)

        fired = 0
        for _ in range(ROUNDS):
            done = await at_once(place.fire_timers(4) for place in (store, rival) * 4)
            fired += sum(reply == Done(True) for one in done for reply in one.replies)

        assert fired == 20

    async def test_claims_commits_signals_and_timers_at_once_keep_every_signal(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        """Workers on both stores go round and round while signals pour in; at the end the books balance."""
        random = Random(11)
        ids = [f"run_{n}" for n in range(5)]
        for run_id in ids:
            await parked(store, run_id, park=waiting_for("go", timeout=HOUR))
        sent: list[Deliver] = []
        used: Counter[str] = Counter()

        async def work(place: Store, worker: str) -> None:
            done = await place.claim(an_offer(worker, slots=2))
            for turn in done.turns.values():
                commit = a_commit(turn, joining(), used=turn.inbox, keep=True)
                done = await place.execute([commit], an_offer(worker, slots=0))
                told(Committed, done.replies[0])
                used.update(signal.id for signal in turn.inbox)
                again = a_commit(done.turns[turn.run.id], waiting_for("go", timeout=HOUR))
                told(Committed, await reply_to(place, again))

        for _ in range(8):
            signals = [[a_signal(random.choice(ids)) for _ in range(3)] for _ in range(4)]
            sent += [signal for batch in signals for signal in batch]
            clock.advance(HOUR / 4)
            calls: list[Coroutine[Any, Any, object]] = [work(store, "w-1"), work(rival, "w-2"), work(store, "w-3")]
            calls += [(store, rival)[n % 2].execute(batch) for n, batch in enumerate(signals)]
            calls += [rival.fire_timers(3), store.fire_timers(3)]
            random.shuffle(calls)
            await at_once(calls)

        unread = [signal.id for run_id in ids for signal in await store.inbox(run_id)]
        assert set(used.values()) <= {1}
        assert Counter([*used, *unread]) == Counter(signal.signal_id for signal in sent)
        assert await store.audit() == []

    async def test_retention_and_signals_at_once_leave_no_row_behind(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        for n in range(10):
            await ended(store, f"run_{n}")
        clock.advance(2 * HOUR)

        done = await at_once(
            [
                *(place.execute([a_signal(f"run_{n}")]) for n in range(10) for place in (store, rival)),
            ]
        )
        deleted = await at_once(place.delete_ended(HOUR, 3) for place in (store, rival) * 3)

        assert {outcome for one in done for outcome in outcomes(one)} == {"no_target"}
        deleted += [await store.delete_ended(HOUR, 3) for _ in range(ROUNDS)]
        assert sum(deleted) == 10
        assert list(await rival.runs(RunFilter(), after=None, limit=9)) == []

    # -- the rest of being open

    async def test_a_hint_that_is_not_wanted_any_more_can_be_stopped(self, store: Store) -> None:
        stop = store.subscribe(lambda: None)
        await started(store)
        stop()
        stop()

    @pytest.mark.parametrize("status", sorted(FINAL))
    async def test_an_ended_run_is_seen_as_ended_by_the_other_store(
        self, store: Store, rival: Store, status: str
    ) -> None:
        turn = await running(store)
        if status == "cancelled":
            await store.execute([a_cancel()])
        else:
            await store.execute([a_commit(turn, ending(status=status))])

        assert (await row(rival)).status == status
        assert outcomes(await rival.execute([a_signal()])) == ["no_target"]

    async def test_closing_twice_is_safe(self, store: Store, rival: Store) -> None:
        await started(store)
        if rival is not store:
            await rival.close()
            await rival.close()

        assert (await row(store)).status == "ready"
