"""Users' data at rest: sealed by a codec when a row is written, opened when it is read (G4).

What is sealed, of which record, is the table `SEALED`. A sealed text is `bide:sealed:<key id>:<base64>`, so it is never
taken for JSON, and rows that were written before a codec was in use stay readable. Each text is bound to its table,
row and column: it cannot be opened anywhere else.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.records import (
    Chore,
    DeadLetter,
    EventRow,
    Interaction,
    Item,
    LedgerPage,
    Listener,
    Name,
    Record,
    Run,
    Signal,
    StepRow,
    Unused,
    Wait,
)
from bide.errors import BadConfiguration, PayloadUnreadable
from bide.stores.pages import SEALED_PAGE

R = TypeVar("R", bound=Record)
T = TypeVar("T")

PREFIX = "bide:sealed:"
EMPTY = frozenset({"", "null", "{}", "[]"})  # there is nothing in them to hide
PROOF = "bide"


class Codec(Protocol):
    """What seals payloads. `bide.AesGcm` is one; another may ask a key service.

    It is called from several threads, for every row, and must be quick.

    >>> class Backwards:
    ...     def encode(self, data, context):
    ...         return "k1", data[::-1]
    ...     def decode(self, key_id, data, context):
    ...         return data[::-1]
    """

    def encode(self, data: bytes, context: bytes) -> tuple[str, bytes] | None:
        """The id of the key that was used, of letters and digits, and the sealed data; None to leave it as it is.

        What is sealed for one *context* must not open in another.
        """
        ...

    def decode(self, key_id: str, data: bytes, context: bytes) -> bytes:
        """The data again. Raises `KeyError` where there is no such key, `ValueError` where the data does not fit it."""
        ...


class Place(NamedTuple):
    """Where sealed data is: its table, the fields that name a row, and the fields that are sealed."""

    table: str
    identity: tuple[str, ...]
    fields: tuple[str, ...]


# Ids, names, keys that are looked up, tags, principals, times and counts stay as they are: statements ask for them.
SEALED: dict[type[Record], Place] = {
    Run: Place("runs", ("id",), ("state", "input", "result", "error", "cancel_reason")),
    Wait: Place("waits", ("run_id", "no"), ("cause", "details")),
    Interaction: Place("interactions", ("run_id", "no", "item"), ("payload", "answers", "answer", "digest")),
    Item: Place("items", ("run_id", "section", "item"), ("value", "error")),
    Signal: Place("inbox", ("run_id", "seq"), ("payload",)),
    Name: Place("names", ("workspace", "kind", "name"), ("digest", "message_id")),
    EventRow: Place("events", ("workspace", "seq"), ("data", "digest")),
    Listener: Place("event_waits", ("run_id", "no"), ("match",)),
    StepRow: Place("steps", ("run_id", "key"), ("result", "error")),
    LedgerPage: Place("ledger", ("run_id", "seq"), ("entries",)),
    Chore: Place("chores", ("id",), ("data",)),
    DeadLetter: Place("dead_letters", ("workspace", "id"), ("data", "error")),
    Unused: Place("unused", ("workspace", "id"), ("payload", "reason")),
}

# Of the details of a wait, statements ask for these; they stand beside the sealed whole.
_ASKED_FOR = ("channel", "assignee", "group")
_WHOLE = '{"bide:sealed":"'
_MARKS = PREFIX, _WHOLE + PREFIX


class Sealing:
    """Seals and opens records with a codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def writing(self, write: Callable[[R], T], *, fixed: Collection[str] = ()) -> Callable[[R], T]:
        """*write*, of sealed records. Fields that are *fixed* it does not write."""
        return lambda record: write(self.seal(record, fixed))

    def reading(self, read: Callable[[Any], R]) -> Callable[[Any], R]:
        """*read*, and what was read opened."""
        return lambda row: self.open(read(row))

    def seal(self, record: R, fixed: Collection[str] = ()) -> R:
        place = SEALED.get(type(record))
        if place is None:
            return record
        row = _row(place, [getattr(record, name) for name in place.identity])
        names = [name for name in place.fields if name not in fixed]
        return replace(record, **{name: self.seal_field(row, name, getattr(record, name)) for name in names})

    def open(self, record: R) -> R:
        place = SEALED.get(type(record))
        if place is None:
            return record
        row = _row(place, [getattr(record, name) for name in place.identity])
        changes = {}
        for name in place.fields:
            text = getattr(record, name)
            if text is not None and text.startswith(_MARKS[name == "details"]):
                changes[name] = self.open_text(row, name, text)
        return replace(record, **changes) if changes else record

    def seal_columns(self, record: type[Record], names: Sequence[str], columns: list[Sequence[Any]]) -> None:
        """Seal columns in place. *names* says which field each is of."""
        place = SEALED[record]
        identities = zip(*(columns[names.index(name)] for name in place.identity), strict=True)
        rows = [_row(place, identity) for identity in identities]
        for name in place.fields:
            if name in names:
                at = names.index(name)
                pairs = zip(rows, columns[at], strict=True)
                columns[at] = [self.seal_field(row, name, text) for row, text in pairs]

    def seal_field(self, row: str, name: str, text: str | None) -> str | None:
        if text is None or text in EMPTY:
            return text
        sealed = self.seal_text(row, name, text)
        if name != "details" or sealed == text:
            return sealed
        asked_for = {key: value for key, value in _object(text).items() if key in _ASKED_FOR}
        return msgspec.json.encode({"bide:sealed": sealed, **asked_for}).decode()

    def seal_text(self, row: str, name: str, text: str) -> str:
        """A text of *row*, sealed; as it is where the codec says so."""
        encoded = self._codec.encode(text.encode(), _context(row, name))
        if encoded is None:
            return text
        return f"{PREFIX}{encoded[0]}:{b64encode(encoded[1]).decode()}"

    def open_text(self, row: str, name: str, text: str) -> str:
        """The text again. Raises `PayloadUnreadable`."""
        if text.startswith(_WHOLE):
            text = text[len(_WHOLE) :].partition('"')[0]
        if not text.startswith(PREFIX):
            return text
        key_id, _, data = text[len(PREFIX) :].partition(":")
        return self._decode(key_id, lambda: b64decode(data, validate=True), row, name).decode()

    def open_of(self, record: type[Record], identity: Iterable[Any], name: str, text: str) -> str:
        """One field of a row, by what names the row. Raises `PayloadUnreadable`."""
        return self.open_text(_row(SEALED[record], identity), name, text)

    def seal_page(self, run_id: str, seq: int, packed: bytes) -> bytes:
        """A packed page of a ledger, sealed."""
        row = _row(SEALED[LedgerPage], (run_id, seq))
        encoded = self._codec.encode(packed, _context(row, "entries"))
        return packed if encoded is None else page_prefix(encoded[0]) + encoded[1]

    def open_page(self, run_id: str, seq: int, page: bytes) -> bytes:
        """The packed page again. Raises `PayloadUnreadable`."""
        if page[:1] != SEALED_PAGE:
            return page
        key_id, _, data = page[1:].partition(b":")
        row = _row(SEALED[LedgerPage], (run_id, seq))
        return self._decode(key_id.decode("ascii", "replace"), lambda: data, row, "entries")

    def _decode(self, key_id: str, data: Callable[[], bytes], row: str, name: str) -> bytes:
        try:
            return self._codec.decode(key_id, data(), _context(row, name))
        except KeyError as error:
            raise PayloadUnreadable(f"{name} of {row}", key_id, is_missing=True, run_id=_run_of(row)) from error
        except ValueError as error:
            raise PayloadUnreadable(f"{name} of {row}", key_id, run_id=_run_of(row)) from error

    # -- the keys that a store was sealed with

    def proof(self) -> tuple[str, str] | None:
        """The id of the key in use, and a text that only it opens; None where nothing is sealed."""
        text = self.seal_text("sealing_keys", "proof", PROOF)
        return (text[len(PREFIX) :].partition(":")[0], text) if text != PROOF else None

    def lacks(self, key_id: str, proof: str) -> bool:
        """Whether a key that the store was sealed with is missing. Raises `BadConfiguration` where it is another."""
        try:
            return self.open_text("sealing_keys", "proof", proof) != PROOF
        except PayloadUnreadable as error:
            if error.is_missing:
                return True
            raise BadConfiguration(
                f"the payload key {key_id!r} is not the one that this store was sealed with under that id; "
                "give the right one, or another id"
            ) from error


