"""A value that fits a JSON Schema, to show people what one looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEEPEST: Final = 5
FORMATS: Final = {
    "date": "2030-02-01",
    "date-time": "2030-02-01T14:30:00Z",
    "time": "14:30:00Z",
    "email": "ann@example.com",
    "uri": "https://example.com",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def sample(schema: object) -> Any:
    """What an author would write to try it out; whether it fits every limit is for the one who asks to check.

    >>> sample({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 3}, "x": {}}})
    {'n': 3}
    """
    return _sample(schema, schema, 0)


def _sample(schema: object, root: object, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/") and isinstance(root, Mapping):
        return _sample(root.get("$defs", {}).get(reference.removeprefix("#/$defs/")), root, depth + 1)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _sample(options[0], root, depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields = schema.get("properties", {})
            return {name: _sample(fields.get(name), root, depth + 1) for name in schema.get("required", ())}
        case "array":
            return [_sample(schema.get("items"), root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            text = FORMATS.get(str(schema.get("format")), "Ann")
            return text.ljust(schema.get("minLength", 0), "a")
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 1))
        case "boolean":
            return True
        case _:
            return None
