"""Starting, looking at, ending and retrying runs over HTTP."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from bide.server import Server
from bide.server.places import POLLS
from bide.testing import world
from tests.server.shop import app
from tests.server.test_signals_over_http import code


async def test_a_run_is_started_once_per_correlation_key(store_url: str) -> None:
    """§7, S8: 201, then 409 naming the holder."""
    async with world(app, store_url) as w:
        http = w.http()
        body = {"definition": "order", "input": {"item": 1}, "correlation_key": "order:1", "tags": {"city": "Bern"}}

        started = await http.post("/v1/runs", json=body)
        again = await http.post("/v1/runs", json=body)
        invalid_too = await http.post("/v1/runs", json={**body, "delay": "soon"})
        same = await http.post("/v1/runs", json={**body, "if_exists": "return"})

        assert started.status_code == 201
        assert code(again) == code(invalid_too) == (409, "duplicate_run")
        assert started.json()["id"] in again.json()["detail"]
        assert same.json()["id"] == started.json()["id"]
        listed = (await http.get("/v1/runs", params={"tag": "city=Bern"})).json()
        assert [run["id"] for run in listed["items"]] == [started.json()["id"]]
        assert listed["items"][0]["input"] == {"item": 1}


async def test_what_cannot_be_started(store_url: str) -> None:
    """§7, H1: 404 for a definition that is not there, before 422 for what is wrong with the input."""
    async with world(app, store_url) as w:
        http = w.http()

        unknown = await http.post("/v1/runs", json={"definition": "ordr", "delay": []})
        version = await http.post("/v1/runs", json={"definition": "order", "version": "9"})
        misfit = await http.post("/v1/runs", json={"definition": "typed", "input": {"approved": "x"}})
        nameless = await http.post("/v1/runs", json={"input": 1})

        assert code(unknown) == code(version) == (404, "definition_not_found")
        assert code(misfit) == (422, "bad_input")
        assert code(nameless) == (422, "invalid")
        assert (await http.get("/v1/runs")).json()["items"] == []


async def test_a_run_is_cancelled_once(store_url: str) -> None:
    """§7: 202 · 409 already final · 404."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("order")
        done = await w.start("typed", {"approved": True})

        cancelled = await http.post(f"/v1/runs/{run.id}/cancel", json={"reason": "changed my mind"})
        final = await http.post(f"/v1/runs/{done.id}/cancel")
        unknown = await http.post("/v1/runs/run_7/cancel")

        assert (cancelled.status_code, cancelled.json()) == (202, {"id": run.id, "status": "cancelled"})
        assert code(final) == (409, "run_is_final")
        assert code(unknown) == (404, "run_not_found")
        ledger = (await http.get(f"/v1/runs/{run.id}/ledger")).json()["items"]
        assert ledger[-1]["name"] == "run_cancelled"
        assert ledger[-1]["actor"].startswith("key:key_")


