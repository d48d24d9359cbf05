"""`bide.Client(url, key=…)`: the methods of the client in the app's own process, over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf, nan
from typing import Any

import httpx
import pytest

import bide
from bide.core.samples import sample
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app


def remote(w: World, **options: Any) -> Any:
    return bide.Client("http://bide.test", http=w.http(**options))


async def test_a_run_is_started_watched_and_answered(store_url: str) -> None:
    """§12: the same methods."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("outreach", {"contact": 1}, correlation_key="c:1", tags={"city": "Bern"})

        assert (await run.refresh()).status == "waiting"
        assert [found.id for found in await client.runs(tags={"city": "Bern"})] == [run.id]
        assert [wait.run_id for wait in await client.waits(run_id=run.id)] == [run.id]
        receipt = await client.complete(f"approval-{run.id}", {"approved": True})
        assert receipt.outcome == "woke"
        assert await run.result(timeout="60s") == {"status": "sent", "reason": None}
        assert await client.result(run.id) == {"status": "sent", "reason": None}
        assert (await client.ledger(run.id))[0].name == "run_started"
        assert [step.id for step in await client.steps(run.id)] == ["gate"]
        assert await client.get(run.id) == await w.get(run.id)


async def test_errors_are_the_ones_of_the_client_in_process(store_url: str) -> None:
    """Typed errors, by the code of the problem."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("order", correlation_key="order:1")

        with pytest.raises(bide.RunNotFound):
            await client.get("run_7")
        with pytest.raises(bide.DefinitionNotFound):
            await client.start("ordr")
        with pytest.raises(bide.DuplicateRun):
            await client.start("order", correlation_key="order:1")
        with pytest.raises(bide.NoTarget):
            await client.signal("nobody", "paid")
        with pytest.raises(bide.Invalid):
            await client.start("typed", {"approved": "x"})
        with pytest.raises(bide.Forbidden):
            await remote(w, scopes=["runs:read"]).cancel(run.id)
        with pytest.raises(bide.RunTimeoutError):
            await client.result(run.id, timeout="1ms")
        with pytest.raises(bide.Unauthorized):
            await bide.Client("http://bide.test", http=httpx.AsyncClient(transport=w.http()._transport)).get("run_7")
        assert (await client.signal("nobody", "paid", check=False)).outcome == "no_target"
        await run.cancel("enough")
        assert run.status == "cancelled"
        with pytest.raises(bide.RunCancelledError):
            await run.result()


async def test_a_call_whose_answer_is_lost_is_made_again_and_done_once(store_url: str) -> None:
    """H2, law 5: the retry carries the same idempotency key."""
    async with world(app, store_url) as w:
        http = w.http()
        lost = 2

        class Lossy(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                nonlocal lost
                response = await http._transport.handle_async_request(request)
                if lost and request.method == "POST":
                    lost -= 1
                    raise httpx.ReadError("the connection broke")
                return response

        client = bide.Client("http://bide.test", http=httpx.AsyncClient(transport=Lossy(), headers=http.headers))
        run = await client.start("outreach")
        lost = 1
        receipt = await client.complete(f"approval-{run.id}", {"approved": True})

        assert receipt.duplicate
        assert [one.id for one in await client.runs()] == [run.id]
        assert (await run.result(timeout="60s"))["status"] == "sent"


async def test_H2_a_change_of_a_wait_whose_answer_is_lost_is_made_again_and_done_once(store_url: str) -> None:
    """H2, W10: the first try ended the wait, so that a second one would come too late."""
    async with world(app, store_url) as w:
        http, lost = w.http(), 0

        class Lossy(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                nonlocal lost
                response = await http._transport.handle_async_request(request)
                if request.method == "PATCH" and lost:
                    lost -= 1
                    await w.settle()
                    raise httpx.ReadError("the connection broke")
                return response

        client: Any = bide.Client("http://bide.test", http=httpx.AsyncClient(transport=Lossy(), headers=http.headers))
        first, second = await client.start("order"), await client.start("order")
        [wait] = await client.waits(run_id=first.id)
        lost = 1
        moved = await client.update_wait(wait.id, deadline="0s", reason="now")
        lost = 1
        changed = await client.update_waits(definition="order", deadline="0s", reason="now")

        assert (moved.id, moved.status) == (wait.id, "timed_out")
        assert changed.count == 1
        for run in (first, second):
            entries = [entry for entry in await w.ledger(run.id) if entry.data.get("reason") == "now"]
            assert len(entries) == 1


async def test_tasks_and_events_over_http(store_url: str) -> None:
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("task")
        [task] = await client.interactions(run_id=run.id)
        assert (await client.claim(task.id, "ann")).claimed_by == "ann"
        moved = await client.update_wait(task.wait_id, deadline="1d", reason="holidays")
        assert moved.deadline is not None
        assert (await client.answer(task.id, {"approved": True}, by="ann")).outcome == "woke"
        assert (await client.emit("order.shipped", {"order": 1}, id="evt-1")).started == 0


async def test_G5_a_key_counts_for_connections_of_the_callers_own_which_stay_open() -> None:
    """G5: the key that is given is the one that is used, whatever else they carry."""
    async with world(app) as w:
        http = w.http()
        key = http.headers["Authorization"].removeprefix("Bearer ")
        async with httpx.AsyncClient(transport=http._transport, headers={"Authorization": "Bearer x"}) as mine:
            async with bide.Client("http://bide.test", key=key, http=mine) as client:
                run: Any = await client.start("order")
                assert [found.id for found in await client.runs()] == [run.id]

            assert not mine.is_closed
            assert mine.headers["Authorization"] == "Bearer x"
            assert (await mine.get("http://bide.test/healthz")).status_code == 200


async def test_start_or_signal_is_one_call(store_url: str) -> None:
    """S11."""
    async with world(app, store_url) as w:
        client = remote(w)
        call = {"correlation_key": "order:1", "name": "paid", "payload": {"n": 1}, "dedup_key": "evt-1"}

        first = await client.start_or_signal("order", {"item": 7}, tags={"city": "Bern"}, **call)
        again = await client.start_or_signal("order", {"item": 7}, **call)

        assert (first.started, again.outcome, again.run_id) == (True, "duplicate", first.run_id)
        assert await client.result(first.run_id, timeout="1m") == {"paid": [{"n": 1}]}
        assert (await client.get(first.run_id)).tags == {"city": "Bern"}
        with pytest.raises(bide.DefinitionNotFound):
            await client.start_or_signal("ordr", correlation_key="order:2", name="paid")
        with pytest.raises(bide.Forbidden):
            await remote(w, scopes=["signals:send"]).start_or_signal("order", correlation_key="order:2", name="paid")


async def test_many_signals_are_delivered_together_or_not_at_all(store_url: str) -> None:
    """S11: `signal_many` is all or nothing."""
    async with world(app, store_url) as w:
        client = remote(w)
        first = await client.start("order", correlation_key="order:1")
        second = await client.start("order")

        with pytest.raises(bide.NoTarget):
            await client.signal_many([bide.SignalTo("order:1", "paid", 1), bide.SignalTo("nobody", "paid", 2)])
        assert await client.inbox(first.id) == []
        receipts = await client.signal_many([bide.SignalTo("order:1", "paid", 1), bide.SignalTo(second.id, "paid", 2)])

        assert [receipt.run_id for receipt in receipts] == [first.id, second.id]
        assert [(await run.result(timeout="1m"))["paid"] for run in (first, second)] == [[1], [2]]


async def test_a_run_is_found_by_the_correlation_key_that_it_holds(store_url: str) -> None:
    """S2: no key looks like an id, so that one call takes both."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("order", correlation_key="order/1")

        assert (await client.get("order/1")).id == (await w.get("order/1")).id == run.id
        with pytest.raises(bide.RunNotFound):
            await remote(w, workspace="other").get("order/1")
        await run.cancel()
        with pytest.raises(bide.RunNotFound):
            await client.get("order/1")


