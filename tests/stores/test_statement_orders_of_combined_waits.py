"""The last answers of `step.quorum`, `step.all` and `step.first`, in every order in which statements can happen on
a real server, with the real body of the workflow that waits for them (D4, D5, F12, laws 1, 2).

Nothing of a combination is stored: each answer is one of its wait, and the body counts them. So the answers are raced,
and the turn of a body that has counted some of them; then the story goes on to the end of the run. What the run gives
is what was answered first, and an answer that nobody wanted any more is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import bide
from bide.core import turns
from bide.core.batch import Draft
from bide.core.commands import Committed, CommitTurn, Complete, Reply, Suspend
from bide.core.moves import park
from bide.core.records import Run, Turn
from bide.stores.postgres import PostgresStore, transactions
from bide.stores.postgres.statements import unless_moved
from bide.testing.store_contract.making import (
    HOUR,
    WORKSPACE,
    a_cancel,
    a_signal,
    an_answer,
    an_event,
    an_offer,
    row,
    running,
)
from bide.testing.world import VirtualClock
from tests.stores.test_statement_orders import TRIPWIRES, under_locks
from tests.support.transitions import (
    Call,
    Finish,
    Story,
    an_engine,
    at_rest,
    executing,
    firing_timers,
    taking_turn,
    try_orders,
)

ALL = os.environ.get("BIDE_ORDERS") == "all"
CAP = 1_000_000 if ALL else 300
FIRST = CAP if ALL else 30  # of those that are sampled
SAMPLES = 24
Body = Callable[[bide.Step], Awaitable[Any]]
STORIES: dict[str, tuple[Story, Finish, frozenset[str]]] = {}
TRIPLES: dict[str, tuple[Story, Finish, frozenset[str]]] = {}


# Bodies. Each waits for `end` when it has what it wanted, so that its turn ends in a park


def gate(step: bide.Step, name: str, timeout: str = "2h") -> bide.Wait[int]:
    return step.wait_for_signal(name, signal=name, timeout=timeout, returns=int)


async def at_the_end(step: bide.Step, given: object) -> list[Any]:
    end = await step.wait_for_signal("end", signal="end", timeout="9h", returns=int)
    return [given, end]


async def two_of_three(step: bide.Step) -> Any:
    won = await step.quorum("two", 2, *(gate(step, name) for name in "abc"))
    return await at_the_end(step, [wait.value for wait in won])


async def all_three(step: bide.Step) -> Any:
    return await at_the_end(step, list(await step.all("three", *(gate(step, name) for name in "abc"))))


async def the_first(step: bide.Step) -> Any:
    """The first to wait is not the first in the row."""
    won = await step.first("one", gate(step, "b"), gate(step, "c"), gate(step, "d"))
    return await at_the_end(step, won.value)


async def two_of_three_and_no_more(step: bide.Step) -> Any:
    """The turn that has enough ends the run."""
    won = await step.quorum("two", 2, *(gate(step, name) for name in "abc"))
    return [[wait.value for wait in won]]


async def two_of_each_kind(step: bide.Step) -> Any:
    asked = step.ask("asked", title="?", form=int, timeout="2h")
    paid = step.receive("paid", "paid", timeout="2h")
    shipped = step.wait_for_event("shipped", event="order.shipped", timeout="2h")
    won = await step.quorum("two", 2, asked, paid, shipped)
    return await at_the_end(step, [wait.key for wait in won])


async def the_first_or_its_timeout(step: bide.Step) -> Any:
    won = await step.first("one", gate(step, "b", "1h"), gate(step, "c"))
    try:
        return await at_the_end(step, won.value)
    except bide.WaitTimeoutError:
        return await at_the_end(step, "timed out")


def an_app(body: Body) -> bide.App:
    app = bide.App("orders")

    @app.workflow("order")
    async def order(step: bide.Step, input: Any) -> Any:
        return await body(step)

    return app


def story(
    stories: dict[str, tuple[Story, Finish, frozenset[str]]], body: Body, *tales: str
) -> Callable[[Callable[..., Awaitable[list[Call]]]], Story]:
    """A story of a run of that body; it is handed the run's app, and goes on until the run has ended."""

    def tell(told: Callable[..., Awaitable[list[Call]]]) -> Story:
        app = an_app(body)

        async def begun(store: PostgresStore, clock: VirtualClock) -> list[Call]:
            turn = await running(store, style="workflow", step="body", input="null")
            await taking_turn("begin", app, clock, turn).make(store)
            return await told(store, clock, app)

        async def finish(store: PostgresStore, clock: VirtualClock) -> str:
            return await to_the_end(store, clock, app)

        stories[str(getattr(told, "__name__", told)).replace("_", " ")] = (begun, finish, frozenset(tales))
        return begun

    return tell


