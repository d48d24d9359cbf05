"""The client for programs without an event loop: every call of `Client`, blocking until it is done."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from bide.authoring.signals import Signal
from bide.authoring.workflow import Workflow
from bide.client import Client
from bide.client.handle import Run
from bide.client.starting import StartOptions
from bide.core.commands import Receipt
from bide.core.durations import Duration
from bide.core.records import RunStatus
from bide.engine.runtime import Runtime
from bide.errors import BadConfiguration, BadInput, ForeignConnectionError
from bide.views import RunInfo

if TYPE_CHECKING:
    from bide.app import App

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")

CLOSED = "this SyncClient is closed; make another"


class LoopThread:
    """An event loop on a thread of its own, with one open store. Any thread may call it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._opening = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="bide-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise BadInput(CLOSED) from None
        except KeyboardInterrupt:
            future.cancel()  # nobody waits for it any more
            raise

    async def runtime(self) -> Runtime:
        async with self._opening:
            if self._runtime is None:
                self._runtime = await self._app.open_runtime()
            return self._runtime

    async def _shut(self) -> None:
        """Let go whoever still waits, and close the store."""
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with self._opening:
            runtime, self._runtime = self._runtime, None
            if runtime is not None:
                await runtime.close()

    def close(self) -> None:
        self.call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """The same call, with the same parameters, that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        called: Callable[P, Coroutine[Any, Any, T]] = getattr(
            self._client, method.__name__
        )  # over HTTP it is another class with the same methods
        return self._wait_for(lambda: called(*args, **kwargs), kwargs.get("connection"))

    return call


class SyncClient:
    """A `Client` for scripts and for web frameworks without an event loop: the same methods, without `await`.

    It has a connection to the store of its own, on a thread of its own; the workers that run what it starts are
    elsewhere: an engine of this process, or other processes. Several threads may share one. Nothing is opened before
    the first call. A process that was forked opens its own. With a URL and a *key* it talks to a server over HTTP.

    >>> def order(app: App) -> str:
    ...     with SyncClient(app) as client:
    ...         run = client.start("order", {"item": 7}, correlation_key="order:7")
    ...         client.signal("order:7", "paid", {"amount": 100}, dedup_key="evt-1")
    ...         return run.result(timeout="30s")
    """

    def __init__(self, app: App | str, workspace: str = "default", *, key: str = "") -> None:
        self._app: Any = app
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._client: Any = Client(app, key) if isinstance(app, str) else Client(self._runtime, workspace)

    @property
    def workspace(self) -> str:
        if isinstance(self._app, str):
            raise BadInput("over HTTP the workspace is that of the key, and only the server knows it")
        return str(self._client.workspace)

    def close(self) -> None:
        """Close the store. A closed client cannot be used again."""
        with self._lock:
            thread, self._thread, self._is_closed = self._thread, None, True
        if thread is not None and thread.pid == os.getpid():
            if isinstance(self._app, str):
                thread.call(self._client.aclose())
            thread.close()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _runtime(self) -> Runtime:
        thread = self._thread
        if thread is None:  # closed while the call was on its way
            raise BadInput(CLOSED)
        return await thread.runtime()

    def _wait_for(self, call: Callable[[], Coroutine[Any, Any, T]], connection: object = None) -> T:
        if _has_event_loop():
            raise BadInput("SyncClient would block the event loop that runs here; use `await app.client().…` instead")
        if inspect.iscoroutinefunction(getattr(connection, "execute", None)):
            raise ForeignConnectionError(
                f"a {type(connection).__qualname__} belongs to the event loop that made it; give a blocking psycopg "
                "connection or a Session of SQLAlchemy, or use app.client() there"
            )
        return self._running().call(call())

    def _running(self) -> LoopThread:
        with self._lock:
            if self._is_closed:
                raise BadInput(CLOSED)
            if self._thread is None or self._thread.pid != os.getpid():
                if not isinstance(self._app, str) and self._app.settings().store.startswith("memory:"):
                    raise BadConfiguration(
                        "a memory:// store lives in one event loop, and SyncClient has another; "
                        "use sqlite:///bide.db or postgresql://…"
                    )
                self._thread = LoopThread(self._app)
            return self._thread

    # ------------------------------------------------------------ starting

    @overload
    def start(
        self, definition: Workflow[None, Out], input: None = None, **options: Unpack[StartOptions]
    ) -> SyncRun[Out]: ...
    @overload
    def start(self, definition: Workflow[In, Out], input: In, **options: Unpack[StartOptions]) -> SyncRun[Out]: ...
    @overload
    def start(
        self, definition: str | type[Any], input: Any = None, **options: Unpack[StartOptions]
    ) -> SyncRun[Any]: ...
    def start(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str | None = None,
        correlation_scope: Literal["live", "forever"] = "live",
        if_exists: Literal["raise", "return"] = "raise",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> SyncRun[Any]:
        """As `Client.start`; gives a handle that blocks, too."""
        options = StartOptions(
            correlation_key=correlation_key,
            correlation_scope=correlation_scope,
            if_exists=if_exists,
            version=version,
            delay=delay,
            queue=queue,
            priority=priority,
            tags=tags,
            connection=connection,
        )
        return SyncRun(self, self._wait_for(lambda: self._client.start(definition, input, **options), connection))

    def retry(self, run_id: str, *, from_step: str | None = None) -> SyncRun[Any]:
        """As `Client.retry`."""
        return SyncRun(self, self._wait_for(lambda: self._client.retry(run_id, from_step=from_step)))

    start_or_signal = blocking(Client.start_or_signal)

    # ------------------------------------------------------------ everything else

    @overload
    def signal(
        self,
        target: str,
        name: Signal[None],
        payload: None = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    @overload
    def signal(
        self,
        target: str,
        name: Signal[S],
        payload: S,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    @overload
    def signal(
        self,
        target: str,
        name: str,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    def signal(
        self,
        target: str,
        name: Any,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt:
        """Put a signal into the inbox of a run, as `Client.signal` does."""
        receipt: Receipt = self._wait_for(
            lambda: self._client.signal(target, name, payload, dedup_key, check=check, connection=connection),
            connection,
        )
        return receipt

    signal_many = blocking(Client.signal_many)
    unused = blocking(Client.unused)
    readdress = blocking(Client.readdress)
    complete = blocking(Client.complete)
    emit = blocking(Client.emit)
    answer = blocking(Client.answer)
    interactions = blocking(Client.interactions)
    interaction = blocking(Client.interaction)
    claim = blocking(Client.claim)
    release = blocking(Client.release)
    assign = blocking(Client.assign)
    wait = blocking(Client.wait)
    update_wait = blocking(Client.update_wait)
    fail_wait = blocking(Client.fail_wait)
    cancel_wait = blocking(Client.cancel_wait)
    heartbeat = blocking(Client.heartbeat)
    update_waits = blocking(Client.update_waits)
    fail_waits = blocking(Client.fail_waits)
    cancel_waits = blocking(Client.cancel_waits)
    answer_waits = blocking(Client.answer_waits)
    dead_letters = blocking(Client.dead_letters)
    retry_dead_letter = blocking(Client.retry_dead_letter)
    discard_dead_letter = blocking(Client.discard_dead_letter)
    cancel = blocking(Client.cancel)
    result = blocking(Client.result)
    get = blocking(Client.get)
    runs = blocking(Client.runs)
    waits = blocking(Client.waits)
    inbox = blocking(Client.inbox)
    steps = blocking(Client.steps)
    ledger = blocking(Client.ledger)
    progress = blocking(Client.progress)
    explain = blocking(Client.explain)


class SyncRun(Generic[T]):
    """A handle on a run, as `SyncClient` gives it.

    >>> def pay(run: SyncRun[str]) -> str:
    ...     run.signal("paid", {"amount": 100})
    ...     return run.result(timeout="30s")
    """

    def __init__(self, client: SyncClient, run: Run[T]) -> None:
        self._client = client
        self._run = run

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def status(self) -> RunStatus:
        """As of the last call that looked; `refresh` looks again."""
        return self._run.status

    @property
    def info(self) -> RunInfo:
        return self._run.info

    def refresh(self) -> SyncRun[T]:
        """Look again; gives this same handle."""
        self._client._wait_for(self._run.refresh)
        return self

    def result(self, timeout: Duration | None = None) -> T:
        """Wait for the end and return the result, as `Run.result` does."""
        return self._client._wait_for(lambda: self._run.result(timeout))

    @overload
    def signal(self, name: Signal[None], payload: None = None, dedup_key: str | None = None) -> Receipt: ...
    @overload
    def signal(self, name: Signal[S], payload: S, dedup_key: str | None = None) -> Receipt: ...
    @overload
    def signal(self, name: str, payload: Any = None, dedup_key: str | None = None) -> Receipt: ...
    def signal(self, name: Any, payload: Any = None, dedup_key: str | None = None) -> Receipt:
        return self._client._wait_for(lambda: self._run.signal(name, payload, dedup_key))

    def cancel(self, reason: str = "", *, force: bool = False) -> None:
        return self._client._wait_for(lambda: self._run.cancel(reason, force=force))

    def __repr__(self) -> str:
        return repr(self._run)


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