async def test_a_key_that_may_only_start_runs_gets_a_handle(store_url: str) -> None:
    """G5: the run is there, so the call that started it has not failed."""
    async with world(app, store_url) as w:
        run = await remote(w, scopes=["runs:start"]).start("order", {"item": 7}, correlation_key="order:1")

        found = await w.get(run.id)
        assert (run.info.correlation_key, run.info.input) == (found.correlation_key, {"item": 7})


async def test_W10_waits_are_found_and_changed_by_filter(store_url: str) -> None:
    """W10, over HTTP as in process."""
    async with world(app, store_url) as w:
        client = remote(w)
        runs = [await client.start("task") for _ in range(3)]
        await client.start("order")

        dry = await client.fail_waits(definition="task", reason="why not", dry_run=True)
        changed = await client.update_waits(definition="task", kind="task", to_assignee="ann", reason="holidays")
        failed = await client.fail_waits(run_id=runs[0].id, reason="why not")

        assert (dry.count, dry.ids) == (3, changed.ids)
        assert {one.assignee for one in await client.interactions(assignee="ann")} == {"ann"}
        left = [id for id in changed.ids if id not in failed.ids]
        assert [wait.id for wait in await client.waits(assignee="ann")] == left
        with pytest.raises(bide.BadInput):
            await client.cancel_waits(reason="all of them?")


