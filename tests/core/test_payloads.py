"""JSON at the door: S9 and H3, with values from user code and bytes from strangers."""

import enum
import json
import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bide.core.payloads import (
    MAX_DEPTH,
    MAX_NODES,
    BadPayload,
    canonical,
    decode_as,
    decode_json,
    digest,
    encode_payload,
)

LIMIT = 512 * 1024

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=10)


class Colour(enum.Enum):
    RED = "red"


class Odd(enum.Enum):
    ONE = object()


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Renamed(msgspec.Struct, rename="camel"):
    first_name: Any
    nick_name: str | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Order:
    id: str
    lines: list[Any]


class Address(TypedDict):
    city: str


class Customer(pydantic.BaseModel):
    name: str
    since: date | None = None
    score: float = 0.0


def encode(value: object, max_bytes: int = LIMIT) -> str:
    return encode_payload(value, max_bytes=max_bytes)


def decode(raw: bytes | str, max_bytes: int = LIMIT) -> object:
    return decode_json(raw, max_bytes=max_bytes)


def refusal(function: Callable[..., object], *args: object) -> tuple[str, str]:
    with pytest.raises(BadPayload) as refused:
        function(*args)
    assert refused.value.message
    str(refused.value).encode("ascii")  # hostile keys must not break the reply that names them
    return refused.value.problem, refused.value.path


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# What user code hands over


