"""`fire_timers` and `until_due`: what time brings about, never early and each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bide.core.commands import Done
from bide.core.records import RunId
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    SECOND,
    a_cancel,
    a_child,
    a_commit,
    a_signal,
    an_offer,
    cancelled,
    joining,
    outcomes,
    parked,
    row,
    running,
    started,
    waiting_for,
    woken,
)
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock

DEFAULT = frozenset({"default"})


async def parked_for(store: Store, run_id: str, timeout: timedelta | datetime) -> None:
    await parked(store, run_id, park=waiting_for("go", timeout=timeout))


class Timers:
    async def test_a_timer_fires_at_its_moment_and_not_before(self, store: Store, clock: VirtualClock) -> None:
        await parked_for(store, "run_1", HOUR)
        clock.advance(HOUR - timedelta(microseconds=1))
        assert (await store.fire_timers(9)).replies == []
        assert (await row(store)).status == "waiting"

        clock.advance(timedelta(microseconds=1))
        done = await store.fire_timers(9)

        assert done.replies == [Done(True)]
        assert (done.ready, done.due_in) == (True, timedelta(0))
        run = await row(store)
        assert (run.status, run.step, run.woken_by) == ("ready", "told", 1)
        [wait] = await store.waits(WaitFilter(status=None), after=None, limit=9)
        assert (wait.status, wait.closed_at, wait.due_at) == ("timed_out", clock(), None)

    async def test_a_timer_fires_once(self, store: Store, clock: VirtualClock) -> None:
        await parked_for(store, "run_1", HOUR)
        clock.advance(HOUR)
        await store.fire_timers(9)
        before = await visible_rows(store)

        assert (await store.fire_timers(9)).replies == []
        assert await visible_rows(store) == before

    async def test_timers_fire_earliest_first_up_to_a_limit(self, store: Store, clock: VirtualClock) -> None:
        for run_id, minutes in [("run_1", 4), ("run_2", 2), ("run_3", 5), ("run_4", 1), ("run_5", 3)]:
            await parked_for(store, run_id, minutes * MINUTE)
        clock.advance(HOUR)

        pages = [await store.fire_timers(2, an_offer()) for _ in range(3)]

        assert [list(page.turns) for page in pages] == [["run_4", "run_2"], ["run_5", "run_1"], ["run_3"]]
        assert [len(page.replies) for page in pages] == [2, 2, 1]
        assert (await store.fire_timers(2)).replies == []

    async def test_a_timer_leads_to_the_step_that_was_named_for_it(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, park=waiting_for("go", timeout=HOUR, on_timeout="give_up"))
        clock.advance(HOUR)

        [turn] = (await store.fire_timers(9, an_offer())).turns.values()

        assert turn.run.step == "give_up"

    async def test_a_timer_may_fail_its_run(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, park=waiting_for("go", timeout=HOUR, on_timeout="!fail"))
        clock.advance(HOUR)

        done = await store.fire_timers(9)

        assert [(run.id, run.status) for run in done.ended] == [("run_1", "failed")]
        assert not done.ready
        assert "AWAIT_TIMEOUT" in ((await row(store)).error or "")

    async def test_a_timer_that_fails_a_child_tells_its_parent(self, store: Store, clock: VirtualClock) -> None:
        parent = await running(store, "run_1")
        children = await store.execute([a_commit(parent, joining(a_child("run_2"), a_child("run_3")))], an_offer())
        fails = waiting_for("go", timeout=HOUR, on_timeout="!fail")
        await store.execute([a_commit(turn, fails) for turn in children.turns.values()])
        clock.advance(HOUR)

        done = await store.fire_timers(9, an_offer())

        assert {run.id for run in done.ended} == {"run_2", "run_3"}
        assert [child.status for child in done.turns[RunId("run_1")].children] == ["failed", "failed"]

    async def test_a_timeout_records_what_had_come(self, store: Store, clock: VirtualClock) -> None:
        """Signals that the parking step was handed do not wake it, yet a timeout hands them over again."""
        await parked(store)
        turn = await woken(store)
        await store.execute([a_commit(turn, waiting_for("go", seen=(1,), timeout=HOUR)), a_signal(name="other")])
        clock.advance(HOUR)

        [late] = (await store.fire_timers(9, an_offer())).turns.values()

        assert late.woken_by is not None
        assert (late.woken_by.seen, late.woken_by.partial) == ((1,), (1,))

    async def test_an_answer_that_comes_first_takes_the_timer_with_it(self, store: Store, clock: VirtualClock) -> None:
        await parked_for(store, "run_1", HOUR)
        await store.execute([a_signal()])
        before = await row(store)
        clock.advance(HOUR)

        assert (await store.fire_timers(9)).replies == []
        assert await row(store) == before

    async def test_an_answer_that_comes_second_stays_in_the_inbox(self, store: Store, clock: VirtualClock) -> None:
        await parked_for(store, "run_1", HOUR)
        clock.advance(HOUR)
        await store.fire_timers(9)

        assert outcomes(await store.execute([a_signal()])) == ["queued"]
        assert len(await store.inbox("run_1")) == 1

    async def test_the_timer_of_a_closed_wait_never_acts_on_the_next_one(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await parked_for(store, "run_1", HOUR)
        turn = await woken(store)
        await store.execute([a_commit(turn, waiting_for("more", timeout=3 * HOUR))])
        clock.advance(2 * HOUR)

        assert (await store.fire_timers(9)).replies == []
        assert (await row(store)).status == "waiting"
        assert await store.until_due(DEFAULT) == HOUR

    async def test_a_timer_in_the_past_is_due_at_once(self, store: Store, clock: VirtualClock) -> None:
        await parked_for(store, "run_1", clock() - HOUR)
        await parked_for(store, "run_2", timedelta(0))

        done = await store.fire_timers(9, an_offer())

        assert list(done.turns) == ["run_1", "run_2"]

    async def test_a_timer_at_the_end_of_time_is_kept_and_does_not_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        latest = datetime.max.replace(tzinfo=UTC)
        await parked_for(store, "run_1", timedelta.max)
        await parked_for(store, "run_2", latest)
        clock.advance(timedelta(days=365 * 1000))

        assert (await store.fire_timers(9)).replies == []
        assert await store.until_due(DEFAULT) == latest - clock()
        assert [wait.deadline for wait in await store.waits(WaitFilter(), after=None, limit=9)] == [latest, latest]

    # -- until due

    async def test_nothing_is_due_in_an_empty_store(self, store: Store) -> None:
        assert await store.until_due(DEFAULT) is None

    async def test_a_ready_run_of_these_queues_is_due_now(self, store: Store, clock: VirtualClock) -> None:
        await started(store, queue="slow")

        assert await store.until_due(DEFAULT) is None
        assert await store.until_due(frozenset()) is None
        assert await store.until_due(frozenset({"slow", "default"})) == timedelta(0)
        clock.advance(MINUTE)
        assert await store.until_due(frozenset({"slow"})) == -MINUTE

    async def test_the_earliest_of_runs_leases_and_timers_counts(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, "run_1")
        assert await store.until_due(DEFAULT) is None
        await started(store, "run_2", delay=HOUR, priority=-3)
        assert await store.until_due(DEFAULT) == HOUR
        await parked_for(store, "run_3", 30 * MINUTE)
        assert await store.until_due(DEFAULT) == 30 * MINUTE
        await started(store, "run_4", delay=20 * MINUTE, priority=9)
        assert await store.until_due(DEFAULT) == 20 * MINUTE
        await running(store, "run_5", offer=an_offer(lease=10 * MINUTE))
        assert await store.until_due(DEFAULT) == 10 * MINUTE
        clock.advance(SECOND)
        assert await store.until_due(DEFAULT) == 10 * MINUTE - SECOND

    async def test_a_chore_is_due_when_it_is_left(self, store: Store) -> None:
        parent = await running(store, "run_1")
        await store.execute([a_commit(parent, joining(a_child("run_2", queue="slow")))])
        assert await store.until_due(DEFAULT) is None

        await cancelled(store, "run_1")

        assert await store.until_due(DEFAULT) == timedelta(0)

    async def test_what_is_over_is_not_due(self, store: Store) -> None:
        await parked_for(store, "run_1", HOUR)
        await started(store, "run_2")

        await store.execute([a_cancel("run_1"), a_cancel("run_2")])

        assert await store.until_due(DEFAULT) is None

    async def test_the_clock_of_the_store_is_the_one_it_was_given(self, store: Store, clock: VirtualClock) -> None:
        assert await store.now() == clock()
        clock.advance(HOUR)
        assert await store.now() == clock()
