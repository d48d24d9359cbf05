"""The table of calls (§7) as a table of tests: for each call and each status it may have, a request that gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec
import pytest

import bide
from bide.core.records import RunId
from bide.core.requests import KeepPoison
from bide.server import ENDPOINTS
from bide.server.tries import GUESSES
from bide.testing import world
from bide.testing.world import World
from tests.server.test_resume_links import fields

RUN, SIGNAL, WAIT, ASKED = (
    "/v1/runs/{run_id}",
    "/v1/signals",
    "/v1/waits/{wait_id}",
    "/v1/interactions/{interaction_id}",
)
LETTER = "/v1/dead-letters/{letter_id}"

TABLE: dict[str, set[int]] = {
    f"POST {SIGNAL}/{{signal_id}}/complete": {200, 202, 404, 409, 410, 413, 422},
    "GET /resume/{token}": {200, 404, 410, 429},
    "POST /resume/{token}": {200, 202, 401, 403, 404, 410, 413, 422, 429, 503},
    "POST /v1/runs": {201, 404, 409, 422},
    "GET /v1/runs": {200, 422},
    f"GET {RUN}": {200, 404},
    f"GET {RUN}/ledger": {200, 404},
    f"GET {RUN}/inbox": {200, 404},
    f"GET {RUN}/steps": {200, 404},
    f"GET {RUN}/progress": {200, 404},
    f"GET {RUN}/explanation": {200, 404},
    f"GET {RUN}/result": {200, 202, 404},
    f"POST {RUN}/signals": {202, 404, 409, 413, 422},
    f"POST {SIGNAL}": {202, 404, 409, 413, 422},
    f"POST {SIGNAL}/many": {202, 404, 409, 413, 422},
    f"POST {RUN}/cancel": {202, 404, 409},
    f"POST {RUN}/retry": {202, 404, 409},
    "POST /v1/events": {202, 409, 413, 422},
    "GET /v1/interactions": {200, 422},
    f"GET {ASKED}": {200, 404},
    f"POST {ASKED}/complete": {200, 404, 409, 410, 422},
    f"POST {ASKED}/claim": {200, 404, 409, 410, 422},
    f"POST {ASKED}/release": {200, 404, 409, 410, 422},
    f"POST {ASKED}/assign": {200, 404, 409, 410, 422},
    f"POST {ASKED}/fail": {200, 404, 409, 410, 422},
    "GET /v1/waits": {200, 422},
    f"GET {WAIT}": {200, 404},
    f"PATCH {WAIT}": {200, 404, 409, 410, 422},
    f"POST {WAIT}/complete": {200, 404, 409, 410, 422},
    f"POST {WAIT}/fail": {200, 404, 409, 410, 422},
    f"POST {WAIT}/cancel": {200, 404, 409, 410, 422},
    f"POST {WAIT}/heartbeat": {200, 404, 409, 410, 422},
    "GET /v1/definitions": {200},
    "GET /v1/unused": {200, 422},
    "POST /v1/unused/{unused_id}/readdress": {200, 404, 409, 410, 422},
    "GET /v1/dead-letters": {200, 422},
    f"POST {LETTER}/retry": {200, 404, 409},
    f"POST {LETTER}/discard": {200, 404, 409},
    "GET /v1/stream": {200, 400, 404},
    "GET /healthz": {200},
    "GET /readyz": {200, 503},
    "GET /metrics": {200},
    "GET /openapi.json": {200},
    "GET /docs": {200},
}

YES, NO = {"approved": True}, {"approved": False}
LARGE = "x" * 600_000
NOBODY = {
    "run_id": "run_01b8dac5b40000000000000000000000",
    "wait_id": "wait_01b8dac5b40000000000000000000000_1",
    "interaction_id": "int_01b8dac5b40000000000000000000000_1_0",
    "signal_id": "nobody",
    "letter_id": "nobody",
    "unused_id": "msg_01b8dac5b40000000000000000000000",
    "token": "nobody",
}
GOOD_BODIES: dict[str, Any] = {
    "complete": {"data": YES},
    "signals": {"name": "seen"},
    "fail": {"reason": "why"},
    "cancel": {"reason": "why"},
    "assign": {"assignee": "ann"},
    "readdress": {"target": "nobody"},
    "{wait_id}": {"deadline": "2h"},
}

app = bide.App("statuses", store="memory://")
LINKS: dict[str, str] = {}


class Approval(msgspec.Struct):
    approved: bool


@app.workflow("gate")
async def gate(step: bide.Step, event: Any) -> Any:
    return await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1h", returns=Approval)


@app.workflow("shared")
async def shared(step: bide.Step, signal: str) -> Any:
    return await step.wait_for_signal("gate", signal=signal, timeout="1h")


@app.workflow("task")
async def task(step: bide.Step, event: Any) -> Any:
    return await step.ask("review", title="Fine?", form=Approval, timeout="1h", heartbeat="10m")


@app.workflow("given")
async def given(step: bide.Step, event: Any) -> Any:
    return await step.ask(
        "review", title="Fine?", form=Approval, timeout="1h", assignee="ann", group="board", channel="chat"
    )


@app.workflow("link")
async def link(step: bide.Step, name: str) -> Any:
    callback = await step.callback("link", timeout="1h", returns=Approval, accept="!has(data.ping)")
    await step.run("send", LINKS.__setitem__, name, callback.url)
    return await callback


app.signature("provider", bide.WebhookSignature("whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"))


@app.workflow("signed link")
async def signed_link(step: bide.Step, name: str) -> Any:
    callback = await step.callback("link", timeout="1h", signed="provider")
    await step.run("send", LINKS.__setitem__, name, callback.url)
    return await callback


@app.workflow("listening")
async def listening(step: bide.Step, name: str) -> Any:
    return (await step.wait_for_event("news", event=f"{name}.*", timeout="1h")).data


@app.workflow("started", trigger="news.*")
async def started(step: bide.Step, data: Any) -> Any:
    return data


@app.workflow("echo")
async def echo(step: bide.Step, approval: Approval) -> Any:
    return approval.approved


@app.workflow("broken", retries=0)
async def broken(step: bide.Step, event: Any) -> Any:
    raise RuntimeError("it broke")


@app.workflow("poison")
async def poison(step: bide.Step, event: Any) -> Any:
    return await step.run("drink", lambda: "survived")


@app.machine("order")
class Order:
    @bide.start
    def begin(self, ctx: bide.Context[Any]) -> Any:
        return bide.Await("paid", then="ship", timeout="1h")

    def ship(self, ctx: bide.Context[Any]) -> Any:
        return bide.Done([signal.payload for signal in ctx.awaited])


@app.notifier
def mail(task: bide.Task) -> None:
    raise bide.NonRetryable("no mail today")


@app.workflow("told")
async def told(step: bide.Step, event: Any) -> Any:
    return await step.ask("review", title="Fine?", form=Approval, timeout="1h", notify="mail")


class Desk:
    """A world, and what is there to ask for in it."""

    def __init__(self, w: World) -> None:
        self.world = w
        self.http = w.http()
        self._numbers = count(1)

    def fresh(self, word: str = "name") -> str:
        return f"{word}-{next(self._numbers)}"

    async def run(self, definition: str, input: Any = None, **options: Any) -> str:
        return (await self.world.start(definition, input, **options)).id

    async def wait(self, definition: str = "task") -> str:
        [found] = await self.world.waits(run_id=await self.run(definition))
        return f"/v1/waits/{found.id}"

    async def task(self, definition: str = "task") -> str:
        [found] = await self.world.interactions(run_id=await self.run(definition))
        return f"/v1/interactions/{found.id}"

    async def link(self, definition: str = "link") -> str:
        name = self.fresh()
        await self.run(definition, name)
        return urlsplit(LINKS[name]).path

    async def letter(self) -> str:
        run = await self.run("told")
        [found] = [letter.id for letter in await self.world.dead_letters() if letter.run_id == run]
        return f"/v1/dead-letters/{quote(found, safe='')}"

    async def unused(self) -> str:
        receipt = await self.world.signal(self.fresh("nobody"), "paid", 7, check=False)
        assert receipt.outcome == "no_target"
        return f"/v1/unused/{(await self.world.unused())[-1].id}/readdress"

    async def used_otherwise(self, path: str, first: str, then: str) -> httpx.Response:
        """The same idempotency key with two bodies (H2)."""
        headers = {"Idempotency-Key": self.fresh("once"), "Content-Type": "application/json"}
        taken = await self.http.post(path, content=first, headers=headers)
        assert taken.is_success, taken.text
        return await self.http.post(path, content=then, headers=headers)

    async def posted(self, path: str, body: Any, *, first: Any = None) -> httpx.Response:
        if first is not None:
            taken = await self.http.post(path, json=first)
            assert taken.is_success, taken.text
        return await self.http.post(path, json=body)


Case = Callable[[Desk], Awaitable[httpx.Response]]
CASES: list[tuple[str, int, Case]] = []


def case(call: str, status: int) -> Callable[[Case], Case]:
    def noted(asked: Case) -> Case:
        CASES.append((call, status, asked))
        return asked

    return noted


def unknown(call: str) -> Case:
    """The call for something that is nowhere."""
    method, _, path = call.partition(" ")
    body = GOOD_BODIES.get(path.rpartition("/")[2], {}) if method != "GET" else None

    async def asked(desk: Desk) -> httpx.Response:
        return await desk.http.request(method, path.format_map(NOBODY), json=body)

    return asked


for _call in TABLE:
    if "{" in _call:
        case(_call, 404)(unknown(_call))
    elif 422 in TABLE[_call] and _call.startswith("GET"):
        case(_call, 422)(lambda desk, path=_call[4:]: desk.http.get(path, params={"limt": 5}))  # type: ignore[misc]


# ---------------------------------------------------------------- answers to signal ids


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 200)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("gate")
    response = await desk.posted(f"/v1/signals/gate-{run}/complete", {"data": YES})
    assert response.json()["outcome"] == "woke"
    assert await desk.world.result(run) == YES
    return response


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 202)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/signals/{desk.fresh()}/complete", {"data": 1, "hold": "10m"})


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 404)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("gate")
    await desk.world.cancel(run)
    return await desk.posted(f"/v1/signals/gate-{run}/complete", {"data": YES})


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 409)
async def _(desk: Desk) -> httpx.Response:
    name = desk.fresh()
    first, _ = await desk.run("shared", name), await desk.run("shared", name)
    response = await desk.posted(f"/v1/signals/{name}/complete", {"data": 1})
    assert (await desk.posted(f"/v1/signals/{name}/complete", {"data": 1, "run_id": first})).status_code == 200
    return response


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 410)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/signals/gate-{await desk.run('gate')}/complete", {"data": YES}, first={"data": YES})


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 410)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("gate")
    await desk.world.advance("1h")
    return await desk.posted(f"/v1/signals/gate-{run}/complete", {"data": YES})


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 413)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/signals/gate-{await desk.run('gate')}/complete", {"data": LARGE})


@case(f"POST {SIGNAL}/{{signal_id}}/complete", 422)
async def _(desk: Desk) -> httpx.Response:
    path = f"/v1/signals/gate-{await desk.run('gate')}/complete"
    assert (await desk.posted(path, {})).status_code == 422
    return await desk.posted(path, {"data": {"approved": "yes"}})


# ---------------------------------------------------------------- resume links


@case("GET /resume/{token}", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get(await desk.link())


@case("GET /resume/{token}", 410)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.link()
    await desk.posted(path, YES)
    return await desk.http.get(path)


@case("POST /resume/{token}", 200)
async def _(desk: Desk) -> httpx.Response:
    response = await desk.posted(await desk.link(), YES, first=YES)
    assert response.json()["duplicate"]
    return response


@case("POST /resume/{token}", 200)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.link()
    nonce = fields((await desk.http.get(path)).text)
    return await desk.http.post(path, data={**nonce, "data.approved": "true"})


@case("POST /resume/{token}", 202)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.link(), {"ping": 1})


@case("POST /resume/{token}", 410)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.link(), NO, first=YES)


@case("POST /resume/{token}", 410)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.link()
    await desk.world.advance("1h")
    return await desk.posted(path, YES)


@case("POST /resume/{token}", 413)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.link(), LARGE)


@case("POST /resume/{token}", 422)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.link(), {"approved": "yes"})


# ---------------------------------------------------------------- runs


@case("POST /v1/runs", 201)
async def _(desk: Desk) -> httpx.Response:
    response = await desk.posted("/v1/runs", {"definition": "echo", "input": YES, "delay": "1h"})
    run = response.json()["id"]
    await desk.world.advance("59m")
    assert (await desk.world.get(run)).status == "ready"
    await desk.world.advance("1m")
    assert await desk.world.result(run) is True
    return response


@case("POST /v1/runs", 404)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/runs", {"definition": "nobody"})


@case("POST /v1/runs", 409)
async def _(desk: Desk) -> httpx.Response:
    body = {"definition": "order", "correlation_key": desk.fresh()}
    return await desk.posted("/v1/runs", body, first=body)


@case("POST /v1/runs", 422)
async def _(desk: Desk) -> httpx.Response:
    assert (await desk.posted("/v1/runs", {"definition": "echo", "delay": "soon"})).status_code == 422
    return await desk.posted("/v1/runs", {"definition": "echo", "input": {"approved": "yes"}})


@case("GET /v1/runs", 200)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("order", correlation_key="order:7", tags={"city": "Bern"})
    await desk.run("echo", YES)
    for query in ("tag=city=Bern", "definition=order", "status=waiting", "correlation_key=order:7"):
        [found] = (await desk.http.get(f"/v1/runs?{query}")).json()["items"]
        assert found["id"] == run, query
    return await desk.http.get("/v1/runs")


for _part in ("", "/ledger", "/inbox", "/steps", "/progress", "/explanation"):

    @case(f"GET {RUN}{_part}", 200)
    async def _(desk: Desk, part: str = _part) -> httpx.Response:
        return await desk.http.get(f"/v1/runs/{await desk.run('gate')}{part}")


@case(f"GET {RUN}/result", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get(f"/v1/runs/{await desk.run('echo', YES)}/result?wait=30s")


@case(f"GET {RUN}/result", 202)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get(f"/v1/runs/{await desk.run('gate')}/result")


@case(f"POST {RUN}/cancel", 202)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/runs/{await desk.run('gate')}/cancel", {"reason": "why"})


@case(f"POST {RUN}/cancel", 409)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/runs/{await desk.run('echo', YES)}/cancel", {})


@case(f"POST {RUN}/retry", 202)
async def _(desk: Desk) -> httpx.Response:
    """Held: released."""
    for _ in range(2):
        desk.world.crash_at("drink", "before")
    run = await desk.run("poison")
    assert [held["id"] for held in (await desk.http.get("/v1/runs?held=true")).json()["items"]] == [run]
    response = await desk.posted(f"/v1/runs/{run}/retry", {})
    assert response.json()["id"] == run
    assert await desk.world.result(run) == "survived"
    return response


@case(f"POST {RUN}/retry", 202)
async def _(desk: Desk) -> httpx.Response:
    """Failed: the new run's id."""
    run = await desk.run("broken")
    response = await desk.posted(f"/v1/runs/{run}/retry", {})
    assert response.json()["id"] != run
    return response


