"""Pipelines without the outside: expand, map, filter, collect; crashes, retries, dead letters (U4, U5, U13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

import bide
from bide.core.requests import SettleDeadLetter
from bide.testing import World, world
from tests.support.worlds import ledger_names


class Payment(msgspec.Struct):
    row: int
    amount: int


def rows(count: int) -> Iterator[Payment]:
    for row in range(count):
        yield Payment(row, row * 10)


def doubled(payment: Payment) -> Payment:
    return Payment(payment.row, payment.amount * 2)


def total(payments: Iterator[Payment]) -> int:
    return sum(payment.amount for payment in payments)


async def settle_letters(there: World, action: Any) -> list[Any]:
    letters = list(await there.runtime.store.dead_letters("default", after=None, limit=100))
    for letter in letters:
        command = SettleDeadLetter(workspace="default", run_id=letter.run_id, id=letter.id, action=action)
        await there.runtime.committer.submit(command)
    await there.settle()
    return letters


async def test_U13_items_go_through_their_stages_and_come_together_in_order(store_url: str) -> None:
    """U13: values are read as the types that functions ask for."""
    app = bide.App()

    def the_rows(payments: Any) -> list[int]:
        return [payment.row for payment in payments]

    payments = (
        app.pipeline("payments")
        .expand(rows)
        .map(doubled)
        .filter(lambda payment: payment.row % 2 == 1)
        .collect(the_rows)
    )
    async with world(app, store_url) as there:
        run = await there.start(payments, 7)
        assert await there.result(run.id) == [1, 3, 5]


async def test_U13_typed_functions_get_what_they_ask_for(store_url: str) -> None:
    """U13: a function without a type gets what the stage before it says it gives."""
    app = bide.App()
    kinds: list[str] = []

    def note(payment: Any, item: bide.Item) -> Any:
        kinds.append(f"{type(payment).__name__} {item.index}")
        return payment

    pipeline = app.pipeline("typed").expand(rows).map(doubled).map(note, concurrency=1).collect(total)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        assert await there.result(run.id) == 60
    assert sorted(kinds) == ["Payment 0", "Payment 1", "Payment 2"]


async def test_U13_a_pipeline_that_ends_in_a_stream_gives_its_items_in_order(store_url: str) -> None:
    """U13."""
    app = bide.App()
    pipeline = app.pipeline("plain").map(lambda count: count + 1).expand(range).map(lambda n: n * n)
    async with world(app, store_url) as there:
        assert await there.result((await there.start(pipeline, 4)).id) == [0, 1, 4, 9, 16]
        assert await there.result((await there.start(pipeline, -1)).id) == []


async def test_U2_an_empty_stream_goes_on_at_once(store_url: str) -> None:
    """U2."""
    app = bide.App()
    pipeline = app.pipeline("empty").expand(lambda _: []).map(doubled).collect(list).map(len)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, None)
        assert (run.status, await there.result(run.id)) == ("completed", 0)


async def test_U13_async_functions_and_async_streams_work_the_same(store_url: str) -> None:
    """U13: sync or async."""
    app = bide.App()

    async def count(most: int) -> AsyncIterator[int]:
        for number in range(most):
            await asyncio.sleep(0)
            yield number

    async def square(number: int) -> int:
        await asyncio.sleep(0)
        return number * number

    async def gather(items: Any) -> list[int]:
        return [item async for item in items]

    pipeline = app.pipeline("async").expand(count).map(square).collect(gather)
    async with world(app, store_url) as there:
        assert await there.result((await there.start(pipeline, 5)).id) == [0, 1, 4, 9, 16]


async def test_a_stage_that_gives_no_iterable_fails_the_run(store_url: str) -> None:
    app = bide.App()
    pipeline = app.pipeline("wrong", retries=0).expand(lambda text: text).collect(list)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, "no items")
        error = (await there.get(run.id)).error
        assert run.status == "failed"
        assert error is not None
        assert "gave str, which is no iterable" in error.message


async def test_U3_more_items_than_the_output_limit_fail_the_run(store_url: str) -> None:
    """U3: a limit error names the limit."""
    app = bide.App()
    pipeline = app.pipeline("many").expand(range)
    async with world(app, store_url, await_aggregate_max_output_items=5) as there:
        assert await there.result((await there.start(pipeline, 5)).id) == [0, 1, 2, 3, 4]
        run = await there.start(pipeline, 6)
        error = (await there.get(run.id)).error
        assert run.status == "failed"
        assert error is not None
        assert error.type == "TooManyItems"
        assert "await_aggregate_max_output_items is 5" in error.message


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
@pytest.mark.parametrize("stage", ["rows", "doubled", "total"])
async def test_U5_a_crash_at_any_stage_loses_no_item_and_doubles_none(store_url: str, stage: str, point: Any) -> None:
    """U5, D2: the item's number is its idempotency key."""
    app = bide.App()
    pipeline = app.pipeline("crashing").expand(rows).map(doubled).collect(total)
    async with world(app, store_url) as there:
        there.crash_at(stage, point)
        run = await there.start(pipeline, 20)
        assert await there.result(run.id) == 2 * sum(row * 10 for row in range(20))


