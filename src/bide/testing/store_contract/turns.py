"""Committing turns: each move, what it leaves behind, and that a lost claim changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest
from msgspec.structs import replace

from bide.core import ledger
from bide.core.commands import Committed, Done, Move, Stale, Unknown
from bide.core.records import RunId, Turn
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_child,
    a_commit,
    a_give_back,
    a_release,
    a_signal,
    an_offer,
    cancelled,
    ended,
    ending,
    going_on,
    joining,
    kinds,
    parked,
    redoing,
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

MOVES: dict[str, Move] = {
    "going on": going_on(),
    "parking": waiting_for("go", timeout=HOUR),
    "joining": joining(a_child("run_c1"), a_child("run_c2", correlation_key="child-2")),
    "redoing": redoing(),
    "redoing later": redoing(MINUTE),
    "ending": ending(),
}

each_move = pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())


class Turns:
    async def test_going_on_sets_step_and_state(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        clock.advance(MINUTE)

        run = told(Committed, await reply_to(store, a_commit(turn, going_on("pay", '{"n":2}')))).run

        assert run == await row(store)
        assert (run.status, run.step, run.state, run.input) == ("ready", "pay", '{"n":2}', '{"n":1}')
        assert (run.commits, run.claims, run.attempt, run.updated_at) == (1, 0, 0, clock())

    async def test_parking_opens_a_wait(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        park = waiting_for("b", "a", timeout=HOUR, on_timeout="give_up", details='{"title":"Approve"}')

        run = told(Committed, await reply_to(store, a_commit(turn, park))).run

        assert (run.status, run.parked_on, run.open_waits, run.wait_no) == ("waiting", 1, (1,), 1)
        [wait] = await store.waits(WaitFilter(), after=None, limit=9)
        assert (wait.id, wait.names, wait.kind, wait.status) == ("wait_1_1", ("b", "a"), "signals", "waiting")
        assert (wait.opened_at, wait.deadline, wait.due_at) == (clock(), clock() + HOUR, clock() + HOUR)
        assert (wait.key, wait.on_timeout, wait.details) == ("told", "give_up", '{"title":"Approve"}')

    async def test_the_waits_of_a_run_are_numbered_and_kept(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_commit(turn, waiting_for("stop"))])

        waits = await store.waits(WaitFilter(run_id="run_1", status=None), after=None, limit=9)

        assert [(wait.no, wait.status, wait.names) for wait in waits] == [
            (1, "completed", ("go",)),
            (2, "waiting", ("stop",)),
        ]

    async def test_a_redo_counts_and_waits_its_time(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)

        done = await store.execute([a_commit(turn, redoing(MINUTE))])

        assert done.due_in == MINUTE
        assert ((await row(store)).attempt, (await row(store)).ready_at) == (1, clock() + MINUTE)
        assert (await store.claim(an_offer())).turns == {}
        clock.advance(MINUTE)
        assert list((await store.claim(an_offer())).turns) == ["run_1"]

    @pytest.mark.parametrize("status", ["completed", "stopped", "failed"])
    async def test_an_end_keeps_result_and_error(
        self, store: Store, clock: VirtualClock, status: Literal["completed", "stopped", "failed"]
    ) -> None:
        turn = await running(store)
        clock.advance(MINUTE)

        await store.execute([a_commit(turn, ending(status=status, result='{"total":7}', error='{"code":"X"}'))])

        run = await row(store)
        assert (run.status, run.result, run.error, run.ended_at) == (status, '{"total":7}', '{"code":"X"}', clock())
        assert (await store.claim(an_offer())).turns == {}
        assert await store.until_due(frozenset({"default"})) is None

    async def test_everything_that_happens_to_a_run_is_in_its_ledger(self, store: Store) -> None:
        await parked(store)
        turn = await woken(store)
        await store.execute([a_commit(turn, ending(), used=turn.inbox)])

        run, pages = await row(store), await store.ledger("run_1")

        entries = [entry for page in pages for entry in ledger.decode_page(page.entries)]
        assert [entry.seq for entry in entries] == list(range(1, run.ledger_seq + 1))
        assert ledger.verify(((page.seq, page.entries) for page in pages), run.ledger_head, run.ledger_seq) is None
        assert [entry.name for entry in entries if entry.name.startswith("run_")] == ["run_started", "run_completed"]

    # -- lost claims

    @each_move
    async def test_a_commit_under_a_claim_that_somebody_else_has_changes_nothing(
        self, store: Store, clock: VirtualClock, move: Move
    ) -> None:
        stale = await running(store)
        clock.advance(MINUTE)
        [fresh] = (await store.claim(an_offer("w-2"))).turns.values()

        await assert_stale(store, stale, move)

        assert (await row(store)).epoch == fresh.run.epoch
        told(Committed, await reply_to(store, a_commit(fresh, move)))

    @each_move
    async def test_a_commit_after_a_cancel_changes_nothing(self, store: Store, move: Move) -> None:
        turn = await running(store)
        await cancelled(store)

        await assert_stale(store, turn, move)

    @each_move
    async def test_a_commit_that_is_sent_again_counts_once(self, store: Store, move: Move) -> None:
        turn = await running(store)
        told(Committed, await reply_to(store, a_commit(turn, move)))

        await assert_stale(store, turn, move)

    @each_move
    async def test_a_commit_of_an_earlier_step_of_the_same_claim_changes_nothing(
        self, store: Store, move: Move
    ) -> None:
        turn = await running(store)
        await store.execute([a_commit(turn, going_on(), keep=True)], an_offer())

        await assert_stale(store, turn, move)

    async def test_a_commit_to_a_run_that_never_was_changes_nothing(self, store: Store) -> None:
        turn = await running(store)

        await assert_stale(store, Turn(run=replace(turn.run, id=RunId("run_9"))), ending())

    async def test_of_two_commits_of_one_turn_in_one_batch_the_first_counts(self, store: Store) -> None:
        turn = await running(store)

        done = await store.execute([a_commit(turn, going_on("first")), a_commit(turn, going_on("second"))])

        assert kinds(done) == ["Committed", "Stale"]
        assert (await row(store)).step == "first"

    async def test_a_lease_that_has_ended_alone_does_not_end_the_claim(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)
        clock.advance(2 * MINUTE)

        told(Committed, await reply_to(store, a_commit(turn, ending())))

    # -- giving back and holding

    async def test_a_claim_that_is_given_back_counts_for_nothing(self, store: Store) -> None:
        turn = await running(store)

        assert await reply_to(store, a_give_back(turn)) == Done(True)

        run = await row(store)
        assert (run.status, run.claims, run.attempt, run.commits) == ("ready", 0, 0, 0)
        [again] = (await store.claim(an_offer())).turns.values()
        assert again.run.epoch == turn.run.epoch + 1
        await assert_stale(store, turn, ending())

    async def test_a_claim_can_be_given_back_for_later(self, store: Store, clock: VirtualClock) -> None:
        turn = await running(store)

        done = await store.execute([a_give_back(turn, delay=MINUTE)])

        assert done.due_in == MINUTE
        assert (await store.claim(an_offer())).turns == {}
        clock.advance(MINUTE)
        assert list((await store.claim(an_offer())).turns) == ["run_1"]

    async def test_a_run_that_is_held_is_not_claimed_until_it_is_released(
        self, store: Store, clock: VirtualClock
    ) -> None:
        turn = await running(store)
        await store.execute([a_give_back(turn, hold="history_mismatch")])
        clock.advance(timedelta(days=1))
        assert (await store.claim(an_offer())).turns == {}
        assert await store.until_due(frozenset({"default"})) is None
        assert (await row(store)).held == "history_mismatch"

        done = await store.execute([a_release()])

        assert (done.replies, done.ready) == ([Done(True)], True)
        assert list((await store.claim(an_offer())).turns) == ["run_1"]

    async def test_giving_back_a_claim_that_is_lost_changes_nothing(self, store: Store) -> None:
        turn = await running(store, "run_1")
        await store.execute([a_commit(turn, waiting_for("go"))])
        other = await running(store, "run_2")
        await cancelled(store, "run_2")
        before = await visible_rows(store)

        done = await store.execute([a_give_back(turn), a_give_back(other, hold="poison")])

        assert done.replies == [Stale(turn.run.id), Stale(other.run.id)]
        assert await visible_rows(store) == before

    async def test_only_a_held_run_of_the_own_workspace_is_released(self, store: Store) -> None:
        await started(store, "run_1")
        turn = await running(store, "run_2")
        await store.execute([a_give_back(turn, hold="poison")])
        await ended(store, "run_3")
        before = await visible_rows(store)

        done = await store.execute(
            [a_release("run_1"), a_release("run_2", workspace="other"), a_release("run_3"), a_release("run_9")]
        )

        assert done.replies == [Done(False, "ready"), Unknown("run_2"), Done(False, "completed"), Unknown("run_9")]
        assert await visible_rows(store) == before


async def assert_stale(store: Store, turn: Turn, move: Move) -> None:
    """A commit under this claim is told that it is stale and leaves no trace: no signal used, no child, no key."""
    if (await row(store)).inbox_count == 0 and (await row(store)).ended_at is None:
        await store.execute([a_signal(name="other")])
    used = await store.inbox("run_1")
    before = await visible_rows(store)

    done = await store.execute([a_commit(turn, move, used=used, keep=True)], an_offer("w-stale"))

    assert done.replies == [Stale(turn.run.id)]
    assert (done.turns, done.ready, done.due_in, done.ended) == ({}, False, None, [])
    assert await visible_rows(store) == before
    assert await store.holder("default", "child-2") in (None, "run_c2")
