"""Signatures of webhooks that go out, as the Standard Webhooks specification has them, and of those that come in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import get_args

from bide.core.durations import BadDuration, Duration, parse_duration
from bide.core.signatures import HEADERS, Forged, Scheme, signed_id
from bide.engine.ports import wall_clock
from bide.errors import BadConfiguration, BadSignature

PREFIX = "whsec_"


def secret_bytes(secret: str) -> bytes:
    """The key that a secret as people write it stands for; raises `BadConfiguration`.

    >>> secret_bytes("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode())
    b'0123456789abcdef01234567'
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadConfiguration(
            "a webhook secret is 'whsec_' and base64; make one with `openssl rand -base64 32`"
        ) from (error)
    if len(key) < 24:
        raise BadConfiguration("a webhook secret needs at least 24 bytes; make one with `openssl rand -base64 32`")
    return key


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`.

    >>> sign(b"k" * 24, "int_1", 1700000000, b"{}")
    'v1,FMPjlpCskgDpvbyy6AcTZ1kDPMAoJ1LuI//xe8Ju07w='
    """
    signed = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def headers(key: bytes, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(key, id, timestamp, body),
    }


class WebhookSignature:
    """Checks the signatures of one provider's webhooks.

    *scheme* is `"standard"` ([Standard Webhooks](https://www.standardwebhooks.com): `webhook-id`, `webhook-timestamp`
    and `webhook-signature`) or `"stripe"` (`Stripe-Signature: t=…,v1=…`). Give the old secret too while the provider
    rotates it. What was signed longer than *tolerance* ago, or will be, is refused.

    >>> provider = WebhookSignature("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
    >>> provider.check({"webhook-id": "msg_1"}, b"{}")
    Traceback (most recent call last):
    ...
    bide.errors.BadSignature: the header webhook-timestamp is missing
    """

    def __init__(self, *secrets: str, scheme: Scheme = "standard", tolerance: Duration = "5m") -> None:
        if scheme not in get_args(Scheme):
            raise BadConfiguration(f"scheme={scheme!r} is none of {', '.join(get_args(Scheme))}")
        if not secrets or not all(isinstance(secret, str) and secret for secret in secrets):
            raise BadConfiguration("a webhook signature needs the secret that the provider signs with")
        self.scheme: Scheme = scheme
        try:
            self._keys = [secret_bytes(secret) if scheme == "standard" else secret.encode() for secret in secrets]
            self._tolerance = parse_duration(tolerance)
        except BadDuration as error:
            raise BadConfiguration(f"tolerance={tolerance!r}: {error}") from error

    def __repr__(self) -> str:
        return f"<WebhookSignature {self.scheme}>"  # without the secret: this ends up in logs

    def check(
        self, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes, *, now: datetime | None = None
    ) -> str:
        """The id of a genuine message, to be its `dedup_key` or event id. Raises `BadSignature`.

        *body* are the bytes as they came: what was parsed and written again is another message. *headers* may be
        pairs; a header that is there twice is refused.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        found: dict[str, list[str]] = {}
        for name, value in pairs:
            if name.lower() in HEADERS[self.scheme]:
                found.setdefault(name.lower(), []).append(value)
        try:
            return signed_id(self.scheme, self._keys, found, body, now=now or wall_clock(), tolerance=self._tolerance)
        except Forged as error:
            raise BadSignature(str(error)) from error
