"""Threats of reliability §3 that no other file is about; and that each threat of A to F has its test."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import bide
from bide.stores.sqlite import SqliteStore
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app
from tests.server.test_resume_links import anonymous, fields, link, reach
from tests.server.test_signals_over_http import code

ROOT = Path(__file__).parents[2]
YES, NO = {"approved": True}, {"approved": False}


def two_links() -> tuple[bide.App, list[str]]:
    """One run with two callbacks, one after the other, and where their links go."""
    apart = bide.App("apart", store="memory://")
    sent: list[str] = []

    @apart.workflow("both")
    async def both(step: bide.Step, input: Any) -> list[Any]:
        answers = []
        for name in ("first", "second"):
            cb = await step.callback(name, timeout="1d", returns=bool)
            await step.run(f"send {name}", sent.append, urlsplit(cb.url).path)
            answers.append(await cb)
        return answers

    return apart, sent


async def test_T07_the_link_of_one_wait_never_answers_another_of_the_same_run(store_url: str) -> None:
    """T07: used up, it is refused, also while the next wait of its run is open."""
    apart, sent = two_links()
    async with world(apart, store_url) as w:
        run, http = await w.start("both"), anonymous(w)
        assert (await http.post(sent[0], json=True)).status_code == 200
        assert (await http.post(sent[0], json=False)).status_code == 410
        assert (await w.get(run.id)).status == "waiting"
        assert (await http.post(sent[1], json=False)).status_code == 200
        assert await w.result(run.id) == [True, False]


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)  # what outlives the process
async def test_T08_who_steals_the_database_has_no_token(store_url: str) -> None:
    """T08: neither whole nor by its signature, in no table."""
    apart, sent = two_links()
    async with world(apart, store_url) as w:
        await w.start("both")
        await anonymous(w).post(sent[0], json="no boolean")
        await anonymous(w).post(sent[0], json=True)
        stolen = await everything_in(w)
        assert "both" in stolen
        for path in sent:
            token = path.rpartition("/")[2]
            assert token not in stolen
            assert token.rpartition(".")[2] not in stolen


async def test_T11_no_token_gets_into_our_logs(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """T11: good, repeated, invalid and forged, with everything logged."""
    caplog.set_level(logging.DEBUG)
    apart, sent = two_links()
    async with world(apart, store_url) as w:
        await w.start("both")
        http, forged = anonymous(w), sent[0][:-6] + "AAAAAA"
        for path, body in ((forged, True), (sent[0], "no boolean"), (sent[0], True), (sent[0], False)):
            await http.post(path, json=body)
            await http.get(path)
    ours = [
        record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
    ]  # the sender's own
    for path in (forged, *sent):
        assert not [record for record in ours if path.rpartition("/")[2] in record.getMessage()]


@pytest.mark.parametrize("where", ["query", "body", "cookie", "basic"])
async def test_T28_a_key_anywhere_but_in_its_header_is_401(where: str) -> None:
    """T28, H1."""
    async with world(app) as w:
        key = w.http().headers["Authorization"].removeprefix("Bearer ")
        http = anonymous(w)
        body: dict[str, Any] = {"definition": "order", "input": {}}
        match where:
            case "query":
                response = await http.post("/v1/runs", params={"key": key, "access_token": key}, json=body)
            case "body":
                response = await http.post("/v1/runs", json={**body, "key": key})
            case "cookie":
                response = await http.post("/v1/runs", headers={"Cookie": f"key={key}; session={key}"}, json=body)
            case _:
                response = await http.post("/v1/runs", auth=httpx.BasicAuth(key, key), json=body)
        assert response.status_code == 401


async def everything_in(w: World) -> str:
    """All that the store has written, as text: a file with its log, or the rows of every table."""
    store: Any = w.runtime.store
    if isinstance(store, SqliteStore):
        files = Path(store.path).parent.glob(f"{Path(store.path).name}*")
        return "".join(file.read_bytes().decode("latin-1") for file in files)
    async with store.connection() as connection:
        schema = store._address.schema
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        rows = [await connection.fetch(f'SELECT t::text FROM "{schema}"."{name}" t') for (name,) in tables]
    return "".join(text for found in rows for (text,) in found)


async def test_T22_of_approve_and_reject_at_once_the_first_stands_and_the_other_is_told(store_url: str) -> None:
    """T22: by link and by task, whichever comes first."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, user="at once")
        await reach(w, run_id)
        http = w.http()
        by_link = await asyncio.gather(*(http.post(path, json=answer) for answer in (YES, NO)))
        assert sorted(response.status_code for response in by_link) == [200, 410]
        won = by_link[0].status_code == 200
        assert await w.result(run_id) is won

        run = await w.start("task")
        [task] = (await http.get("/v1/interactions", params={"run_id": run.id})).json()["items"]
        complete = f"/v1/interactions/{task['id']}/complete"
        by_task = await asyncio.gather(*(http.post(complete, json={"data": answer}) for answer in (YES, NO)))
        assert sorted(response.status_code for response in by_task) == [200, 409]
        stands = (await http.get(complete.removesuffix("/complete"))).json()["answer"]
        assert stands["approved"] is (by_task[0].status_code == 200)


