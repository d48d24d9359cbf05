"""Dedup keys, correlation keys, limits and receipts of signals (S7–S10)."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

import bide
from bide.testing import World, world
from tests.support.worlds import Ctx, pairs, turns_taken

app = bide.App("dedup")

KIB_512 = 512 * 1024


@app.machine("loop")
class Loop:
    """Takes `go` as often as it comes, and ends with `end`, in the way that it asks for."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await(["go", "end"], then="take", state=[])

    def take(self, ctx: Ctx) -> bide.Next | bide.Done | bide.Stop:
        last = ctx.awaited[-1]
        if last.name == "go":
            return bide.Next("again", [*ctx.state, *pairs(ctx.awaited)])
        match last.payload:
            case "stopped":
                return bide.Stop("asked to")
            case "failed":
                raise bide.NonRetryable("asked to")
            case _:
                return bide.Done(ctx.state)

    def again(self, ctx: Ctx) -> bide.Await:
        return bide.Await(["go", "end"], then="take")


async def end_as(there: World, run: bide.Run[Any], status: str) -> None:
    if status == "cancelled":
        await there.cancel(run.id)
    else:
        await there.signal(run.id, "end", status)
    assert (await there.get(run.id)).status == status


# ---------------------------------------------------------------- S7: dedup keys


async def test_S7_a_redelivery_is_a_duplicate_of_the_first_and_wakes_nobody(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        first = await there.signal(run.id, "go", {"n": 1}, dedup_key="e1")
        turns = await turns_taken(there, run.id)
        again = await there.signal(run.id, "go", {"n": 1}, dedup_key="e1")
        assert (first.outcome, first.duplicate) == ("woke", False)
        assert (again.outcome, again.duplicate) == ("duplicate", True)
        assert (again.run_id, again.message_id) == (run.id, first.message_id)
        assert await turns_taken(there, run.id) == turns
        assert await there.inbox(run.id) == []


async def test_S7_a_redelivery_of_what_is_still_in_the_inbox_is_a_duplicate(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "other", 1, dedup_key="e1")
        assert (await there.signal(run.id, "other", 1, dedup_key="e1")).outcome == "duplicate"
        assert pairs(await there.inbox(run.id)) == [["other", 1]]


async def test_S7_a_redelivery_after_the_first_was_consumed_is_a_duplicate_for_the_life_of_the_run(
    store_url: str,
) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "go", 1, dedup_key="e1")
        for _ in range(3):
            await there.advance("5d")
            assert (await there.signal(run.id, "go", 1, dedup_key="e1")).outcome == "duplicate"
        await there.signal(run.id, "end")
        assert await there.result(run.id) == [["go", 1]]


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
@pytest.mark.parametrize("key", [None, "order:1"])
async def test_S7_a_redelivery_after_the_end_is_a_duplicate_and_a_new_key_finds_no_target(
    store_url: str, status: str, key: str | None
) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key=key)
        target = key or run.id
        first = await there.signal(target, "go", 1, dedup_key="e1")
        await end_as(there, run, status)
        again = await there.signal(target, "go", 1, dedup_key="e1")
        assert (again.outcome, again.message_id, again.run_id) == ("duplicate", first.message_id, run.id)
        with pytest.raises(bide.NoTarget):
            await there.signal(target, "go", 1, dedup_key="e2")


async def test_S7_the_duplicate_of_what_made_the_run_end_is_a_duplicate(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "end", None, dedup_key="e1")
        assert (await there.get(run.id)).status == "completed"
        assert (await there.signal(run.id, "end", None, dedup_key="e1")).outcome == "duplicate"


async def test_S7_after_retention_the_dedup_key_is_forgotten_with_its_run(store_url: str) -> None:
    async with world(app, store=store_url, retention="1d") as there:
        run = await there.start("loop")
        await there.signal(run.id, "end", None, dedup_key="e1")
        await there.advance("2d")
        with pytest.raises(bide.NoTarget):
            await there.signal(run.id, "end", None, dedup_key="e1")