@case(f"POST {RUN}/retry", 409)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"/v1/runs/{await desk.run('gate')}/retry", {})


# ---------------------------------------------------------------- signals and events


async def to_run(desk: Desk) -> tuple[str, dict[str, Any]]:
    return f"/v1/runs/{await desk.run('order')}/signals", {}


async def to_key(desk: Desk) -> tuple[str, dict[str, Any]]:
    key = desk.fresh()
    await desk.run("order", correlation_key=key)
    return "/v1/signals", {"correlation_key": key}


for _call, _target in ((f"POST {RUN}/signals", to_run), (f"POST {SIGNAL}", to_key)):

    @case(_call, 202)
    async def _(desk: Desk, target: Any = _target) -> httpx.Response:
        path, body = await target(desk)
        body |= {"name": "seen", "dedup_key": desk.fresh()}
        response = await desk.posted(path, body, first=body)
        assert response.json()["duplicate"]
        return response

    @case(_call, 404)
    async def _(desk: Desk, target: Any = _target) -> httpx.Response:
        path, body = await target(desk)
        return await desk.posted(path, {**body, "name": "paid"}, first={**body, "name": "paid"})

    @case(_call, 409)
    async def _(desk: Desk, target: Any = _target) -> httpx.Response:
        path, body = await target(desk)
        body |= {"name": "seen", "dedup_key": desk.fresh()}
        return await desk.posted(path, {**body, "payload": 2}, first=body)

    @case(_call, 413)
    async def _(desk: Desk, target: Any = _target) -> httpx.Response:
        path, body = await target(desk)
        return await desk.posted(path, {**body, "name": "paid", "payload": LARGE})

    @case(_call, 422)
    async def _(desk: Desk, target: Any = _target) -> httpx.Response:
        path, body = await target(desk)
        assert (await desk.posted(path, {**body, "name": ""})).status_code == 422
        return await desk.posted(path, body)


