"""JSON Schemas of types, and what data does wrong against one (W3)."""

from __future__ import annotations

import enum
import functools
import json
import os
import typing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.payloads import decode_as, encode_payload
from bide.core.schema import MOST_PROBLEMS, check_schema, ignored_constraint, problems, schema_of


class Color(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(ge=0)]
    tags: list[str] = []


class Meeting(msgspec.Struct):
    at: datetime
    next: list[datetime] = []
    then: Meeting | None = None


@pytest.mark.parametrize("type_", [Any, object])
def test_W3_anything_goes_where_nothing_is_said(type_: Any) -> None:
    assert schema_of(type_) is None
    assert problems(None, "[1]") == []


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (Point, '{"x":1}', '{"x":-1}'),
        (Literal["a", "b"], '"a"', '"c"'),
        (Color, '"red"', '"blue"'),
        (int | None, "null", '"x"'),
        (list[int], "[1]", '["1"]'),
        (datetime, '"2030-02-01T14:30:00"', '"tomorrow"'),
        (time, '"14:30:00Z"', '"noon"'),
        (Meeting, '{"at":"2030-02-01 14:30:00+02:00","next":[],"then":null}', '{"at":"2030-13-01T00:00:00"}'),
        (Meeting, '{"at":"2030-02-01T14:30:00Z","then":{"at":"2030-02-01T14:30:00Z"}}', '{"at":"2030-02-01"}'),
        (dict[str, list[datetime | None]], '{"a":["2030-02-01T14:30:00Z",null]}', '{"a":["٢030-02-01T14:30:00Z"]}'),
        ({"type": "string", "format": "date-time"}, '"2030-01-01T00:00:00Z"', '"noon"'),
    ],
)
def test_W3_a_type_is_checked_by_its_schema(type_: Any, good: str, bad: str) -> None:
    schema = schema_of(type_)
    assert schema is not None
    check_schema(schema)
    assert problems(schema, good) == []
    assert len(problems(schema, bad)) == 1


@given(st.datetimes(timezones=st.none() | st.just(UTC)))
def test_W3_every_moment_that_python_writes_passes_and_is_read_as_itself(moment: datetime) -> None:
    text = msgspec.json.encode(moment).decode()
    assert problems(schema_of(datetime), text) == []
    assert msgspec.json.decode(text, type=datetime) == moment


class Person(pydantic.BaseModel):
    name: str
    born: date
    friends: list[Person] = []


class Pair(NamedTuple):
    at: time
    cost: Decimal = Decimal(1)


class Row(msgspec.Struct, array_like=True, tag="row"):
    data: bytes
    after: timedelta = timedelta(0)


class Circle(msgspec.Struct, tag="circle"):
    drawn: datetime
    inner: Circle | Square | None = None


class Square(msgspec.Struct, tag="square"):
    side: Decimal


@dataclass
class Holder:
    person: Person | None
    parts: dict[date, list[Person]]


class Size(enum.IntEnum):
    SMALL = 1


LEAVES: list[Any] = [
    int, float, str, bool, None, Decimal, bytes, bytearray, date, datetime, time, timedelta, UUID, Color, Size,
    Literal["a", 1, None], Annotated[datetime, msgspec.Meta(tz=True)], Annotated[datetime, msgspec.Meta(tz=False)],
    Annotated[time, msgspec.Meta(tz=True)], Annotated[int, msgspec.Meta(ge=0, le=9)], Point, Meeting, Pair, Row, Person,
    Circle | Square, Circle | Decimal | None, Holder, Any,
]  # fmt: skip
KEYS: list[Any] = [str, int, float, date, datetime, time, timedelta, bytes, UUID, Color, Size, Literal["a", "b"]]
TEXTS = [
    "", "a", "x", "red", "1", "1.0", "01", "-1", "1e5", ".5", "5.", "1_0", "NaN", "Infinity", "1e9999999999999999999",
    "!!!", "AA==", "AAA=", "AAAA", "AAA", "_-__", "PT1H", "-PT1H", "P1M", "P1Y", "P1W", "P", "PT", "P1D", "P1.5D",
    "P1DT1H", "P1.5DT1H", "PT1.5H1M", "PT1H1.5M", "P1DT3600.5S", "PT1M1H", "P99999999D", "P99999999999D", "p1d",
    "PT1,5S", "2030-02-01", "2030-02-29", "2028-02-29", "2000-02-29", "1900-02-29", "2030-04-31", "0000-01-01",
    "0001-01-01",
    "2030-02-01T14:30:00", "2030-02-01T14:30:00Z", "2030-02-01 14:30:00.123456789+0200", "2016-12-31T23:59:60Z",
    "2030-02-01T24:00:00Z", "2030-02-30T00:00:00Z", "9999-12-31T23:59:59.9999999Z", "0000-01-01T00:00:00Z", "14:30",
    "14:30:00", "14:30:00Z", "23:59:60", "24:00:00", "123e4567-e89b-12d3-a456-426614174000",
    "123e4567e89b12d3a456426614174000", "1\n", "2030-02-01\n", "PT1H\n", "AA==\n", "\u0663",
]  # fmt: skip
PLAIN = st.one_of(
    st.sampled_from([None, True, 0, 1, 3, -7, 1.0, 3.0, -0.0, 1.5, 1e3, 1e300, "circle", "square", "row", 2**63 - 1]),
    st.sampled_from(TEXTS),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.none() | st.just(UTC)).map(datetime.isoformat),
    st.timedeltas().map(lambda each: json.loads(msgspec.json.encode(each))),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.binary().map(lambda each: json.loads(msgspec.json.encode(each))),
)
FIELDS = [
    "x",
    "tags",
    "at",
    "next",
    "then",
    "type",
    "drawn",
    "inner",
    "side",
    "person",
    "parts",
    "name",
    "born",
    "friends",
]
TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),  # type: ignore[valid-type]
        inner.map(lambda each: tuple[each, each]),  # type: ignore[valid-type]
        st.tuples(st.sampled_from(KEYS), inner).map(lambda each: dict[each[0], each[1]]),  # type: ignore[valid-type]
    ),
    max_leaves=3,
)


