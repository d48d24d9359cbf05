"""What is unique across runs: correlation keys, dedup keys, signal ids, and the targets that move because of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from bide.core.commands import (
    Committed,
    CommitTurn,
    Complete,
    DuplicateRun,
    NewWait,
    Receipt,
    Started,
    Suspend,
)
from bide.core.records import RunId, Turn
from bide.core.requests import LetGo
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    SECOND,
    WORKSPACE,
    a_cancel,
    a_child,
    a_commit,
    a_signal,
    a_signal_by_key,
    a_start,
    a_start_or_signal,
    an_offer,
    cancelled,
    ended,
    ending,
    going_on,
    joining,
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

ODD = '{"data":"ünused \\u0000 ☃"}'


class Names:
    # -- correlation keys

    async def test_a_correlation_key_is_held_by_one_live_run(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")

        reply = await reply_to(store, a_start("run_2", correlation_key="order-7"))

        assert reply == DuplicateRun("order-7", RunId("run_1"))
        assert await store.run("default", "run_2") is None
        assert await store.holder("default", "order-7") == "run_1"

    async def test_two_starts_of_one_batch_cannot_have_the_same_key(self, store: Store) -> None:
        done = await store.execute([a_start(f"run_{n}", correlation_key="order-7") for n in (1, 2, 3)])

        assert kinds(done) == ["Started", "DuplicateRun", "DuplicateRun"]
        assert done.replies[2] == DuplicateRun("order-7", RunId("run_1"))

    async def test_the_end_of_a_run_frees_its_key(self, store: Store) -> None:
        await ended(store, "run_1", correlation_key="order-7")

        assert await store.holder("default", "order-7") is None
        told(Started, await reply_to(store, a_start("run_2", correlation_key="order-7")))
        assert await store.holder("default", "order-7") == "run_2"

    async def test_a_key_is_freed_and_taken_in_one_batch(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")

        done = await store.execute(
            [
                a_start("run_2", correlation_key="order-7"),
                a_commit(turn, ending()),
                a_start("run_3", correlation_key="order-7"),
                a_cancel("run_3"),
                a_start("run_4", correlation_key="order-7"),
            ]
        )

        assert kinds(done) == ["DuplicateRun", "Committed", "Started", "Cancelled", "Started"]
        assert await store.holder("default", "order-7") == "run_4"

    async def test_a_key_is_taken_and_freed_in_one_batch(self, store: Store) -> None:
        await store.execute([a_start("run_1", correlation_key="order-7"), a_cancel("run_1")])

        assert await store.holder("default", "order-7") is None

    async def test_a_key_that_is_held_forever_outlives_its_run(self, store: Store) -> None:
        await ended(store, "run_1", correlation_key="order-7", correlation_scope="forever")

        assert await store.holder("default", "order-7") == "run_1"
        told(DuplicateRun, await reply_to(store, a_start("run_2", correlation_key="order-7")))
        assert outcomes(await store.execute([a_signal_by_key("order-7")])) == ["no_target"]

    async def test_equal_keys_of_two_workspaces_never_meet(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")
        told(Started, await reply_to(store, a_start("run_2", correlation_key="order-7", workspace="other")))

        done = await store.execute([a_signal_by_key("order-7", workspace="other"), a_signal_by_key("order-7")])

        assert [told(Receipt, reply).run_id for reply in done.replies] == ["run_2", "run_1"]
        assert await store.holder("other", "order-7") == "run_2"
        await cancelled(store, "run_1")
        assert await store.holder("other", "order-7") == "run_2"

    async def test_a_child_cannot_have_a_key_that_is_held_and_nothing_is_committed_then(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")
        turn = await running(store, "run_2")
        before = await visible_rows(store)

        reply = await reply_to(
            store, a_commit(turn, joining(a_child("run_3"), a_child("run_4", correlation_key="order-7")))
        )

        assert reply == DuplicateRun("order-7", RunId("run_1"))
        assert await visible_rows(store) == before
        told(Committed, await reply_to(store, a_commit(turn, ending())))

    # -- signals to a key

    async def test_a_signal_to_a_key_reaches_its_holder(self, store: Store) -> None:
        await parked(store, "run_1", correlation_key="order-7")

        assert outcomes(await store.execute([a_signal_by_key("order-7"), a_signal_by_key("order-8")])) == [
            "woke",
            "no_target",
        ]
        assert len(await store.inbox("run_1")) == 1

    async def test_a_signal_to_a_key_reaches_the_run_that_its_batch_started_before_it(self, store: Store) -> None:
        done = await store.execute([a_start("run_1", correlation_key="order-7"), a_signal_by_key("order-7")])

        assert told(Receipt, done.replies[1]).outcome == "queued"
        assert len(await store.inbox("run_1")) == 1

    async def test_a_signal_to_a_key_that_moves_in_its_batch_follows_it(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")

        done = await store.execute(
            [a_commit(turn, ending()), a_start("run_2", correlation_key="order-7"), a_signal_by_key("order-7")]
        )

        assert kinds(done) == ["Committed", "Started", "Receipt"]
        assert told(Receipt, done.replies[2]).run_id == "run_2"

    async def test_a_signal_to_a_key_that_is_freed_in_its_batch_is_refused(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")

        done = await store.execute([a_commit(turn, ending()), a_signal_by_key("order-7")])

        assert told(Receipt, done.replies[1]).outcome == "no_target"
        assert await store.inbox("run_1") == []

    # -- start or signal

    async def test_start_or_signal_starts_where_nobody_holds_the_key(self, store: Store) -> None:
        receipt = told(Receipt, await reply_to(store, a_start_or_signal("run_1", "order-7")))

        assert (receipt.outcome, receipt.run_id, receipt.started) == ("queued", "run_1", True)
        assert await store.holder("default", "order-7") == "run_1"
        assert len(await store.inbox("run_1")) == 1

    async def test_start_or_signal_signals_the_holder(self, store: Store) -> None:
        await parked(store, "run_1", correlation_key="order-7")

        receipt = told(Receipt, await reply_to(store, a_start_or_signal("run_2", "order-7")))

        assert (receipt.outcome, receipt.run_id, receipt.started) == ("woke", "run_1", False)
        assert await store.run("default", "run_2") is None

    async def test_many_start_or_signal_in_one_batch_start_one_run(self, store: Store) -> None:
        done = await store.execute([a_start_or_signal(f"run_{n}", "order-7") for n in range(1, 6)])

        receipts = [told(Receipt, reply) for reply in done.replies]
        assert [receipt.started for receipt in receipts] == [True, False, False, False, False]
        assert {receipt.run_id for receipt in receipts} == {"run_1"}
        assert len(await store.inbox("run_1")) == 5
        assert await store.count_runs(None) == {"ready": 1}

    async def test_start_or_signal_starts_anew_where_the_holder_ends_in_the_same_batch(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")

        done = await store.execute([a_commit(turn, ending()), a_start_or_signal("run_2", "order-7")])

        receipt = told(Receipt, done.replies[1])
        assert (receipt.run_id, receipt.started) == ("run_2", True)
        assert len(await store.inbox("run_2")) == 1
        assert done.ready

    async def test_start_or_signal_that_is_tried_again_does_not_raise_the_run_from_its_end(self, store: Store) -> None:
        command = a_start_or_signal("run_1", "order-7")
        await store.execute([command])
        await cancelled(store, "run_1")

        receipt = told(Receipt, await reply_to(store, command))

        assert (receipt.outcome, receipt.reason) == ("no_target", "cancelled")
        assert (await row(store, "run_1")).status == "cancelled"
        assert await store.inbox("run_1") == []

    async def test_start_or_signal_that_is_in_a_batch_twice_starts_one_run(self, store: Store) -> None:
        command = a_start_or_signal("run_1", "order-7", dedup_key="d-1")

        assert outcomes(await store.execute([command, command])) == ["queued", "duplicate"]
        assert await store.count_runs(None) == {"ready": 1}

    async def test_start_or_signal_with_the_id_of_another_run_does_not_reach_it(self, store: Store) -> None:
        """It would be delivered to a run whose waits nobody looked at."""
        await parked(store, "run_1")

        assert outcomes(await store.execute([a_start_or_signal("run_1", "order-7")])) == ["no_target"]
        assert await store.inbox("run_1") == []

    # -- dedup keys

    async def test_a_signal_that_is_sent_again_is_a_duplicate_and_wakes_nobody(self, store: Store) -> None:
        await parked(store)
        first = a_signal(dedup_key="d-1")
        again = a_signal(dedup_key="d-1")

        assert outcomes(await store.execute([first])) == ["woke"]
        before = await visible_rows(store)
        receipt = told(Receipt, await reply_to(store, again))

        assert receipt == Receipt(outcome="duplicate", run_id="run_1", message_id=first.signal_id, duplicate=True)
        assert await visible_rows(store) == before

    async def test_a_signal_that_is_sent_twice_in_one_batch_is_admitted_once(self, store: Store) -> None:
        await started(store)

        done = await store.execute([a_signal(dedup_key="d-1"), a_signal(dedup_key="d-2"), a_signal(dedup_key="d-1")])

        assert outcomes(done) == ["queued", "queued", "duplicate"]
        assert len(await store.inbox("run_1")) == 2

    async def test_a_dedup_key_with_another_payload_is_a_conflict_and_is_kept(self, store: Store) -> None:
        await started(store)
        await store.execute([a_signal(dedup_key="d-1", payload="1")])

        receipt = told(Receipt, await reply_to(store, a_signal(dedup_key="d-1", payload="2")))

        assert (receipt.outcome, receipt.reason) == ("conflict", "dedup_conflict")
        assert [signal.payload for signal in await store.inbox("run_1")] == ["1"]
        assert [kept.reason for kept in await store.unused("default", limit=9)] == ["dedup_conflict"]

    async def test_a_dedup_key_is_known_after_the_signal_was_used_and_after_the_run_ended(self, store: Store) -> None:
        await parked(store)
        turns = (await store.execute([a_signal(dedup_key="d-1")], an_offer())).turns
        turn = turns[RunId("run_1")]
        await store.execute([a_commit(turn, going_on(), used=turn.inbox)])
        assert outcomes(await store.execute([a_signal(dedup_key="d-1")])) == ["duplicate"]

        await cancelled(store)
        assert outcomes(await store.execute([a_signal(dedup_key="d-1")])) == ["duplicate"]

    async def test_a_dedup_key_counts_for_its_run_and_signal_name_alone(self, store: Store) -> None:
        await started(store, "run_1")
        await started(store, "run_2")

        done = await store.execute(
            [
                a_signal("run_1", "go", dedup_key="d-1"),
                a_signal("run_1", "stop", dedup_key="d-1"),
                a_signal("run_2", "go", dedup_key="d-1"),
            ]
        )

        assert outcomes(done) == ["queued", "queued", "queued"]

    async def test_a_redelivery_to_a_key_never_enters_the_next_run_of_it(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")
        await store.execute([a_signal_by_key("order-7", dedup_key="d-1")])
        await cancelled(store, "run_1")
        await started(store, "run_2", correlation_key="order-7")

        done = await store.execute([a_signal_by_key("order-7", dedup_key="d-1")])
        done.replies.append(await reply_to(store, a_start_or_signal("run_3", "order-7", dedup_key="d-1")))

        assert outcomes(done) == ["duplicate", "duplicate"]
        assert await store.inbox("run_2") == []

    async def test_a_start_and_a_signal_to_it_may_share_a_batch_where_an_earlier_run_of_the_key_has_the_dedup_key(
        self, store: Store
    ) -> None:
        await started(store, "run_1", correlation_key="order-7")
        await store.execute([a_signal_by_key("order-7", dedup_key="d-1")])
        await cancelled(store, "run_1")

        second = a_signal("run_2", dedup_key="d-1")
        done = await store.execute([a_start("run_2", correlation_key="order-7"), second, a_start("run_3")])

        assert kinds(done) == ["Started", "Receipt", "Started"]
        again = told(Receipt, await reply_to(store, a_signal_by_key("order-7", dedup_key="d-1")))
        assert (again.outcome, again.run_id, again.message_id) == ("duplicate", "run_2", second.signal_id)

    async def test_equal_dedup_keys_of_two_workspaces_never_meet(self, store: Store) -> None:
        await started(store, "run_1", correlation_key="order-7")
        await started(store, "run_2", correlation_key="order-7", workspace="other")

        done = await store.execute(
            [
                a_signal_by_key("order-7", dedup_key="d-1", payload="1"),
                a_signal_by_key("order-7", dedup_key="d-1", payload="2", workspace="other"),
            ]
        )

        assert outcomes(done) == ["queued", "queued"]

    # -- a target that moved is looked up again inside

    async def test_no_command_comes_back_to_be_executed_again(self, store: Store) -> None:
        turn = await running(store, "run_1", correlation_key="order-7")

        done = await store.execute(
            [
                a_signal_by_key("order-7"),
                a_start_or_signal("run_2", "order-7"),
                a_commit(turn, ending()),
                a_start_or_signal("run_3", "order-7"),
                a_signal_by_key("order-7"),
                a_start_or_signal("run_4", "order-7"),
                a_start_or_signal("run_5", "order-8"),
                a_start_or_signal("run_6", "order-8"),
            ],
            an_offer(),
        )

        assert "Again" not in kinds(done)
        assert outcomes_of_receipts(done.replies) == ["queued"] * 7
        assert await store.holder("default", "order-7") == "run_3"
        assert len(await store.inbox("run_3")) == 3
        assert len(await store.inbox("run_5")) == 2

    async def test_a_run_may_wait_under_the_key_that_its_predecessor_freed(self, store: Store) -> None:
        first = await running(store, "run_1", correlation_key="order-7")
        done = await store.execute(
            [a_commit(first, ending()), a_start("run_2", correlation_key="order-7")], an_offer(slots=1)
        )
        second = done.turns[RunId("run_2")]
        await store.execute([a_commit(second, waiting_for("go"))])

        assert outcomes(await store.execute([a_signal_by_key("order-7")])) == ["woke"]
        assert outcomes(await store.execute([a_signal("run_1")])) == ["no_target"]

    # -- answers that are held for the first wait of their signal id

    async def test_an_answer_is_held_for_the_first_wait_of_its_signal_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert outcomes(await store.execute([_held()])) == ["queued"]
        assert outcomes(await store.execute([_held(message_id="msg_2")])) == ["duplicate"]
        assert outcomes(await store.execute([_held(message_id="msg_3", dedup_key=None)])) == ["late"]
        clock.advance(HOUR - SECOND)
        turn = await running(store, "run_1", style="workflow", step="body")

        told(Committed, await reply_to(store, _waiting(turn)))

        [wait] = await store.waits(WaitFilter(run_id="run_1", status=None), after=None, limit=9)
        assert (wait.status, wait.cause) == ("completed", "answer")
        [step] = await store.steps("run_1")
        assert step.result == ODD
        assert outcomes(await store.execute([_held(message_id="msg_4")])) == ["duplicate"]
        clock.advance(HOUR)
        assert list(await store.due_chores(9)) == []

    async def test_an_answer_that_was_held_too_long_is_kept_as_unused_and_its_dedup_key_is_free(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.execute([_held()])
        clock.advance(HOUR)
        [chore] = await store.due_chores(9)

        await store.execute([LetGo(workspace=WORKSPACE, run_id=chore.run_id, chore=chore)])

        [kept] = await store.unused(WORKSPACE, limit=9)
        assert (kept.target, kept.reason, kept.payload) == ("gate-7", "expired", ODD)
        assert await store.name(WORKSPACE, "signal", "gate-7") is None
        assert outcomes(await store.execute([_held(message_id="msg_2")])) == ["queued"]

    async def test_equal_signal_ids_of_two_workspaces_hold_answers_of_their_own(self, store: Store) -> None:
        done = await store.execute([_held(), _held(workspace="other", message_id="msg_2", data="2")])

        assert outcomes(done) == ["queued", "queued"]
        turn = await running(store, "run_1", style="workflow", step="body")
        await store.execute([_waiting(turn)])
        [step] = await store.steps("run_1")
        assert step.result == ODD

    async def test_an_answer_is_held_and_taken_in_one_batch(self, store: Store) -> None:
        turn = await running(store, "run_1", style="workflow", step="body")

        await store.execute([_held(), _waiting(turn)])

        [step] = await store.steps("run_1")
        assert step.result == ODD
        assert await store.audit() == []


def outcomes_of_receipts(replies: Iterable[object]) -> list[str]:
    return [reply.outcome for reply in replies if isinstance(reply, Receipt)]


def _held(**changes: Any) -> Complete:
    command = Complete(
        workspace=WORKSPACE,
        signal_id="gate-7",
        message_id="msg_1",
        data=ODD,
        digest="of it",
        dedup_key="k",
        hold=HOUR,
    )
    return replace(command, **changes)


def _waiting(turn: Turn) -> CommitTurn:
    opens = NewWait(key="gate", kind="signal", names=("gate-7",), timeout=HOUR)
    return replace(a_commit(turn, Suspend()), opens=(opens,))
