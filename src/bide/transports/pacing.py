"""How fast requests may go to one place, whoever asks for them: bide is no means to flood others (T64)."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary


class Pace:
    """Lets *rate* requests a second go, and that many at once after a quiet second.

    >>> pace = Pace(2)
    >>> [pace.reserve(100.0) for _ in range(4)], pace.reserve(109.0)
    ([0.0, 0.0, 0.5, 1.0], 0.0)
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._free_at = 0.0  # when the next one could go if none may go at once

    def reserve(self, now: float) -> float:
        """Take the next place; how many seconds it is away."""
        self._free_at = max(self._free_at, now - 1.0 + 1.0 / self.rate)
        at, self._free_at = self._free_at, self._free_at + 1.0 / self.rate
        return max(0.0, at - now)


_PACES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Pace]] = WeakKeyDictionary()


async def take_turn(destination: str, rate: float) -> None:
    """Wait until one more request may go there. Several that send to one place keep to the slowest of them."""
    loop = asyncio.get_running_loop()
    pace = _PACES.setdefault(loop, {}).setdefault(destination, Pace(rate))
    pace.rate = min(pace.rate, rate)
    await asyncio.sleep(pace.reserve(loop.time()))