def many(**signal: Any) -> dict[str, Any]:
    return {"signals": [{"name": "paid", **signal}]}


@case(f"POST {SIGNAL}/many", 202)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/signals/many", many(target=await desk.run("order")))


@case(f"POST {SIGNAL}/many", 404)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/signals/many", many(target=NOBODY["run_id"]))


@case(f"POST {SIGNAL}/many", 409)
async def _(desk: Desk) -> httpx.Response:
    body = {"target": await desk.run("order"), "dedup_key": desk.fresh()}
    return await desk.posted("/v1/signals/many", many(**body, payload=2), first=many(**body, payload=1))


@case(f"POST {SIGNAL}/many", 413)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/signals/many", many(target=await desk.run("order"), payload=LARGE))


@case(f"POST {SIGNAL}/many", 422)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/signals/many", {"signals": [{"target": await desk.run("order")}]})


@case("POST /v1/events", 202)
async def _(desk: Desk) -> httpx.Response:
    runs = [await desk.run("listening", "news"), await desk.run("listening", "news")]
    await desk.run("listening", "weather")
    body = {"name": "news.today", "data": {"n": 1}, "id": desk.fresh()}
    first = await desk.posted("/v1/events", body)
    assert (first.json()["started"], first.json()["resumed"]) == (1, 2)
    assert [await desk.world.result(run) for run in runs] == [{"n": 1}] * 2
    before = len(await desk.world.runs())
    again = await desk.posted("/v1/events", body)
    assert again.json() == {**first.json(), "outcome": "duplicate", "duplicate": True}
    assert len(await desk.world.runs()) == before
    return again


