"""Places to wait in: nobody may take them all (T47)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from bide.engine.runtime import Runtime
from bide.errors import TooManyRequests
from bide.server.calls import Call

STREAMS: Final = 100  # that one key may have open at once
POLLS: Final = 2000
RETRY_SECONDS: Final = 5

_TAKEN: WeakKeyDictionary[Runtime, Counter[tuple[str, str]]] = WeakKeyDictionary()


@contextmanager
def place(call: Call, what: str, most: int) -> Iterator[None]:
    """One of *most* places of the key, until the end of the block. Raises `TooManyRequests` where none is left."""
    taken = _TAKEN.setdefault(call.runtime, Counter())
    whose = (call.key.id, what)
    if taken[whose] >= most:
        raise TooManyRequests(RETRY_SECONDS)
    taken[whose] += 1
    try:
        yield
    finally:
        taken[whose] -= 1
        if not taken[whose]:
            del taken[whose]
