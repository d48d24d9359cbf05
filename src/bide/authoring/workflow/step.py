"""What a workflow's body is handed: its only contact with the outside."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from bide.authoring.checks import check_key, check_text
from bide.authoring.context import Received
from bide.authoring.events import check_event_name, check_event_pattern, check_match
from bide.authoring.signals import Signal
from bide.authoring.terms import AskTerms, TitledLabels, WaitTerms, agenda_of, answer_schema, terms_of
from bide.authoring.workflow.annotations import nature_of
from bide.authoring.workflow.asks import RAISES, Default
from bide.authoring.workflow.callbacks import Callback, callback
from bide.authoring.workflow.children import returned_by
from bide.authoring.workflow.options import duration_given, signal_names, signal_types, timeout_given
from bide.authoring.workflow.requests import request, request_each
from bide.authoring.workflow.tasks import TaskWait, ask, check_receipt
from bide.authoring.workflow.waits import Wait
from bide.core.commands import EventReceipt
from bide.core.durations import Duration, Timeout
from bide.core.meetings import Event
from bide.core.retrying import RetryPolicy
from bide.engine.ports import UUID
from bide.errors import BadInput

if TYPE_CHECKING:
    from bide.authoring.pipeline import Pipeline
    from bide.authoring.workflow.definition import Workflow
    from bide.authoring.workflow.turn import WorkflowTurn

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
D = TypeVar("D")
In = TypeVar("In")

ONCE = RetryPolicy(attempts=1)
UNBOUND = Default()  # no receipt is required, or it may be about anything


@dataclass(frozen=True)
class StepOptions:
    """Options of bide's own for one step: `step.options(retry=…, timeout=…).run(…)`."""

    _turn: WorkflowTurn
    retry: RetryPolicy
    timeout: Duration | None = None
    requires: Any = UNBOUND
    shown: Any = UNBOUND

    @overload
    async def run(self, id: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(self, id: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def run(self, id: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run *fn* once, durably; its stored result is what every replay gets.

        Raises `ReceiptMismatch` where it `requires` a decision receipt and was given another.
        """
        if self.requires is not UNBOUND:
            check_receipt(self._turn, id, self.requires, self.shown, self.shown is not UNBOUND)
        limit = duration_given(self.timeout) if self.timeout is not None else None
        return await _code(self._turn, self.retry, limit, id, fn, args, kwargs)


def _code(
    turn: WorkflowTurn, retry: RetryPolicy, limit: Any, id: str, fn: Callable[..., Any], args: Any, kwargs: Any
) -> Awaitable[Any]:
    call = turn.stand_in(id, fn)
    is_async, returns = nature_of(fn)
    if call is not fn:
        is_async = inspect.iscoroutinefunction(call)
    return turn.code(
        id, "run", lambda: call(*args, **kwargs), is_async=is_async, returns=returns, retry=retry, timeout=limit
    )


class Step:
    """Steps and waits of one run. Every method takes the step's id first; a second use of an id is `id#2`.

    Methods that wait give a `Wait`: it takes its id when it is made, and opens when it is awaited or combined.

    >>> async def outreach(step: Step, name: str) -> str:
    ...     draft = await step.run("draft", str.title, name)
    ...     return await step.wait_for_signal("gate", signal=f"approval-{step.run_id}", timeout="48h")
    """

    def __init__(self, turn: WorkflowTurn) -> None:
        self._turn = turn

    @property
    def run_id(self) -> str:
        return self._turn.run.id

    @property
    def workspace(self) -> str:
        return self._turn.run.workspace

    @property
    def correlation_key(self) -> str | None:
        return self._turn.run.correlation_key

    @property
    def attempt(self) -> int:
        """How often the whole run was tried again."""
        return self._turn.run.attempt

    def options(
        self,
        *,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        requires: Any = UNBOUND,
        shown: Any = UNBOUND,
    ) -> StepOptions:
        """Options of bide's own for one step.

        *requires* is the decision receipt of a task (`task.receipt`): the step refuses to run without one that this
        run was given, and where *shown* is told, without one whose giver was shown just that.
        """
        policy = retry if retry is not None else self._turn.retry
        return StepOptions(self._turn, policy, timeout, requires, shown)

    @overload
    async def run(self, id: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(self, id: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def run(self, id: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run *fn* once, durably: a crash before its result is stored repeats it, one after never does (D2)."""
        return await _code(self._turn, self._turn.retry, None, id, fn, args, kwargs)

    # ------------------------------------------------------------ waiting

    @overload
    def wait_for_signal(
        self, id: str, *, signal: str, timeout: Timeout, returns: type[T], **terms: Unpack[WaitTerms]
    ) -> Wait[T]: ...
    @overload
    def wait_for_signal(
        self, id: str, *, signal: str, timeout: Timeout, returns: type[T], default: D, **terms: Unpack[WaitTerms]
    ) -> Wait[T | D]: ...
    @overload
    def wait_for_signal(
        self,
        id: str,
        *,
        signal: str,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]: ...
    def wait_for_signal(
        self,
        id: str,
        *,
        signal: str,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]:
        """Park until `complete(signal, data)` answers; gives the data, read as *returns* (a type or a JSON Schema).

        Raises `SignalTimeoutError` when the time is up, unless there is a *default*, and `SignalCollisionError` where
        another run awaits the id.
        """
        if timeout is None:
            raise BadInput(f"wait {id!r} has no timeout; give one, or bide.FOREVER to say that it may never end")
        schema = answer_schema(returns)
        limit = timeout_given(timeout)
        return self._turn.wait(
            id,
            "signal",
            names=(check_key(signal, "signal id"),),
            timeout=limit,
            returns=Any if isinstance(returns, dict) else returns,
            default=default,
            on_timeout=terms.get("on_timeout"),
            details={**terms_of(terms, self._turn.notifiers), **({"schema": schema} if schema is not None else {})},
            agenda=agenda_of(terms, limit),
        )

    def reserve_signal(self, id: str, *, signal: str, returns: Any = Any, **terms: Unpack[WaitTerms]) -> Wait[None]:
        """Hold a signal id for the `wait_for_signal` of the same step id that comes later; waits for nothing.

        An answer that comes before the run gets there is checked against *returns*, let in and kept (`queued`). No
        time counts until then. Await it before the step that gives the signal id away: raises `SignalCollisionError`
        where another run holds the id.

        >>> async def order(step: Step) -> object:
        ...     await step.reserve_signal("paid", signal=f"paid-{step.run_id}", returns=int)
        ...     await step.run("invoice", print, f"answer to paid-{step.run_id}")
        ...     return await step.wait_for_signal("paid", signal=f"paid-{step.run_id}", timeout="1d", returns=int)
        """
        if terms.get("on_timeout") is not None:
            raise BadInput(f"reserve_signal {id!r} has no time; give on_timeout= to the wait_for_signal of that id")
        schema = answer_schema(returns)
        details = {**terms_of(terms, self._turn.notifiers), **({"schema": schema} if schema is not None else {})}
        names = (check_key(signal, "signal id"),)
        return self._turn.reserve(id, names=lambda _: names, details=details)

    @overload
    async def callback(
        self,
        id: str,
        *,
        timeout: Timeout,
        returns: type[T],
        extract: str | None = None,
        accept: str | None = None,
        signed: str | None = None,
        **terms: Unpack[WaitTerms],
    ) -> Callback[T]: ...
    @overload
    async def callback(
        self,
        id: str,
        *,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        extract: str | None = None,
        accept: str | None = None,
        signed: str | None = None,
        **terms: Unpack[WaitTerms],
    ) -> Callback[Any]: ...
    async def callback(
        self,
        id: str,
        *,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        extract: str | None = None,
        accept: str | None = None,
        signed: str | None = None,
        **terms: Unpack[WaitTerms],
    ) -> Callback[Any]:
        """Mint a URL that takes one answer; await what this gives to wait for it.

        The URL is durable before any step can send it, and the same in every replay. Answers that come before the run
        waits are held. *accept* (CEL over `data`) says which bodies are the answer at all, *extract* takes the answer
        out of a body. With *signed* it takes only what the provider of that name signed (`app.signature`). The time
        counts from the moment it is waited for.
        """
        if timeout is None:
            raise BadInput(f"callback {id!r} has no timeout; give one, or bide.FOREVER to say that it may never end")
        schema, limit = answer_schema(returns), timeout_given(timeout)
        details = {
            **terms_of(terms, self._turn.notifiers),
            **({"schema": schema} if schema is not None else {}),
            "extract": extract,
            "accept": accept,
            "signed": signed,
        }
        read_as = Any if isinstance(returns, dict) else returns
        options = {"timeout": limit, "returns": read_as, "default": default, "agenda": agenda_of(terms, limit)}
        options["on_timeout"] = terms.get("on_timeout")
        return callback(self._turn, id, details, options)

    @overload
    def receive(
        self, id: str, *signals: Signal[T], timeout: Timeout, **terms: Unpack[WaitTerms]
    ) -> Wait[Received[T]]: ...
    @overload
    def receive(
        self, id: str, *signals: Signal[T], timeout: Timeout, default: D, **terms: Unpack[WaitTerms]
    ) -> Wait[Received[T] | D]: ...
    @overload
    def receive(
        self, id: str, *signals: str | Signal[Any], timeout: Timeout, **terms: Unpack[WaitTerms]
    ) -> Wait[Received]: ...
    @overload
    def receive(
        self, id: str, *signals: str | Signal[Any], timeout: Timeout, default: D, **terms: Unpack[WaitTerms]
    ) -> Wait[Received | D]: ...
    def receive(
        self,
        id: str,
        *signals: str | Signal[Any],
        timeout: Timeout,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]:
        """Take the oldest matching signal of the run's inbox, waiting for one if there is none.

        The payload of a `bide.Signal` with a type, or of one that the workflow lists in `signals=`, is of that type.
        Raises `AnswerRefusedError` where it does not fit, which cannot be where the workflow lists it.
        """
        return self._receive(id, signals, timeout, terms, returns=Received, default=default)

    def _receive(
        self, id: str, signals: Sequence[str | Signal[Any]], timeout: Timeout, terms: WaitTerms, **options: Any
    ) -> Wait[Any]:
        if timeout is None:
            raise BadInput(f"receive {id!r} has no timeout; give one, or bide.FOREVER to say that it may never end")
        limit = timeout_given(timeout)
        if terms:
            options |= {"details": terms_of(terms, self._turn.notifiers), "agenda": agenda_of(terms, limit)}
            options["on_timeout"] = terms.get("on_timeout")
        names = signal_names(id, signals)
        return self._turn.wait(id, "receive", names=names, timeout=limit, notes=self._typed(signals), **options)

    def _typed(self, signals: Sequence[str | Signal[Any]]) -> dict[str, Any]:
        checked = self._turn.signals
        types = signal_types(signals, checked)
        return {"types": types, "checked": checked} if types else {}

    @overload
    def receive_all(
        self, id: str, *signals: Signal[T], at_least: int = 1, timeout: Timeout, **terms: Unpack[WaitTerms]
    ) -> Wait[list[Received[T]]]: ...
    @overload
    def receive_all(
        self,
        id: str,
        *signals: Signal[T],
        at_least: int = 1,
        timeout: Timeout,
        default: D,
        **terms: Unpack[WaitTerms],
    ) -> Wait[list[Received[T]] | D]: ...
    @overload
    def receive_all(
        self,
        id: str,
        *signals: str | Signal[Any],
        at_least: int = 1,
        timeout: Timeout,
        **terms: Unpack[WaitTerms],
    ) -> Wait[list[Received]]: ...
    @overload
    def receive_all(
        self,
        id: str,
        *signals: str | Signal[Any],
        at_least: int = 1,
        timeout: Timeout,
        default: D,
        **terms: Unpack[WaitTerms],
    ) -> Wait[list[Received] | D]: ...
    def receive_all(
        self,
        id: str,
        *signals: str | Signal[Any],
        at_least: int = 1,
        timeout: Timeout,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]:
        """Take all matching signals of the run's inbox, in arrival order, as soon as there are *at_least* so many.

        When the time is up, none was taken: what came stays in the inbox. Payloads are typed as those of `receive`.
        """
        if isinstance(at_least, bool) or not isinstance(at_least, int) or at_least < 1:
            raise BadInput(f"receive_all {id!r}: at_least={at_least!r}; give 1 or more")
        return self._receive(id, signals, timeout, terms, expected=at_least, returns=list[Received], default=default)

    def inbox(self, id: str = "inbox") -> Wait[list[Received]]:
        """What is in the run's inbox when this is reached first, in arrival order. Takes nothing; waits for nothing.

        Payloads of signals that the workflow lists in `signals=` are of their types.
        """
        return self._turn.wait(id, "receive", returns=list[Received], notes=self._typed(list(self._turn.signals)))

    # ------------------------------------------------------------ combining

    @overload
    def first(self, id: str, one: Wait[T], two: Wait[T2], /) -> Wait[Wait[T] | Wait[T2]]: ...
    @overload
    def first(
        self, id: str, one: Wait[T], two: Wait[T2], three: Wait[T3], /
    ) -> Wait[Wait[T] | Wait[T2] | Wait[T3]]: ...
    @overload
    def first(self, id: str, /, *waits: Wait[T]) -> Wait[Wait[T]]: ...
    def first(self, id: str, /, *waits: Wait[Any]) -> Wait[Any]:
        """The wait that is over first; the others are withdrawn. A timeout wins like an answer: `.value` raises it.

        >>> async def order(step: Step) -> str:
        ...     paid = step.receive("paid", "paid", timeout=FOREVER)
        ...     won = await step.first("either", paid, step.sleep("patience", "1h"))
        ...     return "paid" if won is paid else "too late"
        """
        if not waits:
            raise BadInput(f"first {id!r} has no waits to choose from")
        return self._turn.combined(id, waits, 1, lambda over: over[0])

    @overload
    def all(self, id: str, one: Wait[T], two: Wait[T2], /) -> Wait[tuple[T, T2]]: ...
    @overload
    def all(self, id: str, one: Wait[T], two: Wait[T2], three: Wait[T3], /) -> Wait[tuple[T, T2, T3]]: ...
    @overload
    def all(self, id: str, /, *waits: Wait[T]) -> Wait[tuple[T, ...]]: ...
    def all(self, id: str, /, *waits: Wait[Any]) -> Wait[Any]:
        """The values of all waits, in the order given. The first that raises is raised, and the rest are withdrawn."""
        return self._turn.combined(
            id, waits, len(waits), lambda _: tuple(wait.value for wait in waits), fails_fast=True
        )

    def quorum(self, id: str, n: int, /, *waits: Wait[T]) -> Wait[Sequence[Wait[T]]]:
        """The first *n* waits that are over, in the order they ended; the others are withdrawn."""
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(waits):
            raise BadInput(f"quorum {id!r}: {n!r} of {len(waits)} waits can never be over; give 1 to {len(waits)}")
        return self._turn.combined(id, waits, n, tuple)

    # ------------------------------------------------------------ time and children

    @overload
    def ask(
        self, id: str, *, title: str, form: type[T], timeout: Timeout, shown: Any = None, **terms: Unpack[AskTerms]
    ) -> TaskWait[T]: ...
    @overload
    def ask(
        self,
        id: str,
        *,
        title: str,
        form: Any,
        timeout: Timeout,
        shown: Any = None,
        default: Any = RAISES,
        quorum: int = 1,
        veto: Any = False,
        decides: str | None = None,
        most_answers: int | None = None,
        **terms: Unpack[AskTerms],
    ) -> TaskWait[Any]: ...
    def ask(
        self,
        id: str,
        *,
        title: str,
        form: Any,
        timeout: Timeout,
        shown: Any = None,
        default: Any = RAISES,
        quorum: int = 1,
        veto: Any = False,
        decides: str | None = None,
        most_answers: int | None = None,
        **terms: Unpack[AskTerms],
    ) -> TaskWait[Any]:
        """Ask a person: the form is made from a type or a JSON Schema; gives the answer, read as that type.

        With a *quorum* above 1 it gives a `Decision`. Raises `WaitTimeoutError` when the time is up, unless there is
        a *default*, and `WaitFailedError` where the outside fails it.
        """
        given = {**terms, "title": title, "form": form, "timeout": timeout, "shown": shown, "default": default}
        rule = {"quorum": quorum, "veto": veto, "decides": decides, "most_answers": most_answers}
        return ask(self._turn, id, given, rule)

    @overload
    def wait_for_event(
        self,
        id: str,
        *,
        event: str,
        match: str | None = None,
        timeout: Timeout,
        lookback: Duration | None = None,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Event]: ...
    @overload
    def wait_for_event(
        self,
        id: str,
        *,
        event: str,
        match: str | None = None,
        timeout: Timeout,
        lookback: Duration | None = None,
        default: D,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Event | D]: ...
    def wait_for_event(
        self,
        id: str,
        *,
        event: str,
        match: str | None = None,
        timeout: Timeout,
        lookback: Duration | None = None,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]:
        """Park until an event of that name comes whose data *match* is true of; gives the event.

        *event* may be a pattern: `order.*` is everything that begins so, `order.*.shipped` has any one segment there.
        *match* is a CEL expression over `data`; one that errs does not match. Events are heard from the start of the
        turn that opens the wait, with *lookback* from that much earlier; the earliest one counts. *channel* takes
        only events that came by it. Raises `WaitTimeoutError` when the time is up, unless there is a *default*.
        """
        return self._hear(id, event, match, timeout, lookback, default, terms)

    def _hear(
        self,
        id: str,
        event: str,
        match: str | None,
        timeout: Timeout,
        lookback: Duration | None,
        default: Any,
        terms: Mapping[str, Any],
        said: Mapping[str, Any] | None = None,
    ) -> Wait[Any]:
        """*said* is what the wait tells of the events that it takes, where *match* was made of it (L3)."""
        if timeout is None:
            raise BadInput(f"wait {id!r} has no timeout; give one, or bide.FOREVER to say that it may never end")
        limit = timeout_given(timeout)
        channel = terms.get("channel")
        heard = {"match": match, "lookback": str(lookback) if lookback is not None else None, **(said or {})}
        return self._turn.wait(
            id,
            "event",
            names=(check_event_pattern(event),),
            timeout=limit,
            returns=Event,
            default=default,
            on_timeout=terms.get("on_timeout"),
            listening=self._turn.listening(
                check_match(match),
                check_text(channel, "channel") if channel is not None else "",
                duration_given(lookback) if lookback is not None else None,
            ),
            agenda=agenda_of(terms, limit),
            details={
                **terms_of(terms, self._turn.notifiers),
                **{name: value for name, value in heard.items() if value is not None},
            },
        )

    def request(
        self,
        id: str,
        payload: Any,
        *,
        transport: Any,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        **terms: Unpack[WaitTerms],
    ) -> Wait[Any]:
        """Send one request over a transport and wait for its answer, read as *returns*.

        Raises `WaitTimeoutError` when the time is up, unless there is a *default*, and `WaitFailedError` where the
        provider declines.
        """
        given = {"transport": transport, "timeout": timeout, "returns": returns, "default": default}
        return request(self._turn, id, payload, given, terms)

    def request_each(
        self,
        id: str,
        items: Iterable[Any],
        *,
        transport: Any,
        timeout: Timeout,
        returns: Any = Any,
        default: Any = RAISES,
        on_item_timeout: str = "fail",
        max_pending: int | None = None,
        keep_rejected: bool = False,
        on_timeout: str | None = None,
        **labels: Unpack[TitledLabels],
    ) -> Wait[list[Any]]:
        """Send one request for each item and wait for all answers, in the order of the items.

        *timeout* is what each item has; with `on_item_timeout="reject"` the others go on without it. Items that were
        rejected raise `ItemsRejectedError`; with *keep_rejected* each stands as a `Rejected` in its place instead. At
        most *max_pending* are unanswered at once.
        """
        given = {"transport": transport, "timeout": timeout, "returns": returns, "default": default}
        given |= {"on_item_timeout": on_item_timeout, "max_pending": max_pending, "keep_rejected": keep_rejected}
        given["on_timeout"] = on_timeout
        return request_each(self._turn, id, items, {**given, **labels})

    def sleep(self, id: str, duration: Duration) -> Wait[None]:
        """Let time pass without holding anything."""
        return self._turn.wait(id, "sleep", timeout=duration_given(duration), default=None)

    def sleep_until(self, id: str, moment: datetime) -> Wait[None]:
        return self._turn.wait(id, "sleep", timeout=timeout_given(moment), default=None)

    @overload
    def invoke(
        self,
        id: str,
        definition: Workflow[None, R],
        input: None = None,
        *,
        timeout: Timeout | None = None,
        on_timeout: str | None = None,
    ) -> Wait[R]: ...
    @overload
    def invoke(
        self,
        id: str,
        definition: Workflow[In, R],
        input: In,
        *,
        timeout: Timeout | None = None,
        on_timeout: str | None = None,
    ) -> Wait[R]: ...
    @overload
    def invoke(
        self, id: str, definition: Workflow[None, R], input: None = None, *, timeout: Timeout, default: D
    ) -> Wait[R | D]: ...
    @overload
    def invoke(
        self, id: str, definition: Workflow[In, R], input: In, *, timeout: Timeout, default: D
    ) -> Wait[R | D]: ...
    @overload
    def invoke(
        self,
        id: str,
        definition: str | type[Any] | Pipeline,
        input: Any = None,
        *,
        timeout: Timeout | None = None,
        default: Any = RAISES,
        on_timeout: str | None = None,
    ) -> Wait[Any]: ...
    def invoke(
        self,
        id: str,
        definition: Any,
        input: Any = None,
        *,
        timeout: Timeout | None = None,
        default: Any = RAISES,
        on_timeout: str | None = None,
    ) -> Wait[Any]:
        """Start a child run and wait for its result, read as what the workflow says it returns.

        By name, and of other definitions, it comes as plain JSON. Raises `RunFailedError`, `RunStoppedError` or
        `RunCancelledError` as the child ended, `RunTimeoutError` when the time is up, unless there is a *default*.
        """
        return self._turn.wait(
            id,
            "children",
            invokes=(definition, input, {}),
            timeout=timeout_given(timeout),
            returns=returned_by(definition),
            default=default,
            on_timeout=on_timeout,
        )

    @overload
    def launch(
        self,
        id: str,
        definition: Workflow[None, Any],
        input: None = None,
        *,
        correlation_key: str | None = None,
        **options: Any,
    ) -> Wait[str]: ...
    @overload
    def launch(
        self, id: str, definition: Workflow[In, Any], input: In, *, correlation_key: str | None = None, **options: Any
    ) -> Wait[str]: ...
    @overload
    def launch(
        self,
        id: str,
        definition: str | type[Any] | Pipeline,
        input: Any = None,
        *,
        correlation_key: str | None = None,
        **options: Any,
    ) -> Wait[str]: ...
    def launch(
        self, id: str, definition: Any, input: Any = None, *, correlation_key: str | None = None, **options: Any
    ) -> Wait[str]:
        """Start a run and let it go: gives its id at once. It is no child, so it outlives this run and its cancelling.

        *options* are `queue`, `priority` and `tags`. Raises `DuplicateRun` where a run holds the correlation key.

        >>> async def order(step: Step) -> None:
        ...     await step.launch("mail", "send-mail", {"to": "ann"})
        """
        options["correlation_key"] = correlation_key
        names = (correlation_key,) if correlation_key is not None else ()
        return self._turn.wait(id, "launch", names=names, returns=str, invokes=(definition, input, options))

    # ------------------------------------------------------------ events

    async def emit(self, id: str, name: str, data: Any = None, *, channel: str = "api") -> EventReceipt:
        """Put an event on the workspace's stream, once: the event's id is made of the run and the step's id."""
        receipt: EventReceipt = await self._turn.emit(id, check_event_name(name), data, check_text(channel, "channel"))
        return receipt

    # ------------------------------------------------------------ facts

    async def now(self, id: str = "now") -> datetime:
        """The time when this was reached first."""
        now: datetime = await self._turn.code(id, "now", self._turn.now, returns=datetime, retry=ONCE)
        return now

    async def uuid(self, id: str = "uuid") -> UUID:
        made: UUID = await self._turn.code(id, "uuid", self._turn.uuid, returns=UUID, retry=ONCE)
        return made

    async def random(self, id: str = "random") -> float:
        made: float = await self._turn.code(id, "random", self._turn.random, returns=float, retry=ONCE)
        return made
