"""What the API says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from bide.errors import StoreUnavailable
from bide.server import ENDPOINTS
from bide.testing import world
from tests.server.shop import app


async def test_the_description_has_every_call_and_no_dangling_reference() -> None:
    """§7: OpenAPI made from the same table."""
    async with world(app) as w:
        response = await w.http().get("/openapi.json", headers={"Authorization": ""})
        document = response.json()

        assert document["openapi"].startswith("3.1")
        shown = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
        assert shown == {(e.method, e.path) for e in ENDPOINTS if e.answers}
        assert references(document) <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert len({o["operationId"] for ops in document["paths"].values() for o in ops.values()}) == len(shown)
        page = await w.http().get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "/v1/signals/{signal_id}/complete" in page.text


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


async def test_health_and_readiness_tell_the_truth(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """§7: a process that answers is alive; one whose store does not is not ready."""
    async with world(app, store_url) as w:
        http = w.http()
        del http.headers["Authorization"]
        assert (await http.get("/healthz")).json()["status"] == "ok"
        assert (await http.get("/readyz")).status_code == 200

        async def gone(*_: Any) -> Any:
            raise StoreUnavailable("no connection")

        monkeypatch.setattr(w.runtime.store, "key", gone)
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200


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
