"""Where a request may go: to public addresses, unless somebody who may say so allows others (T57)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from bide.engine.settings import names_of
from bide.errors import BadConfiguration

# The last 32 bits of these are an IPv4 address that the request would end at: NAT64, and the old compatible form.
_CARRYING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class RefusedAddress(Exception):
    """The name leads to an address that requests may not go to."""


class Target(NamedTuple):
    """A URL with the address that its name led to. The request goes there, whatever the name leads to next."""

    url: str
    host: str  # the value of the header, with the port where it is not the usual one
    name: str
    address: str


def check_url(url: str) -> str:
    """The URL, if requests can go there; raises `BadConfiguration`.

    >>> check_url("https://pay.example/requests")
    'https://pay.example/requests'
    """
    if any(character <= " " or character == "\x7f" for character in url):
        raise BadConfiguration(f"webhook URL {url!r} cannot be used: it has a space or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadConfiguration(f"webhook URL {url!r} cannot be read: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadConfiguration(f"webhook URL {url!r} cannot be used: write https://host/path")
    if parts.username is not None or parts.password is not None:
        raise BadConfiguration("a webhook URL carries no user and password; give them as headers=")
    return url


def is_public(address: Address) -> bool:
    """
    >>> is_public(ipaddress.ip_address("10.1.2.3")), is_public(ipaddress.ip_address("1.1.1.1"))
    (False, True)
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    carried = _carried(address)
    if carried is not None:
        return is_public(carried)
    return address.is_global and not address.is_multicast and not address.is_site_local


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that another one only wraps."""
    if any(address in network for network in _CARRYING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def is_listed(name: str, listed: str) -> bool:
    """Whether a setting that lists names, such as `private_hosts`, has this one.

    >>> is_listed("pay.shop.internal", "localhost, *.shop.internal"), is_listed("shop.internal", "*.shop.internal")
    (True, False)
    """
    names = names_of(listed)
    ends = tuple(each.removeprefix("*") for each in names if each.startswith("*."))
    return "*" in names or name in names or name.endswith(ends or ("\0",))


async def find(url: str, *, allow_private: bool) -> Target:
    """Look the name up; raises `RefusedAddress`, or `OSError` where it leads nowhere."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not addresses:
        raise OSError(f"{name} has no address")
    if not allow_private:
        refused = [address for address in addresses if not is_public(ipaddress.ip_address(address))]
        if refused:
            raise RefusedAddress(f"{name} leads to {refused[0]}, which is no public address")
    address = addresses[0]
    literal = f"[{address}]" if ":" in address else address
    shown = f"[{name}]" if ":" in name else name
    pinned = parts._replace(netloc=f"{literal}:{port}").geturl()
    return Target(pinned, f"{shown}:{parts.port}" if parts.port else shown, name, address)