@case("POST /v1/events", 409)
async def _(desk: Desk) -> httpx.Response:
    body = {"name": "news.today", "data": 1, "id": desk.fresh()}
    return await desk.posted("/v1/events", {**body, "data": 2}, first=body)


@case("POST /v1/events", 413)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted("/v1/events", {"name": "news.today", "data": LARGE})


@case("POST /v1/events", 422)
async def _(desk: Desk) -> httpx.Response:
    assert (await desk.posted("/v1/events", {"data": 1})).status_code == 422
    return await desk.posted("/v1/events", {"name": "news.*", "data": 1})


# ---------------------------------------------------------------- interactions and waits


@case("GET /v1/interactions", 200)
async def _(desk: Desk) -> httpx.Response:
    """Each filter finds what it names, and nothing where it names something else."""
    run = await desk.run("given")
    await desk.run("task")
    answered = await desk.task()
    await desk.posted(f"{answered}/complete", {"data": YES})
    filters = {"run_id": run, "assignee": "ann", "group": "board", "channel": "chat", "definition": "given"}
    for name, value in filters.items():
        found = (await desk.http.get("/v1/interactions", params={name: value})).json()["items"]
        assert [one["run_id"] for one in found] == [run], name
        other = {"definition": "gate", "run_id": NOBODY["run_id"]}.get(name, "nobody")
        assert (await desk.http.get("/v1/interactions", params={name: other})).json()["items"] == [], name
    [done] = (await desk.http.get("/v1/interactions", params={"status": "completed"})).json()["items"]
    assert answered.endswith(done["id"])
    return await desk.http.get("/v1/interactions", params={"status": "all"})


