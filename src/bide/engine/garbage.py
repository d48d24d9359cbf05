"""Python's garbage collector, made to look less often while an engine runs.

It looks whenever there are 700 objects more than before, and a batch makes thousands that live for a few milliseconds
and then go by themselves: with many runs in progress a fifth of the engine's time went into looking at them.
"""

from __future__ import annotations

import gc


class Collector:
    """Raises the collector's first threshold, and puts back what was there before."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._before: tuple[int, int, int] | None = None

    def relax(self) -> None:
        """Where the threshold is as high already, or the collector is off, nothing changes."""
        first, *rest = gc.get_threshold()
        if 0 < first < self._threshold:
            self._before = gc.get_threshold()
            gc.set_threshold(self._threshold, *rest)

    def settle(self) -> None:
        """In a process that only serves: what is there at the start stays, and need not be looked at ever again.

        Otherwise a full collection stops every request for as long as it takes to look at all modules.
        """
        gc.collect()
        gc.freeze()

    def restore(self) -> None:
        """Unless somebody else has changed it meanwhile."""
        if self._before is not None and gc.get_threshold() == (self._threshold, *self._before[1:]):
            gc.set_threshold(*self._before)
        self._before = None
