"""What a provider gave as many is stored and replayed: from the first item whose work was not committed, or as a whole
(U5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import bide
from bide.engine.transport import Request, Sent
from bide.testing import World, world


class Provider:
    name = "provider"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Sent]:
        raise AssertionError("a world sends nothing")


class Work:
    """Item work that fails as often as it is told to, and remembers what it was asked to do."""

    def __init__(self, fails: int = 0) -> None:
        self.seen: list[int] = []
        self.fails = fails

    def __call__(self, number: int) -> int:
        self.seen.append(number)
        if number == 3 and self.fails > 0:
            self.fails -= 1
            raise RuntimeError("the printer is out of paper")
        return number * 10


def an_app(work: Work, replay: Any, cardinality: Any = "ONE_TO_MANY", **options: Any) -> bide.App:
    app = bide.App()
    pipeline = app.pipeline("lots", **options)
    if cardinality == "MANY_TO_MANY":
        pipeline.expand(range)
    pipeline.wait_external("ask", transport=Provider(), timeout="1h", cardinality=cardinality, replay=replay)
    pipeline.map(work, name="print", concurrency=1).collect(list)
    return app


async def answered(there: World, numbers: Sequence[int] = range(5)) -> bide.Run[Any]:
    run = await there.start("lots", 2)
    [request] = there.sent("provider")
    await there.reply(request, list(numbers))
    return run


ALL = [0, 10, 20, 30, 40]


async def test_U5_by_default_a_failure_repeats_the_item_alone(store_url: str) -> None:
    """U5: it restarts at the first item whose work was not committed."""
    work = Work(fails=1)
    async with world(an_app(work, "item"), store_url) as there:
        run = await answered(there)
        await there.advance("1m")
        assert await there.result(run.id) == ALL
        assert sorted(work.seen) == [0, 1, 2, 3, 3, 4]


@pytest.mark.parametrize("cardinality", ["ONE_TO_MANY", "MANY_TO_MANY"])
async def test_U5_a_failure_restarts_the_whole_unit_where_that_is_asked_for(store_url: str, cardinality: str) -> None:
    """U5: `replay="unit"`; nothing is asked of the provider again."""
    work = Work(fails=1)
    async with world(an_app(work, "unit", cardinality), store_url) as there:
        run = await answered(there)
        await there.advance("1m")
        assert await there.result(run.id) == ALL
        assert sorted(work.seen) == sorted([*range(5), *range(5)])
        assert len(there.sent("provider")) == 1
        entries = [entry.data for entry in await there.ledger(run.id) if entry.name == "unit_restarted"]
        assert [(data["item"], data["failures"]) for data in entries] == [(3, 1)]
        assert await there.runtime.store.audit() == []


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
@pytest.mark.parametrize("replay", ["item", "unit"])
async def test_U5_a_crash_in_the_middle_of_a_unit_ends_the_same(
    store_url: str, replay: str, point: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5, D6: while the unit is being given out, and while its items are worked on."""
    monkeypatch.setattr("bide.authoring.pipeline.turn.ITEMS_AT_ONCE", 2)
    for stage in ("ask", "print", "list"):
        work = Work()
        async with world(an_app(work, replay), store_url) as there:
            there.crash_at(stage, point)
            run = await answered(there)
            assert await there.result(run.id) == ALL
            assert set(work.seen) == set(range(5))
            assert await there.runtime.store.audit() == []


async def test_U5_a_unit_that_goes_on_failing_ends_as_a_dead_letter_and_a_retry_restarts_it(store_url: str) -> None:
    """U5: retried by the policy of its stage, as a whole, and then a person decides."""
    work = Work(fails=3)
    async with world(an_app(work, "unit", retries=2), store_url) as there:
        run = await answered(there)
        await there.advance("1h")
        [letter] = await there.dead_letters()
        assert (letter.kind, work.seen.count(3)) == ("item", 3)
        assert (await there.get(run.id)).status == "waiting"
        work.seen.clear()
        await there.retry_dead_letter(letter.id)
        await there.settle()
        assert await there.result(run.id) == ALL
        assert sorted(work.seen) == list(range(5))


async def test_a_dead_letter_of_a_unit_can_be_discarded(store_url: str) -> None:
    work = Work(fails=1)
    async with world(an_app(work, "unit", retries=0), store_url) as there:
        run = await answered(there)
        [letter] = await there.dead_letters()
        await there.discard_dead_letter(letter.id)
        await there.settle()
        assert await there.result(run.id) == [0, 10, 20, 40]


async def test_U5_an_item_that_kills_its_worker_each_time_stops_the_restarts(store_url: str) -> None:
    """D10, U5."""
    work = Work()
    async with world(an_app(work, "unit"), store_url, max_claims=3) as there:
        for _ in range(6):
            there.crash_at("print", "before")
        run = await answered(there)
        await there.settle()
        [letter, *_] = await there.dead_letters()
        assert "killed its worker" in letter.error
        assert (await there.get(run.id)).status == "waiting"


async def test_U5_a_wait_inside_a_unit_is_asked_again_with_it(store_url: str) -> None:
    """U5: what was out for the abandoned try is cancelled, and an answer to it changes nothing."""
    app, work = bide.App(), Work(fails=1)
    (
        app.pipeline("lots")
        .wait_external("ask", transport=Provider(), timeout="1h", cardinality="ONE_TO_MANY", replay="unit")
        .map(work, name="print", concurrency=1)
        .wait_external("check", transport="provider", timeout="1h")
        .collect(list)
    )
    async with world(app, store_url) as there:
        run = await answered(there)
        await there.advance("1m")
        asked = [request for request in there.sent("provider") if request.step == "check"]
        first, second = asked[: len(asked) - 5], asked[-5:]
        assert [request.data for request in second] == ALL
        for request in first:
            assert (await there.reply(request, -1)).outcome == "no_target"
        for request in second:
            await there.reply(request, request.data)
        assert await there.result(run.id) == ALL
        assert await there.runtime.store.audit() == []


def test_a_unit_needs_many_that_come_back() -> None:
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="for what comes back as many"):
        app.pipeline("one").wait_external("ask", transport="interaction-api", timeout="1h", replay="unit")
    with pytest.raises(bide.BadDefinition, match="replay"):
        app.pipeline("two").wait_external("ask", transport="interaction-api", timeout="1h", replay="all")  # type: ignore[arg-type]  # wrong on purpose
