"""Which events a wait takes, as the CEL expression that the kernel asks of each: fields by type, and given values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bide.authoring.language.evaluating import said
from bide.authoring.language.tree import Field
from bide.errors import BadInput

TYPES: Final = {
    "text": "type({}) == string",
    "number": "(type({}) == int || type({}) == uint || type({}) == double)",
    "boolean": "type({}) == bool",
    "list": "type({}) == list",
    "map": "type({}) == map",
    # `timestamp` errs where there is no such day, and what errs does not match; it wants a time and a zone.
    "date": (
        "(type({}) == string && timestamp({}.matches('^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$') ? {} + 'T00:00:00Z' : "
        "{}.matches('(Z|[+-][0-9]{{2}}:[0-9]{{2}})$') ? {} : {} + 'Z') >= timestamp('0001-01-01T00:00:00Z'))"
    ),
}


def expression_of(match: Mapping[str, Any] | None, fields: Sequence[Field] | None) -> str | None:
    """What an event's data must be: None where any will do.

    >>> expression_of({"order": "7"}, None)
    '("order" in data && data["order"] == "7")'
    """
    if match is not None and not isinstance(match, Mapping):
        raise BadInput(f"match: give an object with the values that the event must have, not {said(match)}")
    conditions = [_equals(name, value) for name, value in (match or {}).items()]
    conditions += [_fits(field) for field in fields or ()]
    return " && ".join(conditions) if conditions else None


def _equals(name: str, value: Any) -> str:
    if not isinstance(value, (str, int, float, bool)) and value is not None:
        raise BadInput(f"match: {name} is a list or an object; compare single values")
    return f"({_quoted(name)} in data && {_at(name)} == {_quoted(value)})"


def _fits(field: Field) -> str:
    at = _at(field.name)
    is_there = f"{_quoted(field.name)} in data"
    wanted = TYPES[field.type].replace("{}", at).replace("{{", "{").replace("}}", "}")
    if field.is_required:
        return f"({is_there} && {wanted})"
    return f"(!({is_there}) || {at} == null || {wanted})"


def _at(name: str) -> str:
    return f"data[{_quoted(name)}]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
