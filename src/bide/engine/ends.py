"""Who waits in this process for runs to end.

Ends that this process commits are heard of at once. Those that others commit are looked for from time to time, all of
them in one statement: a thousand who wait would else ask a thousand times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from bide.core.records import FINAL, Run, RunId
from bide.stores.interface import Store

FIRST_LOOK = 0.1


class Ends:
    """The first look is soon after somebody has come, each further one after twice the time, up to *longest* seconds.

    The more runs are waited for, the less often they are looked at: the store has better things to do then.
    """

    def __init__(self, store: Store, longest: float) -> None:
        self._store = store
        self._longest = longest
        self._pause = FIRST_LOOK
        self._ears: dict[RunId, list[Ear]] = {}
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0.0  # kept here: what uvloop sets for this very moment does not tell its own
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many runs have somebody who waits for their end."""
        return len(self._ears)

    def listening(self, run_id: RunId) -> Ear:
        """Hear of the end of a run from here on, also while doing something else."""
        return Ear(self, run_id)

    def tell(self, runs: Iterable[Run]) -> None:
        """These have ended."""
        for run in runs:
            for ear in self._ears.get(run.id, ()):
                ear.tell(run)

    async def drain(self) -> None:
        """Wait until nobody asks the store any more."""
        self._longest = 0.0
        if self._alarm is not None:
            self._alarm.cancel()
        if self._looking is not None:
            await asyncio.wait({self._looking})

    def join(self, ear: Ear) -> None:
        self._ears.setdefault(ear.run_id, []).append(ear)
        self._pause = min(self._longest, FIRST_LOOK * (1 + len(self._ears) / 10))
        self._look_in(self._pause)

    def leave(self, ear: Ear) -> None:
        ears = self._ears[ear.run_id]
        ears.remove(ear)
        if not ears:
            del self._ears[ear.run_id]

    def _look_in(self, seconds: float) -> None:
        if self._looking is not None or not self._longest:
            return  # when it has looked it looks again, or never
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_at(at, self._look), at

    def _look(self) -> None:
        self._alarm = None
        if self._ears:
            self._looking = asyncio.get_running_loop().create_task(self._look_at(list(self._ears)))

    async def _look_at(self, run_ids: list[RunId]) -> None:
        pause = self._pause
        try:
            statuses = await self._store.statuses(run_ids)
        except Exception as error:
            for run_id in run_ids:
                for ear in self._ears.get(run_id, ()):
                    ear.fail(error)
        else:
            for run_id in run_ids:
                status = statuses.get(run_id)
                if status is None or status in FINAL:
                    for ear in self._ears.get(run_id, ()):
                        ear.tell(None)
        finally:
            self._looking = None
        if self._pause == pause:  # nobody has come meanwhile
            self._pause = min(self._longest, 2 * pause)
        if self._ears:
            self._look_in(self._pause)


class Ear:
    """Hears of the end of one run."""

    def __init__(self, ends: Ends, run_id: RunId) -> None:
        self.run_id = run_id
        self.has_news = False  # whether it has ended, or is gone
        self._run: Run | None = None  # as it ended, where this process has brought it about
        self._ends = ends
        self._waiter: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._ends.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.leave(self)

    def tell(self, run: Run | None) -> None:
        self.has_news = True
        self._run = run or self._run
        self._wake()

    def fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    async def hear(self, seconds: float | None) -> Run | None:
        """The run as it ended. None when the time is up, or when others have brought the end about.

        Raises what a look at the store has raised.
        """
        if not self.has_news:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            alarm = loop.call_later(seconds, self._wake) if seconds is not None else None
            try:
                await self._waiter
            finally:
                if alarm is not None:
                    alarm.cancel()
        return self._run

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
