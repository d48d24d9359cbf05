"""Answers and what meets them at a wait, in every order in which their statements can happen on a real server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import pytest
from msgspec.structs import replace

import bide.stores.postgres.store as store_module
from bide.core.batch import RowKey
from bide.core.commands import Suspend
from bide.core.outside import ItemKey
from bide.core.records import Interaction, Run, RunId, Wait
from bide.core.requests import Agenda, Amend, Beat, Fail, HandTask, Withdraw
from bide.stores.postgres import PostgresStore, batches
from bide.stores.postgres.tables import Tables
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    WORKSPACE,
    a_cancel,
    a_change,
    a_commit,
    a_question,
    an_answer,
    an_offer,
    asking,
)
from bide.testing.world import VirtualClock
from tests.support.transitions import Call, Story, executing, firing_timers, try_orders

CAP = 300
STORIES: dict[str, tuple[Story, frozenset[str]]] = {}


def story(*tales: str) -> Callable[[Story], Story]:
    def tell(story: Story) -> Story:
        STORIES[str(getattr(story, "__name__", story)).replace("_", " ")] = (story, frozenset(tales))
        return story

    return tell


@story("ann queued, ben woke: run_1 ready", "ann woke, ben queued: run_1 ready")
async def the_last_two_answers_of_a_quorum(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(details='{"quorum":3}'))
    await store.execute([an_answer("0", "zoe")])
    return [executing("ann", an_answer("1", "ann")), executing("ben", an_answer("2", "ben"))]


@story("ann woke, ben conflict: run_1 ready", "ann conflict, ben woke: run_1 ready")
async def two_answers_to_one_task(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("ann", an_answer("1", "ann")), executing("ben", an_answer("2", "ben"))]


@story("timers done, answer late: run_1 ready", "timers nothing, answer woke: run_1 ready")
async def an_answer_and_the_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(timeout=HOUR))
    clock.advance(HOUR)
    return [firing_timers(), executing("answer", an_answer())]


@story("cancel cancelled, answer no_target: run_1 cancelled", "cancel cancelled, answer woke: run_1 cancelled")
async def an_answer_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("cancel", a_cancel()), executing("answer", an_answer())]


@story("fail done, answer late: run_1 ready", "fail idle, answer woke: run_1 ready")
async def an_answer_and_a_failure(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("fail", a_change(Fail())), executing("answer", an_answer())]


@story("assign done, answer denied: run_1 waiting", "assign idle, answer woke: run_1 ready")
async def an_answer_and_a_new_assignee(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    change = a_change(Amend(assigns=True, assignee="ben"))
    return [executing("assign", change), executing("answer", an_answer("true", "ann"))]


@story("withdraw done, answer no_target: run_1 ready", "withdraw idle, answer woke: run_1 ready")
async def an_answer_and_the_withdrawal_of_its_task_by_hand(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("withdraw", a_change(Withdraw())), executing("answer", an_answer())]


@story("withdraw committed, answer no_target: run_1 waiting", "withdraw committed, answer woke: run_1 waiting")
async def an_answer_and_the_withdrawal_of_its_task(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The body was woken by its other task, and gives this one up."""
    await asking(store, a_question("one"), a_question("other"))
    [turn] = (await store.execute([an_answer(no=2)], an_offer())).turns.values()
    suspend = replace(a_commit(turn, Suspend()), opens=(a_question("third"),), withdraws=(1,))
    return [executing("withdraw", suspend), executing("answer", an_answer())]


