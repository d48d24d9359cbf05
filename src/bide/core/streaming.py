"""Commands and replies of item streams: items that a stage gives, their work, and what came of it (U4)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from bide.core.records import Item, Run, RunId


class NewItem(msgspec.Struct, frozen=True, gc=False):
    """An item as it enters a stream."""

    value: str
    key: str | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stage of a stream: work that user code does, or a wait for the outside."""

    name: str
    kind: Literal["work", "wait"]
    items: bool = True  # of a wait: one interaction for each item, and not one for all
    timeout: timedelta | datetime | None = None  # of a wait that is not over items
    details: str = "{}"  # of a wait: its terms


class Feed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Items that a stage of the run itself gives. Those that are stored already are passed over, so that a stage that
    crashed half-way can begin again (U5)."""

    section: int  # one more than the newest begins a stream
    source_name: str
    boundary: int  # the stage of the run that follows the stream
    boundary_name: str
    stages: tuple[Stage, ...] = ()
    first: int = 0
    items: tuple[NewItem, ...] = ()
    is_last: bool = False
    unit: int = 0  # the wait whose stored output it is, where a failure restarts the whole of it (U5)


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Park until every item of the stream has come to its end."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Park on one request to the outside, for the one thing or for all items that came to this stage."""

    stage: Stage
    payload: str
    state: str


class Publication(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A checkpoint that the run, or one of its items, has come to (U12)."""

    checkpoint: str
    key: str
    value: str
    item: int | None = None


class ItemCommand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    workspace: str
    actor: str = "client"
    verdict: str = ""  # what a policy said of it (G1)
    trace: str = ""
    key: str = ""
    run_id: RunId
    section: int


class ClaimItems(ItemCommand, frozen=True, kw_only=True, gc=False):
    """Take items whose work is due. One whose worker died *max_claims* times over it is not tried again."""

    items: tuple[int, ...]
    lease: timedelta
    max_claims: int = 5


class RenewItems(ItemCommand, frozen=True, kw_only=True, gc=False):
    """Keep claims whose work takes its time."""

    claims: tuple[tuple[int, int], ...]  # item and epoch
    lease: timedelta


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the work of one stage came to for one item."""

    item: int
    epoch: int
    status: Literal["next", "dropped", "rejected", "again", "dead"]
    value: str | None = None
    key: str | None = None  # its business key from now on, if it gets one
    error: str | None = None
    delay: timedelta = timedelta(0)
    publishes: Publication | None = None


class FinishItems(ItemCommand, frozen=True, kw_only=True, gc=False):
    """Outcomes of claimed items; each counts while its claim holds. With a lease, further work is claimed at once."""

    outcomes: tuple[ItemOutcome, ...]
    lease: timedelta | None = None


class ItemOffer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the process that brings answers can work on at once: items that are answered are its own with the same
    commit, as if it had claimed them."""

    lease: timedelta
    room: int
    queues: frozenset[str]
    definitions: frozenset[str]


AnyItemCommand = ClaimItems | RenewItems | FinishItems


class ClaimedItems(msgspec.Struct, frozen=True, gc=False):
    """The items that were given to the caller."""

    run: Run | None
    items: tuple[Item, ...] = ()
    stale: int = 0  # outcomes that came too late to count
    moved: bool = False  # something else came of it: an item was given up, or its stream is given anew
