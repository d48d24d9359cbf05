"""What a transport is: how an interaction reaches the outside and how its answer comes back (U9).

`bide.transports` has some; anybody can write another: a class with a name and `dispatch`, and `listen` where answers
come back by themselves. The provider at the other end is an outside actor, not a step (U10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import msgspec

from bide.core.commands import Receipt


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One interaction on its way out. Its ids are the same at every try, so that a provider can tell a repeat.

    >>> request = Request(workspace="default", run_id="run_7", wait_id="wait_7_1", interaction_id="int_7_1_0",
    ...                   correlation_id="cor_7_1_0_ab12", step="pay", item=0, payload='{"amount":100}')
    >>> request.data
    {'amount': 100}
    """

    workspace: str
    run_id: str
    wait_id: str
    interaction_id: str
    correlation_id: str
    step: str
    item: int
    payload: str  # JSON text
    key: str | None = None  # the business key of the item, where it has one
    deadline: datetime | None = None
    resume_url: str | None = None
    trace: Mapping[str, str] = {}  # headers `traceparent` and `tracestate`, to be sent along where it is traced

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.payload)


class Sent(msgspec.Struct, frozen=True):
    """It is out; the answer comes later."""


class Answered(msgspec.Struct, frozen=True):
    """It is out, and the answer came at once."""

    data: Any


class Undelivered(msgspec.Struct, frozen=True):
    """It did not go out. With *retry* it is tried again later, and becomes a dead letter after a number of tries."""

    reason: str
    retry: bool = True


Dispatched = Sent | Answered | Undelivered


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: an interaction or correlation id, and either data or the reason why there is none.

    >>> Answer(interaction_id="int_7_1_0", data={"status": "paid"}).reason is None
    True
    """

    interaction_id: str | None = None
    correlation_id: str | None = None
    workspace: str | None = None
    data: Any = None
    reason: str | None = None  # the provider declines: the item is rejected with this reason
    by: str | None = None


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """Something that came back and is no answer at all. It becomes a dead letter."""

    id: str  # where it came from; the same message has the same id
    reason: str
    text: str


class Admission(Protocol):
    """Where a transport hands in what came back."""

    async def admit(self, answers: Sequence[Answer]) -> Sequence[Receipt]:
        """Take answers in. When this returns, each is durably admitted or durably refused: acknowledge them now.

        Raises `StoreUnavailable` where nothing was decided: hand them in again later.
        """

    async def bury(self, poison: Poison) -> None:
        """Keep what can never be an answer as a dead letter. Durable when this returns."""


@runtime_checkable
class Transport(Protocol):
    """How interactions go out. A transport that also has `listen` gets its answers by itself.

    >>> class Printer:
    ...     name = "printer"
    ...
    ...     async def dispatch(self, requests):
    ...         for request in requests:
    ...             print(request.interaction_id, request.data)
    ...         return [Sent() for request in requests]
    >>> isinstance(Printer(), Transport)
    True
    """

    @property
    def name(self) -> str: ...

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        """Send requests, all of one workspace's wait; one result for each, in order.

        A transport that has an attribute `at_once` is handed that many together at most.
        At least once: after a crash the same request comes again with the same ids. An exception stands for
        `Undelivered` with retry for all of them.
        """


@runtime_checkable
class ListeningTransport(Transport, Protocol):
    """A transport whose answers come back by themselves."""

    async def listen(self, admission: Admission) -> None:
        """Hand in what comes back until cancelled. The engine starts it again, after a pause, where it breaks."""