async def to_the_end(store: PostgresStore, clock: VirtualClock, app: bide.App) -> str:
    """Whatever is ready goes on; then the run is told to end."""
    engine = an_engine(store, app, clock)
    try:
        for end in ([answer("end", 9)], []):
            while await engine.claim():
                await at_rest(engine)
            if (await row(store)).status == "waiting":
                await store.execute(end)
        run = await row(store)
        kept = sorted(unused.payload for unused in await store.unused(WORKSPACE, limit=9))
        return f"{run.status} {run.result}{f', kept {kept}' if kept else ''}"
    finally:
        engine.detach()


def answer(signal_id: str, data: int) -> Complete:
    return Complete(
        workspace=WORKSPACE, signal_id=signal_id, message_id=f"msg_{data}", data=str(data), digest=f"of {data}"
    )


async def seen(store: PostgresStore, clock: VirtualClock, app: bide.App, *commands: Any) -> None:
    """These came, and the body has counted them."""
    for command in commands:
        await taking_turn("count", app, clock, await woken_by(store, command)).make(store)


async def woken_by(store: PostgresStore, command: Any) -> Turn:
    """The turn that it leads to, in the hands of a worker that has not begun it."""
    [turn] = (await store.execute([command], an_offer())).turns.values()
    return turn


# The last two answers


@story(
    STORIES,
    two_of_three,
    "one woke, other woke: run_1 ready -> completed [[1,2],9], kept ['3']",
    "one woke, other woke: run_1 ready -> completed [[1,3],9], kept ['2']",
)
async def the_last_two_answers_of_a_quorum(store: PostgresStore, clock: VirtualClock, app: bide.App) -> list[Call]:
    await seen(store, clock, app, answer("a", 1))
    return [executing("one", answer("b", 2)), executing("other", answer("c", 3))]


@story(STORIES, all_three, "one woke, other woke: run_1 ready -> completed [[1,2,3],9]")
async def the_last_two_answers_of_all(store: PostgresStore, clock: VirtualClock, app: bide.App) -> list[Call]:
    await seen(store, clock, app, answer("a", 1))
    return [executing("one", answer("b", 2)), executing("other", answer("c", 3))]


@story(
    STORIES,
    the_first,
    "one woke, other woke: run_1 ready -> completed [2,9], kept ['3']",
    "one woke, other woke: run_1 ready -> completed [3,9], kept ['2']",
)
async def two_answers_of_whom_one_is_first(store: PostgresStore, clock: VirtualClock, app: bide.App) -> list[Call]:
    return [executing("one", answer("b", 2)), executing("other", answer("c", 3))]


