"""The store's URL: where the server is, which schema holds the tables, and whether a pooler stands in between."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from bide.errors import BadConfiguration

SCHEMES = ("postgresql", "postgres")
SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(msgspec.Struct, frozen=True):
    dsn: str  # as the driver takes it
    schema: str
    has_pooler: bool  # asked for by `pooler=1`
    shown: str  # host:port/database, without user and password


def parse(url: str) -> Address:
    """Take our own parameters out of a URL such as `postgresql://user:pw@host:5432/db?schema=bide&pooler=1`."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        is_one = "," not in hosts  # of several, the driver takes the first that serves
        port = parts.port or 5432 if is_one else 0
    except ValueError as error:
        raise BadConfiguration(f"this is not a store URL: {error}") from error
    if parts.scheme not in SCHEMES:
        raise BadConfiguration(f"a PostgreSQL store URL starts with postgresql://, not with {parts.scheme!r}")
    parameters = parse_qsl(parts.query)
    own = {name: value for name, value in parameters if name in ("schema", "pooler")}
    schema = own.get("schema", "bide")
    if SCHEMA_NAME.fullmatch(schema) is None:
        raise BadConfiguration(f"schema {schema!r} cannot be used: take lower-case letters, digits and underscores")
    query = urlencode([(name, value) for name, value in parameters if name not in own])
    host = f"{parts.hostname or dict(parameters).get('host', 'localhost')}:{port}" if is_one else hosts
    return Address(
        dsn=parts._replace(query=query).geturl(),
        schema=schema,
        has_pooler=own.get("pooler", "0") not in ("", "0", "no", "false"),
        shown=f"{host}{parts.path or '/'}",
    )
