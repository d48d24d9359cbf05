"""Options of a step's methods, as users write them, checked where they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bide.authoring.checks import shown
from bide.authoring.outcomes import FAIL
from bide.authoring.signals import Signal, signal_name
from bide.authoring.workflow.asks import FAILS, RAISES
from bide.core.durations import BadDuration, parse_duration, parse_timeout
from bide.errors import BadInput


def signal_names(id: str, signals: Sequence[str | Signal[Any]]) -> tuple[str, ...]:
    if not signals:
        raise BadInput(f"receive {id!r} names no signal")
    if len(signals) == 1:
        return (signal_name(signals[0]),)
    return tuple(sorted({signal_name(signal) for signal in signals}))


def signal_types(signals: Sequence[str | Signal[Any]], checked: Mapping[str, Any]) -> dict[str, Any]:
    """The types of payloads by the names of signals: those that the definition lists, and those that are given.

    >>> signal_types([Signal("paid", int), "left", Signal("any")], {"left": str, "other": bool})
    {'paid': <class 'int'>, 'left': <class 'str'>}
    """
    given = {each.name: each.type for each in signals if isinstance(each, Signal) and each.type is not Any}
    listed = (each for each in signals if not isinstance(each, Signal) or each.type is Any)
    return given | {name: checked[name] for each in listed if (name := signal_name(each)) in checked}


def fails_given(id: str, on_timeout: Any, default: Any) -> Any:
    """What stands for the default of a wait whose timeout fails the run; a wait has one policy (W2)."""
    if on_timeout != FAIL:
        raise BadInput(
            f"wait {id!r}: on_timeout={shown(on_timeout)}: give bide.FAIL, a default=, or catch what it raises"
        )
    if default is not RAISES:
        raise BadInput(f"wait {id!r} has a default= and on_timeout=: give one of them")
    return FAILS


def timeout_given(timeout: Any) -> Any:
    try:
        return parse_timeout(timeout)
    except BadDuration as error:
        raise BadInput(f"timeout={timeout!r}: {error}") from error


def duration_given(duration: Any) -> Any:
    try:
        return parse_duration(duration)
    except BadDuration as error:
        raise BadInput(str(error)) from error