@case(f"GET {ASKED}", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get(await desk.task())


@case("GET /v1/waits", 200)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("given")
    await desk.run("gate")
    filters = {"run_id": run, "assignee": "ann", "group": "board", "channel": "chat", "definition": "given"}
    for name, value in filters.items():
        found = (await desk.http.get("/v1/waits", params={name: value})).json()["items"]
        assert [one["run_id"] for one in found] == [run], name
    await desk.world.advance("30m")
    assert (await desk.http.get("/v1/waits?older_than=31m")).json()["items"] == []
    return await desk.http.get("/v1/waits?older_than=29m")


@case(f"GET {WAIT}", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get(await desk.wait())


for _call, _place in ((ASKED, Desk.task), (WAIT, Desk.wait)):

    @case(f"POST {_call}/complete", 200)
    async def _(desk: Desk, place: Any = _place) -> httpx.Response:
        path = f"{await place(desk)}/complete"
        response = await desk.posted(path, {"data": YES}, first={"data": YES})
        assert response.json()["duplicate"]
        return response

    @case(f"POST {_call}/complete", 409)
    async def _(desk: Desk, place: Any = _place) -> httpx.Response:
        return await desk.posted(f"{await place(desk)}/complete", {"data": NO}, first={"data": YES})

    @case(f"POST {_call}/complete", 410)
    async def _(desk: Desk, place: Any = _place) -> httpx.Response:
        path = await place(desk)
        await desk.world.advance("1h")
        return await desk.posted(f"{path}/complete", {"data": YES})

    @case(f"POST {_call}/complete", 422)
    async def _(desk: Desk, place: Any = _place) -> httpx.Response:
        path = await place(desk)
        assert (await desk.posted(f"{path}/complete", {})).status_code == 422
        return await desk.posted(f"{path}/complete", {"data": {"approved": "yes"}})


# What is done to an open task or wait: two bodies that are good, one that is not, and what is seen afterwards.
DOINGS: list[tuple[str, str, str, str, dict[str, Any]]] = [
    (f"{ASKED}/claim", '{"by": "ann"}', '{"by": "bob"}', '{"by": 7}', {"claimed_by": "ann"}),
    (f"{ASKED}/release", "{}", "", '{"by": 7}', {"claimed_by": None}),
    (f"{ASKED}/assign", '{"assignee": "ann"}', '{"assignee": "bob"}', '{"assignee": 7}', {"assignee": "ann"}),
    (f"{ASKED}/fail", '{"reason": "why"}', '{"reason": "that"}', "{}", {"status": "failed"}),
    (f"{WAIT}/fail", '{"reason": "why"}', '{"reason": "that"}', "{}", {"status": "failed"}),
    (f"{WAIT}/cancel", '{"reason": "why"}', '{"reason": "that"}', "{}", {"status": "cancelled"}),
    (f"{WAIT}/heartbeat", "{}", "", '{"by": "ann"}', {"status": "waiting"}),
]

for _path, _good, _other, _bad, _seen in DOINGS:
    _doing = (_path.rpartition("/")[2], Desk.task if _path.startswith(ASKED) else Desk.wait)

    @case(f"POST {_path}", 200)
    async def _(desk: Desk, doing: Any = _doing, good: str = _good, seen: Any = _seen) -> httpx.Response:
        path = await doing[1](desk)
        response = await desk.http.post(f"{path}/{doing[0]}", content=good)
        assert seen.items() <= response.json().items()
        return response

    @case(f"POST {_path}", 409)
    async def _(desk: Desk, doing: Any = _doing, good: str = _good, other: str = _other) -> httpx.Response:
        return await desk.used_otherwise(f"{await doing[1](desk)}/{doing[0]}", good, other)

    @case(f"POST {_path}", 410)
    async def _(desk: Desk, doing: Any = _doing, good: str = _good) -> httpx.Response:
        path = await doing[1](desk)
        await desk.posted(f"{path}/complete", {"data": YES})
        return await desk.http.post(f"{path}/{doing[0]}", content=good)

    @case(f"POST {_path}", 422)
    async def _(desk: Desk, doing: Any = _doing, bad: str = _bad) -> httpx.Response:
        return await desk.http.post(f"{await doing[1](desk)}/{doing[0]}", content=bad)


@case(f"POST {ASKED}/claim", 409)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"{await desk.task()}/claim", {"by": "bob"}, first={"by": "ann"})


@case(f"POST {WAIT}/heartbeat", 200)
async def _(desk: Desk) -> httpx.Response:
    """W13: as long as somebody is at work, silence does not end the wait."""
    path = await desk.wait()
    for _ in range(3):
        await desk.world.advance("9m")
        response = await desk.posted(f"{path}/heartbeat", {})
    assert (await desk.http.get(path)).json()["status"] == "waiting"
    await desk.world.advance("10m")
    assert (await desk.http.get(path)).json()["status"] != "waiting"
    return response


@case(f"PATCH {WAIT}", 200)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.wait()
    response = await desk.http.patch(path, json={"assignee": "ann", "deadline": "2h"})
    [moved] = (await desk.http.get("/v1/waits?assignee=ann")).json()["items"]
    assert path.endswith(moved["id"])
    return response


@case(f"PATCH {WAIT}", 409)
async def _(desk: Desk) -> httpx.Response:
    path, key = await desk.wait(), {"Idempotency-Key": desk.fresh()}
    await desk.http.patch(path, json={"deadline": "2h"}, headers=key)
    return await desk.http.patch(path, json={"deadline": "3h"}, headers=key)


@case(f"PATCH {WAIT}", 410)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.wait()
    await desk.posted(f"{path}/complete", {"data": YES})
    return await desk.http.patch(path, json={"deadline": "2h"})


@case(f"PATCH {WAIT}", 422)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.patch(await desk.wait(), json={"deadline": "soon"})


# ---------------------------------------------------------------- what is left over


@case("GET /v1/unused", 200)
async def _(desk: Desk) -> httpx.Response:
    await desk.unused()
    response = await desk.http.get("/v1/unused")
    assert response.json()["items"][-1]["payload"] == 7
    return response


@case("POST /v1/unused/{unused_id}/readdress", 200)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("order")
    path, once = await desk.unused(), {"Idempotency-Key": desk.fresh("once")}
    first = await desk.http.post(path, json={"target": run}, headers=once)
    assert await desk.world.result(run) == [7]
    again = await desk.http.post(path, json={"target": run}, headers=once)
    assert again.json() == {**first.json(), "duplicate": True}
    return again


@case("POST /v1/unused/{unused_id}/readdress", 404)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.unused(), {"target": NOBODY["run_id"]})


