"""Forms from schemas: what is shown, and what a filled-in form stands for (W5)."""

from __future__ import annotations

import re
from datetime import date, time
from typing import Annotated, Any

import msgspec
import pytest

from bide.core.schema import problems, schema_of
from bide.server.calls import problems_of
from bide.server.forms import (
    Field,
    LeftOut,
    answers_untouched,
    form_of,
    left_out,
    read_form,
    say_what_cannot_be_kept,
    say_what_to_choose,
    with_errors,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["approved"],
    "properties": {
        "approved": {"type": "boolean", "default": True},
        "sure": {"type": "boolean", "default": False},
        "unknown": {"enum": ["small", "large"], "default": "tiny"},
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
        ("approved", ""),  # T17: what must be chosen is not chosen beforehand
        ("sure", "false"),
        ("size", '"small"'),
        ("unknown", ""),  # a default that nobody could choose
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


TEXT, LIST = {"type": "string"}, {"type": "array", "items": {"type": "string", "minLength": 2}}
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "integer"}, "seven", "Please give a whole number."),
    ({"type": "integer", "minimum": 1, "maximum": 500}, "900", "Please give a whole number from 1 to 500."),
    ({"type": "number", "minimum": 1}, "0", "Please give a number of at least 1."),
    ({"type": "number", "exclusiveMinimum": 0}, "0", "Please give a number above 0."),
    ({"type": "number", "multipleOf": 0.5}, "0.3", "Please give a number in steps of 0.5."),
    ({**TEXT, "minLength": 3, "maxLength": 40}, "x", "Please write 3 to 40 characters."),
    ({**TEXT, "maxLength": 2}, "xyz", "Please write at most 2 characters."),
    ({**TEXT, "minLength": 5, "maxLength": 5}, "xyz", "Please write exactly 5 characters."),
    ({**TEXT, "pattern": "^[A-Z]{3}-[0-9]+$"}, "abc", "It is not written in the way that is asked for."),
    ({**TEXT, "pattern": "^[A-Z]{3}$", "examples": ["ABC"]}, "abc", "Please write it like ABC."),
    ({**TEXT, "format": "date"}, "tomorrow", "Please give a date, like 2030-02-01."),
    ({**TEXT, "format": "email"}, "lea", "Please give an e-mail address, like ann@example.com."),
    ({**TEXT, "format": "date-time"}, "2030-02-01", "Please give a date and a time, like 2030-02-01T14:30:00Z."),
    ({**TEXT, "format": "time"}, "14:30", "Please give a time, like 14:30:00Z."),
    ({**TEXT, "format": "uri"}, "example.com", "Please give a link, like https://example.com."),
    ({"const": "agreed"}, "no", "Please choose one of these."),
    ({"const": "agreed"}, "", "Please choose one."),
    ({"enum": ["red", "blue"]}, "green", "Please choose one of these."),
    ({"type": "boolean"}, "perhaps", "Please choose one of these."),
    ({**LIST, "maxItems": 3}, "aa\nbb\ncc\ndd", "Please give at most 3, one per line."),
    (LIST, "aa\nb", "Line 2: Please write at least 2 characters."),
    ({"type": "array", "items": {"enum": [1, 2]}, "minItems": 1}, "", "Please choose at least 1 of these."),
    ({"anyOf": [{"type": "object"}, {"type": "integer"}]}, "{x", "This is not what is asked for here."),
    ({"type": "array", "items": {"type": "integer"}}, "1\nx", "Line 2: Please give a whole number."),
    ({"type": "array", "items": {"type": "array"}}, "[1, 2]", "This is not what is asked for here."),
]


@pytest.mark.parametrize(("schema", "text", "said"), WRONG)
def test_what_is_wrong_is_said_in_words_that_need_no_programmer(schema: dict[str, Any], text: str, said: str) -> None:
    """W5: what to do, beside the field; no expressions, no types of JSON, no paths."""
    whole = {"type": "object", "required": ["it"], "properties": {"it": schema}}
    filled = {"data.it": [text]}
    wrong = problems(whole, msgspec.json.encode(read_form(whole, filled)).decode())
    [field] = fields = form_of(whole, filled)
    assert wrong
    assert with_errors(fields, problems_of(tuple(wrong)))
    assert field.error == said
    assert not re.search(r"[\^$\\]|is not of type|anyOf|schema|null|JSON", field.error)


