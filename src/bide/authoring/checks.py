"""What callers and definitions give beside payloads, looked at before anything is stored: no store has to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from bide.core.matching import is_reserved
from bide.core.payloads import BadPayload, decode_as
from bide.errors import BadDefinition, BadInput

MAX_NAME: Final = 200
PRIORITIES: Final = range(-32_768, 32_768)
MOST_LISTED: Final = 1000  # on one page of a list


def is_name(text: object) -> bool:
    """Whether every store can carry and index it: 1 to 200 printable characters (no NUL, no half surrogate pair)."""
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable()


def check_text(text: Any, what: str) -> str:
    if not is_name(text):
        raise BadInput(f"{what} {shown(text)} cannot be used: give 1 to {MAX_NAME} printable characters")
    return str(text)


def check_key(key: Any, what: str) -> str:
    """A correlation key or signal id; the prefixes of bide's own ids are not for them (S2)."""
    if is_reserved(check_text(key, what)):
        raise BadInput(f"{what} {key!r} starts like an id of bide's own; use another prefix than run_, wait_ or int_")
    return str(key)


def check_readable(type_: Any, who: str, what: str) -> None:
    """A type that no text could ever be read as would break with each payload that comes."""
    try:
        decode_as("null", type_)
    except BadPayload:
        return
    except TypeError as error:
        raise BadDefinition(f"{who} cannot read its {what} as {type_!r}: {error}") from error


def check_choice(value: Any, choices: Collection[str], what: str) -> str:
    """One of a closed set: a misspelt one would find nothing, for ever."""
    if value not in choices:
        raise BadInput(f"{what}={value!r} is none of {', '.join(choices)}")
    return str(value)


def check_tags(tags: Any) -> dict[str, str]:
    """Tags are short texts, so that runs can be found by them."""
    if not isinstance(tags, Mapping):
        raise BadInput(f"tags={shown(tags)}: give a mapping of texts to texts")
    for name, value in tags.items():
        if "=" in check_text(name, "tag name"):  # a filter is written as name=value, and would find another tag
            raise BadInput(f"tag name {shown(name)}: write it without the =, which may stand in the value alone")
        if value != "":
            check_text(value, f"tag {name!r} with the value")
    return dict(tags)


def check_priority(priority: Any) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or priority not in PRIORITIES:
        raise BadInput(f"priority={shown(priority)}: give a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}")
    return priority


def check_limit(limit: Any) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_LISTED:
        raise BadInput(f"limit={shown(limit)}: give a whole number from 1 to {MOST_LISTED}; a cursor leads to the rest")
    return limit


def shown(value: object) -> str:
    """A value for an error message: its start, also where it cannot be printed."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= 80 else f"{text[:77]}..."
