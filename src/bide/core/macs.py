"""HMAC-SHA-256 under a key that is used often."""

from __future__ import annotations

from hashlib import sha256

_BLOCK = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Mac:
    """The key is prepared once. Unlike `hmac.digest` it keeps the interpreter's lock over short texts: a thread that
    lets go of it twenty thousand times has to wait for the others as often.

    >>> import hmac
    >>> Mac(b"key").digest(b"text") == hmac.digest(b"key", b"text", "sha256")
    True
    >>> Mac(b"k" * 100).digest(b"") == hmac.digest(b"k" * 100, b"", "sha256")
    True
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def digest(self, text: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()
