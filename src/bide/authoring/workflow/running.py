"""Running a workflow's steps: user code on the engine's own loop, beside the body."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from bide.authoring.machine import encode, failure
from bide.authoring.workflow.asks import Code
from bide.core.commands import NewStep
from bide.core.payloads import BadPayload, decode_as
from bide.engine import tracing
from bide.engine.definitions import Session
from bide.errors import BadInput, Invalid


class StuckThread(Exception):
    """A thread ran past its time and its grace; it cannot be stopped, and what it does cannot be told."""


class Runner:
    """Runs code and tells *note* what each try came to; nothing that user code raises gets away."""

    def __init__(self, session: Session, note: Callable[[Code, NewStep], None]) -> None:
        self._session = session
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
        try:
            value = await self._call(code)
            text = encode(value, self._limit, f"the result of step {code.key!r}")
            _check_result(code, text)
            row = NewStep(key=code.key, kind=code.kind, status="done", attempts=code.attempts, result=text)
        except StuckThread as error:
            del self._running[code.key]
            self._break(error)
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise  # the engine stops this turn
            tracing.broke(error)
            gives_up = not isinstance(error, Exception | asyncio.CancelledError)
            gives_up = gives_up or isinstance(error, Invalid) or code.retry.gives_up(code.attempts, error)
            row = NewStep(
                key=code.key,
                kind=code.kind,
                status="failed" if gives_up else "trying",
                attempts=code.attempts,
                error=failure("StepFailed", error, code.key).error,
            )
        self._session.reached("after_code", code.key)
        del self._running[code.key]
        self._note(code, row)
        self._change()

    async def _call(self, code: Code) -> Any:
        if code.timeout is None:
            return await self._called(code)
        limit = asyncio.timeout(code.timeout.total_seconds())
        try:
            async with limit:
                return await self._called(code)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"it took longer than {code.timeout}") from error
            raise

    async def _called(self, code: Code) -> Any:
        if code.is_async:
            return await code.call()
        if code.kind != "run":
            return code.call()
        value: Any = await self._in_thread(code)
        return await value if inspect.isawaitable(value) else value  # a coroutine behind a plain decorator

    async def _in_thread(self, code: Code) -> Any:
        """Run code in a thread. One that is out of time cannot be stopped: nothing goes on before it ends (F1)."""
        thread = asyncio.create_task(_kept(self._session.in_thread(code.call)))
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


def _nobody(code: Code, row: NewStep) -> None:
    """The turn is over: nobody is told."""


async def _kept(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What a call came to, as a value: a task that ended with `SystemExit` would end the event loop, too."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


def _check_result(code: Code, text: str) -> None:
    """A result that cannot be read back as what the function says it returns is the function's error (F1)."""
    try:
        decode_as(text, code.returns)
    except (BadPayload, TypeError) as error:
        raise BadInput(f"the result of step {code.key!r} is no {code.returns!r}: {error}") from error


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
