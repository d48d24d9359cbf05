"""Redaction: what a definition names with `redact=` never reaches a ledger, a list or an error (G4).

A field is covered by its name, wherever in the data it stands. Texts that people or libraries wrote, such as messages
of errors, are searched for the values of those fields.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

COVERED = "[redacted]"
SHORTEST = 3  # a shorter value would be found everywhere, and says nothing


def covered(value: Any, names: Collection[str], values: Collection[str] = ()) -> Any:
    """The value with every field of these names covered, and every text rid of these values.

    >>> covered({"card": "4111 1111", "items": [{"card": 5, "name": "tea"}]}, {"card"})
    {'card': '[redacted]', 'items': [{'card': '[redacted]', 'name': 'tea'}]}
    """
    match value:
        case Mapping():
            return {key: COVERED if key in names else covered(inner, names, values) for key, inner in value.items()}
        case list() | tuple():
            return [covered(inner, names, values) for inner in value]
        case msgspec.Raw():
            return covered(msgspec.json.decode(value), names, values)
        case str():
            return scrubbed(value, values)
        case _:
            return value


def covered_text(text: str | None, redact: str | None) -> str | None:
    """The same of data that is JSON text, with the names as a run keeps them.

    >>> covered_text('{"card":"4111 1111"}', "card,iban")
    '{"card":"[redacted]"}'
    """
    if text is None or not redact:
        return text
    return msgspec.json.encode(covered(msgspec.json.decode(text), names_in(redact))).decode()


def scrubbed(text: str, values: Collection[str]) -> str:
    """The text without these values.

    >>> scrubbed("card 4111 was refused", ["4111"])
    'card [redacted] was refused'
    """
    for value in values:
        text = text.replace(value, COVERED)
    return text


def hidden_values(names: Collection[str], *texts: str | None) -> list[str]:
    """The values that fields of these names have in these JSON texts, longest first, in each way that messages spell
    them: as they are, as JSON and as Python write them.

    >>> hidden_values({"card"}, '{"card": "4111", "pin": 12345}', '[{"card": {"number": 99887}}]')
    ['99887', '4111']
    """
    found: set[str] = set()
    for text in texts:
        if text is not None:
            found.update(_values(msgspec.json.decode(text), names, hidden=False))
    return sorted(found, key=len, reverse=True)


def _values(value: Any, names: Collection[str], *, hidden: bool) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _values(inner, names, hidden=hidden or key in names)
        case list():
            for inner in value:
                yield from _values(inner, names, hidden=hidden)
        case bool() | None:
            return
        case _:
            if hidden and len(str(value)) >= SHORTEST:
                yield from _spellings(str(value))


def _spellings(value: str) -> set[str]:
    if value.isalnum() and value.isascii():
        return {value}
    inner = slice(1, -1)  # without its quotes
    return {value, json.dumps(value)[inner], json.dumps(value, ensure_ascii=False)[inner], repr(value)[inner]}


def check_names(names: object) -> str | None:
    """Names of fields as a run keeps them. Raises `ValueError`.

    >>> check_names(["card", "iban"])
    'card,iban'
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ValueError(f"redact={names!r}: give a list of names of fields")
    for name in names:
        if not isinstance(name, str) or not name or "," in name:
            raise ValueError(f"redact={name!r}: a name of a field is a text without a comma")
    return ",".join(dict.fromkeys(names)) or None


def names_in(redact: str | None) -> frozenset[str]:
    return frozenset(redact.split(",")) if redact else frozenset()
