"""Reading what a client sends: not too much of it, not for ever, and nothing that some parser would misread (H3)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from starlette.types import Message, Receive, Scope

from bide.core.payloads import BadPayload, decode_json
from bide.server.problems import FieldError, Refusal

T = TypeVar("T")
ENVELOPE: Final = 16 * 1024
JSON_TYPES: Final = ("application/json",)
_PARAMETER: Final = re.compile(r';\s*([^=;\s]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)')  # of a media type
ANNOUNCING: Final = (b"content-length", b"transfer-encoding")  # a body


class Gone(Exception):
    """The client went away; there is nobody to answer."""


class Incoming:
    """What comes of one request, and whether all of it has come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self.is_whole = False  # as far as anybody looked

    async def __call__(self) -> Message:
        message = await self._receive()
        self.is_whole = not message.get("more_body", False)
        return message

    async def is_owed(self) -> bool:
        """Whether the client has more to send than is here by now. Nobody would bound how long it takes to (T42)."""
        announced = (value for name, value in self._scope["headers"] if name in ANNOUNCING)
        if all(value == b"0" for value in announced):
            return False
        if headers_of(self._scope, b"expect"):
            return True  # a look would ask for the rest (100 Continue)
        read = 0
        try:
            async with asyncio.timeout(0):  # what is here is read without a pause
                while not self.is_whole and read <= ENVELOPE:
                    read += len((await self()).get("body", b""))
        except TimeoutError:
            pass
        return not self.is_whole


async def until_gone(receive: Receive) -> None:
    """Return when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What *work* comes to; it is cancelled when the client hangs up, and `Gone` raised."""
    working, gone = asyncio.create_task(work), asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.wait({working, gone})


def headers_of(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def header(scope: Scope, name: bytes) -> str | None:
    """The one header of that name; None where there is none. Two of them are a trick (T28)."""
    found = headers_of(scope, name)
    if len(found) > 1:
        raise Refusal(400, "repeated_header", f"the header {name.decode()} was sent more than once")
    return found[0] if found else None


def media_type(scope: Scope) -> str:
    return (header(scope, b"content-type") or "").partition(";")[0].strip().lower()


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, refused as soon as it is too long (413) or too slow (408)."""
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise too_large(limit)
    if header(scope, b"content-encoding") not in (None, "identity"):
        raise Refusal(415, "encoded_body", "bodies are taken as they are; send it without Content-Encoding")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message: Message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(408, "too_slow", f"the body did not arrive within {seconds:g} seconds") from None


def too_large(limit: int) -> Refusal:
    return Refusal(
        413, "payload_too_large", f"at most {limit:,} bytes can be taken (max_payload_bytes and its envelope)"
    )


def parse_json(scope: Scope, raw: bytes, limit: int, envelope: int = 0) -> Any:
    """The JSON value of a body; an empty one is an empty object. *envelope* levels of it are around its payloads."""
    if not raw.strip():
        return {}
    kind = media_type(scope)
    if kind and kind not in JSON_TYPES and not kind.endswith("+json"):
        raise Refusal(415, "not_json", "send JSON, as application/json")
    if not _charsets(header(scope, b"content-type") or "") <= {"", "utf-8", "utf8"}:
        raise Refusal(415, "not_utf8", "send JSON encoded as UTF-8")
    try:
        return decode_json(raw, max_bytes=limit, around=envelope)
    except BadPayload as error:
        raise _unreadable(error) from error


def _charsets(content_type: str) -> set[str]:
    """What a content type says of its encoding; other parameters may stand beside it.

    >>> _charsets('application/json; profile="a; charset=b"; Charset="UTF-8"'), _charsets("application/json")
    ({'utf-8'}, set())
    """
    parameters = _PARAMETER.findall(content_type)
    return {value.strip(' "\t').lower() for name, value in parameters if name.lower() == "charset"}


def _unreadable(error: BadPayload) -> Refusal:
    status = 413 if error.problem == "too_large" else 400
    return Refusal(status, error.problem, str(error), errors=(FieldError(error.path, error.message),))
