"""The laws (contract §13) that the engine and the stores must keep: 1, 2, 4–8, 10–16."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import bide
from bide.cli.doctor import _deadlines as deadlines
from bide.core import ledger
from bide.core.commands import FireTimer
from bide.core.records import RunId
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.runtime import Runtime
from bide.testing import world
from bide.testing.world import World
from tests.support.kinds import EVERY_STORE, place_of
from tests.support.staging import Gate, client_of, names, real_store, rival, rows

Ctx = bide.Context[Any]


def two_waits_app() -> bide.App:
    """Waits for `first` for an hour, then for `second` without end."""
    app = bide.App()

    @app.machine("two")
    class Two:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("first", then="middle", timeout="1h")

        async def middle(self, ctx: Ctx) -> bide.Await:
            state = {"timed_out": ctx.timed_out, "first": [signal.payload for signal in ctx.awaited]}
            return bide.Await("second", then="end", state=state)

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done({**ctx.state, "second": [signal.payload for signal in ctx.awaited]})

    return app


@pytest.fixture(params=EVERY_STORE)
def store_url(request: pytest.FixtureRequest) -> str:
    """Every store there is, PostgreSQL in the newest and the oldest version that is installed."""
    return place_of(request.param, request)


# ---------------------------------------------------------------- law 1


async def test_law_1_a_wait_that_timed_out_takes_no_message_any_more(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        await w.advance("1h")
        receipt = await w.signal(run.id, "first", "too late")
        assert receipt.outcome == "queued"
        assert (await w.get(run.id)).status == "waiting"
        assert [signal.id for signal in await w.inbox(run.id)] == [receipt.message_id]
        await w.signal(run.id, "second", 2)
        assert await w.result(run.id) == {"timed_out": True, "first": [], "second": [2]}


async def test_law_1_the_timer_of_a_wait_that_was_answered_never_acts(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        await w.signal(run.id, "first", 1)
        before = await rows(w)
        await w.advance("10h")
        assert await rows(w) == before
        # Also where a timer that was read before the answer is fired after it.
        fired = await w.runtime.store.execute(
            [FireTimer(workspace="default", run_id=RunId(run.id), no=1, actor="timer")]
        )
        assert getattr(fired.replies[0], "changed", None) is False
        assert await rows(w) == before


async def test_law_1_a_cancelled_wait_takes_nothing_and_its_timer_is_gone(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        await w.cancel(run.id)
        before = await rows(w)
        assert (await w.signal(run.id, "first", check=False)).outcome == "no_target"
        await w.advance("10h")
        assert await rows(w) == before


# ---------------------------------------------------------------- law 2


async def test_law_2_a_message_is_kept_between_not_yet_waiting_and_waiting(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        assert (await w.signal(run.id, "second", "early")).outcome == "queued"
        assert (await w.signal(run.id, "first", 1)).outcome == "woke"
        assert await w.result(run.id) == {"timed_out": False, "first": [1], "second": ["early"]}


@pytest.mark.parametrize("first", ["delivery", "park"])
async def test_law_2_either_commit_order_of_delivery_and_park_wakes_the_run(store_url: str, first: str) -> None:
    app = bide.App()
    gate = Gate()

    @app.machine("parker")
    class Parker:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            await gate()
            return bide.Await("go", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(len(ctx.awaited))

    async with world(app, store=store_url) as w, rival(w) as other:
        run = await w.start("parker", settle=False)
        await gate.reached()
        sender = client_of(other.runtime)
        if first == "delivery":
            await sender.signal(run.id, "go")
            gate.open()
        else:
            gate.open()
            await w.settle()
            await sender.signal(run.id, "go")
        await w.settle()
        await other.settle()
        assert (await w.get(run.id)).result == 1


# ---------------------------------------------------------------- law 4


async def test_law_4_a_timeout_is_not_a_null_answer(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        silent, null = await w.start("two"), await w.start("two")
        await w.signal(null.id, "first", None)
        await w.advance("1h")
        for run in (silent, null):
            await w.signal(run.id, "second", None)
        assert await w.result(silent.id) == {"timed_out": True, "first": [], "second": [None]}
        assert await w.result(null.id) == {"timed_out": False, "first": [None], "second": [None]}


@pytest.mark.parametrize("point", ["before", "after_code"])
async def test_law_4_a_timeout_replays_as_itself(store_url: str, point: Any) -> None:
    """Also where the answer arrives between the crash and the redo."""
    app = bide.App()
    handed: list[tuple[bool, list[Any]]] = []

    @app.machine("order")
    class Order:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await(["paid", "note"], then="woken", timeout="1h")

        async def woken(self, ctx: Ctx) -> bide.Done:
            handed.append((ctx.timed_out, [signal.payload for signal in ctx.awaited]))
            if len(handed) == 1 and point == "after_code":
                await client.signal(ctx.run_id, "paid", "too late")
            return bide.Done(ctx.timed_out)

    async with world(app, store=store_url) as w:
        client = w.client()
        w.crash_at("woken", point)
        run = await w.start("order")
        await w.advance("1h")
        assert await w.result(run.id) is True
        assert handed == [(True, [])] * len(handed)
        causes = [wait.cause for wait in await w.waits(run_id=run.id, status=None)]
        assert causes == ["timeout"]
        terminal = [entry for entry in await w.ledger(run.id) if entry.name == "await_unit_terminal"]
        assert [entry.data["status"] for entry in terminal] == ["timed_out"]


# ---------------------------------------------------------------- law 5


async def test_law_5_a_delivery_that_is_sent_again_succeeds_and_wakes_once(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        first = await w.signal(run.id, "first", {"n": 1}, "evt-1", settle=False)
        again = await w.signal(run.id, "first", {"n": 1}, "evt-1", settle=False)
        assert (first.outcome, again.outcome, again.duplicate) == ("woke", "duplicate", True)
        assert again.message_id == first.message_id
        await w.settle()
        await w.signal(run.id, "second", 2)
        assert await w.result(run.id) == {"timed_out": False, "first": [{"n": 1}], "second": [2]}
        late = await w.signal(run.id, "first", {"n": 1}, "evt-1")
        assert late.outcome == "duplicate", "also after the run has ended"


async def test_law_5_the_wake_up_is_certain_when_the_first_reply_was_lost(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w, rival(w) as other:
        run = await w.start("two")
        sending = asyncio.create_task(client_of(other.runtime).signal(run.id, "first", 1, "evt-1"))
        await asyncio.sleep(0)
        sending.cancel()  # the caller is gone; whether it committed, nobody told it
        await asyncio.wait({sending})
        again = await w.signal(run.id, "first", 1, "evt-1")
        assert again.outcome in ("woke", "duplicate")
        await other.settle()
        await w.settle()
        assert (await w.get(run.id)).state == {"timed_out": False, "first": [1]}


async def test_law_5_many_senders_of_one_delivery_make_one_message(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w, rival(w) as other:
        run = await w.start("two")
        clients = [w.client(), client_of(other.runtime)]
        receipts = await asyncio.gather(*(clients[no % 2].signal(run.id, "note", 0, "evt") for no in range(40)))
        assert Counter(receipt.outcome for receipt in receipts) == {"queued": 1, "duplicate": 39}
        assert len({receipt.message_id for receipt in receipts}) == 1
        assert len(await w.inbox(run.id)) == 1


# ---------------------------------------------------------------- law 6


async def test_law_6_time_spent_parked_counts_against_nothing(store_url: str) -> None:
    app = bide.App()
    attempts: list[int] = []

    @app.machine("patient", retries=2)
    class Patient:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="work")

        async def work(self, ctx: Ctx) -> bide.Done:
            attempts.append(ctx.attempt)
            if len(attempts) < 3:
                raise RuntimeError("not yet")
            return bide.Done([ctx.attempt, [signal.payload for signal in ctx.awaited]])

    async with world(app, store=store_url) as w:
        run = await w.start("patient")
        await w.advance("3650d")
        row = await w.runtime.store.run("default", run.id)
        assert row is not None
        assert (row.attempt, row.status) == (0, "waiting")
        await w.signal(run.id, "go", 1)
        await w.advance("1h")
        assert await w.result(run.id) == [2, [1]], "all its retries were still there"


async def test_law_6_waking_and_parking_again_uses_no_claim_and_no_attempt(store_url: str) -> None:
    app = bide.App()

    @app.machine("pack")
    class Pack:
        @bide.start
        async def collect(self, ctx: Ctx) -> Any:
            assert ctx.attempt == 0
            if len(ctx.awaited) == 20:
                return bide.Done(len(ctx.awaited))
            return bide.Await("item", then="collect", timeout="1h")

    async with world(app, store=store_url, max_claims=2) as w:
        run = await w.start("pack")
        for no in range(20):
            await w.signal(run.id, "item", no)
        assert await w.result(run.id) == 20


# ---------------------------------------------------------------- law 7


async def test_law_7_no_two_waits_share_an_id(store_url: str) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("looper")
    class Looper:
        @bide.start
        async def loop(self, ctx: Ctx) -> Any:
            turns = (ctx.state or 0) + 1
            if turns == 7:
                return bide.Done()
            if turns % 3 == 0:
                return bide.Spawn([("leaf", 1)], then="loop", state=turns)
            return bide.Await("go", then="loop", state=turns, timeout="1h")

    async with world(app, store=store_url) as w:
        runs = [await w.start("looper") for _ in range(3)]
        for point in ("before", "after_code", "after_commit"):
            w.crash_at("loop", point)
            await w.advance("1h")
        await w.advance("10h")
        ids: list[str] = []
        for run in runs:
            assert (await w.get(run.id)).status == "completed"
            waits = await w.waits(run_id=run.id, status=None)
            assert len(waits) == 6
            ids += [wait.id for wait in waits]
        assert len(set(ids)) == len(ids)


# ---------------------------------------------------------------- law 8


async def test_law_8_matching_checks_workspace_key_and_name(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        mine, theirs = w.client("mine"), w.client("theirs")
        my_run = await mine.start("two", correlation_key="order:1")
        their_run = await theirs.start("two", correlation_key="order:1")
        await w.settle()

        assert (await mine.signal(their_run.id, "first", check=False)).outcome == "no_target"
        assert (await theirs.signal(my_run.id, "first", check=False)).outcome == "no_target"
        with pytest.raises(bide.RunNotFound):
            await mine.get(their_run.id)
        with pytest.raises(bide.RunNotFound):
            await mine.ledger(their_run.id)
        assert (await mine.signal("order:2", "first", check=False)).outcome == "no_target"
        assert (await mine.signal("order:1", "firs", "another name")).outcome == "queued"
        assert (await mine.signal("order:1", "First", "another case")).outcome == "queued"
        assert (await theirs.get(their_run.id)).status == "waiting"

        assert (await mine.signal("order:1", "first", 1, "evt-1")).outcome == "woke"
        assert (await theirs.signal("order:1", "first", 2, "evt-1")).outcome == "woke", "their dedup keys are theirs"
        await w.settle()
        assert (await mine.get(my_run.id)).state["first"] == [1]
        assert (await theirs.get(their_run.id)).state["first"] == [2]
        assert [run.id for run in await mine.runs()] == [my_run.id]
        assert {wait.run_id for wait in await theirs.waits()} == {their_run.id}


async def test_law_8_stored_messages_are_matched_as_live_ones_are(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        for name in ("secon", "second ", "SECOND", "first-second"):
            assert (await w.signal(run.id, name, name)).outcome == "queued"
        await w.signal(run.id, "first", 1)
        assert (await w.get(run.id)).status == "waiting", "none of them is the one"
        await w.signal(run.id, "second", 2)
        assert (await w.result(run.id))["second"] == [2]


# ---------------------------------------------------------------- law 10


async def test_law_10_no_get_request_changes_anything(store_url: str) -> None:
    """Not even one that shows the page of a link, or that asks after what is not there."""
    app, urls = two_waits_app(), list[str]()

    @app.workflow("linked")
    async def linked(step: bide.Step) -> Any:
        call = await step.callback("call", timeout="1h", title="Yes?")
        await step.run("send", urls.append, call.url)
        return await call

    @app.workflow("asked")
    async def asked(step: bide.Step) -> Any:
        return await step.ask("gate", title="Yes?", form=bool, timeout="1h")

    async with world(app, store=store_url) as w:
        two, _, gate = await w.start("two"), await w.start("linked"), await w.start("asked")
        await w.signal(two.id, "other")
        [interaction] = await w.interactions(run_id=gate.id)
        [wait] = await w.waits(run_id=two.id)
        token = urlsplit(urls[0]).path.removeprefix("/resume/")
        ids = {"run_id": two.id, "wait_id": wait.id, "interaction_id": interaction.id, "token": token}
        before = await rows(w)
        http = w.http()
        described: dict[str, Any] = (await http.get("/openapi.json")).json()["paths"]
        paths = [path for path, methods in described.items() if "get" in methods and path != "/v1/stream"]
        assert len(paths) >= 12
        found = [await http.get(path.format(**ids)) for path in paths]
        found.append(await http.head(urlsplit(urls[0]).path))
        missing = [await http.get(path.format(**dict.fromkeys(ids, "no-such"))) for path in paths if "{" in path]
        assert {answer.status_code for answer in found} == {200, 202}, "202: it has no result yet"
        assert {answer.status_code for answer in missing} == {404}
        await w.settle()
        assert await rows(w) == before
        assert await w.unused() == []


# ---------------------------------------------------------------- law 11


async def test_law_11_a_sweep_alone_is_enough_for_progress(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process commits and runs nothing; another hears nothing and finds everything by looking."""
    app = two_waits_app()
    async with real_store(app, store_url, hints=False, poll_interval="10ms") as runtime:
        monkeypatch.setattr(runtime.store, "subscribe", lambda wake: lambda: None)
        client = client_of(runtime)
        deaf = Runtime(runtime.store, app.registry, runtime.settings, Ports())
        async with Engine(deaf) as engine:
            monkeypatch.setattr(engine, "_wake_in", lambda seconds: None)
            run = await client.start("two")
            await client.signal(run.id, "first", 1)
            await client.signal(run.id, "second", 2)
            result = await client.result(run.id, timeout="2m")
        assert result == {"timed_out": False, "first": [1], "second": [2]}


