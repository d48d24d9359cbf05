"""Workflows that wait for events, and emit them (F8, F12–F14, laws 1, 2, 4, 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

import bide
from bide.testing import world
from bide.testing.world import START, World
from tests.support.worlds import ledger_names

Step = bide.Step


def waiting(retries: int = 3, **options: Any) -> bide.App:
    """An app whose workflow waits for an event, with the options that it is started with."""
    app = bide.App()

    @app.workflow("wait", retries=retries)
    async def workflow(step: Step, given: dict[str, Any]) -> Any:
        asked: dict[str, Any] = {"event": "order.shipped", "timeout": "48h", **options, **given}
        event = await step.wait_for_event("shipped", **asked)
        return {"id": event.id, "name": event.name, "data": event.data, "at": event.at.isoformat()}

    return app


@contextmanager
def crashing_later(there: World, step: str, pause: timedelta) -> Iterator[None]:
    """The engine dies once after the commit of a step, and it takes a while until another is there."""
    crash = there.crash

    async def slowly() -> None:
        there.clock.advance(pause)
        await crash()

    there.crash_at(step, "after_commit")
    there.crash = slowly  # type: ignore[method-assign]  # for this one crash
    try:
        yield
    finally:
        there.crash = crash  # type: ignore[method-assign]


# ---------------------------------------------------------------- which event


async def test_F8_an_event_of_the_name_resumes_the_run_with_the_event(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {})
        assert (await there.get(run.id)).status == "waiting"
        receipt = await there.emit("order.shipped", {"order": 1}, id="evt-9")
        assert receipt == bide.EventReceipt(outcome="woke", id="evt-9", started=0, resumed=1)
        assert await there.result(run.id) == {
            "id": "evt-9",
            "name": "order.shipped",
            "data": {"order": 1},
            "at": START.isoformat(),
        }


async def test_F8_an_event_resumes_every_run_that_waits_for_it(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        runs = [await there.start("wait", {}) for _ in range(7)]
        other = await there.start("wait", {"event": "order.paid"})
        assert (await there.emit("order.shipped", None)).resumed == 7
        assert {(await there.get(run.id)).status for run in runs} == {"completed"}
        assert (await there.get(other.id)).status == "waiting"


@pytest.mark.parametrize(
    ("pattern", "name", "is_heard"),
    [
        ("order.*", "order.shipped", True),
        ("order.*", "order.eu.shipped", True),
        ("order.*", "order", False),
        ("order.*", "orders.shipped", False),
        ("order.*.shipped", "order.eu.shipped", True),
        ("order.*.shipped", "order.shipped", False),
        ("order.*.shipped", "order.eu.west.shipped", False),
        ("*.shipped", "order.shipped", True),
        ("*", "anything.at.all", True),
        ("order.shipped", "order.shipped.late", False),
    ],
)
async def test_F8_a_wildcard_stands_for_one_segment_and_at_the_end_for_more(
    store_url: str, pattern: str, name: str, is_heard: bool
) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {"event": pattern})
        assert (await there.emit(name)).resumed == is_heard
        assert (await there.get(run.id)).status == ("completed" if is_heard else "waiting")


@pytest.mark.parametrize(
    ("match", "data", "is_heard"),
    [
        ("data.order == 7", {"order": 7}, True),
        ("data.order == 7", {"order": 7.0}, True),
        ("data.order == 7", {"order": 8}, False),
        ("data.order == 7", {"order": "7"}, False),
        ("data.order == 7", {}, False),
        ("data.order == 7", None, False),
        ("data.order == 7 && data.paid", {"order": 7, "paid": True}, True),
        ("data.order == 7 && data.paid", {"order": 7, "paid": False}, False),
        ("data.order == 7 || data.vip", {"order": 8, "vip": True}, True),
        ("data.order.id == 'a' && data.total > 10", {"order": {"id": "a"}, "total": 10.5}, True),
        ("data['order'] == \"a\"", {"order": "a"}, True),
        ("data.tags.exists(tag, tag == 'new')", {"tags": ["old", "new"]}, True),
        ("data.total / 0 == 1", {"total": 1}, False),
        ("data.order", {"order": 7}, False),
        ("nonsense.order == 7", {"order": 7}, False),
        ("data == 7", 7, True),
    ],
)
async def test_F8_only_events_whose_match_is_true_are_taken(
    store_url: str, match: str, data: Any, is_heard: bool
) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {"match": match})
        assert (await there.emit("order.shipped", data)).resumed == is_heard
        assert (await there.get(run.id)).status == ("completed" if is_heard else "waiting")


async def test_F8_of_many_runs_that_match_by_an_equality_only_the_right_one_is_resumed(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        runs = [await there.start("wait", {"match": f"data.order == {order}"}) for order in range(20)]
        assert (await there.emit("order.shipped", {"order": 13})).resumed == 1
        assert [(await there.get(run.id)).status for run in runs].count("completed") == 1
        assert (await there.get(runs[13].id)).status == "completed"


async def test_F8_an_event_with_more_in_it_than_is_indexed_is_still_found(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {"match": "data.order == 7"})
        await there.emit("order.shipped", {**{f"key{no}": no for no in range(1000)}, "order": 7})
        assert (await there.get(run.id)).status == "completed"


@pytest.mark.parametrize("match", ["data.order ==", "", "(" * 100, "x" * 5000, 7, "data.a\0b == 1"])
async def test_F16_an_expression_that_cannot_be_parsed_is_refused_at_the_call_and_never_retried(match: Any) -> None:
    app = bide.App()

    @app.workflow("wait")
    async def workflow(step: Step) -> Any:
        return await step.wait_for_event("shipped", event="order.shipped", match=match, timeout="1h")

    async with world(app) as there:
        run = await there.get((await there.start("wait")).id)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.code == "BadInput"
        assert "match" in run.error.message
        assert run.attempt == 0


@pytest.mark.parametrize("pattern", ["", "order..shipped", ".order", "order.*d", "a b", "x" * 201, 7, None])
async def test_F8_what_is_no_name_is_refused_at_the_call(pattern: Any) -> None:
    app = bide.App()

    @app.workflow("wait")
    async def workflow(step: Step) -> Any:
        return await step.wait_for_event("shipped", event=pattern, timeout="1h")

    async with world(app) as there:
        run = await there.get((await there.start("wait")).id)
        assert run.error is not None
        assert run.error.code == "BadInput"


async def test_L3_a_wait_with_a_channel_takes_only_events_of_that_channel(store_url: str) -> None:
    async with world(waiting(channel="webhook"), store=store_url) as there:
        run = await there.start("wait", {})
        assert (await there.emit("order.shipped", 1)).resumed == 0
        assert (await there.emit("order.shipped", 2, channel="webhook")).resumed == 1
        assert (await there.result(run.id))["data"] == 2


async def test_law_8_an_event_is_heard_in_its_own_workspace_only(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {})
        receipt = await there.client("other").emit("order.shipped", {}, id="evt-1")
        await there.settle()
        assert (receipt.outcome, receipt.resumed) == ("queued", 0)
        assert (await there.get(run.id)).status == "waiting"
        assert (await there.emit("order.shipped", {}, id="evt-1")).outcome == "woke"


# ---------------------------------------------------------------- from when on


async def test_F8_an_event_from_before_the_turn_is_not_heard(store_url: str) -> None:
    """At the same virtual moment, too: the stream's order counts, not the clock."""
    async with world(waiting(), store=store_url) as there:
        await there.emit("order.shipped", {"order": 1})
        run = await there.start("wait", {})
        assert (await there.get(run.id)).status == "waiting"
        await there.emit("order.shipped", {"order": 2})
        assert (await there.result(run.id))["data"] == {"order": 2}


