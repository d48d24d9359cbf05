"""JSON Schemas that are stored with waits, and what an answer does wrong against one (W3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

MOST_PROBLEMS = 100
MOST_WORDS = 300  # of one problem: it may quote the data


def schema_of(type_: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type: a msgspec Struct, dataclass, TypedDict, Literal, enum, union or pydantic model.

    A mapping is taken as a schema itself; `Any` has none.
    """
    if type_ is Any or type_ is object:
        return None
    if isinstance(type_, dict):
        return type_
    make = getattr(type_, "model_json_schema", None)
    if make is not None:
        made: dict[str, Any] = make()
        return made
    return msgspec.json.schema(type_)


def schema_or_none(type_: Any) -> dict[str, Any] | None:
    """The same, and None for a type that JSON Schema has no words for."""
    try:
        return schema_of(type_)
    except (TypeError, RecursionError):
        return None


def check_schema(schema: dict[str, Any]) -> None:
    """Raises `ValueError` where it is no JSON Schema that can be used."""
    _validator(msgspec.json.encode(schema))


def problems(schema: object, data: str) -> list[str]:
    """Every problem of the data with its path; empty where it fits."""
    if schema is None:
        return []
    validator = _validator(msgspec.json.encode(schema))
    found = validator.iter_errors(msgspec.json.decode(data))
    return [_said(error) for _, error in zip(range(MOST_PROBLEMS), found, strict=False)]


def _said(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    message = error.message if len(error.message) <= MOST_WORDS else f"{error.message[:MOST_WORDS]}…"
    return f"at ${path}: {message}"


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    """Formats count, so that what passes can be read as the type; references stay inside the schema."""
    return jsonschema_rs.validator_for(msgspec.json.decode(schema), validate_formats=True, offline=True)
