"""The committer: every command goes through here, and goes to the store in batches.

It flushes as soon as the previous flush has returned: one command alone is committed at once, and under load a
batch is whatever came in meanwhile. There is no fixed delay. A store that keeps its rows elsewhere may have a second
batch under way: while the server is at one, this process is at the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bide.core.commands import AnyCommand, Committed, CommitTurn, Failed, Offer, Reply
from bide.core.plan import may_wake
from bide.core.records import Run, RunId, Turn
from bide.engine.figures import Figures
from bide.errors import StoreUnavailable
from bide.stores.interface import Executed, Store

log = logging.getLogger("bide.engine")

ENOUGH = 100  # commands that are worth a batch beside the one under way


class Answer(NamedTuple):
    reply: Reply
    turn: Turn | None  # what the claim of a committed turn goes on with


Waiting = tuple[AnyCommand, "asyncio.Future[Answer]"]


class Committer:
    def __init__(self, store: Store, batch: int, figures: Figures | None = None) -> None:
        self._store = store
        self._figures = figures or Figures()
        self._batch = batch
        self._loop: asyncio.AbstractEventLoop | None = None  # of all that is submitted: to ask is a call of the system
        self._waiting: deque[Waiting] = deque()
        self._flushes: set[asyncio.Task[None]] = set()
        self._flushing = 0  # those of them that still take what comes
        self._under_way: set[RunId | None] = set()  # the runs of batches under way, where there may be two
        self._ears: list[asyncio.Future[None]] = []  # of those who wait for the end of a batch
        self.offer: Callable[[int], Offer | None] = lambda most: None
        self.settle_offer: Callable[[Offer | None, dict[RunId, Turn]], None] = lambda offer, turns: None
        self.let_go: Callable[[RunId, int], None] = lambda run_id, epoch: None
        self.listeners: list[Callable[[Executed], None]] = []

    def submit(self, command: AnyCommand) -> asyncio.Future[Answer]:
        """Durable when the answer is there. It is `StoreUnavailable` where nothing was applied."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append((command, future))
        if not self._flushing or self._is_worth_another():
            self._flushing += 1
            flush = asyncio.create_task(self._flush())
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)
        return future

    async def foresee(self, run_id: RunId) -> None:
        """A signal to this run is being made ready: where nothing is under way, the store may begin to read for it."""
        if not self._flushing and self._store.foresee(run_id):
            await asyncio.sleep(0)  # what was asked leaves with the end of this pass

    @property
    def is_idle(self) -> bool:
        return not self._flushing

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered."""
        while self._flushes:
            await asyncio.wait(self._flushes)

    def _is_worth_another(self) -> bool:
        return self._flushing < self._store.batches_at_once and len(self._waiting) % ENOUGH == 0

    async def batch_ended(self, seconds: float) -> None:
        """Wait until the batch that is being committed is, where there is one, and no longer than this."""
        if not self._flushing:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        alarm = loop.call_later(seconds, _end, waiter)
        self._ears.append(waiter)
        try:
            await waiter
        finally:
            alarm.cancel()

    async def _flush(self) -> None:
        try:
            while taken := self._next():
                about = {_run_of(command) for command, _ in taken} if self._store.batches_at_once > 1 else set()
                self._under_way |= about
                try:
                    await self._flush_batch(taken)
                finally:
                    self._under_way -= about
                ears, self._ears = self._ears, []
                for ear in ears:
                    _end(ear)
        finally:
            self._flushing -= 1

    def _next(self) -> list[Waiting]:
        """The next batch. Nothing, where few commands wait and another flush is there to take them.

        A run is in one batch at a time: its commands keep their order, and no batch waits for the locks of the other.
        """
        waiting, under_way = self._waiting, self._under_way
        if self._flushing == 1:
            return [waiting.popleft() for _ in range(min(self._batch, len(waiting)))]
        # Half of what waits: who took all of it would leave nothing to be made ready while the server is at it.
        most = min(self._batch, max(ENOUGH, -(-len(waiting) // 2)))
        taken: list[Waiting] = []
        seen: list[Waiting] = []
        left: list[Waiting] = []
        while waiting and len(taken) < most:
            one = waiting.popleft()
            seen.append(one)
            (left if _run_of(one[0]) in under_way else taken).append(one)
        if len(taken) < ENOUGH:
            taken, left = [], seen
        waiting.extendleft(reversed(left))
        return taken

    async def _flush_batch(self, taken: list[Waiting]) -> None:
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
        turns, let_go = done.turns, self.let_go
        answers = []
        for command, reply in zip(commands, done.replies, strict=True):
            turn = None
            if isinstance(reply, Committed):
                if reply.kept:
                    turn = _of_claim(reply.run, turns)
                else:
                    assert isinstance(command, CommitTurn)
                    let_go(command.run_id, command.epoch)  # its slot can be offered in the very next batch
            answers.append(Answer(reply, turn))
        self.settle_offer(offer, turns)
        for (_, future), answer in zip(taken, answers, strict=True):
            _give(future, answer)
        for listener in self.listeners:
            try:
                listener(done)
            except Exception:  # what waits behind this batch must not wait for ever
                log.exception("a batch was committed, and whoever listens broke")


def _of_claim(run: Run, turns: dict[RunId, Turn]) -> Turn | None:
    """What a claim goes on with. A cancel in the same batch hands the run over anew: not to this one."""
    turn = turns.get(run.id)
    return turns.pop(run.id) if turn is not None and turn.run.epoch == run.epoch else None


def _run_of(command: AnyCommand) -> RunId | None:
    return getattr(command, "run_id", None)


def _give(future: asyncio.Future[Answer], answer: Answer) -> None:
    """A store that has applied a part of a batch tells of an outage in its replies: to callers it is one all the same,
    and what they know must not be lost."""
    if future.done():
        return
    if isinstance(answer.reply, Failed) and isinstance(answer.reply.error, StoreUnavailable):
        future.set_exception(answer.reply.error)
    else:
        future.set_result(answer)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _for_caller(error: BaseException) -> BaseException:
    if isinstance(error, Exception):
        return error
    return StoreUnavailable("the process is shutting down")
