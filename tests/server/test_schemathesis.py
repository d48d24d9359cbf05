"""Requests made from `/openapi.json` itself, fitting it and breaking it: what is described is what is answered."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections import defaultdict
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from bide.core.schema import problems
from bide.server import ENDPOINTS
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import SEEN, app

EXAMPLES = 3  # of each operation, each way of making them
WAYS = (  # how requests are made, and whether they are about something that exists
    (GenerationMode.POSITIVE, False),
    (GenerationMode.POSITIVE, True),
    (GenerationMode.NEGATIVE, True),
)


async def test_requests_made_from_the_description_get_answers_that_it_names(store_url: str) -> None:
    """H3: no 5xx, no status that `/openapi.json` does not name for the call, no body that does not fit its schema."""
    async with world(app, store_url) as w:
        http = w.http()
        document = (await http.get("/openapi.json")).json()
        operations = operations_of(json.dumps(document, sort_keys=True))
        described = {(operation.method.upper(), operation.path) for operation in operations}
        assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS if endpoint.answers}
        seen: set[int] = set()
        about_known = defaultdict[str, set[int]](set)
        wrong = []
        for operation in operations:
            for mode, is_known in WAYS:
                for shape in shapes(operation.path) if is_known else ("",):
                    ids = await known_ids(w, operation.path, shape) if is_known else {}
                    made = await asyncio.to_thread(requests, operation, mode, bool(ids))
                    for parts in made:
                        if "token" in ids:  # an answer may use it up
                            ids = await known_ids(w, operation.path, shape)
                            parts = {**parts, "data": await filled_in(http, ids["token"], parts.get("data"))}
                        response = await http.send(as_request(http, {**parts, "url": about(ids, parts["url"])}))
                        seen.add(response.status_code)
                        if ids:
                            about_known[operation.path].add(response.status_code)
                        if misfit := why_not(document, operation, response):
                            wrong.append((operation.label, response.status_code, misfit, response.text))
        assert not [entry for entry in wrong if entry[1] >= 500]
        assert not wrong
        assert {200, 404, 422} <= seen, "the requests got past the door"
        answered = about_known["/resume/{token}"]
        assert {200, 422} <= answered, "bodies got as far as the wait"
        assert not {403, 404, 410} & answered, "each of them found its link open"
        assert 422 in about_known["/v1/unused/{unused_id}/readdress"], "the arrival was found"


def why_not(document: Any, operation: Any, response: httpx.Response) -> str:
    """Why an answer is not as it is described; empty where it is."""
    described = document["paths"][operation.path][operation.method.lower()]["responses"].get(str(response.status_code))
    if described is None:
        return "the status is not named"
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind not in described["content"]:
        return f"{kind} is not named"
    if not kind.endswith("json") or response.request.method == "HEAD":
        return ""
    schema = {**described["content"][kind]["schema"], "components": document["components"]}
    return "; ".join(problems(schema, response.text))


def shapes(path: str) -> tuple[str, ...]:
    """What the wait, the interaction or the link that a path names is of: of each kind there is."""
    if "{token}" in path:
        return ("kyc", "payment", "form", "pressed")
    if "{interaction_id}" in path:
        return ("task", "quote", "caught", "quotes", "rows")
    return ("outreach", "quote", "caught", "quotes", "rows", "event") if "{wait_id}" in path else ("outreach",)


async def known_ids(w: World, path: str, shape: str) -> dict[str, str]:
    """Ids for the path, of what was made for it and is open."""
    return {name: await known_id(w, name, shape) for name in re.findall(r"\{(\w+)\}", path)}


async def known_id(w: World, name: str, shape: str) -> str:
    match name:
        case "token":
            told = "anything"  # where the link goes; and for one of the forms, what is asked for
            await w.start(shape, told)
            return urlsplit(SEEN[told]).path.rpartition("/")[2]
        case "unused_id":
            await w.signal("nobody", "paid", 7, check=False)
            return (await w.unused())[-1].id
        case "letter_id":
            await w.start("told")
            return (await w.dead_letters())[-1].id
    run = await w.start(shape, [1, 2])
    match name:
        case "run_id":
            return run.id
        case "signal_id":
            return f"approval-{run.id}"
        case "wait_id":
            [wait] = await w.waits(run_id=run.id)
            return wait.id
        case _:
            interactions = await w.client().interactions(run_id=run.id)
            return interactions[0].id


async def filled_in(http: httpx.AsyncClient, token: str, made: Any) -> Any:
    """What was made for a form, put into the fields of the form that the link shows."""
    if not isinstance(made, dict):
        return made
    page = (await http.get(f"/resume/{token}")).text
    [nonce] = re.findall(r'name="form" value="(\w+)"', page)
    names = dict.fromkeys(re.findall(r'name="(data[^"]*)"', page))
    return {"form": nonce, **dict(zip(names, made.values(), strict=False))}


@functools.cache
def operations_of(document: str) -> list[Any]:
    """What a description has; the same ones for every store, whose description is the same."""
    schema: Any = schemathesis.openapi.from_dict(json.loads(document))
    return [found.ok() for found in schema.get_all_operations()]


@functools.cache
def requests(operation: Any, mode: GenerationMode, is_known: bool) -> list[dict[str, Any]]:
    """The same ones every time, made once: what is in the place of ids that are known comes later."""
    made: list[dict[str, Any]] = []
    names = re.findall(r"\{(\w+)\}", operation.path) if is_known else []

    @seed(7)
    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode, path_parameters={name: f"-{name}-" for name in names} or None))
    def collect(case: Any) -> None:
        made.append(case.as_transport_kwargs(base_url="http://bide.test"))

    with suppress(Unsatisfiable):  # there is nothing to break in a call that takes nothing
        collect()
    return made


def about(ids: dict[str, str], url: str) -> str:
    for name, id in ids.items():
        url = url.replace(f"-{name}-", id)
    return url


def as_request(http: httpx.AsyncClient, parts: dict[str, Any]) -> httpx.Request:
    headers = {
        name: value.encode("latin-1", "replace")
        for name, value in parts["headers"].items()
        if name.lower() in ("content-type", "idempotency-key")
    }
    if parts["url"].endswith("/v1/stream") and parts["method"] == "GET":
        parts = {**parts, "method": "HEAD"}  # all the same, but for what may have no end
    body = {"json": parts["json"]} if "json" in parts else {"content": parts.get("data")}
    if isinstance(parts.get("data"), dict):
        body = {"content": urlencode({str(name): str(value) for name, value in parts["data"].items()})}
    return http.build_request(parts["method"], parts["url"], params=parts["params"], headers=headers, **body)
