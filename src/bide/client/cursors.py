"""Cursors: places in the order of a list, as one page gives them out and the next call brings them back (T46)."""

from __future__ import annotations

from datetime import datetime, timedelta

from bide.authoring.checks import is_name, shown
from bide.core.records import run_of_interaction
from bide.errors import BadCursor


def after_run(cursor: str | None) -> str | None:
    if cursor is not None and not _is_run(cursor):
        raise _foreign(cursor)
    return cursor


def after_wait(cursor: str | None) -> tuple[str, int] | None:
    """The run and the number of the wait that the page before ended with, written `run_…/2`."""
    if cursor is None:
        return None
    run_id, _, no = cursor.rpartition("/")
    if not (_is_run(run_id) and no.isascii() and no.isdigit() and len(no) <= 9):
        raise _foreign(cursor)
    return run_id, int(no)


def after_interaction(cursor: str | None) -> tuple[str, int, int] | None:
    found = run_of_interaction(cursor) if cursor is not None and is_name(cursor) else None
    if cursor is not None and found is None:
        raise _foreign(cursor)
    return found


def part(number: int, id: str) -> str:
    return f"{number}/{id}" if id else str(number)


def after_part(cursor: str | None) -> tuple[int, str]:
    """The number, in what a run has, of what the page before ended with, and its id where others have that number.

    >>> after_part("7"), after_part("7/charge#2"), after_part(None)
    ((7, ''), (7, 'charge#2'), (-1, ''))
    """
    if cursor is None:
        return -1, ""
    number, _, id = cursor.partition("/")
    if not (number.isascii() and number.isdigit() and len(number) <= 19):
        raise _foreign(cursor)
    return int(number), id


def moment(at: datetime, id: str) -> str:
    return f"{at.isoformat()}/{id}"


def after_moment(cursor: str | None) -> tuple[datetime, str] | None:
    """The moment, in UTC, and the id of what the page before ended with, written `2030-01-01T00:00:00+00:00/id`."""
    if cursor is None:
        return None
    text, _, id = cursor.partition("/")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise _foreign(cursor) from None
    if at.utcoffset() != timedelta(0) or not is_name(id):
        raise _foreign(cursor)
    return at, id


def _is_run(id: str) -> bool:
    return is_name(id) and id.startswith("run_") and "/" not in id


def _foreign(cursor: object) -> BadCursor:
    return BadCursor(f"cursor {shown(cursor)} is not one that bide gave out")
