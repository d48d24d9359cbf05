"""Options of a step's methods, as users write them, checked where they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bide.authoring.signals import Signal, signal_name
from bide.core.durations import BadDuration, parse_duration, parse_timeout
from bide.errors import BadInput


def signal_names(id: str, signals: Sequence[str | Signal[Any]]) -> tuple[str, ...]:
    if not signals:
        raise BadInput(f"receive {id!r} names no signal")
    if len(signals) == 1:
        return (signal_name(signals[0]),)
    return tuple(sorted({signal_name(signal) for signal in signals}))


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
