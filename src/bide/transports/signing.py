"""Signatures as the Standard Webhooks specification has them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from bide.errors import BadConfiguration

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
