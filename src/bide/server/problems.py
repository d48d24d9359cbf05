"""Errors as `application/problem+json`: one shape, without an echo of what was sent (reliability §3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from bide.core.commands import EventReceipt, Receipt
from bide.errors import (
    BideError,
    DefinitionNotFound,
    NoTarget,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
    fact_names,
)

TYPE: Final = b"application/problem+json"

LONGEST_DETAIL: Final = 1000

TITLES: Final = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    413: "Payload too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Invalid data",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}

# What does not exist, and what exists only in another workspace, must read the same byte for byte (H1).
NOT_THERE: Final = {
    "no_target": "nobody waits for that here; check the id, or look with `bide waits`",
    "run_not_found": "there is no such run in this workspace",
    "wait_not_found": "there is no such wait in this workspace",
    "interaction_not_found": "there is no such interaction in this workspace",
    "dead_letter_not_found": "no dead letter of this workspace has that id",
    "unused_not_found": "no unused arrival of this workspace has that id",
    "not_found": "there is nothing here",
}


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with the data."""

    path: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, for machines (`code`) and for people (`detail`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldError, ...] = ()
    error: str = ""  # the name of the error in Python
    facts: dict[str, Any] = {}  # what that error knows, by name
    receipts: tuple[Any, ...] = ()  # of deliveries that were refused (S10)


class Refusal(Exception):
    """An answer that is no success and comes from the door itself rather than from an error of bide."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[FieldError, ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
        error: str = "",
        facts: Mapping[str, Any] | None = None,
        receipts: tuple[Receipt | EventReceipt, ...] = (),
    ) -> None:
        super().__init__(status, code, detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.headers = errors, headers
        self.error, self.facts, self.receipts = error, facts or {}, receipts


def refusal_of(error: BaseException) -> Refusal:
    """What an error is answered with. One that is none of bide's is a defect: its text stays in the log."""
    if isinstance(error, Refusal):
        return error
    if not isinstance(error, BideError):
        return Refusal(500, "internal", "bide failed to answer; the server's log says why")
    detail = _outage(error) or str(error)
    ended = isinstance(error, NoTarget) and error.run_status not in (None, "not_found")  # the caller's own run
    if isinstance(error, NotFound) and not isinstance(error, DefinitionNotFound) and not ended:
        detail = NOT_THERE.get(error.code, NOT_THERE["not_found"])
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, TooManyRequests):
        headers = (("Retry-After", str(error.retry_after)),)
        if isinstance(error, QuotaExceeded):
            headers += (("RateLimit-Limit", str(error.limit)), ("RateLimit-Remaining", "0"))
    elif error.status == 401:
        headers = (("WWW-Authenticate", "Bearer"),)
    elif error.status == 503:
        headers = (("Retry-After", "1"),)
    problems = getattr(error, "problems", ())
    return Refusal(
        error.status,
        error.code,
        detail,
        errors=tuple(map(field_error, problems)),
        headers=headers,
        error=type(error).__name__,
        facts=_facts(error),
    )


def _outage(error: BideError) -> str:
    """What is wrong with the store is in the log; who asks may have no key."""
    if error.status < 500:
        return ""
    if isinstance(error, Unavailable):
        return "the store does not answer at the moment; try again"
    return "bide failed to answer; the server's log says why"


@contextmanager
def telling(*receipts: Receipt | EventReceipt) -> Iterator[None]:
    """What is raised in the block is told together with the receipts that it was raised for."""
    try:
        yield
    except (BideError, Refusal) as error:
        refusal = refusal_of(error)
        refusal.receipts = receipts
        raise refusal from error


def _facts(error: BideError) -> dict[str, Any]:
    """What the error was made of, so that a client can make it again.

    What is not there is said without its name: the caller knows what was asked for, and nobody learns more (H1). What
    is broken here is nobody's business.
    """
    if error.status >= 500:
        return {}
    facts = dict(zip(fact_names(type(error)), error.args, strict=False))
    if isinstance(error, NotFound) and not isinstance(error, DefinitionNotFound):
        facts = {name: facts[name] for name in ("run_status",) if facts.get(name) is not None}
    facts.pop("problems", None)  # they are among the `errors`
    return {name: fact for name, fact in facts.items() if len(str(fact)) <= LONGEST_DETAIL}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_DETAIL else f"{text[: LONGEST_DETAIL - 1]}…"


def problem(refusal: Refusal) -> Problem:
    return Problem(
        type=f"urn:bide:{refusal.code}",
        title=TITLES.get(refusal.status, "Error"),
        status=refusal.status,
        detail=_short(refusal.detail),  # it may quote what was sent
        code=refusal.code,
        errors=refusal.errors,
        error=refusal.error,
        facts=dict(refusal.facts),
        receipts=refusal.receipts,
    )


_AT: Final = re.compile(r"at (?P<path>\$(?:[^:]|:(?! ))*): (?P<message>.*)", re.DOTALL)


def field_error(said: Any) -> FieldError:
    """A problem as `bide.core.schema` and `bide.core.payloads` write it.

    >>> field_error('at $.approved: "yes" is not of type "boolean"')
    FieldError(path='$.approved', message='"yes" is not of type "boolean"')
    """
    match = _AT.fullmatch(str(said))
    return FieldError(match["path"], match["message"]) if match else FieldError("$", str(said))
