"""Waits of waits: the first of several, all of them, or enough of them; the rest are withdrawn (F12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bide.authoring.workflow.loop import Loop
from bide.authoring.workflow.waits import Wait
from bide.errors import BadInput


def combined(
    key: str,
    loop: Loop,
    waits: Sequence[Wait[Any]],
    needed: int,
    give: Callable[[Sequence[Wait[Any]]], Any],
    *,
    fails_fast: bool = False,
) -> Wait[Any]:
    """A wait that is over when *needed* of these are. *give* makes its value of them, in the order they ended.

    A wait that ended with an error is over, too; with *fails_fast* it is the error of the whole.

    Nothing of it is stored: outcomes are handed to the body one at a time and in the same order in every replay, so
    the same waits win again.
    """
    for wait in waits:
        if not isinstance(wait, Wait):
            raise BadInput(f"{key!r} combines what wait methods of step give, not {wait!r}")
    if len(set(waits)) < len(waits):
        raise BadInput(f"{key!r} combines one wait twice")
    return Wait(key, lambda _: _Race(loop, key, waits, needed, give, fails_fast).decided)


class _Race:
    """Watches waits until enough of them are over, and withdraws the others then."""

    def __init__(
        self,
        loop: Loop,
        key: str,
        waits: Sequence[Wait[Any]],
        needed: int,
        give: Callable[[Sequence[Wait[Any]]], Any],
        fails_fast: bool,
    ) -> None:
        self.decided: asyncio.Future[Any] = loop.create_future()
        self._key, self._waits, self._needed, self._give = key, waits, needed, give
        self._fails_fast = fails_fast
        self._over: list[Wait[Any]] = []
        self._lost = 0
        self.decided.add_done_callback(self._withdraw)
        try:
            futures = [(wait, wait.begin()) for wait in waits]
        except BaseException:  # one of them cannot begin: the others shall not open either
            self._withdraw(self.decided)
            raise
        for wait, future in futures:
            future.add_done_callback(partial(self._ended, wait))
        if not waits:
            self._decide()

    def _ended(self, wait: Wait[Any], _: asyncio.Future[Any]) -> None:
        if self.decided.done():
            return
        if wait.is_over:
            self._over.append(wait)
        else:
            self._lost += 1
        if len(self._over) >= self._needed or (self._fails_fast and wait.has_failed):
            self._decide()
        elif len(self._waits) - self._lost < self._needed:
            missing = f"{self._lost} of its {len(self._waits)} waits were withdrawn"
            self.decided.set_exception(BadInput(f"{self._key!r} can never be over: {missing}"))

    def _decide(self) -> None:
        try:
            self.decided.set_result(self._give(self._over))
        except Exception as error:
            self.decided.set_exception(error)
        self._withdraw(self.decided)  # now, not when the callbacks run: nothing may be handed over in between

    def _withdraw(self, _: asyncio.Future[Any]) -> None:
        for wait in self._waits:
            wait.withdraw()
