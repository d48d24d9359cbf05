"""Workspaces cannot see each other: every endpoint, every kind of id, made from the table of endpoints itself."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

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


async def test_a_foreign_id_is_answered_byte_for_byte_as_an_unknown_one(store_url: str) -> None:
    """H1, law 8: every endpoint × every kind of id."""
    async with world(app, store_url) as w:
        known, other = await ids(w), w.http(workspace="other")
        before = [entry.name for entry in await w.ledger(known["run_id"])]

        for endpoint in WITH_IDS:
            foreign, unknown = await ask(other, endpoint, known), await ask(other, endpoint, UNKNOWN)
            label = f"{endpoint.method} {endpoint.path}"
            assert foreign.status_code == 404, f"{label}: {foreign.text}"
            assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content), label
            assert foreign.headers == unknown.headers, label

        assert [entry.name for entry in await w.ledger(known["run_id"])] == before
        for path in ("/v1/runs", "/v1/waits?status=all", "/v1/interactions?status=all", "/v1/dead-letters"):
            assert (await other.get(path)).json()["items"] == []
        assert known["unused_id"] not in (await other.get("/v1/unused")).text


async def test_the_own_workspace_finds_all_of_them(store_url: str) -> None:
    """The matrix can fail: with a key of the right workspace no id is unknown."""
    async with world(app, store_url) as w:
        for endpoint in WITH_IDS:
            known = await ids(w)
            response = await ask(w.http(), endpoint, known)
            assert response.status_code != 404, f"{endpoint.path}: {response.text}"


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e.scope], ids=lambda e: f"{e.method} {e.path}")
async def test_every_endpoint_refuses_a_key_without_its_scope(endpoint: Endpoint) -> None:
    """T30: scope × endpoint, made from the table."""
    async with world(app) as w:
        known = await ids(w)
        others = [scope for scope in ("runs:read", "events:emit") if scope != endpoint.scope]
        http = w.http(scopes=others[:1])

        response = await ask(http, endpoint, known)

        assert response.status_code == 403, response.text
        assert response.json()["code"] == "forbidden"


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if not e.is_public], ids=lambda e: f"{e.method} {e.path}")
async def test_every_endpoint_but_the_public_ones_needs_a_key(endpoint: Endpoint) -> None:
    """H1."""
    async with world(app) as w:
        http = w.http()
        del http.headers["Authorization"]

        assert (await ask(http, endpoint, UNKNOWN)).status_code == 401
