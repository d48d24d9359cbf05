"""The outside facts that the engine needs: time, randomness, ids. They come from here only; tests replace them.

Tests replace the code of steps here, too.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID as UUID

from bide.core.records import RunId


def wall_clock() -> datetime:
    return datetime.now(UTC)


_forks = 0  # between the first process and this one. Asking for the number of the process is a call of the system


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class RandomBytes:
    """Bytes from the operating system, fetched many at a time: a call lets go of the interpreter's lock, and where
    other threads are busy, getting it back takes far longer than the bytes."""

    FETCHED = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forks = _forks
        self._bytes, self._used = b"", 0

    def __call__(self, size: int) -> bytes:
        with self._lock:
            if self._used + size > len(self._bytes) or self._forks != _forks:  # a fork must not repeat them
                self._forks = _forks
                self._bytes, self._used = os.urandom(max(size, self.FETCHED)), 0
            self._used += size
            return self._bytes[self._used - size : self._used]


def as_written(step: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


@dataclass(frozen=True)
class Ports:
    """Where time and randomness come from, and what is called for the code of a workflow's step."""

    now: Callable[[], datetime] = wall_clock
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    random_bytes: Callable[[int], bytes] = field(default_factory=RandomBytes)
    stand_in: Callable[[str, Callable[..., Any]], Callable[..., Any]] = as_written
    assumes: bool = False  # answers that machine files assume stand in for the outside: the testing kit says so

    def run_id(self) -> RunId:
        """Sorts by the time it was made, so that new runs lie together in every index."""
        return RunId(f"run_{self._sortable()}")

    def message_id(self) -> str:
        return f"msg_{self._sortable()}"

    def uuid(self) -> UUID:
        return UUID(bytes=self.random_bytes(16), version=4)

    def worker_id(self) -> str:
        """New at every boot: a worker that restarts under the same name is another worker."""
        return f"w-{self._digits(8)}"

    def _sortable(self) -> str:
        """The millisecond, then 65 random bits, in 19 letters and digits. Short, because every row of a run has it."""
        return _moment(int(self.now().timestamp() * 1000)) + self._digits(11)

    def _digits(self, count: int) -> str:
        return self.random_bytes(count).translate(_TO_DIGITS).decode()


_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of their codes
_TO_DIGITS = bytes(_DIGITS[byte % 62] for byte in range(256))


@lru_cache(maxsize=1)  # many ids are made within one millisecond
def _moment(milliseconds: int) -> str:
    """Eight digits to the base 62, which sort by time until the year 8888."""
    digits = bytearray(8)
    for place in range(7, -1, -1):
        milliseconds, digit = divmod(milliseconds, 62)
        digits[place] = _DIGITS[digit]
    return digits.decode()
