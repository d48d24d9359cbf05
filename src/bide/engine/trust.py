"""Whose certificates count where bide calls out over TLS."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def trust(url: str, *, from_environment: bool = True) -> ssl.SSLContext | bool:
    """What httpx takes as `verify` for requests to *url* that follow no redirect: the same that it would make itself.

    It would make one for every client, also where there is no TLS. To read the certificates takes tens of milliseconds,
    and nothing else happens in the process meanwhile: they are read when they are needed first.
    """
    if url.startswith("http://"):
        return False
    places = tuple(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")) if from_environment else ()
    return _read(from_environment, places)


@lru_cache(maxsize=8)
def _read(from_environment: bool, places: tuple[str | None, ...]) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context(trust_env=from_environment)
