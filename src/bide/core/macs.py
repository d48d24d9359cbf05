"""HMAC-SHA-256 under a key that is used often."""

from __future__ import annotations

import hmac


class Mac:
    """The key is prepared once. Unlike `hmac.digest` it keeps the interpreter's lock over short texts: a thread that
    lets go of it twenty thousand times has to wait for the others as often.

    >>> Mac(b"key").digest(b"text") == hmac.digest(b"key", b"text", "sha256")
    True
    """

    __slots__ = ("_prepared",)

    def __init__(self, key: bytes) -> None:
        self._prepared = hmac.new(key, digestmod="sha256")

    def digest(self, text: bytes) -> bytes:
        mac = self._prepared.copy()
        mac.update(text)
        return mac.digest()