async def test_F8_an_event_during_the_turn_that_opens_the_wait_is_heard(store_url: str) -> None:
    """Law 2: between "not yet waiting" and "waiting" nothing is lost."""
    app = bide.App()
    clients: list[bide.Client] = []

    @app.workflow("order")
    async def order(step: Step) -> Any:
        async def ship() -> None:
            await clients[0].emit("order.shipped", {"order": 1})
            await clients[0].emit("order.shipped", {"order": 2})

        await step.run("ship", ship)
        return (await step.wait_for_event("shipped", event="order.*", timeout="1h")).data

    async with world(app, store=store_url) as there:
        clients.append(there.client())
        run = await there.start("order")
        assert await there.result(run.id) == {"order": 1}


CRASHES: list[list[tuple[str, Any]]] = [
    [("order", "after_commit")],
    [("second", "before")],
    [("second", "after_code")],
    [("order", "after_commit"), ("second", "before"), ("second", "after_code")],
]


@pytest.mark.parametrize("crashes", CRASHES)
async def test_D4_a_crash_between_a_step_and_the_wait_for_its_event_loses_no_event(
    crashes: list[tuple[str, Any]], store_url: str
) -> None:
    """D4, F8: the turn that follows goes on where the other one broke off, and hears what that would have heard."""
    app, clients = bide.App(), list[Any]()

    async def order() -> None:
        await clients[0].emit("order.done", {"order": 1})

    @app.workflow("shop")
    async def shop(step: Step) -> Any:
        await step.run("order", order)
        await step.run("second", lambda: None)
        await step.run("third", lambda: None)
        return (await step.wait_for_event("done", event="order.done", timeout="1d")).data

    async with world(app, store=store_url) as there:
        clients.append(there.client())
        for step, point in crashes:
            there.crash_at(step, point)
        run = await there.start("shop")
        assert there.crashes.happened == crashes
        assert await there.result(run.id) == {"order": 1}


