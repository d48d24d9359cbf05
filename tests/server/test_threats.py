"""Threats of reliability §3 that no other file is about; and that each threat of A to F has its test."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import bide
from bide.testing import world
from tests.server.shop import app
from tests.server.test_resume_links import anonymous, fields, link, reach
from tests.server.test_signals_over_http import code

ROOT = Path(__file__).parents[2]
YES, NO = {"approved": True}, {"approved": False}


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