async def test_S7_the_same_key_with_another_payload_is_refused(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        first = await there.signal(run.id, "go", {"amount": 1}, dedup_key="e1")
        with pytest.raises(bide.DedupConflict, match="'e1' was used with another payload") as refused:
            await there.signal(run.id, "go", {"amount": 2}, dedup_key="e1")
        assert refused.value.message_id == first.message_id
        assert await there.inbox(run.id) == []


async def test_S7_another_payload_is_refused_also_when_the_run_has_ended(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "end", None, dedup_key="e1")
        with pytest.raises(bide.DedupConflict):
            await there.signal(run.id, "end", "other", dedup_key="e1")


async def test_S7_the_same_payload_in_another_order_of_its_keys_is_the_same(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "go", {"a": 1, "b": [2]}, dedup_key="e1")
        assert (await there.signal(run.id, "go", {"b": [2], "a": 1}, dedup_key="e1")).outcome == "duplicate"


async def test_S7_the_scope_is_the_run_and_the_name(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run, other = await there.start("loop"), await there.start("loop")
        outcomes = [
            (await there.signal(target, name, 1, dedup_key="e1")).outcome
            for target, name in [(run.id, "go"), (run.id, "x"), (other.id, "go"), (other.id, "x")]
        ]
        assert outcomes == ["woke", "queued", "woke", "queued"]


async def test_S7_a_key_is_recorded_under_both_addresses(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        await there.signal(run.id, "go", 1, dedup_key="by-id")
        await there.signal("order:1", "go", 2, dedup_key="by-key")
        assert (await there.signal("order:1", "go", 1, dedup_key="by-id")).outcome == "duplicate"
        assert (await there.signal(run.id, "go", 2, dedup_key="by-key")).outcome == "duplicate"


@pytest.mark.parametrize("first_by", ["id", "key"])
async def test_S7_a_redelivery_by_correlation_key_never_enters_the_next_run_of_that_key(
    store_url: str, first_by: Literal["id", "key"]
) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        await there.signal(run.id if first_by == "id" else "order:1", "go", 1, dedup_key="e1")
        await there.signal(run.id, "end")
        following = await there.start("loop", correlation_key="order:1")
        again = await there.signal("order:1", "go", 1, dedup_key="e1")
        assert (again.outcome, again.run_id) == ("duplicate", run.id)
        assert (await there.get(following.id)).status == "waiting"
        assert (await there.signal("order:1", "go", 1, dedup_key="e2")).run_id == following.id


async def test_S7_the_next_run_of_a_key_has_dedup_keys_of_its_own_by_run_id(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        await there.signal(run.id, "go", 1, dedup_key="e1")
        await there.signal(run.id, "end")
        following = await there.start("loop", correlation_key="order:1")
        first = await there.signal(following.id, "go", 2, dedup_key="e1")
        again = await there.signal(following.id, "go", 2, dedup_key="e1")
        assert (first.outcome, again.outcome) == ("woke", "duplicate")
        assert again.message_id == first.message_id


async def test_S7_a_dedup_key_that_two_runs_of_a_key_took_outlives_the_first(store_url: str) -> None:
    async with world(app, store=store_url, retention="1d") as there:
        run = await there.start("loop", correlation_key="order:1")
        await there.signal("order:1", "go", 1, dedup_key="e1")
        await there.signal(run.id, "end")
        following = await there.start("loop", correlation_key="order:1")
        first = await there.signal(following.id, "go", 1, dedup_key="e1")
        await there.advance("2d")
        with pytest.raises(bide.RunNotFound):
            await there.get(run.id)
        again = await there.signal("order:1", "go", 1, dedup_key="e1")
        assert (first.outcome, again.outcome, again.message_id) == ("woke", "duplicate", first.message_id)


async def test_S7_of_many_redeliveries_at_once_one_is_admitted(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        client = there.client()
        receipts = await asyncio.gather(*(client.signal(run.id, "go", 1, dedup_key="e1") for _ in range(10)))
        assert sorted(receipt.outcome for receipt in receipts) == ["duplicate"] * 9 + ["woke"]
        assert len({receipt.message_id for receipt in receipts}) == 1
        await there.signal(run.id, "end")
        assert await there.result(run.id) == [["go", 1]]


async def test_S7_without_a_dedup_key_equal_signals_are_two(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "go", 1)
        await there.signal(run.id, "go", 1)
        await there.signal(run.id, "end")
        assert await there.result(run.id) == [["go", 1], ["go", 1]]


async def test_S7_a_dedup_key_may_look_like_an_id(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        assert (await there.signal(run.id, "go", 1, dedup_key=f"{run.id}:1")).outcome == "woke"
        assert (await there.signal(run.id, "go", 1, dedup_key=f"{run.id}:1")).outcome == "duplicate"


# ---------------------------------------------------------------- S8: correlation keys


async def test_S8_a_second_start_under_a_key_is_refused_and_names_the_holder(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        with pytest.raises(bide.DuplicateRun, match=f"'order:1' is held by {run.id}") as refused:
            await there.start("loop", correlation_key="order:1")
        assert refused.value.holder == run.id
        assert [found.id for found in await there.runs()] == [run.id]


async def test_S8_a_second_start_may_ask_for_the_holder(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        again = await there.start("loop", correlation_key="order:1", if_exists="return")
        assert again.id == run.id


async def test_S8_a_key_belongs_to_all_definitions_of_a_workspace_and_to_one_workspace(store_url: str) -> None:
    own = bide.App("own")
    own.machine("one")(type("One", (Loop,), {}))
    own.machine("two")(type("Two", (Loop,), {}))
    async with world(own, store=store_url) as there:
        await there.start("one", correlation_key="order:1")
        with pytest.raises(bide.DuplicateRun):
            await there.start("two", correlation_key="order:1")
        assert (await there.client("other").start("two", correlation_key="order:1")).info.workspace == "other"


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
async def test_S8_a_live_key_is_free_again_at_the_end(store_url: str, status: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1")
        await end_as(there, run, status)
        following = await there.start("loop", correlation_key="order:1")
        assert following.id != run.id
        assert (await there.signal("order:1", "go")).run_id == following.id


@pytest.mark.parametrize("status", ["completed", "stopped", "failed", "cancelled"])
async def test_S8_a_key_kept_forever_stays_with_its_run(store_url: str, status: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1", correlation_scope="forever")
        await end_as(there, run, status)
        with pytest.raises(bide.DuplicateRun, match=run.id):
            await there.start("loop", correlation_key="order:1")
        with pytest.raises(bide.NoTarget, match=status):
            await there.signal("order:1", "go")


async def test_S8_a_retry_takes_over_the_key_that_its_run_has_for_ever(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop", correlation_key="order:1", correlation_scope="forever")
        await end_as(there, run, "failed")
        again = await there.retry(run.id)
        assert (await there.get(again.id)).correlation_key == "order:1"
        assert (await there.signal("order:1", "go")).run_id == again.id
        with pytest.raises(bide.DuplicateRun, match=again.id):
            await there.start("loop", correlation_key="order:1")
        with pytest.raises(bide.DuplicateRun, match=again.id):
            await there.retry(run.id)


async def test_S8_a_key_is_held_from_the_start_also_by_a_run_that_is_not_due(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        await there.start("loop", correlation_key="order:1", delay="1h")
        with pytest.raises(bide.DuplicateRun):
            await there.start("loop", correlation_key="order:1")


async def test_S8_of_many_starts_at_once_one_gets_the_key(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        client = there.client()
        starts = (client.start("loop", correlation_key="order:1") for _ in range(10))
        results = await asyncio.gather(*starts, return_exceptions=True)
        started = [result.id for result in results if isinstance(result, bide.Run)]
        refused = [result.holder for result in results if isinstance(result, bide.DuplicateRun)]
        assert len(started) == 1
        assert refused == started * 9


async def test_S8_runs_without_a_key_do_not_meet(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        runs = {(await there.start("loop")).id for _ in range(3)}
        assert len(runs) == 3


# ---------------------------------------------------------------- S9: limits


def text_of(size: int) -> str:
    """A text whose JSON has exactly *size* bytes."""
    return "x" * (size - 2)


async def test_S9_a_payload_of_512_KiB_is_taken_and_one_byte_more_is_refused(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "other", text_of(KIB_512))
        with pytest.raises(bide.PayloadTooLarge, match=r"524,289 bytes, allowed are 524,288"):
            await there.signal(run.id, "other", text_of(KIB_512 + 1))
        assert [len(signal.payload) for signal in await there.inbox(run.id)] == [KIB_512 - 2]


async def test_S9_the_limit_counts_encoded_bytes_not_characters(store_url: str) -> None:
    async with world(app, store=store_url, max_payload_bytes=100) as there:
        run = await there.start("loop")
        await there.signal(run.id, "other", "é" * 49)
        with pytest.raises(bide.PayloadTooLarge):
            await there.signal(run.id, "other", "é" * 50)


async def test_S9_the_limit_is_a_setting(store_url: str) -> None:
    async with world(app, store=store_url, max_payload_bytes=10) as there:
        run = await there.start("loop")
        await there.signal(run.id, "other", text_of(10))
        with pytest.raises(bide.PayloadTooLarge, match="allowed are 10"):
            await there.signal(run.id, "other", text_of(11))


async def test_S9_an_input_keeps_to_the_limit(store_url: str) -> None:
    async with world(app, store=store_url, max_payload_bytes=100) as there:
        await there.start("loop", text_of(100))
        with pytest.raises(bide.PayloadTooLarge, match="the input of 'loop' cannot be stored"):
            await there.start("loop", text_of(101))


@pytest.mark.parametrize("place", ["next", "await", "retry", "spawn", "done", "stop", "child"])
async def test_S9_states_results_and_inputs_of_children_keep_to_the_limit(store_url: str, place: str) -> None:
    own = bide.App("own")

    @own.machine("big")
    class Big:
        @bide.start
        def begin(self, ctx: Ctx) -> Any:
            if ctx.input == "small":
                return bide.Done()
            text = text_of(ctx.input)
            if ctx.attempt:
                return bide.Done("done")
            return {
                "next": bide.Next("after", text),
                "await": bide.Await("go", "after", text, timeout=0),
                "retry": bide.Retry(text),
                "spawn": bide.Spawn([], "after", text),
                "done": bide.Done(text),
                "stop": bide.Stop(text),
                "child": bide.Spawn([("sink", text)], "after"),
            }[place]

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done("done")

    @own.machine("sink")
    class Sink:
        def take(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(own, store=store_url, max_payload_bytes=100) as there:
        fits, too_big = await there.start("big", 100), await there.start("big", 101)
        assert fits.status in ("completed", "stopped")
        info = await there.get(too_big.id)
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.step) == ("PayloadTooLarge", "begin")
        assert "has 101 bytes, allowed are 100" in info.error.message


async def test_S9_a_state_that_is_too_large_is_not_retried(store_url: str) -> None:
    own = bide.App("own")
    calls = []

    @own.machine("big")
    class Big:
        async def begin(self, ctx: Ctx) -> bide.Done:
            calls.append(ctx.attempt)
            return bide.Done("x" * 1000)

    async with world(own, store=store_url, max_payload_bytes=100) as there:
        run = await there.start("big")
        await there.advance("1h")
        assert (await there.get(run.id)).status == "failed"
    assert calls == [0]


# ---------------------------------------------------------------- S10: receipts


async def test_S10_a_signal_that_wakes_says_which_run_wait_and_message(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        (wait,) = await there.waits(run_id=run.id)
        receipt = await there.signal(run.id, "go", settle=False)
        assert (receipt.outcome, receipt.run_id, receipt.wait_id) == ("woke", run.id, wait.id)
        assert receipt.wait_id == run.info.wait_id
        assert (receipt.message_id or "").startswith("msg_")
        assert receipt.reason is None


async def test_S10_a_signal_that_nobody_waits_for_yet_is_queued(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        receipt = await there.signal(run.id, "later")
        assert (receipt.outcome, receipt.run_id, receipt.wait_id) == ("queued", run.id, None)
        assert [signal.id for signal in await there.inbox(run.id)] == [receipt.message_id]


async def test_S10_with_check_off_each_refusal_is_a_receipt(store_url: str) -> None:
    async with world(app, store=store_url, max_payload_bytes=100) as there:
        run = await there.start("loop", correlation_key="order:1")
        first = await there.signal(run.id, "x", 1, dedup_key="e1")

        async def outcome(target: str, name: str, payload: Any, dedup_key: str | None = None) -> bide.Receipt:
            return await there.signal(target, name, payload, dedup_key, check=False)

        conflict = await outcome(run.id, "x", 2, "e1")
        assert (conflict.outcome, conflict.run_id, conflict.message_id) == ("conflict", run.id, first.message_id)
        unknown = await outcome("run_unknown", "x", 1)
        assert (unknown.outcome, unknown.run_id, unknown.reason) == ("no_target", None, "not_found")
        for payload in (float("nan"), "x" * 200, object()):
            invalid = await outcome(run.id, "x", payload)
            assert invalid.outcome == "invalid"
            assert "the payload cannot be stored" in (invalid.reason or "")
        assert (await outcome(run.id, "", 1)).outcome == "invalid"
        assert (await outcome("wait_1_1", "x", 1)).outcome == "invalid"
        await there.cancel(run.id)
        final = await outcome(run.id, "x", 3)
        assert (final.outcome, final.run_id, final.reason) == ("no_target", run.id, "cancelled")


async def test_S10_with_check_on_each_refusal_raises(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "x", 1, dedup_key="e1")
        for error, target, name, payload in [
            (bide.DedupConflict, run.id, "x", 2),
            (bide.NoTarget, "run_unknown", "x", 1),
            (bide.Invalid, run.id, "x", float("inf")),
            (bide.Invalid, run.id, "", 1),
        ]:
            with pytest.raises(error):
                await there.signal(target, name, payload, dedup_key="e1")
        assert pairs(await there.inbox(run.id)) == [["x", 1]]


async def test_S10_a_sender_whose_reply_got_lost_retries_blindly_and_the_wake_up_is_certain(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("loop")
        await there.signal(run.id, "end", None, dedup_key="e1", settle=False)  # the reply is lost, and so is the worker
        await there.crash()
        again = await there.signal(run.id, "end", None, dedup_key="e1")
        assert again.outcome == "duplicate"
        assert (await there.get(run.id)).status == "completed"
