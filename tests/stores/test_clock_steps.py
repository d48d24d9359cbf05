"""A store whose clock is set while it works: by an hour, forwards or back (F78)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from bide.core.commands import Committed, Stale
from bide.core.records import RunId
from bide.stores.interface import Store
from bide.stores.memory import MemoryStore
from bide.stores.postgres import PostgresStore
from bide.stores.sqlite import SqliteStore
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_commit,
    a_signal,
    an_offer,
    ending,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    told,
    waiting_for,
)

STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forwards", "back"])


class SetClock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def set_by(self, step: timedelta) -> None:
        self.now += step


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, clock: SetClock) -> AsyncIterator[Store]:
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore(now=clock)
        case "sqlite":
            store = SqliteStore(request.getfixturevalue("sqlite_path"), now=clock)
        case _:
            store = PostgresStore(request.getfixturevalue("postgres_used_url"), now=clock, hints=False, migrate=True)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


@STEPS
async def test_a_run_that_is_claimed_when_the_clock_is_set_ends_once(
    store: Store, clock: SetClock, step: timedelta
) -> None:
    """Forwards its lease has ended, and whoever takes it over wins; back it has not, and nobody else gets it."""
    turn = await running(store, "run_1", offer=an_offer("w-1"))
    clock.set_by(step)
    taken = (await store.claim(an_offer("w-2"))).turns
    assert taken.keys() == ({"run_1"} if step > timedelta(0) else set())
    replies = [await reply_to(store, a_commit(each, ending())) for each in (turn, *taken.values())]
    assert [type(reply) for reply in replies] == ([Stale, Committed] if taken else [Committed])
    assert (await row(store)).status == "completed"


@STEPS
async def test_a_signal_is_handed_over_once_however_the_clock_is_set_around_it(
    store: Store, clock: SetClock, step: timedelta
) -> None:
    """Where the clock is set back, a run that was woken before goes on when the clock is there again."""
    await parked(store, "run_1")
    clock.set_by(step)
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    clock.set_by(-step)
    if step > timedelta(0):
        assert (await store.claim(an_offer())).turns == {}
        clock.set_by(step)
    turn = (await store.claim(an_offer())).turns[RunId("run_1")]
    assert len(turn.inbox) == 1
    told(Committed, await reply_to(store, a_commit(turn, ending(), used=turn.inbox)))


@STEPS
async def test_a_deadline_goes_by_the_clock_as_it_is_set_and_a_wait_ends_once(
    store: Store, clock: SetClock, step: timedelta
) -> None:
    """An hour forwards its time is up; an hour back it comes an hour later, and an answer is taken until then."""
    await parked(store, "run_1", park=waiting_for("go", timeout=30 * MINUTE))
    clock.set_by(step)
    fired = len((await store.fire_timers(10)).replies)
    assert fired == (1 if step > timedelta(0) else 0)
    assert outcomes(await store.execute([a_signal("run_1")])) == ["queued" if fired else "woke"]
    assert (await store.fire_timers(10)).replies == []
    [turn] = (await store.claim(an_offer())).turns.values()
    assert turn.woken_by is not None
    assert turn.woken_by.status == ("timed_out" if fired else "completed")
    told(Committed, await reply_to(store, a_commit(turn, ending(), used=turn.inbox)))
