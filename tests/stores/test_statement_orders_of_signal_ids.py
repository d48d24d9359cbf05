"""Answers to signal ids, and what meets them, in every order in which their statements can happen on a
real server (D4, D5, F4, F5, F7, laws 1, 2)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import CommitTurn, Complete, NewWait, Suspend
from bide.core.records import Name, Turn
from bide.core.requests import LetGo
from bide.stores.interface import Store
from bide.stores.postgres import PostgresStore, statements, transactions
from bide.stores.postgres.statements import counted, unless_moved
from bide.testing.store_contract.making import HOUR, WORKSPACE, a_cancel, a_commit, an_offer, going_on, running
from bide.testing.world import VirtualClock
from tests.stores.test_statement_orders import TRIPWIRES, under_locks
from tests.support.transitions import Call, Story, executing, firing_timers, try_orders

ALL = os.environ.get("BIDE_ORDERS") == "all"
CAP = 1_000_000 if ALL else 300
FIRST = CAP if ALL else 40  # of those that are sampled
SAMPLES = 24
STORIES: dict[str, tuple[Story, frozenset[str]]] = {}


def story(*tales: str) -> Callable[[Story], Story]:
    def tell(story: Story) -> Story:
        STORIES[str(getattr(story, "__name__", story)).replace("_", " ")] = (story, frozenset(tales))
        return story

    return tell


def an_answer(data: str = "7", **changes: Any) -> Complete:
    command = Complete(workspace=WORKSPACE, signal_id="a", message_id=f"msg_{data}", data=data, digest=f"of {data}")
    return replace(command, **changes)


async def at_work(store: Store, run_id: str = "run_1") -> Turn:
    return await running(store, run_id, style="workflow", step="body")


def waiting(turn: Turn, *signals: str, details: str = "{}") -> CommitTurn:
    """The turn ends in waits for these signal ids."""
    opens = (NewWait(key=f"gate {id}", kind="signal", names=(id,), timeout=HOUR, details=details) for id in signals)
    return replace(a_commit(turn, Suspend()), opens=tuple(opens))


async def waits(store: Store, *signals: str, run_id: str = "run_1") -> None:
    await store.execute([waiting(await at_work(store, run_id), *(signals or ("a",)))])


# Answers to waits


@story("suspend committed, answer no_target: run_1 waiting", "suspend committed, answer woke: run_1 ready")
async def an_answer_and_the_suspend_that_opens_its_wait(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing("suspend", waiting(await at_work(store), "a")), executing("answer", an_answer())]


@story("timers done, answer late: run_1 ready", "timers nothing, answer woke: run_1 ready")
async def an_answer_and_the_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    clock.advance(HOUR)
    return [firing_timers(), executing("answer", an_answer())]


@story("cancel cancelled, answer no_target: run_1 cancelled", "cancel cancelled, answer woke: run_1 cancelled")
async def an_answer_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    return [executing("cancel", a_cancel()), executing("answer", an_answer())]


@story("one woke, other late: run_1 ready", "one late, other woke: run_1 ready")
async def two_answers(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    return [executing("one", an_answer("1")), executing("other", an_answer("2"))]


@story(
    "cancel cancelled, answers no_target+woke: run_1 cancelled, run_2 ready",
    "cancel cancelled, answers woke+woke: run_1 cancelled, run_2 ready",
)
async def answers_to_two_runs_and_a_cancel_of_one(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store, "a")
    await waits(store, "b", run_id="run_2")
    answers = executing("answers", an_answer("1"), an_answer("2", signal_id="b"))
    return [executing("cancel", a_cancel()), answers]


@story(
    "one woke+woke, other late+late: run_1 ready, run_2 ready",
    "one late+late, other woke+woke: run_1 ready, run_2 ready",
)
async def answers_to_two_runs_and_others_to_the_same(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """Each batch names them in another order."""
    await waits(store, "a")
    await waits(store, "b", run_id="run_2")
    one = executing("one", an_answer("1"), an_answer("2", signal_id="b"))
    return [one, executing("other", an_answer("3", signal_id="b"), an_answer("4"))]


@story("one woke, other woke: run_1 ready")
async def answers_to_two_waits_of_one_run(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store, "a", "b")
    return [executing("one", an_answer("1")), executing("other", an_answer("2", signal_id="b"))]


@story("one woke, other duplicate: run_1 ready", "one duplicate, other woke: run_1 ready")
async def one_answer_sent_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    first = an_answer("1", dedup_key="k")
    return [executing("one", first), executing("other", replace(first, message_id="msg_again"))]


@story("withdraw committed, answer no_target: run_1 waiting", "withdraw committed, answer woke: run_1 ready")
async def an_answer_and_the_withdrawal_of_its_wait(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The body was woken by its other wait, and gives this one up."""
    await waits(store, "a", "b")
    done = await store.execute([an_answer("1", signal_id="b")], an_offer())
    [turn] = done.turns.values()
    suspend = replace(waiting(turn, "c"), withdraws=(1,))
    return [executing("withdraw", suspend), executing("answer", an_answer())]


