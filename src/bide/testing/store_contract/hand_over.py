"""Hand-over: a run that becomes ready is claimed for the offering worker in the same commit, within its limits."""

from __future__ import annotations

from datetime import timedelta

from bide.core.commands import Committed
from bide.core.records import RunId
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_child,
    a_commit,
    a_give_back,
    a_release,
    a_signal,
    a_start,
    a_start_or_signal,
    an_offer,
    ending,
    going_on,
    joining,
    parked,
    redoing,
    row,
    running,
    started,
    told,
    waiting_for,
    woken,
)
from bide.testing.world import VirtualClock


class HandOver:
    async def test_a_run_that_starts_is_handed_to_the_offering_worker(self, store: Store) -> None:
        done = await store.execute([a_start()], an_offer("w-7"))

        turn = done.turns[RunId("run_1")]
        assert turn.run == await row(store)
        assert (turn.run.status, turn.run.epoch, turn.run.claims) == ("running", 1, 1)
        assert (turn.inbox, turn.woken_by, turn.children) == ((), None, ())
        assert (await store.claim(an_offer("w-8"))).turns == {}

    async def test_runs_are_handed_over_in_the_order_of_the_commands_while_there_are_slots(self, store: Store) -> None:
        done = await store.execute([a_start(f"run_{n}") for n in (3, 1, 4, 2)], an_offer(slots=2))

        assert list(done.turns) == ["run_3", "run_1"]
        assert done.ready
        assert await store.count_runs(None) == {"running": 2, "ready": 2}

    async def test_an_offer_without_slots_is_given_nothing(self, store: Store) -> None:
        done = await store.execute([a_start()], an_offer(slots=0))

        assert done.turns == {}
        assert done.ready

    async def test_runs_of_another_queue_or_definition_are_not_handed_over(self, store: Store) -> None:
        done = await store.execute(
            [a_start("run_1", queue="slow"), a_start("run_2", definition="refund"), a_start("run_3")], an_offer(slots=9)
        )

        assert list(done.turns) == ["run_3"]
        assert done.ready

    async def test_a_run_that_is_delayed_is_not_handed_over(self, store: Store) -> None:
        turn = await running(store, "run_1")

        done = await store.execute(
            [a_commit(turn, redoing(MINUTE)), a_start("run_2", delay=timedelta(microseconds=1))], an_offer()
        )

        assert done.turns == {}
        assert not done.ready
        assert done.due_in == timedelta(microseconds=1)

    async def test_a_run_that_is_held_is_not_handed_over(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute([a_give_back(turn, hold="stuck_thread"), a_signal()], an_offer("w-2"))

        assert done.turns == {}
        assert not done.ready
        assert (await row(store)).held == "stuck_thread"

    async def test_a_held_run_that_is_released_is_handed_over(self, store: Store) -> None:
        turn = await running(store)
        await store.execute([a_give_back(turn, hold="stuck_thread")])

        done = await store.execute([a_release()], an_offer())

        assert done.turns[turn.run.id].run.held is None

    async def test_a_run_is_not_handed_back_to_the_worker_that_let_go_of_it(self, store: Store) -> None:
        first = await running(store, "run_1")
        second = await running(store, "run_2")

        done = await store.execute([a_give_back(first), a_commit(second, going_on(), keep=False)], an_offer())

        assert done.turns == {}
        assert done.ready
        assert list((await store.claim(an_offer())).turns) == ["run_1", "run_2"]

    async def test_a_run_that_a_signal_wakes_is_handed_over_with_what_came(self, store: Store) -> None:
        await parked(store, "run_1", "go")
        await store.execute([a_signal(name="other")])

        done = await store.execute([a_signal(name="go", payload="1"), a_signal(name="go", payload="2")], an_offer())

        turn = done.turns[RunId("run_1")]
        assert [(signal.name, signal.payload) for signal in turn.inbox] == [("other", "null"), ("go", "1"), ("go", "2")]
        assert list(turn.inbox) == await store.inbox("run_1")
        assert turn.run == await row(store)
        [wait] = await store.waits(WaitFilter(run_id="run_1", status=None), after=None, limit=9)
        assert turn.woken_by == wait

    async def test_a_run_that_a_timer_wakes_is_handed_over_with_the_wait_that_timed_out(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await parked(store, park=waiting_for("go", timeout=HOUR))
        clock.advance(HOUR)

        done = await store.fire_timers(10, an_offer())

        turn = done.turns[RunId("run_1")]
        assert turn.woken_by is not None
        assert (turn.woken_by.status, turn.woken_by.deadline) == ("timed_out", clock())
        assert turn.run.status == "running"

    async def test_a_parent_that_its_last_child_wakes_is_handed_over_with_its_children_in_order(
        self, store: Store
    ) -> None:
        ids = [f"run_{letter}" for letter in "zyxwv"]
        parent = await running(store, "run_1")
        spawned = await store.execute([a_commit(parent, joining(*map(a_child, ids)))], an_offer(slots=9))
        turns = [spawned.turns[RunId(run_id)] for run_id in ids]
        for turn in (*turns[3:], *turns[:2]):
            await store.execute([a_commit(turn, ending(result=f'"{turn.run.id}"'))])

        done = await store.execute([a_commit(turns[2], ending(status="stopped", result=None))], an_offer())

        turn = done.turns[RunId("run_1")]
        assert [child.id for child in turn.children] == ids
        assert [child.child_no for child in turn.children] == [0, 1, 2, 3, 4]
        assert [child.status for child in turn.children] == ["completed"] * 2 + ["stopped"] + ["completed"] * 2
        assert [child.result for child in turn.children] == ['"run_z"', '"run_y"', None, '"run_w"', '"run_v"']
        assert turn.woken_by is not None
        assert (turn.woken_by.kind, turn.woken_by.received) == ("children", 5)

    async def test_children_are_handed_over_when_they_start(self, store: Store) -> None:
        parent = await running(store, "run_1")

        done = await store.execute(
            [a_commit(parent, joining(a_child("run_2"), a_child("run_3", queue="slow"), a_child("run_4")))],
            an_offer(slots=2),
        )

        assert list(done.turns) == ["run_2", "run_4"]

    async def test_a_clean_up_is_handed_over(self, store: Store) -> None:
        await parked(store, cleanup_seconds=60.0)

        done = await store.execute([a_cancel()], an_offer())

        assert done.turns[RunId("run_1")].run.step == "on_cancel"

    async def test_a_run_that_start_or_signal_starts_is_handed_over_with_its_signal(self, store: Store) -> None:
        done = await store.execute([a_start_or_signal("run_1", "order-7")], an_offer())

        assert [signal.name for signal in done.turns[RunId("run_1")].inbox] == ["go"]

    async def test_a_run_that_was_handed_over_and_ended_in_one_batch_is_nobodys_turn(self, store: Store) -> None:
        await parked(store, "run_2")

        done = await store.execute(
            [a_start("run_1"), a_signal("run_2"), a_cancel("run_1"), a_cancel("run_2")], an_offer()
        )

        assert done.turns == {}
        assert not done.ready
        assert {run.id for run in done.ended} == {"run_1", "run_2"}

    # -- claims that go on

    async def test_a_kept_claim_goes_on_under_the_same_epoch_and_needs_no_slot(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute([a_commit(turn, going_on("pay", '{"n":2}'), keep=True)], an_offer(slots=0))

        reply = told(Committed, done.replies[0])
        assert reply.kept
        next_turn = done.turns[turn.run.id]
        assert next_turn.run == reply.run == await row(store)
        assert (next_turn.run.status, next_turn.run.epoch, next_turn.run.commits) == ("running", turn.run.epoch, 1)
        assert (next_turn.run.step, next_turn.run.state) == ("pay", '{"n":2}')
        told(Committed, (await store.execute([a_commit(next_turn, ending())])).replies[0])

    async def test_a_kept_claim_takes_no_slot_from_others(self, store: Store) -> None:
        turn = await running(store, "run_1")

        done = await store.execute([a_commit(turn, going_on(), keep=True), a_start("run_2")], an_offer(slots=1))

        assert set(done.turns) == {"run_1", "run_2"}

    async def test_a_kept_claim_is_leased_anew(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        clock.advance(timedelta(seconds=40))
        await store.execute([a_commit(turn, going_on(), keep=True)], an_offer())

        clock.advance(timedelta(seconds=59))
        assert (await store.claim(an_offer("w-2"))).turns == {}
        clock.advance(timedelta(seconds=1))
        assert list((await store.claim(an_offer("w-2"))).turns) == ["run_1"]

    async def test_a_kept_claim_is_handed_the_rest_of_the_inbox(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_signal(name="late")])

        done = await store.execute([a_commit(turn, going_on(), used=turn.inbox, keep=True)], an_offer())

        assert [signal.name for signal in done.turns[turn.run.id].inbox] == ["late"]
        assert done.turns[turn.run.id].woken_by is None

    async def test_a_redo_keeps_what_the_step_was_handed_and_sees_what_came_since(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_signal()])

        done = await store.execute([a_commit(turn, redoing(), keep=True)], an_offer())

        next_turn = done.turns[turn.run.id]
        assert next_turn.woken_by == turn.woken_by
        assert [signal.seq for signal in next_turn.inbox] == [1, 2]
        assert (next_turn.run.attempt, next_turn.run.state) == (1, '{"tried":1}')

    async def test_a_claim_that_was_kept_and_cancelled_in_one_batch_goes_on_no_more(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute([a_commit(turn, going_on(), keep=True), a_cancel()], an_offer())

        assert done.turns == {}
        assert [run.status for run in done.ended] == ["cancelled"]

    async def test_a_join_of_no_children_goes_on_at_once(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute([a_commit(turn, joining(), keep=True)], an_offer())

        next_turn = done.turns[turn.run.id]
        assert next_turn.run.step == "joined"
        assert next_turn.children == ()

    async def test_a_park_that_is_complete_without_a_claim_to_keep_is_ready_for_others(self, store: Store) -> None:
        turn = await running(store)
        await store.execute([a_signal()])

        done = await store.execute([a_commit(turn, waiting_for("go"), keep=False)], an_offer())

        assert done.turns == {}
        assert done.ready
        assert (await row(store)).status == "ready"
        [next_turn] = (await store.claim(an_offer())).turns.values()
        assert [signal.name for signal in next_turn.inbox] == ["go"]

    async def test_a_turn_handed_over_is_leased_to_the_offering_worker(self, store: Store, clock: VirtualClock) -> None:
        await started(store, "run_1", queue="slow")
        await store.execute([a_start("run_2")], an_offer("w-1", lease=HOUR))

        assert await store.end_leases("w-2") == 0
        clock.advance(HOUR - MINUTE)
        assert (await store.claim(an_offer("w-2"))).turns == {}
        clock.advance(MINUTE)
        assert list((await store.claim(an_offer("w-2"))).turns) == ["run_2"]
