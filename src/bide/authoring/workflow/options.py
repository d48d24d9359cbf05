"""Options of a step's methods, as users write them, checked where they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bide.authoring.signals import Signal, signal_name
from bide.core.durations import BadDuration, parse_duration, parse_timeout
from bide.core.schema import check_schema, schema_of
from bide.errors import BadInput


def signal_names(id: str, signals: Sequence[str | Signal[Any]]) -> tuple[str, ...]:
    if not signals:
        raise BadInput(f"receive {id!r} names no signal")
    return tuple(sorted({signal_name(signal) for signal in signals}))


def answer_schema(returns: Any) -> dict[str, Any] | None:
    """What answers are checked against; what is no schema is refused here, before anybody is asked."""
    try:
        schema = schema_of(returns)
        if schema is not None:
            check_schema(schema)
    except (TypeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise BadInput(f"returns={returns!r} is no type and no JSON Schema to check answers against: {why}") from error
    return schema


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