async def test_U5_a_crashed_expand_begins_again_and_passes_over_what_is_stored(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5: a killed worker in the middle of a stream."""
    monkeypatch.setattr("bide.authoring.pipeline.turn.ITEMS_AT_ONCE", 10)
    app = bide.App()
    given: list[int] = []

    def numbers(count: int) -> Iterator[int]:
        for number in range(count):
            given.append(number)
            yield number

    pipeline = app.pipeline("long").expand(numbers).map(lambda n: n).collect(list)
    async with world(app, store_url) as there:
        there.crash_at("numbers", "after_commit")
        run = await there.start(pipeline, 35)
        assert await there.result(run.id) == list(range(35))
        entries = [entry.data for entry in await there.ledger(run.id) if entry.name == "items_committed"]
    done = [item for data in entries for item in data.get("done", [])]
    assert sorted(done) == list(range(35))
    assert len(given) > 35  # it began again


async def test_U4_a_stale_worker_commits_nothing_for_an_item_that_another_has(store_url: str) -> None:
    """U4, D3: an item's work is fenced by the epoch in its row."""
    from datetime import timedelta

    from bide.core.records import RunId
    from bide.core.streaming import ClaimedItems, ClaimItems, FinishItems, ItemOutcome

    app = bide.App()
    pipeline = app.pipeline("fenced").expand(range).map(lambda n: n).collect(list)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 1, settle=False)
        await there.engine.claim()
        while there.engine._tasks:  # then the items are stored, and nobody has looked for them yet
            await asyncio.wait(set(there.engine._tasks))
        run_id = RunId(run.id)
        claim = ClaimItems(workspace="", run_id=run_id, section=1, items=(0,), lease=timedelta(seconds=30))
        first = (await there.runtime.committer.submit(claim)).reply
        assert isinstance(first, ClaimedItems)
        again = (await there.runtime.committer.submit(claim)).reply
        assert isinstance(again, ClaimedItems)
        assert (len(first.items), len(again.items)) == (1, 0)
        there.clock.advance(timedelta(seconds=31))
        second = (await there.runtime.committer.submit(claim)).reply
        assert isinstance(second, ClaimedItems)
        assert second.items[0].epoch == first.items[0].epoch + 1

        def outcome(item: Any, value: str) -> FinishItems:
            ended = ItemOutcome(item=0, epoch=item.epoch, status="next", value=value)
            return FinishItems(workspace="", run_id=run_id, section=1, outcomes=(ended,))

        late = (await there.runtime.committer.submit(outcome(first.items[0], '"stale"'))).reply
        assert isinstance(late, ClaimedItems)
        assert late.stale == 1
        await there.runtime.committer.submit(outcome(second.items[0], '"fresh"'))
        assert await there.result(run.id) == ["fresh"]


# ---------------------------------------------------------------- errors


async def test_U4_an_item_whose_work_fails_is_tried_again_by_itself(store_url: str) -> None:
    """U4: item work is retried per item."""
    app = bide.App()
    tries: list[int] = []

    def shaky(number: int) -> int:
        tries.append(number)
        if number == 1 and tries.count(1) < 3:
            raise ConnectionError("not now")
        return number

    pipeline = app.pipeline("shaky").expand(range).map(shaky).collect(list)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        assert run.status == "waiting"
        await there.advance("1m")
        assert await there.result(run.id) == [0, 1, 2]
    assert sorted(tries) == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(("action", "result"), [("retry", [0, 1, 2]), ("discard", [0, 2])])