async def test_a_failed_run_is_retried_as_a_new_one(store_url: str) -> None:
    """§7: 202 with the new run's id · 409 where nothing has failed."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("broken")
        waiting = await w.start("order")

        retried = await http.post(f"/v1/runs/{run.id}/retry", headers={"Idempotency-Key": "once"})
        again = await http.post(f"/v1/runs/{run.id}/retry", headers={"Idempotency-Key": "once"})
        refused = await http.post(f"/v1/runs/{waiting.id}/retry")

        assert retried.status_code == 202
        assert retried.json()["id"] != run.id
        assert again.json()["id"] == retried.json()["id"]
        assert code(refused) == (409, "not_held")


async def test_a_result_is_200_when_there_is_one_and_202_before(store_url: str) -> None:
    """§7: `GET …/result`."""
    async with world(app, store_url) as w:
        http = w.http()
        waiting, failed = await w.start("order"), await w.start("broken")

        not_yet = await http.get(f"/v1/runs/{waiting.id}/result", params={"wait": "30s"})
        ended = await http.get(f"/v1/runs/{failed.id}/result")

        assert (not_yet.status_code, not_yet.json()["status"]) == (202, "waiting")
        assert (ended.status_code, ended.json()["status"]) == (200, "failed")
        assert "it broke" in ended.json()["error"]["message"]


async def test_lists_come_in_pages_and_filters_are_checked(store_url: str) -> None:
    """§7: cursor pagination; a misspelt filter is an error, not everything."""
    async with world(app, store_url) as w:
        http = w.http()
        ids = [(await w.start("order")).id for _ in range(5)]

        first = (await http.get("/v1/runs", params={"limit": 2})).json()
        second = (await http.get("/v1/runs", params={"limit": 2, "cursor": first["next_cursor"]})).json()
        third = (await http.get("/v1/runs", params={"limit": 2, "cursor": second["next_cursor"]})).json()

        assert [run["id"] for page in (first, second, third) for run in page["items"]] == sorted(ids)
        assert third["next_cursor"] is None
        assert code(await http.get("/v1/runs", params={"statu": "waiting"})) == (422, "invalid")
        assert code(await http.get("/v1/runs", params={"status": "parked"})) == (422, "bad_input")
        assert code(await http.get("/v1/runs", params={"limit": 100_000})) == (422, "bad_input")
        waits = (await http.get("/v1/waits", params={"run_id": ids[0]})).json()
        assert [wait["names"] for wait in waits["items"]] == [["paid"]]


async def test_what_could_not_be_used_is_listed_page_by_page(store_url: str) -> None:
    """S12, §7, §12: lists have cursors, oldest first."""
    async with world(app, store_url) as w:
        http = w.http()
        for no in range(5):
            await http.post("/v1/signals", json={"correlation_key": "order:1", "name": "paid", "payload": no})
            await w.advance(f"{no % 2}s")  # some come at the same moment
        whole = (await http.get("/v1/unused")).json()

        paged, cursor = [], None
        for _ in range(3):
            page = (await http.get("/v1/unused", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
            paged += page["items"]
            cursor = page["next_cursor"]

        assert (paged, cursor, whole["next_cursor"]) == (whole["items"], None, None)
        assert sorted(kept["payload"] for kept in paged) == [0, 1, 2, 3, 4]
        assert [kept["at"] for kept in paged] == sorted(kept["at"] for kept in paged)
        assert code(await http.get("/v1/unused?cursor=nonsense")) == (400, "bad_cursor")


async def test_what_could_not_be_used_is_listed_and_re_addressed(store_url: str) -> None:
    """S12, §7: /v1/unused."""
    async with world(app, store_url) as w:
        http = w.http()
        await http.post("/v1/signals", json={"correlation_key": "order:1", "name": "paid", "payload": 7})
        run = await w.start("order")

        [kept] = (await http.get("/v1/unused")).json()["items"]
        moved = await http.post(f"/v1/unused/{kept['id']}/readdress", json={"target": run.id})
        gone = await http.post(f"/v1/unused/{kept['id']}/readdress", json={})

        assert (kept["reason"], kept["payload"]) == ("not_found", 7)
        assert (moved.status_code, moved.json()["outcome"]) == (200, "woke")
        assert code(gone) == (404, "unused_not_found")
        assert await w.result(run.id) == {"paid": [7]}


async def test_the_definitions_of_the_app_are_listed() -> None:
    """§7: /v1/definitions."""
    async with world(app) as w:
        names = [one["name"] for one in (await w.http().get("/v1/definitions")).json()["items"]]

        assert names == sorted(names)
        assert {"order", "outreach"} <= set(names)


async def held_open(api: Any, path: str, key: str, gone: asyncio.Event) -> list[Any]:
    """What is sent to a client that waits for an answer until it hangs up."""
    sent: list[Any] = []
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"authorization", key.encode()), (b"host", b"bide.test")],
        "client": ("203.0.113.9", 1234),
    }
    told = iter([{"type": "http.request"}])

    async def receive() -> Any:
        for message in told:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await api(scope, receive, send)
    return sent


async def test_T47_clients_that_wait_take_their_own_places_alone_and_give_them_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T47: so many for each key; meanwhile everything else is answered, and whoever hangs up holds nothing."""
    # A store outside the process would have to answer thousands at once, before the last of them loses its patience.
    places = POLLS if store_url.startswith("memory") else 50
    monkeypatch.setattr("bide.server.runs.POLLS", places)
    async with world(app, store_url, longest_poll="1h") as w:
        run = await w.start("outreach")
        http, other, gone = w.http(settle=False), w.http(settle=False), asyncio.Event()
        waits, path = f"/v1/runs/{run.id}/result?wait=1h", f"/v1/runs/{run.id}/result?wait=0s"
        assert (await http.get(path)).status_code == 202

        async def opened() -> Any:
            return w.runtime

        api, key = Server(opened), http.headers["Authorization"]
        waiting = [asyncio.create_task(held_open(api, waits, key, gone)) for _ in range(places + 100)]
        for refusal in islice(asyncio.as_completed(waiting), 100):
            assert await refusal  # they found no place
        refused = await http.get(path)
        assert code(refused) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "5"
        assert (await http.get("/v1/runs")).status_code == 200
        assert (await other.get(path)).status_code == 202

        gone.set()
        told = await asyncio.gather(*waiting)
        assert [start["status"] for start, *_ in filter(None, told)] == [429] * 100
        assert told.count([]) == places
        assert (await http.get(path)).status_code == 202
        assert len(w.runtime.ends) == 0
