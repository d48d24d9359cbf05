"""Expressions over the data of a message, and which of them an index finds (F8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bide.core.expressions import MOST_LEAVES, BadExpression, Facts, check_expression, equality_of
from bide.core.topics import BadName, check_name, check_pattern, fits, topic_of, topics_of


def satisfies(expression: str, data: Any) -> bool:
    return Facts(json.dumps(data)).satisfy(expression)


def is_found(expression: str, data: Any) -> bool:
    """Whether an event with this data would look at a wait with that expression at all."""
    found = Facts(json.dumps(data)).equalities()
    return found is None or equality_of(expression) in {"", *found}


# ---------------------------------------------------------------- what is true


@pytest.mark.parametrize(
    ("expression", "data"),
    [
        ("data.missing == 1", {}),
        ("data.a.b == 1", {"a": 1}),
        ("data.a / 0 > 1", {"a": 1}),
        ("data.a + 'x' == 'x'", {"a": 1}),
        ("unknown(data.a)", {"a": 1}),
        ("data.a", {"a": 1}),
        ("data.a", {"a": "true"}),
        ("null", {}),
        ("data.a + 9223372036854775807 > 0", {"a": 1}),
        ("data.a[7] == 1", {"a": [1]}),
    ],
)
def test_F8_an_expression_that_errs_or_is_not_true_does_not_match(expression: str, data: Any) -> None:
    assert not satisfies(expression, data)


def test_F8_loops_inside_loops_over_long_lists_are_not_tried() -> None:
    nested = "data.l.all(a, data.l.all(b, data.l.all(c, a + b + c >= 0)))"
    assert satisfies(nested, {"l": [1] * 20})
    assert not satisfies(nested, {"l": [1] * 1000})
    assert satisfies("data.l.all(a, a >= 0)", {"l": [1] * 1000})


def test_F8_an_expression_cannot_read_anything_but_the_data() -> None:
    for expression in ("__import__('os') != null", "data.__class__ != null", "env.HOME != ''"):
        assert not satisfies(expression, {"a": 1})


@pytest.mark.parametrize("text", ["", " ", "data.a ==", "a b", "(" * 500, "[" * 3000, "x" * 4097, "a\0", "\ud800", 1])
def test_F8_what_is_no_expression_is_refused(text: Any) -> None:
    with pytest.raises(BadExpression):
        check_expression(text)


# ---------------------------------------------------------------- what is indexed


@pytest.mark.parametrize(
    "expression",
    [
        "data.order == 7",
        "7 == data.order",
        "data.order == 7.0",
        "data['order'] == 7",
        'data["order"] == 7 && data.paid',
        "data.paid && data.order == 7",
        "  data . order==7  ",
        "data.order == 7 && (data.a || data.b)",
        "data.order == 7 && data.note == 'a && b || c'",
        "data.list.exists(x, x == 1 || x == 2) && data.order == 7",
    ],
)
def test_F8_an_equality_that_must_hold_is_indexed(expression: str) -> None:
    check_expression(expression)
    assert equality_of(expression) != ""
    assert is_found(expression, {"order": 7})
    assert is_found(expression, {"order": 7.0, "other": {"deep": [1, 2]}})
    assert not is_found(expression, {"order": 8})
    assert not is_found(expression, {"order": "7"})


@pytest.mark.parametrize(
    "expression",
    [
        "data.order == 7 || data.vip",
        "data.vip ? data.order == 7 : true",
        "!(data.order == 7)",
        "!data.vip == true",
        "data.order == 7 == true",
        "data.order != 7",
        "data.order == data.other",
        "data.order == 7 + 1",
        "-data.order == 7",
        "data.items[0] == 7",
        "size(data.items) == 7",
        "data.order == 7u",
        "data.order == 0x7",
        "data.order == 7e0",
        "data.note == 'it\\'s'",
        "data.note == r'a'",
        "data.note == '''a'''",
        "data.note == 'a' // && data.order == 7",
        "other.order == 7",
        "[data].exists(data, data.order == 7)",
        "data.order == [7]",
    ],
)
def test_F8_what_may_hold_otherwise_is_looked_at_every_time(expression: str) -> None:
    assert equality_of(expression) == ""


SCALARS = some.one_of(
    some.integers(-(2**63), 2**63 - 1),
    some.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda number: "e" not in repr(number)),
    some.booleans(),
    some.none(),
    some.text(alphabet=some.characters(codec="utf-8", exclude_characters="\\'\n\r\0"), max_size=8),
)


def written(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"'{value}'" if isinstance(value, str) else repr(value)


@given(SCALARS, SCALARS)
def test_F8_the_index_never_hides_an_event_that_matches(literal: Any, value: Any) -> None:
    """What the index leaves out, the expression is not true of."""
    expression = f"data.a.b == {written(literal)}"
    data = {"a": {"b": value, "c": 1}}
    if satisfies(expression, data):
        assert is_found(expression, data)


def test_F8_an_event_with_too_many_fields_is_shown_to_every_wait_of_its_topic() -> None:
    assert Facts(json.dumps({f"k{no}": no for no in range(MOST_LEAVES)})).equalities() is not None
    assert Facts(json.dumps({f"k{no}": no for no in range(MOST_LEAVES + 1)})).equalities() is None


# ---------------------------------------------------------------- names and patterns

SEGMENTS = some.sampled_from(["a", "b", "*"])
NAMES = some.lists(some.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
PATTERNS = some.lists(SEGMENTS, min_size=1, max_size=4).map(".".join)


@given(PATTERNS, NAMES)
def test_F8_whoever_waits_for_a_pattern_that_fits_is_looked_for_under_its_topic(pattern: str, name: str) -> None:
    assert check_pattern(pattern)
    assert check_name(name)
    if fits(pattern, name):
        assert topic_of(pattern) in topics_of(name)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "\ud800", "a*", "*", "x" * 201, None, 1])
def test_F8_what_cannot_be_a_name_is_refused(name: Any) -> None:
    with pytest.raises(BadName):
        check_name(name)