def test_all_that_is_missing_is_said_and_what_has_no_field_is_not_forgotten() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b", "inner"],
        "properties": {"a": TEXT, "b": {"type": "boolean"}, "inner": {"type": "object", "properties": {"c": TEXT}}},
        "minProperties": 3,
    }
    wrong = problems_of(tuple(problems(schema, "{}")))
    fields = form_of(schema, {})
    assert not with_errors(fields, wrong), "minProperties belongs to no field"
    assert [field.error for field in fields] == ["Please fill this in.", "Please choose one.", "Please fill this in."]


def test_T17_a_choice_that_is_required_is_made_whatever_its_default() -> None:
    fields = form_of(SCHEMA, {"data.amount": ["1"]})
    assert say_what_to_choose(fields)
    assert [field.name for field in fields if field.error] == ["data.approved"]
    assert not say_what_to_choose(form_of(SCHEMA, {"data.approved": ["false"]}))


def test_a_choice_that_may_be_left_out_is_left_out() -> None:
    """W5: as a text or a number is, so that the default counts; boxes that were ticked beforehand can be emptied."""
    fields = {field.name: field for field in form_of(SCHEMA)}
    assert [fields[f"data.{name}"].is_optional for name in ("approved", "sure", "size", "colours")] == [
        False,
        *[True] * 3,
    ]
    assert read_form(SCHEMA, {"data.approved": ["true"], "data.size": [""]}) == {"approved": True, "colours": []}


def test_what_must_be_there_and_may_be_null_is_null_where_it_is_left_empty() -> None:
    """W5: the form calls it optional, so leaving it empty is an answer; of a group too."""
    text = {"anyOf": [TEXT, {"type": "null"}]}
    group = {"type": "object", "required": ["note"], "properties": {"note": text, "more": TEXT}}
    schema = {
        "type": "object",
        "required": ["note", "sure", "in"],
        "properties": {"note": text, "sure": {"type": ["boolean", "null"]}, "in": {"anyOf": [group, {"type": "null"}]}},
    }
    assert [field.is_optional for field in form_of(schema)] == [True, True, True]
    read = read_form(schema, {"data.note": [""], "data.in.more": [""]})
    assert read == {"note": None, "sure": None, "in": None}
    assert problems(schema, msgspec.json.encode(read).decode()) == []
    assert read_form(schema, {"data.in.more": ["x"]})["in"] == {"note": None, "more": "x"}
    assert answers_untouched(schema)


def test_boxes_that_may_be_left_out_and_have_no_default_are_left_out() -> None:
    """W5: none of them is no list of none, which the schema may not take, and begins no group."""
    boxes = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}
    group = {
        "type": "object",
        "required": ["boxes"],
        "properties": {"boxes": boxes, "more": {**boxes, "default": ["a"]}},
    }
    schema = {"type": "object", "properties": {"boxes": boxes, "in": group}}
    assert read_form(schema, {}) == {}
    assert read_form(schema, {"data.in.more": ['"b"']}) == {"in": {"boxes": [], "more": ["b"]}}
    assert read_form({**schema, "required": ["boxes"]}, {}) == {"boxes": []}


def test_a_group_that_must_be_there_may_be_empty_where_nothing_in_it_must() -> None:
    """W5: JSON may be `{}`, so the form may be left as it is; what is missing in another is said beside its field."""
    inner = {"type": "object", "properties": {"note": TEXT, "more": {"type": "object", "properties": {"x": TEXT}}}}
    whole = {"type": "object", "required": ["ok", "in"], "properties": {"ok": {"type": "boolean"}, "in": inner}}
    read = read_form(whole, {"data.ok": ["true"], "data.in.note": [""], "data.in.more.x": [""]})
    assert read == {"ok": True, "in": {}}
    assert not problems(whole, msgspec.json.encode(read).decode())
    assert not answers_untouched(whole)
    assert answers_untouched({**whole, "required": ["in"]}), "T17: then a box must be ticked"

    inner["required"] = ["note"]
    filled = {"data.ok": ["true"], "data.in.note": [""]}
    wrong = problems(whole, msgspec.json.encode(read_form(whole, filled)).decode())
    fields = form_of(whole, filled)
    assert with_errors(fields, problems_of(tuple(wrong)))
    assert [field.error for field in fields[1].fields] == ["Please fill this in.", ""]


