"""How a page of the ledger is kept: its hashes and ids as they are, the rest packed against a dictionary of what every
page has.

Two thirds of a parked run would otherwise be the field names of its ledger. The first byte says how the rest is
packed, so another dictionary can be added; one that was released never changes.
"""

from __future__ import annotations

import zlib
from binascii import hexlify, unhexlify
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from bide.core.ledger import Stored, encode_bare, encode_page
from bide.errors import PayloadUnreadable

PLAIN, WORDS_1, WORDS_2, SEALED_PAGE, WORDS_3 = b"\0", b"\1", b"\2", b"\3", b"\4"

LONGEST_PACKED = 4096  # beyond this it is payload that makes it long, and packing that would hold up the writer

# What a page most likely contains stands last.
_DICTIONARY_1 = (
    b'"name":"run_cancelled","run_failed","run_stopped","run_completed","reason":"","discarded":["'
    b'"name":"run_cancel_requested","run_held","held":"poison","run_released","run_given_back"'
    b'"name":"step_retried","attempt":1,"error":"{\\"code\\":\\"","message":"'
    b'"name":"child_started","data":{"id":"run_","definition":"","wait":1}"parent":"run_","correlation_key":"'
    b'"kind":"children","expected":,"completed":"status":"timed_out","cause":"timeout"'
    b'"name":"await_unit_terminal","status":"cancelled","cause":"run cancelled"},"actor":"timer","data":{'
    b'"name":"run_claimed","actor":"worker:","data":{"from":"ready","to":"running","epoch":1,"worker":""},"hash":"'
    b'"name":"signals_consumed","actor":"worker:","data":{"ids":["sig_"]},"hash":"'
    b'"name":"signal_received","actor":"client","data":{"id":"sig_","signal":"","digest":"","payload":{"'
    b'"name":"await_unit_completed","actor":"client","data":{"wait":1,"step":"","status":"completed","cause":"signal"}'
    b',"hash":""},{"seq":5,"at":17,"name":"await_resume_released","actor":"client","data":{"wait":1,"step":"",'
    b'"from":"waiting","to":"running","epoch":2,"worker":""},"hash":"'
    b'[{"seq":1,"at":17,"name":"run_started","actor":"client","data":{"definition":"","version":"1","to":"ready"'
    b'"to":"running","epoch":1,"worker":""},"hash":""}]'
    b'[{"seq":2,"at":17,"name":"step_committed","actor":"worker:","data":{"step":"","next":""},"hash":""},'
    b'{"seq":3,"at":17,"name":"await_execution_waiting","actor":"worker:","data":{"wait":1,"step":"","kind":"signals",'
    b'"names":[""],"timeout":"20","from":"running","to":"waiting"},"hash":""}]'
)

_DICTIONARY_2 = (
    b'"name":"run_cancelled","run_failed","run_stopped","reason":"","discarded":["'
    b'"name":"run_cancel_requested","run_held","held":"poison","run_released","run_given_back"'
    b'"name":"step_retried","attempt":1,"error":"{\\"code\\":\\"","message":"'
    b'"name":"child_started","data":{"id":"run_0","definition":"","wait":1}"parent":"run_0","correlation_key":"'
    b'"kind":"children","expected":,"completed":"status":"timed_out","cause":"timeout"'
    b'"name":"await_unit_terminal","status":"cancelled","cause":"run cancelled"},"actor":"timer","data":{'
    b'"name":"run_suspended","actor":"worker:w-","data":{"waits":[1],"from":"running","to":"waiting"},"hash":""}]'
    b'"name":"run_claimed","actor":"worker:w-","data":{"from":"ready","to":"running","epoch":2,"worker":"w-"},"hash":""'
    b',"name":"signal_received","actor":"client","data":{"id":"msg_0","signal":"","digest":"","payload":{"'
    b'}},"hash":""},{"seq":5,"at":17,"name":"await_unit_completed","actor":"client","data":{"wait":1,"step":"'
    b'","status":"completed","cause":"signal"},"hash":""},{"seq":6,"at":17,"name":"await_resume_released",'
    b'"actor":"client","data":{"wait":1,"step":"","from":"waiting","to":"running","epoch":2,"worker":"w-"},"hash":""}]'
    b'[{"seq":7,"at":17,"name":"signals_consumed","actor":"worker:w-","data":{"ids":["msg_0"]},"hash":""},'
    b'{"seq":8,"at":17,"name":"run_completed","actor":"worker:w-","data":{"from":"running","to":"completed"},"hash":""}]'
    b'[{"seq":1,"at":17,"name":"run_started","actor":"client","data":{"definition":"","version":"1","to":"ready"'
    b',"version":"1","to":"running","epoch":1,"worker":"w-"},"hash":""}]'
    b'[{"seq":2,"at":17,"name":"step_committed","actor":"worker:w-","data":{"step":"","next":""},"hash":""},'
    b'{"seq":3,"at":17,"name":"await_execution_waiting","actor":"worker:w-","data":{"wait":1,"step":"",'
    b'"kind":"signals","names":[""],"timeout":"20Z","from":"running","to":"waiting"},"hash":""}]'
)