@given(VALUES)
def test_S9_what_is_encoded_reads_back_equal_everywhere(value: Any) -> None:
    text = encode(value, 10**9)
    assert json.loads(text) == value
    assert decode(text, 10**9) == value
    assert decode_as(text, Any) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({"b": 1, "a": [True, None, 2.5]}, '{"b":1,"a":[true,null,2.5]}'),
        ("é\n\\u0000", '"é\\n\\\\u0000"'),
        ((1, (2,)), "[1,[2]]"),
        ({1: "a", 2: "b"}, '{"1":"a","2":"b"}'),
        (Point(1), '{"x":1,"y":0.0}'),
        (Renamed("Ada"), '{"firstName":"Ada"}'),
        (Order("o1", [Point(1, 2.0)]), '{"id":"o1","lines":[{"x":1,"y":2.0}]}'),
        (Address(city="Ulm"), '{"city":"Ulm"}'),
        ([Customer(name="Ada", since=date(2026, 1, 2))], '[{"name":"Ada","since":"2026-01-02","score":0.0}]'),
        ({Colour.RED: Colour.RED}, '{"red":"red"}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), '"1.50"'),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        ("9" * 30, '"' + "9" * 30 + '"'),
    ],
)
def test_S9_the_types_people_use_become_compact_json(value: object, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize(
    ("value", "problem", "path"),
    [
        ({"a": [1, math.nan]}, "not_a_number", "$.a[1]"),
        ({"a": math.inf}, "not_a_number", "$.a"),
        (-math.inf, "not_a_number", "$"),
        ({math.nan: 1}, "not_a_number", "$.nan"),
        (Point(1, math.nan), "not_a_number", "$.y"),
        (Renamed([math.nan]), "not_a_number", "$.firstName[0]"),
        (Order("o", [Point(1, math.nan)]), "not_a_number", "$.lines[0].y"),
        ([Customer(name="x", score=math.nan)], "not_a_number", "$[0].score"),
        ({"a": "x\0"}, "nul", "$.a"),
        ({"a": {"x\0": 1}}, "nul", '$.a["x\\u0000"]'),
        (["\ud800"], "surrogate", "$[0]"),
        ({"\udfff": 1}, "surrogate", '$["\\udfff"]'),
        ({"n": 2**63}, "number_range", "$.n"),
        ([-(2**63) - 1], "number_range", "$[0]"),
        ({"n": [10**5000]}, "number_range", "$.n[0]"),
        ({1: "a", "1": "b"}, "duplicate_key", '$["1"]'),
        ([{"red": 1, Colour.RED: 2}], "duplicate_key", "$[0].red"),
        ({date(2026, 1, 2): 1, "2026-01-02": 2}, "duplicate_key", '$["2026-01-02"]'),
        ({"a": [object()]}, "unserialisable", "$.a[0]"),
        (Order("o", [{"f": len}]), "unserialisable", "$.lines[0].f"),
        ({"a": Odd.ONE}, "unserialisable", "$.a"),
        ({"a": {None: 1}}, "unserialisable", "$.a"),
        ({"a": {(1, 2): 1}}, "unserialisable", "$.a"),
        ({"a": msgspec.Raw(b"{oops")}, "unserialisable", "$.a"),
        ({"a": Order}, "unserialisable", "$.a"),
    ],
)
def test_S9_what_some_store_or_reader_would_lose_is_refused_with_its_path(
    value: object, problem: str, path: str
) -> None:
    assert refusal(encode, value) == (problem, path)
    assert refusal(canonical, value) == (problem, path)


def test_S9_an_object_that_cannot_become_json_is_named_with_its_type() -> None:
    with pytest.raises(BadPayload, match=r"^at \$\.a\[0\]: types\.SimpleNamespace cannot become JSON"):
        encode({"a": [SimpleNamespace()]})


def test_S9_the_limit_counts_encoded_bytes() -> None:
    assert encode("é" * 10, 22) == '"' + "é" * 10 + '"'
    assert refusal(encode, "é" * 10, 21) == ("too_large", "$")


def test_S9_64_levels_are_allowed_and_65_are_not() -> None:
    assert encode(nested(MAX_DEPTH)) == "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert refusal(encode, nested(MAX_DEPTH + 1))[0] == "too_deep"
    assert refusal(encode, nested(100_000))[0] == "too_deep"


def test_S9_a_leaf_of_any_kind_may_stand_on_the_deepest_level() -> None:
    value: Any = (Colour.RED, datetime(2026, 1, 2, tzinfo=UTC))
    for _ in range(MAX_DEPTH - 1):
        value = (value,)
    assert '["red","2026-01-02T00:00:00Z"]' in encode(value)


def test_S9_a_value_that_contains_itself_is_too_deep() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert refusal(encode, loop)[0] == "too_deep"


def test_S9_brackets_in_strings_are_not_levels() -> None:
    assert decode(encode(["[" * 100, '"[{' * 100])) == ["[" * 100, '"[{' * 100]


def test_S9_too_many_values_are_refused_however_small() -> None:
    full = [1] * (MAX_NODES - 1)  # the list counts too
    assert decode(encode(full)) == full
    assert refusal(encode, [*full, 1]) == ("too_many_nodes", "$")
    assert refusal(decode, json.dumps([*full, 1], separators=(",", ":"))) == ("too_many_nodes", "$")


# What strangers send


@pytest.mark.parametrize(
    ("raw", "problem", "path"),
    [
        (b"", "not_json", "$"),
        (b"{", "not_json", "$"),
        (b"[1,]", "not_json", "$"),
        (b"{'a':1}", "not_json", "$"),
        (b"1 2", "not_json", "$"),
        (b"01", "not_json", "$"),
        (b'"\x00"', "not_json", "$"),
        (b'"\\x"', "not_json", "$"),
        (b"a=1&b=2", "not_json", "$"),
        (b"\xef\xbb\xbf1", "not_json", "$"),
        ("\ufeff1", "not_json", "$"),
        (b'"\xff"', "not_utf8", "$"),
        (b'"\xed\xa0\x80"', "not_utf8", "$"),
        ("[1]".encode("utf-16"), "not_utf8", "$"),
        (b"NaN", "not_a_number", "$"),
        (b'{"a":[0,-Infinity]}', "not_a_number", "$.a[1]"),
        (b"[1e999]", "number_range", "$[0]"),
        (b'{"a":1e131071}', "number_range", "$.a"),
        (b"9223372036854775808", "number_range", "$"),
        (b"[-9223372036854775809]", "number_range", "$[0]"),
        pytest.param(b"[" + b"1" * 5000 + b"]", "number_range", "$[0]", id="5000 digits"),
        (b'{"a":"\\u0000"}', "nul", "$.a"),
        (b'{"\\u0000":1}', "nul", '$["\\u0000"]'),
        (b'["\\ud800"]', "surrogate", "$[0]"),
        (b'["\\uDC00x"]', "surrogate", "$[0]"),
        (b'["\\ud800\\ud800"]', "surrogate", "$[0]"),
        ('"\ud800"', "surrogate", "$"),
    ],
)
def test_H3_hostile_bodies_are_refused_with_their_path(raw: bytes | str, problem: str, path: str) -> None:
    assert refusal(decode, raw) == (problem, path)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'{"a":1,"a":1}', "$.a"),
        (b'{"x":[{"b c":1,"b c":2}]}', '$.x[0]["b c"]'),
        (b'{"a":1,"\\u0061":2}', "$.a"),
        (b'{"a":1,"a":2,"t":"\\u003a"}', "$.a"),
        (b'{"a":{"b":1},"a":{"b":1,"c":":"}}', "$.a"),
    ],
)
def test_H3_duplicate_keys_are_refused_with_their_path(raw: bytes, path: str) -> None:
    assert refusal(decode, raw) == ("duplicate_key", path)