# ---------------------------------------------------------------- law 12


async def test_law_12_an_open_wait_is_listed_aged_and_explained_and_one_without_a_deadline_is_flagged(
    store_url: str,
) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        older = await w.start("two")
        await w.signal(older.id, "first", 1)
        await w.advance("20m")
        younger = await w.start("two")
        assert {wait.run_id for wait in await w.waits()} == {older.id, younger.id}
        [endless] = await w.waits(older_than="10m")
        assert (endless.run_id, endless.names, endless.deadline) == (older.id, ("second",), None)
        explained = [" ".join((await w.client().explain(run.id)).explanation) for run in (older, younger)]
        assert ["It has no deadline" in text for text in explained] == [True, False]
        found = await deadlines(w.runtime.store, "")
        assert (found.level, found.message.split(":")[0]) == ("notice", "1 open wait has no deadline")
        assert endless.id in found.message


# ---------------------------------------------------------------- law 13


def collecting_app(handed: list[tuple[str, str]], committed: list[str]) -> bide.App:
    """Takes packs of up to two items until three packs are there; tells what each step was handed."""
    app = bide.App()

    @app.machine("collector")
    class Collector:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("item", then="take", state=[])

        async def take(self, ctx: Ctx) -> Any:
            if len(ctx.awaited) < 2:
                return bide.Await("item", then="take")
            handed.extend((ctx.run_id, signal.id) for signal in ctx.awaited)
            return bide.Next("keep", [*ctx.state, [signal.payload for signal in ctx.awaited]])

        async def keep(self, ctx: Ctx) -> Any:
            committed.append(ctx.run_id)
            if len(ctx.state) == 3:
                return bide.Done(ctx.state)
            return bide.Await("item", then="take")

    return app


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
async def test_law_13_a_signal_is_handed_to_exactly_one_progressing_step(store_url: str, point: Any) -> None:
    handed: list[tuple[str, str]] = []
    async with world(collecting_app(handed, []), store=store_url) as w:
        run = await w.start("collector")
        receipts = []
        for no in range(7):
            if no == 3:
                w.crash_at("take", point)
            receipts.append(await w.signal(run.id, "item", no, check=False))
        assert await w.result(run.id) == [[0, 1], [2, 3], [4, 5]]
        assert receipts[6].outcome == "no_target"
        consumed = [id for entry in await w.ledger(run.id) for id in entry.data.get("ids", ())]
        assert consumed == [receipt.message_id for receipt in receipts[:6]]
        assert await w.inbox(run.id) == []


