"""Whether a webhook comes from who shares the secret: the schemes that providers sign with (T63)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

Scheme = Literal["standard", "stripe"]

MOST_SIGNATURES: Final = 20  # in one header: a provider that rotates its secret sends two
LONGEST_ID: Final = 200
HEADERS: Final[Mapping[Scheme, tuple[str, ...]]] = {
    "standard": ("webhook-id", "webhook-timestamp", "webhook-signature"),
    "stripe": ("stripe-signature",),
}


class Forged(Exception):
    """Nothing proves that the provider sent it. The text is for the log of those who know the secret."""


def signed_id(
    scheme: Scheme,
    keys: Sequence[bytes],
    headers: Mapping[str, Sequence[str]],
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta,
) -> str:
    """What the message is known by, if its bytes were signed with one of *keys* at about *now*; raises `Forged`.

    *headers* are by name in small letters, each with all its values.
    """
    if scheme == "standard":
        id = _only(headers, "webhook-id")
        said = _only(headers, "webhook-timestamp")
        if not id or len(id) > LONGEST_ID or "." in id or not id.isprintable():
            raise Forged("webhook-id is empty, too long, or has a dot in it")
        versions = [each.partition(",")[::2] for each in _only(headers, "webhook-signature").split()]
        signed = f"{id}.{said}.".encode() + body
        wanted = [base64.b64encode(_mac(key, signed)).decode() for key in keys]
    else:
        parts = [each.strip().partition("=")[::2] for each in _only(headers, "stripe-signature").split(",")]
        times = [value for name, value in parts if name == "t"]
        said = times[0] if len(times) == 1 else ""
        versions = [part for part in parts if part[0] != "t"]
        signed = f"{said}.".encode() + body
        wanted = [_mac(key, signed).hex() for key in keys]
        id = hashlib.sha256(body).hexdigest()  # what is sent again is signed anew, and has the same bytes
    _check_time(said, now, tolerance)
    if not _matches([value for version, value in versions if version == "v1"], wanted):
        raise Forged("no signature of version v1 fits these bytes and this time")
    return id


def _only(headers: Mapping[str, Sequence[str]], name: str) -> str:
    values = headers.get(name, ())
    if len(values) != 1:
        raise Forged(f"the header {name} is missing" if not values else f"the header {name} was sent more than once")
    return values[0]


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, hashlib.sha256)


def _check_time(said: str, now: datetime, tolerance: timedelta) -> None:
    if not (said.isascii() and said.isdigit() and len(said) <= 12):
        raise Forged("its time is no number of seconds")
    age = now.timestamp() - int(said)
    if abs(age) > tolerance.total_seconds():
        raise Forged("it was signed too long ago" if age > 0 else "it was signed in the future")


def _matches(given: Sequence[str], wanted: Iterable[str]) -> bool:
    """Every pair is compared, each in constant time: how long it takes says nothing."""
    if len(given) > MOST_SIGNATURES:
        return False
    found = False
    for value in given:
        for good in wanted:
            found |= hmac.compare_digest(value.encode(), good.encode())
    return found
