"""Array parameters as text, in the form of PostgreSQL's array literals.

The driver looks at each element of an array several times before it encodes it, which costs more than all the rest of a
batch. An encoder written in C makes the literal of a whole column at once: what JSON writes for a list is one, save for
the brackets and the escapes of control characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
# What JSON writes for control characters. In a literal the backslash only takes the next character as it stands.
# One search for all of them: most backslashes, of which payloads are full, stand before a quote.
_find_control_escape = re.compile(rb"\\[untrbf]").search


def array(column: Sequence[Any]) -> str | None:
    """The literal of numbers, texts, truth values or times, with NULL for None; cast it as `$1::text::bigint[]`.

    A column of nothing but None is NULL itself: `unnest` fills it up to the length of its neighbours.

    >>> array([1, None, 3])
    '{1,null,3}'
    >>> array(['say "yes"', "a\\nb"])
    '{"say \\\\"yes\\\\"","a\\nb"}'
    """
    if column.count(None) == len(column):
        return None
    text = _encode(column)
    if b"\\" in text and _find_control_escape(text) is not None:
        return _escaped(column)
    return "{" + text[1:-1].decode() + "}"


def arrays(columns: Iterable[Sequence[Any]]) -> list[str | None]:
    return [array(column) for column in columns]


def _escaped(column: Iterable[str | None]) -> str:
    return "{" + ",".join("null" if text is None else _quoted(text) for text in column) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
