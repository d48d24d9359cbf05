"""Signals: what a delivery does to an inbox and to a wait, and what its receipt says."""

from __future__ import annotations

import asyncio

import pytest

from bide.core.commands import Committed, Receipt, Receipts
from bide.core.records import RunId
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    a_cancel,
    a_commit,
    a_signal,
    a_signal_by_key,
    a_start,
    an_offer,
    ended,
    ending,
    going_on,
    many,
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


class Deliveries:
    async def test_a_signal_sent_before_its_wait_is_kept_and_completes_it(self, store: Store) -> None:
        turn = await running(store)
        signal = a_signal(payload='{"paid":true}')
        assert outcomes(await store.execute([signal])) == ["queued"]

        done = await store.execute([a_commit(turn, waiting_for("go"), keep=True)], an_offer())

        assert told(Committed, done.replies[0]).kept
        next_turn = done.turns[turn.run.id]
        assert [(s.id, s.payload) for s in next_turn.inbox] == [(signal.signal_id, '{"paid":true}')]
        assert next_turn.woken_by is not None
        assert (next_turn.woken_by.status, next_turn.woken_by.cause) == ("completed", "signal")

    async def test_a_signal_wakes_the_run_that_waits_for_it(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, "run_1", "go", "stop")
        clock.advance(HOUR)
        signal = a_signal(name="stop")

        receipt = told(Receipt, await reply_to(store, signal))

        assert receipt == Receipt(outcome="woke", run_id="run_1", wait_id="wait_1_1", message_id=signal.signal_id)
        run = await row(store)
        assert (run.status, run.step, run.parked_on, run.woken_by, run.open_waits) == ("ready", "told", None, 1, ())
        [wait] = await store.waits(WaitFilter(status=None), after=None, limit=9)
        assert (wait.status, wait.closed_at) == ("completed", clock())

    async def test_a_signal_of_another_name_wakes_nobody_and_is_kept(self, store: Store) -> None:
        await parked(store)

        assert outcomes(await store.execute([a_signal(name="other")])) == ["queued"]

        assert (await row(store)).status == "waiting"
        assert [signal.name for signal in await store.inbox("run_1")] == ["other"]

    async def test_a_wait_is_woken_once(self, store: Store) -> None:
        await parked(store)

        assert outcomes(await store.execute([a_signal(), a_signal()])) == ["woke", "queued"]
        assert outcomes(await store.execute([a_signal()])) == ["queued"]

    async def test_a_signal_that_was_foreseen_is_delivered_as_any_other(self, store: Store) -> None:
        await parked(store)
        store.foresee(RunId("run_1"))

        assert outcomes(await store.execute([a_signal()])) == ["woke"]

        store.foresee(RunId("run_1"))
        assert outcomes(await store.execute([a_signal()])) == ["queued"]
        assert len(await store.inbox("run_1")) == 2

    async def test_what_is_foreseen_and_never_comes_changes_nothing(self, store: Store) -> None:
        await parked(store)
        before = await row(store)
        for run_id in ("run_1", "run_none", "run_1"):
            store.foresee(RunId(run_id))
            await asyncio.sleep(0)

        assert await row(store) == before
        assert outcomes(await store.execute([a_signal()])) == ["woke"]

    async def test_a_signal_that_was_foreseen_meets_what_happened_since(self, store: Store) -> None:
        await parked(store)
        store.foresee(RunId("run_1"))
        await asyncio.sleep(0)
        await store.execute([a_cancel()])

        assert outcomes(await store.execute([a_signal()])) == ["no_target"]

    async def test_signals_keep_the_order_in_which_they_came(self, store: Store, clock: VirtualClock) -> None:
        await started(store)
        sent = [a_signal(name=name) for name in "zyx"]
        await store.execute(sent)
        clock.advance(HOUR)
        late = a_signal(name="a")
        await store.execute([late])

        there = await store.inbox("run_1")

        assert [signal.id for signal in there] == [*(signal.signal_id for signal in sent), late.signal_id]
        assert [signal.seq for signal in there] == [1, 2, 3, 4]
        assert [signal.received_at for signal in there] == [clock() - HOUR] * 3 + [clock()]

    async def test_a_number_in_the_inbox_is_never_given_twice(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_commit(turn, going_on(), used=turn.inbox)])

        await store.execute([a_signal()])

        assert [signal.seq for signal in await store.inbox("run_1")] == [2]

    async def test_exactly_the_signals_that_a_step_used_are_deleted(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_signal(name="other"), a_signal(name="go")])

        await store.execute([a_commit(turn, going_on(), used=turn.inbox)])

        assert [(signal.seq, signal.name) for signal in await store.inbox("run_1")] == [(2, "other"), (3, "go")]
        assert (await row(store)).inbox_count == 2

    async def test_a_signal_that_the_parking_step_was_handed_does_not_wake_it_again(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        seen = tuple(signal.seq for signal in turn.inbox)

        done = await store.execute([a_commit(turn, waiting_for("go", seen=seen), keep=True)], an_offer())

        assert not told(Committed, done.replies[0]).kept
        assert (await row(store)).status == "waiting"
        assert outcomes(await store.execute([a_signal()])) == ["woke"]

    # -- refused

    @pytest.mark.parametrize("target", ["run_9", "run_1"])
    async def test_a_signal_to_an_unknown_or_ended_run_is_refused_and_kept_with_its_reason(
        self, store: Store, clock: VirtualClock, target: str
    ) -> None:
        await ended(store, "run_1")
        signal = a_signal(target, payload='{"n":1}')

        receipt = told(Receipt, await reply_to(store, signal))

        assert receipt.outcome == "no_target"
        assert await store.inbox(target) == []
        [kept] = await store.unused("default", limit=9)
        assert (kept.id, kept.target, kept.name, kept.payload) == (signal.signal_id, target, "go", '{"n":1}')
        assert (kept.reason, kept.at) == ("completed" if target == "run_1" else "not_found", clock())

    async def test_a_signal_from_another_workspace_finds_no_run(self, store: Store) -> None:
        await parked(store)

        receipt = told(Receipt, await reply_to(store, a_signal(workspace="other")))

        assert (receipt.outcome, receipt.reason) == ("no_target", "not_found")
        assert (await row(store)).status == "waiting"
        assert await store.unused("default", limit=9) == []
        assert len(await store.unused("other", limit=9)) == 1

    async def test_a_kept_arrival_that_is_readdressed_goes_when_it_is_admitted(self, store: Store) -> None:
        refused = a_signal("run_9")
        await store.execute([refused, a_signal("run_8")])
        await parked(store)

        again = a_signal("run_1", unused_id=refused.signal_id)

        assert outcomes(await store.execute([again])) == ["woke"]
        assert [kept.target for kept in await store.unused("default", limit=9)] == ["run_8"]

    async def test_a_kept_arrival_that_is_refused_again_stays(self, store: Store) -> None:
        refused = a_signal("run_9")
        await store.execute([refused])
        before = await visible_rows(store)

        assert outcomes(await store.execute([a_signal("run_8", unused_id=refused.signal_id)])) == ["no_target"]
        assert await visible_rows(store) == before

    async def test_a_kept_arrival_of_another_workspace_is_left_alone(self, store: Store) -> None:
        await store.execute(
            [a_signal("run_9", signal_id="msg_x"), a_signal("run_9", signal_id="msg_x", workspace="other")]
        )
        await started(store)

        await store.execute([a_signal(unused_id="msg_x")])

        assert await store.unused("default", limit=9) == []
        assert len(await store.unused("other", limit=9)) == 1

    # -- many at once

    async def test_many_signals_are_delivered_together_with_a_receipt_for_each(self, store: Store) -> None:
        await parked(store, "run_1")
        await started(store, "run_2")
        signals = [a_signal("run_2"), a_signal("run_1"), a_signal("run_2")]

        receipts = told(Receipts, await reply_to(store, many(*signals))).receipts

        assert [receipt.outcome for receipt in receipts] == ["queued", "woke", "queued"]
        assert [receipt.message_id for receipt in receipts] == [signal.signal_id for signal in signals]
        assert len(await store.inbox("run_2")) == 2

    async def test_where_one_of_many_signals_is_refused_none_is_delivered(self, store: Store) -> None:
        await parked(store, "run_1")
        await ended(store, "run_2")
        before = await visible_rows(store)

        done = await store.execute([many(a_signal("run_1"), a_signal("run_2"))], an_offer())

        receipts = told(Receipts, done.replies[0]).receipts
        assert [receipt.outcome for receipt in receipts] == ["ignored", "no_target"]
        assert done.turns == {}
        after = await visible_rows(store)
        [kept] = await store.unused("default", limit=9)
        assert (kept.run_id, kept.reason) == ("run_2", "completed"), "S12"
        assert {**after, "unused": before["unused"]} == before

    async def test_where_the_target_of_many_signals_moved_they_are_delivered_once(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")
        await started(store, "run_2")

        done = await store.execute(
            [
                a_commit(turn, ending()),
                a_start("run_3", correlation_key="order-7"),
                many(a_signal("run_2"), a_signal_by_key("order-7")),
            ]
        )

        assert [receipt.run_id for receipt in told(Receipts, done.replies[2]).receipts] == ["run_2", "run_3"]
        assert len(await store.inbox("run_2")) == 1
        assert len(await store.inbox("run_3")) == 1

    async def test_where_the_target_of_many_signals_is_gone_none_is_delivered(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")
        await parked(store, "run_2")

        done = await store.execute([a_commit(turn, ending()), many(a_signal("run_2"), a_signal_by_key("order-7"))])

        assert [receipt.outcome for receipt in told(Receipts, done.replies[1]).receipts] == ["ignored", "no_target"]
        assert await store.inbox("run_2") == []
        assert (await row(store, "run_2")).status == "waiting"

    async def test_the_same_run_may_get_several_of_many_signals(self, store: Store) -> None:
        await store.execute([a_start(), many(*(a_signal(name=name) for name in "abc")), many(a_signal(name="d"))])

        assert [signal.name for signal in await store.inbox("run_1")] == ["a", "b", "c", "d"]

    async def test_the_end_of_a_run_clears_its_inbox(self, store: Store) -> None:
        turn = await running(store, "run_1")
        await started(store, "run_2")
        await store.execute([a_signal("run_1"), a_signal("run_2")])

        await store.execute([a_signal("run_1"), a_commit(turn, ending()), a_signal("run_2"), a_cancel("run_2")])

        for run_id in ("run_1", "run_2"):
            assert await store.inbox(run_id) == []
            assert (await row(store, run_id)).inbox_count == 0
