"""H2 as a table: every POST and PATCH under an idempotency key, made again with the same body, and with another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from bide.server import ENDPOINTS
from bide.server.openapi import document
from bide.testing import world
from tests.server.test_every_status import ASKED, LETTER, NO, RUN, SIGNAL, WAIT, YES, Desk, app

Prepared = tuple[str, Any, Any]  # the path, a body, and another one that could be taken as well
Prepare = Callable[[Desk], Awaitable[Prepared]]


async def _complete(desk: Desk) -> Prepared:
    return f"/v1/signals/gate-{await desk.run('gate')}/complete", {"data": YES}, {"data": NO}


async def _hold(desk: Desk) -> Prepared:
    return f"/v1/signals/{desk.fresh()}/complete", {"data": 1, "hold": "10m"}, {"data": 2, "hold": "10m"}


async def _start(desk: Desk) -> Prepared:
    return "/v1/runs", {"definition": "order"}, {"definition": "order", "input": 1}


async def _start_where_one_is(desk: Desk) -> Prepared:
    key = desk.fresh()
    await desk.run("order", correlation_key=key)
    body = {"definition": "order", "correlation_key": key, "if_exists": "return"}
    return "/v1/runs", body, {**body, "input": 1}


async def _signal(desk: Desk) -> Prepared:
    return f"/v1/runs/{await desk.run('order')}/signals", {"name": "a"}, {"name": "b"}


async def _by_key(desk: Desk) -> Prepared:
    key = desk.fresh()
    await desk.run("order", correlation_key=key)
    return "/v1/signals", {"correlation_key": key, "name": "a"}, {"correlation_key": key, "name": "b"}


async def _start_or_signal(desk: Desk) -> Prepared:
    body = {"correlation_key": desk.fresh(), "name": "a", "start": {"definition": "order"}}
    return "/v1/signals", body, {**body, "name": "b"}


async def _many(desk: Desk) -> Prepared:
    run = await desk.run("order")
    one, other = ({"signals": [{"target": run, "name": name}]} for name in "ab")
    return "/v1/signals/many", one, other


async def _cancel(desk: Desk) -> Prepared:
    return f"/v1/runs/{await desk.run('order')}/cancel", {"reason": "a"}, {"reason": "b"}


async def _retry_failed(desk: Desk) -> Prepared:
    return f"/v1/runs/{await desk.run('broken')}/retry", {}, {"from_step": None}


async def _retry_held(desk: Desk) -> Prepared:
    for _ in range(2):
        desk.world.crash_at("drink", "before")
    return f"/v1/runs/{await desk.run('poison')}/retry", {}, {"from_step": "drink"}


async def _event(desk: Desk) -> Prepared:
    return "/v1/events", {"name": "news.a", "data": 1}, {"name": "news.a", "data": 2}


async def _event_then_one_with_id(desk: Desk) -> Prepared:
    return "/v1/events", {"name": "news.a", "data": 1}, {"name": "news.a", "data": 1, "id": desk.fresh()}


async def _event_with_id_then_one_without(desk: Desk) -> Prepared:
    return "/v1/events", {"name": "news.a", "data": 1, "id": desk.fresh()}, {"name": "news.a", "data": 1}


async def _event_with_id(desk: Desk) -> Prepared:
    return "/v1/events", {"name": "news.a", "id": desk.fresh()}, {"name": "news.a", "id": desk.fresh()}


async def _answer(desk: Desk) -> Prepared:
    return f"{await desk.task()}/complete", {"data": YES}, {"data": NO}


async def _answer_wait(desk: Desk) -> Prepared:
    return f"{await desk.wait()}/complete", {"data": YES}, {"data": NO}


async def _claim(desk: Desk) -> Prepared:
    return f"{await desk.task()}/claim", {"by": "ann"}, {"by": "bob"}


async def _release(desk: Desk) -> Prepared:
    path = await desk.task()
    await desk.posted(f"{path}/claim", {"by": "ann"})
    return f"{path}/release", {"by": "ann"}, {"by": "bob"}


async def _assign(desk: Desk) -> Prepared:
    return f"{await desk.task()}/assign", {"assignee": "ann"}, {"assignee": "bob"}


def _with_reason(path: Callable[[Desk], Awaitable[str]], last: str) -> Prepare:
    async def prepared(desk: Desk) -> Prepared:
        return f"{await path(desk)}/{last}", {"reason": "a"}, {"reason": "b"}

    return prepared


async def _move(desk: Desk) -> Prepared:
    return await desk.wait(), {"deadline": "0s"}, {"deadline": "1d"}  # its time is up, so that it has ended by then


async def _heartbeat(desk: Desk) -> Prepared:
    return f"{await desk.wait()}/heartbeat", {}, " {}"


async def _readdress(desk: Desk) -> Prepared:
    return await desk.unused(), {"target": await desk.run("order")}, {"target": await desk.run("order")}


def _letter(last: str) -> Prepare:
    async def prepared(desk: Desk) -> Prepared:
        return f"{await desk.letter()}/{last}", {}, " {}"

    return prepared


CALLS: list[tuple[str, Prepare]] = [
    (f"{SIGNAL}/{{signal_id}}/complete", _complete),
    (f"{SIGNAL}/{{signal_id}}/complete", _hold),
    ("/v1/runs", _start),
    ("/v1/runs", _start_where_one_is),
    (f"{RUN}/signals", _signal),
    (SIGNAL, _by_key),
    (SIGNAL, _start_or_signal),
    (f"{SIGNAL}/many", _many),
    (f"{RUN}/cancel", _cancel),
    (f"{RUN}/retry", _retry_failed),
    (f"{RUN}/retry", _retry_held),
    ("/v1/events", _event),
    ("/v1/events", _event_with_id),
    ("/v1/events", _event_then_one_with_id),
    ("/v1/events", _event_with_id_then_one_without),
    (f"{ASKED}/complete", _answer),
    (f"{ASKED}/claim", _claim),
    (f"{ASKED}/release", _release),
    (f"{ASKED}/assign", _assign),
    (f"{ASKED}/fail", _with_reason(Desk.task, "fail")),
    (WAIT, _move),
    (f"{WAIT}/complete", _answer_wait),
    (f"{WAIT}/fail", _with_reason(Desk.wait, "fail")),
    (f"{WAIT}/cancel", _with_reason(Desk.wait, "cancel")),
    (f"{WAIT}/heartbeat", _heartbeat),
    ("/v1/unused/{unused_id}/readdress", _readdress),
    (f"{LETTER}/retry", _letter("retry")),
    (f"{LETTER}/discard", _letter("discard")),
]


METHODS = {endpoint.path: endpoint.method for endpoint in ENDPOINTS if endpoint.method in ("POST", "PATCH")}


def test_every_call_that_changes_something_is_in_the_table() -> None:
    """A resume link is its own key: the same body again is a duplicate, another one is refused (law 5)."""
    assert {path for path, _ in CALLS} == METHODS.keys() - {"/resume/{token}"}


def test_H2_the_description_names_the_header_wherever_it_counts() -> None:
    paths = document(ENDPOINTS, "1")["paths"]
    for path, method in METHODS.items():
        names = {parameter["name"] for parameter in paths[path][method.lower()]["parameters"]}
        assert ("Idempotency-Key" in names) == (path != "/resume/{token}"), path


async def ask(desk: Desk, method: str, path: str, body: Any, key: str) -> httpx.Response:
    sent: dict[str, Any] = {"content": body} if isinstance(body, str) else {"json": body}
    return await desk.http.request(method, path, headers={"Idempotency-Key": key}, **sent)


async def test_H2_the_same_key_and_body_gets_the_first_answer_and_another_body_409(store_url: str) -> None:
    async with world(app, store_url, max_claims=2) as w:
        desk = Desk(w)
        for call, prepare in CALLS:
            label = f"{call}, {prepare.__name__}"
            path, body, other = await prepare(desk)
            key = desk.fresh("key")  # one for each: not every path has an id
            method = METHODS[call]
            first, again = await ask(desk, method, path, body, key), await ask(desk, method, path, body, key)
            assert first.is_success, (label, first.text)
            assert (again.status_code, said(again)) == (first.status_code, said(first)), label
            conflict = await ask(desk, method, path, other, key)
            assert (conflict.status_code, conflict.json()["code"]) == (409, "idempotency_conflict"), label


def said(response: httpx.Response) -> Any:
    """The answer, but for what says that it is a repeat. A run or a wait is shown as it is now, so by its id alone."""
    found = response.json()
    if "status" in found and "definition" not in found:
        return found["id"]
    for receipt in (found, *found.get("receipts", ())):
        receipt.pop("duplicate", None)
        receipt.pop("outcome", None)
    return found


@pytest.mark.parametrize("retention", ["1d", "30d"])
async def test_H2_a_key_is_known_for_seven_days_also_where_runs_are_not(store_url: str, retention: str) -> None:
    """Kept 7 days, and not longer."""
    async with world(app, store_url, retention=retention) as w:
        http, body = w.http(), {"definition": "echo", "input": YES}
        first = (await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})).json()["id"]
        await w.advance("6d")
        again = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["id"]) == (201, first)
        await w.advance("2d")
        new = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
        assert new.json()["id"] != first


async def test_H2_the_repeat_of_a_release_is_one_also_after_the_run_has_failed(store_url: str) -> None:
    async with world(app, store_url, max_claims=2) as w:
        desk = Desk(w)
        path, body, _ = await _retry_held(desk)
        stubbed = w.stub("drink", raises=RuntimeError("no"))
        first = await desk.http.post(path, json=body, headers={"Idempotency-Key": "k"})
        await w.advance("1d")
        again = await desk.http.post(path, json=body, headers={"Idempotency-Key": "k"})
        assert stubbed
        assert (await w.get(first.json()["id"])).status == "failed"
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


async def test_H2_the_repeat_of_a_start_that_was_given_another_run_gets_that_run_after_its_end(store_url: str) -> None:
    """H2: the first answer was a run, not a refusal; a repeat of it starts none."""
    async with world(app, store_url) as w:
        http, holder = w.http(), await w.start("order", correlation_key="order:1")
        body = {"definition": "order", "correlation_key": "order:1", "if_exists": "return"}
        first = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
        await w.cancel(holder.id)
        again = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})

        assert (first.status_code, first.json()["id"]) == (201, holder.id)
        assert (again.status_code, again.json()["id"], again.json()["status"]) == (201, holder.id, "cancelled")
        assert [run.id for run in await w.runs()] == [holder.id]
        await w.advance("7d")
        new = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
        assert new.json()["id"] != holder.id


async def test_H2_a_start_that_was_refused_is_tried_again_under_its_key(store_url: str) -> None:
    """H2: refusals are not kept."""
    async with world(app, store_url) as w:
        http, holder = w.http(), await w.start("order", correlation_key="order:1")
        body = {"definition": "order", "correlation_key": "order:1"}
        refused = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
        await w.cancel(holder.id)
        taken = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})

        assert (refused.status_code, taken.status_code) == (409, 201)