async def test_F8_a_crash_lets_a_wait_hear_nothing_from_before_the_turn_that_broke_off(store_url: str) -> None:
    """F8: nor from before a turn that came to its end."""
    app = bide.App()

    @app.workflow("shop")
    async def shop(step: Step) -> Any:
        await step.run("one", lambda: None)
        await step.run("two", lambda: None)
        await step.sleep("night", "8h")
        await step.run("three", lambda: None)
        await step.run("four", lambda: None)
        return (await step.wait_for_event("done", event="order.done", timeout="1d")).data

    async with world(app, store=store_url) as there:
        await there.emit("order.done", "before the run")
        run = await there.start("shop")
        await there.emit("order.done", "while it slept")
        there.crash_at("three", "after_commit")
        await there.advance("8h")
        assert (await there.get(run.id)).status == "waiting"
        await there.emit("order.done", "in time")
        assert await there.result(run.id) == "in time"
        assert [step.id for step in await there.steps(run.id)] == ["one", "two", "night", "three", "four", "done"]


async def test_F8_a_lookback_counts_from_the_turn_that_broke_off(store_url: str) -> None:
    app = bide.App()

    @app.workflow("shop")
    async def shop(step: Step) -> Any:
        await step.run("one", lambda: None)
        await step.run("two", lambda: None)
        return (await step.wait_for_event("done", event="order.done", timeout="1d", lookback="5m")).data

    async with world(app, store=store_url) as there:
        await there.emit("order.done", "four minutes before")
        await there.advance("4m")
        with crashing_later(there, "one", timedelta(minutes=10)):
            run = await there.start("shop")
        assert await there.result(run.id) == "four minutes before"


async def test_F8_an_event_after_the_turn_that_the_wait_would_have_opened_in_needs_a_lookback(store_url: str) -> None:
    app = bide.App()

    @app.workflow("order")
    async def order(step: Step, lookback: str | None) -> Any:
        await step.sleep("pause", "1h")
        event = await step.wait_for_event(
            "shipped", event="order.shipped", timeout="1h", lookback=lookback, default=None
        )
        return event.data if event is not None else "never"

    async with world(app, store=store_url) as there:
        without = await there.start("order", None)
        short = await there.start("order", "10m")
        long = await there.start("order", "40m")
        await there.advance("30m")
        await there.emit("order.shipped", "early")
        await there.advance("45m")
        assert await there.result(long.id) == "early"
        await there.advance("1h")
        assert [await there.result(run.id) for run in (without, short)] == ["never", "never"]


async def test_F8_a_lookback_takes_the_earliest_event_that_matches_however_many_do_not(store_url: str) -> None:
    async with world(waiting(lookback="5m"), store=store_url) as there:
        for order in range(230):
            await there.emit("order.shipped", {"order": order}, settle=False)
        run = await there.start("wait", {"match": "data.order >= 220"})
        assert (await there.result(run.id))["data"] == {"order": 220}
        wide = await there.start("wait", {"match": "data.order >= 225", "event": "*.shipped"})
        assert (await there.result(wide.id))["data"] == {"order": 225}


async def test_F8_a_lookback_reaches_no_further_than_it_says(store_url: str) -> None:
    async with world(waiting(lookback="5m"), store=store_url) as there:
        await there.emit("order.shipped", "old")
        await there.advance("6m")
        await there.emit("order.shipped", "new")
        await there.advance("4m")
        run = await there.start("wait", {})
        assert (await there.result(run.id))["data"] == "new"