async def test_law_13_a_final_run_has_an_empty_inbox_and_says_what_it_discarded(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        runs = {ending: await w.start("two") for ending in ("completed", "cancelled")}
        sent = {}
        for ending, run in runs.items():
            sent[ending] = [(await w.signal(run.id, "unread", no)).message_id for no in range(3)]
        first = await w.signal(runs["completed"].id, "first")
        last = await w.signal(runs["completed"].id, "second")
        await w.cancel(runs["cancelled"].id)
        for ending, run in runs.items():
            assert (await w.get(run.id)).status == ending
            assert await w.inbox(run.id) == []
            discarded = (await w.ledger(run.id))[-1].data["discarded"]
            expected = sent[ending]
            if ending == "completed":  # `first` was re-awaited past and is discarded; the last step used `second`
                expected = [*expected, first.message_id]
                used = [e.data["ids"] for e in await w.ledger(run.id) if e.name == "signals_consumed"]
                assert used == [[last.message_id]]
            assert discarded == expected


# ---------------------------------------------------------------- law 14


async def test_law_14_a_stale_workers_commit_changes_no_row(store_url: str) -> None:
    """Whatever it brings: consumed signals, children, waits, an end."""
    app = bide.App()
    gate = Gate()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    @app.machine("racer")
    class Racer:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="race")

        async def race(self, ctx: Ctx) -> Any:
            await gate()
            children = [bide.Child("leaf", no, correlation_key=f"leaf:{no}") for no in range(3)]
            return bide.Spawn(children, then="end") if ctx.input == "spawn" else bide.Done("late")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(len(ctx.children))

    async with world(app, store=store_url) as w, rival(w) as other:
        for kind in ("spawn", "done"):
            run = await w.start("racer", kind)
            await w.signal(run.id, "go", settle=False)
            await w.signal(run.id, "kept", settle=False)
            await gate.reached(1)
            w.clock.set(w.now + timedelta(hours=1))
            await other.claim()
            await gate.reached(2)
            before, stale = await rows(w), w.engine.stale
            gate.let_one_go()
            await _stale(w, stale + 1)
            assert await rows(w) == before
            assert await w.audit() == []
            gate.let_one_go()
            await other.settle()
            await w.settle()
            assert await w.result(run.id) == (3 if kind == "spawn" else "late")


