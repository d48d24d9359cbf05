"""Answers and what meets them at a wait, in every order in which their statements can happen on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bide.core.requests import Amend, Fail
from bide.stores.postgres import PostgresStore
from bide.testing.store_contract.making import HOUR, a_cancel, a_change, a_question, an_answer, asking
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


@pytest.mark.parametrize("name", STORIES)
async def test_answers_do_in_any_order_what_they_do_one_after_the_other(postgres_url: str, name: str) -> None:
    """D4, D5, W7, W11."""
    told, tales = STORIES[name]
    tried = await try_orders(postgres_url, told, cap=CAP)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete, str(tried)
    assert tried.tales.keys() == tales, str(tried)
