"""Who sends, as far as an address tells: what is counted for each of them (T01, T42)."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Final

from starlette.types import Scope

UNKNOWN: Final = "unknown"
OWN_BITS: Final = 64  # of an IPv6 address: whoever has one has all that begin with the same


def sender(address: str | None) -> str:
    """An address, or the network of one where a single host has a whole one to itself.

    >>> sender("203.0.113.9"), sender("2001:db8:1:2:3:4:5:6"), sender("::ffff:203.0.113.9"), sender(None)
    ('203.0.113.9', '2001:db8:1:2::', '203.0.113.9', 'unknown')
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, OWN_BITS), strict=False).network_address)


def sender_of(scope: Scope) -> str:
    """Who is at the other end of the connection; behind a proxy that is the proxy."""
    client = scope.get("client")
    return sender(client[0] if client else None)


class Door:
    """Counts the connections of each sender. It remembers nobody who has none."""

    def __init__(self, most: int) -> None:
        self._most = most  # 0 for any number
        self._inside: Counter[str] = Counter()

    def enter(self, who: str) -> bool:
        """Let one more in, if there is room; then `leave` is called for it."""
        if self._most and self._inside[who] >= self._most:
            return False
        self._inside[who] += 1
        return True

    def leave(self, who: str) -> None:
        self._inside[who] -= 1
        if not self._inside[who]:
            del self._inside[who]
