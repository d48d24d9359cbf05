"""Events: the stream, who waits for what comes on it, and what is kept of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from bide.core.commands import EventReceipt
from bide.core.records import RunId, Turn
from bide.stores.interface import Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_start,
    an_event,
    an_offer,
    listening_for,
    reply_to,
    row,
    running,
    told,
)
from bide.testing.world import VirtualClock


async def at_work(store: Store, run_id: str = "run_1", **changes: Any) -> Turn:
    return await running(store, run_id, style="workflow", **changes)


async def emitted(store: Store, *arguments: str, **changes: Any) -> EventReceipt:
    return told(EventReceipt, await reply_to(store, an_event(*arguments, **changes)))


class Events:
    async def test_an_event_resumes_every_run_that_waits_for_it_in_one_commit(self, store: Store) -> None:
        for no in range(1, 6):
            await store.execute([listening_for(await at_work(store, f"run_{no}"), "order.shipped")])
        await store.execute([listening_for(await at_work(store, "run_9"), "order.paid")])

        done = await store.execute([an_event(data='{"emoji":"🦊"}')], an_offer(slots=2))

        assert done.replies == [EventReceipt(outcome="woke", id="evt-1", resumed=5)]
        assert len(done.turns) == 2
        assert done.ready
        [step] = next(iter(done.turns.values())).steps
        assert step.result is not None
        assert '"data":{"emoji":"🦊"}' in step.result
        assert (await row(store, "run_9")).status == "waiting"

    async def test_an_event_finds_waits_by_pattern_equality_and_channel(self, store: Store) -> None:
        waits: dict[str, tuple[str, dict[str, Any]]] = {
            "run_1": ("order.*", {}),
            "run_2": ("*.shipped", {"match": "data.order == 7"}),
            "run_3": ("order.shipped", {"match": "data.order == 8"}),
            "run_4": ("order.shipped", {"channel": "webhook"}),
            "run_5": ("order.*.shipped", {}),
            "run_6": ("*", {"match": "data.order > 6 && data.order < 8"}),
        }
        for run_id, (pattern, listening) in waits.items():
            await store.execute([listening_for(await at_work(store, run_id), pattern, **listening)])

        receipt = await emitted(store, data='{"order":7,"nested":{"list":[1,2]}}')

        assert receipt.resumed == 3
        ready = {run_id for run_id in waits if (await row(store, run_id)).status == "ready"}
        assert ready == {"run_1", "run_2", "run_6"}

    async def test_an_event_with_too_many_fields_to_be_indexed_finds_them_too(self, store: Store) -> None:
        await store.execute([listening_for(await at_work(store), "order.shipped", match="data.k7 == 7")])
        fields = ",".join(f'"k{no}":{no}' for no in range(1000))

        assert (await emitted(store, data=f"{{{fields}}}")).resumed == 1

    async def test_an_event_is_heard_in_its_own_workspace_only(self, store: Store) -> None:
        await store.execute([listening_for(await at_work(store), "order.shipped")])

        assert (await emitted(store, workspace="other")).resumed == 0
        assert (await emitted(store)).resumed == 1

    async def test_a_turn_is_told_how_far_the_stream_has_come(self, store: Store) -> None:
        first = await at_work(store)
        await store.execute([an_event("evt-1"), an_event("evt-2")])
        second = await at_work(store, "run_2")
        await store.execute([an_event("evt-3", workspace="other")])
        third = await at_work(store, "run_3")

        assert first.stream_seq < second.stream_seq == third.stream_seq

    async def test_a_wait_takes_the_earliest_event_since_its_turn_began(self, store: Store) -> None:
        await store.execute([an_event("evt-1")])
        turn = await at_work(store)
        await store.execute([an_event("evt-2", "order.paid"), an_event("evt-3"), an_event("evt-4")])

        await store.execute([listening_for(turn, "order.shipped", after=turn.stream_seq)])

        done = await store.claim(an_offer())
        [step] = done.turns[RunId("run_1")].steps
        assert step.result is not None
        assert '"id":"evt-3"' in step.result

    async def test_a_look_back_reads_on_until_it_finds_a_match(self, store: Store, clock: VirtualClock) -> None:
        await store.execute([an_event("evt-old", data="1000")])
        clock.advance(HOUR)
        for first in range(0, 260, 65):
            await store.execute([an_event(f"evt-{no}", data=str(no)) for no in range(first, first + 65)])
        for run_id, pattern in (("run_1", "order.shipped"), ("run_2", "order.*")):
            turn = await at_work(store, run_id)
            park = listening_for(turn, pattern, match="data >= 250", after=turn.stream_seq, since=clock() - 30 * MINUTE)
            await store.execute([park])

        done = await store.claim(an_offer())

        assert len(done.turns) == 2
        for turn in done.turns.values():
            assert turn.steps[0].result is not None
            assert '"id":"evt-250"' in turn.steps[0].result

    async def test_the_same_event_again_answers_with_the_counts_of_the_first(self, store: Store, rival: Store) -> None:
        await store.execute([listening_for(await at_work(store), "order.shipped")])
        start = a_start("run_2", style="workflow")

        first = told(EventReceipt, await reply_to(store, an_event(starts=(start,))))
        again = told(EventReceipt, await reply_to(rival, an_event(starts=(a_start("run_3", style="workflow"),))))

        assert (first.outcome, first.started, first.resumed) == ("woke", 1, 1)
        assert (again.outcome, again.started, again.resumed, again.duplicate) == ("duplicate", 1, 1, True)
        assert await store.run("default", "run_3") is None
        assert (await emitted(rival, data="7")).outcome == "conflict"

    async def test_of_many_emits_of_one_id_at_once_one_counts(self, store: Store, rival: Store) -> None:
        both = [store, rival] * 5
        receipts = await asyncio.gather(
            *(emitted(place, starts=(a_start(f"run_{no}"),)) for no, place in enumerate(both))
        )

        assert sorted(receipt.outcome for receipt in receipts) == ["duplicate"] * 9 + ["woke"]
        assert (await store.count_runs(None)) == {"ready": 1}

    async def test_emits_and_parks_at_once_never_miss_each_other(self, store: Store, rival: Store) -> None:
        turns = [await at_work(store, f"run_{no}") for no in range(8)]

        await asyncio.gather(
            *(store.execute([listening_for(turn, "order.*", after=turn.stream_seq)]) for turn in turns),
            *(rival.execute([an_event(f"evt-{no}")]) for no in range(4)),
        )

        assert {(await row(store, turn.run.id)).status for turn in turns} == {"ready"}

    async def test_a_wait_that_ended_is_not_found(self, store: Store, clock: VirtualClock) -> None:
        await store.execute([listening_for(await at_work(store, "run_1"), "order.shipped", timeout=HOUR)])
        await store.execute([listening_for(await at_work(store, "run_2"), "order.shipped")])
        await store.execute([a_cancel("run_2")])
        clock.advance(HOUR)
        await store.fire_timers(9)

        assert (await emitted(store)).resumed == 0
        assert await store.waits(WaitFilter(), after=None, limit=9) == []

    async def test_old_events_are_trimmed_a_few_at_a_time_and_their_ids_forgotten(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.execute([an_event(f"evt-{no}") for no in range(5)])
        clock.advance(HOUR)
        await store.execute([an_event("evt-new")])

        assert await store.trim_events(timedelta(minutes=30), 3) == 3
        assert await store.trim_events(timedelta(minutes=30), 3) == 2
        assert await store.trim_events(timedelta(minutes=30), 3) == 0
        assert (await emitted(store, "evt-0")).outcome == "queued"
        assert (await emitted(store, "evt-new")).outcome == "duplicate"
