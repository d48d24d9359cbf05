"""Names of events and patterns over them: dot-separated segments, with `*` for what may be anything (F8).

A wait is kept under a *topic*: the name itself, or the literal beginning of its pattern and a `*`. An event has few
topics of its own, so whoever may want it is found by a handful of exact look-ups, however many wait.
"""

from __future__ import annotations

from functools import lru_cache

LONGEST_NAME = 200


class BadName(ValueError):
    """What cannot be the name of an event, or a pattern of names; the message says why."""


def check_name(name: object) -> str:
    """The name of an event: segments of printable characters with dots between them, such as `order.shipped`.

    >>> check_name("order.shipped")
    'order.shipped'
    """
    text = _check_segments(name, "event name")
    if "*" in text:
        raise BadName(f"event name {text!r} has a *: an event has one name; wildcards are for those who wait")
    return text


def check_pattern(pattern: object) -> str:
    """A name, or one with `*` as a whole segment: any one segment, or at the end one and more.

    >>> check_pattern("order.*")
    'order.*'
    """
    return _checked_pattern(pattern) if isinstance(pattern, str) else _check_segments(pattern, "event pattern")


@lru_cache(maxsize=2048)  # a replay asks again
def _checked_pattern(pattern: str) -> str:
    text = _check_segments(pattern, "event pattern")
    if any("*" in segment and segment != "*" for segment in text.split(".")):
        raise BadName(f"event pattern {text!r} has a * beside other characters; a * stands for whole segments only")
    return text


def _check_segments(name: object, what: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadName(f"{what} {_shown(name)} cannot be used: give 1 to {LONGEST_NAME} characters")
    if not name.isprintable() or " " in name:
        raise BadName(f"{what} {_shown(name)} cannot be used: give printable characters, and no spaces")
    if not all(name.split(".")):
        raise BadName(f"{what} {_shown(name)} has an empty segment; write it like order.shipped")
    return name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def fits(pattern: str, name: str) -> bool:
    """Whether an event of this name is one that the pattern means.

    >>> [fits("order.*", name) for name in ("order.shipped", "order.eu.shipped", "order")]
    [True, True, False]
    >>> fits("order.*.shipped", "order.eu.shipped")
    True
    """
    if "*" not in pattern:
        return pattern == name
    wanted, given = pattern.split("."), name.split(".")
    if len(given) < len(wanted) or (len(given) > len(wanted) and wanted[-1] != "*"):
        return False
    return all(segment in ("*", there) for segment, there in zip(wanted, given, strict=False))


def example_name(pattern: str) -> str:
    """A name that fits.

    >>> example_name("order.*"), example_name("order.shipped")
    ('order.example', 'order.shipped')
    """
    return ".".join("example" if segment == "*" else segment for segment in pattern.split("."))


def topic_of(pattern: str) -> str:
    """Where those who wait for a pattern are looked for.

    >>> [topic_of(pattern) for pattern in ("order.shipped", "order.*", "order.*.shipped", "*.shipped")]
    ['order.shipped', 'order.*', 'order.*', '*']
    """
    return pattern if "*" not in pattern else f"{literal_prefix(pattern)}*"


def literal_prefix(pattern: str) -> str:
    """What every name that fits begins with: up to the dot before the first `*`, or the whole name.

    >>> literal_prefix("order.*.shipped"), literal_prefix("*"), literal_prefix("order.shipped")
    ('order.', '', 'order.shipped')
    """
    return pattern.partition("*")[0]


def topics_of(name: str) -> list[str]:
    """The topics under which an event of this name may be awaited.

    >>> topics_of("order.eu.shipped")
    ['order.eu.shipped', 'order.eu.*', 'order.*', '*']
    """
    segments = name.split(".")
    prefixes = [".".join((*segments[:length], "*")) for length in range(len(segments) - 1, -1, -1)]
    return [name, *prefixes]
