"""Stored text as what the body gets: results of steps, and answers of the outside."""

from __future__ import annotations

from typing import Any

from bide.authoring.context import Received
from bide.core.payloads import BadPayload, decode_as
from bide.core.schema import problems, schema_or_none
from bide.errors import AnswerRefusedError, HistoryMismatch


def read_as(text: str, returns: Any) -> Any:
    """Raises as `decode_as` does."""
    value = decode_as(text, returns)
    if returns is Received:
        value = Received(value.id, value.name, value.payload, value.received_at)
    return value


def answer_as(text: str, returns: Any, key: str, what: str = "") -> Any:
    """An answer that was checked when it came, read as its type (W3).

    Raises `AnswerRefusedError` where it fits the schema of the type, so that only a validator can have refused it, and
    `HistoryMismatch` where it does not: then the type was changed since (F17).
    """
    try:
        return decode_as(text, returns)
    except (BadPayload, TypeError) as error:
        schema = schema_or_none(returns)
        if schema is not None and not problems(schema, text):
            raise AnswerRefusedError(key, f"{what}{error}") from error
        raise HistoryMismatch(f"the stored answer of step {key!r} is no {returns!r} any more: {what}{error}") from error
