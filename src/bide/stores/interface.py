"""What a store is.

A store takes whole batches of commands. For each batch it locks the runs concerned, loads what the decisions rest
on, lets `bide.core.decide` answer, writes all changes and commits once. It has no opinion of its own: an `if` about
runs or waits in a store belongs in the core. `bide.testing.store_contract` holds any implementation to this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from bide.core.commands import AnyCommand, Deliver, Offer, Reply, Start
from bide.core.outside import ItemKey
from bide.core.records import (
    Chore,
    DeadLetter,
    Interaction,
    Item,
    LedgerPage,
    Name,
    Run,
    RunId,
    RunStatus,
    Signal,
    StepRow,
    Turn,
    Unit,
    Unused,
    Wait,
)
from bide.stores.access import Access

Now = Callable[[], datetime]

MOST_UNUSED_OF_WAIT = 100


class Executed(msgspec.Struct, kw_only=True):
    """What a batch did."""

    replies: list[Reply]  # one per command, in order
    turns: dict[RunId, Turn] = msgspec.field(default_factory=dict)  # claimed for the offering worker by this commit
    ready: bool = False  # some run became claimable that nobody was given
    due_in: timedelta | None = None  # the earliest moment this batch put on the queue or the timers, from now
    ended: list[Run] = msgspec.field(default_factory=list)
    late: list[float] = msgspec.field(default_factory=list)  # by how many seconds timers were fired after they were due
    early: int = 0  # answers to interactions that are held until their dispatch, or their run, has come as far (U6)
    dead: list[str] = msgspec.field(default_factory=list)  # the kinds of new dead letters
    told: dict[str, int] = msgspec.field(default_factory=dict)  # how many ledger entries there are of each name


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str | None = None
    status: str | None = None
    definition: str | None = None
    held: bool = False
    correlation_key: str | None = None
    parent_id: str | None = None
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)


class WaitFilter(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str | None = None
    run_id: str | None = None
    status: str | None = "waiting"
    opened_before: datetime | None = None
    no: int | None = None
    kind: str | None = None
    definition: str | None = None
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None


class InteractionFilter(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str | None = None
    run_id: str | None = None
    no: int | None = None
    item: int | None = None
    statuses: tuple[str, ...] = ()  # none: all
    definition: str | None = None
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None


class Streamed(msgspec.Struct, frozen=True):
    """A page of a ledger and its place in the stream of all of them."""

    place: str
    page: LedgerPage | None  # None: of another workspace


class Violation(msgspec.Struct, frozen=True):
    """A row that breaks an invariant."""

    invariant: str  # "I4", …
    id: str
    detail: str


class Store(Access, Protocol):
    """All methods may be called from one event loop at a time; `renew` from any thread."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date where the store does that by itself.

        Raises `StoreUnavailable` where it cannot be reached or opened, `SchemaTooNew` where a newer bide made it.
        """

    async def close(self) -> None:
        """Let go of every connection, thread and file. Safe to call twice."""

    @property
    def round_trips(self) -> int:
        """How often this store had to ask whoever keeps the rows: a server, a file's thread, a lock."""

    @property
    def batches_at_once(self) -> int:
        """How many calls of `execute` are worth having under way: two, where a server works while this process does."""

    # -- execute

    def foresee(self, run_id: RunId) -> bool:
        """A signal to this run is being made ready: whether the store has begun to read for it.

        Nothing may rest on it. The signal may never come, and others may change the run before it does.
        """

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        """Decide and commit a batch, atomically for each command and in order for commands of one run.

        Durable when it returns. Runs that become ready are claimed for *offer* while it has slots. A command whose
        target moved meanwhile is executed again inside; `Again` never leaves a store. Raises `StoreUnavailable`
        only where nothing of the batch was applied. It is called from a task that nobody cancels (`Committer`): of one
        that is cancelled nobody can say whether it was applied.
        """

    async def leave(self, connection: Any, command: Start | Deliver) -> None:
        """Put a command into the intake inside the caller's open transaction (S11); it counts when that commits.

        Raises `ForeignConnectionError` for a connection that this store cannot join.
        """

    async def left(self, id: str) -> Start | Deliver | None:
        """What a committed transaction left in the intake under this id, where it is not admitted yet (S11)."""

    def connection(self) -> AbstractAsyncContextManager[Any]:
        """A transaction of the caller's own on this store's database, committed at the end of the block, rolled back
        by an exception (S11). Raises `ForeignConnectionError` where callers bring connections of their own.
        """

    # -- claim

    async def claim(self, offer: Offer) -> Executed:
        """Claim up to `offer.slots` due runs of its queues, by priority (highest first), then due time, then id.

        Due are ready runs and those whose lease has ended. Runs that rivals are just claiming are passed over.
        """

    def renew(self, worker: str, claims: Mapping[RunId, int], lease: timedelta) -> set[RunId]:
        """Extend the leases of these runs where their epoch still holds; returns those that are lost.

        Blocking and thread-safe, on a connection that nothing else uses: it must work while user code blocks the
        event loop. Raises `StoreUnavailable` where the store did not answer.
        """

    async def end_leases(self, worker: str) -> int:
        """Make every run that *worker* holds claimable now, as if its leases had run out."""

    # -- due

    async def fire_timers(self, limit: int, offer: Offer | None = None) -> Executed:
        """Fire up to *limit* timers that are due, earliest first. Fewer replies than *limit*: none are left."""

    async def admit(self, limit: int, offer: Offer | None = None) -> Executed:
        """Execute up to *limit* commands that callers' transactions left in the intake, oldest first (S11).

        Each goes out of the intake in the commit that executes it. Fewer replies than *limit*: none are left.
        """

    async def due_chores(self, limit: int) -> Sequence[Chore]:
        """Chores that are due, earliest first. Those of the kind `cancel_children` may be done by several at once."""

    async def claim_chores(self, limit: int, lease: timedelta) -> Sequence[Chore]:
        """Claim up to *limit* of the chores of other kinds that are due, earliest first, for a time.

        Each goes to one process. One that is not settled before the lease ends is due again. `tries` counts this claim.
        """

    async def due_items(self, queues: frozenset[str], definitions: frozenset[str], limit: int) -> Sequence[Item]:
        """Items of pipelines' streams whose work is due, earliest first, of these queues and definitions.

        Only a hint: `ClaimItems` decides who gets them.
        """

    async def live_children(
        self, run_id: RunId, limit: int, *, wait_no: int | None = None, after: RunId | None = None
    ) -> Sequence[RunId]:
        """Children of a run, or of one of its joins, that are not final, oldest first.

        *after* is the last id of the page before.
        """

    async def until_due(self, queues: frozenset[str]) -> timedelta | None:
        """How long until the earliest claimable run or item, timer, chore or something left to be admitted, by the
        store's clock.

        Zero or less means now. Where it says later, an engine does not ask for any of these.
        """

    async def delete_ended(self, ended_before: timedelta, limit: int) -> int:
        """Delete up to *limit* runs that ended longer ago than this, with everything of theirs (retention).

        A child is spared while its parent lives: the parent may still ask how it ended. What came for a run and could
        not be used stays until its own time is over (S12).
        """

    async def free_locks(self, longer_than: timedelta) -> int:
        """Free what processes keep locked that stopped in the middle of a transaction so long ago; how many they were.

        What they were about to write is not written.
        """

    async def trim_unused(self, older_than: timedelta, keep: int, limit: int) -> int:
        """Delete up to *limit* kept arrivals: older ones than this, all but the newest *keep* of a workspace, and of
        those addressed to one wait or interaction all but the newest `MOST_UNUSED_OF_WAIT` (S12).
        """

    async def trim_events(self, older_than: timedelta, limit: int) -> int:
        """Delete up to *limit* events that came longer ago than this; their ids may be used again then."""

    # -- read: each one statement, no lock; None or empty for what does not exist

    async def now(self) -> datetime: ...
    async def run(self, workspace: str, run_id: str) -> Run | None: ...
    async def statuses(self, ids: Sequence[RunId]) -> Mapping[RunId, RunStatus]:
        """Of those of the runs that exist, in whatever workspace."""

    async def holder(self, workspace: str, correlation_key: str) -> RunId | None: ...
    async def name(self, workspace: str, kind: str, name: str) -> Name | None: ...
    async def runs(self, filter: RunFilter, *, after: str | None, limit: int) -> Sequence[Run]:
        """Oldest first by id; *after* is the last id of the page before."""

    async def count_runs(self, workspace: str | None) -> Mapping[str, int]:
        """Runs by status."""

    async def count_open(self) -> Mapping[str, int]:
        """How much is open in all workspaces: waits that are `waiting` or `reserved`, and `dead_letters`."""

    async def count_live(self, workspace: str) -> Mapping[str, int]:
        """What a workspace has now: live `runs`, their open `waits`, and the signals in their `inbox`."""

    async def waits(self, filter: WaitFilter, *, after: tuple[str, int] | None, limit: int) -> Sequence[Wait]:
        """By run id and number; *after* is the last of the page before."""

    async def interactions(
        self, filter: InteractionFilter, *, after: tuple[str, int, int] | None, limit: int
    ) -> Sequence[tuple[Interaction, Wait]]:
        """Interactions with their waits, by run id, number and item; *after* is the last of the page before."""

    async def dead_letters(
        self, workspace: str, *, after: tuple[datetime, str] | None, limit: int
    ) -> Sequence[DeadLetter]:
        """Oldest first; *after* is the time and id of the last of the page before."""

    async def unit(self, run_id: str, no: int) -> Unit | None:
        """The counts of a request's interactions."""

    async def some_interactions(self, keys: Collection[ItemKey]) -> Sequence[Interaction]:
        """The interactions with these runs, numbers and items, in no order."""

    async def pending(self, run_id: str, no: int, *, limit: int) -> Sequence[Interaction]:
        """The first interactions of a wait that are not handed to a transport yet, by item."""

    async def items(self, run_id: str, section: int, *, after: int = -1, limit: int) -> Sequence[Item]:
        """The items of one stream of a run by their numbers; *after* is the last of the page before."""

    async def inbox(self, run_id: str) -> Sequence[Signal]: ...
    async def steps(self, run_id: str) -> Sequence[StepRow]:
        """What steps and waits of a workflow came to, in any order."""

    async def ledger(self, run_id: str, *, as_found: bool = False) -> Sequence[LedgerPage]:
        """The pages of one run, in order. Raises where one cannot be read; *as_found* gives it with an empty text."""

    async def stream(self, workspace: str, place: str, *, limit: int) -> Sequence[Streamed]:
        """The pages of the ledgers of all runs from *place* on, the empty text being the beginning, in one order.

        Pages of one run come in their order. Once a page was given, none comes before it any more, however long the
        commit of another one takes to become visible. Fewer than *limit*: there is no more for now, and the last place
        names nothing of another workspace (H1). Raises `ValueError` for what is no place of this store.
        """

    async def stream_end(self) -> str:
        """A place behind everything that `stream` gives now, and before everything that it will give later."""

    async def unused(
        self, workspace: str, *, run_id: str | None = None, after: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Unused]:
        """Oldest first, of one run or of all; *after* is the time and id of the last of the page before."""

    async def unused_by_id(self, workspace: str, id: str) -> Unused | None: ...
    async def audit(self) -> Sequence[Violation]:
        """Every row that breaks an invariant; none in a healthy store (D11)."""

    # -- subscribe

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call *wake* when another process may have changed something; returns how to stop. Only a hint (D7)."""