async def test_W10_waits_are_answered_by_filter_over_http(store_url: str) -> None:
    """W10: as in process, with the reason in the ledger."""
    async with world(app, store_url) as w:
        client = remote(w)
        runs = [await client.start("task") for _ in range(2)]
        await w.settle()
        schema = (await client.waits(run_id=runs[0].id))[0].details["schema"]

        dry = await client.answer_waits(sample(schema), definition="task", reason="by phone", dry_run=True)
        wrong = await client.answer_waits([[]], definition="task", reason="by phone")
        done = await client.answer_waits(sample(schema), definition="task", reason="by phone")

        assert (dry.count, dry.ids) == (2, done.ids)
        assert [(one.outcome, bool(one.problems)) for one in wrong.outcomes] == [("invalid", True)] * 2
        entries = await client.ledger(runs[0].id)
        assert "by phone" in [entry.data.get("reason") for entry in entries if entry.name == "await_answer_received"]
        assert await client.waits(definition="task") == []


async def test_a_run_explains_itself_over_http(store_url: str) -> None:
    async with world(app, store_url) as w:
        run = await remote(w).start("order")

        said = await remote(w).explain(run.id, options="--url http://bide.test")

        assert said == await w.client().explain(run.id, options="--url http://bide.test")
        assert any(sentence.endswith("--url http://bide.test") for sentence in said.explanation)
        assert (await remote(w).progress(run.id)).expected == 0


@pytest.mark.parametrize("hold", ["10m", 600, timedelta(minutes=10)])
async def test_F7_an_answer_is_held_over_http_too(hold: Any) -> None:
    async with world(app) as w:
        receipt = await remote(w).complete("nobody-yet", {"approved": True}, hold=hold)
        assert (receipt.outcome, receipt.run_id) == ("queued", None)
        await w.advance("9m")
        assert await w.unused() == []
        await w.advance("1m")
        assert [kept.reason for kept in await w.unused()] == ["expired"]


@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_a_tag_is_found_by_its_name_and_a_name_has_no_equals_sign(store_url: str, form: str) -> None:
    """§12: `name=value` is how a tag is written over HTTP and on the command line; its value may have one."""
    async with world(app, store_url) as w:
        client = w.client() if form == "in process" else remote(w)
        run = await client.start("order", tags={"a": "b=c"})

        assert [found.id for found in await client.runs(tags={"a": "b=c"})] == [run.id]
        for call in (
            client.start("order", tags={"a=b": "c"}),
            client.start_or_signal("order", correlation_key="k", name="n", tags={"a=b": "c"}),
            client.runs(tags={"a=b": "c"}),
        ):
            with pytest.raises(bide.BadInput, match="tag name 'a=b'"):
                await call
        assert [found.id for found in await w.runs()] == [run.id]