_DICTIONARY_3 = (
    b'"name":"run_cancelled","run_failed","run_stopped","reason":"","discarded":["'
    b'"name":"run_cancel_requested","run_held","held":"poison","run_released","run_given_back"'
    b'"name":"step_retried","attempt":1,"error":"{\\"code\\":\\"","message":"'
    b'"name":"child_started","data":{"id":"run_0","definition":"","wait":1}"parent":"run_0","correlation_key":"'
    b'"kind":"children","expected":,"completed":"status":"timed_out","cause":"timeout"'
    b'"name":"await_unit_terminal","status":"cancelled","cause":"run cancelled"},"actor":"timer","data":{'
    b'"name":"run_claimed","actor":"worker:w-","data":{"from":"ready","to":"running","epoch":2,"worker":"w-"},"hash":""'
    b'"assignee":"","group":"","channel":"","title":"","kind":"signal","kind":"event","kind":"sleep","kind":"receive",'
    b'"name":"await_interaction_dispatched","actor":"worker:w-","data":{"wait":1,"step":"","status":"waiting",'
    b'"interaction":"int_0","correlation":"","transport":"interaction-api","item":0,"timeout":"20Z"},"hash":""},{"seq":4,'
    b'"at":17,"name":"await_unit_dispatch_complete","actor":"worker:w-","data":{"wait":1,"step":"","status":"waiting",'
    b'"expected":1,"completed":0},"hash":""},{"seq":5,"at":17,"name":"await_execution_waiting","actor":"worker:w-","data":{'
    b'"wait":1,"step":"","status":"waiting","kind":"task","expected":1,"completed":0,"timeout":"20Z","schema":{"type":'
    b'"object","properties":{"":{"type":"string"}},"required":[""]}},"hash":""},{"seq":7,"at":17,"name":'
    b'"await_answer_received","actor":"client","data":{"wait":1,"step":"","status":"waiting","interaction":"int_0'
    b'","correlation":"","transport":"interaction-api","item":0,"id":"msg_0","by":null,"digest":"","payload":{"":""},'
    b'"receipt":""},"hash":""},{"seq":8,"at":17,"name":"await_unit_item_completed","actor":"client","data":{"wait":1,'
    b'"step":"","status":"completed","interaction":"int_0","correlation":"","transport":"interaction-api","item":0,'
    b'"expected":1,"completed":1,"outcome":"answered"},"hash":""},{"seq":9,"at":17,"name":"await_unit_completed","actor":'
    b'"client","data":{"wait":1,"step":"","status":"completed","cause":"answer","expected":1,"completed":1},"hash":""}'
    b'"name":"signal_received","actor":"client","data":{"id":"msg_0","signal":"","digest":"","payload":{"":""'
    b'}},"hash":""},{"seq":5,"at":17,"name":"await_unit_completed","actor":"client","data":{"wait":1,"step":"'
    b'","status":"completed","cause":"signal"},"hash":""},{"seq":6,"at":17,"name":"await_resume_released","actor":"client",'
    b'"data":{"wait":1,"step":"body","status":"completed","from":"waiting","to":"running","epoch":2,"worker":"w-"},"hash":""}]'
    b'[{"seq":7,"at":17,"name":"signals_consumed","actor":"worker:w-","data":{"ids":["msg_0"]},"hash":""},'
    b'{"seq":2,"at":17,"name":"step_completed","actor":"worker:w-","data":{"step":"","attempts":1},"hash":""},'
    b'{"seq":6,"at":17,"name":"run_suspended","actor":"worker:w-","data":{"waits":[1],"from":"running","to":"waiting"},"hash":""}]'
    b'{"seq":8,"at":17,"name":"run_completed","actor":"worker:w-","data":{"from":"running","to":"completed"},"hash":""}]'
    b'[{"seq":1,"at":17,"name":"run_started","actor":"client","data":{"definition":"","version":"1","to":"ready"'
    b',"version":"1","to":"running","epoch":1,"worker":"w-"},"hash":""}]'
    b'[{"seq":2,"at":17,"name":"step_committed","actor":"worker:w-","data":{"step":"","next":""},"hash":""},'
    b'{"seq":3,"at":17,"name":"await_execution_waiting","actor":"worker:w-","data":{"wait":1,"step":"","status":"waiting",'
    b'"kind":"signals","names":[""],"timeout":"20Z","from":"running","to":"waiting"},"hash":""}]'
)

