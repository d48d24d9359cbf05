"""Machines: a class whose methods are steps (contract §4)."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from bide.authoring.checks import check_key, check_readable, check_tags, shown
from bide.authoring.context import Context, awaited_rows, child_result, received
from bide.authoring.outcomes import FAIL, UNSET, Await, Child, Done, Next, Outcome, Retry, Spawn, StepRef, Stop
from bide.authoring.signals import Signal, declared, signal_name
from bide.authoring.telling import tell_move
from bide.authoring.terms import agenda_of, terms_of
from bide.core.commands import Consumed, Continue, End, Move, NewChild, Park, TryAgain
from bide.core.durations import BadDuration, parse_duration, parse_timeout
from bide.core.payloads import BadPayload, decode_as, encode_payload
from bide.core.records import RunError, Style, Turn, Wait, failures_of
from bide.core.retrying import RetryPolicy
from bide.core.schema import schema_or_none
from bide.engine import tracing
from bide.engine.definitions import Session
from bide.errors import (
    BadDefinition,
    BadInput,
    BideError,
    Invalid,
    PayloadTooLarge,
    WaitCancelledError,
    WaitFailedError,
)

F = TypeVar("F", bound=Callable[..., Any])

HOOKS = ("on_error", "on_cancel")

# What a wait carries for people and for the time until it ends: most waits of machines have nothing of it.
_EXTRAS = [name for name, field in Await.__dataclass_fields__.items() if field.kw_only]
_extras = attrgetter(*_EXTRAS)
_NO_EXTRAS = _extras(Await((), ""))


def start(method: F) -> F:
    """Mark the step that a machine begins with.

    >>> class Hello:
    ...     @start
    ...     async def greet(self, ctx): ...
    """
    method.__bide_start__ = True  # type: ignore[attr-defined]  # a mark on the function itself
    return method


def helper(method: F) -> F:
    """Mark a method that takes `ctx` and is not a step.

    >>> class Order:
    ...     @helper
    ...     def total(self, ctx):
    ...         return sum(ctx.state["prices"])
    """
    method.__bide_helper__ = True  # type: ignore[attr-defined]  # a mark on the function itself
    return method


class BadOutcome(Exception):
    """A step returned what is no outcome, or an outcome that cannot be followed. Never retried."""

    code = "BadOutcome"


class Machine:
    """The definition that a decorated class becomes."""

    style: Style = "machine"

    def __init__(
        self,
        cls: type,
        name: str,
        *,
        version: str,
        retry: RetryPolicy,
        queue: str,
        priority: int,
        cancel_grace: timedelta,
        signals: Iterable[Signal[Any]] = (),
        triggers: tuple[str, ...] = (),
        redact: str | None = None,
    ) -> None:
        self.cls = cls
        self.name = name
        self.version = version
        self.retry = retry
        self.retries = retry.attempts - 1
        self.queue = queue
        self.priority = priority
        self.signals: Mapping[str, Any] = declared(signals, f"machine {name!r}")
        self.triggers = triggers
        self.redact = redact
        self.steps = _steps(cls)
        self.cleanup = cancel_grace if hasattr(cls, "on_cancel") else None
        self._async = {method for method in _methods(cls).values() if inspect.iscoroutinefunction(method)}
        self._first = _first_step(cls, self.steps)
        self._state_type = _state_type(cls)
        check_readable(self._state_type, f"machine {name!r}", "state")

    @property
    def first_step(self) -> str:
        return self._first

    def input_schema(self) -> dict[str, Any] | None:
        return schema_or_none(self._state_type)

    def encode_input(self, value: object, max_bytes: int) -> str:
        """Encode an input, and refuse one that could not be the first state (M3)."""
        return encode_as(value, self._state_type, max_bytes, f"the input of {self.name!r}")

    async def take_turn(self, turn: Turn, session: Session) -> None:
        current: Turn | None = turn
        while current is not None:
            current = await self._step(current, session)

    async def _step(self, turn: Turn, session: Session) -> Turn | None:
        step = turn.run.step
        session.reached("before", step)
        move, consumed = await self._outcome(turn, session)
        session.reached("after_code", step)
        try:
            return await session.commit(turn, move, consumed)
        except BideError as error:
            if error.status >= 500:
                raise
            # What bide itself refuses (a taken correlation key) would be refused again: never retried.
            return await session.commit(turn, failure(type(error).__name__, error, step))

    async def _outcome(self, turn: Turn, session: Session) -> tuple[Move, tuple[Consumed, ...]]:
        """Run the step and turn what it did into a move. Whatever user code does, a move comes out."""
        handed = awaited_rows(turn)
        consumed = tuple(Consumed(row.seq, row.id) for row in handed)
        seen = tuple(row.seq for row in handed)
        ctx: Context[Any] | None = None
        try:
            method = self._method(turn.run.step)
            ctx = self._context(turn, handed)
            if self._state_type is not Any:
                ctx.state = decode_as(turn.run.state, self._state_type)  # a misfit is an error of this step (M7)
            _raise_if_failed(turn.woken_by)
            outcome = await self._call(session, turn.run.step, method, ctx)
            return self._move(outcome, ctx, seen, session), consumed
        except BadOutcome as error:
            move = failure(error.code, error, turn.run.step)
            tell_move(turn.run, turn.run.step, error, move)
            return move, ()
        except Exception as error:
            return await self._after_error(turn, session, ctx, error, seen, consumed)

    async def _after_error(
        self,
        turn: Turn,
        session: Session,
        ctx: Context[Any] | None,
        error: Exception,
        seen: tuple[int, ...],
        consumed: tuple[Consumed, ...],
    ) -> tuple[Move, tuple[Consumed, ...]]:
        """An error goes to `on_error` if there is one, else the policy says whether to try again (M5)."""
        tracing.broke(error)
        on_error = getattr(self.cls, "on_error", None)
        if on_error is not None and ctx is not None:
            try:
                outcome = await self._call(session, "on_error", on_error, error, ctx)
                return self._move(outcome, ctx, seen, session), consumed
            except Exception as second:
                second.__context__ = error
                error = second
        move = self._after_failure(turn, session, error)
        tell_move(turn.run, turn.run.step, error, move)
        return move, ()

    def _after_failure(self, turn: Turn, session: Session, error: Exception) -> Move:
        if isinstance(error, BadOutcome):  # of `on_error`
            return failure(error.code, error, turn.run.step)
        if isinstance(error, WaitFailedError):  # the wait has failed for good: the same again next time
            return failure(type(error).__name__, error, turn.run.step)
        if isinstance(error, Invalid):  # a limit, or what cannot be stored: the same again next time (F16)
            return failure(type(error).__name__, error, turn.run.step)
        failures = failures_of(turn) + 1  # not `attempt`, which counts what the step itself asked for too
        if self.retry.gives_up(failures, error):
            return failure("StepFailed", error, turn.run.step)
        delay = self.retry.pause(failures, session.ports.random())
        said = f"{type(error).__name__}: {message_of(error)}"
        return TryAgain(state=turn.run.state, delay=delay, error=said, failures=failures)

    def _method(self, step: str) -> Callable[..., Any]:
        if step == "on_cancel" and self.cleanup is not None:
            return typing.cast("Callable[..., Any]", self.cls.on_cancel)  # type: ignore[attr-defined]  # checked above
        if step not in self.steps:
            raise BadOutcome(f"machine {self.name!r} has no step {step!r}; it has: {', '.join(self.steps)}")
        return self.steps[step]

    async def _call(self, session: Session, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        stand_in = session.ports.stand_in(name, method)
        if stand_in is not method:
            return await stand_in(*arguments)
        machine = self.cls()
        try:
            if method in self._async:
                return await method(machine, *arguments)
            outcome = await session.in_thread(method, machine, *arguments)
            return await outcome if inspect.isawaitable(outcome) else outcome  # a coroutine behind a plain decorator
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the engine stops this turn
            raise RuntimeError("the step let an asyncio.CancelledError escape") from error

    def _context(self, turn: Turn, handed: Iterable[Any]) -> Context[Any]:
        run, wait = turn.run, turn.woken_by
        inbox = {row.seq: received(row, self.signals) for row in turn.inbox}
        return Context(
            run_id=run.id,
            definition=run.definition,
            version=run.version,
            step=run.step,
            attempt=run.attempt,
            state=msgspec.json.decode(run.state),
            input=msgspec.json.decode(run.input),
            awaited=[inbox[row.seq] for row in handed],
            all=list(inbox.values()),
            timed_out=wait is not None and wait.status == "timed_out",
            deadline=wait.deadline if wait is not None else None,
            children=[child_result(child) for child in turn.children],
            workspace=run.workspace,
            correlation_key=run.correlation_key,
        )

    # ------------------------------------------------------------ outcomes to moves

    def _move(self, outcome: Outcome | None, ctx: Context[Any], seen: tuple[int, ...], session: Session) -> Move:
        limit = session.settings.max_payload_bytes
        if outcome is None and ctx.step == "on_cancel":
            return End(status="stopped")
        match outcome:
            case Next():
                return Continue(step=self._step_name(outcome.step), state=self._state(outcome.state, ctx, limit))
            case Await():
                return self._await(outcome, ctx, seen, session)
            case Spawn():
                return self._spawn(outcome, ctx, session)
            case Retry():
                return TryAgain(state=self._state(outcome.state, ctx, limit), delay=_delay(outcome.delay))
            case Done():
                return End(status="completed", result=encode(outcome.result, limit, "the result"))
            case Stop():
                said = str(outcome.reason)
                encode(said, limit, "the reason")
                reason = RunError(code="Stopped", message=said, step=ctx.step)
                return End(status="stopped", error=_encode_error(reason))
            case _:
                raise BadOutcome(
                    f"step {ctx.step!r} of {self.name!r} returned {shown(outcome)}, which is no outcome; "
                    "return Next, Await, Retry, Spawn, Done or Stop"
                )

    def _await(self, outcome: Await, ctx: Context[Any], seen: tuple[int, ...], session: Session) -> Park:
        limit = session.settings.max_payload_bytes
        names = outcome.names
        several = names if isinstance(names, (list, tuple, set, frozenset)) else [names]
        wanted = tuple(sorted({signal_name(name) for name in several}))
        if not wanted:
            raise BadOutcome(f"step {ctx.step!r} of {self.name!r} awaits no signal; name at least one")
        given = vars(outcome) if _extras(outcome) != _NO_EXTRAS else {}
        details = terms_of(given, session.registry.notifiers)
        timeout = _timeout(outcome.timeout)
        return Park(
            step=self._step_name(outcome.then),
            state=self._state(outcome.state, ctx, limit),
            names=wanted,
            timeout=timeout,
            agenda=agenda_of(given, timeout),
            on_timeout=self._timeout_step(outcome.on_timeout),
            seen=seen,
            details=encode(details, limit, "the wait's description") if details else "{}",
        )

    def _spawn(self, outcome: Spawn, ctx: Context[Any], session: Session) -> Park:
        limit = session.settings.max_payload_bytes
        if isinstance(outcome.children, (Child, str, Mapping)) or not isinstance(outcome.children, Iterable):
            raise BadOutcome(f"children={shown(outcome.children)}: give a list of bide.Child or (definition, input)")
        return Park(
            step=self._step_name(outcome.then),
            state=self._state(outcome.state, ctx, limit),
            joins=True,
            children=tuple(self._child(child, session, limit) for child in outcome.children),
            timeout=_timeout(outcome.timeout),
            on_timeout=self._timeout_step(outcome.on_timeout),
            cancel_children=outcome.cancel_children,
        )

    def _child(self, child: Any, session: Session, limit: int) -> NewChild:
        if isinstance(child, tuple) and len(child) == 2:
            child = Child(*child)
        if not isinstance(child, Child):
            raise BadOutcome(f"{shown(child)} is no child; give bide.Child(definition, input) or a pair of them")
        try:
            definition = session.registry.get(definition_name(child.definition))
        except BideError as error:
            raise BadOutcome(str(error)) from error
        return NewChild(
            run_id=session.ports.run_id(),
            definition=definition.name,
            version=definition.version,
            style=definition.style,
            step=definition.first_step,
            input=definition.encode_input(child.input, limit),
            queue=definition.queue,
            priority=definition.priority,
            correlation_key=(
                check_key(child.correlation_key, "correlation key") if child.correlation_key is not None else None
            ),
            cleanup_seconds=definition.cleanup.total_seconds() if definition.cleanup is not None else None,
            tags=encode(check_tags(child.tags), limit, "the tags"),
            redact=definition.redact,
        )

    def _state(self, state: Any, ctx: Context[Any], limit: int) -> str:
        text = encode(ctx.state if state is UNSET else state, limit, f"the state after step {ctx.step!r}")
        if self._state_type is not Any:
            decode_as(text, self._state_type)  # a state that does not fit its type is this step's error (M7)
        return text

    def _step_name(self, step: StepRef) -> str:
        name = step if isinstance(step, str) else getattr(step, "__name__", str(step))
        if name not in self.steps:
            raise BadOutcome(f"machine {self.name!r} has no step {name!r}; it has: {', '.join(self.steps)}")
        return name

    def _timeout_step(self, step: StepRef | None) -> str | None:
        return step if step is None or step == FAIL else self._step_name(step)


def definition_name(definition: Any) -> str:
    """The name that a definition is registered under, from the name itself or the decorated class or function."""
    if isinstance(definition, str):
        return definition
    found = getattr(definition, "__bide_definition__", None)
    if found is None:
        what = "what @app.machine or @app.workflow made of it"
        raise BadInput(f"{shown(definition)} is no definition; give its name, or {what}")
    return str(found.name)


def encode(value: object, limit: int, what: str) -> str:
    """Encode for storage, naming what could not be stored."""
    try:
        return encode_payload(value, max_bytes=limit)
    except BadPayload as error:
        kind = PayloadTooLarge if error.problem == "too_large" else BadInput
        raise kind(f"{what} cannot be stored: {error}") from error


def encode_as(value: object, type_: Any, limit: int, what: str) -> str:
    """The same, for what will be read as a type: one that it does not fit is refused (F16)."""
    text = encode(value, limit, what)
    if type_ is Any:
        return text
    try:
        decode_as(text, type_)
    except BadPayload as error:
        raise BadInput(f"{what} does not fit its type: {error}") from error
    return text


def _steps(cls: type) -> dict[str, Callable[..., Any]]:
    steps: dict[str, Callable[..., Any]] = {}
    for name, method in _methods(cls).items():
        if name.startswith("_") or name in HOOKS or hasattr(method, "__bide_helper__"):
            continue
        if "ctx" in inspect.signature(method).parameters:
            steps[name] = method
    return steps


def _methods(cls: type) -> Mapping[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__mro__):
        found.update((name, method) for name, method in vars(base).items() if inspect.isfunction(method))
    return found


def _first_step(cls: type, steps: Mapping[str, Callable[..., Any]]) -> str:
    marked = [name for name, method in steps.items() if hasattr(method, "__bide_start__")]
    if not steps:
        raise BadDefinition(f"machine class {cls.__name__} has no step: write methods that take ctx")
    if len(marked) == 1:
        return marked[0]
    if not marked and len(steps) == 1:
        return next(iter(steps))
    said = f"marks {', '.join(marked)}" if marked else "marks none of its steps"
    raise BadDefinition(f"machine class {cls.__name__} {said}; mark exactly one step with @bide.start")


def _state_type(cls: type) -> Any:
    """The type that the class declares as `state: …`; `Any` where it declares none."""
    for base in cls.__mro__:
        declared = vars(base).get("__annotations__", {}).get("state")
        if declared is None:
            continue
        alone = type("State", (), {"__annotations__": {"state": declared}, "__module__": base.__module__})
        try:
            return typing.get_type_hints(alone)["state"]
        except NameError as error:
            raise BadDefinition(
                f"machine class {cls.__name__} declares state: {declared}, which is not known there ({error}); "
                "define the type at the top level of the module"
            ) from error
    return Any


def _raise_if_failed(wait: Wait | None) -> None:
    """A wait that the outside failed or cancelled is an error of the step that follows (W10, W13)."""
    if wait is None or wait.status not in ("failed", "cancelled"):
        return
    how, _, reason = (wait.cause or "").partition(": ")
    error = WaitCancelledError if wait.status == "cancelled" else WaitFailedError
    raise error(wait.key, reason or how)


def _delay(delay: Any) -> timedelta:
    try:
        return parse_duration(delay)
    except BadDuration as error:
        raise BadOutcome(f"delay={delay!r}: {error}") from error


def _timeout(timeout: Any) -> Any:
    try:
        return parse_timeout(timeout)
    except BadDuration as error:
        raise BadOutcome(f"timeout={timeout!r}: {error}") from error


def failure(code: str, error: BaseException, step: str) -> End:
    said = RunError(code=code, message=message_of(error), type=type(error).__name__, step=step)
    return End(status="failed", error=_encode_error(said))


def message_of(error: BaseException) -> str:
    """The error's own words, made storable: user code can raise anything."""
    try:
        text = str(error)
    except Exception:
        text = "(the error cannot be printed)"
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:4000]


def _encode_error(error: RunError) -> str:
    return msgspec.json.encode(error).decode()
