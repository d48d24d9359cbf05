"""What is tried in vain at resume links: so much a minute (T01, T12). An answer that is good is never held up by it."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from bide.engine.runtime import Runtime
from bide.errors import TooManyRequests

MISFITS: Final = 60  # answers to one link that do not fit
GUESSES: Final = 60  # tokens of one sender that nothing proves
ALL_GUESSES: Final = 6_000  # of all senders together, who may be one that has many addresses
SECONDS: Final = 60.0
REMEMBERED: Final = 10_000  # links, and senders


class Tries:
    """Counts what was tried under each name, within a minute of the first."""

    def __init__(self, most: int, remembered: int = REMEMBERED) -> None:
        self._most, self._remembered = most, remembered
        self._names: dict[str, tuple[float, int]] = {}  # since when, and how many since then

    def left_until(self, name: str, now: float) -> float:
        """How many seconds to wait where there were too many already; 0 where one more may be tried."""
        since, tries = self._names.get(name, (now, 0))
        return since + SECONDS - now if tries >= self._most and now - since < SECONDS else 0.0

    def count(self, name: str, now: float) -> float:
        """Note one more, and the same."""
        if wait := self.left_until(name, now):
            return wait
        since, tries = self._names.get(name, (now, 0))
        if now - since >= SECONDS:
            since, tries = now, 0
        if len(self._names) >= self._remembered and name not in self._names:
            self._names.clear()
        self._names[name] = (since, tries + 1)
        return 0.0

    def __len__(self) -> int:
        return len(self._names)


class _Vain:
    """All that is counted for one runtime."""

    def __init__(self) -> None:
        self.misfits = Tries(MISFITS)
        self.guesses = Tries(GUESSES)
        self.all_guesses = Tries(ALL_GUESSES)


_VAIN: WeakKeyDictionary[Runtime, _Vain] = WeakKeyDictionary()


def note_misfit(runtime: Runtime, link: str) -> None:
    """An answer to a link does not fit, and is about to be noted in the ledger. Raises `TooManyRequests`."""
    _refuse(_VAIN.setdefault(runtime, _Vain()).misfits.count(link, runtime.ports.monotonic()))


def note_guess(runtime: Runtime, who: str) -> None:
    """A token is none of ours. Raises `TooManyRequests` where this sender, or all of them, had too many of those."""
    vain, now = _VAIN.setdefault(runtime, _Vain()), runtime.ports.monotonic()
    _refuse(vain.guesses.count(who, now) or vain.all_guesses.count("", now))


def check_guesses(runtime: Runtime, who: str) -> None:
    """The same before anything is read of what came with such a token; it is not counted yet."""
    vain, now = _VAIN.setdefault(runtime, _Vain()), runtime.ports.monotonic()
    _refuse(vain.guesses.left_until(who, now) or vain.all_guesses.left_until("", now))


def _refuse(wait: float) -> None:
    if wait > 0:
        raise TooManyRequests(max(1, int(wait + 0.999)))
