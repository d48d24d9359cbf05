"""Pages of lists: no more rows than were asked for, and no more text than one answer should have (T46)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

Row = TypeVar("Row")
Place = TypeVar("Place")

MOST_BYTES = 8 * 1024 * 1024  # of the texts on a page; one row comes however large it is
FIRST_ROWS = 10
MOST_ROWS = 50  # that a store is asked for at once


async def read_page(
    read: Callable[[Place | None, int], Awaitable[Sequence[Row]]],
    after: Place | None,
    limit: int,
    place: Callable[[Row], Place],
) -> tuple[list[Row], Row | None]:
    """The rows of a page, and the one that the next page comes after, or None where there is none.

    They are read a few at a time, as many as should fit: those that there is no room for are in memory all the same.
    """
    rows: list[Row] = []
    size, wanted = 0, min(FIRST_ROWS, limit)
    while wanted:
        found = await read(after, wanted)
        for row in found:
            size += _size(row)
            if rows and size > MOST_BYTES:
                return rows, rows[-1]
            rows.append(row)
        if len(found) < wanted:
            return rows, None
        after = place(rows[-1])
        fitting = (MOST_BYTES - size) * len(rows) // max(size, 1)
        wanted = max(0, min(fitting, MOST_ROWS, limit - len(rows)))
    return rows, rows[-1]


def _size(row: Any) -> int:
    if isinstance(row, tuple):
        return sum(map(_size, row))
    texts = (getattr(row, name) for name in row.__struct_fields__)
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts if isinstance(text, str))


def cut(found: Iterable[Row], limit: int) -> tuple[list[Row], Row | None]:
    """The same of what was read already. What comes behind the page is not even looked at."""
    rows: list[Row] = []
    size = 0
    for row in found:
        size += len(msgspec.json.encode(row))
        if rows and (len(rows) == limit or size > MOST_BYTES):
            return rows, rows[-1]
        rows.append(row)
    return rows, None
