"""The definition that a decorated function becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, NoReturn, Protocol, TypeVar, get_origin, overload

from bide.authoring.checks import check_readable
from bide.authoring.machine import encode_as
from bide.authoring.signals import Signal, declared
from bide.authoring.workflow.annotations import annotation_of
from bide.authoring.workflow.restarting import without_restart
from bide.authoring.workflow.step import Step
from bide.authoring.workflow.turn import WorkflowTurn
from bide.core.records import Style, Turn
from bide.core.retrying import RetryPolicy
from bide.core.schema import schema_or_none
from bide.engine.definitions import Session
from bide.errors import BadDefinition

In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
NO_STEPS = frozenset({bool, int, float, str, bytes, list, tuple, set, dict})  # what an input may be


class Workflow(Generic[In_contra, Out_co]):
    """What `@app.workflow` makes of a function: its definition, with the types of its input and its result.

    Give it to `client.start` and `step.invoke`. Called inside of another workflow's body it is the function itself.

    >>> from bide import App, Run, Step
    >>> app = App("shop")
    >>> @app.workflow("greet")
    ... async def greet(step: Step, name: str) -> str:
    ...     return await step.run("shout", str.upper, name)
    >>> greet
    <Workflow greet version 1>
    >>> async def begin(client) -> Run[str]:
    ...     return await client.start(greet, "ann")
    """

    style: Style = "workflow"
    is_straight = False  # whether its body is bide's own, and does one thing after the other

    def __init__(
        self,
        fn: Callable[..., Coroutine[Any, Any, Out_co]],
        name: str,
        *,
        version: str,
        retry: RetryPolicy,
        step_retry: RetryPolicy,
        queue: str,
        priority: int,
        cleanup: timedelta | None = None,
        signals: Iterable[Signal[Any]] = (),
        triggers: tuple[str, ...] = (),
        redact: str | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise BadDefinition(f"workflow {name!r} is a plain function; write `async def` so that it can wait")
        parameters = list(inspect.signature(fn).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise BadDefinition(f"workflow {name!r} takes {len(parameters)} parameters; write (step) or (step, input)")
        first = annotation_of(fn, parameters[0].name)
        if (get_origin(first) or first) in NO_STEPS:
            raise BadDefinition(
                f"workflow {name!r} takes the step first, and its {parameters[0].name!r} is no step; "
                "write (step: bide.Step) or (step: bide.Step, input)"
            )
        self.fn = fn
        self.name = name
        self.version = version
        self.retry = retry
        self.retries = retry.attempts - 1
        self.step_retry = step_retry
        self.queue = queue
        self.priority = priority
        self.cleanup = cleanup
        self.signals: Mapping[str, Any] = declared(signals, f"workflow {name!r}")
        self.triggers = triggers
        self.redact = redact
        self._takes_input = len(parameters) == 2
        self._input_type = annotation_of(fn, parameters[1].name) if self._takes_input else Any
        self.returns = _result_type(fn)
        for type_, what in ((self._input_type, "input"), (self.returns, "result")):
            check_readable(type_, f"workflow {name!r}", what)
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        self.__wrapped__ = fn

    def __call__(self, step: Step, *input: In_contra) -> Coroutine[Any, Any, Out_co]:
        return self.fn(step, *input)

    def __repr__(self) -> str:
        return f"<Workflow {self.name} version {self.version}>"

    @property
    def __bide_definition__(self) -> Workflow[In_contra, Out_co]:
        return self

    @property
    def first_step(self) -> str:
        return "body"

    def input_schema(self) -> dict[str, Any] | None:
        return schema_or_none(self._input_type)

    def encode_input(self, value: object, max_bytes: int) -> str:
        """Encode an input, and refuse one that the function could not be called with."""
        return encode_as(value, self._input_type, max_bytes, f"the input of {self.name!r}")

    async def call(self, turn: WorkflowTurn, step: Step) -> Any:
        if self._takes_input:
            return await self.fn(step, turn.input_as(self._input_type))
        return await self.fn(step)

    async def take_turn(self, turn: Turn, session: Session) -> None:
        current: Turn | None = turn
        while current is not None:
            current = await WorkflowTurn(self, current, session).take()


class Registers(Protocol):
    """What `app.workflow(…)` gives: it takes the function, and keeps its types."""

    @overload
    def __call__(self, fn: Callable[[Step], Coroutine[Any, Any, Out]], /) -> Workflow[None, Out]: ...
    @overload
    def __call__(self, fn: Callable[[Step, In], Coroutine[Any, Any, Out]], /) -> Workflow[In, Out]: ...


def _result_type(fn: Callable[..., Any]) -> Any:
    type_ = annotation_of(fn, "return")
    return Any if type_ in (NoReturn, object) else without_restart(type_)
