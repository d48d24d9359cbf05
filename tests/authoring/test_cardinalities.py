"""Every cardinality of a wait for the outside, in every order in which its answers can come (U2–U6, U8).

Each shape is a pipeline with a provider that knows the answers; each situation is a way in which they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import bide
from bide.engine.admission import Admitting
from bide.engine.figures import EARLY
from bide.engine.transport import Answer, Request, Sent
from bide.testing import World, world
from tests.support.worlds import CrashAtPoint, ledger_names


class Provider:
    """Sends nothing by itself: a world has a stand-in for it."""

    name = "provider"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Sent]:
        raise AssertionError("a world sends nothing")


def listed(items: Any) -> dict[str, Any]:
    return {"items": list(items), "rejected": [[bad.item, bad.reason] for bad in items.rejected]}


@dataclass
class Shape:
    cardinality: str
    build: Callable[[bide.Pipeline, dict[str, Any]], bide.Pipeline]
    input: Any
    answer: Callable[[Request], Any]
    result: Any
    requests: int = 1
    empty: Any = None  # an input that leads to an empty stream
    empty_result: Any = None

    def __str__(self) -> str:
        return next(name for name, shape in SHAPES.items() if shape is self)

    def app(self, **options: Any) -> tuple[bide.App, bide.Pipeline]:
        app = bide.App("shapes")
        asked = {"transport": Provider(), "timeout": "1h", "cardinality": self.cardinality, **options}
        return app, self.build(app.pipeline("shape", retries=0), asked)


SHAPES = {
    "one": Shape(
        "ONE_TO_ONE",
        lambda p, asked: p.wait_external("ask", **asked).map(lambda answer: answer + 1),
        20,
        lambda request: request.data * 2,
        41,
    ),
    "items": Shape(
        "ONE_TO_ONE",
        lambda p, asked: p.expand(range).wait_external("ask", **asked).map(lambda n: n + 1).collect(listed),
        5,
        lambda request: request.data * 10,
        {"items": [1, 11, 21, 31, 41], "rejected": []},
        requests=5,
        empty=0,
        empty_result={"items": [], "rejected": []},
    ),
    "one to many": Shape(
        "ONE_TO_MANY",
        lambda p, asked: p.wait_external("ask", **asked).map(lambda n: n + 1),
        3,
        lambda request: list(range(request.data)),
        [1, 2, 3],
    ),
    "many to one": Shape(
        "MANY_TO_ONE",
        lambda p, asked: p.expand(range).map(lambda n: n * 2).wait_external("ask", **asked).map(lambda n: [n]),
        4,
        lambda request: sum(request.data),
        [12],
        empty=0,
        empty_result=[None],
    ),
    "many to many": Shape(
        "MANY_TO_MANY",
        lambda p, asked: p.expand(range).wait_external("ask", **asked).map(lambda n: n + 1).collect(listed),
        3,
        lambda request: [n * 100 for n in reversed(request.data)],
        {"items": [201, 101, 1], "rejected": []},
        empty=0,
        empty_result={"items": [], "rejected": []},
    ),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=str)


async def sent(there: World, shape: Shape) -> list[Request]:
    requests = there.sent("provider")
    assert len(requests) == shape.requests
    assert [request.item for request in requests] == list(range(shape.requests))
    return requests


async def check_end(there: World, run: bide.Run[Any], shape: Shape) -> None:
    assert await there.result(run.id) == shape.result
    names = await ledger_names(there, run.id)
    assert names.count("await_unit_item_completed") == shape.requests
    assert names.count("await_interaction_dispatched") == shape.requests
    assert names.count("await_unit_dispatch_complete") == 1
    assert names.count("await_unit_completed") >= 1


@each_shape
@pytest.mark.parametrize("order", ["in order", "reversed"])
async def test_U2_answers_in_any_order_give_the_result_in_item_order(store_url: str, shape: Shape, order: str) -> None:
    """U2."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.input)
        assert run.status == "waiting"
        requests = await sent(there, shape)
        receipts = [
            await there.reply(request, shape.answer(request))
            for request in (requests if order == "in order" else requests[::-1])
        ]
        assert {receipt.outcome for receipt in receipts} <= {"woke", "queued"}
        await check_end(there, run, shape)
        assert there.runtime.figures.counts[EARLY, ""] == 0


@each_shape
async def test_U8_an_answer_that_comes_twice_counts_once(store_url: str, shape: Shape) -> None:
    """U8: the same again is a duplicate, another one a conflict."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.input)
        for request in await sent(there, shape):
            await there.reply(request, shape.answer(request))
            again = await there.reply(request, shape.answer(request))
            assert (again.outcome, again.duplicate) == ("duplicate", True)
            other = await there.reply(request, ["another"])
            assert (other.outcome, other.reason) == ("conflict", "already_completed")
        await check_end(there, run, shape)


@each_shape
async def test_U6_an_answer_that_comes_before_its_dispatch_is_noted_is_held(
    store_url: str, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U6, F98: the provider answers while it is being asked, and while the stream is still being filled. Each is held
    and counted."""
    monkeypatch.setattr("bide.authoring.pipeline.turn.ITEMS_AT_ONCE", 2)

    class Eager:
        name = "provider"
        runtime: Any = None

        async def dispatch(self, requests: Sequence[Request]) -> Sequence[Sent]:
            answers = [Answer(interaction_id=r.interaction_id, data=shape.answer(r)) for r in requests]
            receipts = await Admitting(self.runtime, "provider").admit(answers)
            assert {receipt.outcome for receipt in receipts} <= {"woke", "queued"}
            return [Sent() for _ in requests]

    eager = Eager()
    app, pipeline = shape.app(transport=eager)
    async with world(app, store_url, live=["provider"]) as there:
        eager.runtime = there.runtime
        run = await there.start(pipeline, shape.input)
        assert await there.result(run.id) == shape.result
        assert there.runtime.figures.counts[EARLY, ""] == shape.requests