@pytest.mark.parametrize("lookback", ["1000000d", timedelta.max])
async def test_F8_a_lookback_to_before_all_time_is_refused_in_words(store_url: str, lookback: Any) -> None:
    """F16: what bide refuses is not tried again."""
    async with world(waiting(lookback=lookback), store=store_url) as there:
        info = await there.get((await there.start("wait", {})).id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert (info.error.code, info.error.message.partition(":")[0]) == ("BadInput", "lookback")


async def test_F8_a_lookback_may_reach_further_than_anything_is_kept(store_url: str) -> None:
    async with world(waiting(lookback="700000d"), store=store_url) as there:
        await there.emit("order.shipped", "old")
        await there.advance("1d")
        run = await there.start("wait", {})
        assert (await there.result(run.id))["data"] == "old"


# ---------------------------------------------------------------- timeouts and the end of waits


async def test_F13_a_wait_for_an_event_that_never_comes_times_out(store_url: str) -> None:
    async with world(waiting(retries=0), store=store_url) as there:
        run = await there.start("wait", {"timeout": "1h"})
        await there.advance("1h")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert info.error.code == "WaitTimeoutError"
        assert "order.shipped" in info.error.message
        assert (await there.emit("order.shipped")).resumed == 0


async def test_law_1_a_cancelled_run_hears_no_event(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {})
        await there.cancel(run.id)
        assert (await there.emit("order.shipped")).resumed == 0


async def test_law_1_the_loser_of_a_race_hears_no_event(store_url: str) -> None:
    app = bide.App()

    @app.workflow("race")
    async def race(step: Step) -> Any:
        shipped = asyncio.create_task(step.wait_for_event("shipped", event="order.shipped", timeout="1h"))
        await step.receive("stop", "stop", timeout="1h")
        shipped.cancel()
        await step.sleep("pause", "1h")
        return "stopped"

    async with world(app, store=store_url) as there:
        run = await there.start("race")
        assert {wait.kind for wait in await there.waits(run_id=run.id)} == {"event", "receive"}
        await there.signal(run.id, "stop")
        assert (await there.emit("order.shipped")).resumed == 0
        await there.advance("1h")
        assert await there.result(run.id) == "stopped"


async def test_F3_two_waits_of_one_run_are_both_completed_by_one_event(store_url: str) -> None:
    app = bide.App()

    @app.workflow("both")
    async def both(step: Step) -> Any:
        one, two = await asyncio.gather(
            step.wait_for_event("one", event="order.*", timeout="1h"),
            step.wait_for_event("two", event="order.shipped", timeout="1h"),
        )
        return [one.id, two.id]

    async with world(app, store=store_url) as there:
        run = await there.start("both")
        receipt = await there.emit("order.shipped", id="evt-1")
        assert receipt.resumed == 1
        assert await there.result(run.id) == ["evt-1", "evt-1"]


async def test_F6_a_crash_after_the_event_replays_the_same_event(store_url: str) -> None:
    app = bide.App()

    @app.workflow("order")
    async def order(step: Step) -> Any:
        event = await step.wait_for_event("shipped", event="order.shipped", timeout="1h")
        await step.run("note", str, event.data)
        return event.data

    async with world(app, store=store_url) as there:
        run = await there.start("order")
        there.crash_at("note", "after_code")
        await there.emit("order.shipped", 1)
        await there.emit("order.shipped", 2)
        assert await there.result(run.id) == 1


# ---------------------------------------------------------------- emitting


async def test_F14_a_step_emits_once_however_often_it_is_tried(store_url: str) -> None:
    app = bide.App()

    @app.workflow("shop")
    async def shop(step: Step) -> Any:
        receipt = await step.emit("tell", "order.shipped", {"order": 1})
        return [receipt.started, receipt.resumed]

    @app.workflow("hear", trigger="order.*")
    async def hear(step: Step, data: Any) -> Any:
        return data

    async with world(app, store=store_url) as there:
        there.crash_at("tell", "after_code")
        run = await there.start("shop")
        assert await there.result(run.id) == [1, 0]
        heard = await there.runs(definition="hear")
        assert [await there.result(info.id) for info in heard] == [{"order": 1}]


async def test_F14_a_run_hears_what_another_emits(store_url: str) -> None:
    app = waiting()

    @app.workflow("ship")
    async def ship(step: Step) -> Any:
        first = await step.emit("tell", "order.shipped", 1)
        second = await step.emit("tell", "order.shipped", 2)
        return [first.id, first.resumed, second.id, second.resumed]

    async with world(app, store=store_url) as there:
        run = await there.start("wait", {})
        shipped = await there.start("ship")
        assert await there.result(shipped.id) == [f"{shipped.id}/tell", 1, f"{shipped.id}/tell#2", 0]
        assert (await there.result(run.id))["data"] == 1


async def test_F16_a_step_that_emits_what_cannot_be_stored_fails_the_run_at_once(store_url: str) -> None:
    app = bide.App()

    @app.workflow("bad")
    async def bad(step: Step) -> Any:
        await step.emit("tell", "order shipped", 1)

    async with world(app, store_url) as there:
        info = await there.get((await there.start("bad")).id)
        assert info.error is not None
        assert (info.status, info.error.code) == ("failed", "BadInput")


# ---------------------------------------------------------------- answered by hand


async def test_W10_an_answer_by_hand_stands_for_an_event_that_got_lost(store_url: str) -> None:
    """F8, W10: the data is the event's; its id is that of the answer, its name what the wait listens for."""
    async with world(waiting(), store=store_url) as there:
        run, other = await there.start("wait", {"event": "order.*"}), await there.start("wait", {"event": "order.*"})
        [wait] = await there.waits(run_id=run.id)
        response = await there.http().post(f"/v1/waits/{wait.id}/complete", json={"data": {"order": 1}})
        await there.settle()
        receipt = response.json()
        assert (response.status_code, receipt["outcome"]) == (200, "woke")
        assert await there.result(run.id) == {
            "id": receipt["message_id"],
            "name": "order.*",
            "data": {"order": 1},
            "at": START.isoformat(),
        }
        assert (await there.get(other.id)).status == "waiting"
        assert (await there.emit("order.shipped", None)).resumed == 1
        again = await there.http().post(f"/v1/waits/{wait.id}/complete", json={"data": {"order": 2}})
        assert again.status_code == 410


async def test_W10_an_answer_by_hand_is_an_event_that_the_wait_would_take(store_url: str) -> None:
    """F8, W3: 422 with what is expected, and the wait stays open."""
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {"match": "data.order == 1"})
        [wait] = await there.waits(run_id=run.id)
        refused = await there.http().post(f"/v1/waits/{wait.id}/complete", json={"data": {"order": 2}})
        assert refused.status_code == 422
        assert "data.order == 1" in refused.json()["errors"][0]["message"]
        assert (await there.get(run.id)).status == "waiting"
        assert [kept.reason for kept in await there.unused()] == ["invalid_payload"]
        await there.answer(wait.id, {"order": 1})
        assert (await there.result(run.id))["data"] == {"order": 1}


