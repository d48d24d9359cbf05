"""Durations and timeouts: W1, and times that stay inside of what a datetime can carry."""

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.durations import (
    FOREVER,
    LATEST,
    BadDuration,
    Forever,
    deadline_after,
    format_duration,
    moment_before,
    parse_duration,
    parse_timeout,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DURATIONS = st.timedeltas(min_value=timedelta(0))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1w", timedelta(weeks=1)),
        ("1h30m", timedelta(minutes=90)),
        ("1w2d3h4m5s6ms7us", timedelta(9, 4 * 60 + 5 + 3 * 3600, 6007)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("0.1s", timedelta(milliseconds=100)),
        ("0s", timedelta(0)),
        ("PT1H", timedelta(hours=1)),
        ("P1DT2H30M", timedelta(days=1, hours=2, minutes=30)),
        ("P2W", timedelta(weeks=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT1,5H", timedelta(minutes=90)),
        (0, timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(days=3), timedelta(days=3)),
    ],
)
def test_W1_every_form_of_a_duration_is_understood(written: Any, meant: timedelta) -> None:
    assert parse_duration(written) == meant


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("-5s", "negative"),
        (-1, "negative"),
        (-1e-9, "negative"),
        (timedelta(microseconds=-1), "negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        ("90", "no unit"),
        ("1.5", "no unit"),
        ("5 parsecs", "units are"),
        ("5y", "units are"),
        ("24H", "units are"),
        ("30m1h", "units are"),
        ("1h1h", "units are"),
        ("1h 30m", "units are"),
        ("1.h", "units are"),
        ("1e3s", "units are"),
        ("٣s", "units are"),
        ("90s\n", "units are"),
        ("P", "units are"),
        ("PT", "units are"),
        ("P1DT", "units are"),
        ("P1Y", "years and months"),
        ("P1M", "years and months"),
        pytest.param("1" * 5000 + "s", "longer than 100 characters", id="endless"),
        (True, "truth value"),
        (None, "NoneType"),
        (b"90s", "bytes"),
        (FOREVER, "Forever"),
    ],
)
def test_W1_anything_else_is_refused_naming_the_value_the_reason_and_the_valid_forms(written: Any, reason: str) -> None:
    with pytest.raises(BadDuration) as refused:
        parse_duration(written)
    assert reason in refused.value.problem
    assert repr(written)[:100] in str(refused.value)
    assert '"1h30m"' in str(refused.value)


@pytest.mark.parametrize("written", ["1000000000d", "P99999999999W", 1e300, 10**30, pytest.param(10**5000, id="huge")])
def test_F125_a_duration_that_no_timedelta_holds_is_refused(written: Any) -> None:
    with pytest.raises(BadDuration, match="999999999 days"):
        parse_duration(written)


def test_W1_fractions_are_exact_and_rounded_once() -> None:
    assert parse_duration("0.000001s") == timedelta(microseconds=1)
    assert parse_duration("999999999.000001s") == timedelta(seconds=999_999_999, microseconds=1)
    assert parse_duration("0.0000004s") == timedelta(0)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=10), "10d"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
    ],
)
def test_W1_a_duration_is_written_compactly(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


def test_W1_a_negative_duration_is_not_written() -> None:
    with pytest.raises(BadDuration, match="negative"):
        format_duration(timedelta(seconds=-1))


@given(DURATIONS)
def test_W1_what_is_written_is_read_back_to_the_microsecond(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text() | st.text(alphabet="0123456789.,wdhmsuPTDHMSYW-") | st.floats() | st.integers() | st.timedeltas())
def test_W1_whatever_is_given_is_a_duration_or_a_clear_refusal(value: Any) -> None:
    try:
        assert parse_duration(value) >= timedelta(0)
    except BadDuration as refused:
        str(refused).encode()  # can be sent and logged, also when the value could not


def test_W1_a_timeout_is_a_duration_a_moment_or_nothing() -> None:
    local = datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=2)))
    assert parse_timeout("24h") == timedelta(hours=24)
    assert parse_timeout(local) is local
    assert parse_timeout(None) is None
    assert parse_timeout(FOREVER) is None


def test_W1_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(BadDuration, match="no time zone"):
        parse_timeout(NOW.replace(tzinfo=None))


def test_W1_forever_is_one_thing_however_it_is_made() -> None:
    assert repr(FOREVER) == "FOREVER"
    assert Forever() is FOREVER
    assert copy.deepcopy(FOREVER) is FOREVER
    assert pickle.loads(pickle.dumps(FOREVER)) is FOREVER


def test_F125_a_deadline_beyond_the_year_9999_is_the_last_moment_there_is() -> None:
    assert deadline_after(NOW, timedelta.max) == LATEST
    assert deadline_after(LATEST, timedelta(microseconds=1)) == LATEST
    west = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    assert deadline_after(west, timedelta(0)) == LATEST


@given(
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11))])),
    DURATIONS,
)
def test_F125_a_deadline_is_in_utc_and_never_before_now(now: datetime, duration: timedelta) -> None:
    deadline = deadline_after(now, duration)
    assert deadline.tzinfo is UTC
    assert deadline == LATEST or deadline - now == duration


def test_F125_errors_survive_pickling() -> None:
    error = BadDuration("'x'", "it is odd")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@given(st.datetimes(timezones=st.just(UTC)), DURATIONS)
def test_a_moment_before_another_is_one_or_there_is_none(now: datetime, duration: timedelta) -> None:
    is_carried = duration <= now - datetime.min.replace(tzinfo=UTC)
    assert moment_before(now, duration) == (now - duration if is_carried else None)
