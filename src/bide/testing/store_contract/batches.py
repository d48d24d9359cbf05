"""`execute`: what holds of every batch, whatever is in it."""

from __future__ import annotations

from datetime import timedelta

from bide.core.commands import Done, Failed, Receipt, Started, Unknown
from bide.core.records import RunId
from bide.stores.interface import Executed, Store
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_commit,
    a_release,
    a_signal,
    a_start,
    an_offer,
    an_unused,
    ended,
    ending,
    going_on,
    kinds,
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


class Batches:
    # -- replies and order

    async def test_an_empty_batch_does_nothing(self, store: Store) -> None:
        await parked(store)
        before = await visible_rows(store)

        assert await store.execute([]) == Executed(replies=[])
        assert await store.execute([], an_offer()) == Executed(replies=[])
        assert await visible_rows(store) == before

    async def test_replies_come_in_the_order_of_the_commands(self, store: Store, clock: VirtualClock) -> None:
        done = await store.execute(
            [
                a_release("run_9"),
                a_start("run_2"),
                a_signal("run_9"),
                an_unused("msg_x", clock()),
                a_start("run_1"),
                a_cancel("run_9"),
                a_signal("run_2"),
                a_cancel("run_1"),
            ]
        )

        assert kinds(done) == ["Unknown", "Started", "Receipt", "Done", "Started", "Unknown", "Receipt", "Cancelled"]
        assert told(Unknown, done.replies[0]) == Unknown("run_9")
        assert [told(Started, done.replies[at]).run.id for at in (1, 4)] == ["run_2", "run_1"]
        assert [told(Receipt, done.replies[at]).outcome for at in (2, 6)] == ["no_target", "queued"]

    async def test_commands_of_one_run_are_executed_in_order(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute(
            [
                a_signal(name="other"),
                a_commit(turn, waiting_for("go")),
                a_signal(name="other"),
                a_signal(name="go"),
                a_signal(name="go"),
                a_cancel(),
                a_signal(name="go"),
            ]
        )

        assert kinds(done) == ["Receipt", "Committed", "Receipt", "Receipt", "Receipt", "Cancelled", "Receipt"]
        receipts = [reply.outcome for reply in done.replies if isinstance(reply, Receipt)]
        assert receipts == ["queued", "queued", "woke", "queued", "no_target"]
        assert (await row(store)).status == "cancelled"

    async def test_a_batch_of_a_thousand_commands_is_executed_whole(self, store: Store) -> None:
        ids = [f"run_{n:03}" for n in range(250)]

        done = await store.execute(
            [
                *(a_start(run_id) for run_id in ids),
                *(a_signal(run_id, "a") for run_id in ids),
                *(a_signal(run_id, "b") for run_id in reversed(ids)),
                *(a_cancel(run_id) for run_id in ids[:125]),
                *(a_signal(run_id, "c") for run_id in ids[125:]),
            ]
        )

        assert len(done.replies) == 1000
        assert [run.id for run in sorted(done.ended, key=lambda run: run.id)] == ids[:125]
        assert await store.count_runs("default") == {"cancelled": 125, "ready": 125}
        assert [signal.name for signal in await store.inbox(ids[-1])] == ["a", "b", "c"]
        assert (await row(store, ids[-1])).inbox_count == 3

    # -- atomic for each command

    async def test_a_command_that_fails_changes_nothing_and_leaves_its_neighbours_alone(self, store: Store) -> None:
        turn = await running(store, "run_2")
        before = (await row(store, "run_2"), await store.ledger("run_2"))
        nobody_to_keep_it = a_commit(turn, going_on(), keep=True)

        done = await store.execute([a_start("run_1"), nobody_to_keep_it, a_signal("run_1")])

        assert kinds(done) == ["Started", "Failed", "Receipt"]
        assert isinstance(told(Failed, done.replies[1]).error, Exception)
        assert (await row(store, "run_2"), await store.ledger("run_2")) == before
        assert len(await store.inbox("run_1")) == 1

    # -- a command that is tried again

    async def test_a_start_that_is_tried_again_finds_the_first_try(self, store: Store) -> None:
        start = a_start(correlation_key="order-7")
        first = told(Started, await reply_to(store, start)).run
        before = await visible_rows(store)

        assert told(Started, await reply_to(store, start)).run == first
        assert await visible_rows(store) == before

    async def test_a_start_that_is_tried_again_in_its_own_batch_starts_one_run(self, store: Store) -> None:
        start = a_start()

        done = await store.execute([start, a_start("run_2"), start])

        assert [told(Started, reply).run.id for reply in done.replies] == ["run_1", "run_2", "run_1"]
        assert await store.count_runs(None) == {"ready": 2}

    async def test_a_start_that_is_tried_again_does_not_disturb_the_run(self, store: Store) -> None:
        await parked(store)
        before = await visible_rows(store)

        done = await store.execute([a_start("run_1"), a_start("run_2")], an_offer())

        assert [told(Started, reply).run.status for reply in done.replies] == ["waiting", "running"]
        assert list(done.turns) == ["run_2"]
        assert (await visible_rows(store))["waits"] == before["waits"]
        assert await row(store) == (told(Started, done.replies[0])).run

    # -- what a batch tells of itself

    async def test_a_batch_tells_that_a_run_became_ready_which_nobody_was_given(self, store: Store) -> None:
        done = await store.execute([a_start()])

        assert done.ready
        assert done.due_in == timedelta(0)
        assert done.turns == {}
        assert done.ended == []

    async def test_a_batch_does_not_call_ready_what_it_handed_over(self, store: Store) -> None:
        done = await store.execute([a_start()], an_offer())

        assert not done.ready
        assert done.due_in is None
        assert list(done.turns) == ["run_1"]

    async def test_a_batch_tells_when_the_first_of_what_it_put_off_is_due(self, store: Store) -> None:
        turn = await running(store, "run_1")

        done = await store.execute(
            [
                a_start("run_2", delay=2 * HOUR),
                a_commit(turn, waiting_for("go", timeout=HOUR)),
                a_start("run_3", delay=3 * HOUR),
            ]
        )

        assert not done.ready
        assert done.due_in == HOUR

    async def test_a_batch_that_puts_nothing_off_says_so(self, store: Store) -> None:
        await parked(store, "run_1")

        done = await store.execute([a_signal("run_1", "other"), a_signal("run_9")])

        assert not done.ready
        assert done.due_in is None

    async def test_a_batch_lists_the_runs_that_it_ended(self, store: Store) -> None:
        turn = await running(store, "run_1")
        await parked(store, "run_2")
        await ended(store, "run_3")

        done = await store.execute([a_commit(turn, ending()), a_cancel("run_2"), a_cancel("run_3"), a_start("run_4")])

        assert {run.id: run.status for run in done.ended} == {"run_1": "completed", "run_2": "cancelled"}
        assert [await row(store, run.id) for run in done.ended] == done.ended

    async def test_a_batch_lists_a_run_that_it_started_and_ended(self, store: Store) -> None:
        done = await store.execute([a_start(), a_cancel()])

        assert [(run.id, run.status) for run in done.ended] == [("run_1", "cancelled")]
        assert not done.ready

    async def test_the_records_in_replies_are_the_rows(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        assert turn.run == await row(store)

        clock.advance(MINUTE)
        reply = await reply_to(store, a_commit(turn, waiting_for("go")))
        assert reply.run == await row(store)  # type: ignore[union-attr]  # a Committed, or the test fails here

    async def test_what_a_batch_did_is_durable_when_it_returns(self, store: Store, rival: Store) -> None:
        await store.execute([a_start(), a_signal()])

        assert await rival.run("default", "run_1") == await row(store)
        assert await rival.inbox("run_1") == await store.inbox("run_1")

    # -- what was refused at the door

    async def test_what_is_kept_unused_is_stamped_by_the_clock_of_the_store(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert await reply_to(store, an_unused("msg_x", clock() - HOUR)) == Done(True)

        [kept] = await store.unused("default", limit=10)
        assert (kept.id, kept.at) == ("msg_x", clock())

    async def test_what_is_kept_unused_twice_is_kept_once(self, store: Store, clock: VirtualClock) -> None:
        kept = an_unused("msg_x", clock())

        await store.execute([kept, kept])
        await store.execute([kept])

        assert len(await store.unused("default", limit=10)) == 1

    async def test_ids_of_runs_are_compared_as_they_are(self, store: Store) -> None:
        """Not by the rules of a language: upper case comes before lower case, and neither is the other."""
        for run_id in ("run_b", "run_B", "run_a", "run_ä"):
            await started(store, run_id)

        done = await store.claim(an_offer())

        assert list(done.turns) == ["run_B", "run_a", "run_b", "run_ä"]
        assert outcomes(await store.execute([a_signal(RunId("run_A"))])) == ["no_target"]