@functools.cache  # to make them takes longer than to draw from them
def _values(type_: Any) -> st.SearchStrategy[Any]:
    """Values that are likely to be near to what the type reads."""
    match typing.get_origin(type_):
        case origin if origin is list:
            return st.lists(_values(typing.get_args(type_)[0]), max_size=3)
        case origin if origin is tuple:
            return st.tuples(*map(_values, typing.get_args(type_))).map(list)
        case origin if origin is dict:
            return st.dictionaries(st.sampled_from(TEXTS), _values(typing.get_args(type_)[1]), max_size=2)
    if type_ in (Pair, Row):
        return st.lists(PLAIN, min_size=1, max_size=3)
    if isinstance(type_, type) and (issubclass(type_, msgspec.Struct | pydantic.BaseModel) or type_ is Holder):
        return _objects()
    return PLAIN | _objects()


@functools.cache
def _objects() -> st.SearchStrategy[Any]:
    inner = st.recursive(
        PLAIN,
        lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(FIELDS + TEXTS), each, max_size=4),
        max_leaves=6,
    )
    return st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)


@settings(max_examples=int(os.environ.get("BIDE_TEST_EXAMPLES", "300")))
@given(st.data())
def test_W3_what_passes_the_check_can_be_read_as_the_type(data: st.DataObject) -> None:
    type_ = data.draw(TYPES)
    text = json.dumps(data.draw(_values(type_)))
    if not problems(schema_of(type_), text):
        decode_as(text, type_)


@pytest.mark.parametrize("type_", [leaf for leaf in LEAVES if leaf is not Any])
def test_W3_each_leaf_that_passes_the_check_can_be_read(type_: Any) -> None:
    _every_one_that_passes_can_be_read(type_, [*TEXTS, 3.0, 1.0, 1e300])


@pytest.mark.parametrize("key", KEYS)
def test_W3_each_key_that_passes_the_check_can_be_read(key: Any) -> None:
    _every_one_that_passes_can_be_read(dict[key, Any], [{text: 1} for text in TEXTS])


def _every_one_that_passes_can_be_read(type_: Any, values: list[Any]) -> None:
    fitting = [text for text in map(json.dumps, values) if not problems(schema_of(type_), text)]
    for text in fitting:
        decode_as(text, type_)


def test_W3_a_mapping_whose_keys_can_never_be_read_has_no_schema() -> None:
    with pytest.raises(TypeError, match="as text"):
        schema_of(list[dict[Decimal, int]])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (timedelta(days=-3, seconds=4000, microseconds=5), timedelta),
        (Decimal("-12.50"), Decimal),
        (b"bide", bytes),
        (date(2028, 2, 29), date),
        ({date(2030, 1, 1): 1, date(2031, 1, 1): 2}, dict[date, int]),
        ({-5: "a"}, dict[int, str]),
        ({1.5: "a"}, dict[float, str]),
        (Circle(datetime(2030, 1, 1, tzinfo=UTC), Square(Decimal(3))), Circle | Square),
        (Pair(time(14, 30)), Pair),
        (Row(b"x", timedelta(1)), Row),
        (Holder(Person(name="Ann", born=date(1990, 1, 1)), {}), Holder),
    ],
)
def test_W3_what_python_writes_passes_and_is_read_as_itself(value: Any, type_: Any) -> None:
    text = encode_payload(value, max_bytes=1000)
    assert problems(schema_of(type_), text) == []
    assert decode_as(text, type_) == value


