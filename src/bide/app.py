"""The app: where definitions are registered, and where engines and clients come from."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from bide.approving import approval_workflow
from bide.authoring.checks import check_priority, check_text, shown
from bide.authoring.events import triggers_of
from bide.authoring.language import Provider, Surroundings, load
from bide.authoring.language.actions import runner
from bide.authoring.machine import Machine
from bide.authoring.pipeline import Pipeline
from bide.authoring.pipeline import files as pipeline_files
from bide.authoring.signals import Signal
from bide.authoring.workflow import Workflow
from bide.authoring.workflow.definition import Registers
from bide.client import Client
from bide.core.approvals import APPROVAL
from bide.core.durations import Duration, parse_duration
from bide.core.governing import Action, Rule
from bide.core.redaction import check_names
from bide.core.retrying import RetryPolicy
from bide.engine.definitions import Definition, MessageSignature, Registry
from bide.engine.engine import Engine
from bide.engine.outbox import Task
from bide.engine.ports import Ports
from bide.engine.probes import probe_from
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import Settings, load_settings
from bide.engine.transport import Transport
from bide.errors import BadConfiguration, BadDefinition, BadInput
from bide.stores.sealing import Codec

T = TypeVar("T", bound=Transport)
C = TypeVar("C", bound=type)
W = TypeVar("W", bound=Callable[..., Any])
P = TypeVar("P", bound=Callable[[Action], Any] | Rule | Sequence[Rule])
G = TypeVar("G", bound=Callable[[str], Any])
N = TypeVar("N", bound=Callable[[Task], Any])


class State:
    """What `lifespan` put there: database pools, HTTP clients, whatever steps need."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"app.state has no {name!r}; set it in the app's lifespan")

    if TYPE_CHECKING:  # any name may be set

        def __setattr__(self, name: str, value: Any) -> None: ...


