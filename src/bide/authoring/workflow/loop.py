"""The event loop that a workflow's body runs on: it has no selector and no wall clock.

Ready callbacks run in order until none is left; timers become durable ones; I/O is refused. So `gather`, `TaskGroup`
and `Semaphore` behave the same in every replay, and a turn ends exactly when this loop has nothing left to run.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from bide.errors import NotInAStep

MOST_CALLBACKS = 1_000_000
MOST_CLOSINGS = 20

_Outer: TypeAlias = tuple[asyncio.AbstractEventLoop | None, Any]  # the engine's loop, and its hooks


class Body(Protocol):
    """What became of a body."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def result(self) -> Any: ...


class Loop(Protocol):
    """What a turn asks of the loop of its body."""

    def begin(self, body: Coroutine[Any, Any, Any]) -> Body: ...
    def pump(self) -> None: ...
    def has_only_this(self) -> bool: ...
    def create_future(self) -> asyncio.Future[Any]: ...
    def shut(self) -> None: ...


class BodyLoop(asyncio.BaseEventLoop):
    """*on_timer* is told of every `asyncio.sleep` and `asyncio.timeout` the body reaches: the loop, and the delay."""

    _ready: deque[asyncio.Handle]  # the base class's own: what is ready to run

    _task_factory: Any  # the base class's own: what the body may have set

    _now = 0.0
    _is_pumping = False
    _has_eager_tasks = False  # which run inside of the one that makes them

    def __init__(self, on_timer: Callable[[BodyLoop, float, asyncio.TimerHandle], None]) -> None:
        # There is one loop for each turn: what it has in common with all others is its class's (`_begin_alike`). It
        # refers to itself nowhere, so it goes when the turn does, and the garbage collector is spared it.
        self._ready = deque()
        self._on_timer = on_timer
        self._tasks: list[asyncio.Task[Any]] = []

    # -- running

    def begin(self, body: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.create_task(body)

    def pump(self) -> None:
        """Run callbacks until none is ready."""
        ready = self._ready
        if not ready:
            return
        outer = self._enter()
        self._is_pumping = True
        try:
            for _ in range(MOST_CALLBACKS):
                if not ready:
                    return
                handle = ready.popleft()
                if not handle._cancelled:
                    # A task that exits has it as its outcome already, and raises it a second time.
                    try:
                        handle._run()
                    except (SystemExit, KeyboardInterrupt):
                        continue
        finally:
            self._is_pumping = False
            _leave(outer)
        raise NotInAStep("the workflow's body goes round without ever waiting; put a step or a wait into its loop")

    def _enter(self) -> _Outer:
        """Become the loop that the body's code sees, in place of the one that the engine runs on."""
        outer = events._get_running_loop(), sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._asyncgen_finalizer_hook)
        return outer

    def has_only_this(self) -> bool:
        """Whether a task of the body is being run, nothing else is ready to run, and nobody cancels that task."""
        if not self._is_pumping or self._ready or self._has_eager_tasks:
            return False
        task = asyncio.current_task(self)
        return task is not None and not task.cancelling()

    def fire(self, handle: asyncio.TimerHandle) -> None:
        """A durable timer is due: time is as late as that, and its callback is ready."""
        self._now = max(self._now, handle.when())
        if not handle.cancelled():
            self._ready.append(handle)

    def shut(self) -> None:
        """Close what is suspended: `finally` blocks run, nothing they do is kept (F15)."""
        stubborn: list[Any] = []
        for task in self._tasks:
            if not task.done():
                stubborn = self._close_tasks()
                break
        self._tasks.clear()
        self._ready.clear()
        self._closed = True  # it has nothing else that `close` would have to end
        self._on_timer = _nobody
        if stubborn or _buried:
            _bury(stubborn)

    def _close_tasks(self) -> list[Any]:
        """Those that will not be closed."""
        stubborn: list[Any] = []
        closed: list[asyncio.Task[Any]] = []
        outer = self._enter()
        try:
            while self._tasks:  # a `finally` block may make more of them
                task = self._tasks.pop()
                if not task.done():
                    stubborn += _close(task.get_coro())
                    closed.append(task)
            for task in closed:
                _let_go(task)
            self._ready.clear()
        finally:
            _leave(outer)
        return stubborn

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]  # the callback's own parameters do not matter here
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]  # the base class's own
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # the callback's own parameters do not matter here
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._on_timer(self, max(0.0, when - self._now), handle)
        return handle

    def call_later(  # type: ignore[override]  # the callback's own parameters do not matter here
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return None

    def _process_events(self, event_list: Any) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if self._task_factory is not None:
            return super().create_task(coro, **options)
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]  # the base class's own
        if options.get("eager_start"):
            self._has_eager_tasks = True
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # suspension is how a turn ends
        self._tasks.append(task)
        return task

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self.is_closed():
            self.call_soon_threadsafe(self.create_task, agen.aclose())

    # -- what a body may not do

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotInAStep("I/O and threads in a workflow's body would be repeated at every replay; use step.run(…)")

    if not TYPE_CHECKING:  # each has a signature of its own, and none of them is ever used
        run_in_executor = getaddrinfo = getnameinfo = create_connection = create_server = _refuse
        create_datagram_endpoint = sock_connect = sock_recv = sock_sendall = sock_accept = _refuse
        add_reader = add_writer = add_signal_handler = connect_read_pipe = connect_write_pipe = _refuse
        subprocess_exec = subprocess_shell = create_unix_connection = create_unix_server = _refuse
        sock_recv_into = sock_recvfrom = sock_recvfrom_into = sock_sendto = sock_sendfile = sendfile = _refuse
        start_tls = connect_accepted_socket = _refuse


