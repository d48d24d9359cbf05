"""Matching: which wait a message is for, and under which names its dedup key is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from bide.core.commands import Deliver
from bide.core.records import OPEN_WAIT, Signal, Wait

RESERVED_PREFIXES = ("run_", "wait_", "int_")


def is_reserved(key: str) -> bool:
    """Whether a correlation key or signal id looks like an id of bide's own, which it may not (S2)."""
    return key.startswith(RESERVED_PREFIXES)


def takes(wait: Wait, signal: Signal) -> bool:
    """Whether this signal wakes that wait: its name is awaited (S3, S4), and it is new to the parking step (S6)."""
    return wait.kind in ("signals", "receive") and signal.name in wait.names and signal.seq not in wait.seen


def counts_a_pack(wait: Wait) -> bool:
    """Whether it takes several signals together, so that those that came before count."""
    return wait.kind == "receive" and wait.expected > 1 and wait.status in OPEN_WAIT


def dedup_names(command: Deliver, correlation_key: str | None) -> Iterator[str]:
    """The scopes a dedup key is remembered in (S7): the run's, and the correlation key's, where each is known.

    Hashed, because keys are of any length and index entries are not.
    """
    if command.run_id is not None:
        yield _scoped("run", command.run_id, command)
    key = command.target if command.by_correlation else correlation_key
    if key is not None:
        yield _scoped("correlation", key, command)


def dedup_name(command: Deliver) -> str:
    """The scope a dedup key is asked for in (S7): that of the address. A run's id means no other run of its key."""
    return _scoped("correlation" if command.by_correlation else "run", command.target, command)


def _scoped(scope: str, holder: str, command: Deliver) -> str:
    parts = msgspec.json.encode((scope, holder, command.name, command.dedup_key))
    return hashlib.sha256(parts).hexdigest()[:40]
