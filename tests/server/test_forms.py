"""Forms from schemas: what is shown, and what a filled-in form stands for (W5)."""

from __future__ import annotations

from typing import Any

import pytest

from bide.server.forms import Field, form_of, read_form

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["approved"],
    "properties": {
        "approved": {"type": "boolean", "default": True},
        "size": {"enum": ["small", "large"], "default": "small"},
        "colours": {"type": "array", "items": {"enum": ["red", "blue"]}, "default": ["blue"]},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        "lines": {"type": "array", "items": {"type": "string"}, "default": ["one", "two"]},
        "amount": {"type": "number", "default": 0.5},
        "note": {"type": "string", "default": None},
        "address": {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["street"],
                    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "default": "1010"}},
                },
                {"type": "null"},
            ]
        },
    },
}


def shown(schema: Any) -> dict[str, Field]:
    return {field.name.removeprefix("data."): field for field in form_of(schema)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("approved", "true"),
        ("size", '"small"'),
        ("colours", ['"blue"']),
        ("tags", ""),
        ("lines", "one\ntwo"),
        ("amount", "0.5"),
        ("note", ""),
    ],
)
def test_a_default_is_proposed_as_the_form_can_show_it(name: str, value: Any) -> None:
    assert shown(SCHEMA)[name].value == value


def test_an_optional_group_may_be_left_empty_as_a_whole() -> None:
    address = shown(SCHEMA)["address"]
    assert (address.required, [field.required for field in address.fields]) == (False, [False, False])
    assert [field.value for field in address.fields] == ["", ""], "a default would send half of the group"
    assert "address" not in read_form(SCHEMA, {"data.approved": ["true"], "data.address.street": [""]})
    assert read_form(SCHEMA, {"data.address.zip": ["1010"]})["address"] == {"zip": "1010"}


def test_what_is_filled_in_is_shown_again_in_place_of_the_default() -> None:
    again = {field.name: field.value for field in form_of(SCHEMA, {"data.size": ['"large"']})}
    assert (again["data.size"], again["data.colours"], again["data.lines"]) == ('"large"', [], "")
