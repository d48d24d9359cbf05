"""Commands: everything that may change a run, and the replies to them.

A command carries facts that were fixed before the first try (ids, encoded payloads), so it can be executed again
after an unknown outcome. `targets` names the runs to lock; the store locks them before it reads anything else.
None of them can be part of a cycle, so the garbage collector is spared them (`gc=False`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from bide.core.exchanging import AnyExchangeCommand, Marked, MoreItems, NewRequest
from bide.core.ledger import Stored
from bide.core.records import Chore, Hearing, Held, Item, Run, RunId, StepRow, Style, Unused
from bide.core.requests import Agenda, AnyRequest, Misfit, NewTask
from bide.core.streaming import AnyItemCommand, Ask, ClaimedItems, Feed, Publication, Settle

Outcome = Literal["woke", "queued", "duplicate", "late", "no_target", "invalid", "conflict", "ignored", "deferred"]


REFUSED: frozenset[Outcome] = frozenset({"late", "no_target", "invalid", "conflict"})


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    workspace: str
    actor: str = "client"
    verdict: str = ""  # what a policy said of it, where one had something to say (G1)
    trace: str = ""  # the W3C trace context that it is sent in, where somebody traces (§11)
    key: str = ""  # the hash of the key that it was sent with, where the commit sees whether that is still good (G5)


# ---------------------------------------------------------------- from the outside


class Start(Command, frozen=True, kw_only=True):
    """Insert a run. `run_id` is chosen by the caller, so that a retry finds the first try."""

    run_id: RunId
    definition: str
    version: str
    style: Style
    step: str
    input: str
    queue: str = "default"
    priority: int = 0
    delay: timedelta | None = None
    correlation_key: str | None = None
    correlation_scope: Literal["live", "forever"] = "live"
    cleanup_seconds: float | None = None
    tags: str = "{}"
    redact: str | None = None
    retry_of: RunId | None = None
    state: str | None = None  # of the run that is retried; the input otherwise
    steps: tuple[StepRow, ...] = ()  # of the workflow that is retried, to be kept
    takes_holder: bool = False  # the run that holds the key is as good an answer as a new one


class Deliver(Command, frozen=True, kw_only=True):
    """Put a signal into an inbox. `run_id` is empty where the target is a correlation key that nobody held."""

    target: str
    run_id: RunId | None
    signal_id: str
    name: str
    payload: str
    digest: str
    dedup_key: str | None = None
    misfits: tuple[Misfit, ...] = ()  # of the definitions that the sender knows: whose run it is, admission sees
    by_correlation: bool = False
    unused_id: str | None = None  # the kept arrival that this delivery re-addresses; it goes when it is admitted
    is_gone: bool = False  # nothing is kept under that id any more: only a repeat of what took it has an answer (H2)
    room: int = 0  # how many signals may wait in the inbox; 0 for any number


class StartOrSignal(Command, frozen=True, kw_only=True):
    """Signal the run that holds the correlation key, or start it and signal it, in one commit (S11)."""

    start: Start
    deliver: Deliver


class DeliverMany(Command, frozen=True, kw_only=True):
    """All of these signals, or none (S11)."""

    deliveries: tuple[Deliver, ...]


class Admit(Command, frozen=True, kw_only=True):
    """Execute what a caller's own transaction left for us, and take it out of the intake in the same commit (S11)."""

    intake_id: str
    command: Start | Deliver