async def test_T23_an_approval_of_something_else_than_what_was_shown_is_409(store_url: str) -> None:
    """T23, W12: the digest of what the page showed comes with the answer."""
    gated = bide.App("gated", store="memory://")

    @gated.workflow("pay")
    async def pay(step: bide.Step, amount: int) -> Any:
        return await step.ask("review", title="Pay?", form=bool, shown={"amount": amount}, timeout="1d")

    async with world(gated, store_url) as w:
        http = w.http()
        cheap, dear = await w.start("pay", 10), await w.start("pay", 10_000)
        tasks = {}
        for run in (cheap, dear):
            [tasks[run.id]] = (await http.get("/v1/interactions", params={"run_id": run.id})).json()["items"]
        seen = tasks[cheap.id]["shown"]

        async def approve(run_id: str) -> httpx.Response:
            path = f"/v1/interactions/{tasks[run_id]['id']}/complete"
            return await http.post(path, json={"data": True, "shown": seen})

        mistaken, meant = await approve(dear.id), await approve(cheap.id)

        assert code(mistaken) == (409, "conflicting_answer")
        assert meant.status_code == 200
        assert (await w.get(dear.id)).status == "waiting"


@pytest.mark.parametrize("name", ["next", "redirect", "redirect_uri", "url", "return_to"])
async def test_T25_the_page_takes_no_target_to_lead_to(name: str) -> None:
    """T25: neither before nor after the form, and no answer of it is a redirect."""
    async with world(app) as w:
        _, path = await link(w, "form", user="next")
        http = anonymous(w)
        lured = f"{path}?{name}=https://evil.example/&{name}2=//evil.example"
        page = await http.get(lured)
        sent = await http.post(lured, data={**fields(page.text), name: "https://evil.example/"})
        for response in (page, sent):
            assert response.status_code in (200, 422)
            assert "evil.example" not in response.text
            assert "location" not in response.headers


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"definition": "outreach"}),
        ("/v1/events", {"name": "x", "data": 1}),
        ("/v1/signals", {"correlation_key": "k", "name": "x"}),
        ("/v1/signals/x/complete", {"data": 1}),
    ],
)
@pytest.mark.parametrize("field", ["workspace", "workspace_id", "tenant"])
async def test_T27_a_body_that_names_a_workspace_is_refused(path: str, body: Any, field: str) -> None:
    """T27: the key alone says which one; what is not there stays 404 (H1)."""
    async with world(app) as w:
        http = w.http()
        refused = await http.post(path, json={**body, field: "other"})
        assert refused.status_code in (404, 422)
        assert refused.status_code == 422 or (await http.post(path, json=body)).status_code == 404
        for workspace in ("default", "other"):
            assert (await w.http(workspace=workspace).get("/v1/runs")).json()["items"] == []


async def test_T30c_two_workspaces_with_equal_names_never_meet(store_url: str) -> None:
    """T30c: correlation keys, signal ids, dedup keys, idempotency keys and the ids of events."""
    async with world(app, store_url) as w:
        one, two = w.http(), w.http(workspace="other")
        start = {"definition": "order", "correlation_key": "order:1"}
        once = {"Idempotency-Key": "the same"}
        runs = [(await http.post("/v1/runs", json=start, headers=once)).json()["id"] for http in (one, two)]
        shared = [(await http.post("/v1/runs", json={"definition": "shared"})).json()["id"] for http in (one, two)]
        assert len({*runs, *shared}) == 4

        paid = {"correlation_key": "order:1", "name": "paid", "payload": "one", "dedup_key": "evt-1"}
        assert (await one.post("/v1/signals", json=paid)).json()["outcome"] == "woke"
        assert (await w.client("other").get(runs[1])).status == "waiting"
        paid = {**paid, "payload": "two"}
        assert (await two.post("/v1/signals", json=paid)).json()["outcome"] == "woke"
        assert (await two.get(f"/v1/runs/{runs[1]}/result")).json()["result"] == {"paid": ["two"]}

        for http, data in ((one, 1), (two, 2)):
            gate = await http.post("/v1/signals/the-one-gate/complete", json={"data": data}, headers=once)
            assert gate.json()["outcome"] == "woke"
        results = [
            (await http.get(f"/v1/runs/{id}/result")).json()["result"]
            for http, id in zip((one, two), shared, strict=True)
        ]
        assert results == [1, 2]

        event = {"name": "order.shipped", "data": {"n": 1}, "id": "evt-9"}
        assert [(await http.post("/v1/events", json=event)).status_code for http in (one, two)] == [202, 202]
        assert (await one.post("/v1/events", json={**event, "data": {"n": 2}})).status_code == 409


def test_every_threat_from_the_outside_names_the_tests_that_show_it() -> None:
    """Reliability §3 A to F: the list in docs/reference/threats.md is whole, and none of its tests is missing."""
    text = (ROOT / "docs/reference/threats.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(): cells[-2] for cells in (line.split("|") for line in text.splitlines()) if len(cells) > 3}
    numbers = [f"T{n:02}" for n in range(1, 65)]
    assert [number for number in (*numbers, "T30b", "T30c", "T30d") if number not in rows] == []
    known = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    named = {name for cell in rows.values() for name in re.findall(r"`(test_\w+)`", cell)}
    assert named - known == set()