# ---------------------------------------------------------------- what people see


async def test_G3_a_wait_for_an_event_writes_what_every_wait_writes(store_url: str) -> None:
    async with world(waiting(), store=store_url) as there:
        run = await there.start("wait", {"match": "data.order == 1"})
        [info] = await there.waits(run_id=run.id)
        assert (info.kind, info.names, info.status) == ("event", ("order.shipped",), "waiting")
        assert info.details["match"] == "data.order == 1"
        await there.emit("order.shipped", {"order": 1}, id="evt-1")
        names = await ledger_names(there, run.id)
        assert [name for name in names if name.startswith("await_")] == [
            "await_execution_waiting",
            "await_unit_completed",
            "await_resume_released",
        ]
        [completed] = [entry for entry in await there.ledger(run.id) if entry.name == "await_unit_completed"]
        assert (completed.data["event"], completed.data["cause"]) == ("evt-1", "event")


async def test_F14_a_run_that_begins_anew_emits_anew(store_url: str) -> None:
    app = bide.App()

    @app.workflow("tick")
    async def tick(step: Step, round: int) -> Any:
        receipt = await step.emit("tell", "clock.ticked", round)
        return bide.Restart(round + 1) if round < 3 else receipt.id

    @app.workflow("hear", trigger="clock.*")
    async def hear(step: Step, round: int) -> int:
        return round

    async with world(app, store=store_url) as there:
        there.crash_at("tell", "after_code")
        run = await there.start("tick", 1)
        assert await there.result(run.id) == f"{run.id}/2/tell"
        assert sorted(info.result for info in await there.runs(definition="hear")) == [1, 2, 3]