def test_H3_the_same_key_in_different_objects_is_no_duplicate() -> None:
    assert decode(b'[{"a":1},{"a":{"a":":"}}]') == [{"a": 1}, {"a": {"a": ":"}}]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b' {"a" : [1, 2.5, "x"]}\r\n', {"a": [1, 2.5, "x"]}),
        ('"é"', "é"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\u0000"', "\\u0000"),
        (b'"\\\\ud800"', "\\ud800"),
        (b"9223372036854775807", 2**63 - 1),
        (b'"12345678901234567890"', "12345678901234567890"),
        pytest.param(b"0." + b"1" * 5000, 0.1111111111111111, id="5000 decimals"),
        (b"1e-400", 0.0),
        (b"null", None),
    ],
)
def test_H3_unusual_but_honest_json_is_read(raw: bytes | str, value: object) -> None:
    assert decode(raw) == value


@pytest.mark.parametrize("opener", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 50_000])
def test_H3_deep_nesting_is_refused_closed_or_not(opener: bytes, depth: int) -> None:
    closer = opener.replace(b'"a":', b"")[::-1].translate(bytes.maketrans(b"[{", b"]}"))
    assert refusal(decode, opener * depth, 10**9)[0] == "too_deep"
    assert refusal(decode, opener * depth + b"1" + closer * depth, 10**9)[0] == "too_deep"


def test_H3_64_levels_are_read_and_65_are_not() -> None:
    assert decode(b"[" * 64 + b"1" + b"]" * 64) == nested(64)
    assert refusal(decode, b"[" * 65 + b"1" + b"]" * 65) == ("too_deep", "$")
    wide = b"[" * 63 + b"[]," * 100 + b"[[]]" + b"]" * 63
    assert refusal(decode, wide) == ("too_deep", "$")
    assert decode(wide.replace(b"[[]]", b"[]"))


@pytest.mark.parametrize("around", [1, 2, 3])
def test_S9_what_a_payload_is_wrapped_in_does_not_count_as_levels_of_it(around: int) -> None:
    """S9, H3: the envelope of a request is not kept."""
    deepest, deeper = nested(MAX_DEPTH + around), nested(MAX_DEPTH + around + 1)
    text = encode_payload(deepest, max_bytes=LIMIT, around=around)
    assert decode_json(text, max_bytes=LIMIT, around=around) == deepest
    assert refusal(lambda: encode_payload(deeper, max_bytes=LIMIT, around=around))[0] == "too_deep"
    assert refusal(lambda: decode_json(f"[{text}]", max_bytes=LIMIT, around=around))[0] == "too_deep"
    looked_at_closely = text.replace("1", r'"\\u0000"')
    assert decode_json(looked_at_closely, max_bytes=LIMIT, around=around)
    not_plain: Any = (Colour.RED,)
    for _ in range(MAX_DEPTH + around - 1):
        not_plain = (not_plain,)
    assert '["red"]' in encode_payload(not_plain, max_bytes=LIMIT, around=around)


def test_H3_unclosed_brackets_are_malformed_rather_than_deep() -> None:
    assert refusal(decode, b'[{"a":1},' * 40) == ("not_json", "$")
    assert refusal(decode, b"]" * 100) == ("not_json", "$")


def test_H3_the_limit_counts_bytes_not_characters() -> None:
    assert decode('"é"', 4) == "é"
    assert refusal(decode, '"é"', 3) == ("too_large", "$")
    assert refusal(decode, b'"abc"', 4) == ("too_large", "$")


def test_H3_a_key_of_any_length_gives_a_short_path() -> None:
    _, path = refusal(decode, json.dumps({"k" * 100_000: [2**64]}))
    assert len(path) < 300


@given(st.binary() | st.text())
@example(b'"\\')
@example(b'"\\"' * 40_000)
@example(b'{"a"' * 100)
def test_H3_any_bytes_give_a_value_or_a_refusal(raw: bytes | str) -> None:
    try:
        decode(raw)
    except BadPayload as refused:
        str(refused).encode("ascii")


