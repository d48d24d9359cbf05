"""How a page of the ledger is kept: its hashes as bytes, the rest packed against a dictionary of what every page has.

Two thirds of a parked run would otherwise be the field names of its ledger. The first byte says how the rest is
packed, so another dictionary can be added; one that was released never changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

from bide.errors import PayloadUnreadable

PLAIN, WORDS_1, WORDS_2, SEALED_PAGE = b"\0", b"\1", b"\2", b"\3"

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

_HASH, _DIGITS = '"hash":"', 64

# A small window and little memory are what a page needs, and ten times quicker to set up than the usual.
_packer = zlib.compressobj(6, zlib.DEFLATED, -12, 4, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY_2)


class DamagedPage(ValueError):
    """The bytes are no page of a ledger."""


def pack(text: str) -> bytes:
    if len(text) > LONGEST_PACKED:
        return PLAIN + text.encode()
    before, *after = text.split(_HASH)
    digits = "".join([part[:_DIGITS] for part in after])
    hashes = _bytes_of(digits)
    if len(hashes) != 32 * len(after) or len(after) > 255:  # a payload has the word too: nothing is taken out
        digits, hashes, before, after = "", b"", text, []
    rest = _HASH.join([before, *[part[_DIGITS:] for part in after]])
    return WORDS_2 + bytes([len(after)]) + hashes + _deflated(rest)


@lru_cache(maxsize=512)  # without their hashes, the pages of runs that go the same way in one batch are the same
def _deflated(rest: str) -> bytes:
    packer = _packer.copy()  # quicker than a new one, which would read the dictionary again
    return packer.compress(rest.encode()) + packer.flush()


def _bytes_of(digits: str) -> bytes:
    """Nothing where these are not the digits that the bytes would be written with."""
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        return b""
    return found if found.hex() == digits else b""


def unpack(page: bytes) -> str:
    try:
        if page[:1] == PLAIN:
            return page[1:].decode()
        if page[:1] == WORDS_1:
            return _inflated(page[1:], _DICTIONARY_1)
        if page[:1] == WORDS_2:
            return _with_hashes(page)
    except (zlib.error, UnicodeDecodeError, IndexError, ValueError) as error:
        raise DamagedPage(str(error)) from error
    if page[:1] == SEALED_PAGE:
        raise DamagedPage("it is encrypted, and no payload key is given")
    raise DamagedPage(f"unknown packing {page[:1]!r}")


def _with_hashes(page: bytes) -> str:
    count = page[1]
    end = 2 + 32 * count
    rest = _inflated(page[end:], _DICTIONARY_2)
    if not count:
        return rest
    before, *after = rest.split(_HASH)
    hashes = [page[start : start + 32].hex() for start in range(2, end, 32)]
    return _HASH.join([before, *[hash + part for hash, part in zip(hashes, after, strict=True)]])


def _inflated(packed: bytes, dictionary: bytes) -> str:
    unpacker = zlib.decompressobj(-12, dictionary)
    return (unpacker.decompress(packed) + unpacker.flush()).decode()


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
