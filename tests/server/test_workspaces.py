"""Workspaces cannot see each other: every endpoint, every kind of id, made from the table of endpoints itself."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from bide.core.access import SCOPES, Key
from bide.server import ENDPOINTS
from bide.server.calls import Endpoint
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app

WITH_IDS = [endpoint for endpoint in ENDPOINTS if "{" in endpoint.path and not endpoint.is_public]
UNKNOWN = {
    "run_id": "run_01b8dac5b40000000000000000000000",
    "wait_id": "wait_01b8dac5b40000000000000000000000_1",
    "interaction_id": "int_01b8dac5b40000000000000000000000_1_0",
    "signal_id": "approval-none",
    "unused_id": "msg_01b8dac5b40000000000000000000000",
    "letter_id": "notify:wait_01b8dac5b40000000000000000000000_1:opened:0",
}
BODIES: dict[str, Any] = {
    "complete": {"data": {"approved": True}},
    "signals": {"name": "paid"},
    "fail": {"reason": "why"},
    "cancel": {"reason": "why"},
    "assign": {"assignee": "ann"},
}


async def ids(w: World) -> dict[str, str]:
    """One of each kind, in the workspace `default`."""
    run = await w.start("outreach")
    task, told = await w.start("task"), await w.start("told")
    [interaction] = await w.client().interactions(run_id=task.id)
    letter = next(letter.id for letter in await w.dead_letters() if letter.run_id == told.id)
    [wait] = await w.waits(run_id=run.id)
    await w.signal("nobody", "paid", check=False)
    [*_, kept] = await w.unused()
    return {
        "run_id": run.id,
        "wait_id": wait.id,
        "interaction_id": interaction.id,
        "signal_id": f"approval-{run.id}",
        "unused_id": kept.id,
        "letter_id": letter,
    }


def request(endpoint: Endpoint, known: dict[str, str]) -> tuple[str, str, Any]:
    path = re.sub(r"\{(\w+)\}", lambda match: known[match[1]], endpoint.path)
    last = endpoint.segments[-1]
    body = BODIES.get(last, {"assignee": "ann"} if endpoint.method == "PATCH" else {})
    if last == "readdress":
        body = {"target": known["run_id"]}
    return endpoint.method, path, body if endpoint.method != "GET" else None


async def ask(http: httpx.AsyncClient, endpoint: Endpoint, known: dict[str, str]) -> httpx.Response:
    method, path, body = request(endpoint, known)
    return await http.request(method, path, json=body)


def same(foreign: httpx.Response, unknown: httpx.Response, label: str) -> None:
    """Whoever asks cannot tell one from the other."""
    assert foreign.status_code == unknown.status_code, f"{label}: {foreign.text} / {unknown.text}"
    assert foreign.content == unknown.content, label
    assert foreign.headers == unknown.headers, label


async def test_a_foreign_id_is_answered_byte_for_byte_as_an_unknown_one(store_url: str) -> None:
    """H1, law 8: every endpoint × every kind of id, also where another kind is expected."""
    async with world(app, store_url) as w:
        known, other = await ids(w), w.http(workspace="other", settle=False)
        await other.get("/v1/runs")  # the first use of a key is noted
        before = [entry.name for entry in await w.ledger(known["run_id"])]
        longer: list[tuple[str, int, int]] = []

        for endpoint in WITH_IDS:
            before_it = w.runtime.store.round_trips
            foreign = await ask(other, endpoint, known)
            between = w.runtime.store.round_trips
            unknown = await ask(other, endpoint, UNKNOWN)
            trips = between - before_it, w.runtime.store.round_trips - between
            label = f"{endpoint.method} {endpoint.path}"
            assert foreign.status_code == 404, f"{label}: {foreign.text}"
            same(foreign, unknown, label)
            if trips[0] != trips[1]:
                longer.append((label, *trips))
            for kind in known:
                foreign = await ask(other, endpoint, dict.fromkeys(known, known[kind]))
                unknown = await ask(other, endpoint, dict.fromkeys(known, UNKNOWN[kind]))
                same(foreign, unknown, f"{label} with a {kind}")

        assert longer == [], "what takes longer tells"
        assert [entry.name for entry in await w.ledger(known["run_id"])] == before
        for path in ("/v1/runs", "/v1/waits?status=all", "/v1/interactions?status=all", "/v1/dead-letters"):
            assert (await other.get(path)).json()["items"] == []
        kept = (await other.get("/v1/unused")).json()["items"]  # what it sent itself, to ids that it guessed
        assert known["unused_id"] not in {one["id"] for one in kept}


async def test_a_foreign_id_in_a_body_or_a_query_or_a_header_is_as_good_as_none(store_url: str) -> None:
    """H1, law 8: ids come by other ways than paths; what they are sent with belongs to who sends it."""
    async with world(app, store_url) as w:
        known, other = await ids(w), w.http(workspace="other")
        foreign_key = (await w.start("order", correlation_key="order:1")).id
        own = await w.client("other").start("outreach")
        await w.settle()
        await w.client("other").signal("nobody", "paid", check=False)
        kept = (await w.client("other").unused())[-1].id
        places = {"foreign": (known["run_id"], "order:1"), "unknown": (UNKNOWN["run_id"], "order:2")}
        yes = {"approved": True}

        async def asked(run: str, key: str) -> dict[str, httpx.Response]:
            last = {"Last-Event-ID": f"{run}/1"}
            return {
                "readdress to a run": await other.post(f"/v1/unused/{kept}/readdress", json={"target": run}),
                "readdress to a key": await other.post(f"/v1/unused/{kept}/readdress", json={"target": key}),
                "complete, run_id": await other.post(
                    f"/v1/signals/approval-{own.id}/complete", json={"data": {"approved": 1}, "run_id": run}
                ),
                "complete of both": await other.post(
                    f"/v1/signals/approval-{run}/complete", json={"data": yes, "run_id": run}
                ),
                "complete, own run": await other.post(
                    f"/v1/signals/approval-{run}/complete", json={"data": yes, "run_id": own.id}
                ),
                "signal by key": await other.post("/v1/signals", json={"correlation_key": key, "name": "paid"}),
                "many": await other.post("/v1/signals/many", json={"signals": [{"target": run, "name": "paid"}]}),
                "many by key": await other.post("/v1/signals/many", json={"signals": [{"target": key, "name": "x"}]}),
                "run by key": await other.get(f"/v1/runs/{key}"),
                "runs by key": await other.get("/v1/runs", params={"correlation_key": key}),
                "waits": await other.get("/v1/waits", params={"run_id": run, "status": "all"}),
                "interactions": await other.get("/v1/interactions", params={"run_id": run, "status": "all"}),
                "stream": await other.get("/v1/stream", params={"run_id": run}),
                "stream, foreign place": await other.get("/v1/stream", params={"run_id": own.id}, headers=last),
                "stream of all": await other.get("/v1/stream", headers=last),
            }

        foreign, unknown = [await asked(*place) for place in places.values()]
        for label in foreign:
            same(foreign[label], unknown[label], label)
        assert (await w.get(foreign_key)).status == "waiting"
        assert (await w.get(known["run_id"])).status == "waiting"


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/waits", "/v1/interactions", "/v1/dead-letters", "/v1/unused"])
async def test_a_cursor_of_another_workspace_shows_what_any_place_would(store_url: str, path: str) -> None:
    """H1: a cursor is a place in an order; of other workspaces it shows nothing, and does not say that it is one."""
    async with world(app, store_url) as w:
        for _ in range(3):
            await w.start("told")
            await w.signal("nobody", "told", check=False)
        cursor = (await w.http().get(path, params={"limit": 2})).json()["next_cursor"]
        invented = re.sub(r"(?<=_)[0-9A-Za-z]{8,}", lambda id: "0" * len(id[0]), cursor)
        assert invented != cursor
        other = w.http(workspace="other")

        foreign = await other.get(path, params={"limit": 2, "cursor": cursor})
        same(foreign, await other.get(path, params={"limit": 2, "cursor": invented}), path)
        assert foreign.json() == {"items": [], "next_cursor": None}
        own = await w.client("other").start("told")
        await w.client("other").signal("nobody", "told", own.id, check=False)
        await w.settle()
        shown = await other.get(path, params={"limit": 2, "cursor": cursor})
        assert len(shown.json()["items"]) <= 1
        assert all(own.id in str(item) for item in shown.json()["items"])


async def test_the_own_workspace_finds_all_of_them(store_url: str) -> None:
    """The matrix can fail: with a key of the right workspace no id is unknown."""
    async with world(app, store_url) as w:
        for endpoint in WITH_IDS:
            known = await ids(w)
            response = await ask(w.http(), endpoint, known)
            assert response.status_code != 404, f"{endpoint.path}: {response.text}"


async def test_every_endpoint_refuses_a_key_without_its_scope() -> None:
    """T30: every scope × every endpoint, made from the tables of both."""
    async with world(app) as w:
        known = await ids(w)
        for scope in SCOPES:
            http, key = w.http(scopes=[scope]), new_key_of(scope)
            for endpoint in ENDPOINTS:
                if endpoint.scope is None or key.may(endpoint.scope):
                    continue
                response = await ask(http, endpoint, known)
                assert (response.status_code, response.json()["code"]) == (403, "forbidden"), (scope, endpoint.path)


def new_key_of(scope: str) -> Key:
    return Key(
        id="k", workspace="default", hash="", name="", scopes=(scope,), created_at=datetime(2030, 1, 1, tzinfo=UTC)
    )


def test_a_scope_lets_nobody_do_what_another_is_for() -> None:
    """G5: the administrator's is the one that is more than itself."""
    for scope in SCOPES:
        if scope != "admin":
            assert [other for other in SCOPES if new_key_of(scope).may(other)] == [scope]


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if not e.is_public], ids=lambda e: f"{e.method} {e.path}")
async def test_every_endpoint_but_the_public_ones_needs_a_key(endpoint: Endpoint) -> None:
    """H1."""
    async with world(app) as w:
        http = w.http()
        del http.headers["Authorization"]

        assert (await ask(http, endpoint, UNKNOWN)).status_code == 401
