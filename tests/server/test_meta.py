"""What the API says of itself."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

import bide
from bide.core.access import new_key
from bide.engine.engine import Engine
from bide.server import ENDPOINTS
from bide.stores import postgres
from bide.stores.postgres import PostgresStore, migrate
from bide.testing import world
from tests.server.shop import app
from tests.support.postgres import PostgresServer, available_postgres, chosen_postgres, temporary_folder


async def test_the_description_has_every_call_and_no_dangling_reference() -> None:
    """§7: OpenAPI made from the same table."""
    async with world(app) as w:
        response = await w.http().get("/openapi.json", headers={"Authorization": ""})
        document = response.json()

        assert document["openapi"].startswith("3.1")
        shown = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
        assert shown == {(e.method, e.path) for e in ENDPOINTS} - {("GET", "/openapi.json"), ("GET", "/docs")}
        assert references(document) <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert len({o["operationId"] for ops in document["paths"].values() for o in ops.values()}) == len(shown)
        page = await w.http().get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        for path in ("/v1/signals/{signal_id}/complete", "/resume/{token}", "/healthz", "/metrics"):
            assert path in page.text


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


async def test_a_process_with_its_store_is_alive_and_ready(store_url: str) -> None:
    async with world(app, store_url) as w:
        http = w.http()
        del http.headers["Authorization"]
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).json() == {"status": "ok", "detail": ""}


async def test_health_and_readiness_tell_the_truth_about_a_postgresql_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """§7: a process that answers is alive; one whose store is read-only or away is not ready. Whose is not said."""
    if not available_postgres():
        pytest.skip("no PostgreSQL here")
    monkeypatch.setattr(postgres, "PostgresStore", partial(PostgresStore, patience=0.5))
    monkeypatch.setattr("bide.server.meta.READY_SECONDS", 120.0)  # no store here is slow: it is there, or it is away
    with PostgresServer(chosen_postgres(), temporary_folder()) as server:
        there = bide.App("there", store=f"{server.url()}?schema=private_name", resume_secrets="s1:" + "x" * 32)
        await migrate(there.settings().store)
        async with there.opened(), asked(there) as http:
            assert (await http.get("/readyz")).status_code == 200
            with psycopg.connect(server.url(), autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                admin.execute("SELECT pg_reload_conf()")
            # Each session of the server hears of it by itself, and none says so: those of the store may be the last.
            async with asyncio.timeout(120):
                while (read_only := await http.get("/readyz")).status_code == 200:
                    pass
            server.stop("immediate")
            away, list_ = await http.get("/readyz"), await http.get("/v1/runs", headers={"Authorization": KEY})
            assert (await http.get("/healthz")).status_code == 200
        never = bide.App("never", store=there.settings().store, resume_secrets="s1:" + "x" * 32)
        async with asked(never) as http:
            unopened, unopened_list = await http.get("/readyz"), await http.get("/v1/runs")
            assert (await http.get("/healthz")).status_code == 200
        said = [read_only, away, list_, unopened, unopened_list]
        assert [answer.status_code for answer in said] == [503] * 5
        assert [said[at].json()["detail"] for at in (0, 1)] == [
            "the store takes no writes",
            "the store does not answer",
        ]
        for answer in said:
            assert not re.search(rf"{server.port}|127\.0\.0\.1|private_name|postgres", answer.text), answer.text


async def test_a_process_whose_engine_has_ended_by_itself_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, §7: nothing is claimed there and no timer fires, so whoever watches over it starts it again."""
    monkeypatch.setattr("bide.server.meta.READY_SECONDS", 120.0)
    there = bide.App("there", store="memory://", poll_interval="20ms")
    async with there.opened(), asked(there) as http, asyncio.timeout(120):
        async with Engine(await there.runtime()) as engine:
            assert (await http.get("/readyz")).status_code == 200
            monkeypatch.setattr(engine, "tick", cancelled)
            assert engine._loop_task is not None
            await asyncio.wait({engine._loop_task})
            broken = await http.get("/readyz")
            assert (await http.get("/healthz")).status_code == 200
        stopped = await http.get("/readyz")

        assert broken.status_code == 503
        assert broken.json() == {"status": "unavailable", "detail": "the engine of this process has ended"}
        assert stopped.status_code == 200  # one that was asked to stop is not missed


async def cancelled() -> bool:
    """As a driver does it whose connection is closed under it."""
    raise asyncio.CancelledError


KEY = f"Bearer {new_key(b'k' * 32)}"


def asked(app: bide.App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app.asgi(engine=False)), base_url="http://bide.test")


async def test_W7_what_is_refused_is_counted_by_reason(store_url: str) -> None:
    """W7: bide_await_completion_dropped_total{reason}."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("outreach")
        path = f"/v1/signals/approval-{run.id}/complete"
        await http.post("/v1/signals/none/complete", json={"data": 1})
        await http.post(path, json={"data": 1})
        await http.post(path, json={"data": {"approved": True}}, headers={"Idempotency-Key": "k"})
        await http.post(path, json={"data": {"approved": True}}, headers={"Idempotency-Key": "k"})
        await http.post(path, json={"data": {"approved": True}})

        text = (await http.get("/metrics")).text

        for reason in ("not_found", "invalid_payload", "duplicate", "already_completed"):
            assert f'bide_await_completion_dropped_total{{reason="{reason}"}} 1.0' in text
        assert 'bide_runs{status="completed"} 1.0' in text
        assert (await w.http(scopes=["runs:read"]).get("/metrics")).status_code == 403


async def test_paths_and_methods_that_are_not_there() -> None:
    """T45: 404 and 405, as problems."""
    async with world(app) as w:
        http = w.http()
        for path in (
            "/",
            "/v1",
            "/v1/",
            "/v1/runs/",
            "//v1/runs",
            "/v1/runs/%ff",
            "/v1/runs/a%2Fb/x",
        ):
            assert (await http.get(path)).status_code == 404, path
        refused = await http.delete("/v1/runs")
        assert refused.status_code == 405
        assert refused.headers["allow"] == "GET, POST"
        assert (await http.request("TRACE", "/v1/runs")).status_code == 405
        assert (await http.head("/v1/runs")).status_code == 200
        assert (await http.head("/v1/runs")).content == b""
