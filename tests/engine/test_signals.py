"""Signals and the inbox: addressing, keeping, matching, handing over, using up, re-awaiting (S1–S6)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import bide
from bide.testing import World, world
from bide.testing.world import START
from tests.support.worlds import Ctx, ledger_names, no_free_worker, pairs, turns_taken

app = bide.App("signals")


@app.machine("one")
class One:
    """Waits for one `go` and tells what it was handed."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("go", then="told")

    def told(self, ctx: Ctx) -> bide.Done:
        return bide.Done({"awaited": pairs(ctx.awaited), "all": pairs(ctx.all)})


@app.machine("set")
class AnyOf:
    """Waits for `a` or `b`, with an hour's patience."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await(["a", "b"], then="told", timeout="1h")

    def told(self, ctx: Ctx) -> bide.Done:
        return bide.Done({"awaited": pairs(ctx.awaited), "all": pairs(ctx.all), "timed_out": ctx.timed_out})


@app.machine("two-stages")
class TwoStages:
    """Waits for `first`, goes on, waits for `second`."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("first", then="middle", state=[])

    def middle(self, ctx: Ctx) -> bide.Next:
        return bide.Next("after", [*ctx.state, pairs(ctx.awaited)])

    def after(self, ctx: Ctx) -> bide.Await:
        return bide.Await("second", then="told", state=[*ctx.state, pairs(ctx.awaited), pairs(ctx.all)])

    def told(self, ctx: Ctx) -> bide.Done:
        return bide.Done([*ctx.state, pairs(ctx.awaited)])


@app.machine("pack")
class Pack:
    """Re-awaits until `a`, `b` and `c` are there, or the hour is over; the state counts the turns."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await({"a", "b", "c"}, then="collect", state=0, timeout="1h")

    def collect(self, ctx: Ctx) -> bide.Done | bide.Await:
        if ctx.timed_out or {signal.name for signal in ctx.awaited} == {"a", "b", "c"}:
            return bide.Done({"awaited": pairs(ctx.awaited), "turns": ctx.state + 1, "timed_out": ctx.timed_out})
        return bide.Await({"a", "b", "c"}, then="collect", state=ctx.state + 1, timeout=ctx.deadline)


@app.machine("ends")
class Ends:
    """Ends in the way that the signal `end` asks for, with whatever else is in the inbox."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("end", then="finish")

    def finish(self, ctx: Ctx) -> bide.Done | bide.Stop:
        match ctx.awaited[0].payload:
            case "completed":
                return bide.Done()
            case "stopped":
                return bide.Stop("asked to")
            case _:
                raise bide.NonRetryable("asked to")


async def end_as(there: World, status: str, **options: Any) -> bide.Run[Any]:
    run = await there.start("ends", **options)
    if status == "cancelled":
        await there.cancel(run.id)
    else:
        await there.signal(run.id, "end", status)
    assert (await run.refresh()).status == status
    return run


# ---------------------------------------------------------------- S1: delivery


async def test_S1_a_signal_takes_its_parts_by_name(store_url: str) -> None:
    async with world(app, store=store_url) as w:
        run = await w.start("one")
        await w.signal(target=run.id, name="go", payload=1, dedup_key="k")
        assert (await w.signal(run.id, name="go", payload=1, dedup_key="k")).outcome == "duplicate"
        assert (await w.result(run.id))["awaited"] == [["go", 1]]


