"""Requests over a transport, from a workflow: `Step.request` and `Step.request_each` (F11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from bide.authoring.machine import encode
from bide.authoring.pipeline.items import Rejected
from bide.authoring.requesting import encode_terms, item_terms, limit_of
from bide.authoring.terms import SHOWN_TO_PEOPLE, agenda_of, terms_of
from bide.authoring.workflow.asks import RAISES
from bide.authoring.workflow.reading import answer_as
from bide.authoring.workflow.waits import Wait
from bide.core.exchanging import NewRequest
from bide.core.payloads import decode_as
from bide.core.records import Interaction
from bide.core.replying import reason_of
from bide.errors import BadInput, ItemsRejectedError

if TYPE_CHECKING:
    from bide.authoring.workflow.turn import WorkflowTurn

ITEMS_AT_ONCE = 500


def request(turn: WorkflowTurn, id: str, payload: Any, given: dict[str, Any], terms: Mapping[str, Any]) -> Wait[Any]:
    """One interaction over a transport."""
    what = f"request {id!r}"
    limit = limit_of(given.pop("timeout"), what)
    returns, default = given.pop("returns"), given.pop("default", RAISES)
    transport, details = turn.transport(given.pop("transport")), terms_of(terms, turn.notifiers)
    labels = {name: value for name, value in details.items() if name in SHOWN_TO_PEOPLE}
    asked = item_terms(what=what, transport=transport, returns=returns, timeout=limit, **given, **labels)
    return turn.wait(
        id,
        "request",
        timeout=limit,
        returns=Any if isinstance(returns, dict) else returns,
        default=default,
        on_timeout=terms.get("on_timeout"),
        expected=1,
        details={**_details(turn, asked), **details},
        agenda=agenda_of(terms, limit),
        request=NewRequest(payloads=(encode(payload, turn.limit, f"the payload of {what}"),)),
    )


def request_each(turn: WorkflowTurn, id: str, items: Iterable[Any], given: dict[str, Any]) -> Wait[Any]:
    """One wait with one interaction for each item; gives the answers in the order of the items."""
    what = f"request_each {id!r}"
    if isinstance(items, (str, bytes, dict)) or not isinstance(items, Iterable):
        raise BadInput(f"{what} takes an iterable of items, not a {type(items).__name__}")
    limit = limit_of(given.pop("timeout"), what)
    returns, default = given.pop("returns"), given.pop("default", RAISES)
    keeps_rejected, on_timeout = given.pop("keep_rejected", False), given.pop("on_timeout", None)
    transport = turn.transport(given.pop("transport"))
    terms = item_terms(what=what, transport=transport, returns=returns, timeout=limit, items=True, **given)
    payloads = tuple(encode(item, turn.limit, f"item {no} of {what}") for no, item in enumerate(items))
    is_last = len(payloads) <= ITEMS_AT_ONCE
    return turn.wait(
        id,
        "request",
        returns=Any if isinstance(returns, dict) else returns,
        default=default,
        on_timeout=on_timeout,
        details=_details(turn, terms),
        request=NewRequest(payloads=payloads[:ITEMS_AT_ONCE], is_last=is_last),
        rest=payloads[ITEMS_AT_ONCE:],
        notes={"items": True, "keeps_rejected": keeps_rejected},
    )


def _details(turn: WorkflowTurn, terms: Any) -> dict[str, Any]:
    details: dict[str, Any] = msgspec.json.decode(encode_terms(terms, turn.random_bytes(16)))
    return details


def answers_of(key: str, rows: Iterable[Interaction], returns: Any, keeps_rejected: bool) -> list[Any]:
    """The answers in item order; raises `ItemsRejectedError` where some came to nothing, unless they are kept."""
    found: list[Any] = []
    rejected: list[Rejected] = []
    for row in rows:
        if row.status == "completed":
            found.append(answer_as(row.answer or "null", returns, key, f"item {row.item}, "))
        else:
            rejected.append(Rejected(row.item, reason_of(row), None, decode_as(row.payload, Any)))
            found.append(rejected[-1])
    if rejected and not keeps_rejected:
        raise ItemsRejectedError(key, [(bad.item, bad.reason) for bad in rejected], len(found))
    return found
