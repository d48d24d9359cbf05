"""HTTP out of a step: one request, with what came back as plain data, and which failures are worth another try."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from bide.core.retrying import NonRetryable
from bide.engine.addresses import RefusedAddress, find, is_listed
from bide.engine.trust import trust
from bide.errors import BadExpression

if TYPE_CHECKING:
    import httpx

DEFAULT_TIMEOUT: Final = timedelta(seconds=30)
WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
MOST_SHOWN: Final = 300


class HttpFailed(Exception):
    """The other side could not be reached, or said that it failed; another try may help."""


class HttpTimedOut(HttpFailed):
    """The other side did not answer in time."""


class HttpRefused(NonRetryable):
    """The other side refused the request, and would again."""


async def send(
    method: str, url: str, headers: Mapping[str, str], body: Any, timeout: timedelta, most_bytes: int
) -> dict[str, Any]:
    """Send one request; gives `status`, `headers` and `body` (JSON where it says so). Raises on 4xx and 5xx.

    The address is the operator's: it may be anywhere.
    """
    with _failures(url, timeout):
        async with _httpx().AsyncClient(timeout=timeout.total_seconds(), verify=trust(url)) as client:
            return await _exchange(client, method, url, headers, body, most_bytes, url)


async def send_out(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: Any,
    timeout: timedelta,
    most_bytes: int,
    private_hosts: str,
) -> dict[str, Any]:
    """The same to an address that a file or its input gives: a public one, or one of *private_hosts* (T57).

    The request goes to the address that was looked at, whatever the name leads to next, and by no proxy.
    """
    httpx = _httpx()
    seconds = timeout.total_seconds()
    with _failures(url, timeout):
        asked = httpx.URL(url)
        if asked.scheme not in ("http", "https") or not asked.host:
            raise httpx.UnsupportedProtocol("write https://host/path")
        name = urlsplit(str(asked)).hostname or ""  # as `find` reads it, whatever a trick makes of the URL elsewhere
        async with asyncio.timeout(seconds):
            target = await find(str(asked), allow_private=is_listed(name, private_hosts))
        own = {name.lower() for name in headers}
        headers = {**({} if "host" in own else {"host": target.host}), **headers}
        options: dict[str, Any] = {"trust_env": False, "verify": trust(target.url, from_environment=False)}
        if asked.userinfo:
            options["auth"] = (asked.username, asked.password)
        async with httpx.AsyncClient(timeout=seconds, **options) as client:
            return await _exchange(client, method, target.url, headers, body, most_bytes, url, name=target.name)


async def _exchange(
    client: httpx.AsyncClient,
    method: str,
    address: str,
    headers: Mapping[str, str],
    body: Any,
    most_bytes: int,
    url: str,
    *,
    name: str | None = None,
) -> dict[str, Any]:
    sent: dict[str, Any] = {"headers": dict(headers)} | ({"json": body} if body is not None else {})
    if name is not None:
        sent["extensions"] = {"sni_hostname": name}  # its certificate is asked for, though an address is called
    async with client.stream(method, address, **sent) as response:
        raw = bytearray()
        async for piece in response.aiter_bytes():
            raw += piece
            if len(raw) > most_bytes:
                raise HttpRefused(f"the answer of {_host(url)} has more than {most_bytes} bytes (max_payload_bytes)")
    found = _read(response, bytes(raw))
    if response.status_code >= 400:
        said = f"{_host(url)} answered {response.status_code}: {_shown(raw)}"
        is_passing = response.status_code >= 500 or response.status_code in WORTH_ANOTHER_TRY
        raise HttpFailed(said) if is_passing else HttpRefused(said)
    return found


@contextmanager
def _failures(url: str, timeout: timedelta) -> Iterator[None]:
    """What can go wrong, in words, and told apart by whether another try may help."""
    httpx = _httpx()
    try:
        yield
    except RefusedAddress as error:
        raise HttpRefused(f"{error}; the setting private_hosts allows it") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
        raise BadExpression(f"the request cannot be sent: {error}") from None
    except (httpx.TimeoutException, TimeoutError):
        raise HttpTimedOut(f"{_host(url)} did not answer within {timeout}") from None
    except (httpx.HTTPError, OSError) as error:
        raise HttpFailed(f"{_host(url)} cannot be reached: {type(error).__name__} {error}") from None


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
        except RecursionError:
            raise HttpFailed(f"the answer is nested too deeply: {_shown(raw)}") from None
    elif raw:
        body = raw.decode(response.encoding or "utf-8", "replace").replace("\x00", "\ufffd")
    return {"status": response.status_code, "headers": dict(response.headers), "body": body}


def _host(url: str) -> str:
    """Who was asked. The rest of an address may hold secrets."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition("?")[0] or "the address"


def _shown(raw: bytes | bytearray) -> str:
    text = bytes(raw[:MOST_SHOWN]).decode("utf-8", "replace")
    return text if len(raw) <= MOST_SHOWN else f"{text}…"