class Urgency(enum.Enum):
    LOW = "low"
    HIGH = "high"
    CRITICAL = "critical"


class Ticket(msgspec.Struct):
    size: Literal["small", "medium", "large"]
    floor: Literal[3, 1, 2] | None
    urgency: Urgency
    others: list[Literal["yes", "perhaps", "no"]]


def test_choices_stand_in_the_order_in_which_they_were_written() -> None:
    """W5: of a size, a form shows small before large, and not large before small."""
    text = msgspec.json.encode(schema_of(Ticket)).decode()
    for choices in (["small", "medium", "large"], [3, 1, 2], ["low", "high", "critical"], ["yes", "perhaps", "no"]):
        assert f'"enum":{msgspec.json.encode(choices).decode()}' in text
    assert schema_of(Literal["b", "a"]) == {"enum": ["b", "a"]}


def test_W3_a_whole_number_with_a_point_is_an_integer() -> None:
    assert problems(schema_of(Point), '{"x":3.0}') == []
    assert decode_as('{"x":3.0}', Point) == Point(3)
    assert decode_as("[3.0,1.5]", list[int | float]) == [3.0, 1.5]
    assert isinstance(decode_as("3.0", float | int), float)


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (Person | None, "null", '{"name":"Ann"}'),
        (list[Person], '[{"name":"Ann","born":"1990-01-01","friends":[]}]', '[{"name":1,"born":"1990-01-01"}]'),
        (dict[str, Person], '{"a":{"name":"Ann","born":"1990-01-01"}}', '{"a":3}'),
        (
            Holder,
            '{"person":{"name":"A","born":"1990-01-01","friends":[{"name":"B","born":"1991-01-01"}]},"parts":{}}',
            '{"person":null,"parts":{"2030-01-01":[{"name":"A","born":"1990-01-01","friends":[3]}]}}',
        ),
    ],
)
def test_W3_a_model_of_pydantic_is_checked_inside_of_any_other_type(type_: Any, good: str, bad: str) -> None:
    schema = schema_of(type_)
    assert problems(schema, good) == []
    decode_as(good, type_)
    assert problems(schema, bad)


class Bound(msgspec.Struct):
    of: list[Annotated[int, pydantic.Field(ge=3)]]


class Described(msgspec.Struct):
    n: Annotated[int, pydantic.Field(description="How many")]
    of: Person


@pytest.mark.parametrize(
    "type_", [Annotated[int, pydantic.Field(ge=3)], pydantic.PositiveInt, list[Bound], Bound | None]
)
def test_W3_a_bound_that_nobody_would_look_at_is_found(type_: Any) -> None:
    assert ignored_constraint(type_) is not None


@pytest.mark.parametrize("type_", [Described, Person, list[Person], Meeting, Annotated[int, msgspec.Meta(ge=3)], int])
def test_W3_what_pydantic_or_msgspec_look_at_is_no_ignored_bound(type_: Any) -> None:
    assert ignored_constraint(type_) is None


def test_W3_a_text_of_the_wrong_form_is_one_problem_in_plain_words() -> None:
    assert problems(schema_of(date), '"soon"') == ['at $: "soon" is not a "date"']
    assert problems(schema_of(timedelta), '"P1M"') == ['at $: "P1M" is not a "duration"']
    assert problems(schema_of(dict[str, Decimal]), '{"a":"x"}') == ['at $.a: "x" is not a "decimal"']


def test_W3_each_problem_has_its_path() -> None:
    found = problems(schema_of(Point), '{"x":-1,"tags":["a",2]}')
    assert sorted(problem.partition(":")[0] for problem in found) == ["at $.tags[1]", "at $.x"]


def test_W3_problems_stay_short_however_much_is_wrong() -> None:
    found = problems(schema_of(list[int]), msgspec.json.encode(["x" * 5000] * 500).decode())
    assert len(found) == MOST_PROBLEMS
    assert max(map(len, found)) < 400


@pytest.mark.parametrize("schema", [{"type": "strin"}, {"$ref": "http://localhost:1/x"}, {"pattern": "("}])
def test_W3_what_is_no_schema_is_refused_and_no_reference_leaves_the_process(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_schema(schema)