@pytest.mark.parametrize("by", ["", "x" * 300_000, "ann\n", 7])
@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_W11_who_answers_has_a_name_however_the_answer_comes(form: str, by: Any) -> None:
    """W11: it goes into the ledger, and is compared with whom the wait is for."""
    async with world(app) as w:
        client, run = w.client() if form == "in process" else remote(w), await w.start("outreach")
        name = f"approval-{run.id}"
        for call in (client.complete, client.answer):
            with pytest.raises(bide.BadInput, match="by"):
                await call(name, {"approved": True}, by=by)
        task = await w.start("task")
        [interaction] = await client.interactions(run_id=task.id)
        for call in (client.claim, client.release):
            with pytest.raises(bide.BadInput, match="by"):
                await call(interaction.id, by)
        assert (await client.complete(name, {"approved": True}, by="ann")).outcome == "woke"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


DEEP: dict[str, Callable[[Any, str, Any], Awaitable[Any]]] = {
    "start": lambda client, run, deep: client.start("order", deep),
    "start or signal, input": lambda client, run, deep: client.start_or_signal(
        "order", deep, correlation_key="k", name="n"
    ),
    "start or signal, payload": lambda client, run, deep: client.start_or_signal(
        "order", correlation_key="k", name="n", payload=deep
    ),
    "signal": lambda client, run, deep: client.signal(run, "n", deep),
    "signals": lambda client, run, deep: client.signal_many([bide.SignalTo(run, "n", deep)]),
    "complete": lambda client, run, deep: client.complete("x", deep, hold="1h"),
    "answer": lambda client, run, deep: client.answer(run.replace("run_", "wait_") + "_1", deep),
    "emit": lambda client, run, deep: client.emit("news", deep),
}


@pytest.mark.parametrize("call", DEEP)
@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_S9_a_payload_of_64_levels_is_taken_and_one_of_65_is_not(form: str, call: str) -> None:
    """S9, §12: what it is wrapped in over HTTP is no level of it."""
    async with world(app) as w:
        client = w.client() if form == "in process" else remote(w)
        run = await w.start("order")

        with pytest.raises(bide.BadInput, match="deeper than 64 levels"):
            await DEEP[call](client, run.id, nested(65))
        assert await DEEP[call](client, run.id, nested(64))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", '{"definition":"order","input":DEEP}'),
        ("/v1/runs/RUN/signals", '{"name":"n","payload":DEEP}'),
        ("/v1/signals", '{"correlation_key":"k","name":"n","payload":1,"start":{"definition":"order","input":DEEP}}'),
        ("/v1/signals", '{"correlation_key":"k","name":"n","payload":DEEP,"start":{"definition":"order"}}'),
        ("/v1/signals/many", '{"signals":[{"target":"RUN","name":"n","payload":DEEP}]}'),
        ("/v1/events", '{"name":"n","data":DEEP}'),
    ],
)
async def test_H3_a_server_counts_the_levels_of_the_payload(path: str, body: str) -> None:
    """H3: whoever sends it."""
    async with world(app) as w:
        run, http = await w.start("order"), w.http()
        path, body = path.replace("RUN", run.id), body.replace("RUN", run.id)

        refused, taken = [
            await http.post(path, content=body.replace("DEEP", "[" * levels + "]" * levels)) for levels in (65, 64)
        ]

        assert (refused.status_code in (400, 422), taken.is_success) == (True, True), taken.text
        assert "deeper than 64 levels" in refused.json()["detail"]


@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_no_status_is_every_status(form: str) -> None:
    """§12: `status=None` is for all; `all` is a word of the URL alone."""
    async with world(app) as w:
        client = w.client() if form == "in process" else remote(w)
        run = await w.start("task")
        [interaction] = await client.interactions(run_id=run.id)
        await w.answer(interaction.id, {"approved": True}, by="ann")

        assert await client.waits() == await client.interactions() == []
        assert [wait.id for wait in await client.waits(status=None)] == [interaction.wait_id]
        for status in (None, (), ["waiting", "completed"]):
            assert [found.id for found in await client.interactions(status=status)] == [interaction.id]


Call = Callable[[Any], Awaitable[Any]]
BEFORE = timedelta(days=-1)
HALF = "\ud800"  # of a pair: no UTF-8 can carry it
LONG = "x" * 70_000  # longer than any URL
NOBODY = "run_01b8dac5b40000000000000000000000"