class OnceKey(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key, the path that it counts for, and a digest of what was sent with it (H2)."""

    key: str
    path: str
    digest: str


class Once(Command, frozen=True, kw_only=True):
    """Do the command once under this idempotency key, and give the first answer again to every repeat (H2)."""

    once: OnceKey
    command: AnyCommand
    outlives_run: bool = False  # retention may delete the run before the key's time is over


class Complete(Command, frozen=True, kw_only=True):
    """Answer the wait that holds a signal id. `run_id` and `no` are looked up, and looked at again under the lock."""

    signal_id: str
    message_id: str
    data: str
    digest: str
    only_run: RunId | None = None
    run_id: RunId | None = None
    no: int = 0
    by: str | None = None
    groups: tuple[str, ...] = ()  # of whoever answers, found out before the command
    dedup_key: str | None = None
    hold: timedelta | None = None  # how long to keep it for the first wait of this id, where none is open (F7)
    reason: str = ""  # that an operator gives for it (W10)
    unreadable: tuple[str, ...] = ()  # why there is no answer in `data`: it is refused as one that does not fit (W3)
    unused_id: str | None = None  # the kept arrival that is given as the answer; it goes when it is admitted


class Emit(Command, frozen=True, kw_only=True):
    """Put an event on the workspace's stream: runs that wait for it go on, definitions that it triggers start."""

    event_id: str
    name: str
    data: str
    digest: str
    channel: str = "api"
    starts: tuple[Start, ...] = ()
    misfits: tuple[Unused, ...] = ()  # what definitions could not take as their input
    chore_id: str | None = None  # the promise that this keeps
    hits: tuple[tuple[RunId, int], ...] = ()  # waits that want it, looked up and looked at again under the lock
    once: OnceKey | None = None  # it is done once by its id; this is what else may not come with the key


class Admission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One checkpoint for one pipeline; without a start, why that pipeline does not take it."""

    publication: Publication
    definition: str
    start: Start | None = None
    refusal: str = ""


class AdmitCheckpoint(Command, frozen=True, kw_only=True):
    """Start what admits the checkpoints that a chore hands over (U12). `run_id` is the run that published them."""

    run_id: RunId
    chore: Chore
    admissions: tuple[Admission, ...]


class KeepUnused(Command, frozen=True, kw_only=True):
    """Keep what was refused before it could become a delivery (S12), and take it out of the intake if it lay there."""

    unused: Unused
    intake_id: str | None = None


class Cancel(Command, frozen=True, kw_only=True):
    run_id: RunId
    reason: str = ""
    force: bool = False


class NoteDenial(Command, frozen=True, kw_only=True):
    """Keep on record what a policy denied (G1). `run_id` is the run concerned, or the one that wanted to start it."""

    id: str
    action: str
    principal: str
    reason: str
    target: str
    payload: str
    run_id: RunId | None = None


class Restore(Command, frozen=True, kw_only=True):
    """Put an ended run back with its ledger, as an archive has them."""

    run: Run
    entries: tuple[Stored, ...]


class Release(Command, frozen=True, kw_only=True):
    """Let a held run go on (D10)."""

    run_id: RunId


# ---------------------------------------------------------------- from workers and duties


class Claim(Command, frozen=True, kw_only=True):
    """Take a run that is due. Only the run row decides; the queue entry was a pointer to it."""

    run_id: RunId


class GiveBack(Command, frozen=True, kw_only=True):
    """Return a claim whose step did not run: at shutdown, or where this process lacks the definition."""

    run_id: RunId
    epoch: int
    delay: timedelta = timedelta(0)
    hold: Held | None = None
    reason: str = ""  # why it is held


class FireTimer(Command, frozen=True, kw_only=True):
    run_id: RunId
    no: int


class Consumed(msgspec.Struct, frozen=True, gc=False):
    """A signal that an outcome uses up."""

    seq: int
    id: str


class NewChild(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    run_id: RunId
    definition: str
    version: str
    style: Style
    step: str
    input: str
    queue: str = "default"
    priority: int = 0
    correlation_key: str | None = None
    cleanup_seconds: float | None = None
    tags: str = "{}"
    redact: str | None = None


class Continue(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Go on with another step (`Next`)."""

    step: str
    state: str


class Park(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Wait, for any signal of a set of names or for children."""

    step: str
    state: str
    names: tuple[str, ...] = ()
    children: tuple[NewChild, ...] = ()
    joins: bool = False
    timeout: timedelta | datetime | None = None
    on_timeout: str | None = None
    seen: tuple[int, ...] = ()
    cancel_children: bool = False
    details: str = "{}"
    agenda: Agenda | None = None


class TryAgain(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Redo the step later with what it was handed (`Retry`, or an error that the policy lets be retried)."""

    state: str
    delay: timedelta
    error: str | None = None
    failures: int = 0  # of a machine's step, in a row and this one included: it counts them apart from `attempt`


class End(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    status: Literal["completed", "stopped", "failed"]
    result: str | None = None
    error: str | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Record and go on with the same turn: a step's result is durable before the next step's code starts (D2)."""


class Suspend(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Park a workflow on all its open waits. *awaiting* are those that its body knows as open."""

    awaiting: tuple[int, ...] = ()


class StartAgain(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Begin a workflow anew with another input (`Restart`). *forgets* are all step ids that its turn knows of."""

    input: str
    forgets: tuple[str, ...] = ()
    life: int = 1  # how often it has begun anew, this time included


Move = Continue | Park | TryAgain | End | Hold | Suspend | StartAgain | Settle | Ask


class NewStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a step of a workflow."""

    key: str
    kind: str
    status: Literal["done", "failed", "trying"]
    seq: int = 0  # `records.live_seq`
    attempts: int = 1
    result: str | None = None
    error: str | None = None


class Listening(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which events of its name a wait takes, and from when on."""

    match: str = ""
    channel: str = ""
    after: int = 0  # the newest event when the turn began: later ones are heard
    since: datetime | None = None  # or earlier ones, from this moment on


class NewWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A wait that a workflow opens."""

    key: str
    kind: Literal["children", "sleep", "signal", "receive", "task", "event", "launch", "request"]
    names: tuple[str, ...] = ()
    reserves: bool = False  # of a signal id: hold it, and wait for nothing yet (F7)
    reaches: int | None = None  # the number of the reserved wait that the body waits for now
    expected: int = 0  # of a `receive`: how many signals at least it takes together; 0 for one alone
    timeout: timedelta | datetime | None = None
    child: NewChild | None = None
    task: NewTask | None = None
    listening: Listening | None = None  # of a wait for an event
    request: NewRequest | None = None
    details: str = "{}"
    agenda: Agenda | None = None


class Unseen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The stored answer of a wait that the body gave up before the answer was handed to it: nobody has seen it."""

    key: str
    kind: str
    name: str  # of the signal, or the signal id
    result: str
    seq: int  # its place among the outcomes of the run, which no other has: not in another life either


class CommitTurn(Command, frozen=True, kw_only=True):
    """What a turn led to, if its claim still holds (D3)."""

    run_id: RunId
    parent_id: RunId | None  # never changes, so the turn knows it and the parent is locked with its child
    epoch: int
    commits: int
    move: Move
    consumed: tuple[Consumed, ...] = ()
    steps: tuple[NewStep, ...] = ()  # of a workflow, as are the next four
    opens: tuple[NewWait, ...] = ()
    withdraws: tuple[int, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    forgets: tuple[str, ...] = ()  # failed steps that a retried run tries again
    feed: Feed | None = None  # of a pipeline, as is the next
    publishes: tuple[Publication, ...] = ()
    more: tuple[MoreItems, ...] = ()  # of a workflow's requests
    hears: Hearing | None = None  # of a workflow, where its turn goes on
    keep: bool = True  # go on with this claim where there is something to go on with


class CancelChildren(Command, frozen=True, kw_only=True):
    """The chore that a cancelled or timed-out parent leaves: end the children that are still live."""

    chore_id: str
    run_id: RunId
    children: tuple[RunId, ...]
    reason: str
    is_last: bool  # no child beyond these: the chore may go


AnyCommand = (
    Start
    | Deliver
    | StartOrSignal
    | DeliverMany
    | Admit
    | Once
    | Complete
    | Emit
    | AdmitCheckpoint
    | KeepUnused
    | Restore
    | NoteDenial
    | Cancel
    | Release
    | Claim
    | GiveBack
    | FireTimer
    | CommitTurn
    | CancelChildren
    | AnyRequest
    | AnyItemCommand
    | AnyExchangeCommand
)


# ---------------------------------------------------------------- replies


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a delivery did, truthfully (S10).

    >>> Receipt(outcome="woke", run_id="run_7", wait_id="wait_7_1").outcome
    'woke'
    """

    outcome: Outcome
    run_id: str | None = None
    wait_id: str | None = None
    message_id: str | None = None
    duplicate: bool = False
    started: bool = False  # by `start_or_signal`, which found no live run
    reason: str | None = None
    interaction_id: str | None = None
    decision: str | None = None  # the digest of the decision receipt that an answer was given (W12)
    problems: tuple[str, ...] = ()  # of invalid data, each with its path (W3)


class EventReceipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an event did, truthfully (S10): how many runs it started, and how many it let go on.

    >>> EventReceipt(outcome="woke", id="evt-9", resumed=3).resumed
    3
    """

    outcome: Outcome
    id: str
    started: int = 0
    resumed: int = 0
    duplicate: bool = False


class Receipts(msgspec.Struct, frozen=True, gc=False):
    """One receipt per signal of a `DeliverMany`; where any was refused, none was delivered."""

    receipts: tuple[Receipt, ...]


class TakenIn(msgspec.Struct, frozen=True, gc=False):
    """One receipt for each thing of a `TakeIn`; each was let in or refused for itself."""

    receipts: tuple[Receipt, ...]
    run: Run | None = None
    items: tuple[Item, ...] = ()  # whose work the caller offered to do, and has


class Started(msgspec.Struct, frozen=True, gc=False):
    run: Run
    repeated: bool = False  # the answer to an idempotency key that was used before


class DuplicateRun(msgspec.Struct, frozen=True):
    """The correlation key is held by another run (S8)."""

    correlation_key: str
    holder: RunId


class UsedOtherwise(msgspec.Struct, frozen=True):
    """The idempotency key was used with something else (H2)."""

    key: str


class Committed(msgspec.Struct, frozen=True, gc=False):
    run: Run
    kept: bool  # the claim goes on: the next turn is handed out with this commit


class Stale(msgspec.Struct, frozen=True):
    """The claim is lost; nothing was written (D3)."""

    run_id: RunId


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    run: Run
    already_final: bool = False


class Unknown(msgspec.Struct, frozen=True):
    """There is no such run in this workspace."""

    run_id: str


class InboxFull(msgspec.Struct, frozen=True):
    """As many signals wait in the run's inbox as may, and no open wait takes this one."""

    run_id: RunId
    room: int


class Done(msgspec.Struct, frozen=True, gc=False):
    """It was done, or there was nothing to do."""

    changed: bool
    reason: str = ""


class Denied(msgspec.Struct, frozen=True):
    """Not for who they are (W11). The attempt is in the ledger."""

    run_id: str
    wait_id: str
    reason: str


class Unwelcome(msgspec.Struct, frozen=True):
    """The key that it was sent with is unknown, expired or revoked (G5). Nothing was done."""


class Conflicting(msgspec.Struct, frozen=True):
    """Somebody else was first."""

    id: str
    reason: str


class Again(msgspec.Struct, frozen=True):
    """The target moved between look-up and lock: resolve it anew and execute the command again."""


class Failed(msgspec.Struct, frozen=True):
    """This command broke the rules' own code; its neighbours in the batch did not notice."""

    error: Exception


Reply = (
    Receipt
    | EventReceipt
    | Receipts
    | TakenIn
    | Started
    | DuplicateRun
    | UsedOtherwise
    | Committed
    | Stale
    | Cancelled
    | Unknown
    | InboxFull
    | Done
    | Denied
    | Unwelcome
    | Conflicting
    | Again
    | Failed
    | ClaimedItems
    | Marked
)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with free slots: a run that becomes ready in this batch is claimed for it in the same commit."""

    worker: str
    lease: timedelta
    slots: int = 0
    queues: frozenset[str] = frozenset({"default"})
    definitions: frozenset[str] = frozenset()  # names this process can run
    max_claims: int = 5
    last_try: bool = True  # it has no run on its last try yet: it takes one of those at a time
