"""JSON Schemas of types, and what data does wrong against one (W3)."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, time
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.schema import MOST_PROBLEMS, check_schema, problems, schema_of


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
