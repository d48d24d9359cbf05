"""Who may do what: workspaces, their keys, and the scopes of a key (G5). Of a key only the hash is stored."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Final

from bide.core.records import Record

PREFIX: Final = "bide_ws_"
SECRET_BYTES: Final = 32
_SECRET_LETTERS: Final = 43  # 32 bytes as base64 without padding

SCOPES: Final = (
    "runs:start",
    "signals:send",
    "interactions:answer",
    "interactions:answer_as",
    "events:emit",
    "runs:read",
    "runs:cancel",
    "waits:operate",
    "admin",
)


class Workspace(Record, frozen=True, gc=False):
    """A tenant. `default` is there without a row."""

    name: str
    created_at: datetime


class Validity(Record, frozen=True, gc=False):
    """What the commit of a command that was sent with a key sees of that key."""

    hash: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Key(Record, frozen=True, gc=False):
    """What is known of a key: everything but the key."""

    id: str
    workspace: str
    hash: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    rate: int | None = None  # requests per second; None: as many as it likes

    def is_good(self, now: datetime) -> bool:
        return Validity(self.hash, self.expires_at, self.revoked_at).is_good(now)

    def may(self, scope: str) -> bool:
        """`admin` may do everything in its workspace, but answer in another's name only if it says so too."""
        return scope in self.scopes or ("admin" in self.scopes and scope != "interactions:answer_as")


class Secret(Record, frozen=True, gc=False):
    """A secret that resume tokens are signed with, where none was configured (W4)."""

    id: str
    secret: str
    created_at: datetime


def new_key(random: bytes) -> str:
    """The text of a key made from random bytes; shown once.

    >>> new_key(bytes(32))
    'bide_ws_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    assert len(random) == SECRET_BYTES, "a key has 256 random bits"
    return PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("=")


def looks_like_key(text: str) -> bool:
    """Whether it has the form of a key; what has not is refused before anything is looked up."""
    return text.startswith(PREFIX) and len(text) == len(PREFIX) + _SECRET_LETTERS and text.isascii()


def key_hash(text: str) -> str:
    """What a key is found by. It has 256 random bits, so a plain hash gives nothing away."""
    return sha256(text.encode()).hexdigest()


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """Those that are no scopes.

    >>> unknown_scopes(["admin", "root"])
    ['root']
    """
    return [scope for scope in scopes if scope not in SCOPES]
