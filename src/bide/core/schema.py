"""JSON Schemas that are stored with waits, and what an answer does wrong against one (W3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec
import msgspec.inspect

MOST_PROBLEMS = 100
MOST_WORDS = 300  # of one problem: it may quote the data

_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?"


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
    return _of_class(type_) if isinstance(type_, type) else _made(type_)


@lru_cache(maxsize=512)
def _of_class(type_: type) -> dict[str, Any]:
    """Made once: a body asks for it in every turn. Nobody changes it."""
    return _made(type_)


def _made(type_: Any) -> dict[str, Any]:
    schema = msgspec.json.schema(type_)
    _tell_moments(schema, msgspec.inspect.type_info(type_), schema, set())
    return schema


def _tell_moments(node: Any, info: Any, root: dict[str, Any], seen: set[type]) -> None:
    """Say which texts are moments: msgspec says nothing of their form where the time zone may be missing, and any text
    would pass the check and break the run that reads it."""
    known = msgspec.inspect
    if isinstance(info, known.Metadata):
        return _tell_moments(node, info.type, root, seen)
    if not isinstance(node, dict):
        return None
    if isinstance(node.get("$ref"), str):
        node = root.get("$defs", {}).get(node["$ref"].removeprefix("#/$defs/"), {})
    match info:
        case known.DateTimeType(tz=None):
            node |= {"pattern": f"^{_DATE}[Tt ]{_TIME}$", "examples": ["2030-02-01T14:30:00Z"]}
        case known.TimeType(tz=None):
            node |= {"pattern": f"^{_TIME}$", "examples": ["14:30:00"]}
        case known.StructType() | known.DataclassType() | known.TypedDictType():
            if info.cls not in seen:
                seen.add(info.cls)
                for field in info.fields:
                    _tell_moments(node.get("properties", {}).get(field.encode_name), field.type, root, seen)
        case known.ListType() | known.SetType() | known.FrozenSetType() | known.VarTupleType() | known.CollectionType():
            _tell_moments(node.get("items"), info.item_type, root, seen)
        case known.TupleType():
            for part, inner in zip(node.get("prefixItems", ()), info.item_types, strict=False):
                _tell_moments(part, inner, root, seen)
        case known.DictType():
            _tell_moments(node.get("additionalProperties"), info.value_type, root, seen)
        case known.UnionType() if len(node.get("anyOf", ())) == len(info.types):
            for part, inner in zip(node["anyOf"], info.types, strict=True):
                _tell_moments(part, inner, root, seen)
    return None


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
