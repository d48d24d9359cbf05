"""What the details of a wait say of an answer to it: whose it is, what it must look like, how answers are counted."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from bide.core.quorum import Rule
from bide.core.records import Wait


class Asked(Rule, frozen=True, kw_only=True, gc=False):
    """The part of a wait's details that its answers are judged by; the rest is not read (see `agenda.terms`)."""

    channel: str | None = None
    assignee: str | None = None
    group: str | None = None
    notify: str | None = None
    shown: str | None = None  # the digest of what is shown to whoever answers
    schema: msgspec.Raw = msgspec.Raw()  # as it is written; empty: any answer will do


class Told(msgspec.Struct, frozen=True, gc=False):
    """The part of a wait's details that the ledger tells, as it is written; empty: there is none of it."""

    channel: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()


# Details of one step of a definition are mostly the same, so they are remembered; long ones would take too much memory.
KNOWN, LONGEST_KNOWN = 256, 4096

_read_asked: Final = msgspec.json.Decoder(Asked).decode
_read_told: Final = msgspec.json.Decoder(Told).decode
_known_asked: Final = lru_cache(KNOWN)(_read_asked)
_known_told: Final = lru_cache(KNOWN)(_read_told)


def told_of(wait: Wait) -> dict[str, msgspec.Raw]:
    """What the ledger tells of the details of a wait (G3)."""
    told = (_known_told if len(wait.details) <= LONGEST_KNOWN else _read_told)(wait.details)
    found = {"channel": told.channel, "schema": told.schema}
    return {name: raw for name, raw in found.items() if bytes(raw)}


def asked_in(wait: Wait) -> Asked:
    """What a wait asks for.

    >>> from datetime import UTC, datetime
    >>> details = '{"title": "Well?", "group": "leads", "schema": {"type": "boolean"}}'
    >>> opened_at = datetime(2030, 1, 1, tzinfo=UTC)
    >>> wait = Wait(workspace="w", run_id="run_1", no=1, key="gate", kind="task", status="waiting",
    ...             opened_at=opened_at, details=details)
    >>> asked_in(wait).group, bytes(asked_in(wait).schema), asked_in(wait).quorum
    ('leads', b'{"type": "boolean"}', 1)
    """
    return (_known_asked if len(wait.details) <= LONGEST_KNOWN else _read_asked)(wait.details)