@each_shape
async def test_U4_one_answer_that_does_not_come_in_time_fails_the_run(store_url: str, shape: Shape) -> None:
    """W2, U4: a pipeline fails with AWAIT_TIMEOUT; what comes later is late (catalogue 3.6, 1)."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.input)
        *in_time, late = await sent(there, shape)
        for request in in_time:
            await there.reply(request, shape.answer(request))
        await there.advance("59m")
        assert (await there.get(run.id)).status == "waiting"
        await there.advance("2m")
        info = await there.get(run.id)
        assert (info.status, info.error and info.error.code) == ("failed", "AWAIT_TIMEOUT")
        receipt = await there.reply(late, shape.answer(late))
        assert (receipt.outcome, receipt.reason) == ("late", "timed_out")


@each_shape
async def test_U4_one_request_that_the_provider_declines(store_url: str, shape: Shape) -> None:
    """U4, U9: an item is rejected and the others go on; a request that has only one fails the run."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.input)
        declined, *others = await sent(there, shape)
        receipt = await there.reply(declined, error="no funds")
        assert receipt.outcome in ("woke", "queued")
        assert (await there.reply(declined, error="no funds")).outcome == "duplicate"
        for request in others:
            await there.reply(request, shape.answer(request))
        info = await there.get(run.id)
        if shape.requests > 1:
            assert await there.result(run.id) == {"items": [11, 21, 31, 41], "rejected": [[0, "no funds"]]}
        else:
            assert (info.status, str(info.error)) == ("failed", "WaitFailed: no funds")


@each_shape
async def test_U7_a_crash_after_each_commit_changes_nothing(store_url: str, shape: Shape) -> None:
    """D6, U7 (catalogue 3.6, 2 and 3): after each, one after the other, and around each dispatch; what was committed is
    found and finished, and the ledger tells it once."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        points = await played(there, pipeline, shape, 0)
        assert {point.partition(" ")[0] for point in points} == {"before", "after_code", "after_commit"}
        assert {"before ask", "after_code ask", "after_commit ask"} <= set(points)
        for at, point in enumerate(points, start=1):
            if point.startswith("after_commit") or point.endswith(" ask"):
                reached = await played(there, pipeline, shape, at)
                assert len(reached) >= at, f"the crash at {point} never came"


async def played(there: World, pipeline: bide.Pipeline, shape: Shape, at: int) -> list[str]:
    """One run, with a crash at the point of this number, and one after each answer; the points that it came to."""
    probe: Any = CrashAtPoint(at)
    there.crashes = there.engine.probe = probe
    run = await there.start(pipeline, shape.input)
    requests = {request.item: request for request in there.sent("provider") if request.run_id == run.id}
    assert sorted(requests) == list(range(shape.requests))
    for request in requests.values():
        await there.reply(request, shape.answer(request), settle=at == 0)
        if at:
            await there.crash()
    await there.settle()
    await check_end(there, run, shape)
    return list(probe.points)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES.values() if shape.empty is not None], ids=str)
async def test_U2_an_empty_stream_completes_at_once(store_url: str, shape: Shape) -> None:
    """U2: nothing is sent."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.empty)
        assert there.sent("provider") == []
        assert await there.result(run.id) == shape.empty_result


@pytest.mark.parametrize("shape", [SHAPES["one to many"], SHAPES["many to many"]], ids=str)
async def test_U2_an_answer_without_items_is_an_empty_stream(store_url: str, shape: Shape) -> None:
    """U2: a stored list that has nothing in it is replayed as a stream that has nothing in it."""
    app, pipeline = shape.app()
    async with world(app, store_url) as there:
        run = await there.start(pipeline, shape.input)
        [request] = there.sent("provider")
        assert (await there.reply(request, [])).outcome == "woke"
        assert await there.result(run.id) == (shape.empty_result or [])


@each_shape
async def test_U3_one_item_more_than_the_limit(store_url: str, shape: Shape) -> None:
    """U3: too many go in: the run fails before anything is sent. Too many come back: invalid, and the wait is open.
    Items that are sent one by one have no limit."""
    app, pipeline = shape.app()
    limits: dict[str, Any] = {"await_aggregate_max_input_items": 3, "await_aggregate_max_output_items": 3}
    async with world(app, store_url, **limits) as there:
        run = await there.start(pipeline, 4)
        if shape.cardinality.startswith("MANY_"):
            info = await there.get(run.id)
            assert (info.status, there.sent("provider")) == ("failed", [])
            assert info.error is not None
            assert "await_aggregate_max_input_items is 3" in info.error.message
            return
        requests = there.sent("provider")
        if shape.cardinality == "ONE_TO_MANY":
            receipt = await there.reply(requests[0], [1, 2, 3, 4])
            assert receipt.outcome == "invalid"
            assert "await_aggregate_max_output_items is 3" in (receipt.reason or "")
            not_many = await there.reply(requests[0], {"no": "list"})
            assert not_many.outcome == "invalid"
            assert (await there.reply(requests[0], [7])).outcome == "woke"
            assert await there.result(run.id) == [8]
        else:
            for request in requests:
                await there.reply(request, shape.answer(request))
            assert (await there.get(run.id)).status == "completed"