async def test_U4_an_item_that_is_given_up_is_a_dead_letter_until_a_person_decides(
    store_url: str, action: str, result: list[int]
) -> None:
    """U4: the others are done; the run waits for the decision."""
    app = bide.App()
    broken = [True]

    def work(number: int) -> int:
        if number == 1 and broken:
            raise ValueError("it is broken")
        return number

    def collected(items: Any) -> list[Any]:
        return [list(items), [(bad.item, bad.reason, bad.value) for bad in items.rejected]]

    pipeline = app.pipeline("dead").expand(range).map(work, retry=bide.RetryPolicy(attempts=2)).collect(collected)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        await there.advance("1m")
        assert (await there.get(run.id)).status == "waiting"
        broken.clear()
        [letter] = await settle_letters(there, action)
        assert (letter.kind, letter.error, letter.run_id) == ("item", "ValueError: it is broken", run.id)
        items, rejected = await there.result(run.id)
        assert items == result
        assert rejected == ([] if action == "retry" else [[1, "ValueError: it is broken", 1]])
        assert await settle_letters(there, action) == []


async def test_U4_an_item_that_kills_its_worker_each_time_becomes_a_dead_letter(store_url: str) -> None:
    """U4, D10: its neighbours are done meanwhile."""
    app = bide.App()
    pipeline = app.pipeline("poison").expand(range).map(lambda n: n, name="deadly").collect(list)
    async with world(app, store_url, max_claims=3) as there:
        for _ in range(3):
            there.crash_at("deadly", "after_code")
        run = await there.start(pipeline, 1)
        assert (await there.get(run.id)).status == "waiting"
        [letter] = await settle_letters(there, "discard")
        assert "killed its worker 3 times" in letter.error
        assert await there.result(run.id) == []


async def test_a_failing_stage_of_the_run_itself_is_retried_then_fails_the_run(store_url: str) -> None:
    """F16."""
    app = bide.App()

    def report(items: Any) -> None:
        raise OSError("the disk is full")

    pipeline = app.pipeline("report", retries=1).expand(range).collect(report)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        await there.advance("1m")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.step) == ("StepFailed", "report")
        assert (await ledger_names(there, run.id)).count("step_retried") == 1
        again = await there.runtime.store.run("default", (await there.retry(run.id)).id)
        assert again is not None
        assert again.input == "3"  # from the start


async def test_a_cancelled_pipeline_does_no_more_work(store_url: str) -> None:
    """W8."""
    app = bide.App()
    pipeline = app.pipeline("cancelled").expand(range).map(lambda n: 1 / 0).collect(list)
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        await there.cancel(run.id)
        await there.advance("1h")
        assert (await there.get(run.id)).status == "cancelled"
        assert await there.runtime.store.until_due(there.engine.queues) is None
        assert await settle_letters(there, "discard") == []


# ---------------------------------------------------------------- definitions


def test_U13_stages_that_cannot_follow_each_other_are_refused_at_once() -> None:
    """U13: found when the stage is added."""
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="expand it first"):
        app.pipeline("a").collect(list)
    with pytest.raises(bide.BadDefinition, match="expand it first"):
        app.pipeline("b").filter(bool)
    with pytest.raises(bide.BadDefinition, match="collect them first"):
        app.pipeline("c").expand(range).expand(range)
    with pytest.raises(bide.BadDefinition, match="two stages named"):
        app.pipeline("d").expand(range).map(abs, name="x").map(abs, name="x")
    with pytest.raises(bide.BadDefinition, match="needs a function"):
        app.pipeline("e").expand("range")  # type: ignore[arg-type]
    with pytest.raises(bide.BadDefinition, match="registered already"):
        app.pipeline("a")


async def test_a_pipeline_without_stages_cannot_be_started() -> None:
    app = bide.App()
    empty = app.pipeline("empty")
    async with world(app) as there:
        with pytest.raises(bide.BadInput, match="has no stages"):
            await there.start(empty, 1)


async def test_an_input_that_does_not_fit_the_first_stage_is_refused(store_url: str) -> None:
    app = bide.App()
    pipeline = app.pipeline("typed").expand(rows).collect(total)
    async with world(app, store_url) as there:
        with pytest.raises(bide.BadInput, match="does not fit its type"):
            await there.start(pipeline, "five")


async def test_W10_a_wait_for_items_takes_no_answer(store_url: str) -> None:
    """It ends with the work on its items: an answer by its id is 422, and what it is of goes on."""
    app, failures = bide.App(), [ValueError("not yet")]

    def work(number: int) -> int:
        if failures:
            raise failures.pop()
        return number

    pipeline = (
        app.pipeline("slow").expand(range).map(work, retry=bide.RetryPolicy(attempts=2, first="1m")).collect(list)
    )
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 2)
        [wait] = await there.waits(run_id=run.id)
        assert wait.kind == "items"
        refused = await there.http().post(f"/v1/waits/{wait.id}/complete", json={"data": [7]})
        assert refused.status_code == 422
        assert "items" in refused.json()["errors"][0]["message"]
        await there.advance("1h")
        assert await there.result(run.id) == [0, 1]
