"""Archives: the record of one ended run as lines of text that prove themselves outside of any store (G2).

The first line is the run, the last one seals it and what stands between them: the number of entries, the chain's head,
a digest of the first line and, where a secret is at hand, a signature: then nobody else can seal what was changed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core import ledger
from bide.core.accounting import kept_of
from bide.core.batch import Draft
from bide.core.commands import Done, Reply, Restore
from bide.core.records import FINAL, LedgerPage, Run
from bide.core.redaction import covered, names_in

FORMAT: Literal["bide-ledger/1"] = "bide-ledger/1"
Line = TypeVar("Line")


class Header(msgspec.Struct, frozen=True):
    format: Literal["bide-ledger/1"]
    run: Run


class Page(msgspec.Struct, frozen=True):
    seq: int
    entries: msgspec.Raw


class Seal(msgspec.Struct, frozen=True):
    entries: int
    head: str
    header: str  # the digest of the first line: the chain does not have what stands there
    key: str | None = None  # the id of the secret that signed it
    signature: str | None = None


class Archive(msgspec.Struct, frozen=True):
    """One run with its ledger, read and found whole."""

    run: Run
    entries: tuple[ledger.Stored, ...]
    signed_by: str | None


class Unproven(ValueError):
    """The text is no archive, or not the one that was written."""


_header = msgspec.json.Decoder(Header)
_page = msgspec.json.Decoder(Page)
_seal = msgspec.json.Decoder(Seal)


def parse_secrets(text: str) -> dict[str, str]:
    """Secrets by their ids; the first is the one to sign with. Raises `ValueError`.

    >>> parse_secrets("2026:correct horse, 2025:battery staple")
    {'2026': 'correct horse', '2025': 'battery staple'}
    """
    secrets: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        id, separator, secret = part.partition(":")
        if not id or not separator or not secret or id in secrets:
            raise ValueError("write secrets as id:secret,id:secret with ids of their own")
        secrets[id] = secret
    return secrets


def write(run: Run, pages: Iterable[LedgerPage], key: tuple[str, str] | None = None) -> Iterator[str]:
    """The lines of an archive. *key* is the id and the text of the secret to sign it with.

    Fields that the run hides are hidden here too: an archive leaves the store, and is looked at (G4).
    """
    run = _shown(run)
    yield _line(Header(FORMAT, run))
    for page in pages:
        yield _line(Page(page.seq, msgspec.Raw(page.entries.encode())))
    signature = _signature(run, key[1]) if key is not None else None
    yield _line(Seal(run.ledger_seq, run.ledger_head, _digest(run), key[0] if key is not None else None, signature))


def _shown(run: Run) -> Run:
    names = names_in(run.redact)
    if not names:
        return run

    def covered_text(text: str) -> str:
        return msgspec.json.encode(covered(msgspec.json.decode(text), names)).decode()

    result = covered_text(run.result) if run.result is not None else None
    return replace(run, input=covered_text(run.input), state=covered_text(run.state), result=result)


def read(lines: Iterable[str], secrets: Mapping[str, str]) -> Archive:
    """The archive, once everything in it holds. Raises `Unproven` with the first thing that does not.

    A signature whose secret is not among *secrets* cannot be judged, and is refused.
    """
    texts = [line for line in (line.rstrip("\n") for line in lines) if line]
    if len(texts) < 3:
        raise Unproven("it ends before its seal: the tail was cut off")
    run = _read(_header, texts[0], "its first line is not the header of an archive").run
    pages = tuple(_pages(run, texts[1:-1]))
    seal = _read(_seal, texts[-1], "its last line is not a seal: the tail was cut off, or something was added")
    if run.status not in FINAL:
        raise Unproven(f"{run.id} was {run.status} when it was written; only an ended run has a whole record")
    if (seal.entries, seal.head) != (run.ledger_seq, run.ledger_head):
        raise Unproven("the seal is of another record than the header")
    texts_of_pages = [(page.seq, page.entries) for page in pages]
    broken = ledger.verify(texts_of_pages, run.ledger_head, run.ledger_seq)
    if broken is not None:
        raise Unproven(broken.reason)
    told = ledger.replayed_status(entry for page in pages for entry in ledger.decode_page(page.entries))
    if told != run.status:
        raise Unproven(f"its entries tell of {told}, its header says {run.status}")
    _check_signature(run, seal, secrets)
    if seal.header != _digest(run):
        raise Unproven("its header was changed: the seal is of another input, state, result or time")
    broken = ledger.flaw(texts_of_pages, run.ledger_head, run.ledger_seq, run.status, kept_of(run))
    if broken is not None:
        raise Unproven(broken.reason)
    entries = tuple(entry for page in pages for entry in ledger.decode_stored(page.entries))
    return Archive(run, entries, seal.key)


def _pages(run: Run, texts: Iterable[str]) -> Iterator[LedgerPage]:
    for text in texts:
        page = _read(_page, text, "a line of it is not a page of a ledger")
        yield LedgerPage(run_id=run.id, seq=page.seq, entries=bytes(page.entries).decode())


def _read(decoder: msgspec.json.Decoder[Line], text: str, otherwise: str) -> Line:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unproven(f"{otherwise} ({error})") from error


def _check_signature(run: Run, seal: Seal, secrets: Mapping[str, str]) -> None:
    if seal.key is None or seal.signature is None:
        if secrets:
            raise Unproven("it is not signed, and archives are signed here (ledger_secrets)")
        return
    secret = secrets.get(seal.key)
    if secret is None:
        raise Unproven(f"it is signed with the secret {seal.key!r}, which is not configured (ledger_secrets)")
    if not hmac.compare_digest(_signature(run, secret).encode(), seal.signature.encode()):
        raise Unproven("its signature is not of this record: header, head or count were changed")


def _digest(run: Run) -> str:
    return hashlib.sha256(msgspec.json.encode(Header(FORMAT, run))).hexdigest()


def _signature(run: Run, secret: str) -> str:
    """Over the whole header: what a person reads first must not be changed either."""
    return hmac.new(secret.encode(), msgspec.json.encode(Header(FORMAT, run)), hashlib.sha256).hexdigest()


def _line(value: Header | Page | Seal) -> str:
    return msgspec.json.encode(value).decode()


def restore(draft: Draft, command: Restore) -> Reply:
    """Put an archived run back as it was when it ended. A run of that id that is there already stays as it is."""
    run = command.run
    if run.workspace != command.workspace:
        return Done(False, f"it belongs to the workspace {run.workspace!r}")
    if draft.run(run.id) is not None:
        return Done(False, f"{run.id} is there already")
    draft.put_run(run)
    draft.entries[run.id] = list(command.entries)
    return Done(True)
