"""Running a workflow's steps: user code on the engine's own loop, beside the body."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any

from bide.authoring.machine import encode, failure
from bide.authoring.telling import tell
from bide.authoring.workflow.asks import NON_RETRYABLE, STEP_FAILED, Code
from bide.authoring.workflow.reading import read_as
from bide.core.commands import NewStep
from bide.core.payloads import BadPayload
from bide.core.records import Run
from bide.engine import tracing
from bide.engine.definitions import Session
from bide.errors import BadInput, Invalid


class StuckThread(Exception):
    """A thread ran past its time and its grace; it cannot be stopped, and what it does cannot be told."""


class Runner:
    """Runs code and tells *note* what each try came to; nothing that user code raises gets away.

    *note* gets the row to store and, where it is done, the stored result as the body gets it.
    """

    def __init__(self, session: Session, run: Run, note: Callable[[Code, NewStep, Any], None]) -> None:
        self._session = session
        self._of = run
        self._limit = session.settings.max_payload_bytes
        self._note = note
        self._running: dict[str, Code] = {}
        self._has_changed = False
        self._watching: asyncio.Future[None] | None = None
        self._broken: BaseException | None = None
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def start(self, code: Code) -> None:
        self._running[code.key] = code
        code.task = asyncio.create_task(self._run(code), context=code.context)

    async def next_outcome(self) -> None:
        """Wait until a step that runs came to something."""
        if not self._has_changed:
            self._watching = asyncio.get_running_loop().create_future()
            await self._watching
        self._has_changed = False
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken

    def may_run_alone(self, code: Code) -> bool:
        """Whether code that nothing else is started with can be run by `run_alone`.

        Threads and time limits cannot: what cancels them must be known from what stops the turn.
        """
        return code.is_async and code.timeout is None and not self._running

    async def run_alone(self, code: Code) -> None:
        """Run code and wait for its outcome, in the turn's own task: making one for it costs more than most steps.

        It has its own context nevertheless, and leaves nothing behind in the turn's.
        """
        task = asyncio.current_task()
        assert task is not None, "a turn is taken in a task"
        cancels = task.cancelling()
        self._running[code.key] = code
        await _within(code.context, self._try(code))
        while task.cancelling() > cancels:  # the code was cancelled from its own inside, and went on
            task.uncancel()
        self._has_changed = False

    async def finish(self) -> None:
        """The turn ends when no step is in progress (F3): what a step did is not done again for want of a record."""
        while self._running:
            await self.next_outcome()

    async def stop(self) -> None:
        """Cancel what runs, without an outcome."""
        self._is_stopping = True
        self._note = _nobody  # whoever is told is who holds this: neither shall keep the other
        if not self._running:
            return
        running = [code.task for code in self._running.values() if code.task is not None and not code.task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _change(self) -> None:
        self._has_changed = True
        if self._watching is not None and not self._watching.done():
            self._watching.set_result(None)

    def _break(self, error: BaseException) -> None:
        self._broken = error
        self._change()

    async def _run(self, code: Code) -> None:
        try:
            await self._try(code)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # not of user code, whose errors are outcomes: a crash, or a defect of bide
            self._break(error)

    async def _try(self, code: Code) -> None:
        code.attempts += 1
        self._session.reached("before", code.key)
        value: Any = None
        try:
            plain = await code.call() if code.is_async and code.timeout is None else await self._call(code)
            text = encode(plain, self._limit, f"the result of step {code.key!r}")
            value = _read_back(code, text)
            row = NewStep(key=code.key, kind=code.kind, status="done", attempts=code.attempts, result=text)
        except StuckThread as error:
            del self._running[code.key]
            self._break(error)
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise  # the engine stops this turn
            tracing.broke(error)
            is_invalid = isinstance(error, Invalid)  # a limit, or what cannot be stored: the same again next time (F16)
            gives_up = is_invalid or not isinstance(error, Exception | asyncio.CancelledError)
            gives_up = gives_up or code.retry.gives_up(code.attempts, error)
            becomes = f"that was try {code.attempts}, {'the last one' if gives_up else 'and there are more'}"
            tell(self._of, code.key, error, becomes, is_final=gives_up)
            row = NewStep(
                key=code.key,
                kind=code.kind,
                status="failed" if gives_up else "trying",
                attempts=code.attempts,
                error=failure(_code(code, error), error, code.key).error,
            )
        self._session.reached("after_code", code.key)
        del self._running[code.key]
        self._note(code, row, value)
        self._change()

    async def _call(self, code: Code) -> Any:
        if code.timeout is None:
            return await self._called(code)
        seconds = code.timeout.total_seconds()
        limit = asyncio.timeout(None if _is_for_a_thread(code) else seconds)
        loop = asyncio.get_running_loop()

        def begin() -> None:
            with suppress(RuntimeError):  # the turn was stopped meanwhile
                limit.reschedule(loop.time() + seconds)

        try:
            async with limit:
                return await self._called(code, begin)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"it took longer than {code.timeout}") from error
            raise

    async def _called(self, code: Code, begin: Callable[[], None] | None = None) -> Any:
        if code.is_async:
            return await code.call()
        if not _is_for_a_thread(code):
            return code.call()
        value: Any = await self._in_thread(code, begin)
        return await value if inspect.isawaitable(value) else value  # a coroutine behind a plain decorator

    async def _in_thread(self, code: Code, begin: Callable[[], None] | None) -> Any:
        """Run code in a thread. One that is out of time cannot be stopped: nothing goes on before it ends (F1).

        *begin* is called on the loop when the thread begins: until then all threads may be at work for others.
        """
        loop = asyncio.get_running_loop()

        def call() -> Any:
            if begin is not None:
                loop.call_soon_threadsafe(begin)
            return code.call()

        thread = asyncio.create_task(_kept(self._session.in_thread(call)))
        try:
            value, error = await asyncio.shield(thread)
            if error is not None:
                raise error
            return value
        except asyncio.CancelledError:
            if thread.done() or self._is_stopping:
                raise
            grace = self._session.settings.thread_grace
            await asyncio.wait({thread}, timeout=grace.total_seconds())
            if not thread.done():
                raise StuckThread(
                    f"step {code.key!r} has run for {grace} beyond its time limit of {code.timeout}, and its thread "
                    "cannot be stopped"
                ) from None
            raise


def _code(code: Code, error: BaseException) -> str:
    """What a failure is stored as: a replay knows by it whether trying again may help (F16)."""
    if isinstance(error, Invalid):
        return type(error).__name__
    return NON_RETRYABLE if code.retry.is_final(error) else STEP_FAILED


def _is_for_a_thread(code: Code) -> bool:
    return not code.is_async and code.kind == "run"


def _nobody(code: Code, row: NewStep, value: Any) -> None:
    """The turn is over: nobody is told."""


async def _kept(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What a call came to, as a value: a task that ended with `SystemExit` would end the event loop, too."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


@types.coroutine
def _within(context: Context, coroutine: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await *coroutine* in the task that is at work, but in another context, as if it had a task of its own."""
    resume, value = coroutine.send, None
    while True:
        try:
            awaited = context.run(resume, value)
        except StopIteration:
            return
        try:
            resume, value = coroutine.send, (yield awaited)
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:
            resume, value = coroutine.throw, error


def _read_back(code: Code, text: str) -> Any:
    """The result as every replay gets it (F1).

    One that cannot be read back as what the function says it returns is the function's error.
    """
    try:
        return read_as(text, code.returns)
    except (BadPayload, TypeError) as error:
        raise BadInput(f"the result of step {code.key!r} is no {code.returns!r}: {error}") from error


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