@case("POST /v1/unused/{unused_id}/readdress", 409)
async def _(desk: Desk) -> httpx.Response:
    runs = [await desk.run("order") for _ in range(2)]
    bodies = [f'{{"target": "{run}"}}' for run in runs]
    return await desk.used_otherwise(await desk.unused(), *bodies)


@case("POST /v1/unused/{unused_id}/readdress", 410)
async def _(desk: Desk) -> httpx.Response:
    """S12: the answer of a signal id that has had one."""
    signal_id = f"gate-{await desk.run('gate')}"
    await desk.world.complete(signal_id, {"approved": True})
    return await desk.posted(await desk.unused(), {"target": signal_id})


@case("POST /v1/unused/{unused_id}/readdress", 422)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.unused(), {})


@case("GET /v1/dead-letters", 200)
async def _(desk: Desk) -> httpx.Response:
    await desk.letter()
    return await desk.http.get("/v1/dead-letters")


@case(f"POST {LETTER}/retry", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"{await desk.letter()}/retry", {})


@case(f"POST {LETTER}/retry", 409)
async def _(desk: Desk) -> httpx.Response:
    """U9: what could never be an answer."""
    kept = KeepPoison(workspace="default", actor="x", run_id=RunId(""), id="kafka:1", text="?", reason="no JSON")
    await desk.world.runtime.committer.submit(kept)
    return await desk.posted("/v1/dead-letters/kafka:1/retry", {})


