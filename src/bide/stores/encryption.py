"""The codec that bide brings along: AES-256-GCM under keys that have ids, so that they can be changed."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping

from bide.errors import BadConfiguration

KEY_BYTES = 32
NONCE_BYTES = 12
PLAIN = "plain"
HOW = 'write payload keys as id:key,… with keys made by: python -c "import bide; print(bide.AesGcm.new_key())"'


class AesGcm:
    """Encrypts payloads at rest with AES-256-GCM. The first key encrypts, all of them decrypt.

    Each text is encrypted under a key of its own, derived from the one given and from where the text stands: no number
    of rows wears a key out, and what is moved to another row does not open. With *encrypts* False only what is
    encrypted already is opened, and new data stays plain.

    >>> codec = AesGcm({"2026": AesGcm.new_key()})
    >>> key_id, sealed = codec.encode(b"4111", b"runs run_1 input")
    >>> key_id, b"4111" in sealed, codec.decode(key_id, sealed, b"runs run_1 input")
    ('2026', False, b'4111')
    """

    def __init__(self, keys: Mapping[str, str | bytes], *, encrypts: bool = True) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            raise BadConfiguration(
                "payload keys need a package that is not installed; install it with: pip install 'bide[encryption]'"
            ) from error
        if not keys:
            raise BadConfiguration(f"there is no payload key; {HOW}")
        self._keys = {_checked_id(id): _key(id, key) for id, key in keys.items()}
        self._first = next(iter(self._keys)) if encrypts else None
        self._cipher = AESGCM
        self._does_not_fit = InvalidTag

    @staticmethod
    def new_key() -> str:
        """A new random key, as text.

        >>> len(AesGcm.new_key())
        44
        """
        from base64 import b64encode

        return b64encode(os.urandom(KEY_BYTES)).decode()

    @classmethod
    def parse(cls, text: str) -> AesGcm:
        """Keys as they are configured: `id:key,…`; the first encrypts. `plain,id:key,…` only decrypts.

        >>> AesGcm.parse(f"b:{AesGcm.new_key()},a:{AesGcm.new_key()}").key_ids
        ('b', 'a')
        """
        parts = [part for part in (part.strip() for part in text.split(",")) if part]
        encrypts = parts[:1] != [PLAIN]
        keys: dict[str, str | bytes] = {}
        for part in parts if encrypts else parts[1:]:
            id, separator, key = part.partition(":")
            if not separator:
                raise BadConfiguration(f"a payload key has no id; {HOW}")
            if id in keys:
                raise BadConfiguration(f"two payload keys have the id {id!r}; each needs its own")
            keys[id] = key
        return cls(keys, encrypts=encrypts)

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def __repr__(self) -> str:
        return f"AesGcm({', '.join(self._keys)})"  # never the keys

    def encode(self, data: bytes, context: bytes) -> tuple[str, bytes] | None:
        if self._first is None:
            return None
        nonce = os.urandom(NONCE_BYTES)
        return self._first, nonce + self._cipher(self._derived(self._first, context)).encrypt(nonce, data, context)

    def decode(self, key_id: str, data: bytes, context: bytes) -> bytes:
        cipher = self._cipher(self._derived(key_id, context))
        try:
            return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context)
        except self._does_not_fit as error:
            raise ValueError("it was changed, or belongs elsewhere, or the key is another") from error

    def _derived(self, key_id: str, context: bytes) -> bytes:
        return hmac.digest(self._keys[key_id], context, "sha256")


def _checked_id(id: str) -> str:
    if not id.isascii() or not id.isalnum() or len(id) > 20 or id == PLAIN:
        raise BadConfiguration(f"a payload key cannot have the id {id!r}; use 1 to 20 letters and digits")
    return id


def _key(id: str, key: str | bytes) -> bytes:
    try:
        found = key if isinstance(key, bytes) else b64decode(key, validate=True)
    except (BadBase64, ValueError) as error:
        raise BadConfiguration(f"the payload key {id!r} is not base64; {HOW}") from error
    if len(found) != KEY_BYTES:
        raise BadConfiguration(f"the payload key {id!r} has {len(found)} bytes, not {KEY_BYTES}; {HOW}")
    return found
