"""How much of everything one workspace may have: a noisy neighbour is told to wait, the others are not (T30d)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Full(NamedTuple):
    """What a workspace has as much of as it may."""

    what: str
    limit: int
    used: int


def full(limits: Mapping[str, int], used: Mapping[str, int], wanted: tuple[str, ...]) -> Full | None:
    """The first of what is wanted that there is no room for; a limit of 0 is none.

    >>> full({"runs": 3, "waits": 0}, {"runs": 3, "waits": 9}, ("waits", "runs"))
    Full(what='runs', limit=3, used=3)
    """
    for what in wanted:
        limit, there = limits.get(what, 0), used.get(what, 0)
        if limit and there >= limit:
            return Full(what, limit, there)
    return None