def check_keys(sealing: Sealing | None, known: Iterable[tuple[str, str]]) -> list[str]:
    """The ids of keys that the store was sealed with and that are not given. *known* has ids and proofs.

    Raises `BadConfiguration` where there is no codec at all, or a key is another than the one that was used.
    """
    found = list(known)
    if found and sealing is None:
        raise BadConfiguration(
            f"the payloads of this store are encrypted under {_named(id for id, _ in found)}; "
            "give the keys as BIDE_PAYLOAD_KEYS, or the codec to bide.App"
        )
    return [id for id, proof in found if sealing is not None and sealing.lacks(id, proof)]


def still_needed(key_id: str) -> BadConfiguration:
    return BadConfiguration(
        f"the store has payloads that are encrypted under the key {key_id!r}, which is not given; "
        "add it behind the first of BIDE_PAYLOAD_KEYS"
    )


def text_patterns(key_id: str) -> tuple[str, str]:
    """What LIKE finds: texts, and details of waits, that are sealed under a key."""
    return f"{PREFIX}{key_id}:%", f"{_WHOLE}{PREFIX}{key_id}:%"


def page_prefix(key_id: str) -> bytes:
    return SEALED_PAGE + key_id.encode() + b":"


def intake_row(id: str) -> str:
    return f"intake {id}"


def _row(place: Place, identity: Iterable[Any]) -> str:
    """
    >>> _row(SEALED[Signal], ("run_1", 2))
    'inbox run_1/2'
    """
    return f"{place.table} {'/'.join(map(_part, identity))}"


def _part(value: Any) -> str:
    """A part of a row's name that no other value has."""
    text = str(value)
    return text.replace("%", "%25").replace("/", "%2F") if "/" in text or "%" in text else text


def _run_of(row: str) -> str:
    """The run that a row belongs to, or something that is no run.

    >>> _run_of("inbox run_1/2")
    'run_1'
    """
    return row.partition(" ")[2].partition("/")[0]


def _context(row: str, name: str) -> bytes:
    return f"{row} {name}".encode()


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}  # nobody asks for parts of it


def _named(ids: Iterable[str]) -> str:
    found = ", ".join(map(repr, sorted(ids)))
    return f"the payload key {found}" if "," not in found else f"the payload keys {found}"
