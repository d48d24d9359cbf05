"""Dead letters over HTTP: what bide stopped retrying, until a person retries or discards it."""

from __future__ import annotations

import msgspec

from bide.errors import DeadLetterNotFound
from bide.server.calls import Call, Endpoint, PageQuery
from bide.server.runs import Nothing
from bide.views import DeadLetterInfo


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    items: list[DeadLetterInfo]
    next_cursor: str | None


class SettledLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that is none any more, and what was done with it."""

    id: str
    outcome: str


async def list_letters(call: Call) -> DeadLetters:
    asked = call.ask(PageQuery)
    page = await call.client.dead_letters(cursor=asked.cursor, limit=asked.limit)
    return DeadLetters(items=list(page), next_cursor=page.next_cursor)


async def retry(call: Call) -> SettledLetter:
    call.read(Nothing)
    await call.client.retry_dead_letter(_id(call))
    return SettledLetter(id=_id(call), outcome="retried")


async def discard(call: Call) -> SettledLetter:
    call.read(Nothing)
    await call.client.discard_dead_letter(_id(call))
    return SettledLetter(id=_id(call), outcome="discarded")


async def letter_exists(call: Call) -> None:
    if await call.client._letter(_id(call)) is None:
        raise DeadLetterNotFound(_id(call))


def _id(call: Call) -> str:
    return call.path["letter_id"]


_ONE = "/v1/dead-letters/{letter_id}"

ENDPOINTS = (
    Endpoint("GET", "/v1/dead-letters", list_letters, "runs:read", "List dead letters, oldest first",
             query=PageQuery, answers={200: DeadLetters}),
    Endpoint("POST", f"{_ONE}/retry", retry, "waits:operate", "Try again what failed", body=Nothing,
             answers={200: SettledLetter}, found=letter_exists, refusals=(404, 409)),
    Endpoint("POST", f"{_ONE}/discard", discard, "waits:operate", "Give up what failed", body=Nothing,
             answers={200: SettledLetter}, found=letter_exists, refusals=(404, 409)),
)  # fmt: skip