@pytest.mark.parametrize("items", [TEXT, {"type": "integer"}])
def test_a_list_that_must_be_there_may_be_empty_unless_so_many_must_be_in_it(items: dict[str, Any]) -> None:
    """W5: a browser lets nobody leave a field empty that is marked as required, and the page says that it may be."""
    tags: dict[str, Any] = {"type": "array", "items": items}
    whole = {"type": "object", "required": ["tags"], "properties": {"tags": tags}}
    [field] = form_of(whole)
    assert (field.required, field.is_optional, field.hint) == (False, False, "One per line, or none")
    for text in ("", " \r\n"):
        read = read_form(whole, {"data.tags": [text]})
        assert read == {"tags": []}
        assert not problems(whole, msgspec.json.encode(read).decode())
    assert read_form(tags, {"data": [""]}) == []
    assert answers_untouched(whole), "T17: then a box must be ticked"
    assert read_form({**whole, "required": []}, {"data.tags": [""]}) == {}

    tags["minItems"] = 1
    [field] = form_of(whole)
    assert (field.required, field.hint) == (True, "One per line")
    assert read_form(whole, {"data.tags": [""]}) == {}


def of_many(count: int, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": {f"f{n}": TEXT for n in range(count)}}


def test_what_must_be_filled_in_comes_before_what_may_where_a_form_has_no_room_for_all() -> None:
    """W5: in the order of the schema; and it is known how many fields are not shown."""
    whole = of_many(130, ["f120", "f129"])
    fields = form_of(whole)
    assert [field.label for field in fields if field.required] == ["F120", "F129"]
    assert [field.label for field in fields] == [*(f"F{n}" for n in range(98)), "F120", "F129"]
    assert left_out(whole) == LeftOut(30, is_needed=False)
    read = read_form(whole, {"data.f120": ["a"], "data.f129": ["b"], "data.f98": ["not shown"]})
    assert read == {"f120": "a", "f129": "b"}
    assert left_out(of_many(100, [])) == LeftOut(0, is_needed=False)


@pytest.mark.parametrize(
    ("schema", "is_needed"),
    [
        (of_many(101, [f"f{n}" for n in range(101)]), True),
        ({"type": "object", "properties": {"in": of_many(101, [f"f{n}" for n in range(101)])}}, False),
        (
            {"type": "object", "required": ["in"], "properties": {"in": of_many(101, [f"f{n}" for n in range(101)])}},
            True,
        ),
        ({"type": "object", "properties": {f"in{n}": of_many(10, []) for n in range(100)}}, True),
    ],
)
def test_it_is_known_whether_a_form_can_be_an_answer_at_all(schema: dict[str, Any], is_needed: bool) -> None:
    """W5: what must be there has to be shown, and a form of more fields than are read is none."""
    assert left_out(schema).is_needed is is_needed


def test_boxes_are_shown_also_where_what_to_choose_from_is_defined_elsewhere() -> None:
    """W5: as for an enum, to which schemas refer."""
    schema = {
        "type": "object",
        "properties": {"colours": {"type": "array", "items": {"$ref": "#/$defs/Colour"}, "default": ["blue"]}},
        "$defs": {"Colour": {"enum": ["red", "blue"]}},
    }
    colours = shown(schema)["colours"]
    assert (colours.kind, colours.options, colours.value) == ("choices", ["red", "blue"], ['"blue"'])
    assert read_form(schema, {"data.colours": ['"red"', '"blue"']}) == {"colours": ["red", "blue"]}


class Address(msgspec.Struct):
    street: str
    number: int
    letter: Annotated[str, msgspec.Meta(max_length=1)] | None = None


class Person(msgspec.Struct):
    address: Address | None = None
    other: Address | None = None


def test_W5_what_is_wrong_in_a_group_that_may_be_left_out_is_said_beside_its_field() -> None:
    """W3, W5: as in one that must be there; every problem has its path."""
    schema = schema_of(Person)
    filled = {
        "data.address.street": ["Main St"],
        "data.other.street": ["x"],
        "data.other.number": ["seven"],
        "data.other.letter": ["abc"],
    }
    wrong = problems(schema, msgspec.json.encode(read_form(schema, filled)).decode())
    assert wrong == [
        'at $.address: "number" is a required property',
        'at $.other.number: "seven" is not of type "integer"',
        'at $.other.letter: "abc" is longer than 1 character',
    ]
    fields = form_of(schema, filled)
    assert with_errors(fields, problems_of(tuple(wrong)))
    assert [field.error for field in fields] == ["", ""]
    assert [[inner.error for inner in field.fields] for field in fields] == [
        ["", "Please fill this in.", ""],
        ["", "Please give a whole number.", "Please write at most 1 characters."],
    ]
    assert problems(schema, '{"address": 7}') == ['at $.address: 7 is not of type "object"']


@pytest.mark.parametrize(
    ("schema", "is_answer"),
    [
        (SCHEMA, False),
        ({"type": "boolean", "default": True}, False),
        ({"enum": ["a"], "default": "a"}, False),
        ({}, True),
        (None, True),
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, True),
        ({"type": "object", "properties": {"note": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"amount": {"type": "integer", "default": 5}}}, True),
        ({"type": "object", "properties": {"sure": {"type": "boolean", "default": True}}}, True),
        ({"type": "object", "properties": {"size": {"enum": [1, 2], "default": 2}}}, True),
        ({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}, False),
        ({"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": [1]}}}}, True),
    ],
)
def test_T17_it_is_known_whether_a_form_would_be_an_answer_as_it_is_shown(schema: Any, is_answer: bool) -> None:
    assert answers_untouched(schema) is is_answer


