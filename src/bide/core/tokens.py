"""Resume tokens: signed, bound to one wait, and derivable again, so that none is ever stored (W4).

A token says which key signed it, which workspace, run and wait it is for, and proves it. What proves nothing is told
apart without looking anything up.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from bide.core.macs import Mac

LONGEST: Final = 2048
LEAST_SECRET: Final = 16
HOW_TO_MAKE_ONE: Final = """make one with: python -c "import secrets; print('k1:' + secrets.token_hex(32))\""""
_DOMAIN: Final = b"bide resume 1\0"


class BadSecrets(ValueError):
    """Secrets that cannot be used; the message says why, without the secrets."""


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """What a token is for. A callback's wait holds a signal id that only bide gives out."""

    workspace: str
    run_id: str
    signal_id: str


def callback_id(run_id: str, key: str, life: int = 0) -> str:
    """The signal id that the wait of a callback holds. Each life of a run has its own, so that the link of an earlier
    one leads to what it was for. Those of the first were given away without it (law 9).

    >>> callback_id("run_1", "kyc") == callback_id("run_1", "kyc") != callback_id("run_1", "kyc#2")
    True
    >>> callback_id("run_1", "kyc", 0) == callback_id("run_1", "kyc") != callback_id("run_1", "kyc", 1)
    True
    """
    bound = (run_id, key, life) if life else (run_id, key)
    return f"callback:{hashlib.sha256(msgspec.json.encode(bound)).hexdigest()[:40]}"


def parse_secrets(text: str) -> tuple[tuple[str, bytes], ...]:
    """Secrets as they are configured: `id:secret,…`; the first one signs, all of them verify.

    >>> [id for id, _ in parse_secrets("new:0123456789abcdef, old:fedcba9876543210")]
    ['new', 'old']
    """
    found: list[tuple[str, bytes]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        id, separator, secret = part.partition(":")
        if not separator or not id.isascii() or not id.isalnum() or len(id) > 20:
            raise BadSecrets(
                f"write resume secrets as id:secret,… with ids of 1 to 20 letters and digits ({HOW_TO_MAKE_ONE})"
            )
        if len(secret) < LEAST_SECRET:
            raise BadSecrets(f"the resume secret {id!r} is shorter than {LEAST_SECRET} characters ({HOW_TO_MAKE_ONE})")
        found.append((id, secret.encode()))
    if len({id for id, _ in found}) < len(found):
        raise BadSecrets("two resume secrets have the same id")
    return tuple(found)


class Signer:
    """Makes tokens with the first secret and reads those of all.

    >>> signer = Signer([("k1", b"0123456789abcdef")])
    >>> signer.read(signer.mint("default", "run_1", "callback:1")).run_id
    'run_1'
    >>> signer.read("k1.WyJhIiwiYiIsImMiXQ.AAAA") is None
    True
    """

    def __init__(self, secrets: Sequence[tuple[str, bytes]]) -> None:
        self._first = secrets[0][0]
        self._macs = {id: Mac(secret) for id, secret in reversed(secrets)}

    def mint(self, workspace: str, run_id: str, signal_id: str) -> str:
        id = self._first
        body = _text(msgspec.json.encode(Bound(workspace, run_id, signal_id)))
        return f"{id}.{body}.{_signature(self._macs[id], id, body)}"

    def read(self, token: str) -> Bound | None:
        """What a token is for; None where nothing proves it. One writing of it counts, and no other (T02)."""
        if len(token) > LONGEST or not token.isascii() or token.count(".") != 2:
            return None
        id, body, given = token.split(".")
        mac = self._macs.get(id)
        if mac is None or not hmac.compare_digest(given, _signature(mac, id, body)):
            return None
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Bound)
        except (ValueError, msgspec.MsgspecError):
            return None


def _signature(mac: Mac, id: str, body: str) -> str:
    return _text(mac.digest(_DOMAIN + id.encode() + b"." + body.encode()))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
