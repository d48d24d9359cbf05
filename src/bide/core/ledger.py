"""The ledger: what happened to a run, each entry chained to the one before it by a hash (G2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# What is told of every wait of every style, from its opening to its end (G3). Other programs read these names.
AWAIT_LIFECYCLE = (
    "await_interaction_dispatched",
    "await_unit_dispatch_complete",
    "await_execution_waiting",
    "await_unit_item_completed",
    "await_unit_completed",
    "await_resume_released",
    "await_unit_terminal",
)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened. `prev` is the hash of the entry before it, empty for the first."""

    seq: int
    at_us: int = msgspec.field(name="at")
    name: str
    actor: str
    data: dict[str, Any]
    hash: str

    @property
    def at(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.at_us)


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An entry with its data in the very bytes that the hash covers."""

    seq: int
    at: int
    name: str
    actor: str
    data: msgspec.Raw
    hash: str


class Broken(msgspec.Struct, frozen=True):
    """The first entry of a chain that does not hold, and why."""

    seq: int
    reason: str


_encode = msgspec.json.Encoder().encode
_pages = msgspec.json.Decoder(list[Entry])
_stored = msgspec.json.Decoder(list[Stored])


def append(head: str, seq: int, at: datetime, name: str, actor: str, data: Mapping[str, Any]) -> Stored:
    """The entry that follows *head*; its hash is the new head."""
    at_us = _microseconds(at)
    raw = msgspec.Raw(_encode(data))
    return Stored(seq, at_us, name, actor, raw, _hash(head, seq, at_us, name, actor, raw))


@lru_cache(maxsize=8)  # all entries of a batch are of one moment
def _microseconds(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def _hash(head: str, seq: int, at_us: int, name: str, actor: str, data: msgspec.Raw) -> str:
    return sha256(_encode((head, seq, at_us, name, actor, data))).hexdigest()


def encode_page(entries: Iterable[Stored]) -> str:
    return _encode(list(entries)).decode()


def decode_page(text: str) -> list[Entry]:
    """Raises `msgspec.MsgspecError` where the text is not a page any more."""
    return _pages.decode(text)


def decode_stored(text: str) -> list[Stored]:
    """The entries of a page, each with its data in the very bytes that were hashed."""
    return _stored.decode(text)


def flaw(pages: Sequence[tuple[int, str]], head: str, seq: int, status: str) -> Broken | None:
    """What is wrong with a run's ledger: its chain does not hold, or tells of another status (G2, law 16)."""
    broken = verify(pages, head, seq)
    if broken is not None:
        return broken
    told = replayed_status(entry for _, text in pages for entry in decode_page(text))
    return None if told == status else Broken(seq, f"the run is {status}, its ledger tells of {told}")


def verify(pages: Iterable[tuple[int, str]], head: str, seq: int) -> Broken | None:
    """Check a run's whole chain against the head kept in its run row; None: nothing was changed or removed.

    *pages* come by the number of their first entry. What is wrong is told of the first entry that is not as it was.
    """
    previous, expected = "", 1
    for first, text in pages:
        if first > expected:
            return Broken(expected, f"entry {expected} is missing")
        if first < expected:
            return Broken(first, f"entry {first} is there twice")
        try:
            entries = _stored.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Broken(expected, f"the page of entry {expected} cannot be read")
        if not entries:
            return Broken(expected, f"the page of entry {expected} is empty")
        for entry in entries:
            if entry.seq != expected:
                return Broken(expected, f"entry {expected} is missing")
            if entry.hash != _hash(previous, entry.seq, entry.at, entry.name, entry.actor, entry.data):
                return Broken(entry.seq, f"entry {entry.seq} was changed")
            previous, expected = entry.hash, expected + 1
        if encode_page(entries) != text:  # the same values in another spelling
            return Broken(first, f"the page of entry {first} is not as it was written")
    if expected - 1 != seq:
        return Broken(min(expected, seq + 1), f"the ledger ends at entry {expected - 1}, the run says {seq}")
    if previous != head:
        return Broken(seq, f"the hash of entry {seq} is not the head that the run row keeps")
    return None


def replayed_status(entries: Iterable[Entry]) -> str | None:
    """The run status that the ledger tells of (law 16)."""
    status = None
    for entry in entries:
        status = entry.data.get("to", status)
    return status