class App:
    """A set of definitions and the store their runs live in. Opens nothing until it is used.

    *codec* encrypts what users' code gives and gets, in the store; it wins over the setting `payload_keys`.

    >>> app = App("shop", store="memory://")
    >>> app.name
    'shop'
    """

    def __init__(
        self,
        name: str = "bide",
        *,
        store: str | None = None,
        lifespan: Callable[[App], AbstractAsyncContextManager[Any]] | None = None,
        codec: Codec | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.registry = Registry()
        self.state = State()
        self.surroundings = Surroundings()
        self._lifespan = lifespan
        self.codec = codec
        self._store_argument = store
        self._arguments = settings
        self._runtime: Runtime | None = None
        self._runtime_loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None

    # ------------------------------------------------------------ definitions

    def machine(
        self,
        name: str,
        *,
        version: str = "1",
        retries: int = 3,
        retry: RetryPolicy | None = None,
        queue: str = "default",
        priority: int = 0,
        cancel_grace: Duration = "1h",
        signals: Iterable[Signal[Any]] = (),
        trigger: str | Sequence[str] | None = None,
        redact: Collection[str] = (),
    ) -> Callable[[C], C]:
        """Register a class as a machine: each public method taking `ctx` is a step.

        Every event that *trigger* names, or one of its patterns, starts a run with the event's data as its input.
        Fields named in *redact* never reach a ledger, a list or an error.

        >>> app = App()
        >>> @app.machine("hello")
        ... class Hello:
        ...     async def greet(self, ctx): ...
        """

        _check_name(name, "machine")

        def register(cls: C) -> C:
            if not isinstance(cls, type):
                raise BadDefinition(f"@app.machine({name!r}) decorates a class, not {cls!r}")
            try:
                policy = retry if retry is not None else RetryPolicy(attempts=retries + 1)
                triggers = triggers_of(trigger)
                hidden = check_names(redact)
                grace = parse_duration(cancel_grace)
            except (TypeError, ValueError) as error:
                raise BadDefinition(f"machine {name!r} cannot be registered: {error}") from error
            machine = Machine(
                cls,
                name,
                version=version,
                retry=policy,
                queue=queue,
                priority=priority,
                cancel_grace=grace,
                signals=signals,
                triggers=triggers,
                redact=hidden,
            )
            self.add(machine)
            cls.__bide_definition__ = machine  # type: ignore[attr-defined]  # how `start(Hello)` finds it
            return cls

        return register

    def workflow(
        self,
        name: str,
        *,
        version: str = "1",
        retries: int = 3,
        retry: RetryPolicy | None = None,
        step_retry: RetryPolicy | None = None,
        queue: str = "default",
        priority: int = 0,
        on_cancel: Literal["end", "raise"] = "end",
        cancel_grace: Duration = "1h",
        signals: Iterable[Signal[Any]] = (),
        trigger: str | Sequence[str] | None = None,
        redact: Collection[str] = (),
    ) -> Registers:
        """Register an async function as a workflow: it runs from the top on every turn, and its steps are remembered.

        What it gives is the definition, a `bide.Workflow`, typed by the function's input and result. With
        `on_cancel="raise"` a cancelled run gets `bide.Cancelled` at its open await, and *cancel_grace* to clean up.
        Every event that *trigger* names, or one of its patterns, starts a run with the event's data as its input.
        Fields named in *redact* never reach a ledger, a list or an error.

        >>> app = App()
        >>> @app.workflow("hello")
        ... async def hello(step, name):
        ...     return await step.run("greet", str.upper, name)
        """

        _check_name(name, "workflow")

        def register(fn: Callable[..., Any]) -> Any:
            try:
                policy = retry if retry is not None else RetryPolicy(attempts=retries + 1)
                grace = parse_duration(cancel_grace)
                triggers = triggers_of(trigger)
                hidden = check_names(redact)
            except (TypeError, ValueError) as error:
                raise BadDefinition(f"workflow {name!r} cannot be registered: {error}") from error
            if on_cancel not in ("end", "raise"):
                raise BadDefinition(f'workflow {name!r} has on_cancel={on_cancel!r}; give "end" or "raise"')
            workflow: Workflow[Any, Any] = Workflow(
                fn,
                name,
                version=version,
                retry=policy,
                step_retry=step_retry if step_retry is not None else RetryPolicy(),
                queue=queue,
                priority=priority,
                cleanup=grace if on_cancel == "raise" else None,
                signals=signals,
                triggers=triggers,
                redact=hidden,
            )
            self.add(workflow)
            return workflow

        return register

    def policy(self, policy: P) -> P:
        """Let a function, a `bide.Rule` or a list of rules govern what happens to runs (G1).

        The function is handed a `bide.Action` and returns `bide.Allow`, `bide.Deny` or `bide.NeedsApproval`; None or
        True allows, False denies. It may be async. All policies of an app must allow an action.

        >>> app = App()
        >>> @app.policy
        ... def sunday(action):
        ...     return Deny("closed") if action.kind == "start" and action.definition == "payout" else None
        """
        self.registry.governor.add(policy)
        if self.registry.find(APPROVAL, "1") is None:
            self.add(approval_workflow())
        return policy

    def pipeline(
        self,
        name: str,
        *,
        version: str = "1",
        retries: int = 3,
        retry: RetryPolicy | None = None,
        queue: str = "default",
        priority: int = 0,
        redact: Collection[str] = (),
    ) -> Pipeline:
        """Register a pipeline: its stages are added one after the other.

        >>> app = App()
        >>> lengths = app.pipeline("lengths").expand(str.split).map(len).collect(sum)
        """
        try:
            policy = retry if retry is not None else RetryPolicy(attempts=retries + 1)
            hidden = check_names(redact)
        except (TypeError, ValueError) as error:
            raise BadDefinition(f"pipeline {name!r} cannot be registered: {error}") from error
        pipeline = Pipeline(
            name,
            version=version,
            retry=policy,
            queue=queue,
            priority=priority,
            transports=self.registry.add_transport,
            redact=hidden,
        )
        self.add(pipeline)
        return pipeline

    def load(self, place: str | Path) -> list[Definition]:
        """Register the machines of a machine file, or of every `.machine` file in a folder; the definitions.

        Raises `LanguageError` with every problem of every file, and `BadDefinition`; then nothing is registered.

        >>> app = App()
        >>> [machine.name for machine in app.load("examples/payment.machine")]  # doctest: +SKIP
        ['payment_workflow']
        """
        made: list[Definition] = list(load(place, self.surroundings))
        for definition in made:
            self.add(definition)
        return made

    def action(self, name: str) -> Callable[[W], W]:
        """Register a function that machine files can call under any name; its parameters are the entries of the step.

        >>> app = App()
        >>> @app.action("@shop/mail/send")
        ... async def send(message: str) -> dict: ...
        """

        def register(fn: W) -> W:
            if not callable(fn):
                raise BadDefinition(f"@app.action({name!r}) decorates a function, not {fn!r}")
            if name in self.surroundings.actions:
                raise BadDefinition(f"there is an action {name!r} already")
            self.add(runner(name, fn))
            self.surroundings.actions[name] = fn
            return fn

        return register

    def provider(self, name: str, provider: Provider) -> None:
        """Register whom `ask … using "name:model"` speaks to, in place of what the environment has a key for.

        >>> class Parrot:
        ...     async def ask(self, model, task, schema):
        ...         return {"said": task}
        >>> App().provider("parrot", Parrot())
        """
        self.surroundings.providers[check_text(name, "the name of a provider")] = provider

    def load_pipeline(self, path: str | Path) -> Pipeline:
        """Register a pipeline that is written as YAML (U11). Raises `BadDefinition`; then nothing is registered.

        >>> app = App()
        >>> app.load_pipeline("payments.yaml")  # doctest: +SKIP
        """
        return pipeline_files.build(pipeline_files.read(path), self.pipeline)

    def transport(self, transport: T) -> T:
        """Make a transport known under its name, so that requests of any definition can go over it.

        >>> import bide
        >>> app = App()
        >>> kafka = app.transport(bide.Kafka(requests="payments", replies="payments.done", servers="localhost:9092"))
        """
        if not isinstance(transport, Transport):
            raise BadDefinition(f"{transport!r} is no transport: it needs a name and dispatch()")
        self.registry.add_transport(transport)
        return transport

    def add(self, definition: Definition) -> None:
        try:
            check_text(definition.name, "the name")
            check_text(definition.version, "version")
            check_text(definition.queue, "queue")
            check_priority(definition.priority)
        except BadInput as error:
            raise BadDefinition(f"definition {definition.name!r} cannot be registered: {error}") from error
        self.registry.add(definition)

    # ------------------------------------------------------------ people

    @overload
    def notifier(self, fn: N, /, *, name: str | None = None) -> N: ...
    @overload
    def notifier(self, fn: None = None, /, *, name: str | None = None) -> Callable[[N], N]: ...
    def notifier(self, fn: Any = None, /, *, name: str | None = None) -> Any:
        """Register a function, sync or async, that tells people of tasks: it gets a `bide.Task`.

        A wait names it with `notify=`. It is called after the commit that gave rise to it, at least once, and again
        with growing pauses while it raises; after that there is a dead letter.

        >>> app = App()
        >>> @app.notifier
        ... def mail(task): ...
        """
        if fn is None:
            return lambda fn: self.notifier(fn, name=name)
        called = name if name is not None else getattr(fn, "__name__", "")
        if not callable(fn):
            raise BadDefinition(f"@app.notifier decorates a function, not {fn!r}")
        try:
            check_text(called, "the notifier's name")
        except BadInput as error:
            raise BadDefinition(str(error)) from error
        if called in self.registry.notifiers:
            raise BadDefinition(f"a notifier {called!r} is registered already; give one of them another name=")
        self.registry.notifiers[called] = fn
        fn.__bide_notifier__ = called
        return fn

    def signature(self, name: str, signature: MessageSignature) -> None:
        """Name what a provider signs its webhooks with; a callback asks for it with `signed=`.

        >>> import bide
        >>> app = App()
        >>> app.signature("pay", bide.WebhookSignature("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"))
        """
        try:
            check_text(name, "the signature's name")
        except BadInput as error:
            raise BadDefinition(str(error)) from error
        if not callable(getattr(signature, "check", None)):
            raise BadDefinition(f"app.signature takes a bide.WebhookSignature, not {type(signature).__name__}")
        if name in self.registry.signatures:
            raise BadDefinition(f"a signature {name!r} is registered already; give one of them another name")
        self.registry.signatures[name] = signature

    def groups(self, fn: G) -> G:
        """Register the function, sync or async, that says which groups a principal is in.

        It is asked before an answer or a claim is decided, outside of any transaction.

        >>> app = App()
        >>> @app.groups
        ... def groups_of(principal: str) -> list[str]:
        ...     return ["leads"] if principal == "ann" else []
        """
        if not callable(fn):
            raise BadDefinition(f"@app.groups decorates a function, not {fn!r}")
        if self.registry.groups is not None:
            raise BadDefinition("@app.groups is given already; one function knows the groups of everybody")
        self.registry.groups = fn
        return fn

    # ------------------------------------------------------------ running

    def configure(self, **settings: Any) -> None:
        """Set what wins over environment and file, as options of the command line do; before the store is opened."""
        self._arguments.update(settings)

    def settings(self) -> Settings:
        """The settings as they hold now: `BIDE_STORE` wins over the store given in code."""
        arguments = dict(self._arguments)
        settings = load_settings(arguments)
        if "store" not in settings.sources and self._store_argument is not None:
            settings = load_settings({**arguments, "store": self._store_argument})
        return settings

    async def runtime(self) -> Runtime:
        """The open store of this process, opened at first use."""
        loop = asyncio.get_running_loop()
        if self._runtime is not None and self._runtime_loop is loop:
            return self._runtime
        if self._opening is None or self._runtime_loop is not loop:
            self._opening, self._runtime_loop, self._runtime = asyncio.Lock(), loop, None
        async with self._opening:
            if self._runtime is None:
                self._runtime = await self.open_runtime()
            return self._runtime

    async def open_runtime(self) -> Runtime:
        """One more open store beside that of `runtime`, for whoever has an event loop of their own; they close it."""
        settings, ports = self.settings(), Ports()
        runtime = Runtime(open_store(settings.store, settings, codec=self.codec), self.registry, settings, ports)
        await runtime.open()
        return runtime

    async def close(self) -> None:
        """Close the store; the next use opens it again."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    @asynccontextmanager
    async def engine(self, *, queues: frozenset[str] = frozenset({"default"})) -> AsyncIterator[Engine]:
        """Run workers, timers and dispatch in this process."""
        async with self.opened(), Engine(await self.runtime(), queues=queues, probe=probe_from(os.environ)) as engine:
            yield engine

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Engine and clients from start to stop, for the application that `asgi()` is mounted in (H4).

        >>> async def main(app: App) -> None:
        ...     async with app.lifespan():
        ...         await app.client().start("hello")
        """
        queues = frozenset({"default"} | {definition.queue for definition in self.registry})
        async with self.engine(queues=queues):
            yield

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The store and what the app's own lifespan provides, without an engine."""
        await self.runtime()
        try:
            async with self.provided():
                yield
        finally:
            await self.close()

    @asynccontextmanager
    async def provided(self) -> AsyncIterator[None]:
        """What the app's own lifespan puts into `app.state`."""
        if self._lifespan is None:
            yield
            return
        async with self._lifespan(self):
            yield

    def asgi(self, *, engine: bool = True) -> Any:
        """The HTTP API as an ASGI application, to serve or to mount (needs `bide[server]`).

        Served by itself it brings up the engine too, unless *engine* is False; mounted, the outer application does
        that with `lifespan`.

        >>> app = App("shop", store="memory://")
        >>> api = app.asgi()
        """
        try:
            server = importlib.import_module("bide.server")  # by name: an app without HTTP needs none of its packages
        except ModuleNotFoundError as error:
            raise BadConfiguration(
                f"the HTTP API needs a package that is not installed ({error.name}); "
                "install it with: pip install 'bide[server]'"
            ) from error
        return server.Server(self.runtime, self.lifespan if engine else self.opened)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A transaction on the database that bide itself uses, to write your rows and start or signal runs in one.

        Committed at the end of the block, rolled back by an exception. Give it as `connection=` to `start` and
        `signal`. The same task must not write through a client otherwise while it is open (`TransactionOpen`).
        """
        runtime = await self.runtime()
        async with runtime.connection() as connection:
            yield connection

    def client(self, workspace: str = "default", *, actor: str = "client") -> Client:
        """A client of one workspace. *actor* is who acts, as ledgers and policies see it."""
        return Client(self.runtime, workspace, check_text(actor, "actor"))


def _check_name(name: object, decorator: str) -> None:
    """`@app.workflow` without its name would be called with the function, and register nothing."""
    if callable(name):
        raise BadDefinition(
            f'{shown(name)} is no name of a {decorator}: write @app.{decorator}("name"), with the name in parentheses'
        )
