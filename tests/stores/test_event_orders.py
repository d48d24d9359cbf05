"""An event and what meets it, in every order in which their statements can happen on a real server (D4, F8, law 2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

import bide.stores.postgres.store as store_module
from bide.core.meetings import Lookup
from bide.core.records import Listener, Turn
from bide.stores.interface import Store
from bide.stores.postgres import PostgresStore, meeting
from bide.testing.store_contract.making import HOUR, a_cancel, an_event, an_offer, listening_for, running
from bide.testing.world import VirtualClock
from tests.support.transitions import Call, Story, executing, firing_timers, try_orders

ALL = os.environ.get("BIDE_ORDERS") == "all"
CAP = 1_000_000 if ALL else 300
SHIPPED = "order.shipped"


async def at_work(store: Store, run_id: str = "run_1") -> Turn:
    return await running(store, run_id, style="workflow")


async def listening(store: Store, run_id: str = "run_1") -> None:
    await store.execute([listening_for(await at_work(store, run_id), SHIPPED, timeout=HOUR)])


async def an_event_and_a_park(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The workspace has had events before: its stream is there."""
    await store.execute([an_event("evt-0", "other")])
    turn = await at_work(store)
    return [executing("park", listening_for(turn, SHIPPED, after=1)), executing("event", an_event())]


async def an_event_and_the_first_park_of_a_workspace(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing("park", listening_for(await at_work(store), SHIPPED)), executing("event", an_event())]


async def an_event_and_a_park_that_looks_back(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await store.execute([an_event("evt-0", "order.paid")])
    turn = await at_work(store)
    park = listening_for(turn, "order.*", match="data == 7", after=1, since=clock() - HOUR)
    return [executing("park", park), executing("event", an_event(data="7"))]


async def an_event_and_a_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await listening(store)
    clock.advance(HOUR)
    return [firing_timers(), executing("event", an_event())]


async def an_event_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await listening(store)
    return [executing("cancel", a_cancel()), executing("event", an_event())]


async def an_event_and_the_withdrawal_of_its_wait(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The body was woken by its other wait, and gives this one up."""
    await store.execute([listening_for(await at_work(store), SHIPPED, "order.paid", timeout=HOUR)])
    [turn] = (await store.execute([an_event("evt-0", "order.paid")], an_offer())).turns.values()
    suspend = replace(listening_for(turn, "order.returned", after=1), withdraws=(1,))
    return [executing("withdraw", suspend), executing("event", an_event())]


async def the_same_event_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await listening(store)
    return [executing("one", an_event()), executing("other", an_event())]


async def two_events_and_two_runs(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """Locks are taken in the order of ids, whoever is found first."""
    for run_id in ("run_2", "run_1"):
        await listening(store, run_id)
    return [executing("one", an_event("evt-1")), executing("other", an_event("evt-2"))]


STORIES: Mapping[Story, set[str]] = {
    an_event_and_a_park: {
        "park committed, event woke: run_1 ready",
        "park committed, event queued: run_1 ready",
    },
    an_event_and_the_first_park_of_a_workspace: {
        "park committed, event woke: run_1 ready",
        "park committed, event queued: run_1 ready",
    },
    an_event_and_a_park_that_looks_back: {
        "park committed, event woke: run_1 ready",
        "park committed, event queued: run_1 ready",
    },
    an_event_and_a_timeout: {
        "timers done, event queued: run_1 ready",
        "timers nothing, event woke: run_1 ready",
    },
    an_event_and_a_cancel: {
        "cancel cancelled, event queued: run_1 cancelled",
        "cancel cancelled, event woke: run_1 cancelled",
    },
    an_event_and_the_withdrawal_of_its_wait: {
        "withdraw committed, event queued: run_1 waiting",
        "withdraw committed, event woke: run_1 waiting",
    },
    the_same_event_twice: {
        "one woke, other duplicate: run_1 ready",
        "one duplicate, other woke: run_1 ready",
    },
    two_events_and_two_runs: {
        "one woke, other queued: run_1 ready, run_2 ready",
        "one queued, other woke: run_1 ready, run_2 ready",
    },
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_an_event_and_a_rival_do_in_any_order_what_they_do_one_after_the_other(
    postgres_used_url: str, story: Story
) -> None:
    tried = await try_orders(postgres_used_url, story, cap=CAP)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete or story is an_event_and_a_timeout, str(tried)  # that one has more
    assert tried.tales.keys() == STORIES[story], str(tried)


# Mutants: code that breaks one rule of the meeting


class LooksBeforeItTakes(meeting.Streams):
    """Reads who waits before it holds the stream."""

    async def take(self, workspace: str, events: int) -> int:
        self.early = await super().load_listeners({(workspace, SHIPPED, "")})
        return await super().take(workspace, events)

    async def load_listeners(self, lookups: Collection[Lookup]) -> list[Listener]:
        return self.early


class SharesNothing(meeting.Streams):
    async def take(self, workspace: str, events: int) -> int:
        return await super().take(workspace, events) if events else 0


def spoiled(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def spoil(patch: pytest.MonkeyPatch) -> None:
        whole: Callable[[str], Mapping[str, str]] = vars(store_module)["statements"]

        def statements(schema: str) -> Mapping[str, str]:
            sql = whole(schema)
            assert old in sql[name]
            return {**sql, name: sql[name].replace(old, new)}

        patch.setattr(store_module, "statements", statements)

    return spoil


def with_streams(kind: type[meeting.Streams]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(meeting, "Streams", kind)


@dataclass(frozen=True)
class Mutant:
    mutation: Callable[[pytest.MonkeyPatch], None]
    story: Story = an_event_and_a_park


MUTANTS = {
    "an emit looks who waits before it takes the stream": Mutant(with_streams(LooksBeforeItTakes)),
    "a park takes no stream": Mutant(with_streams(SharesNothing)),
    "a park reads the stream without a lock": Mutant(spoiled("share_stream", "FOR SHARE", "")),
    "a park keeps only the key of the stream": Mutant(spoiled("share_stream", "FOR SHARE", "FOR KEY SHARE")),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_code_that_breaks_a_rule_of_the_meeting_is_caught(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = MUTANTS[name]
    tried = await try_orders(postgres_used_url, mutant.story, cap=CAP, mutate=lambda: mutant.mutation(monkeypatch))
    assert tried.verdicts["lost"] > 0, str(tried)
    assert tried.verdicts["ok"] > 0, f"it would be caught without any race\n{tried}"
