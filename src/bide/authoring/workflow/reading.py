"""Stored text as what the body gets: results of steps, and answers of the outside."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

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


class _Signal(msgspec.Struct, frozen=True):
    """A signal as `history.receive` tells of it, its payload as it came."""

    id: str
    name: str
    payload: msgspec.Raw
    received_at: datetime


def signals_as(text: str, returns: Any, declared: Mapping[str, Any], checked: Mapping[str, Any], key: str) -> Any:
    """A signal that was taken, or a pack of them, each with a payload of the type that is *declared* for its name.

    Those of *checked* types were looked at when they came. Raises as `answer_as` does; where nobody had looked,
    `AnswerRefusedError`: then it is the sender who is wrong.
    """
    if not declared:
        return read_as(text, returns)
    told = msgspec.json.decode(text, type=_Signal | list[_Signal])
    if isinstance(told, list):
        return [_received(one, declared, checked, key) for one in told]
    return _received(told, declared, checked, key)


def _received(told: _Signal, declared: Mapping[str, Any], checked: Mapping[str, Any], key: str) -> Received[Any]:
    type_, payload = declared.get(told.name, Any), bytes(told.payload).decode()
    if type_ == checked.get(told.name, Any):
        value = answer_as(payload, type_, key, f"signal {told.name!r}, ")
    else:
        try:
            value = decode_as(payload, type_)
        except BadPayload as error:
            raise AnswerRefusedError(key, f"signal {told.name!r} of {told.id}, {error}") from error
    return Received(told.id, told.name, value, told.received_at)


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