@case(f"POST {LETTER}/discard", 200)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(f"{await desk.letter()}/discard", {})


@case(f"POST {LETTER}/discard", 409)
async def _(desk: Desk) -> httpx.Response:
    return await desk.used_otherwise(f"{await desk.letter()}/discard", "{}", "")


@case("GET /v1/stream", 200)
async def _(desk: Desk) -> httpx.Response:
    run = await desk.run("echo", YES)
    response = await desk.http.get("/v1/stream", params={"run_id": run})  # it ends with the run
    assert "event: run_completed" in response.text
    last = response.text.rpartition("id: ")[2].partition("\n")[0]
    again = await desk.http.get("/v1/stream", params={"run_id": run}, headers={"Last-Event-ID": last})
    assert "event:" not in again.text
    return response


@case("GET /v1/stream", 400)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get("/v1/stream", headers={"Last-Event-ID": "nonsense"})


@case("GET /v1/stream", 404)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.get("/v1/stream", params={"run_id": NOBODY["run_id"]})


@case("GET /readyz", 503)
async def _(desk: Desk) -> httpx.Response:
    async def silent(_: str) -> Any:
        raise OSError("no store today")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(desk.world.runtime.store, "key", silent)
        return await desk.http.get("/readyz")


@case("POST /resume/{token}", 401)
async def _(desk: Desk) -> httpx.Response:
    return await desk.posted(await desk.link("signed link"), YES)