def _nobody(*told: Any) -> None:
    """Who is told nothing."""


def _leave(outer: _Outer) -> None:
    """Let the engine's loop be the running one again."""
    loop, hooks = outer
    sys.set_asyncgen_hooks(*hooks)
    events._set_running_loop(loop)


class Interruptible(Coroutine[Any, Any, Any]):
    """A body that hears of its run's cancelling: the next cancelling of its task arrives as *error* (W8)."""

    def __init__(self, body: Coroutine[Any, Any, Any]) -> None:
        self.body = body
        self.error: BaseException | None = None

    def send(self, value: Any) -> Any:
        return self.body.send(value)

    def throw(self, kind: Any, error: object = None, trace: TracebackType | None = None) -> Any:
        raised: BaseException = kind if isinstance(kind, BaseException) else kind()
        if self.error is not None and isinstance(raised, asyncio.CancelledError):
            raised, self.error = self.error, None
        return self.body.throw(raised)

    def close(self) -> None:
        self.body.close()

    def __await__(self) -> Any:
        return self.body.__await__()


def _let_go(task: asyncio.Task[Any]) -> None:
    """Part a task that is closed from the future that it waits for: they refer to each other."""
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    if waiter is not None:
        waiter.cancel()


def _close(coroutine: Any) -> list[CoroutineType[Any, Any, Any]]:
    """Close a suspended coroutine and those that it awaits, from the inside out; those that will not be closed."""
    chain: list[CoroutineType[Any, Any, Any]] = []
    if isinstance(coroutine, Interruptible):
        coroutine = coroutine.body
    while isinstance(coroutine, CoroutineType):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    return [each for each in reversed(chain) if not _is_closed(each)]


def _is_closed(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    for _ in range(MOST_CLOSINGS):  # each time it gets past one more await of its `finally` blocks
        try:
            coroutine.close()
        except BaseException:  # whatever its finally blocks raise is not an outcome
            if coroutine.cr_frame is not None:
                continue
        return True
    return False


_buried: list[Any] = []


def _bury(stubborn: list[Any]) -> None:
    """Drop bodies that swallow even GeneratorExit, one turn later, when nobody else holds them.

    Python complains of each to `sys.unraisablehook`, and nobody can act on it.
    """
    if _buried:
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            _buried.clear()
        finally:
            sys.unraisablehook = hook
    _buried.extend(stubborn)


def _begin_alike() -> None:
    """Ask the base class once what it sets, for all loops: each turn has one, and the asking costs more than it does.

    Containers among that are shared by all loops; those that a loop uses it has of its own.
    """
    base = asyncio.BaseEventLoop()
    silent = staticmethod(_nobody)  # a lost task's error is the run's business, not a log's
    for name, value in {**vars(base), "_exception_handler": silent}.items():
        setattr(BodyLoop, name, value)
    base.close()


_begin_alike()
