"""HTTP out of a step: one request, with what came back as plain data, and which failures are worth another try."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from bide.core.retrying import NonRetryable
from bide.errors import BadExpression

DEFAULT_TIMEOUT: Final = timedelta(seconds=30)
WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
MOST_SHOWN: Final = 300


class HttpFailed(Exception):
    """The other side could not be reached, or said that it failed; another try may help."""


class HttpRefused(NonRetryable):
    """The other side refused the request, and would again."""


async def send(
    method: str, url: str, headers: Mapping[str, str], body: Any, timeout: timedelta, most_bytes: int
) -> dict[str, Any]:
    """Send one request; gives `status`, `headers` and `body` (JSON where it says so). Raises on 4xx and 5xx."""
    httpx = _httpx()
    sent = {"headers": dict(headers)} | ({"json": body} if body is not None else {})
    try:
        async with (
            httpx.AsyncClient(timeout=timeout.total_seconds()) as client,
            client.stream(method, url, **sent) as response,
        ):
            raw = bytearray()
            async for piece in response.aiter_bytes():
                raw += piece
                if len(raw) > most_bytes:
                    raise HttpRefused(
                        f"the answer of {_host(url)} has more than {most_bytes} bytes (max_payload_bytes)"
                    )
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise BadExpression(f"the request cannot be sent: {error}") from None
    except httpx.TimeoutException:
        raise HttpFailed(f"{_host(url)} did not answer within {timeout}") from None
    except httpx.HTTPError as error:
        raise HttpFailed(f"{_host(url)} cannot be reached: {type(error).__name__} {error}") from None
    found = _read(response, bytes(raw))
    if response.status_code >= 400:
        said = f"{_host(url)} answered {response.status_code}: {_shown(raw)}"
        is_passing = response.status_code >= 500 or response.status_code in WORTH_ANOTHER_TRY
        raise HttpFailed(said) if is_passing else HttpRefused(said)
    return found


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise NonRetryable("HTTP needs httpx; install it with `pip install bide[http]`") from error
    return httpx


def _read(response: Any, raw: bytes) -> dict[str, Any]:
    body: Any = None
    if "json" in response.headers.get("content-type", "") and raw:
        try:
            body = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise HttpFailed(f"the answer says that it is JSON, and is none: {_shown(raw)}") from None
    elif raw:
        body = raw.decode(response.encoding or "utf-8", "replace").replace("\x00", "\ufffd")
    return {"status": response.status_code, "headers": dict(response.headers), "body": body}


def _host(url: str) -> str:
    """Who was asked. The rest of an address may hold secrets."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition("?")[0] or "the address"


def _shown(raw: bytes | bytearray) -> str:
    text = bytes(raw[:MOST_SHOWN]).decode("utf-8", "replace")
    return text if len(raw) <= MOST_SHOWN else f"{text}…"