WRONG_DATA: dict[str, Call] = {
    "complete with NaN": lambda client: client.complete("zz", nan),
    "complete with an object": lambda client: client.complete("zz", object()),
    "complete with half a pair": lambda client: client.complete("zz", HALF),
    "answer with NaN": lambda client: client.answer("zz", nan),
    "signal with a large number": lambda client: client.signal("zz", "n", 2**64),
    "signal with a large number, told": lambda client: client.signal("zz", "n", 2**64, check=False),
    "signals with NaN": lambda client: client.signal_many([bide.SignalTo("zz", "n", nan)]),
    "start with NaN": lambda client: client.start("order", nan),
    "start or signal with NaN": lambda client: client.start_or_signal(
        "order", correlation_key="k", name="n", payload=nan
    ),
    "emit an object": lambda client: client.emit("a", object()),
    "cancel for an object": lambda client: client.cancel(NOBODY, reason=HALF),
}
WRONG_TIMES: dict[str, Call] = {
    "hold until before": lambda client: client.complete("zz", 1, hold=BEFORE),
    "hold for ever": lambda client: client.complete("zz", 1, hold=inf),
    "hold for NaN": lambda client: client.complete("zz", 1, hold=nan),
    "hold for no time": lambda client: client.complete("zz", 1, hold=0),
    "hold for true": lambda client: client.complete("zz", 1, hold=True),
    "hold for an object": lambda client: client.complete("zz", 1, hold=object()),
    "delay until before": lambda client: client.start("order", delay=BEFORE),
    "delay for ever": lambda client: client.start("order", delay=inf),
    "delay by a text": lambda client: client.start("order", delay="soon"),
    "delay of a signal": lambda client: client.start_or_signal("order", correlation_key="k", name="n", delay=BEFORE),
    "result before": lambda client: client.result(NOBODY, timeout=BEFORE),
    "older than what comes": lambda client: client.waits(older_than=BEFORE),
    "deadline before": lambda client: client.update_wait(NOBODY.replace("run_", "wait_") + "_1", deadline=BEFORE),
    "deadline at infinity": lambda client: client.update_wait(NOBODY.replace("run_", "wait_") + "_1", deadline=inf),
}


def named(method: str, name: str, *more: Any) -> Call:
    return lambda client: getattr(client, method)(name, *more)


WRONG_NAMES: dict[str, Call] = {
    f"{method} {name[:6]!r}": named(method, name, *more)
    for method, more in {
        "get": (), "cancel": (), "result": (), "retry": (), "inbox": (), "steps": (), "ledger": (), "progress": (),
        "explain": (), "wait": (), "heartbeat": (), "fail_wait": ("r",), "interaction": (), "claim": ("ann",),
        "retry_dead_letter": (), "discard_dead_letter": (), "readdress": (NOBODY,), "answer": (1,),
        "complete": (1,), "signal": ("n",),
    }.items()
    for name in ("", HALF, LONG, "a\nb", f"run_{HALF}", f"run_{LONG}", ".", "..", "...", "a/../b", "?", "%2E", "+ &")
}  # fmt: skip
WRONG_FILTERS: dict[str, Call] = {
    "a long key": lambda client: client.runs(correlation_key=LONG),
    "half a definition": lambda client: client.runs(definition=HALF),
    "tags that are none": lambda client: client.runs(tags=7),
    "waits of half a run": lambda client: client.waits(run_id=HALF),
    "waits of a long run": lambda client: client.waits(run_id=LONG),
    "interactions of half a run": lambda client: client.interactions(run_id=HALF),
    "half a kind": lambda client: client.waits(kind=HALF),
    "half a channel": lambda client: client.interactions(channel=HALF),
    "waits of all statuses": lambda client: client.waits(status="all"),
    "waits of no status": lambda client: client.waits(status=""),
    "interactions of all statuses": lambda client: client.interactions(status="all"),
    "interactions of all, in a list": lambda client: client.interactions(status=["all"]),
    "interactions of no status": lambda client: client.interactions(status=""),
    "runs of all statuses": lambda client: client.runs(status="all"),
    "a number as a key": lambda client: client.start("order", correlation_key=7),
    "a number as a target": lambda client: client.signal(7, "n"),
    "a number as a run": lambda client: client.get(7),
    "texts as a priority": lambda client: client.start("order", priority="high"),
}