@case("POST /resume/{token}", 403)
async def _(desk: Desk) -> httpx.Response:
    return await desk.http.post(await desk.link(), data={"data.approved": "true"})


@case("POST /resume/{token}", 503)
async def _(desk: Desk) -> httpx.Response:
    path = await desk.link("signed link")
    with pytest.MonkeyPatch.context() as patched:
        patched.delitem(desk.world.runtime.registry.signatures, "provider")
        return await desk.posted(path, YES)


@case("GET /resume/{token}", 429)
async def _(desk: Desk) -> httpx.Response:
    for _ in range(GUESSES):
        await desk.http.get("/resume/nobody")
    return await desk.http.get("/resume/nobody")


@case("POST /resume/{token}", 429)
async def _(desk: Desk) -> httpx.Response:
    for _ in range(GUESSES):
        await desk.http.get("/resume/nobody")
    return await desk.posted("/resume/nobody", YES)


for _path in ("/v1/definitions", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"):

    @case(f"GET {_path}", 200)
    async def _(desk: Desk, path: str = _path) -> httpx.Response:
        return await desk.http.get(path)


# ---------------------------------------------------------------- the table holds


def test_every_endpoint_and_every_status_of_it_has_a_case() -> None:
    """§7: an endpoint that is added, or a status that one says it may have, needs a case here."""
    endpoints = {f"{one.method} {one.path}": {*one.answers, *one.refusals} for one in ENDPOINTS}
    assert endpoints.keys() == TABLE.keys()
    assert {call: said - TABLE[call] for call, said in endpoints.items() if said - TABLE[call]} == {}
    wanted = {(call, status) for call, statuses in TABLE.items() for status in statuses}
    assert wanted - {(call, status) for call, status, _ in CASES} == set()
    assert {(call, status) for call, status, _ in CASES} - wanted == set()


@pytest.mark.parametrize("call", TABLE)
async def test_every_status_of_a_call_is_got(store_url: str, call: str) -> None:
    """§7: exactly that status, and a problem where it is one."""
    async with world(app, store_url, max_claims=2) as w:
        desk, got = Desk(w), []
        for _, status, asked in [one for one in CASES if one[0] == call]:
            async with asyncio.timeout(60):
                response = await asked(desk)
            got.append((status, response.status_code))
            is_page = "text/html" in response.headers["content-type"]
            if status >= 400 and status != 503 and not is_page:
                assert response.json()["status"] == status, response.text
        assert [pair for pair in got if pair[0] != pair[1]] == []
        assert await w.audit() == []
