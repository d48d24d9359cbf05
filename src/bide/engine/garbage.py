"""Python's garbage collector, made to look less often while an engine runs.

It looks whenever there are 700 objects more than before, and a batch makes thousands that live for a few milliseconds
and then go by themselves: with many runs in progress a fifth of the engine's time went into looking at them. Now and
then it looks at everything there is, most of which was there before the engine began and stays: that is left out.
What turns in progress hold is no garbage either: the more of them there may be, the later it looks.
"""

from __future__ import annotations

import gc

FROZEN_BY_PYTHON = 1000  # it leaves out a few hundred objects of its own, in some versions
HELD_BY_TURN = 100  # objects, at most: those of a workflow's turn and of whoever waits for its end


class Collector:
    """Raises the collector's first threshold and lets it pass over what is there already; and puts both back."""

    def __init__(self, threshold: int, turns: int = 0) -> None:
        """*turns*: how many may be in progress. With a threshold of 1 all stays as it is."""
        self._threshold = threshold + HELD_BY_TURN * turns if threshold > 1 else threshold
        self._before: tuple[int, int, int] | None = None
        self._has_frozen = False

    def relax(self) -> None:
        """Where the threshold is as high already, or the collector is off, nothing changes."""
        first, *rest = gc.get_threshold()
        if 0 < first < self._threshold:
            self._before = gc.get_threshold()
            gc.set_threshold(self._threshold, *rest)
            if gc.get_freeze_count() < FROZEN_BY_PYTHON:  # else the program has done so itself, and for longer
                gc.freeze()
                self._has_frozen = True

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
        if self._has_frozen:
            gc.unfreeze()
            self._has_frozen = False