@story(
    STORIES,
    two_of_each_kind,
    'signal woke, event woke: run_1 ready -> completed [["asked","paid"],9]',
    'signal woke, event woke: run_1 ready -> completed [["asked","shipped"],9]',
)
async def a_signal_and_an_event_are_the_last_of_a_quorum(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    await seen(store, clock, app, an_answer("7", "ann"))
    return [executing("signal", a_signal(name="paid")), executing("event", an_event())]


@story(
    STORIES,
    two_of_each_kind,
    'signal woke, answer woke: run_1 ready -> completed [["shipped","asked"],9]',
    'signal woke, answer woke: run_1 ready -> completed [["shipped","paid"],9]',
)
async def a_signal_and_a_person_are_the_last_of_a_quorum(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    await seen(store, clock, app, an_event())
    return [executing("signal", a_signal(name="paid")), executing("answer", an_answer("7", "ann"))]


@story(
    STORIES,
    the_first_or_its_timeout,
    "timers done, answer woke: run_1 ready -> completed [\"timed out\",9], kept ['3']",
    "timers done, answer woke: run_1 ready -> completed [3,9]",
    "timers nothing, answer woke: run_1 ready -> completed [3,9]",
)
async def a_timeout_and_an_answer_of_whom_one_is_first(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    clock.advance(HOUR)
    return [firing_timers(), executing("answer", answer("c", 3))]


# An answer, and the turn of a body that has counted those before it


@story(
    STORIES,
    all_three,
    "turn was taken, answer woke: run_1 ready -> completed [[1,2,3],9]",
)
async def the_last_answer_of_all_and_the_turn_of_the_one_before(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    """The turn parks on what is still open, unless it came meanwhile (D4)."""
    await seen(store, clock, app, answer("a", 1))
    turn = await woken_by(store, answer("b", 2))
    return [taking_turn("turn", app, clock, turn), executing("answer", answer("c", 3))]


@story(
    STORIES,
    two_of_three,
    "turn was taken, answer woke: run_1 ready -> completed [[1,2],9]",
)
async def the_last_answer_of_a_quorum_and_the_turn_of_the_one_before(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    turn = await woken_by(store, answer("a", 1))
    return [taking_turn("turn", app, clock, turn), executing("answer", answer("b", 2))]


@story(
    STORIES,
    two_of_three,
    "turn was taken, answer no_target: run_1 waiting -> completed [[1,2],9], kept ['3']",
    "turn was taken, answer woke: run_1 ready -> completed [[1,2],9], kept ['3']",
)
async def an_answer_and_the_turn_that_has_enough_of_them(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    """The turn withdraws the wait: it was not answered, or the answer is kept (law 1)."""
    await seen(store, clock, app, answer("a", 1))
    turn = await woken_by(store, answer("b", 2))
    return [taking_turn("turn", app, clock, turn), executing("answer", answer("c", 3))]


@story(
    STORIES,
    two_of_three_and_no_more,
    "turn was taken, answer no_target: run_1 completed -> completed [[1,2]], kept ['3']",
    "turn was taken, answer woke: run_1 ready -> completed [[1,2]], kept ['3']",
)
async def an_answer_and_the_turn_that_ends_with_enough_of_them(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    await seen(store, clock, app, answer("a", 1))
    turn = await woken_by(store, answer("b", 2))
    return [taking_turn("turn", app, clock, turn), executing("answer", answer("c", 3))]


# Three of them


@story(
    TRIPLES,
    two_of_three,
    "turn was taken, one woke, other woke: run_1 ready -> completed [[1,2],9], kept ['3']",
    "turn was taken, one woke, other woke: run_1 ready -> completed [[1,3],9], kept ['2']",
)
async def the_last_two_answers_of_a_quorum_and_the_turn_of_the_one_before(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    turn = await woken_by(store, answer("a", 1))
    answers = [executing("one", answer("b", 2)), executing("other", answer("c", 3))]
    return [taking_turn("turn", app, clock, turn), *answers]


@story(
    TRIPLES,
    all_three,
    "turn was taken, one woke, other woke: run_1 ready -> completed [[1,2,3],9]",
)
async def the_last_two_answers_of_all_and_the_turn_of_the_one_before(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    turn = await woken_by(store, answer("a", 1))
    answers = [executing("one", answer("b", 2)), executing("other", answer("c", 3))]
    return [taking_turn("turn", app, clock, turn), *answers]


@story(
    TRIPLES,
    two_of_three,
    "cancel cancelled, one no_target, other no_target: run_1 cancelled -> cancelled None, kept ['2', '3']",
    "cancel cancelled, one no_target, other woke: run_1 cancelled -> cancelled None, kept ['2']",
    "cancel cancelled, one woke, other no_target: run_1 cancelled -> cancelled None, kept ['3']",
    "cancel cancelled, one woke, other woke: run_1 cancelled -> cancelled None",
)
async def the_last_two_answers_of_a_quorum_and_a_cancel(
    store: PostgresStore, clock: VirtualClock, app: bide.App
) -> list[Call]:
    await seen(store, clock, app, answer("a", 1))
    answers = [executing("one", answer("b", 2)), executing("other", answer("c", 3))]
    return [executing("cancel", a_cancel()), *answers]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "under locks"])
@pytest.mark.parametrize("name", STORIES)
async def test_combined_waits_come_in_any_order_to_what_they_come_to_one_after_the_other(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str, alone: bool
) -> None:
    if not alone:
        under_locks(monkeypatch)
    told, finish, tales = STORIES[name]
    # Under its lock a timer passes over a run that another has, and there are more such orders than time.
    is_sampled = told is a_timeout_and_an_answer_of_whom_one_is_first
    cap, samples = (FIRST, SAMPLES) if is_sampled else (CAP, 0)
    tried = await try_orders(postgres_used_url, told, cap=cap, samples=samples, finish=finish)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete or is_sampled, str(tried)
    assert tried.tales.keys() <= tales if alone else tried.tales.keys() == tales, str(tried)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "under locks"])
@pytest.mark.parametrize("name", TRIPLES)
async def test_three_that_meet_at_combined_waits_come_to_what_they_come_to_one_after_the_other(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str, alone: bool
) -> None:
    if not alone:
        under_locks(monkeypatch)
    told, finish, tales = TRIPLES[name]
    tried = await try_orders(postgres_used_url, told, cap=CAP if ALL else 0, samples=SAMPLES, finish=finish)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.tales.keys() <= tales, str(tried)


# Mutants: code that does not see what came meanwhile


def writes_whatever_has_moved(patch: pytest.MonkeyPatch) -> None:
    """An answer does not ask whether its run has moved since it was read."""
    patch.setattr(
        transactions,
        "unless_moved",
        lambda parts, has_hint=False: re.sub(
            r"run\.xmin::text = ANY \((\$\d+)::text::text\[\]\)", r"\1::text IS NOT NULL", unless_moved(parts, has_hint)
        ),
    )


def parks_whatever_came(patch: pytest.MonkeyPatch) -> None:
    """A turn parks on what is open, although one of its waits ended meanwhile."""
    by_the_rules = turns._suspend

    def suspend(draft: Draft, run: Run, command: CommitTurn, move: Suspend) -> Reply:
        still_open = draft.open_waits(run)
        if not still_open:
            return by_the_rules(draft, run, command, move)
        return Committed(park(draft, run, still_open[-1]), False)

    patch.setattr(turns, "_suspend", suspend)


def keeps_what_it_took_in_vain(patch: pytest.MonkeyPatch) -> None:
    """What came for a wait that the turn gives up is nobody's."""
    patch.setattr(turns, "_took_in_vain", lambda draft, run, command: False)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Story, bool]] = {
    "the last two answers do not see each other": (
        writes_whatever_has_moved,
        the_last_two_answers_of_a_quorum,
        True,
    ),
    "the last two answers of all do not see each other": (
        writes_whatever_has_moved,
        the_last_two_answers_of_all,
        True,
    ),
    "a turn of a quorum parks although the last answer came": (
        parks_whatever_came,
        the_last_answer_of_a_quorum_and_the_turn_of_the_one_before,
        False,
    ),
    "an answer that a quorum did not need is nobody's": (
        keeps_what_it_took_in_vain,
        an_answer_and_the_turn_that_has_enough_of_them,
        False,
    ),
    "an answer that a quorum did not need is nobody's when the run ends": (
        keeps_what_it_took_in_vain,
        an_answer_and_the_turn_that_ends_with_enough_of_them,
        False,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_code_that_breaks_a_rule_of_combined_waits_is_caught(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutate, told, alone = MUTANTS[name]
    if not alone:
        under_locks(monkeypatch)
    tried = await try_orders(postgres_used_url, told, cap=60, mutate=lambda: mutate(monkeypatch), dropped=TRIPWIRES)
    assert set(tried.verdicts) - {"ok"}, str(tried)
    assert tried.verdicts["ok"] > 0, f"it would be caught without any race\n{tried}"
