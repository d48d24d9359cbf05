"""What a workflow's body asks for: code to run, or something to wait for. Each becomes a future of the body's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bide.core.commands import Listening, NewChild
from bide.core.exchanging import NewRequest
from bide.core.requests import Agenda, NewTask
from bide.core.retrying import RetryPolicy


class Default:
    """No default was given."""

    def __repr__(self) -> str:
        return "(raises)"


class Fails(Default):
    """The run fails when the time is up."""

    def __repr__(self) -> str:
        return "(fails)"


RAISES = Default()
FAILS = Fails()  # in place of a default: what the time being up leads to is one thing (W2)


PURE = "compute"  # the kind of code that reads nothing but stored results: running it again gives the same


STEP_FAILED = "StepFailed"  # the code of an error that trying again may help against
NON_RETRYABLE = "NonRetryable"  # of one that said, or of which the policy says, that it does not


class Code(msgspec.Struct, eq=False):
    """User code to be run once and remembered."""

    key: str
    kind: str
    future: asyncio.Future[Any]
    call: Callable[[], Any]
    is_async: bool
    returns: Any
    retry: RetryPolicy
    context: Context
    timeout: timedelta | None = None
    attempts: int = 0
    task: asyncio.Task[None] | None = None


class Waiting(msgspec.Struct, eq=False):
    """Something outside to wait for."""

    key: str
    kind: str
    future: asyncio.Future[Any]
    returns: Any
    default: Any
    names: tuple[str, ...] = ()
    expected: int = 0  # signals at least, of a pack
    timeout: timedelta | datetime | None = None
    details: dict[str, Any] | str = {}  # a text is encoded already
    invokes: tuple[Any, Any, dict[str, Any]] | None = None  # definition, input and options of a run to start
    child: NewChild | None = None
    task: NewTask | None = None
    agenda: Agenda | None = None
    request: NewRequest | None = None
    rest: tuple[str, ...] = ()  # payloads of a request that are too many for one commit
    notes: dict[str, Any] = {}  # what its outcome tells beside the value
    listening: Listening | None = None  # of a wait for an event
    no: int | None = None  # once it is open
    reserves: bool = False  # it only holds its signal id until the body gets there
    reaches: int | None = None  # the number of the reserved wait that this one takes
    timer: asyncio.TimerHandle | None = None  # of the body's own sleep or timeout
    of: asyncio.Future[Any] | None = None  # the step whose pause this is

    @property
    def is_awaited(self) -> bool:
        """Whether the body still wants it: what it cancelled is withdrawn (law 1)."""
        if self.timer is not None and self.timer.cancelled():
            return False
        return not self.future.done() and not (self.of is not None and self.of.done())
