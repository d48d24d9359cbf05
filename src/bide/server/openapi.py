"""OpenAPI 3.1, made from the same table that requests are answered by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bide.server.calls import DONE_ONCE, Endpoint
from bide.server.problems import TITLES, Problem

EVERY = (400, 413, 415, 422)
WITH_KEY = (401, 403, 429)


def document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    shown = [endpoint for endpoint in endpoints if endpoint.answers]
    types: list[Any] = [Problem]
    for endpoint in shown:
        types += [type_ for type_ in (endpoint.body, endpoint.query, *endpoint.answers.values()) if type_ is not None]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    known = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in shown:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, known, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bide", "version": version, "description": "Durable runs that wait for the outside world."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "bide_ws_…"}},
        },
        "security": [{"key": []}],
    }


def _operation(endpoint: Endpoint, known: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    if endpoint.query is not None:
        parameters += _query(components[endpoint.query.__name__])
    if endpoint.method in DONE_ONCE and not endpoint.is_public:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"},
            }
        )
    statuses = {*endpoint.refusals, *EVERY, *(() if endpoint.is_public else WITH_KEY)}
    responses: dict[str, Any] = {
        str(status): {"description": "Done", "content": {endpoint.media_type: {"schema": known[type_]}}}
        for status, type_ in endpoint.answers.items()
    }
    page = {"text/html": {"schema": {"type": "string"}}} if endpoint.takes_form else {}
    for response in responses.values():
        response["content"].update(page)
    problem = {"application/problem+json": {"schema": known[Problem]}, **page}
    for status in sorted(statuses):
        said = responses.setdefault(str(status), {"description": TITLES[status], "content": {}})
        said["content"].update(problem)
    made: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z]+', '_', endpoint.path)}".strip("_"),
        "parameters": parameters,
        "responses": responses,
    }
    if endpoint.scope is not None:
        made["description"] = f"Needs the scope `{endpoint.scope}`."
    if endpoint.is_public:
        made["security"] = []
    if endpoint.body is not None:
        required = bool(components.get(endpoint.body.__name__, {}).get("required"))
        content = {"application/json": {"schema": known[endpoint.body]}}
        if endpoint.takes_form:
            content["application/x-www-form-urlencoded"] = {"schema": {"type": "object"}}
        made["requestBody"] = {"required": required, "content": content}
    return made


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": _not_null(field)}
        for name, field in schema.get("properties", {}).items()
    ]


def _not_null(field: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is there or not; it cannot be null."""
    options = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
    kept = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return {**kept, **options[0]} if len(options) == 1 else {**kept, **({"anyOf": options} if options else {})}
