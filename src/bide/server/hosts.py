"""What this server is called: requests for another name are turned away (T14), and https is not left again (T15)."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import Scope

from bide.engine.settings import LOOPBACK, Settings, names_of
from bide.server.bodies import header
from bide.server.problems import Refusal

ANY: Final = "*"
ONLY_HTTPS: Final = (b"strict-transport-security", b"max-age=31536000")


def host_of(value: str) -> str:
    """The name in a Host header, without its port.

    >>> host_of("Shop.Example.:8443"), host_of("[::1]:80"), host_of("")
    ('shop.example', '::1', '')
    """
    try:
        return (urlsplit(f"//{value}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def check_host(scope: Scope) -> None:
    """Raise where it is not clear whom the request is for (RFC 9112, 3.2): proxies and we might read it differently."""
    if header(scope, b"host") is None and scope.get("http_version") == "1.1":
        raise Refusal(400, "no_host", "a request of HTTP/1.1 has a Host header; this one has none")


class Site:
    """The names of a server, as it is configured."""

    def __init__(self, settings: Settings) -> None:
        names = names_of(settings.allowed_hosts)
        public = urlsplit(settings.public_url)
        self._is_open = not names or ANY in names
        self._names = frozenset({*names, *LOOPBACK, public.hostname or ""}) - {""}
        self._ends = tuple(name.removeprefix(ANY) for name in names if name.startswith("*."))
        self._is_https = public.scheme == "https"

    def check(self, scope: Scope) -> None:
        """Raise where the request is for somebody else; a proxy may have let anything through."""
        if self._is_open:
            return
        asked = host_of(header(scope, b"host") or "")
        if asked not in self._names and not asked.endswith(self._ends or ("\0",)):
            raise Refusal(421, "unknown_host", "this server is not called that; its operator can add to allowed_hosts")

    def mark(self, response: Response) -> None:
        """Tell browsers that came over https to come over nothing else."""
        if self._is_https:
            response.raw_headers.append(ONLY_HTTPS)
