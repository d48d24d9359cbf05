"""Commands and terms of requests to the outside: waits whose interactions go out over a transport (U6–U9)."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bide.core.durations import deadline_after
from bide.core.macs import Mac
from bide.core.records import Chore, Item, Run, RunId, Wait
from bide.core.streaming import ItemOffer

INTERACTION_API = "interaction-api"  # nothing is sent: people and programs list what is open, and answer it

_MAC_DIGITS = 32


UNSEEN = frozenset({"nonce", "trace", "reassigned"})  # of a wait's details: for nobody but bide


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request asks for, as it is kept with its wait."""

    transport: str = INTERACTION_API
    cardinality: str = "ONE_TO_ONE"
    items: bool = False  # one interaction for each of many items
    many: bool = False  # the answer is a list
    most: int | None = None  # of the answer's items
    seconds: float | None = None  # that each item has; a request that is no stream has its wait's deadline
    until: datetime | None = None
    on_item_timeout: Literal["fail", "reject"] = "fail"
    max_pending: int | None = None
    trace: str = ""  # the trace context of what opened the wait
    nonce: str = ""  # what correlation ids are made with; nobody outside sees it
    schema: Any = None
    channel: str | None = None
    title: str | None = None
    description: str | None = None
    assignee: str | None = None
    group: str | None = None
    metadata: Any = None

    def deadline(self, opened_at: datetime) -> datetime | None:
        """When an item that was opened at this moment has had its time."""
        if self.until is not None:
            return self.until
        return deadline_after(opened_at, timedelta(seconds=self.seconds)) if self.seconds is not None else None


_terms = msgspec.json.Decoder(Terms)


@lru_cache(maxsize=512)
def _decoded(details: str) -> Terms:
    return _terms.decode(details)


def terms_of(wait: Wait) -> Terms:
    return _decoded(wait.details)


@lru_cache(maxsize=512)
def _mac(nonce: str) -> Mac:
    return Mac(nonce.encode())


def correlation_id(nonce: str, run_id: str, step: str, no: int, item: int) -> str:
    """Names an interaction, and cannot be guessed: a MAC of run, step and item under a key of the wait's own (U9).

    >>> correlation_id("secret", "run_7", "pay", 1, 0)
    'cor_7_1_0_2346e4cd4cdd0d010553127618ba4364'
    """
    text = "\0".join((run_id, step, str(no), str(item)))
    mac = _mac(nonce).digest(text.encode()).hex()[:_MAC_DIGITS]
    return f"cor_{run_id.removeprefix('run_')}_{no}_{item}_{mac}"


def interaction_of(correlation_id: str) -> str | None:
    """The id of the interaction that a correlation id names; None where it is none. Says nothing about its MAC.

    >>> interaction_of("cor_7_1_0_ab12")
    'int_7_1_0'
    """
    named, _, mac = correlation_id.rpartition("_")
    return f"int_{named.removeprefix('cor_')}" if named.startswith("cor_") and mac else None


class NewRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Interactions that a wait opens with, or gets later; *is_last* says that no more will come."""

    payloads: tuple[str, ...] = ()
    first: int = 0
    is_last: bool = True


class MoreItems(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Further interactions of a wait that is open."""

    no: int
    request: NewRequest


class Sending(msgspec.Struct, frozen=True, gc=False):
    """What a chore of the kind `dispatch` is about: one interaction of a wait, or all that are pending."""

    no: int
    item: int | None = None


def sending(data: str) -> Sending:
    return msgspec.json.decode(data, type=Sending)


class ExchangeCommand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    workspace: str
    actor: str = "client"
    verdict: str = ""  # what a policy said of it (G1)
    trace: str = ""
    key: str = ""
    run_id: RunId
    no: int


class Reject(ExchangeCommand, frozen=True, kw_only=True, gc=False):
    """The outside declines an interaction: its item is rejected, a request that has only one fails."""

    item: int
    target: str
    reason: str
    message_id: str
    by: str | None = None
    correlation_id: str | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came back for one interaction: an answer, or the reason why there is none."""

    item: int
    target: str
    message_id: str
    data: str = "null"
    digest: str = ""
    reason: str | None = None
    by: str | None = None


class TakeIn(ExchangeCommand, frozen=True, kw_only=True, gc=False):
    """What came back for many interactions of one wait over items, each judged for itself, in order."""

    given: tuple[Given, ...]
    offer: ItemOffer | None = None


class SentItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came of sending one interaction."""

    item: int
    answer: str | None = None  # it came at once
    digest: str = ""
    error: str | None = None
    is_final: bool = False  # trying again cannot help


class MarkDispatched(ExchangeCommand, frozen=True, kw_only=True, gc=False):
    """What a process that has the dispatch chore sent. *item* is the one that a chore of its own is about."""

    chore: Chore
    item: int | None = None
    results: tuple[SentItem, ...]
    lease: timedelta
    delay: timedelta  # until those that failed are tried again
    offer: ItemOffer | None = None


class ExpireItems(ExchangeCommand, frozen=True, kw_only=True, gc=False):
    """Interactions whose time may be up; *next_at* is when the first of the others has had its time."""

    chore: Chore
    items: tuple[int, ...]
    next_at: datetime | None


AnyExchangeCommand = Reject | TakeIn | MarkDispatched | ExpireItems


class Marked(msgspec.Struct, frozen=True, gc=False):
    """Whether there is more to send, and this process still has the chore."""

    goes_on: bool
    run: Run | None = None
    items: tuple[Item, ...] = ()  # whose work the caller offered to do, and has
