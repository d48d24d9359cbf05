"""Answers that do not fit: so many a minute for each link (T12). One that fits is never held up by them."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from bide.engine.runtime import Runtime
from bide.errors import TooManyRequests

MOST: Final = 60
SECONDS: Final = 60.0
REMEMBERED: Final = 10_000  # links


class _Tries:
    def __init__(self) -> None:
        self._links: dict[str, tuple[float, int]] = {}  # since when, and how many since then

    def count(self, link: str, now: float) -> float:
        """Note one more; how many seconds to wait where there were too many already."""
        since, tries = self._links.get(link, (now, 0))
        if now - since >= SECONDS:
            since, tries = now, 0
        if tries >= MOST:
            return since + SECONDS - now
        if len(self._links) >= REMEMBERED and link not in self._links:
            self._links.clear()
        self._links[link] = (since, tries + 1)
        return 0.0


_TRIES: WeakKeyDictionary[Runtime, _Tries] = WeakKeyDictionary()


def note_misfit(runtime: Runtime, link: str) -> None:
    """An answer to a link does not fit, and is about to be noted in the ledger. Raises `TooManyRequests`."""
    wait = _TRIES.setdefault(runtime, _Tries()).count(link, runtime.ports.monotonic())
    if wait > 0:
        raise TooManyRequests(max(1, int(wait + 0.999)))