async def came_of(call: Call, client: Any) -> Any:
    try:
        return await call(client)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=name)
        for calls in (WRONG_DATA, WRONG_TIMES, WRONG_NAMES, WRONG_FILTERS)
        for name, call in calls.items()
    ],
)
async def test_a_wrong_call_is_the_same_error_over_http(call: Call) -> None:
    """§12: the same methods; what httpx, a URL or JSON cannot carry is refused as the client in process does."""
    async with world(app) as w:
        here, there = await came_of(call, w.client()), await came_of(call, remote(w))

        if isinstance(here, bide.Receipt):
            assert (there.outcome, bool(there.reason)) == (here.outcome, bool(here.reason)) == ("invalid", True)
        else:
            assert there is here
            assert issubclass(here, bide.BideError)


@pytest.mark.parametrize(
    ("target", "name", "key"), [("", "x", None), ("wait_1", "x", None), ("a", "", None), ("a", "x", "")]
)
async def test_S10_a_signal_that_is_wrong_itself_is_not_said_to_have_a_payload_that_does_not_fit(
    target: str, name: str, key: str | None
) -> None:
    async with world(app) as w:
        await w.start("order", correlation_key="a")
        said = []
        for client in (w.client(), remote(w)):
            with pytest.raises(bide.BadInput) as raised:
                await client.signal(target, name, None, key)
            said.append(str(raised.value))
        assert said[0] == said[1]
        assert "cannot be used" in said[0] or "bide's own" in said[0]
        assert "declared type" not in said[0]


@pytest.mark.parametrize("name", [".", "..", "...", "a/../b", "%2E%2E"])
async def test_an_id_of_dots_is_reached_over_http(store_url: str, name: str) -> None:
    """§12, S2: dots in a path lead elsewhere, so they are quoted."""
    async with world(app, store_url) as w:
        client = remote(w)
        run = await client.start("order", correlation_key=name)
        assert (await client.get(name)).id == run.id
        assert (await client.complete(name, 1, hold="1h")).outcome == "queued"
        assert (await client.signal(name, "paid")).run_id == run.id


@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_S7_a_dedup_conflict_names_its_key(store_url: str, form: str) -> None:
    """S7: of a signal id, an interaction and a wait, as of a signal."""
    async with world(app, store_url) as w:
        client = w.client() if form == "in process" else remote(w)
        run = await client.start("outreach")
        task = await client.start("task")
        await w.settle()
        [interaction] = await client.interactions(run_id=task.id)
        for target in (f"approval-{run.id}", interaction.id):
            await client.answer(target, {"approved": True}, dedup_key="evt-1")
        for target in (f"approval-{run.id}", interaction.id, interaction.wait_id):
            with pytest.raises(bide.DedupConflict, match="dedup key 'evt-1' was used") as raised:
                await client.answer(target, {"approved": False}, dedup_key="evt-1")
            assert raised.value.dedup_key == "evt-1"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://a\nb", "http://", "http://:80", "http://a:0",
        "http://a b", "http://[::1", "http://a..b", f"http://{'a' * 64}.example", "http://\ud800", "http://a/\ud800",
        "http://xn--a", "http://a:-1", "http://a?x=1", "http://a#x", f"http://{'a' * 70_000}", "ftp://a", "a", "",
    ],
    ids=lambda url: ascii(url[:30]),
)  # fmt: skip
def test_a_url_that_leads_nowhere_is_refused_before_anything_is_sent(url: str) -> None:
    """BadConfiguration, as every setting that cannot be used."""
    with pytest.raises(bide.BadConfiguration, match=r"^url .*write it as"):
        bide.Client(url, "bide_ws_x")


@pytest.mark.parametrize("key", ["é", "a\nb", "a\n", " a", "a b", "a\0", "\ud800"], ids=ascii)
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(bide.BadConfiguration, match=r"^key ") as raised:
        bide.Client("http://bide.test", key)
    assert key not in str(raised.value).removeprefix("key ")


@pytest.mark.parametrize("url", ["http://a", "https://a:8080/flows/", "http://[::1]:80", "http://ü.example/x"])
async def test_a_url_that_leads_somewhere_is_taken(url: str) -> None:
    async with bide.Client(url, "bide_ws_x") as client:
        assert client.url == url.rstrip("/")
