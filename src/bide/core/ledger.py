"""The ledger: what happened to a run, each entry chained to the one before it by a hash (G2)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from bide.core.redaction import covered_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGEST_DIGITS = 16  # room in the store counts; whoever tries to meet one has 2 ** 64 to try
ENDS = frozenset({"run_completed", "run_stopped", "run_failed", "run_cancelled"})
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


class Bare(msgspec.Struct, frozen=True, gc=False):
    """A stored entry as it is written where its hash is kept apart."""

    seq: int
    at: int
    name: str
    actor: str
    data: msgspec.Raw
    hash: str = ""


class LedgerKey(NamedTuple):
    """What the ends of ledgers are signed with: the id of a secret, and the secret."""

    id: str
    secret: str


class Kept(NamedTuple):
    """What the rows of a run keep of payloads that its ledger has digests of."""

    input: str
    result: str | None
    error: str | None
    redact: str | None
    steps: Sequence[tuple[str, str | None]] = ()  # the ids and results of steps that are done


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


def signature(
    key: LedgerKey, run_id: str, head: str, seq: int, at: datetime, name: str, actor: str, data: Mapping[str, Any]
) -> str:
    """Of a run's last entry, and with the head before it of all others: who has not the secret cannot write another
    end, and cannot leave out what stands before it."""
    signed = _encode((run_id, head, seq, _microseconds(at), name, actor, data))
    return f"{key.id}:{hmac.digest(key.secret.encode(), signed, 'sha256').hex()}"


def unsigned(run_id: str, entries: Sequence[Entry], secrets: Mapping[str, str]) -> Broken | None:
    """Why the end of an ended run is not proven by any of these secrets; None where it is."""
    at = next((at for at in reversed(range(len(entries))) if entries[at].name in ENDS), None)
    if at is None:
        return None
    end, data = entries[at], dict(entries[at].data)
    said = data.pop("signed", None)
    if said is None:
        return Broken(end.seq, f"entry {end.seq} is not signed: it was written without a secret, or by somebody else")
    id = str(said).partition(":")[0]
    secret = secrets.get(id)
    if secret is None:
        return Broken(end.seq, f"entry {end.seq} is signed with the secret {id!r}, which is not configured")
    head = entries[at - 1].hash if at else ""
    good = signature(LedgerKey(id, secret), run_id, head, end.seq, end.at, end.name, end.actor, data)
    if hmac.compare_digest(good.encode(), str(said).encode()):
        return None
    return Broken(end.seq, f"the signature of entry {end.seq} is not of this ledger: it was cut, or written anew")


def _hash(head: str, seq: int, at_us: int, name: str, actor: str, data: msgspec.Raw) -> str:
    return sha256(_encode((head, seq, at_us, name, actor, data))).hexdigest()


def encode_page(entries: Iterable[Stored]) -> str:
    return _encode(list(entries)).decode()


def encode_bare(entries: Iterable[Stored]) -> bytes:
    """A page with nothing where the hashes belong."""
    return _encode([Bare(entry.seq, entry.at, entry.name, entry.actor, entry.data) for entry in entries])


def decode_page(text: str) -> list[Entry]:
    """Raises `msgspec.MsgspecError` where the text is not a page any more."""
    return _pages.decode(text)


def decode_stored(text: str) -> list[Stored]:
    """The entries of a page, each with its data in the very bytes that were hashed."""
    return _stored.decode(text)


def payload_digest(redact: str | None, *texts: str | None) -> str:
    """A digest of JSON texts for the ledger, without what the run hides: it could be found by trying (G4).

    >>> payload_digest("pin", '{"pin":"1234"}') == payload_digest("pin", '{"pin":"9876"}')
    True
    """
    shown = [covered_text(text, redact) for text in texts] if redact else texts
    return sha256(_encode(shown)).hexdigest()[:DIGEST_DIGITS]


def flaw(pages: Sequence[tuple[int, str]], head: str, seq: int, status: str, kept: Kept | None = None) -> Broken | None:
    """What is wrong with a run's ledger: its chain does not hold, it tells of another status, or of other payloads than
    are *kept* (G2, law 16)."""
    broken = verify(pages, head, seq)
    if broken is not None:
        return broken
    entries = [entry for _, text in pages for entry in decode_page(text)]
    told = replayed_status(entries)
    if told != status:
        return Broken(seq, f"the run is {status}, its ledger tells of {told}")
    return _other_payload(entries, kept) if kept is not None else None


def _other_payload(entries: Sequence[Entry], kept: Kept) -> Broken | None:
    """The first payload that is not the one that the ledger tells of. Entries of earlier versions have no digests, and
    a retried run has steps of the one before it."""
    steps = {entry.data["step"]: entry for entry in entries if entry.name == "step_completed"}
    for key, result in kept.steps:
        entry = steps.get(key)
        if entry is not None and entry.data.get("digest") not in (None, payload_digest(kept.redact, result)):
            return Broken(entry.seq, f"the result of step {key} is not the one that entry {entry.seq} tells of")
    end = next((entry for entry in reversed(entries) if entry.name in ENDS), None)
    if end is None or end.data.get("digest") in (None, end_digest(kept)):
        return None
    return Broken(end.seq, f"input, result or error are not those that entry {end.seq} tells of")


def end_digest(kept: Kept) -> str:
    """Of what a run was given and came to, for the entry of its end."""
    return payload_digest(kept.redact, kept.input, kept.result, kept.error)


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
