"""How much of its processors a virtual machine did not get while something was measured.

A host with too many guests lets each of them stand still for some milliseconds now and then. Whatever is being measured
is late by as much, and the figure is one of the neighbours. So latencies are measured until there are enough parts in
which next to nothing was stolen, or many parts; and those count in which the least was: chosen by what the host did,
never by what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CALM_PERCENT = 0.5  # of two processors: 50 ms in a round of five seconds, which is its p99
TOLD_BY = Path("/proc/stat")
_STOLEN, _KINDS = 7, 8  # in the first line, after its name; the time of guests, behind these, is in others already


class Stolen:
    """What was stolen since this was made."""

    def __init__(self) -> None:
        self._before = _times()

    def percent(self) -> float:
        """Of all processors together; 0 where the system does not tell, and every part is as good as another."""
        spent = [now - before for now, before in zip(_times(), self._before, strict=True)]
        return round(100 * spent[_STOLEN] / sum(spent), 2) if sum(spent) else 0.0


def _times() -> list[int]:
    try:
        return [int(time) for time in TOLD_BY.read_text().split("\n", 1)[0].split()[1 : 1 + _KINDS]]
    except (OSError, ValueError):
        return [0] * _KINDS


def is_enough(stolen: Sequence[float], wanted: int, most: int) -> bool:
    """Whether so many parts as are *wanted* were calm, or there will be no more of them."""
    return len(stolen) >= most or sum(percent <= CALM_PERCENT for percent in stolen) >= wanted


def calmest(found: Sequence[T], stolen: Sequence[float], wanted: int) -> list[T]:
    """Of what was *found*, the parts during which the least was *stolen*, in the order in which they were found."""
    kept = sorted(range(len(found)), key=lambda at: stolen[at])[:wanted]
    return [found[at] for at in sorted(kept)]
