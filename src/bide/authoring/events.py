"""What authors and emitters say of events: names, patterns, expressions; refused here where they cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bide.core.expressions import BadExpression, check_expression
from bide.core.topics import BadName, check_name, check_pattern
from bide.errors import BadInput


def check_event_name(name: Any) -> str:
    try:
        return check_name(name)
    except BadName as error:
        raise BadInput(str(error)) from error


def check_event_pattern(pattern: Any) -> str:
    try:
        return check_pattern(pattern)
    except BadName as error:
        raise BadInput(str(error)) from error


def check_match(expression: Any) -> str:
    """An expression that some wait keeps; None is none."""
    try:
        return check_expression(expression) if expression is not None else ""
    except BadExpression as error:
        raise BadInput(str(error)) from error


def triggers_of(trigger: str | Sequence[str] | None) -> tuple[str, ...]:
    """The patterns of the events that start a run. Raises `BadName`.

    >>> triggers_of("order.*"), triggers_of(["paid", "refunded"]), triggers_of(None)
    (('order.*',), ('paid', 'refunded'), ())
    """
    if trigger is None:
        return ()
    patterns = (trigger,) if isinstance(trigger, str) else tuple(trigger)
    return tuple(check_pattern(pattern) for pattern in patterns)
