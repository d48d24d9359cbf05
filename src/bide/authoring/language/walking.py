"""Running a machine: the body of a workflow that walks the tree, each step a durable one, each wait a durable wait."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bide.authoring.language.doing import Doing
from bide.authoring.language.evaluating import Values, said
from bide.authoring.language.fields import misfits, with_defaults
from bide.authoring.language.sending import HttpTimedOut
from bide.authoring.language.tree import (
    AskModel,
    Call,
    Compute,
    Decide,
    Emit,
    Expression,
    ForEach,
    Http,
    RunFlow,
    Sequence,
    Step,
    WaitFor,
)
from bide.core.records import RunError
from bide.errors import (
    BadExpression,
    BadInput,
    BideError,
    PolicyDenied,
    RunEnded,
    StepFailedError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bide.authoring.language.definition import MachineFile
    from bide.authoring.workflow import Step as Steps

DEEPEST: Final = 100  # flows that run flows
MOST_ITEMS: Final = 10_000
ANSWER: Final = "result"  # the step whose last value is the machine's answer (L4)


class Elsewhere(Exception):
    """A wait is over without an answer: its flow runs in place of the rest (L4)."""

    def __init__(self, flow: str) -> None:
        super().__init__(flow)
        self.flow = flow


@dataclass
class Answer:
    """What a flow comes to: the last `compute result`, else its last `compute` or `wait for`, else null (L4)."""

    result: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()

    def note(self, name: str, value: Any) -> None:
        self.last = (value,)
        if name == ANSWER:
            self.result = (value,)

    def take(self, inner: Answer) -> None:
        self.result, self.last = inner.result or self.result, inner.last or self.last

    @property
    def value(self) -> Any:
        return next(iter(self.result or self.last), None)


class Walk:
    """One pass of a machine over its tree; every turn makes a new one, and finished steps give what they gave."""

    def __init__(self, definition: MachineFile, step: Steps, input: Any) -> None:
        self._definition = definition
        self._machine = definition.machine
        self._values = Values(input=input)
        self._doing = Doing(definition, step, self._values)
        self._depth = 0
        self._failed: tuple[BideError, str] | None = None  # the newest error, and the step that it came up at

    async def run(self) -> Any:
        sequence = self._machine.main
        while True:
            answer = Answer()
            try:
                await self._sequence(sequence, answer)
                return self._checked(answer.value)
            except Elsewhere as instead:
                sequence = self._machine.flows[instead.flow].body
                self._values.variables, self._values.error, self._depth = {}, None, 0

    def _checked(self, value: Any) -> Any:
        responds = self._machine.responds
        if responds is None or (value is None and not any(field.is_required for field in responds)):
            return value
        wrong = misfits(responds, value)
        if wrong:
            raise BadInput(f"the result of {self._machine.name!r} is not what it responds with: {'; '.join(wrong)}")
        return with_defaults(responds, value, self._machine.source)

    def _evaluate(self, expression: Expression) -> Any:
        return self._definition.value_of(expression, self._values)

    # ------------------------------------------------------------ sequences

    async def _sequence(self, sequence: Sequence, answer: Answer) -> None:
        try:
            for step in sequence.steps:
                await self._do(step, answer)
        except BideError as error:
            self._note(error, step)
            if sequence.on_failure is None:
                raise
            await self._handle(error, sequence.on_failure, answer)

    async def _handle(self, error: BideError, handler: Sequence, answer: Answer) -> None:
        with self._having(error=failure_of(error, self._failed_step(error))):
            await self._sequence(handler, answer)

    def _failed_step(self, error: BideError) -> str | None:
        return self._failed[1] if self._failed is not None and self._failed[0] is error else None

    @contextmanager
    def _having(self, *, error: Any = None, variables: Mapping[str, Any] | None = None) -> Iterator[None]:
        before = self._values.error, self._values.variables
        if error is not None:
            self._values.error = error
        if variables is not None:
            self._values.variables = {**self._values.variables, **variables}
        try:
            yield
        finally:
            self._values.error, self._values.variables = before

    def _note(self, error: BideError, step: Step) -> None:
        """Keep in mind at which step an error came up: it passes the innermost first."""
        if self._failed_step(error) is None and not isinstance(step, (RunFlow, ForEach)):
            self._failed = error, step.name

    async def _do(self, step: Step, answer: Answer) -> None:
        links = self._definition.links.get(id(step))
        if links is not None:
            await self._doing.mint(step, links)
        match step:
            case Compute():
                self._keep(step.name, await self._doing.compute(step), answer)
            case WaitFor():
                self._keep(step.name, await self._wait(step), answer)
            case Http() | Call() | AskModel():
                await self._act(step, answer)
            case Decide():
                await self._decide(step, answer)
            case Emit():
                self._values.steps[step.name] = await self._doing.emit(step)
            case RunFlow():
                await self._run_flow(step, answer)
            case ForEach():
                await self._for_each(step, answer)

    def _keep(self, name: str, value: Any, answer: Answer) -> None:
        self._values.steps[name] = value
        answer.note(name, value)

    # ------------------------------------------------------------ steps

    async def _act(self, step: Http | Call | AskModel, answer: Answer) -> None:
        try:
            self._values.steps[step.name] = await self._doing.act(step)
        except BideError as error:
            if step.on_failure is None:
                raise
            self._values.steps[step.name] = None
            self._note(error, step)
            await self._handle(error, step.on_failure, answer)

    async def _wait(self, step: WaitFor) -> Any:
        try:
            return await self._doing.wait(step)
        except WaitTimeoutError:
            if step.on_timeout is None:
                raise
            raise Elsewhere(step.on_timeout.name) from None

    async def _decide(self, step: Decide, answer: Answer) -> None:
        inner = Answer()
        for branch in step.branches:
            if branch.condition is None or self._is_true(branch.condition):
                await self._sequence(branch.body, inner)
                break
        self._values.steps[step.name] = inner.value
        answer.take(inner)

    def _is_true(self, condition: Expression) -> bool:
        value = self._evaluate(condition)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._wrong(condition, f"a condition is true or false, but this is {said(value)}")

    def _wrong(self, expression: Expression, message: str) -> BadExpression:
        line, column = self._machine.source.place(expression.span.start)
        return BadExpression(f"{self._machine.source.name}:{line}:{column}: {message}")

    async def _run_flow(self, step: RunFlow, answer: Answer) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise BadInput(f"flows of {self._machine.name!r} run each other more than {DEEPEST} deep")
        await self._sequence(self._machine.flows[step.flow.name].body, answer)
        self._depth -= 1

    async def _for_each(self, step: ForEach, answer: Answer) -> None:
        items = self._evaluate(step.items)
        if not isinstance(items, list):
            raise self._wrong(step.items, f"items come from a list, but this is {said(items)}")
        if len(items) > MOST_ITEMS:
            raise self._wrong(step.items, f"the list has {len(items)} items; at most {MOST_ITEMS} can be gone through")
        results = []
        for item in items:
            inner = Answer()
            with self._having(variables={step.name: item}):
                await self._sequence(step.body, inner)
            results.append(inner.value)
            answer.take(inner)
        if step.collect is not None:
            self._values.steps[step.collect] = results


_TIMEOUTS: Final = frozenset({TimeoutError.__name__, HttpTimedOut.__name__, "AWAIT_TIMEOUT"})
_DENIALS: Final = frozenset({PolicyDenied.__name__, PermissionError.__name__})


def failure_of(error: BideError, step: str | None) -> dict[str, Any]:
    """What `error` is under `on failure`; *step* is the one that it came up at."""
    match error:
        case StepFailedError():
            message, step, cause = error.message, error.step, error.error_type
            code = cause
        case RunEnded(error=RunError() as inner):
            message, cause, code = inner.message, inner.code, type(error).__name__
        case _:
            message, cause = str(error), TimeoutError.__name__ if isinstance(error, WaitTimeoutError) else ""
            code = type(error).__name__
    kind = "timeout" if cause in _TIMEOUTS else "permission_denied" if cause in _DENIALS else "runtime"
    return {"message": message, "step": step, "type": kind, "code": code}