@story("claim done, answer denied: run_1 waiting", "claim idle, answer woke: run_1 ready")
async def an_answer_and_a_claim_of_somebody_else(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    claim = HandTask(workspace=WORKSPACE, run_id=RunId("run_1"), no=1, item=0, action="claim", by="ben")
    return [executing("claim", claim), executing("answer", an_answer("true", "ann"))]


# Operators and timers (W9, W10, W13)


@story("timers done, move idle: run_1 ready", "timers nothing, move done: run_1 waiting")
async def another_deadline_and_the_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """Law 1: a timer never ends a wait whose deadline was moved."""
    await asking(store, a_question(timeout=HOUR))
    clock.advance(HOUR)
    return [firing_timers(), executing("move", a_change(Amend(moves=True, deadline=HOUR)))]


@story("timers done, beat idle: run_1 ready", "timers nothing, beat done: run_1 waiting")
async def a_sign_of_life_and_the_end_of_the_silence(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(agenda=Agenda(heartbeat=MINUTE)))
    clock.advance(MINUTE)
    return [firing_timers(), executing("beat", a_change(Beat()))]


@story("timers done, answer late: run_1 ready", "timers nothing, answer woke: run_1 ready")
async def an_answer_and_the_end_of_the_silence(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(agenda=Agenda(heartbeat=MINUTE)))
    clock.advance(MINUTE)
    return [firing_timers(), executing("answer", an_answer())]


@story("timers done, answer denied: run_1 waiting", "timers nothing, answer woke: run_1 ready")
async def an_answer_and_the_escalation_to_somebody_else(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(agenda=Agenda(escalate=((MINUTE, "ben"),)), timeout=HOUR))
    clock.advance(MINUTE)
    return [firing_timers(), executing("answer", an_answer("true", "ann"))]


@story("fail done, withdraw idle: run_1 ready", "fail idle, withdraw done: run_1 ready")
async def a_failure_and_a_withdrawal_by_hand(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("fail", a_change(Fail())), executing("withdraw", a_change(Withdraw()))]


@story("timers done, withdraw idle: run_1 ready", "timers nothing, withdraw done: run_1 ready")
async def a_withdrawal_by_hand_and_the_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store, a_question(timeout=HOUR))
    clock.advance(HOUR)
    return [firing_timers(), executing("withdraw", a_change(Withdraw()))]


@story("cancel cancelled, withdraw done: run_1 cancelled", "cancel cancelled, withdraw idle: run_1 cancelled")
async def a_withdrawal_by_hand_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await asking(store)
    return [executing("cancel", a_cancel()), executing("withdraw", a_change(Withdraw()))]


@pytest.mark.parametrize("name", STORIES)
async def test_answers_do_in_any_order_what_they_do_one_after_the_other(postgres_used_url: str, name: str) -> None:
    """D4, D5, W7, W11."""
    told, tales = STORIES[name]
    tried = await try_orders(postgres_used_url, told, cap=CAP)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete, str(tried)
    assert tried.tales.keys() == tales, str(tried)


# Mutants: code that reads what answers meet before it holds the run


class ReadsBeforeTheLock(Tables):
    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        self.waits = list(await super().load_waits({(id, 1) for id in ids}))
        self.interactions = list(await super().load_interactions({(id, 1, 0) for id in ids}))
        return await super().lock_runs(ids, only_free=only_free)

    async def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]:
        return [wait for wait in self.waits if (wait.run_id, wait.no) in keys]

    async def load_interactions(self, keys: Collection[ItemKey]) -> Iterable[Interaction]:
        return [row for row in self.interactions if (row.run_id, row.no, row.item) in keys]


def reads_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "Tables", ReadsBeforeTheLock)


def times_out_early(patch: pytest.MonkeyPatch) -> None:
    """A timer is looked at without a lock, and acts on what was read before that of its run."""
    reads_early(patch)
    whole: Callable[[str], Mapping[str, str]] = vars(store_module)["statements"]

    def spoiled(schema: str) -> Mapping[str, str]:
        sql = whole(schema)
        assert "FOR UPDATE SKIP LOCKED" in sql["lock_due_timers"]
        return {**sql, "lock_due_timers": sql["lock_due_timers"].replace("FOR UPDATE SKIP LOCKED", "")}

    patch.setattr(store_module, "statements", spoiled)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Story, str]] = {
    "votes are read before the lock": (reads_early, the_last_two_answers_of_a_quorum, "lost"),
    "a task is read before the lock": (reads_early, two_answers_to_one_task, "doubled"),
    "a timeout acts on what it read before the lock": (times_out_early, an_answer_and_the_timeout, "doubled"),
    "a timeout acts on a deadline that was moved": (times_out_early, another_deadline_and_the_timeout, "breaks I11"),
    "silence ends what gave a sign of life": (times_out_early, a_sign_of_life_and_the_end_of_the_silence, "breaks I5"),
    "two operators end one wait": (reads_early, a_failure_and_a_withdrawal_by_hand, "doubled"),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_code_that_breaks_a_rule_of_answers_is_caught(
    postgres_used_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R10: what decides is read after the lock, in a statement of its own."""
    mutation, told, verdict = MUTANTS[name]
    tried = await try_orders(postgres_used_url, told, cap=60, mutate=lambda: mutation(monkeypatch))
    assert tried.verdicts[verdict] > 0, str(tried)
    assert tried.verdicts["ok"] > 0, f"it would be caught without any race\n{tried}"
