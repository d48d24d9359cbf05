"""Answers and schemas that are meant to do more than answer (reliability §3, T14 and T49–T56)."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import bide
from bide.testing import world
from tests.server.shop import SEEN
from tests.server.shop import app as shop

SOURCES = Path(bide.__file__).parent


def gate(schema: dict[str, Any]) -> bide.App:
    """One workflow that gives back what was answered."""
    app = bide.App("gate", store="memory://")

    @app.workflow("gate")
    async def wait(step: bide.Step, event: Any) -> Any:
        return await step.wait_for_signal("gate", signal="gate", timeout="1h", returns=schema)

    return app


async def test_a_forged_host_is_in_no_link_that_is_sent(store_url: str) -> None:
    """T14: the address of a link is configured, and nothing that a request says changes it."""
    async with world(shop, store_url) as w:
        forged = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
        body = {"definition": "kyc", "input": "forged"}
        response = await w.http().post("/v1/runs", json=body, headers=forged)
        assert response.status_code == 201, response.text
        await w.settle()
        assert "evil" not in response.text
        assert "evil" not in SEEN["forged"]
        page = await w.http().get(SEEN["forged"], headers=forged)
        assert page.status_code == 200
        assert "evil" not in page.text


@pytest.mark.parametrize(
    ("schema", "refused", "taken"),
    [
        pytest.param({"pattern": "^(a+)+$"}, "a" * 5000 + "!", "aa", id="T49 nested repeats"),
        pytest.param({"pattern": r"^(a|aa|aaa)*\1$"}, "a" * 60 + "!", "aa", id="T49 back references"),
        pytest.param({"uniqueItems": True}, [*range(20_000), 0], [1, 2], id="T50 many items"),
        pytest.param({"$ref": "#", "type": "integer"}, "x", 1, id="T52 a schema that is itself"),
        pytest.param({"$dynamicAnchor": "n", "$dynamicRef": "#n", "type": "integer"}, "x", 1, id="T52 dynamic"),
        pytest.param({"type": "integer"}, True, 1, id="T53 true is not 1"),
        pytest.param({"type": "integer"}, 1.5, 1, id="T53 half is not whole"),
        pytest.param({"type": "number"}, "1", 1, id="T53 text is no number"),
        pytest.param({"type": "boolean"}, 1, True, id="T53 1 is not true"),
        pytest.param({"type": "boolean"}, "true", True, id="T53 text is not true"),
        pytest.param({"enum": [1]}, True, 1, id="T53 true is not the choice 1"),
    ],
)
async def test_an_answer_that_does_not_fit_is_422_and_one_that_does_goes_through(
    store_url: str, schema: dict[str, Any], refused: Any, taken: Any
) -> None:
    """T49, T50, T52, T53: whatever the schema makes the check do, it ends, and the wait stays open."""
    async with world(gate(schema), store_url) as w:
        run = await w.start("gate")
        http = w.http()
        response = await http.post("/v1/signals/gate/complete", json={"data": refused})
        assert response.status_code == 422, response.text
        assert (await w.get(run.id)).status == "waiting"
        assert (await http.post("/v1/signals/gate/complete", json={"data": taken})).status_code == 200
        assert await w.result(run.id) == taken


@pytest.mark.parametrize(
    "data",
    [
        {"__class__": "os.system", "__proto__": {"admin": True}, "_resume_token": "x", "steps": [], "status": "failed"},
        "{{7*7}}",
        "${7*7}",
        {"$ref": "file:///etc/passwd", "!!python/object": "os.system", "value": "=1+1"},
    ],
    ids=json.dumps,
)
async def test_an_answer_is_data_and_nothing_else(store_url: str, data: Any) -> None:
    """T54, T55: it is handed to the body as it came, evaluated by nobody, and is no part of the run's own record."""
    async with world(gate({}), store_url) as w:
        run = await w.start("gate")
        response = await w.http().post("/v1/signals/gate/complete", json={"data": data})
        assert response.status_code == 200, response.text
        assert await w.result(run.id) == data
        assert (await w.get(run.id)).status == "completed"


def test_nothing_reads_objects_from_bytes() -> None:
    """T56: what is stored and sent is JSON; YAML is read as plain data."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pickle", "marshal", "shelve", "dill"}, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert node.attr not in {"load", "load_all", "unsafe_load", "full_load"}, path
