"""Durations and timeouts, as users write them.

>>> parse_duration("1h30m")
datetime.timedelta(seconds=5400)
>>> format_duration(timedelta(seconds=5400))
'1h30m'
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import Final, TypeAlias, final


@final
class Forever:
    """The type of `FOREVER`: a wait that says on purpose that it has no deadline."""

    __slots__ = ()
    _only: "Forever | None" = None

    def __new__(cls) -> "Forever":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "FOREVER"

    def __reduce__(self) -> str:
        return "FOREVER"  # a copy or an unpickled one is still the only one


FOREVER: Final = Forever()
"""As a timeout: wait without a deadline, on purpose.

>>> FOREVER
FOREVER
"""

Duration: TypeAlias = str | int | float | timedelta
Timeout: TypeAlias = Duration | datetime | Forever

LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""The last moment a datetime can carry. A deadline there never comes."""

_FORMS: Final = (
    '"90s", "30m", "24h", "7d", "1h30m", "1.5h", "500ms", ISO 8601 "PT1H", a number of seconds or a timedelta'
)

_MICROSECOND: Final = timedelta(microseconds=1)

# From large to small: texts name each unit at most once, in this order.
_MICROSECONDS_IN: Final = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}

_COMPACT: Final = re.compile("".join(rf"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit in _MICROSECONDS_IN))
_ISO: Final = re.compile(
    r"P(?:(?P<w>#)W)?(?:(?P<d>#)D)?(?:T(?=.)(?:(?P<h>#)H)?(?:(?P<m>#)M)?(?:(?P<s>#)S)?)?".replace(
        "#", r"[0-9]+(?:[.,][0-9]+)?"
    )
)
_ISO_WITH_YEARS_OR_MONTHS: Final = re.compile(r"P[^T]*[YM].*")
_TOO_LONG: Final = f"a timedelta holds no more than {timedelta.max.days} days"
_LONGEST_TEXT: Final = 100  # exact arithmetic on a million digits would cost seconds


class BadDuration(ValueError):
    """A value that says no duration; the message names it and shows the valid forms."""

    def __init__(self, value: str, problem: str) -> None:
        super().__init__(value, problem)
        self.value, self.problem = value, problem

    def __str__(self) -> str:
        return f"{self.value} cannot be used as a duration: {self.problem}; write {_FORMS}"


def parse_duration(value: Duration) -> timedelta:
    """Read a duration. Zero is one; there is no maximum but what a timedelta can hold.

    Fractions are exact and rounded once, to the microsecond.
    """
    match value:
        case bool():
            raise _refusal(value, "a truth value says no time")
        case str():
            return _parse_text(value)
        case int() | float():
            return _from_seconds(value)
        case timedelta() if value < timedelta(0):
            raise _refusal(value, "it is negative")
        case timedelta():
            return value
        case _:
            raise _refusal(value, f"a {type(value).__name__} says no time")


def parse_timeout(value: Timeout | None) -> timedelta | datetime | None:
    """Read a timeout: a duration, an aware datetime as it is, or None for no deadline (`None` and `FOREVER`)."""
    if value is None or isinstance(value, Forever):
        return None
    if not isinstance(value, datetime):
        return parse_duration(value)
    if value.utcoffset() is None:
        raise _refusal(value, "the datetime has no time zone, so it names no moment; add tzinfo=datetime.UTC to it")
    return value


def deadline_after(now: datetime, duration: timedelta) -> datetime:
    """The UTC moment *duration* after the aware *now*, or `LATEST` if that lies beyond the year 9999.

    It saturates rather than fails: a timeout has no maximum, so "in nine thousand years" is a legal way to say
    "never", and the commit that opens the wait is too late to refuse it.
    """
    assert now.utcoffset() is not None, "the clock gives aware times"
    if duration >= LATEST - now:
        return LATEST
    return now.astimezone(UTC) + duration  # in UTC, because a local day may have 23 or 25 hours


def moment_before(now: datetime, duration: timedelta) -> datetime | None:
    """The moment *duration* before the aware *now*; None where that lies before the year 1.

    It does not saturate: nobody looks back so far but by mistake, and whoever asks can still be told.
    """
    return now - duration if duration <= now - datetime.min.replace(tzinfo=UTC) else None


def utc(moment: datetime) -> datetime:
    """An aware moment in UTC, as everything is stored; one that UTC cannot carry becomes the nearest that it can."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return LATEST if moment.year > 1 else datetime.min.replace(tzinfo=UTC)


def format_duration(duration: timedelta) -> str:
    """The shortest text with whole units, such as `"1h30m"`; `parse_duration` gives the same duration back."""
    if duration < timedelta(0):
        raise _refusal(duration, "it is negative")
    rest, parts = duration // _MICROSECOND, []
    for unit, size in _MICROSECONDS_IN.items():
        if unit == "w":  # people count in days: "10d" says more than "1w3d"
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


@lru_cache(maxsize=1024)  # programs name the same few timeouts for ever
def _parse_text(text: str) -> timedelta:
    if len(text) > _LONGEST_TEXT:
        raise _refusal(text, f"it is longer than {_LONGEST_TEXT} characters")
    found = (_ISO if text.startswith("P") else _COMPACT).fullmatch(text)
    amounts = {unit: amount for unit, amount in found.groupdict().items() if amount} if found else {}
    if not amounts:
        raise _refusal(text, _why_unreadable(text))
    total = sum(Fraction(amount.replace(",", ".")) * _MICROSECONDS_IN[unit] for unit, amount in amounts.items())
    try:
        return timedelta(microseconds=round(total))
    except OverflowError:
        raise _refusal(text, _TOO_LONG) from None


def _from_seconds(seconds: float) -> timedelta:
    if isinstance(seconds, float) and not isfinite(seconds):
        raise _refusal(seconds, "it is not a finite number")
    if seconds < 0:
        raise _refusal(seconds, "it is negative")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise _refusal(seconds, _TOO_LONG) from None


def _why_unreadable(text: str) -> str:
    if not text.strip():
        return "it is empty"
    if text.lstrip().startswith("-"):
        return "it is negative"
    if _ISO_WITH_YEARS_OR_MONTHS.fullmatch(text):
        return "years and months differ in length, so use weeks or days"
    if text.replace(".", "", 1).isdecimal():
        return "it has no unit"
    return "units are w, d, h, m, s, ms and us, each at most once and from large to small"


def _refusal(value: object, problem: str) -> BadDuration:
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python turns into text
        shown = f"a huge {type(value).__name__}"
    return BadDuration(shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}…", problem)
