"""The outcomes a step may return: a short closed list (M2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bide.core.durations import Duration, Timeout


class _Unset:
    def __repr__(self) -> str:
        return "ctx.state"


UNSET: Final = _Unset()
FAIL: Final = "!fail"
"""As `on_timeout`: fail the run with `AWAIT_TIMEOUT`.

>>> Await("paid", then="ship", timeout="1h", on_timeout=FAIL).on_timeout
'!fail'
"""

StepRef = str | Callable[..., Any]


@dataclass(frozen=True)
class Next:
    """Go on with another step; the signals handed to this one are used up.

    >>> Next("ship", {"order": 1}).step
    'ship'
    """

    step: StepRef
    state: Any = UNSET


@dataclass(frozen=True)
class Await:
    """Park until any of these signals arrives, then run `then`. Uses up nothing.

    `on_timeout` names the step that a timeout leads to instead of `then`, or is `bide.FAIL`.

    >>> Await(["paid", "cancelled"], then="decide", timeout="1h").timeout
    '1h'
    """

    names: Any  # a name, a `bide.Signal`, or several
    then: StepRef
    state: Any = UNSET
    timeout: Timeout | None = None
    on_timeout: StepRef | None = None
    channel: str | None = field(default=None, kw_only=True)
    title: str | None = field(default=None, kw_only=True)
    description: str | None = field(default=None, kw_only=True)
    assignee: str | None = field(default=None, kw_only=True)
    group: str | None = field(default=None, kw_only=True)
    metadata: Mapping[str, Any] | None = field(default=None, kw_only=True)
    reminders: Iterable[Duration] = field(default=(), kw_only=True)
    escalate: Mapping[Any, str] = field(default_factory=dict, kw_only=True)
    heartbeat: Duration | None = field(default=None, kw_only=True)
    notify: str | Callable[..., Any] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Retry:
    """Run this step again later, with the same awaited signals; `ctx.attempt` goes up by one.

    >>> Retry(delay="5s").delay
    '5s'
    """

    state: Any = UNSET
    delay: Duration = 0


@dataclass(frozen=True)
class Child:
    """A run to spawn.

    >>> Child("ship-parcel", {"parcel": 7}, correlation_key="parcel:7").definition
    'ship-parcel'
    """

    definition: Any
    input: Any = None
    correlation_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Spawn:
    """Start children and park until every one of them is final, then run `then` with `ctx.children`.

    >>> len(Spawn([("ship", 1), ("ship", 2)], then="report").children)
    2
    """

    children: Sequence[Child | tuple[Any, Any]]
    then: StepRef
    state: Any = UNSET
    timeout: Timeout | None = None
    on_timeout: StepRef | None = None
    cancel_children: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Done:
    """End the run as completed.

    >>> Done({"paid": 100}).result
    {'paid': 100}
    """

    result: Any = None


@dataclass(frozen=True)
class Stop:
    """End the run as stopped: an ending that is neither success nor failure.

    >>> Stop("payment never came").reason
    'payment never came'
    """

    reason: str = ""


Outcome = Next | Await | Retry | Spawn | Done | Stop