_HASH, _DIGITS = '"hash":"', 64
_HASH_BYTES, _HASH_SIZE = _HASH.encode(), 32
_BYTES = [bytes((number,)) for number in range(256)]


class _Word(NamedTuple):
    """What stands in front of something that is another in every page, how long that is, and how long it is stored:
    an id as it is, digits as the bytes that they stand for."""

    bit: int
    text: bytes
    size: int
    stored: int

    @property
    def is_hex(self) -> bool:
        return self.stored < self.size


MESSAGE, INTERACTION, CORRELATION, DIGEST, SHORT_DIGEST, RECEIPT = _WORDS = (
    _Word(1, b'"msg_', 19, 19),
    _Word(2, b'"int_', 19, 19),
    _Word(4, b'"correlation":"', 32, 16),
    _Word(8, b'"digest":"', 32, 16),
    _Word(16, b'"digest":"', 16, 8),  # of what rows keep
    _Word(32, b'"receipt":"', 64, 32),
)
# In which entries to look for which, in the order above: looking for all of them in every page would cost more than
# packing it.
_WORDS_OF: Mapping[str, tuple[_Word, ...]] = {
    "signal_received": (MESSAGE, DIGEST),
    "signals_consumed": (MESSAGE,),
    "await_interaction_dispatched": (INTERACTION, CORRELATION),
    "await_answer_received": (MESSAGE, INTERACTION, CORRELATION, DIGEST, RECEIPT),
    "await_unit_item_completed": (INTERACTION, CORRELATION),
    "step_completed": (SHORT_DIGEST,),
    "run_completed": (SHORT_DIGEST,),
}

# A small window and little memory are what a page needs, and ten times quicker to set up than the usual.
_packer = zlib.compressobj(6, zlib.DEFLATED, -12, 4, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY_3)


class DamagedPage(ValueError):
    """The bytes are no page of a ledger."""


def pack_entries(entries: Sequence[Stored]) -> bytes:
    """A page of these entries, as `unpack` reads it."""
    rest = encode_bare(entries)
    if len(rest) + _DIGITS * len(entries) > LONGEST_PACKED or _has_other_hashes(rest, len(entries)):
        return pack(encode_page(entries))
    if len(entries) == 1:  # as most pages have
        [entry] = entries
        return _packed(bytes.fromhex(entry.hash), rest, _WORDS_OF.get(entry.name, ()))
    hashes = bytes.fromhex("".join([entry.hash for entry in entries]))
    return _packed(hashes, rest, _words_of(tuple([entry.name for entry in entries])))


@lru_cache(maxsize=512)
def _words_of(names: tuple[str, ...]) -> tuple[_Word, ...]:
    """What to look for in a page of entries of these names, each once and in the order of the words."""
    return tuple(sorted({word for name in names for word in _WORDS_OF.get(name, ())}))


def _has_other_hashes(rest: bytes, count: int) -> bool:
    """Whether a payload has the word too, or there are more entries than a byte can count."""
    return rest.count(_HASH_BYTES) != count or count > 255


def pack(text: str) -> bytes:
    if len(text) > LONGEST_PACKED:
        return PLAIN + text.encode()
    before, *after = text.split(_HASH)
    hashes = _bytes_of("".join([part[:_DIGITS] for part in after]).encode())
    if len(hashes) != _HASH_SIZE * len(after) or len(after) > 255:  # a payload has the word too: nothing is taken out
        return _packed(b"", text.encode())
    return _packed(hashes, _HASH.join([before, *[part[_DIGITS:] for part in after]]).encode())


