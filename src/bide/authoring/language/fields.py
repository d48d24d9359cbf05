"""Fields of a machine: the JSON Schema that they make, and values checked against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bide.authoring.language.evaluating import Values, evaluate, said
from bide.authoring.language.source import Source
from bide.authoring.language.tree import Field
from bide.authoring.language.typing import is_date

JSON_TYPES: Final = {"text": "string", "number": "number", "boolean": "boolean", "list": "array", "map": "object"}


def schema_of_fields(fields: Sequence[Field] | None) -> dict[str, Any]:
    """What an answer must look like: required fields there, every field of its type or, if not required, null."""
    if fields is None:
        return {}
    required = [field.name for field in fields if field.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: _schema(field) for field in fields}}
    return schema | ({"required": required} if required else {})


def _schema(field: Field) -> dict[str, Any]:
    if field.type == "date":
        kinds: list[dict[str, Any]] = [
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
        ]
        return {"anyOf": kinds if field.is_required else [*kinds, {"type": "null"}]}
    kind = JSON_TYPES[field.type]
    return {"type": kind if field.is_required else [kind, "null"]}


def with_defaults(fields: Sequence[Field] | None, given: Any, source: Source) -> Any:
    """The object with what it lacks filled in: defaults, and null where there is none."""
    if fields is None or not isinstance(given, dict):
        return given
    filled = dict(given)
    for field in fields:
        if filled.get(field.name) is None:
            filled[field.name] = evaluate(field.default, Values(), source) if field.default is not None else None
    return filled


def misfits(fields: Sequence[Field] | None, value: Any) -> list[str]:
    """Every way in which an object does not fit the fields, in words."""
    if fields is None:
        return []
    if not isinstance(value, dict):
        return [f"it is {said(value)}, not an object with {', '.join(field.name for field in fields)}"]
    found = []
    for field in fields:
        got = value.get(field.name)
        if got is None and field.is_required:
            found.append(f"{field.name} is missing, and it is required")
        elif got is not None and not _is(field.type, got):
            found.append(f"{field.name} is {field.type}, but {said(got)} was given")
    return found


def _is(type_: str, value: Any) -> bool:
    match type_:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "map":
            return isinstance(value, dict)
        case _:
            return is_date(value)