def test_a_field_is_called_what_its_schema_calls_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "title": "Amount in EUR"},
            "due": {"anyOf": [{"type": "string", "title": "Pay by"}, {"type": "null"}]},
            "to": {"$ref": "#/$defs/Person"},
        },
        "$defs": {"Person": {"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}}},
    }
    assert [field.label for field in form_of(schema)] == ["Amount in EUR", "Pay by", "To"]


def test_numbers_are_written_one_per_line() -> None:
    schema = {"type": "object", "properties": {"sizes": {"type": "array", "items": {"type": "number"}}}}
    assert shown(schema)["sizes"].hint == "One per line"
    assert read_form(schema, {"data.sizes": ["1\r\n2,5\r\n"]}) == {"sizes": [1, 2.5]}


ANY, NUMBER = {"description": "anything"}, {"type": "number"}
CANNOT_BE_KEPT: list[tuple[dict[str, Any], list[str], str]] = [
    (ANY, ["[" * 5000], "This is nested too deeply. Please write it flatter."),
    (ANY, ['{"a": 1, "a": 2}'], "A name is in it more than once. Please give each name once."),
    (ANY, ["[NaN]"], "There is a number in it that is none. Please put it in quotes."),
    (ANY, ["9" * 5000], "A number in it is too large. Please put it in quotes."),
    (ANY, [f"[{'1,' * 200_000}1]"], "There are too many values in it. Please give fewer."),
    (ANY, ['"\\ud800"'], "There is a character in it that cannot be kept. Please take it out."),
    (ANY, ["1", "2"], "This was sent more than once. Please answer it once."),
    (NUMBER, ["-9223372036854775809"], "This number is too large."),
    (NUMBER, ["1e999"], "This number is too large."),
    (TEXT, ["a\0b"], "There is a character in it that cannot be kept. Please take it out."),
    ({"type": "array", "items": {"enum": ["a"]}}, ['"a"', "\0"], "There is a character in it that cannot be kept."),
]


@pytest.mark.parametrize(("schema", "given", "said"), CANNOT_BE_KEPT)
def test_H3_what_cannot_be_kept_is_said_beside_its_field(schema: Any, given: list[str], said: str) -> None:
    """Also in a group; and the form can be read all the same."""
    whole = {"type": "object", "properties": {"in": {"type": "object", "properties": {"it": schema, "note": TEXT}}}}
    filled = {"data.in.it": given, "data.in.note": ["fine"]}
    [group] = fields = form_of(whole, filled)
    assert say_what_cannot_be_kept(fields, filled)
    assert [field.error.startswith(said) for field in group.fields] == [True, False]
    assert set(read_form(whole, filled)["in"]) == {"it", "note"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1234567890123456789", 1234567890123456789),
        (" +7 ", 7),
        ("-2,5", -2.5),
        ("1e3", 1000.0),
        ("9223372036854775808", "9223372036854775808"),
        ("NaN", "NaN"),
        ("true", "true"),
    ],
)
def test_T35_a_number_keeps_its_last_digit_or_is_none(text: str, number: Any) -> None:
    """As far as 64 bits go; what is beyond them is not rounded, but left for the schema to refuse."""
    read = read_form({"type": "number"}, {"data": [text]})
    assert (read, type(read)) == (number, type(number))


