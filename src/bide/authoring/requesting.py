"""What a request to the outside asks for, checked where it is written: the terms that are kept with its wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from bide.authoring.checks import check_choice, check_text, shown
from bide.authoring.terms import SHOWN_TO_PEOPLE, answer_schema, terms_of
from bide.core.durations import BadDuration, parse_timeout
from bide.core.exchanging import INTERACTION_API, Terms
from bide.engine.transport import Transport
from bide.errors import BadInput


def transport_name(transport: Any) -> str:
    """The name of a transport that is given by name or as an object."""
    if isinstance(transport, str):
        return check_text(transport, "transport")
    if isinstance(transport, Transport):
        return check_text(transport.name, "the transport's name")
    raise BadInput(f"transport={shown(transport)}: give a name, or an object with a name and dispatch()")


def limit_of(timeout: Any, what: str) -> timedelta | datetime | None:
    if timeout is None:
        raise BadInput(f"{what} has no timeout; give one, or bide.FOREVER to say that it may never end")
    try:
        return parse_timeout(timeout)
    except BadDuration as error:
        raise BadInput(f"{what}: timeout={timeout!r}: {error}") from error


def item_terms(
    *,
    what: str,
    transport: str,
    returns: Any,
    timeout: timedelta | datetime | None,
    on_item_timeout: str = "fail",
    max_pending: int | None = None,
    cardinality: str = "ONE_TO_ONE",
    items: bool = False,
    most: int | None = None,
    **labels: Any,
) -> Terms:
    """The terms of a request, without its nonce."""
    check_choice(on_item_timeout, ("fail", "reject"), "on_item_timeout")
    if max_pending is not None and (not isinstance(max_pending, int) or max_pending < 1):
        raise BadInput(f"{what}: max_pending={shown(max_pending)}: give 1 or more")
    for name in labels:
        if name not in SHOWN_TO_PEOPLE:
            raise BadInput(f"{what} takes no {name!r}; there are: {', '.join(SHOWN_TO_PEOPLE)}")
    policy: Literal["fail", "reject"] = "fail" if on_item_timeout == "fail" else "reject"
    return Terms(
        transport=transport or INTERACTION_API,
        cardinality=cardinality,
        items=items,
        many=cardinality.endswith("_MANY"),
        most=most,
        seconds=timeout.total_seconds() if items and isinstance(timeout, timedelta) else None,
        until=timeout if items and isinstance(timeout, datetime) else None,
        on_item_timeout=policy,
        max_pending=max_pending,
        schema=answer_schema(returns),
        **terms_of(labels, {}),
    )


def encode_terms(terms: Terms, nonce: bytes) -> str:
    return msgspec.json.encode(msgspec.structs.replace(terms, nonce=nonce.hex())).decode()
