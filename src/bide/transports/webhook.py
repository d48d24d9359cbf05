"""The transport `webhook`: a signed POST out, with the resume URL inside. The answer comes in the response, or later by
the callback (U9)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bide.core.durations import BadDuration, Duration, parse_duration
from bide.core.payloads import BadPayload, decode_json
from bide.engine import addresses
from bide.engine.ports import wall_clock
from bide.engine.transport import Answered, Dispatched, Request, Sent, Undelivered
from bide.engine.trust import trust
from bide.errors import BadConfiguration
from bide.transports import signing
from bide.transports.pacing import take_turn

if TYPE_CHECKING:
    import httpx

AT_ONCE = 16
RATE = 100.0
BATCH_SECONDS = 10.0  # what is sent together takes about this long at most, however slow the pace
LONGEST_ANSWER = 512 * 1024
# Trying again cannot help: the provider understood, and says no.
FINAL_STATUSES = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422, 501})


class Webhook:
    """Sends each request as a POST, signed as the Standard Webhooks specification says.

    The body is `{"type": "bide.request", "interaction": …, "correlation": …, "step": …, "data": …, "resume_url": …}`.
    A response of 200 with a JSON body is the answer; 202 or 204 says that it comes later, by a POST to the resume URL.
    Redirects are not followed, and names that lead to private addresses are refused unless *allow_private*. At most
    *rate* requests a second go to one address from one process.

    >>> provider = Webhook("https://pay.example/requests", secret="whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
    >>> provider.name
    'webhook'
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration = "30s",
        allow_private: bool = False,
        rate: float = RATE,
        name: str = "webhook",
    ) -> None:
        self.name = name
        self.url = addresses.check_url(url)
        self._key = signing.secret_bytes(secret) if secret is not None else None
        self._headers = dict(headers or {})
        self._allow_private = allow_private
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.1 <= rate <= 1_000_000:
            raise BadConfiguration(f"webhook rate={rate!r} is no number of requests a second from 0.1 to 1,000,000")
        self._rate = float(rate)
        try:
            self._seconds = parse_duration(timeout).total_seconds()
        except BadDuration as error:
            raise BadConfiguration(f"webhook timeout={timeout!r}: {error}") from error

    @property
    def at_once(self) -> int:
        """How many requests are worth handing over together: they must be sent before their lease ends."""
        return max(1, int(self._rate * BATCH_SECONDS))

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        httpx = _httpx()
        slots = asyncio.Semaphore(AT_ONCE)
        options: dict[str, Any] = {"trust_env": False, "verify": trust(self.url, from_environment=False)}
        async with httpx.AsyncClient(follow_redirects=False, timeout=self._seconds, **options) as client:
            return await asyncio.gather(*(self._send(client, slots, request) for request in requests))

    async def _send(self, client: httpx.AsyncClient, slots: asyncio.Semaphore, request: Request) -> Dispatched:
        httpx = _httpx()
        async with slots:
            try:
                async with asyncio.timeout(self._seconds):
                    target = await addresses.find(self.url, allow_private=self._allow_private)
                await take_turn(target.address, self._rate)
                # The whole exchange has this long: a provider that drips byte by byte does not hold us up.
                async with asyncio.timeout(self._seconds):
                    return await self._post(client, request, target)
            except addresses.RefusedAddress as error:
                return Undelivered(f"{error}; allow_private=True allows it", retry=False)
            except TimeoutError:
                return Undelivered(f"{self.url} did not answer within {self._seconds:g} s")
            except (httpx.HTTPError, OSError) as error:
                return Undelivered(f"{self.url}: {type(error).__name__}: {error}")

    async def _post(self, client: httpx.AsyncClient, request: Request, target: addresses.Target) -> Dispatched:
        body = msgspec.json.encode(_envelope(request))
        headers = {"content-type": "application/json", "user-agent": "bide", **self._headers, "host": target.host}
        headers |= request.trace
        headers["accept-encoding"] = "identity"  # a small body that unpacks to a huge one is not unpacked at all
        if self._key is not None:
            headers |= signing.headers(self._key, request.interaction_id, int(wall_clock().timestamp()), body)
        # The name's certificate is asked for, though the connection goes to the address that was looked at.
        extensions = {"sni_hostname": target.name}
        async with client.stream("POST", target.url, content=body, headers=headers, extensions=extensions) as response:
            if not 200 <= response.status_code < 300:
                return self._refused(response.status_code)
            return await self._answer(response)

    def _refused(self, status: int) -> Undelivered:
        if 300 <= status < 400:
            return Undelivered(f"{self.url} redirects (HTTP {status}), which is not followed", retry=False)
        return Undelivered(f"{self.url} answered HTTP {status}", retry=status not in FINAL_STATUSES)

    async def _answer(self, response: httpx.Response) -> Dispatched:
        if response.status_code != 200:
            return Sent()
        if response.headers.get("content-encoding", "identity") != "identity":
            return Undelivered(f"{self.url} answered with a compressed body, which is not unpacked", retry=False)
        body = b""
        async for part in response.aiter_raw():
            body += part
            if len(body) > LONGEST_ANSWER:
                return Undelivered(f"{self.url} answered more than {LONGEST_ANSWER} bytes", retry=False)
        if not body.strip():
            return Sent()
        try:
            return Answered(decode_json(body, max_bytes=LONGEST_ANSWER))
        except BadPayload as error:
            return Undelivered(f"{self.url} answered what is no JSON: {error}", retry=False)


def _envelope(request: Request) -> dict[str, Any]:
    return {
        "type": "bide.request",
        "workspace": request.workspace,
        "run": request.run_id,
        "wait": request.wait_id,
        "interaction": request.interaction_id,
        "correlation": request.correlation_id,
        "step": request.step,
        "item": request.item,
        "key": request.key,
        "deadline": request.deadline,
        "resume_url": request.resume_url,
        "data": msgspec.Raw(request.payload.encode()),
    }


def _httpx() -> Any:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise BadConfiguration("the webhook transport needs httpx; install it with: pip install 'bide[webhook]'") from (
            error
        )
    return httpx
