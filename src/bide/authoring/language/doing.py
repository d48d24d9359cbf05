"""What steps do: each as one durable step or wait of the kernel. Secrets are read inside of the step, never stored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bide.authoring.language import waiting
from bide.authoring.language.actions import calling, runner_name
from bide.authoring.language.evaluating import Values, as_text
from bide.authoring.language.evaluating import said as kind_of
from bide.authoring.language.fields import misfits, schema_of_fields, with_defaults
from bide.authoring.language.secrets import UsedSecrets
from bide.authoring.language.sending import DEFAULT_TIMEOUT, send_out
from bide.authoring.language.tree import AskModel, Call, Compute, Emit, Entry, Expression, Http, Step, WaitFor
from bide.authoring.language.typing import LINKS
from bide.authoring.language.visiting import is_the_same_in_every_run
from bide.authoring.workflow.step import ONCE, StepOptions
from bide.authoring.workflow.tasks import Decision
from bide.core.durations import BadDuration, parse_duration
from bide.core.retrying import NonRetryable, RetryPolicy
from bide.errors import BadExpression, BadInput, StepFailedError

if TYPE_CHECKING:
    from bide.authoring.language.definition import MachineFile
    from bide.authoring.workflow import Step as Steps

UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def _missing() -> None:
    """Stands for an action that nobody registered: then the name is that of a machine."""


class BadAnswer(Exception):
    """What a model gave does not fit; another try may."""


class Doing:
    """The effects of one pass over a machine."""

    def __init__(self, definition: MachineFile, step: Steps, values: Values) -> None:
        self._definition = definition
        self._around = definition.surroundings
        self._source = definition.machine.source
        self._step = step
        self._turn = step._turn
        self._values = values
        self._minted: dict[str, Any] = {}  # callbacks that were minted and not waited for yet
        self._requests: dict[str, int] = {}

    def _evaluate(self, expression: Expression) -> Any:
        return self._definition.value_of(expression, self._values)

    def _told(self, entries: tuple[Entry, ...], values: Values | None = None) -> dict[str, Any]:
        return {entry.name: self._definition.value_of(entry.value, values or self._values) for entry in entries}

    def _with_secrets(self, used: UsedSecrets) -> Values:
        """The values as they are now, with secrets to be read: for what leaves, not for what is stored."""
        return replace(self._values, steps=dict(self._values.steps), secret=used)

    # ------------------------------------------------------------ computing

    def compute(self, step: Compute) -> Awaitable[Any]:
        """Remembered like any step, but committed with what comes next: nothing is lost if it is computed again."""
        call = functools.partial(self._definition.value_of, step.value, self._values)
        return self._lasting(self._turn.code(step.name, "compute", call, returns=Any, retry=ONCE))

    async def _lasting(self, step: Awaitable[Any]) -> Any:
        """An expression that came to nothing would again: the run ends at once (F16)."""
        try:
            return await step
        except StepFailedError as error:
            if error.error_type in (BadExpression.__name__, BadInput.__name__):
                raise BadExpression(error.message) from error
            raise

    # ------------------------------------------------------------ acting

    async def act(self, step: Http | Call | AskModel) -> Any:
        if step.assuming is not None and self._turn.assumes:
            assumed, name = step.assuming, step.name
            return await self._run(step, self._options(step), lambda: self._assumed(step, assumed, name))
        match step:
            case Http():
                return await self._http(step)
            case AskModel():
                options = self._options(step)
                return await self._run(step, options, functools.partial(self._ask, step, options.timeout))
            case Call(kind="launch"):
                return await self._launch(step)
            case Call():
                return await self._call(step)

    async def _run(self, step: Step, options: StepOptions, fn: Callable[[], Any]) -> Any:
        return await self._lasting(options.run(step.name, fn))

    def _assumed(self, step: Http | Call | AskModel, assumed: tuple[Entry, ...], name: str) -> Any:
        given = self._told(assumed)
        fields = None if isinstance(step, Http) else step.returns or None
        if wrong := misfits(fields, given):
            raise BadInput(f"what `{name}` assumes is not what it returns: {'; '.join(wrong)}")
        return with_defaults(fields, given, self._source)

    def _options(self, step: Http | Call | AskModel) -> StepOptions:
        told = self._told(tuple(entry for entry in step.told if entry.name in ("retry", "timeout")))
        return self._step.options(retry=self._policy(told.get("retry")), timeout=self._limit(told.get("timeout")))

    def _policy(self, said: Any) -> RetryPolicy | None:
        try:
            match said:
                case None:
                    return None
                case bool():
                    raise BadInput(f"retry: {said} says no number")
                case int():
                    return RetryPolicy(attempts=said + 1)
                case dict() if isinstance(said.get("attempts", 1), int) and isinstance(
                    said.get("factor", 1), (int, float)
                ):
                    return RetryPolicy(**said)
                case dict():
                    raise BadInput("retry: attempts and factor are numbers")
                case _:
                    raise BadInput(f"retry: {said!r} is neither a number nor an object")
        except (TypeError, ValueError) as error:
            raise BadInput(f"retry: {error}; give attempts, first, factor and most") from error

    def _limit(self, said: Any) -> timedelta | None:
        if said is None or said == "forever":
            return None
        try:
            return parse_duration(said)
        except BadDuration as error:
            raise BadInput(f"timeout: {error}") from error

    async def _http(self, step: Http) -> Any:
        options = self._options(step)
        limit = options.timeout if isinstance(options.timeout, timedelta) else DEFAULT_TIMEOUT
        most, private = self._turn.limit, self._turn.private_hosts
        nth = self._requests.get(step.name, 0) + 1
        self._requests[step.name] = nth  # each turn of a loop is a request of its own, the same in every replay
        key = f"{self._step.run_id}/{step.name}" if nth == 1 else f"{self._step.run_id}/{step.name}#{nth}"

        used = UsedSecrets(self._around.secret)

        async def request() -> Any:
            told = self._told(step.told, self._with_secrets(used))
            method = str(told.get("method", "GET")).upper()
            given = told.get("headers") or {}
            if not isinstance(given, dict):
                raise BadInput(f"headers: give an object with names and values, not {kind_of(given)}")
            headers = {str(name): as_text(value) for name, value in given.items()}
            if method in UNSAFE and "idempotency-key" not in {name.lower() for name in headers}:
                headers["Idempotency-Key"] = key  # the step runs at least once; the other side can tell
            return await send_out(method, as_text(told["url"]), headers, told.get("body"), limit, most, private)

        return await self._run(step, options, used.guarding(request))

    async def _ask(self, step: AskModel, timeout: object) -> Any:
        provider_name, _, model = as_text(self._evaluate(step.using)).partition(":")
        provider = self._around.provider(provider_name, timeout if isinstance(timeout, timedelta) else None)
        if provider is None:
            if step.assuming is not None:
                return self._assumed(step, step.assuming, step.name)
            raise NonRetryable(
                f"no provider {provider_name!r} is configured and `{step.name}` assumes no answer; "
                f"set its key in the environment, or register one with app.provider({provider_name!r}, …)"
            )
        schema = schema_of_fields(step.returns) if step.returns else None
        used = UsedSecrets(self._around.secret)
        with used.guarded():
            task = as_text(self._definition.value_of(step.task, self._with_secrets(used)))
            answer = used.covered(msgspec.to_builtins(await provider.ask(model, task, schema)))
        if step.returns:
            if wrong := misfits(step.returns, answer):
                raise BadAnswer(f"the answer of {provider_name}:{model} does not fit: {'; '.join(wrong)}")
            answer = with_defaults(step.returns, answer, self._source)
        return answer

    # ------------------------------------------------------------ calling

    async def _call(self, step: Call) -> Any:
        name = as_text(self._evaluate(step.machine))
        options = self._options(step)
        known = self._around.actions.get(name)
        action = self._turn.stand_in(step.name, known or _missing)
        if action is _missing:
            answer = await self._step.invoke(step.name, name, self._told(step.arguments), timeout=options.timeout)
        else:
            used = UsedSecrets(self._around.secret)
            call = calling(action, name, lambda: self._told(step.arguments, self._with_secrets(used)), like=known)
            answer = await self._lasting(self._code(step, options, used.guarding(call)))
        if step.returns is not None:
            if wrong := misfits(step.returns, answer):
                raise BadInput(f"{name!r} does not return what `{step.name}` says: {'; '.join(wrong)}")
            answer = with_defaults(step.returns, answer, self._source)
        return answer

    def _code(self, step: Call, options: StepOptions, call: Callable[[], Any]) -> Awaitable[Any]:
        """Code of a step that a stub of the testing kit has stood in for already, knowing its arguments."""
        limit = options.timeout if isinstance(options.timeout, timedelta) else None
        is_async = inspect.iscoroutinefunction(call)
        return self._turn.code(
            step.name, "run", call, returns=Any, retry=options.retry, is_async=is_async, timeout=limit
        )

    async def _launch(self, step: Call) -> Any:
        name = as_text(self._evaluate(step.machine))
        if name in self._around.actions:
            name = runner_name(name)
        return await waiting.launch(self._step, step.name, name, self._told(step.arguments))

    async def emit(self, step: Emit) -> Any:
        """Put an event on the stream of the workspace; gives its data."""
        event = as_text(self._evaluate(step.event))
        data = self._evaluate(step.data) if step.data is not None else {}
        channel = self._evaluate(step.channel) if step.channel is not None else None
        await waiting.emit(self._step, step.name, event, data, channel)
        return data

    # ------------------------------------------------------------ waiting

    async def mint(self, step: Step, names: Iterable[str]) -> None:
        """Make the callbacks whose addresses this step reads, where they are not made yet (L3).

        An address that was used can still be read by steps below its wait; one above it, in a loop, gets a new one.
        """
        for name in names:
            wait = self._definition.callbacks[name]
            is_used = name in self._values.links and name not in self._minted
            if name not in self._values.links or (is_used and step.span.start < wait.span.start):
                await self._callback(wait)

    async def _callback(self, wait: WaitFor) -> Any:
        made = await waiting.callback(self._step, wait.name, self._wait_options(wait))
        self._minted[wait.name] = made
        self._values.links[wait.name] = dict(zip(LINKS, (made.url, made.token), strict=True))
        return made

    def _wait_options(self, wait: WaitFor) -> dict[str, Any]:
        told = self._told(tuple(entry for entry in wait.told if entry.name != "callback"))
        schema = self._definition.schemas[id(wait)]
        flow = wait.on_timeout.name if wait.on_timeout is not None else None
        limit = waiting.timeout_of(told.get("timeout"))
        metadata = waiting.metadata_of(told.get("metadata"), flow)
        return {**told, "timeout": limit, "schema": schema or None, "metadata": metadata}

    def _question(self, wait: WaitFor) -> waiting.Question:
        """What a person is asked: looked at once, where it is the same in every run."""
        question = self._definition.questions.get(id(wait))
        if question is None:
            question = waiting.question(wait.name, self._wait_options(wait), self._turn.limit)
            if is_the_same_in_every_run(wait):
                self._definition.questions[id(wait)] = question
        return question

    async def wait(self, wait: WaitFor) -> Any:
        if id(wait) in self._definition.asking:
            answer = await waiting.person(self._turn, wait.name, self._question(wait))
        elif wait.is_callback:
            if wait.name not in self._minted:
                await self._callback(wait)
            answer = await self._minted.pop(wait.name)
        else:
            answer = await waiting.event(self._step, wait.name, self._wait_options(wait), wait.schema)
        if isinstance(answer, Decision):
            return self._decided(wait, answer)
        return with_defaults(wait.schema, answer, self._source)

    def _decided(self, wait: WaitFor, decision: Decision[Any]) -> Any:
        """What several people came to, as expressions read it."""
        answers = [msgspec.to_builtins(given) for given in decision.answers]
        for given in answers:
            given["value"] = with_defaults(wait.schema, given["value"], self._source)
        return {"value": decision.value, "outcome": decision.outcome, "answers": answers}
