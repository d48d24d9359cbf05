"""Expressions: what they come to, and what they refuse (L2)."""

from __future__ import annotations

from typing import Any

import pytest

from bide.authoring.language.evaluating import Values, evaluate
from bide.authoring.language.expressions import parse_text
from bide.errors import BadExpression

INPUT = {"n": 3, "text": "abc", "list": [1, 2, 3], "map": {"a": {"b": 7}}, "none": None, "half": 0.5, "yes": True}


def value_of(text: str, **values: Any) -> Any:
    source, expression = parse_text(text)
    return evaluate(expression, Values(**{"input": INPUT, **values}), source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("7 / 2", 3.5),
        ("6 / 2", 3),
        ("-input.n", -3),
        ("2 * -3", -6),
        ("1e3 + 0.5", 1000.5),
        ('"a" + "b"', "ab"),
        ('"n: " + input.n', "n: 3"),
        ('"${input.n + 1} of ${input.list}"', "4 of [1, 2, 3]"),
        ('"${input.none}|${input.half}|${4.0}|${input.yes}"', "|0.5|4|true"),
        ('"${"in ${"in"}"}"', "in in"),
        (r'"a\n\t\"\\\u00e9\${x}"', 'a\n\t"\\é${x}'),
        ("[1] + [2]", [1, 2]),
        ('{a: 1, "b c": [input.n]}', {"a": 1, "b c": [3]}),
        ("input.map.a.b", 7),
        ('input["map"]["a"].b', 7),
        ("input.list[0] + input.list[-1]", 4),
        ("input.none.x.y", None),
        ("input.missing", None),
        ("steps.unknown.x", None),
        ("input.n == 3 and not (input.n > 3)", True),
        ("input.none or input.n >= 3", True),
        ('"a" < "b"', True),
        ("true == 1", False),
        ("[true] == [1]", False),
        ("1 == 1.0", True),
        ("null == null", True),
        ("{a: 1} != {a: 2}", True),
        ("not not true", True),
        ("forever", "forever"),
    ],
)
def test_an_expression_comes_to_a_value(text: str, value: Any) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_only_one_side_of_and_and_or_is_looked_at_where_it_decides() -> None:
    assert value_of("false and 1 / 0 == 1") is False
    assert value_of("true or 1 / 0 == 1") is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "expression:1:5: nothing can be divided by 0"),
        ("1 + input.yes", "expression:1:5: `+` takes numbers, but this is a boolean"),
        ("input.text * 2", "expression:1:1: `*` takes numbers, but this is a text"),
        ('"a" + input.none', "expression:1:7: `+` cannot join a text and null"),
        ('"a" + input.list', "expression:1:7: `+` cannot join a text and a list"),
        ("input.n < input.text", "expression:1:11: `<` takes numbers, but this is a text"),
        ("input.n.x", "expression:1:9: a number has no field `x`"),
        ("input.list[3]", "expression:1:12: there is no item 3 in a list of 3"),
        ("input.list[input.yes]", "expression:1:1: a list has no item a boolean"),
        ("not input.n", "expression:1:5: true or false was expected, not a number"),
        ("input.n and true", "expression:1:1: true or false was expected, not a number"),
        ("9223372036854775807 + 1", "expression:1:1: the number gets too large"),
        ("1e308 * 10", "expression:1:1: the number gets too large"),
        ("x", "expression:1:1: there is nothing called `x` here"),
        ("secrets.KEY", "expression:1:1: secret 'KEY' cannot be read here, because it would be stored"),
    ],
)
def test_what_cannot_be_computed_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(BadExpression) as caught:
        value_of(text)
    assert str(caught.value) == said


def test_a_text_or_a_list_does_not_grow_without_end() -> None:
    """A loop that doubles a text must not eat the worker's memory."""
    with pytest.raises(BadExpression, match="longer than 1000000 letters"):
        value_of("input.t + input.t", input={"t": "x" * 600_000})
    with pytest.raises(BadExpression, match="longer than 100000 items"):
        value_of("input.l + input.l", input={"l": [0] * 60_000})