FITTING: list[tuple[dict[str, Any], str, Any]] = [
    ({"const": "agreed"}, '"agreed"', "agreed"),
    ({"const": 5}, "5", 5),
    ({"const": None}, "null", None),
    ({"enum": [None, "red"]}, "null", None),
    ({**TEXT, "format": "date-time"}, "2030-02-01T14:30:00Z", "2030-02-01T14:30:00Z"),
    ({**TEXT, "format": "time"}, "14:30:00Z", "14:30:00Z"),
    ({**TEXT, "format": "uri"}, "https://example.com/a?b=c#d", "https://example.com/a?b=c#d"),
    ({}, "null", None),
]


@pytest.mark.parametrize(("schema", "text", "value"), FITTING)
def test_what_fits_is_read_as_what_it_stands_for(schema: dict[str, Any], text: str, value: Any) -> None:
    """Also `null`, where it is chosen or written: it is told apart from what was left empty."""
    whole = {"type": "object", "required": ["it"], "properties": {"it": schema}}
    read = read_form(whole, {"data.it": [text]})
    assert read == {"it": value}
    assert not problems(whole, msgspec.json.encode(read).decode())
    assert read_form(whole, {"data.it": [""]}) == {}


@pytest.mark.parametrize(
    ("schema", "input", "hint"),
    [
        ({**TEXT, "format": "date"}, "date", ""),
        ({**TEXT, "format": "uri"}, "url", ""),
        ({**TEXT, "format": "date-time"}, "text", "A date and a time, like 2030-02-01T14:30:00Z"),
        ({**TEXT, "format": "time"}, "text", "A time, like 14:30:00Z"),
        (schema_of(time), "text", "Like 14:30:00"),
        (schema_of(date), "date", ""),
    ],
)
def test_no_field_of_a_browser_makes_what_does_not_fit(schema: dict[str, Any], input: str, hint: str) -> None:
    """Browsers give a time without its zone, which is none by the format `time`: it is written, and said how."""
    [field] = form_of(schema)
    assert (field.kind, field.input, field.hint) == ("text", input, hint)


def nested(levels: int) -> dict[str, Any]:
    """Groups in groups, with a number in the innermost."""
    schema: dict[str, Any] = {"type": "integer"}
    for level in reversed(range(levels)):
        schema = {"type": "object", "required": [f"in{level}"], "properties": {f"in{level}": schema}}
    return schema


def test_groups_that_are_nested_too_deeply_to_be_shown_are_written_as_json() -> None:
    schema, levels = nested(7), []
    [field] = form_of(schema)
    while field.fields:
        levels.append(field.kind)
        [field] = field.fields
    assert levels == ["group"] * 4
    assert (field.name, field.kind, field.hint) == ("data.in0.in1.in2.in3.in4", "json", "JSON")

    for text, is_fitting in (('{"in5": {"in6": 7}}', True), ('{"in5": {"in6": "x"}}', False), ("x", False)):
        filled = {field.name: [text]}
        read = read_form(schema, filled)
        wrong = problems(schema, msgspec.json.encode(read).decode())
        assert not wrong or not is_fitting
        fields = form_of(schema, filled)
        assert with_errors(fields, problems_of(tuple(wrong)))
        [innermost] = fields
        while innermost.fields:
            assert innermost.error == ""
            [innermost] = innermost.fields
        assert (innermost.value, innermost.error == "") == (text, is_fitting)
    assert read_form(nested(5), {field.name: ["7"]}) == {"in0": {"in1": {"in2": {"in3": {"in4": 7}}}}}
