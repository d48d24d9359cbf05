"""The engine: claims runs, takes their turns, fires timers, does chores.

Every duty is a `tick`; one loop repeats them, sleeping until the store's next due moment, a hint, or the poll
interval. In tests the ticks are called by hand. Any number of engines may run on one store: none leads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from bide.core.commands import CancelChildren, Failed, GiveBack, Offer
from bide.core.moves import join_of
from bide.core.plan import ANY_NUMBER
from bide.core.records import Chore, RunId, Turn
from bide.core.requests import SettleChore
from bide.core.traces import trace_of
from bide.engine import tracing
from bide.engine.admission import Listeners
from bide.engine.figures import TURNS
from bide.engine.garbage import Collector
from bide.engine.heartbeat import Heartbeat
from bide.engine.items import ItemWork
from bide.engine.outbox import Outbox
from bide.engine.probes import NO_PROBE, Crash, Probe
from bide.engine.runtime import Runtime, runtime_at_work
from bide.engine.session import TurnSession
from bide.engine.transport import ListeningTransport, Transport
from bide.errors import StoreUnavailable
from bide.stores.interface import Executed

log = logging.getLogger("bide.engine")

TIMERS_AT_ONCE = 1000
ADMITTED_AT_ONCE = 500
CHORES_AT_ONCE = 20
CHILDREN_AT_ONCE = 100
DELETED_AT_ONCE = 200
MOST_UNUSED = 10_000  # of a workspace (S12)
LOOK_SLOTS = 10  # on offer where nothing is expected to be due: commits that come meanwhile need the others
FULL_PAUSE = 0.05  # between two looks of an engine that has no free slot
STUCK_PAUSE = 0.02  # something is due and did not move: a rival has it, or it cannot be done. No reason to spin
REFUSED_DELAY = timedelta(seconds=10)  # until the children of a run are cancelled again, after one was refused
UNKNOWN_DEFINITION_DELAY = timedelta(seconds=5)
LONGEST_UNKNOWN_DEFINITION_DELAY = timedelta(minutes=10)
STOPPED = timedelta(seconds=15)  # in the middle of a commit: as long as the server itself waits between two statements
MOST_LACKING = 10_000
MOST_AHEAD = 10_000  # turns that an event may hand over before there are slots for them
BEGUN_AT_ONCE = 20  # of those, in one pass of the event loop
AHEAD_SECONDS = 1.0  # how often to look whether they get their slots
REACHED_SECONDS = 5.0  # those that would not get one in this time are for others
UNTRACED = contextlib.nullcontext()
Duty = Callable[[], Awaitable[bool]]


class Engine:
    """Workers, timers and chores of one process.

    >>> async def serve(app, until_told):
    ...     async with app.engine() as engine:
    ...         await until_told.wait()
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        queues: frozenset[str] = frozenset({"default"}),
        probe: Probe = NO_PROBE,
        transports: Mapping[str, Transport] | None = None,
    ) -> None:
        self.runtime = runtime
        self.queues = queues
        self.probe = probe
        self.transports = transports if transports is not None else runtime.registry.transports
        listening = [each for each in self.transports.values() if isinstance(each, ListeningTransport)]
        self._listeners = Listeners(runtime, listening)
        self.settings = runtime.settings
        self.worker = runtime.ports.worker_id()
        self.actor = f"worker:{self.worker}"  # as ledgers name it
        self.active: dict[RunId, Turn] = {}
        self._at_last: set[RunId] = (
            set()
        )  # of these, those that were begun with the last claim that they may have (D10)
        self._lacking: dict[RunId, timedelta] = {}  # the next pause of runs whose definitions are not here
        self.committing: set[RunId] = set()
        self._ending: set[RunId] = set()  # runs whose user code is over and whose end is being committed
        # Claimed and active, and waiting for a slot, in order: the first of ten thousand is found at once.
        self._ahead: OrderedDict[RunId, Turn] = OrderedDict()
        self._begun = 0  # turns so far that got a slot
        self._is_beginning = False
        self.stale = 0  # turns that lost their claim (D3)
        self.crashed = False
        self._tasks: dict[asyncio.Task[None], RunId] = {}
        self._reserved = 0
        self._admits = self._fires = False  # whether something was to be admitted, or to be fired, at the last look
        self._left_behind = False  # whether there may be ready runs in the store that want a free slot
        self._deleted_at_once = DELETED_AT_ONCE
        self._stopping = False
        self._wake = asyncio.Event()
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = -math.inf  # kept here: what uvloop sets for this very moment does not tell its own
        self._loop_task: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()  # of turns: not that of whoever happened to bring a batch on its way
        self._context.run(runtime_at_work.set, runtime)
        self._unsubscribe: Callable[[], None] = lambda: None
        self._heartbeat: Heartbeat | None = None
        self._collector = Collector(self.settings.gc_threshold, self.settings.concurrency)
        self._retention_at = 0.0
        self._freed_at = -math.inf
        self._reached: dict[str, RunId] = {}  # the last child of the page that each unfinished chore is at
        self._refused: set[str] = set()  # of these chores, those on whose way a child could not be cancelled
        self.items = ItemWork(self)
        self.threads = concurrent.futures.ThreadPoolExecutor(self.settings.threads, thread_name_prefix="bide-step")
        self.outbox = Outbox(self)
        self._due_in: timedelta | None = None  # when something is due, as it was at the last look
        runtime.item_work = self.items
        runtime.committer.offer = self.make_offer
        runtime.committer.settle_offer = self.settle_offer
        runtime.committer.let_go = self.let_go
        runtime.committer.listeners.append(self._heard)

    # ------------------------------------------------------------ running

    async def __aenter__(self) -> Self:
        self._unsubscribe = self.runtime.store.subscribe(self._hint())
        self._heartbeat = Heartbeat(self, asyncio.get_running_loop())
        self._heartbeat.start()
        self._collector.relax()
        self._listeners.start()
        self._loop_task = asyncio.create_task(self._loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop claiming, finish running turns within the grace time, hand back the rest (D12)."""
        self._stopping = True
        self._wake.set()
        self._begin_ahead()  # each gives its run back: it was not started
        self._unsubscribe()
        await self._listeners.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace.total_seconds()):
                await self._finish()
        await self._abandon()
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        self._collector.restore()
        self.detach()

    def detach(self) -> None:
        """Take this engine off the committer, unless another has taken its place there."""
        committer = self.runtime.committer
        if self.runtime.item_work is self.items:
            self.runtime.item_work = None
        if committer.offer == self.make_offer:
            committer.offer = lambda commands: None
            committer.settle_offer = lambda offer, turns: None
            committer.let_go = lambda run_id, epoch: None
        if self._heard in committer.listeners:
            committer.listeners.remove(self._heard)
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def _finish(self) -> None:
        if self._loop_task is not None:
            await asyncio.wait({self._loop_task})
        while self._reserved:  # a commit under way may still hand runs over: they are given back, not dropped
            self._wake.clear()
            await self._wake.wait()
        while self._tasks or self.outbox.tasks:
            await asyncio.wait({*self._tasks, *self.outbox.tasks})

    async def _abandon(self) -> None:
        """Cancel the turns that are left and give their runs back at once, so that nobody waits for a lease."""
        left = dict(self.active)
        tasks = {*self._tasks, *({self._loop_task} if self._loop_task is not None else ())}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.outbox.stop()
        for turn in left.values():
            with contextlib.suppress(StoreUnavailable):  # then the lease ends by itself
                await self._give_back(turn, timedelta(0))
        with contextlib.suppress(StoreUnavailable):
            await self.items.drop()

    async def _loop(self) -> None:
        while not self._stopping:
            await asyncio.sleep(0)  # the turns of a store that never waits get their chance
            self._wake.clear()
            try:
                if await self.tick():
                    continue
                pause = self._pause()
            except StoreUnavailable as error:
                log.warning("the store did not answer; trying again: %s", error)
                pause = min(1.0, self.settings.poll_interval.total_seconds())
            except Exception:
                log.exception("a duty of the engine broke; trying again")
                pause = 1.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause or STUCK_PAUSE):
                    await self._wake.wait()

    def _pause(self) -> float:
        """Until the next due moment, and no longer than the poll interval: hints may get lost (D7)."""
        longest, due = self.settings.poll_interval.total_seconds(), self._due_in
        if due is None or (due <= timedelta(0) and self.free == 0):
            return longest
        return min(longest, max(0.0, due.total_seconds()))

    def _hint(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to wake
                loop.call_soon_threadsafe(self._hinted)

        return wake

    def _hinted(self) -> None:
        """Something may be due. A full engine could not take a run now, and has other things to do than to look."""
        if self.free:
            self._wake.set()
        else:
            self._wake_in(FULL_PAUSE)

    def _heard(self, done: Executed) -> None:
        """A batch of this process was committed: look again if it left something to do."""
        if done.ready:
            self._left_behind = True
        if self._left_behind and self.free:
            self._claim_soon()
        elif done.ready:  # a full engine looks at timers all the same, but not at every batch
            self._wake_in(FULL_PAUSE)
        elif done.due_in is not None and done.due_in <= self.settings.poll_interval:
            self._wake_in(done.due_in.total_seconds())

    def _claim_soon(self) -> None:
        """Runs wait for a slot, and one is free: claim when a good part is, or soon, for each claim has its price."""
        if self.free * 4 >= self.settings.concurrency:
            self._wake.set()
        else:
            self._wake_in(STUCK_PAUSE)

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, seconds)
        if loop.time() < self._alarm_at <= at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_at(at, self._wake.set), at

    # ------------------------------------------------------------ duties

    async def tick(self) -> bool:
        """Do once what is due; whether anything was.

        A duty that breaks does not keep the others from theirs; what it raised is raised in the end.
        """
        moved, broken = False, list[Exception]()
        for duty in self._duties():
            try:
                moved = await duty() or moved
            except StoreUnavailable as error:
                broken.append(error)
                if len(broken) > 1:
                    break  # it is the store, not the duty: the others would only wait for it, too
            except Exception as error:
                broken.append(error)
        for other in broken[1:]:
            log.error("another duty of the engine broke, too", exc_info=other)
        if broken:
            raise broken[0]
        return moved

    def _duties(self) -> Iterator[Duty]:
        """Claims first: what another process woke waits for nothing else. Then one look tells for all that may be due
        whether anything is."""
        yield self.claim
        yield self._look
        if self._due_in is not None and self._due_in <= timedelta(0):
            yield self.items.tick
            yield self.fire_timers
            yield self.admit
            yield self.do_chores
        yield self._free_locks
        yield self._delete_old

    async def _look(self) -> bool:
        """When something is due next. If the store does not tell, each duty finds out for itself."""
        self._due_in = timedelta(0)
        with contextlib.suppress(StoreUnavailable):
            self._due_in = await self.runtime.store.until_due(self.queues)
        return False

    async def admit(self) -> bool:
        """Execute what callers' own transactions left (S11)."""
        self._admits = await self._due(self._admission, self._slots(self._admits))
        return self._admits

    async def fire_timers(self) -> bool:
        self._fires = await self._due(self._firing, self._slots(self._fires))
        return self._fires

    async def claim(self) -> bool:
        if self._stopping or not self.free:
            self._left_behind = True
            return False
        # Where runs were left behind, these come first, and all that is free is theirs.
        slots = self.free if self._left_behind else self._slots(False)
        self._left_behind = await self._due(self.runtime.store.claim, slots)
        if self._left_behind:
            await asyncio.sleep(0)  # what was claimed begins before the next look has the server take the processor
        return self._left_behind

    def _slots(self, is_expected: bool) -> int:
        """Half of what is free is enough: commits that come meanwhile hand over runs, too. What they cannot hand over
        has to be claimed by itself, so a look that is likely to find nothing must not keep slots from them."""
        return self.free // 2 if is_expected else min(self.free // 2, LOOK_SLOTS)

    def _admission(self, offer: Offer) -> Awaitable[Executed]:
        return self.runtime.store.admit(ADMITTED_AT_ONCE, offer)

    def _firing(self, offer: Offer) -> Awaitable[Executed]:
        return self.runtime.store.fire_timers(TIMERS_AT_ONCE, offer)

    async def _due(self, work: Callable[[Offer], Awaitable[Executed]], slots: int) -> bool:
        """Let the store do what is due, with so many free slots on offer; whether anything moved."""
        offer = self.make_offer(max(1, slots))
        done = Executed(replies=[])
        try:
            done = await work(offer)
        finally:
            self.settle_offer(offer, done.turns)
        self.runtime.announce(done)
        for reply in done.replies:
            if isinstance(reply, Failed):
                log.error("a due command broke and will be tried again", exc_info=reply.error)
        return any(not isinstance(reply, Failed) for reply in done.replies)

    async def do_chores(self) -> bool:
        due = await self.runtime.store.due_chores(CHORES_AT_ONCE)
        chores = [chore for chore in due if chore.kind == "cancel_children"]
        began = len(chores) < len(due) and not self._stopping and await self.outbox.tick()
        for chore in chores:
            await self._cancel_page(chore)
        return bool(chores) or began

    async def _cancel_page(self, chore: Chore) -> None:
        """Cancel the next children of a run. The chore goes with the last page, unless a child on the way was refused:
        then it comes again later, for nobody else would end that one (D6)."""
        # A child whose clean-up takes its time lives on: the next page begins after it, not with it.
        after = self._reached.get(chore.id)
        children = await self.runtime.store.live_children(
            chore.run_id, CHILDREN_AT_ONCE, wait_no=join_of(chore), after=after
        )
        is_last = len(children) < CHILDREN_AT_ONCE
        if await self._cancel_children(chore, children, is_last and chore.id not in self._refused) is not None:
            self._refused.add(chore.id)
            refusals = await asyncio.gather(*(self._cancel_children(chore, [child], False) for child in children))
            for child, error in zip(children, refusals, strict=True):
                if error is not None:
                    log.error("%s cannot be cancelled with its parent yet", child, exc_info=error)
        if not is_last:
            self._reached[chore.id] = children[-1]
            return
        self._reached.pop(chore.id, None)
        if chore.id in self._refused:
            self._refused.discard(chore.id)
            await self._put_off(chore)

    async def _cancel_children(self, chore: Chore, children: Sequence[RunId], is_last: bool) -> Exception | None:
        """What the store refused it for, if it did."""
        command = CancelChildren(
            workspace="",
            actor="engine",
            chore_id=chore.id,
            run_id=chore.run_id,
            children=tuple(children),
            reason=chore.data,
            is_last=is_last,
        )
        reply = (await self.runtime.committer.submit(command)).reply
        return reply.error if isinstance(reply, Failed) else None

    async def _put_off(self, chore: Chore) -> None:
        command = SettleChore(
            workspace=chore.workspace,
            actor="engine",
            run_id=chore.run_id,
            chore=chore,
            outcome="again",
            delay=REFUSED_DELAY,
        )
        reply = (await self.runtime.committer.submit(command)).reply
        if isinstance(reply, Failed):
            raise reply.error

    async def _free_locks(self) -> bool:
        """A worker that is stopped in the middle of a commit must not keep its runs from the others (D6)."""
        now = self.runtime.ports.monotonic()
        if now < self._freed_at + self.settings.sweep_interval.total_seconds():
            return False
        self._freed_at = now
        return await self.runtime.store.free_locks(STOPPED) > 0

    async def _delete_old(self) -> bool:
        """Retention, a small batch at a time, not more often than the sweep interval (§11). Nobody waits for it."""
        now = self.runtime.ports.monotonic()
        if now < self._retention_at:
            return False
        store, retention = self.runtime.store, self.settings.retention
        trimmed = await store.trim_unused(retention, MOST_UNUSED, DELETED_AT_ONCE)
        forgotten = await store.trim_events(self.settings.event_retention, DELETED_AT_ONCE)
        has_more = await self._delete_ended(retention) or DELETED_AT_ONCE in (trimmed, forgotten)
        self._retention_at = now + (0 if has_more else self.settings.sweep_interval.total_seconds())
        return False

    async def _delete_ended(self, retention: timedelta) -> bool:
        """Delete some runs; whether there may be more. Where so much hangs on them that the store gives up, take fewer
        the next time: a run of a million items goes alone."""
        asked = self._deleted_at_once
        try:
            deleted = await self.runtime.store.delete_ended(retention, asked)
        except StoreUnavailable:
            self._deleted_at_once = max(1, asked // 2)
            raise
        self._deleted_at_once = min(DELETED_AT_ONCE, 2 * asked)
        return deleted == asked

    # ------------------------------------------------------------ turns

    @property
    def free(self) -> int:
        return max(0, self.settings.concurrency - len(self.active) - self._reserved)

    def make_offer(self, most: int) -> Offer:
        """Offer up to *most* free slots; they are reserved until `settle_offer` says what came of it.

        An event may let so many runs go on at once that each would have to be claimed by itself later on: an engine
        that is not full takes them ahead of its slots.
        """
        is_full = self._running >= self.settings.concurrency
        room = MOST_AHEAD if most == ANY_NUMBER and not is_full else self.free
        slots = 0 if self._stopping else min(most, room)
        self._reserved += slots
        return Offer(
            worker=self.worker,
            lease=self.settings.lease,
            slots=slots,
            queues=self.queues,
            definitions=self.runtime.registry.names(),
            max_claims=self.settings.max_claims,
            last_try=not any(self._is_at_last_try(run_id) for run_id in self._at_last),
        )

    def _is_at_last_try(self, run_id: RunId) -> bool:
        turn = self.active.get(run_id)  # a commit of its claim may have shown meanwhile that it kills nobody
        return turn is not None and turn.run.claims >= self.settings.max_claims

    def settle_offer(self, offer: Offer | None, turns: dict[RunId, Turn]) -> None:
        if offer is not None:
            self._reserved -= offer.slots
        if self._stopping:
            self._wake.set()
        for turn in turns.values():
            self._begin(turn)

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        """Run blocking user code beside the event loop."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, functools.partial(context.run, _call, call, arguments))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a duty's work run beside the turns; shutdown waits for it as for them."""
        task = asyncio.create_task(work)
        self._tasks[task] = RunId("")
        task.add_done_callback(self._ended)

    def _begin(self, turn: Turn) -> None:
        run, figures = turn.run, self.runtime.figures
        figures.counts[(TURNS, run.style)] += 1
        figures.wakes.observe(max(0.0, (run.updated_at - run.ready_at).total_seconds()))  # by the store's clock alone
        self._ahead.pop(run.id, None)  # an older turn of it is void
        self._ending.discard(run.id)
        is_full = self._running >= self.settings.concurrency
        self.active[run.id] = turn
        if run.claims >= self.settings.max_claims:
            self._at_last.add(run.id)
        if not is_full or self._stopping:
            self._start(turn)
            return
        if not self._ahead:
            asyncio.get_running_loop().call_later(AHEAD_SECONDS, self._look_ahead, self._begun)
        self._ahead[run.id] = turn

    def _start(self, turn: Turn) -> None:
        self._begun += 1
        task = asyncio.get_running_loop().create_task(self._take(turn), context=self._context.copy())
        self._tasks[task] = turn.run.id
        task.add_done_callback(self._ended)

    @property
    def _running(self) -> int:
        """Turns whose user code may be at work: what `concurrency` limits."""
        return len(self.active) - len(self._ahead) - len(self._ending)

    def _begin_ahead(self) -> None:
        """Give the slots that are free to those that were claimed ahead of them; when stopping, to all of them.

        A few at a time, so that a commit under way gets on in between: the next one needs no more than a batch.
        """
        self._is_beginning = False
        for _ in range(len(self._ahead) if self._stopping else BEGUN_AT_ONCE):
            if not self._has_slot_for_ahead():
                return
            _, turn = self._ahead.popitem(last=False)
            self._start(turn)
        self._begin_ahead_soon()

    def _begin_ahead_soon(self) -> None:
        if not self._is_beginning and self._has_slot_for_ahead():
            self._is_beginning = True
            asyncio.get_running_loop().call_soon(self._begin_ahead)

    def _has_slot_for_ahead(self) -> bool:
        if not self._ahead:
            return False
        is_free = self._running < self.settings.concurrency and len(self._ending) < 2 * self.settings.batch
        return is_free or self._stopping

    def _look_ahead(self, begun: int) -> None:
        """Keep what will get a slot soon. The rest is given back: other processes may have slots for it."""
        if not self._ahead or self._stopping or self.crashed:
            return
        soon = int((self._begun - begun) * REACHED_SECONDS / AHEAD_SECONDS)
        for turn in list(self._ahead.values())[soon:]:
            del self._ahead[turn.run.id]
            self.spawn(self._hand_back(turn))
        asyncio.get_running_loop().call_later(AHEAD_SECONDS, self._look_ahead, self._begun)

    async def _hand_back(self, turn: Turn) -> None:
        try:
            await self._give_back(turn, timedelta(0))
        finally:
            self.let_go(turn.run.id, turn.run.epoch)

    def ending(self, run_id: RunId, epoch: int) -> None:
        """The user code of a turn is over for good, and only its commit is left: another may take its slot.

        One whose claim was lost has none: a newer turn of the run has taken its place, or has ended already.
        """
        if self.turn_of(run_id, epoch) is not None:
            self._ending.add(run_id)
            self._begin_ahead_soon()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if self._left_behind and self.free:
            self._claim_soon()
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if isinstance(error, Crash):
                self.crashed = True
            else:
                log.error("a turn broke outside of user code; its lease will end", exc_info=error)

    async def _take(self, turn: Turn) -> None:
        run = turn.run
        session = TurnSession(self, turn)
        try:
            if self._stopping:
                await self._give_back(turn, timedelta(0))  # claimed while the engine stopped, and not started
                return
            definition = self.runtime.registry.find(run.definition, run.version)
            if definition is None:
                log.warning("%s needs %s@%s, which this process lacks", run.id, run.definition, run.version)
                await self._give_back(turn, self._pause_for_others(run.id))
                return
            self._lacking.pop(run.id, None)
            with _span_of(turn) if session.is_traced else UNTRACED:
                if not self.runtime.registry.governor.is_asked or await session.may_resume(turn):
                    await definition.take_turn(turn, session)
        finally:
            self.let_go(run.id, run.epoch)

    def _pause_for_others(self, run_id: RunId) -> timedelta:
        """How long a run is left to processes that know its definition; longer each time, for there may be none."""
        if len(self._lacking) > MOST_LACKING:
            self._lacking.clear()
        pause = self._lacking.get(run_id, UNKNOWN_DEFINITION_DELAY)
        self._lacking[run_id] = min(2 * pause, LONGEST_UNKNOWN_DEFINITION_DELAY)
        return pause

    def turn_of(self, run_id: RunId, epoch: int) -> Turn | None:
        """The turn that is at work under this claim; None where it is over, or a newer one has taken its place."""
        turn = self.active.get(run_id)
        return turn if turn is not None and turn.run.epoch == epoch else None

    def let_go(self, run_id: RunId, epoch: int) -> None:
        """The turn is over, or its commit has ended the claim and its task only has to hear so: the slot is free.

        A newer turn of the same run may have been handed over meanwhile: that one stays.
        """
        if self.turn_of(run_id, epoch) is not None:
            del self.active[run_id]
            self._at_last.discard(run_id)
            self._ending.discard(run_id)
            self._begin_ahead_soon()

    async def _give_back(self, turn: Turn, delay: timedelta) -> None:
        run = turn.run
        await self.runtime.committer.submit(
            GiveBack(workspace=run.workspace, actor=self.actor, run_id=run.id, epoch=run.epoch, delay=delay)
        )

    def lose(self, run_id: RunId, epoch: int) -> None:
        """The claim is lost: stop the turn; whatever it would commit is refused anyway (D3).

        A turn that is being committed is left alone. Its own commit may be what ended the claim, and the answer may
        bring the next turn, which nobody else would take before its lease ends.
        """
        if self.turn_of(run_id, epoch) is None or run_id in self.committing:
            return
        log.info("the claim of a run was lost while its step ran", extra={"run_id": run_id})
        self.stale += 1
        if self._ahead.pop(run_id, None) is not None:
            self.let_go(run_id, epoch)
        for task, task_run in self._tasks.items():
            if task_run == run_id:
                task.cancel()

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def has_ended(self) -> bool:
        """Whether its loop is over and nobody asked it to stop: nothing is claimed any more, and no timer fires."""
        return self._loop_task is not None and self._loop_task.done() and not self._stopping

    # ------------------------------------------------------------ by hand (the testing kit)

    async def settle(self) -> None:
        """Tick until nothing can move and no turn is running."""
        while True:
            # a turn that ends during the tick may leave work that the tick passed already
            was_busy = bool(self._tasks or self.outbox.tasks)
            moved = await self.tick()
            at_work = {*self._tasks, *self.outbox.tasks}
            if at_work:
                await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
                await self.runtime.committer.drain()
            elif not (moved or was_busy):
                return
            if self.crashed:
                return

    async def crash(self) -> None:
        """Drop every turn without a commit, as a killed process would; its leases end at once."""
        self.detach()  # first: what a commit under way hands over is dropped too
        self._ahead.clear()  # before turns end, and leave their slots to it
        for task in list(self._tasks):  # before anything is awaited: a dead process does not take another step
            task.cancel()
        await self.outbox.stop()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self.runtime.committer.drain()
        self.active.clear()
        self._ending.clear()
        await self.runtime.store.end_leases(self.worker)
        await self.items.drop()


def _span_of(turn: Turn) -> contextlib.AbstractContextManager[tracing.Span]:
    """A turn in the trace that its run belongs to: below what parked it where that is at hand, else its start."""
    run, woken_by = turn.run, turn.woken_by
    parent = trace_of(woken_by) if woken_by is not None else None
    verb = "resume" if run.woken_by is not None else "run"
    about = {"run_id": run.id, "definition": run.definition, "version": run.version, "workspace": run.workspace}
    return tracing.span(f"bide.{verb} {run.definition}", parent=parent or run.trace, kind="consumer", **about)


def _call(call: Any, arguments: tuple[Any, ...]) -> Any:
    """As in a coroutine: a future cannot carry StopIteration, and whoever awaits it would wait for ever."""
    try:
        return call(*arguments)
    except StopIteration as error:
        raise RuntimeError("the step raised StopIteration") from error