@story("reach committed, answer queued: run_1 ready", "reach committed, answer woke: run_1 ready")
async def an_early_answer_and_the_wait_that_reaches_its_reserved_id(
    store: PostgresStore, clock: VirtualClock
) -> list[Call]:
    """F7, W1: the id is reserved by a commit with which the body went on."""
    turn = await at_work(store)
    reserve = NewWait(key="gate a", kind="signal", names=("a",), reserves=True)
    going = replace(a_commit(turn, going_on("body"), keep=True), opens=(reserve,))
    [turn] = (await store.execute([going], an_offer())).turns.values()
    reach = NewWait(key="gate a", kind="signal", names=("a",), reaches=1, timeout=HOUR)
    return [executing("reach", replace(a_commit(turn, Suspend()), opens=(reach,))), executing("answer", an_answer())]


@story(
    "one committed, other committed: run_1 waiting, run_2 ready",
    "one committed, other committed: run_1 ready, run_2 waiting",
)
async def two_waits_for_one_id(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """F5: the second one always hears of the first."""
    one, other = await at_work(store, "run_1"), await at_work(store, "run_2")
    return [executing("one", waiting(one, "a")), executing("other", waiting(other, "a"))]


@story(
    "answer woke, other committed: run_1 ready, run_2 waiting",
    "answer conflict, other committed: run_1 waiting, run_2 ready",
)
async def the_answer_to_one_wait_and_another_wait_for_its_id(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """F5: a collision is with an open wait, never with one that has its answer."""
    await waits(store)
    other = await at_work(store, "run_2")
    return [executing("answer", an_answer()), executing("other", waiting(other, "a"))]


# Answers that are held (F7)


def held(data: str = "7", **changes: Any) -> Complete:
    return an_answer(data, hold=HOUR, **changes)


@story("suspend committed, hold queued: run_1 ready", "suspend committed, hold woke: run_1 ready")
async def a_hold_and_the_suspend_that_opens_its_wait(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """Law 2: whichever comes second sees the other."""
    return [executing("suspend", waiting(await at_work(store), "a")), executing("hold", held())]


@story("one queued, other late: no run", "one late, other queued: no run")
async def two_holds_for_one_id(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing("one", held("1")), executing("other", held("2"))]


@story("one queued, other duplicate: no run", "one duplicate, other queued: no run")
async def one_hold_sent_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    first = held("1", dedup_key="k")
    return [executing("one", first), executing("other", replace(first, message_id="msg_again"))]


@story(
    "one committed, other committed: run_1 ready, run_2 waiting",
    "one committed, other committed: run_1 waiting, run_2 ready",
)
async def two_waits_for_one_held_answer(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await store.execute([held(dedup_key="k")])
    one, other = await at_work(store, "run_1"), await at_work(store, "run_2")
    return [executing("one", waiting(one, "a")), executing("other", waiting(other, "a"))]


@story("suspend committed, end done: run_1 waiting", "suspend committed, end idle: run_1 waiting")
async def a_wait_and_the_end_of_the_hold_for_it(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await at_work(store)
    await store.execute([held()])
    clock.advance(HOUR)
    [chore] = await store.due_chores(9)
    end = LetGo(workspace=WORKSPACE, run_id=chore.run_id, chore=chore)
    return [executing("suspend", waiting(turn, "a")), executing("end", end)]


@story("again queued, end done: no run", "again queued, end idle: no run")
async def another_hold_and_the_end_of_the_one_before(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await store.execute([held("1")])
    clock.advance(HOUR)
    [chore] = await store.due_chores(9)
    end = LetGo(workspace=WORKSPACE, run_id=chore.run_id, chore=chore)
    return [executing("again", held("2")), executing("end", end)]


@story("answer woke, hold queued: run_1 ready", "answer late, hold woke: run_1 ready")
async def a_hold_and_the_answer_to_the_open_wait(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    return [executing("answer", an_answer("1")), executing("hold", held("2"))]


@story("timers done, hold queued: run_1 ready", "timers nothing, hold woke: run_1 ready")
async def a_hold_and_the_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    clock.advance(HOUR)
    return [firing_timers(), executing("hold", held())]


@story("cancel cancelled, hold queued: run_1 cancelled", "cancel cancelled, hold woke: run_1 cancelled")
async def a_hold_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await waits(store)
    return [executing("cancel", a_cancel()), executing("hold", held())]


# Nobody holds a lock that the other needs before its last statements, so there are more orders than time.
SAMPLED = {
    "a hold and the suspend that opens its wait",
    "the answer to one wait and another wait for its id",
    "two holds for one id",
    "one hold sent twice",
    "two waits for one held answer",
    "a wait and the end of the hold for it",
    "another hold and the end of the one before",
}


@pytest.mark.parametrize("name", STORIES)
async def test_answers_to_signal_ids_do_in_any_order_what_they_do_one_after_the_other(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    under_locks(monkeypatch)
    told, tales = STORIES[name]
    tried = await try_orders(postgres_used_url, told, cap=FIRST if name in SAMPLED else CAP, samples=SAMPLES)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete is (ALL or name not in SAMPLED), f"so many orders are looked at:\n{tried}"
    assert tried.tales.keys() == tales, str(tried)


@pytest.mark.parametrize("name", [name for name in STORIES if re.search("answer", name)])
async def test_answers_to_signal_ids_do_the_same_without_locks(postgres_used_url: str, name: str) -> None:
    told, tales = STORIES[name]
    tried = await try_orders(postgres_used_url, told, cap=FIRST, samples=SAMPLES)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.tales.keys() <= tales, str(tried)


# Mutants: answers that do not ask what has moved since they were read


def asks_for_no_names(parts: Iterable[tuple[str, object]]) -> list[str]:
    return counted(parts)[:1]


def writes_whatever_has_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        transactions,
        "unless_moved",
        lambda parts, has_hint=False: re.sub(
            r"run\.xmin::text = ANY \((\$\d+)::text::text\[\]\)", r"\1::text IS NOT NULL", unless_moved(parts, has_hint)
        ),
    )


def writes_without_its_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions, "counted", asks_for_no_names)
    patch.setattr(statements, "counted", asks_for_no_names)
    unless_moved.cache_clear()


UNASKING: dict[str, tuple[Story, Callable[[pytest.MonkeyPatch], None]]] = {
    "whether its run has moved": (answers_to_two_waits_of_one_run, writes_whatever_has_moved),
    "whether its name has moved": (the_answer_to_one_wait_and_another_wait_for_its_id, writes_without_its_names),
}


@pytest.mark.parametrize("name", UNASKING)
async def test_an_answer_that_does_not_ask_what_has_moved_is_caught(
    postgres_used_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, mutate = UNASKING[name]
    try:
        tried = await try_orders(
            postgres_used_url, told, cap=FIRST, mutate=lambda: mutate(monkeypatch), dropped=TRIPWIRES, samples=SAMPLES
        )
    finally:
        unless_moved.cache_clear()
    assert set(tried.verdicts) - {"ok"}, str(tried)
    assert tried.verdicts["ok"] > 0, f"it would be caught without any race\n{tried}"


# Mutants: code that replaces a name without looking which row is there


def put_blindly(draft: Draft, name: Name) -> None:
    key = (name.workspace, name.kind, name.name)
    draft.freed[key] = None
    draft.names[key] = name


MUTANTS: dict[str, tuple[Story, str, Callable[[Draft, Name], None]]] = {
    "two waits open under one id": (two_waits_for_one_id, "put_name", put_blindly),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_code_that_breaks_the_rule_is_caught(
    postgres_used_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, method, mutant = MUTANTS[name]
    tried = await try_orders(postgres_used_url, told, cap=60, mutate=lambda: monkeypatch.setattr(Draft, method, mutant))
    assert set(tried.verdicts) - {"ok"}, str(tried)
