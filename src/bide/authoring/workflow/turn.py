"""One turn of a workflow: replay what is stored, run what is new, and suspend when there is nothing left to run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from bide.authoring.machine import encode
from bide.authoring.requesting import transport_name
from bide.authoring.telling import tell_move
from bide.authoring.workflow.answers import answer_of, decoded, is_collision, result_of, step_failed
from bide.authoring.workflow.asks import PURE, RAISES, Code, Waiting
from bide.authoring.workflow.children import new_child
from bide.authoring.workflow.combining import combined
from bide.authoring.workflow.failing import AwaitTimeout, BadWait, after_error
from bide.authoring.workflow.loop import Body, BodyLoop, Interruptible, Loop
from bide.authoring.workflow.options import fails_given
from bide.authoring.workflow.replaying import Given, Replay
from bide.authoring.workflow.requests import ITEMS_AT_ONCE
from bide.authoring.workflow.reserving import Reservations
from bide.authoring.workflow.restarting import Restart
from bide.authoring.workflow.running import Runner, StuckThread
from bide.authoring.workflow.step import Step
from bide.authoring.workflow.straight import Straight
from bide.authoring.workflow.waits import Wait
from bide.core.commands import End, EventReceipt, Listening, NewStep, NewWait, StartAgain, Suspend, Unseen
from bide.core.durations import format_duration, moment_before
from bide.core.exchanging import INTERACTION_API, MoreItems, NewRequest
from bide.core.payloads import BadPayload, decode_as
from bide.core.records import (
    CANCELLED,
    EARLIER_CANCELLED,
    HEARING,
    LIFE,
    Held,
    Interaction,
    Run,
    StepRow,
    Turn,
    earlier_pause_key,
    hearing_of,
    live_seq,
    pause_key,
)
from bide.core.retrying import RetryPolicy
from bide.core.tokens import callback_id
from bide.engine.definitions import Session
from bide.engine.ports import UUID
from bide.engine.probes import Crash
from bide.errors import (
    BadInput,
    Cancelled,
    DedupConflict,
    HistoryMismatch,
    Invalid,
    NotInAStep,
)

if TYPE_CHECKING:
    from bide.authoring.workflow.definition import Workflow


log = logging.getLogger("bide.workflow")


class LostClaim(Exception):
    """The run has another owner or has ended: stop, and commit nothing."""


PAGE = 500
MOST_IN_A_ROW = 50
LONGEST_DELAY = timedelta.max.total_seconds()


class WorkflowTurn:
    def __init__(self, workflow: Workflow[Any, Any], turn: Turn, session: Session) -> None:
        self.run: Run = turn.run
        self.retry: RetryPolicy = workflow.step_retry
        self._workflow = workflow
        self._turn = turn
        self._session = session
        self.stand_in = session.ports.stand_in
        self._limit = session.settings.max_payload_bytes
        self._replay = Replay(turn.steps)
        self._stored = self._replay.stored
        self._open = {wait.key: wait for wait in turn.waits}
        self._hears = hearing_of(turn, self._stored.pop(HEARING, None))
        # What the body asked for goes from one of these to the next; each is empty most of the time.
        # What is stored is in `_replay`.
        self._fresh: list[Code] = []  # to be started
        self._finished: deque[tuple[Code, NewStep, Any]] = deque()  # with its result, not handed to the body yet
        self._opens: list[Waiting] = []  # to be opened
        self._waits: dict[str, Waiting] = {}  # open
        self._steps: list[NewStep] = []  # not committed yet
        self._has_effects = False  # whether one of those had: then they are committed before other code starts (D2)
        self._reserved = Reservations()
        self._reserving: list[Waiting] = []  # to be told whether they hold their signal ids
        self._unseen: list[Unseen] = []  # answers that came too late for the body
        self._withdrawn: set[int] = set()  # numbers of waits
        self._outcomes = 0  # of steps that this turn ran
        self._run_in_a_row = 0  # pure code that was run at once, while the engine's loop waited
        self._loop: Loop = Straight() if workflow.is_straight else BodyLoop(self._timer)
        self._runner = Runner(session, turn.run, self._note)
        self._broken: BaseException | None = None  # what ends the turn, and is nothing that the body may catch

    # ------------------------------------------------------------ the turn

    async def take(self) -> Turn | None:
        """Run until the body ends, suspends or loses its claim; the next turn where it goes on at once."""
        try:
            self.signer = await self._session.signer()
        except BaseException:
            self._loop.shut()
            raise
        try:
            return await self._drive(self._begin())
        except HistoryMismatch as error:
            await self._hold(error, "history_mismatch")
            return None
        except StuckThread as error:
            await self._hold(error, "stuck_thread")
            return None
        except AwaitTimeout as error:
            await self._runner.finish()
            return await self._fail(error)
        except LostClaim:
            return None
        finally:
            await self._runner.stop()
            self._loop.shut()

    def _begin(self) -> Body:
        coroutine = self._workflow.call(self, Step(self))
        cancelling = self._stored.get(CANCELLED) or self._stored.get(EARLIER_CANCELLED)
        if cancelling is None or cancelling.kind != "cancel":
            return self._loop.begin(coroutine)
        assert isinstance(self._loop, BodyLoop), "who has a clean-up is user code"
        interruptible = Interruptible(coroutine)
        body = self._loop.begin(interruptible)
        self._replay.ask(cancelling, partial(self._cancel, body, interruptible))
        return body

    async def _drive(self, body: Body) -> Turn | None:
        while True:
            self._run_in_a_row = 0
            try:
                self._loop.pump()
            except NotInAStep as error:
                await self._runner.finish()
                return await self._fail(error)
            if self._broken is not None:
                raise self._broken
            if body.done():
                await self._runner.finish()
                return await self._end(body)
            if self._replay.first is not None:
                if self._has_answers_to_load():
                    await self._load_answers()
                if self._hand_over_stored():
                    continue
            if self._finished and self._hand_over_finished():
                continue
            if self._reserving:
                await self._record()
                continue
            if self._fresh:
                await self._start_fresh()
            elif self._runner.is_busy:
                if self._has_news():
                    await self._record()
                await self._runner.next_outcome()
            else:
                return await self._suspend()

    async def _start_fresh(self) -> None:
        """Start the code that the body still wants; what was finished is durable before (D2)."""
        fresh, self._fresh = [code for code in self._fresh if not code.future.done()], []
        if not fresh:
            return
        if self._has_news() or self._has_effects or (self._steps and any(code.kind != PURE for code in fresh)):
            await self._record()
        if len(fresh) == 1 and self._runner.may_run_alone(fresh[0]):
            await self._runner.run_alone(fresh[0])
        else:
            for code in fresh:
                self._runner.start(code)

    def _has_answers_to_load(self) -> bool:
        asked = self._replay.first
        return isinstance(asked, Waiting) and bool(asked.notes.get("items")) and "answers" not in asked.notes

    async def _load_answers(self) -> None:
        """The answers of many items are in rows of their own: read those of the request that is handed over next."""
        asked = self._replay.first
        assert isinstance(asked, Waiting)
        row = self._stored[asked.key]
        rows: list[Interaction] = []
        if row.status == "done":
            no = msgspec.json.decode(row.result or "{}")["wait"]
            while page := await self._session.answers(self.run, no, rows[-1].item if rows else -1, PAGE):
                rows += page
        asked.notes["answers"] = rows

    async def _send_rest(self) -> None:
        """Requests of more items than one commit carries: those that are not stored yet, chunk by chunk."""
        for waiting in self._waits.values():
            if not waiting.rest or waiting.no is None or waiting.notes.get("is_filled"):
                continue
            unit = await self._session.unit(self.run, waiting.no)
            at = unit.expected - ITEMS_AT_ONCE if unit is not None else 0
            while at < len(waiting.rest):
                chunk = waiting.rest[at : at + ITEMS_AT_ONCE]
                is_last = at + len(chunk) == len(waiting.rest)
                new = NewRequest(payloads=chunk, first=ITEMS_AT_ONCE + at, is_last=is_last)
                await self._go_on(more=(MoreItems(no=waiting.no, request=new),))
                at += len(chunk)
            waiting.notes["is_filled"] = True

    def _hand_over_stored(self) -> bool:
        """Give the body one result, and let it act on it before it gets the next; whether there was one.

        Stored results come in the order in which they were handed over when they were new (F3).
        """
        while self._replay.first is not None:
            key, asked = self._replay.take()
            if not isinstance(asked, Code | Waiting):
                asked()
                return True
            if asked.future.done():  # it was cancelled meanwhile
                if isinstance(asked, Waiting):
                    self._take_back(asked)
                continue
            self._give(asked, self._stored[key])
            return True
        return False

    def _hand_over_finished(self) -> bool:
        """Give the body one result of this turn, after all stored ones that it asked for; whether there was one."""
        while self._finished:
            code, row, value = self._finished.popleft()
            if code.future.done():
                continue
            if row.status == "done":
                code.future.set_result(value)
            elif row.status == "trying":
                self._pause(code)
            else:
                code.future.set_exception(step_failed(row))
            return True
        return False

    async def _hold(self, error: Exception, held: Held) -> None:
        await self._runner.finish()
        log.warning("%s is held: %s", self.run.id, error)
        if self._steps:
            await self._record()
        await self._session.give_back(self.run, held, str(error))

    def _cancel(self, body: asyncio.Task[Any], coroutine: Interruptible) -> None:
        """Raise `Cancelled` where the body stands, and give up all that it asked for until then (W8)."""
        coroutine.error = Cancelled(self.run.cancel_reason)
        asked = [*self._fresh, *self._opens, *self._waits.values(), *self._replay.asked]
        body.cancel()
        body.uncancel()
        for ask in asked:
            if isinstance(ask, Code | Waiting):
                ask.future.cancel()

    # ------------------------------------------------------------ asking, from the body

    def code(
        self,
        id: str,
        kind: str,
        call: Callable[..., Any],
        *,
        returns: Any,
        retry: RetryPolicy,
        is_async: bool = False,
        is_told_its_key: bool = False,
        timeout: timedelta | None = None,
    ) -> Awaitable[Any]:
        """Ask for the result of code; to be awaited at once, for what is stored may be there already."""
        key = self._replay.key(id)
        row = self._stored.get(key)
        if row is not None:
            if row.kind != kind:
                self._refuse_kind(row, kind)
            if row.status == "done" and (stored := self._stored_at_once(row, returns)) is not None:
                return stored
        elif kind == PURE and self._is_next_to_run() and (given := self._run_at_once(key, call, returns)) is not None:
            return given
        if is_told_its_key:
            call = functools.partial(call, key)
        context = contextvars.copy_context()  # what the body has set, its steps see
        code = Code(key, kind, self._loop.create_future(), call, is_async, returns, retry, context, timeout)
        if row is not None:
            if row.status != "trying":
                self._replay.ask(row, code)
                return code.future
            code.attempts = row.attempts
            self._pause(code)
        else:
            self._fresh.append(code)
        return code.future

    def _stored_at_once(self, row: StepRow, returns: Any) -> Given | None:
        """A stored result, where whoever asks would wait until nothing else is ready, which is so, and be handed it."""
        if not self._loop.has_only_this() or not self._replay.is_next(row):
            return None
        try:
            return Given(decoded(row, returns))
        except HistoryMismatch:
            return None  # the turn finds it again, outside of the body

    def _is_next_to_run(self) -> bool:
        """Whether pure code that is asked for now would be run next, with nothing to be committed before it."""
        return (
            self._run_in_a_row < MOST_IN_A_ROW
            and self._loop.has_only_this()
            and self._replay.first is None
            and not (self._finished or self._fresh or self._opens or self._unseen or self._waits)
            and not self._runner.is_busy
            and not self._has_effects
        )

    def _run_at_once(self, key: str, call: Callable[[], Any], returns: Any) -> Awaitable[Any] | None:
        """Pure code whose turn it is needs no task of its own, nor anybody to hand its result over.

        None where it fails: then it is run like any other code, and fails there.
        """
        try:
            self._session.reached("before", key)
            text = encode(call(), self._limit, f"the result of step {key!r}")
            value = decode_as(text, returns)
            self._session.reached("after_code", key)
        except Crash as crash:
            self._broken = crash
            return self._loop.create_future()  # the body stands here, and the turn ends
        except Exception:
            return None
        self._run_in_a_row += 1
        self._keep(NewStep(key=key, kind=PURE, status="done", attempts=1, result=text))
        return Given(value)

    def _pause(self, code: Code) -> None:
        """A step that failed waits for its next try: the pause is a wait of its own."""
        key = self._pause_key(code)
        self._replay.keys.add(key)
        if key in self._stored:
            self._fresh.append(code)
            return
        timeout = code.retry.pause(code.attempts, self._session.ports.random())
        pause = Waiting(key, "sleep", self._loop.create_future(), None, None, timeout=timeout, of=code.future)
        self._await(pause)

    def _pause_key(self, code: Code) -> str:
        """Its own, unless a pause is there under the key that it had before: one that sleeps, and is not the body's."""
        key, earlier = pause_key(code.key, code.attempts), earlier_pause_key(code.key, code.attempts)
        if key in self._stored or key in self._open or earlier in self._replay.keys:
            return key
        row = self._stored.get(earlier) or self._open.get(earlier)
        return earlier if row is not None and row.kind == "sleep" else key

    def wait(
        self,
        id: str,
        kind: str,
        *,
        returns: Any = Any,
        default: Any = RAISES,
        on_timeout: str | None = None,
        **options: Any,
    ) -> Wait[Any]:
        """Make a wait for the body: its key is taken now, it opens when it is first awaited or combined.

        This is how every wait method of `Step` is made. *kind* is a kind of `records.Wait`; *options* are the further
        fields of `asks.Waiting`: `names`, `timeout`, `details`, `invokes`. When the wait opens, `history._open` gets
        them as a `NewWait`; when it ends, `moves.close_wait` stores a step row of the same kind and key, whose result
        is the encoded answer, and `answers.answer_of` makes of it what the body gets: the result decoded as *returns*,
        *default* (if given) in place of a timeout, or an error. A kind with errors of its own adds a branch there.
        With `on_timeout=FAIL` the run fails then.
        """
        if on_timeout is not None:
            default = fails_given(id, on_timeout, default)
            options["details"] = {**options.get("details", {}), "on_timeout": "fail"}  # for whoever asks what comes
        key = (self._reserved.take(id) if kind == "signal" else None) or self._replay.key(id)

        def begin(is_alone: bool) -> asyncio.Future[Any]:
            waiting = Waiting(key, kind, self._loop.create_future(), returns, default, **options)
            if kind == "signal":
                self._reserved.arrive(key)
            if not (is_alone and self._give_at_once(waiting)):
                self._await(waiting)
            return waiting.future

        return Wait(key, begin)

    def _give_at_once(self, waiting: Waiting) -> bool:
        """Give a wait that is awaited now and by itself what is stored, if nothing else comes before that."""
        row = self._stored.get(waiting.key)
        if (
            row is None
            or row.kind != waiting.kind
            or waiting.notes.get("items")  # their answers have to be read first
            or not self._loop.has_only_this()
            or not self._replay.is_next(row)
        ):
            return False
        try:
            waiting.future.set_result(answer_of(waiting, row))
        except (HistoryMismatch, AwaitTimeout):
            return False  # the turn finds it again, outside of the body
        except Exception as error:
            waiting.future.set_exception(error)
        return True

    def reserve(
        self, id: str, *, names: Callable[[str], tuple[str, ...]], is_unique: bool = False, **options: Any
    ) -> Wait[None]:
        """Hold a signal id for the next wait of this step id; durable before any further step's code starts (F7).

        Awaiting it raises `SignalCollisionError` where another run holds the id; nobody else can hold one that
        *is_unique*. *names* is told the key of this use of the id.
        """
        key = self._replay.key(id)
        options["names"] = names(key)
        self._reserved.hold(id, key)

        def begin(is_alone: bool) -> asyncio.Future[None]:
            told: asyncio.Future[None] = self._loop.create_future()
            row, waiting = self._stored.get(key), None
            if row is None and key not in self._open:
                waiting = Waiting(key, "signal", self._loop.create_future(), Any, RAISES, reserves=True, **options)
                self._opens.append(waiting)
            self._reserved.open(key, options["names"][0], waiting)
            if waiting is not None and not is_unique:
                waiting.future = told
                self._reserving.append(waiting)
            elif row is not None and is_collision(row):
                self._reserved.drop(id, key)
                self._replay.ask(row, Waiting(key, "signal", told, Any, RAISES, **options))
            else:
                told.set_result(None)
            return told

        return Wait(key, begin)

    def _tell_reserving(self) -> None:
        """Those that hold their ids go on. Whoever does not learns why in the next turn, from what is stored."""
        reserving, self._reserving = self._reserving, []
        for waiting in reserving:
            if waiting.future.done():
                continue
            if waiting.no is None or waiting.no in self.run.open_waits:  # without a number, its wait took its place
                waiting.future.set_result(None)
            else:
                self._waits[waiting.key] = waiting

    def combined(self, id: str, waits: Sequence[Wait[Any]], needed: int, give: Any, **options: Any) -> Wait[Any]:
        """Make a wait of waits, which is over when *needed* of them are."""
        return combined(self._replay.key(id), self._loop, waits, needed, give, **options)

    def _await(self, waiting: Waiting) -> None:
        row, wait = self._stored.get(waiting.key), self._open.get(waiting.key)
        if row is not None:
            if row.kind != waiting.kind:
                self._refuse_kind(row, waiting.kind)
            self._replay.ask(row, waiting)
        elif wait is not None:
            if wait.kind != waiting.kind:
                self._refuse(
                    f"step {waiting.key!r} waits as {wait.kind!r} since earlier, the code asks for {waiting.kind!r}"
                )
            if wait.status == "reserved":
                waiting.reaches = wait.no
                self._opens.append(waiting)
                return
            waiting.no = wait.no
            self._waits[waiting.key] = waiting
        else:
            if waiting.invokes is not None:
                definition, input, options = waiting.invokes
                waiting.child = new_child(self._session, definition, input, **options)
            if waiting.key in self._reserved:
                self._opens = self._reserved.reach(waiting, self._opens)
            self._opens.append(waiting)

    def _timer(self, loop: BodyLoop, delay: float, handle: asyncio.TimerHandle) -> None:
        """`asyncio.sleep` and `asyncio.timeout` of the body are durable timers, counted in the order reached (F3)."""
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(lambda done: None if done.cancelled() else loop.fire(handle))
        timeout = timedelta(seconds=delay) if delay < LONGEST_DELAY else None
        self._await(
            Waiting(self._replay.key("asyncio.timer"), "sleep", future, Any, None, timeout=timeout, timer=handle)
        )

    @property
    def limit(self) -> int:
        """How large one payload may be."""
        return self._limit

    def transport(self, transport: Any) -> str:
        """The name of a transport that any process of this app can send over."""
        name = transport_name(transport)
        known = self._session.registry.transports
        if name != INTERACTION_API and (name not in known or not isinstance(transport, str | type(known[name]))):
            there = ", ".join(sorted(known)) or "none"
            raise BadInput(
                f"transport {name!r} is not registered: register it with app.transport(…); there are: {there}"
            )
        return name

    def random_bytes(self, count: int) -> bytes:
        return self._session.ports.random_bytes(count)

    @property
    def private_hosts(self) -> str:
        """Who may be called although they have no public address."""
        return self._session.settings.private_hosts

    @property
    def public_url(self) -> str:
        return self._session.settings.public_url

    @property
    def notifiers(self) -> Mapping[str, Any]:
        """The app's notifiers by name."""
        return self._session.registry.notifiers

    @property
    def signals(self) -> Mapping[str, Any]:
        """The types of the signals that the definition lists, by name: they were checked when they came (S13)."""
        return self._workflow.signals

    @property
    def signatures(self) -> Mapping[str, Any]:
        """What the app knows of who signs webhooks, by name."""
        return self._session.registry.signatures

    @property
    def stored_steps(self) -> Collection[StepRow]:
        """What this run has stored, when this turn began."""
        return self._stored.values()

    def listening(self, match: str, channel: str, lookback: timedelta | None) -> Listening:
        """From the start of this turn on, or from earlier: both by the store's clock and its numbers."""
        since = moment_before(self._hears.at, lookback) if lookback is not None else None
        if lookback is not None and since is None:
            raise BadInput(f"lookback: {format_duration(lookback)} ago is before the year 1; give a shorter one")
        return Listening(match=match, channel=channel, after=self._hears.after, since=since)

    @property
    def _life(self) -> int:
        """How often the run has begun anew: the same step of another life is another event."""
        row = self._stored.get(LIFE)
        return int(row.result or 0) if row is not None else 0

    def callback_id(self, key: str) -> str:
        """The signal id of a callback. One that is open keeps the id it was opened with, whatever made it (law 9)."""
        wait = self._open.get(key)
        if wait is not None and wait.kind == "signal":
            return wait.names[0]
        return callback_id(self.run.id, key, self._life)

    def emit(self, id: str, name: str, data: Any, channel: str) -> Awaitable[EventReceipt]:
        text = encode(data, self._limit, "the event's data")

        async def emit(key: str) -> EventReceipt:
            event_id = f"{self.run.id}/{key}" if not self._life else f"{self.run.id}/{self._life}/{key}"
            receipt = await self._session.emit(self.run, event_id, name, text, channel)
            if receipt.outcome == "conflict":  # the code changed between two tries
                raise DedupConflict(receipt.id)
            return receipt

        return self.code(id, "emit", emit, returns=EventReceipt, retry=self.retry, is_async=True, is_told_its_key=True)

    @property
    def assumes(self) -> bool:
        """Whether answers that a program assumes stand in for the outside: so in the testing kit."""
        return self._session.ports.assumes

    def now(self) -> datetime:
        return self._session.ports.now()

    def uuid(self) -> UUID:
        return self._session.ports.uuid()

    def random(self) -> float:
        return self._session.ports.random()

    # ------------------------------------------------------------ answering, to the body

    def _refuse_kind(self, row: StepRow, kind: str) -> NoReturn:
        self._refuse(f"step {row.key!r} was a {row.kind!r} when it was stored, the code makes it a {kind!r}")

    def input_as(self, type_: Any) -> Any:
        try:
            return decode_as(self.run.state, type_)  # the input it was started with, or restarted with
        except BadPayload as error:  # it fitted when the run started
            return self._refuse(f"the run's input does not fit the type of the parameter any more: {error}")

    def _refuse(self, message: str) -> NoReturn:
        mismatch = HistoryMismatch(f"{message}; bring the old code back, or register it as a new version")
        self._broken = mismatch
        raise mismatch

    def _give(self, asked: Code | Waiting, row: StepRow) -> None:
        try:
            value = result_of(asked, row) if isinstance(asked, Code) else answer_of(asked, row)
        except HistoryMismatch as error:
            self._refuse(str(error))
        except AwaitTimeout:
            raise
        except Exception as error:
            asked.future.set_exception(error)
        else:
            asked.future.set_result(value)

    def _note(self, code: Code, row: NewStep, value: Any) -> None:
        """What it led to rides in the next commit, before any other code starts; the body gets it in its turn."""
        self._keep(row)
        self._finished.append((code, row, value))

    def _keep(self, row: NewStep) -> None:
        """Commit it with what comes next, in its place among the outcomes."""
        self._outcomes += 1
        seq = live_seq(self._turn.run.ledger_seq, self._outcomes)
        self._steps.append(msgspec.structs.replace(row, seq=seq))
        self._has_effects = self._has_effects or row.kind != PURE

    # ------------------------------------------------------------ committing

    def _has_news(self) -> bool:
        """Whether waits opened, or were given up, since the last commit: both count from now (law 1)."""
        if not (self._opens or self._waits):
            return bool(self._unseen)
        self._opens = [waiting for waiting in self._opens if waiting.is_awaited]
        return bool(self._opens or self._unseen) or any(not waiting.is_awaited for waiting in self._waits.values())

    async def _record(self) -> None:
        """Commit what is finished and what is waited for, and go on with this turn."""
        steps, self._steps, self._has_effects = tuple(self._steps), [], False
        withdrawn = self._give_up()
        opens, self._opens = [waiting for waiting in self._opens if waiting.is_awaited], []
        before = self.run.wait_no
        news = tuple(map(self._new_wait, opens))
        unseen, self._unseen = tuple(self._unseen), []
        await self._go_on(steps=steps, opens=news, withdraws=withdrawn, unseen=unseen)
        numbers = itertools.count(before + 1)
        for waiting in opens:
            waiting.no = waiting.reaches if waiting.reaches is not None else next(numbers)
            if not waiting.reserves:
                self._waits[waiting.key] = waiting
        if self._reserving:
            self._tell_reserving()
        self._committed(steps)

    async def _go_on(self, **history: Any) -> None:
        run = await self._session.record(self.run, hears=self._hears, **history)
        if run is None:
            raise LostClaim
        self.run = run

    def _committed(self, steps: tuple[NewStep, ...]) -> None:
        for step in steps:
            self._session.reached("after_commit", step.key)

    def _give_up(self) -> tuple[int, ...]:
        """The numbers of open waits that the body awaited and does not await any more."""
        if not self._waits:
            return ()
        given_up = [waiting for waiting in self._waits.values() if not waiting.is_awaited]
        for waiting in given_up:
            del self._waits[waiting.key]
            self._open.pop(waiting.key, None)
        numbers = tuple(waiting.no for waiting in given_up if waiting.no is not None)
        self._withdrawn.update(numbers)
        return numbers

    def _take_back(self, waiting: Waiting) -> None:
        """An answer that is stored, and that the body gave up before it was handed over, goes back (law 1)."""
        row = self._stored[waiting.key]
        if row.status == "done" and waiting.names and waiting.kind in ("receive", "signal"):
            self._unseen.append(_unseen(row, waiting.names[0]))

    def _take_back_unseen(self) -> None:
        """Nothing more will be handed over: what is stored for the body and has not reached it goes back."""
        for asked in self._replay.asked:
            if isinstance(asked, Waiting):
                self._take_back(asked)

    def _leave_unreached(self) -> tuple[int, ...]:
        """The run is done, or begins anew: early answers to what it never waited for are kept for an operator (S12).

        Those of one that failed stay where they are, for a retry of it. Gives the numbers of those that none has come
        for, as far as is known here.
        """
        numbers = []
        for key, signal_id in self._reserved.unreached.items():
            row, wait = self._stored.get(key), self._open.get(key)
            if row is not None and row.status == "done" and row.kind == "signal":
                self._unseen.append(_unseen(row, signal_id))
            number = wait.no if wait is not None else self._reserved.number(key)
            if number is not None:
                numbers.append(number)
        return tuple(numbers)

    def _new_wait(self, waiting: Waiting) -> NewWait:
        return NewWait(
            key=waiting.key,
            kind=waiting.kind,  # type: ignore[arg-type]  # one of the kinds that this module opens
            names=waiting.names,
            reserves=waiting.reserves,
            reaches=waiting.reaches,
            expected=waiting.expected,
            timeout=waiting.timeout,
            child=waiting.child,
            task=waiting.task,
            request=waiting.request,
            agenda=waiting.agenda,
            listening=waiting.listening,
            details=self._details(waiting),
        )

    def _details(self, waiting: Waiting) -> str:
        if isinstance(waiting.details, str):
            return waiting.details
        return encode(waiting.details, self._limit, "the wait's schema") if waiting.details else "{}"

    async def _suspend(self) -> Turn | None:
        if any(waiting.rest for waiting in (*self._opens, *self._waits.values())):
            if self._has_news():
                await self._record()
            await self._send_rest()
        self._give_up()
        awaiting = tuple([waiting.no for waiting in self._waits.values() if waiting.no is not None])
        opens = tuple([self._new_wait(waiting) for waiting in self._opens if waiting.is_awaited])
        if not awaiting and not opens:
            return await self._fail(BadWait("the body awaits something that is no step and no wait of this run"))
        withdrawn = self._withdrawn.union(self._unreached()) if self._open else self._withdrawn
        return await self._commit(Suspend(awaiting=awaiting), opens=opens, withdraws=tuple(sorted(withdrawn)))

    def _unreached(self) -> Iterator[int]:
        """The numbers of waits that were open when the turn began, and that the changed code knows nothing of (F17)."""
        reached = {*self._waits, *self._reserved.keys}
        return (wait.no for key, wait in self._open.items() if key not in reached)

    async def _end(self, body: Body) -> Turn | None:
        error = asyncio.CancelledError() if body.cancelled() else body.exception()
        if error is not None:
            return await self._fail(error)
        given = body.result()
        if isinstance(given, Restart) and self.run.cancel_reason is None:
            return await self._restart(given)
        try:
            result = encode(given, self._limit, f"the result of {self._workflow.name!r}")
        except Invalid as misfit:
            return await self._fail(misfit)
        self._take_back_unseen()
        withdraws = self._all_open.union(self._leave_unreached())
        return await self._commit(End(status="completed", result=result), withdraws=tuple(sorted(withdraws)))

    async def _restart(self, restart: Restart) -> Turn | None:
        """Begin again with another input. What waits had taken and the body has not seen goes back first (law 13)."""
        try:
            input = self._workflow.encode_input(restart.input, self._limit)
        except Invalid as misfit:
            return await self._fail(misfit)
        self._take_back_unseen()
        withdraws = self._all_open.union(self._leave_unreached())
        known = {*self._stored, *self._open, *self._replay.keys} - {LIFE}  # those of reservations among them
        move = StartAgain(input=input, forgets=tuple(sorted(known)), life=self._life + 1)
        return await self._commit(move, withdraws=tuple(sorted(withdraws)))

    @property
    def _all_open(self) -> set[int]:
        """The numbers of the waits that were open in this turn: what came for them meanwhile, nobody has seen."""
        opened = (waiting.no for waiting in self._waits.values() if waiting.no is not None)
        return self._withdrawn.union(opened, (wait.no for wait in self._turn.waits))

    async def _fail(self, error: BaseException) -> Turn | None:
        """An error that the body did not catch: the run is tried again by its policy, then fails (F16)."""
        move, failed = after_error(error, self.run, self._workflow.retry, self._session.ports.random())
        tell_move(self.run, self.run.step, error, move)
        return await self._commit(move, forgets=failed, withdraws=self._give_up())

    async def _commit(self, move: Any, **history: Any) -> Turn | None:
        turn = self._turn if self.run is self._turn.run else msgspec.structs.replace(self._turn, run=self.run)
        steps, unseen = tuple(self._steps), tuple(self._unseen)
        if self._workflow.is_straight:
            self._loop.shut()  # nothing of it runs then; and hundreds of turns may wait for their commit at once
        return await self._session.commit(turn, move, steps=steps, unseen=unseen, **history)


def _unseen(row: StepRow, name: str) -> Unseen:
    return Unseen(key=row.key, kind=row.kind, name=name, result=row.result or "null", seq=row.seq)