TOKENS = ["[", "]", "{", "}", ",", ":", '"', '"a"', '"b"', "\\", "\\u0000", "\\ud800", "1", "-", ".", "e9", "NaN", " "]


@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_H3_almost_json_gives_a_value_that_can_be_stored_or_a_refusal(raw: str) -> None:
    try:
        value = decode(raw)
    except BadPayload:
        return
    assert decode(encode(value)) == value


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_H3_the_spelling_of_honest_json_does_not_matter(value: Any, ascii_only: bool, indent: int | None) -> None:
    assert decode(json.dumps(value, ensure_ascii=ascii_only, indent=indent), 10**9) == value


@given(st.lists(st.tuples(st.sampled_from("abc:"), SCALARS), max_size=5))
def test_H3_an_object_is_read_exactly_when_its_keys_differ(pairs: list[tuple[str, Any]]) -> None:
    raw = "{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in pairs) + "}"
    if len(dict(pairs)) == len(pairs):
        assert decode(raw) == dict(pairs)
    else:
        assert refusal(decode, raw)[0] == "duplicate_key"


# Digests


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_S7_equal_values_have_equal_digests_whatever_the_order_of_their_keys(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert digest(canonical(value)) == digest(canonical(turned))


def test_S7_the_canonical_text_is_sorted_on_every_level_and_compact() -> None:
    assert canonical({"b": 1, "a": [{"d": Point(1), "c": None}]}) == '{"a":[{"c":null,"d":{"x":1,"y":0.0}}],"b":1}'


def test_S7_the_digest_is_sha256_in_hex() -> None:
    assert digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# Reading stored text as a type


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ('{"x":1}', Point, Point(1)),
        ('{"id":"o","lines":[1]}', Order, Order("o", [1])),
        ('{"city":"Ulm"}', Address, {"city": "Ulm"}),
        ('"red"', Colour | None, Colour.RED),
        ('"a"', Literal["a", "b"], "a"),
        ('{"a":[1]}', dict[str, list[int]], {"a": [1]}),
        ('{"a":[1]}', Any, {"a": [1]}),
        ('{"a":[1]}', object, {"a": [1]}),
        ('{"a":[1]}', dict[str, object], {"a": [1]}),
        ("null", None, None),
        ("1", Annotated[int, ["not hashable"]], 1),
        ('{"name":"Ada","since":"2026-01-02"}', Customer, Customer(name="Ada", since=date(2026, 1, 2))),
        ('[{"name":"Ada"}]', list[Customer], [Customer(name="Ada")]),
        ("null", Customer | None, None),
    ],
)
def test_S9_stored_text_is_read_as_the_type_the_author_declared(text: str, type_: Any, value: object) -> None:
    assert decode_as(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_", "path", "message"),
    [
        ('{"x":"1"}', Point, "$.x", "Expected `int`, got `str`"),
        ("{}", Point, "$", "Object missing required field `x`"),
        ('[{"x":1},{"x":null}]', list[Point], "$[1].x", "Expected `int`, got `null`"),
        ('"c"', Literal["a"], "$", "Invalid enum value 'c'"),
        ('{"a":1}', dict[int, int], "$", "Expected `int`, got `str`"),
        ('{"name":1}', Customer, "$.name", "Input should be a valid string"),
        ('[{"name":"x"},{"name":1}]', list[Customer], "$[1].name", "Input should be a valid string"),
        ("[{}]", list[complex], "$[0]", "Expected `complex`, got `dict`"),
    ],
)
def test_S9_text_that_does_not_fit_is_refused_with_the_path_and_the_reason(
    text: str, type_: Any, path: str, message: str
) -> None:
    with pytest.raises(BadPayload) as refused:
        decode_as(text, type_)
    assert (refused.value.problem, refused.value.path) == ("mismatch", path)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize("text", ["", "{", '"\ud800"'])
def test_S9_stored_text_that_is_no_json_is_refused(text: str) -> None:
    assert refusal(decode_as, text, Any)[0] == "not_json"


def test_S9_what_nothing_could_be_read_as_is_the_authors_mistake() -> None:
    with pytest.raises(TypeError, match="42"):
        decode_as("1", 42)
    with pytest.raises(TypeError, match="no builtin type, Struct"):
        decode_as("1", threading.Event)


def test_H3_refusals_survive_pickling() -> None:
    error = BadPayload("nul", "$.a", "the text contains NUL")
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.problem, copied.path, str(copied)) == ("nul", "$.a", str(error))