async def test_S1_a_signal_reaches_the_run_that_its_id_names(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run, other = await there.start("one"), await there.start("one")
        await there.signal(run.id, "go", {"amount": 100})
        assert (await there.result(run.id))["awaited"] == [["go", {"amount": 100}]]
        assert (await there.get(other.id)).status == "waiting"


async def test_S1_a_signal_reaches_the_run_that_holds_the_correlation_key(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one", correlation_key="order:1")
        receipt = await there.signal("order:1", "go", 1)
        assert receipt.run_id == run.id
        assert (await there.result(run.id))["awaited"] == [["go", 1]]


@pytest.mark.parametrize(
    "payload",
    [None, True, 0, -1.5, "", "déjà vu 支払い 🙂", [], {}, {"a": [1, {"b": None}]}, 2**63 - 1, "run_x"],
)
async def test_S1_a_payload_arrives_as_it_was_sent(store_url: str, payload: Any) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        await there.signal(run.id, "go", payload)
        assert (await there.result(run.id))["awaited"] == [["go", payload]]


async def test_S1_a_signal_without_a_payload_carries_null(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        await there.signal(run.id, "go")
        assert (await there.result(run.id))["awaited"] == [["go", None]]


async def test_S1_a_delivery_is_durable_when_the_call_returns(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        await there.signal(run.id, "go", 1, settle=False)
        await there.crash()
        assert pairs(await there.inbox(run.id)) == [["go", 1]]
        assert (await there.result(run.id))["awaited"] == [["go", 1]]


async def test_S1_a_handle_signals_its_own_run(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        receipt = await run.signal("go", 7)
        assert (receipt.outcome, receipt.run_id) == ("woke", run.id)
        assert (await there.result(run.id))["awaited"] == [["go", 7]]


async def test_S1_a_declared_signal_can_stand_for_its_name(store_url: str) -> None:
    go = bide.Signal("go", int)
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        await there.signal(run.id, go, 7)
        assert (await there.result(run.id))["awaited"] == [["go", 7]]


# ---------------------------------------------------------------- S2: who is no target


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
async def test_S2_a_final_run_takes_no_signal(store_url: str, status: str) -> None:
    async with world(app, store=store_url) as there:
        run = await end_as(there, status)
        before = await ledger_names(there, run.id)
        with pytest.raises(bide.NoTarget, match=f"is {status} and takes no more signals"):
            await there.signal(run.id, "end", "late")
        assert await there.inbox(run.id) == []
        assert await ledger_names(there, run.id) == before


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
async def test_S2_the_key_of_a_run_that_has_ended_is_no_target(store_url: str, status: str) -> None:
    async with world(app, store=store_url) as there:
        await end_as(there, status, correlation_key="order:1")
        with pytest.raises(bide.NoTarget, match="no live run answers to 'order:1'"):
            await there.signal("order:1", "end")


@pytest.mark.parametrize(
    "target", ["run_01hzzzzzzzzzzzzzzzzzzzzzzz", "run_", "order:unknown", "run_\x00", "run_\ud800", "run_" + "x" * 5000]
)
async def test_S2_an_unknown_target_is_refused(store_url: str, target: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.NoTarget, match="no live run answers to"):
            await there.signal(target, "go")


async def test_S2_a_run_of_another_workspace_is_unknown_by_id_and_by_key(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one", correlation_key="order:1")
        stranger = there.client("other")
        for target in (run.id, "order:1"):
            with pytest.raises(bide.NoTarget, match="no live run"):
                await stranger.signal(target, "go")
        assert await there.inbox(run.id) == []
        assert (await there.get(run.id)).status == "waiting"


async def test_S2_a_key_means_the_run_of_ones_own_workspace(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        mine = await there.start("one", correlation_key="order:1")
        theirs = await there.client("other").start("one", correlation_key="order:1")
        await there.settle()
        receipt = await there.client("other").signal("order:1", "go", "theirs")
        assert receipt.run_id == theirs.id
        assert await there.inbox(mine.id) == []


@pytest.mark.parametrize("prefix", ["run_", "wait_", "int_"])
async def test_S2_a_correlation_key_cannot_look_like_an_id(store_url: str, prefix: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="starts like an id of bide's own"):
            await there.start("one", correlation_key=f"{prefix}1")
        assert await there.runs() == []


# ---------------------------------------------------------------- S3: early and other signals


async def test_S3_a_signal_that_comes_before_the_wait_is_kept_and_satisfies_it_at_once(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one", delay="1h")
        receipt = await there.signal(run.id, "go", "early")
        assert receipt.outcome == "queued"
        assert pairs(await there.inbox(run.id)) == [["go", "early"]]
        await there.advance("1h")
        assert (await there.result(run.id))["awaited"] == [["go", "early"]]


async def test_S3_a_signal_of_another_name_stays_and_wakes_nobody(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        turns = await turns_taken(there, run.id)
        receipt = await there.signal(run.id, "other", 1)
        assert (receipt.outcome, receipt.wait_id) == ("queued", None)
        assert (await there.get(run.id)).status == "waiting"
        assert await turns_taken(there, run.id) == turns
        assert pairs(await there.inbox(run.id)) == [["other", 1]]


async def test_S3_a_signal_for_a_later_wait_is_there_when_that_wait_comes(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("two-stages")
        await there.signal(run.id, "second", 2)
        assert (await there.get(run.id)).status == "waiting"
        await there.signal(run.id, "first", 1)
        assert await there.result(run.id) == [[["first", 1]], [], [["second", 2]], [["second", 2]]]


async def test_S3_names_match_exactly(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        for name in ("Go", "go ", "g", "go.now"):
            assert (await there.signal(run.id, name)).outcome == "queued"
        assert (await there.get(run.id)).status == "waiting"


# ---------------------------------------------------------------- S4: what a step is handed


@pytest.mark.parametrize("name", ["a", "b"])
async def test_S4_a_wait_on_a_set_wakes_for_any_of_its_names(store_url: str, name: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("set")
        receipt = await there.signal(run.id, name, 1)
        assert receipt.outcome == "woke"
        assert await there.result(run.id) == {"awaited": [[name, 1]], "all": [[name, 1]], "timed_out": False}


async def test_S4_the_awaited_match_and_all_is_the_whole_inbox_both_in_arrival_order(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("set", delay="1h")
        sent: list[list[Any]] = [["b", 1], ["x", 2], ["a", 3], ["b", 4], ["y", 5]]
        for name, payload in sent:
            await there.signal(run.id, name, payload)
        await there.advance("1h")
        result = await there.result(run.id)
        assert result["awaited"] == [["b", 1], ["a", 3], ["b", 4]]
        assert result["all"] == sent


async def test_S4_each_signal_has_its_id_name_payload_and_time_of_arrival(store_url: str) -> None:
    seen: list[bide.Received] = []
    own = bide.App("own")

    @own.machine("look")
    class Look:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="look")

        async def look(self, ctx: Ctx) -> bide.Done:
            seen.extend(ctx.awaited)
            return bide.Done()

    async with world(own, store=store_url) as there:
        run = await there.start("look", delay="2h")
        first = await there.signal(run.id, "go", 1)
        await there.advance("1h")
        second = await there.signal(run.id, "go", 2)
        await there.advance("1h")
    assert [(s.id, s.name, s.payload, s.received_at) for s in seen] == [
        (first.message_id, "go", 1, START),
        (second.message_id, "go", 2, START + timedelta(hours=1)),
    ]


async def test_S4_the_awaited_are_read_when_the_turn_is_claimed(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("set")
        with no_free_worker(there):
            first = await there.signal(run.id, "a", 1, settle=False)
            second = await there.signal(run.id, "b", 2, settle=False)
        assert (first.outcome, second.outcome) == ("woke", "queued")
        assert (await there.result(run.id))["awaited"] == [["a", 1], ["b", 2]]


async def test_S4_a_timeout_without_a_signal_hands_over_nothing(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("set")
        await there.signal(run.id, "x")
        await there.advance("1h")
        assert await there.result(run.id) == {"awaited": [], "all": [["x", None]], "timed_out": True}


async def test_S4_after_a_timeout_the_awaited_are_what_was_there_when_it_committed(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "a", 1)
        there.clock.set(there.now + timedelta(hours=1))
        await there.runtime.store.fire_timers(10)
        late = await there.signal(run.id, "b", 2, settle=False)
        assert late.outcome == "queued"
        result = await there.result(run.id)
        assert result["timed_out"]
        assert result["awaited"] == [["a", 1]]


async def test_S4_a_late_signal_is_seen_in_all_and_survives_the_turn_of_the_timeout(store_url: str) -> None:
    own = bide.App("own")

    @own.machine("twice")
    class Twice:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="decide", timeout="1h", state=[])

        def decide(self, ctx: Ctx) -> bide.Next:
            return bide.Next("again", [ctx.timed_out, pairs(ctx.awaited), pairs(ctx.all)])

        def again(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="told")

        def told(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, pairs(ctx.awaited)])

    async with world(own, store=store_url) as there:
        run = await there.start("twice")
        there.clock.set(there.now + timedelta(hours=1))
        await there.runtime.store.fire_timers(10)
        await there.signal(run.id, "go", "late")
        assert await there.result(run.id) == [True, [], [["go", "late"]], [["go", "late"]]]


async def test_S4_a_redo_after_a_timeout_sees_the_same_and_what_matching_came_since(store_url: str) -> None:
    own = bide.App("own")

    @own.machine("redo")
    class Redo:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="look", state=[], timeout="1h")

        def look(self, ctx: Ctx) -> bide.Await | bide.Retry | bide.Done:
            state = [*ctx.state, [ctx.timed_out, pairs(ctx.awaited)]]
            if not ctx.timed_out:
                return bide.Await("go", then="look", state=state, timeout=ctx.deadline)
            return bide.Retry(state, delay="1m") if ctx.attempt == 0 else bide.Done(state)

    async with world(own, store=store_url) as there:
        run = await there.start("redo")
        await there.signal(run.id, "go", 1)
        await there.advance("1h")
        await there.signal(run.id, "go", 2)
        await there.signal(run.id, "other", 3)
        await there.advance("1m")
        assert await there.result(run.id) == [
            [False, [["go", 1]]],
            [True, [["go", 1]]],
            [True, [["go", 1], ["go", 2]]],
        ]


async def test_S4_a_turn_that_a_crash_repeats_sees_the_same_and_what_matching_came_since(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("one")
        await there.signal(run.id, "go", 1, settle=False)
        await there.crash()
        await there.signal(run.id, "go", 2, settle=False)
        assert (await there.result(run.id))["awaited"] == [["go", 1], ["go", 2]]


async def test_S4_a_first_step_and_a_step_after_next_have_nothing_awaited(store_url: str) -> None:
    own = bide.App("own")

    @own.machine("look")
    class Look:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Next:
            return bide.Next("after", [pairs(ctx.awaited), pairs(ctx.all)])

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done([*ctx.state, pairs(ctx.awaited), pairs(ctx.all)])

    async with world(own, store=store_url) as there:
        run = await there.start("look", delay="1h")
        await there.signal(run.id, "go", 1)
        await there.advance("1h")
        assert await there.result(run.id) == [[], [["go", 1]], [], [["go", 1]]]


# ---------------------------------------------------------------- S5: what is used up


class Uses:
    """A machine that takes `go` with the outcome under test, sends itself a latecomer, and shows what is left."""

    client: bide.Client  # set by the test

    @bide.start
    async def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("go", then="use")

    async def use(self, ctx: Ctx) -> Any:
        await self.client.signal(ctx.run_id, "go", "latecomer")
        return self.outcome(ctx)

    @bide.helper
    def outcome(self, ctx: Ctx) -> Any:
        raise NotImplementedError

    async def left(self, ctx: Ctx) -> bide.Done:
        return bide.Done(pairs(ctx.all))


async def left_after(uses: type[Uses], store_url: str) -> Any:
    own = bide.App("own")
    own.machine("uses")(uses)
    async with world(own, store=store_url) as there:
        uses.client = there.client()
        run = await there.start("uses", delay="1h")
        await there.signal(run.id, "never-awaited", 1)
        await there.signal(run.id, "go", 1)
        await there.signal(run.id, "go", 2)
        await there.advance("1h")
        return await there.result(run.id)


LATE_AND_OTHERS = [["never-awaited", 1], ["go", "latecomer"]]


async def test_S5_next_deletes_exactly_what_it_was_handed(store_url: str) -> None:
    class UsesNext(Uses):
        @bide.helper
        def outcome(self, ctx: Ctx) -> bide.Next:
            return bide.Next("left")

    assert await left_after(UsesNext, store_url) == LATE_AND_OTHERS


async def test_S5_spawn_deletes_exactly_what_it_was_handed(store_url: str) -> None:
    class UsesSpawn(Uses):
        @bide.helper
        def outcome(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([], then="left")

    assert await left_after(UsesSpawn, store_url) == LATE_AND_OTHERS


async def test_S5_await_deletes_nothing(store_url: str) -> None:
    class UsesAwait(Uses):
        @bide.helper
        def outcome(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="left")

    left = await left_after(UsesAwait, store_url)
    assert left == [["never-awaited", 1], ["go", 1], ["go", 2], ["go", "latecomer"]]


async def test_S5_retry_deletes_nothing_and_the_redo_uses_up_what_it_was_handed_then(store_url: str) -> None:
    class UsesRetry(Uses):
        async def use(self, ctx: Ctx) -> Any:
            if ctx.attempt == 0:
                await self.client.signal(ctx.run_id, "go", "between")
                return bide.Retry({"first": pairs(ctx.all)})
            await self.client.signal(ctx.run_id, "go", "latecomer")
            return bide.Next("left", {**ctx.state, "second": pairs(ctx.all)})

        async def left(self, ctx: Ctx) -> bide.Done:
            return bide.Done({**ctx.state, "left": pairs(ctx.all)})

    handed = [["never-awaited", 1], ["go", 1], ["go", 2]]
    assert await left_after(UsesRetry, store_url) == {
        "first": handed,
        "second": [*handed, ["go", "between"]],
        "left": LATE_AND_OTHERS,
    }


async def test_S5_an_error_that_is_retried_deletes_nothing(store_url: str) -> None:
    class UsesError(Uses):
        async def use(self, ctx: Ctx) -> Any:
            if ctx.attempt == 0:
                raise RuntimeError("not yet")
            return bide.Done(pairs(ctx.all))

    own = bide.App("own")
    own.machine("uses")(UsesError)
    async with world(own, store=store_url) as there:
        run = await there.start("uses")
        await there.signal(run.id, "go", 1)
        assert pairs(await there.inbox(run.id)) == [["go", 1]]
        await there.advance("1m")
        assert await there.result(run.id) == [["go", 1]]


async def test_S5_being_seen_in_all_uses_up_nothing(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("two-stages", delay="1h")
        await there.signal(run.id, "second", 2)
        await there.signal(run.id, "first", 1)
        await there.advance("1h")
        assert await there.result(run.id) == [[["first", 1]], [], [["second", 2]], [["second", 2]]]


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
async def test_S5_a_final_outcome_clears_the_whole_inbox(store_url: str, status: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("ends")
        await there.signal(run.id, "other", 1)
        if status == "cancelled":
            await there.cancel(run.id)
        else:
            await there.signal(run.id, "end", status)
        assert (await there.get(run.id)).status == status
        assert await there.inbox(run.id) == []


async def test_S5_the_ledger_says_which_signals_were_used_up_and_which_were_discarded(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("two-stages")
        first = await there.signal(run.id, "first")
        other = await there.signal(run.id, "other")
        second = await there.signal(run.id, "second")
        ledger = await there.ledger(run.id)
        used = [entry.data["ids"] for entry in ledger if entry.name == "signals_consumed"]
        assert used == [[first.message_id], [second.message_id]]
        assert ledger[-1].data["discarded"] == [other.message_id]


# ---------------------------------------------------------------- S6: re-awaiting


async def test_S6_a_pack_is_collected_by_re_awaiting_with_one_turn_for_each_arrival(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        outcomes = [(await there.signal(run.id, name, name)).outcome for name in "abc"]
        assert outcomes == ["woke", "woke", "woke"]
        assert await there.result(run.id) == {
            "awaited": [["a", "a"], ["b", "b"], ["c", "c"]],
            "turns": 3,
            "timed_out": False,
        }


async def test_S6_re_awaiting_parks_and_does_not_spin(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "a")
        turns = await turns_taken(there, run.id)
        entries = len(await there.ledger(run.id))
        assert turns == 2  # the park, and the re-await
        await there.settle()
        await there.advance("59m")
        assert await turns_taken(there, run.id) == turns
        assert len(await there.ledger(run.id)) == entries
        assert (await there.get(run.id)).status == "waiting"


async def test_S6_signals_of_other_names_do_not_wake_a_re_await(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "a")
        turns = await turns_taken(there, run.id)
        assert (await there.signal(run.id, "x")).outcome == "queued"
        assert await turns_taken(there, run.id) == turns


async def test_S6_another_signal_of_a_name_that_is_there_already_wakes_a_re_await(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "a", 1)
        assert (await there.signal(run.id, "a", 2)).outcome == "woke"
        await there.advance("1h")
        assert (await there.result(run.id))["awaited"] == [["a", 1], ["a", 2]]


async def test_S6_a_signal_that_comes_while_the_step_re_awaits_is_not_missed(store_url: str) -> None:
    own = bide.App("own")
    clients: list[bide.Client] = []

    @own.machine("pair")
    class Pair:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="collect", state=0)

        async def collect(self, ctx: Ctx) -> bide.Await | bide.Done:
            if len(ctx.awaited) == 2:
                return bide.Done([ctx.state, pairs(ctx.awaited)])
            receipt = await clients[0].signal(ctx.run_id, "go", "meanwhile")
            assert receipt.outcome == "queued"
            return bide.Await("go", then="collect", state=ctx.state + 1)

    async with world(own, store=store_url) as there:
        clients.append(there.client())
        run = await there.start("pair")
        await there.signal(run.id, "go", "first")
        assert await there.result(run.id) == [1, [["go", "first"], ["go", "meanwhile"]]]


async def test_S6_awaiting_a_larger_set_is_not_woken_by_what_was_handed(store_url: str) -> None:
    own = bide.App("own")

    @own.machine("grow")
    class Grow:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("a", then="more")

        def more(self, ctx: Ctx) -> bide.Await:
            return bide.Await(["a", "b"], then="told")

        def told(self, ctx: Ctx) -> bide.Done:
            return bide.Done(pairs(ctx.awaited))

    async with world(own, store=store_url) as there:
        run = await there.start("grow")
        await there.signal(run.id, "a", 1)
        assert (await there.get(run.id)).status == "waiting"
        await there.signal(run.id, "b", 2)
        assert await there.result(run.id) == [["a", 1], ["b", 2]]


async def test_S6_a_timeout_wakes_a_re_await_with_the_partial_pack(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "a", 1)
        await there.advance("30m")
        await there.signal(run.id, "c", 3)
        await there.advance("30m")
        assert await there.result(run.id) == {"awaited": [["a", 1], ["c", 3]], "turns": 3, "timed_out": True}