async def _stale(w: World, count: int) -> None:
    while w.engine.active:
        await asyncio.wait(set(w.engine._tasks))
    assert w.engine.stale == count


# ---------------------------------------------------------------- law 15


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
async def test_law_15_a_childs_end_is_counted_exactly_once(store_url: str, point: Any) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        async def only(self, ctx: Ctx) -> bide.Done | bide.Stop:
            if ctx.input == 3:
                raise bide.NonRetryable("this one fails")
            return bide.Stop("enough") if ctx.input == 2 else bide.Done(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", no) for no in range(5)], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.status for child in ctx.children])

    async with world(app, store=store_url) as w, rival(w) as other:
        for _ in range(3):
            w.crash_at("only", point)
        run = await w.start("parent", settle=False)
        await other.settle()
        await w.settle()
        await other.settle()
        await w.settle()
        assert await w.result(run.id) == ["completed", "completed", "stopped", "failed", "completed"]
        join = (await w.waits(run_id=run.id, status=None))[0]
        assert (join.expected, join.received, join.status) == (5, 5, "completed")
        assert (await names(w, run.id)).count("await_resume_released") == 1


async def test_law_15_a_child_that_ends_after_its_join_timed_out_is_not_counted_by_the_next_join(
    store_url: str,
) -> None:
    app = bide.App()

    @app.machine("leaf")
    class Leaf:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("finish", then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(ctx.input)

    @app.machine("parent")
    class Parent:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", "old")], then="again", timeout="1h")

        async def again(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("leaf", "new")], then="end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    async with world(app, store=store_url) as w:
        run = await w.start("parent")
        await w.advance("1h")
        leaves = {info.input: info.id for info in await w.runs(definition="leaf")}
        await w.signal(leaves["old"], "finish")
        assert (await w.get(run.id)).status == "waiting"
        await w.signal(leaves["new"], "finish")
        assert await w.result(run.id) == ["new"]


# ---------------------------------------------------------------- law 16


async def test_law_16_every_chain_verifies_and_tells_the_stored_status(store_url: str) -> None:
    app = two_waits_app()

    @app.machine("failing", retries=1)
    class Failing:
        async def only(self, ctx: Ctx) -> bide.Done:
            raise RuntimeError("no")

    @app.machine("stopping")
    class Stopping:
        async def only(self, ctx: Ctx) -> bide.Stop:
            return bide.Stop("enough")

    async with world(app, store=store_url, max_claims=1) as w:
        completed, cancelled, waiting, timed_out = [await w.start("two") for _ in range(4)]
        await w.signal(completed.id, "first", {"n": 1.5, "text": "é\u2028"})
        await w.signal(completed.id, "second")
        await w.cancel(cancelled.id, reason="why not")
        await w.start("failing")
        await w.start("stopping")
        await w.advance("1h")
        w.crash_at("only", "before")
        await w.start("stopping")
        await w.start("two", delay="1h")
        seen = set()
        for run in await w.runs():
            row = await w.runtime.store.run("default", run.id)
            assert row is not None
            pages = await w.runtime.store.ledger(run.id)
            assert ledger.verify([(page.seq, page.entries) for page in pages], row.ledger_head, row.ledger_seq) is None
            entries = await w.ledger(run.id)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert [entry.prev for entry in entries] == ["", *(entry.hash for entry in entries[:-1])]
            assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
            statuses = [entry.data["to"] for entry in entries if "to" in entry.data]
            origins = [entry.data["from"] for entry in entries if "from" in entry.data]
            assert statuses[-1] == run.status
            assert origins == statuses[:-1], "each move begins where the one before it ended"
            seen.add((run.status, run.held))
        assert seen >= {
            ("completed", None), ("cancelled", None), ("waiting", None), ("failed", None), ("stopped", None),
            ("ready", "poison"), ("ready", None),
        }  # fmt: skip
        assert (await w.get(waiting.id)).status == (await w.get(timed_out.id)).status == "waiting"


async def test_law_16_holds_for_workflows_machine_files_and_pipelines(store_url: str, tmp_path: Path) -> None:
    app = bide.App()

    @app.workflow("function", retries=1)
    async def function(step: bide.Step, input: Any) -> Any:
        await step.run("first", lambda: 1)
        return await step.ask("look", title="Fine?", form=Any, timeout="9d")

    app.pipeline("items").expand(list).wait_external(
        "look", transport="interaction-api", returns=Any, timeout="9d"
    ).map(str).collect(list)  # fmt: skip
    (tmp_path / "file.machine").write_text(
        'machine file\n  implements\n    wait for look\n      timeout: "9d"\n    compute result\n      steps.look\n'
    )
    app.load(tmp_path / "file.machine")
    async with world(app, store=store_url) as w:
        for definition, input in (("function", None), ("file", {}), ("items", [1, 2])):
            completed, failed, cancelled, late, _ = [await w.start(definition, input) for _ in range(5)]
            for task in await w.interactions(run_id=completed.id):
                await w.answer(task.id, 7)
            [wait] = await w.waits(run_id=failed.id)
            await w.client().fail_wait(wait.id, "nobody is there")
            await w.settle()
            await w.cancel(cancelled.id)
            await w.client().update_wait((await w.waits(run_id=late.id))[0].id, deadline="1m")
            await w.advance("30m")
            w.crash_at("look", "before")
            await w.start(definition, input)
            await w.settle()
        seen = set()
        for run in await w.runs():
            row = await w.runtime.store.run("default", run.id)
            assert row is not None
            pages = await w.runtime.store.ledger(run.id)
            assert ledger.verify([(page.seq, page.entries) for page in pages], row.ledger_head, row.ledger_seq) is None
            entries = [entry for page in pages for entry in ledger.decode_page(page.entries)]
            assert ledger.replayed_status(entries) == run.status, (run.definition, run.status)
            seen.add((run.definition, run.status))
        statuses = ("completed", "failed", "cancelled", "waiting")
        assert seen >= {(name, status) for name in ("function", "file", "items") for status in statuses}
        assert await w.audit() == []


async def test_law_16_a_changed_removed_or_added_entry_is_found(store_url: str) -> None:
    async with world(two_waits_app(), store=store_url) as w:
        run = await w.start("two")
        await w.signal(run.id, "first", {"amount": 100})
        await w.cancel(run.id)
        row = await w.runtime.store.run("default", run.id)
        assert row is not None
        pages = [(page.seq, page.entries) for page in await w.runtime.store.ledger(run.id)]
        head, seq = row.ledger_head, row.ledger_seq
        assert ledger.verify(pages, head, seq) is None
        forged = [(first, text.replace('"amount":100', '"amount":1')) for first, text in pages]
        assert forged != pages
        for tampered in (forged, pages[1:], pages[:-1], pages[::-1], [*pages, pages[-1]], [pages[0], *pages[2:]], []):
            assert ledger.verify(tampered, head, seq) is not None
