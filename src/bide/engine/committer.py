"""The committer: every command goes through here, and goes to the store in batches.

It flushes as soon as the previous flush has returned: one command alone is committed at once, and under load a
batch is whatever came in meanwhile. There is no fixed delay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bide.core.commands import AnyCommand, Committed, CommitTurn, Offer, Reply
from bide.core.plan import may_wake
from bide.core.records import RunId, Turn
from bide.engine.figures import Figures
from bide.errors import StoreUnavailable
from bide.stores.interface import Executed, Store


class Answer(NamedTuple):
    reply: Reply
    turn: Turn | None  # what the claim of a committed turn goes on with


class Committer:
    def __init__(self, store: Store, batch: int, figures: Figures | None = None) -> None:
        self._store = store
        self._figures = figures or Figures()
        self._batch = batch
        self._waiting: deque[tuple[AnyCommand, asyncio.Future[Answer]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self.offer: Callable[[int], Offer | None] = lambda most: None
        self.settle_offer: Callable[[Offer | None, dict[RunId, Turn]], None] = lambda offer, turns: None
        self.let_go: Callable[[RunId, int], None] = lambda run_id, epoch: None
        self.listeners: list[Callable[[Executed], None]] = []

    async def submit(self, command: AnyCommand) -> Answer:
        """Durable when it returns. Raises `StoreUnavailable` where nothing was applied."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return await future

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered."""
        while self._flushing is not None:
            await asyncio.wait({self._flushing})

    async def _flush(self) -> None:
        try:
            while self._waiting:
                size = min(self._batch, len(self._waiting))
                taken = [self._waiting.popleft() for _ in range(size)]
                await self._flush_batch(taken)
        finally:
            self._flushing = None

    async def _flush_batch(self, taken: list[tuple[AnyCommand, asyncio.Future[Answer]]]) -> None:
        commands = [command for command, _ in taken]
        offer = self.offer(may_wake(commands))
        self._figures.batches.observe(len(taken))
        try:
            done = await self._store.execute(commands, offer)
        except BaseException as error:
            self.settle_offer(offer, {})
            for _, future in taken:
                if not future.done():
                    future.set_exception(_for_caller(error))
            if not isinstance(error, Exception):
                raise
            return
        turns = done.turns
        answers = []
        for (command, future), reply in zip(taken, done.replies, strict=True):
            turn = None
            if isinstance(reply, Committed):
                if reply.kept:
                    turn = turns.pop(reply.run.id, None)
                else:
                    assert isinstance(command, CommitTurn)
                    self.let_go(command.run_id, command.epoch)  # its slot can be offered in the very next batch
            answers.append((future, Answer(reply, turn)))
        self.settle_offer(offer, turns)
        for future, answer in answers:
            if not future.done():
                future.set_result(answer)
        for listener in self.listeners:
            listener(done)


def _for_caller(error: BaseException) -> BaseException:
    if isinstance(error, Exception):
        return error
    return StoreUnavailable("the process is shutting down")