def _packed(hashes: bytes, rest: bytes, words: Sequence[_Word] = _WORDS) -> bytes:
    """How many hashes there are, which words something was taken out behind and how often, all that, and the rest."""
    which, counts, taken = 0, b"", hashes
    for word in words:
        found, rest = _taken(word, rest)
        if found:
            which |= word.bit
            counts += _BYTES[len(found) // word.stored]
            taken += found
    return WORDS_3 + _BYTES[len(hashes) // _HASH_SIZE] + _BYTES[which] + counts + taken + _deflated(rest)


def _taken(word: _Word, rest: bytes) -> tuple[bytes, bytes]:
    """What stands behind every *word*, whatever it is, and what is left; nothing where it cannot be put back."""
    _, text, size, stored = word
    at = rest.find(text)
    if at < 0:
        return b"", rest
    at += len(text)
    if stored < size and rest[at + size : at + size + 1] != b'"':
        return b"", rest  # other digits than these
    if rest.find(text, at) < 0:
        count, found, left = 1, rest[at : at + size], rest[:at] + rest[at + size :]
    else:
        before, *after = rest.split(text)
        count, found = len(after), b"".join([part[:size] for part in after])
        left = text.join([before, *[part[size:] for part in after]])
    kept = _bytes_of(found) if stored < size else found
    if len(found) != size * count or len(kept) != stored * count or count > 255:
        return b"", rest
    return kept, left


@lru_cache(maxsize=512)  # without what is taken out, the pages of runs that go the same way in one batch are the same
def _deflated(rest: bytes) -> bytes:
    packer = _packer.copy()  # quicker than a new one, which would read the dictionary again
    return packer.compress(rest) + packer.flush()


def _bytes_of(digits: bytes) -> bytes:
    """Nothing where these are not the digits that the bytes would be written with."""
    try:
        found = unhexlify(digits)
    except ValueError:
        return b""
    return found if hexlify(found) == digits else b""


def unpack(page: bytes) -> str:
    try:
        if page[:1] == PLAIN:
            return page[1:].decode()
        if page[:1] == WORDS_1:
            return _inflated(page[1:], _DICTIONARY_1).decode()
        if page[:1] == WORDS_2:
            return _unpacked(page, page[1], 0, 2, _DICTIONARY_2)
        if page[:1] == WORDS_3:
            return _unpacked(page, page[1], page[2], 3, _DICTIONARY_3)
    except (zlib.error, UnicodeDecodeError, IndexError, ValueError) as error:
        raise DamagedPage(str(error)) from error
    if page[:1] == SEALED_PAGE:
        raise DamagedPage("it is encrypted, and no payload key is given")
    raise DamagedPage(f"unknown packing {page[:1]!r}")


def _unpacked(page: bytes, hashes: int, which: int, at: int, dictionary: bytes) -> str:
    """The text of a page: *which* of the words it was taken apart by, and where what follows begins."""
    words = [word for word in _WORDS if which & word.bit]
    ends, end = [], at + len(words) + _HASH_SIZE * hashes
    for word, count in zip(words, page[at:], strict=False):
        ends.append((end, word))
        end += word.stored * count
    if len(page) < end or len(ends) < len(words):
        raise ValueError("it is cut off")
    text, last = _inflated(page[end:], dictionary), end
    for start, word in reversed(ends):
        values = _cut(page[start:last], word.stored)
        text, last = _put_back(text, word.text, [hexlify(one) for one in values] if word.is_hex else values), start
    digits = [hexlify(hash) for hash in _cut(page[last - _HASH_SIZE * hashes : last], _HASH_SIZE)]
    return _put_back(text, _HASH_BYTES, digits).decode()


def _cut(row: bytes, size: int) -> list[bytes]:
    return [row[start : start + size] for start in range(0, len(row), size)]


def _put_back(rest: bytes, word: bytes, taken: Sequence[bytes]) -> bytes:
    """What was taken out behind every *word*; raises `ValueError` where there are more or fewer of them."""
    if not taken:
        return rest
    before, *after = rest.split(word)
    return word.join([before, *[one + part for one, part in zip(taken, after, strict=True)]])


def _inflated(packed: bytes, dictionary: bytes) -> bytes:
    unpacker = zlib.decompressobj(-12, dictionary)
    return unpacker.decompress(packed) + unpacker.flush()


def text_or_nothing(opened: Callable[[], bytes]) -> str:
    """For who looks for damage and goes on where it is: an empty text is no page either.

    Raises where the key of a page is missing: it may be quite whole.
    """
    try:
        return unpack(opened())
    except DamagedPage:
        return ""
    except PayloadUnreadable as error:
        if error.is_missing:
            raise
        return ""


def place_number(text: str) -> int:
    """A place in the stream of a store that has one writer at a time; raises `ValueError` for anything else.

    >>> place_number("771"), place_number("")
    (771, 0)
    """
    if len(text) > 18 or not (f"0{text}".isascii() and f"0{text}".isdigit()):
        raise ValueError(f"{text!r} is no place of this store")
    return int(text or "0")
