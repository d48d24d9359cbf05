"""The records: what a run, a wait and an inbox are made of. Stores keep them, only `bide.core.decide` changes them.

Payloads travel as JSON text and are decoded at the border where user code starts. Times are aware UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, Literal, NewType

import msgspec

RunId = NewType("RunId", str)
NO_RUN = RunId("")  # of what belongs to no run, or to none yet

RunStatus = Literal["ready", "running", "waiting", "completed", "stopped", "failed", "cancelled"]
WaitStatus = Literal["reserved", "waiting", "completed", "timed_out", "failed", "cancelled"]
InteractionStatus = Literal["pending", "dispatching", "waiting", "completed", "timed_out", "failed", "cancelled"]
ItemStatus = Literal["ready", "waiting", "done", "dropped", "rejected", "dead"]
Held = Literal["poison", "history_mismatch", "stuck_thread"]
Style = Literal["machine", "workflow", "pipeline", "machine_file"]

REPLAYED: frozenset[Style] = frozenset({"workflow", "machine_file"})
"""Styles whose body runs from the top on every turn, with steps and waits that are remembered by their ids."""

FINAL: frozenset[RunStatus] = frozenset({"completed", "stopped", "failed", "cancelled"})
OPEN_WAIT: frozenset[WaitStatus] = frozenset({"reserved", "waiting"})
OPEN_INTERACTION: frozenset[InteractionStatus] = frozenset({"pending", "dispatching", "waiting"})


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row. Frozen: a new version is made with `msgspec.structs.replace`.

    Made with keywords everywhere but by stores, which read rows by the thousand and in the order of the fields.
    """


class Run(Record, frozen=True, gc=False):
    """One durable execution of a definition. Its row is the only mutex: whoever changes anything of a run holds it."""

    workspace: str
    id: RunId
    definition: str
    version: str
    style: Style
    status: RunStatus
    step: str  # the step that the next turn runs
    state: str
    input: str
    created_at: datetime
    updated_at: datetime
    ready_at: datetime  # not claimed before this moment
    ended_at: datetime | None = None
    result: str | None = None
    error: str | None = None  # an encoded RunError
    held: Held | None = None
    attempt: int = 0  # redos of the current step that the program asked for (M4)
    claims: int = 0  # claims since the last commit: how often this turn killed its worker (D10)
    epoch: int = 0  # the number of the newest claim; the only thing that permits a commit (D3)
    commits: int = 0  # commits so far; with the epoch it names one outcome
    queue: str = "default"
    priority: int = 0
    wait_no: int = 0  # the number given to the newest wait of this run
    parked_on: int | None = None  # the wait it is parked on
    woken_by: int | None = None  # the wait whose end the current step is handed, until the step progresses
    open_waits: tuple[int, ...] = ()
    inbox_seq: int = 0  # the number given to the newest signal: arrival order, and the sign that something came
    inbox_count: int = 0
    correlation_key: str | None = None
    correlation_scope: Literal["live", "forever"] = "live"
    parent_id: RunId | None = None
    parent_wait: int | None = None
    child_no: int | None = None
    has_children: bool = False
    cleanup_seconds: float | None = None  # how long a clean-up may take; None: a cancel ends the run at once (W8)
    cancel_reason: str | None = None  # a clean-up is under way
    cancel_until: datetime | None = None
    retry_of: RunId | None = None
    tags: str = "{}"
    ledger_seq: int = 0
    ledger_head: str = ""
    redact: str | None = None  # names of fields, with commas between them, that are never shown (G4)
    trace: str | None = None  # the W3C trace context that it was started in (`bide.core.traces`)


class Wait(Record, frozen=True, gc=False):
    """The boundary a run is parked on, and the source of truth for what completed it."""

    workspace: str
    run_id: RunId
    no: int
    key: str  # the step id it is memoised under; for machines the step that follows
    kind: Literal["signals", "children", "sleep", "signal", "receive", "task", "request", "items", "event", "launch"]
    status: WaitStatus
    opened_at: datetime
    names: tuple[str, ...] = ()
    seen: tuple[int, ...] = ()  # signals that the parking step was handed: they do not wake it again (S6)
    partial: tuple[int, ...] = ()  # what was there when the timeout committed (S4)
    deadline: datetime | None = None
    on_timeout: str | None = None  # the step a timeout leads to, where it is another than `key`; `!fail` fails the run
    due_at: datetime | None = None  # when the wait next needs a look by itself: the deadline, or a reminder before it
    closed_at: datetime | None = None
    cause: str | None = None
    expected: int = 0  # children of a join; signals of a pack
    received: int = 0
    cancel_children: bool = False
    details: str = "{}"  # what people see: title, channel, assignee, metadata, …

    @property
    def id(self) -> str:
        return wait_id(self.run_id, self.no)


class Interaction(Record, frozen=True, gc=False):
    """One exchange of a wait that the outside sees. What is common to all exchanges of a wait is in the wait (U1)."""

    workspace: str
    run_id: RunId
    no: int
    item: int  # from 0, in the order of a wait's items
    status: InteractionStatus
    opened_at: datetime
    definition: str  # of the run, so that lists need no look at it
    step: str
    correlation_id: str
    payload: str = "null"  # the request, or what is shown to whoever answers
    transport: str = "interaction-api"
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None
    claimed_by: str | None = None
    answers: str = "[]"  # those given so far, where several must agree: encoded `bide.core.quorum.Given`
    answer: str | None = None
    digest: str = ""  # of the answer: the same one again is a duplicate (U8)
    answered_by: str | None = None
    closed_at: datetime | None = None

    @property
    def id(self) -> str:
        return interaction_id(self.run_id, self.no, self.item)


class Item(Record, frozen=True, gc=False):
    """One item of a stream of a pipeline, and how far it has come. Its number is its idempotency key (U5)."""

    run_id: RunId
    section: int  # which stream of the run
    item: int  # from 0
    status: ItemStatus
    stage: int  # of the stream: the one whose work it wants or whose answer it awaits; past the last, it is done
    value: str
    key: str | None = None  # its business key
    epoch: int = 0  # of the newest claim; the only thing that permits a commit of its work (U4)
    claims: int = 0  # since its last outcome: how often its work killed its worker
    attempts: int = 0  # failures of the current stage
    due_at: datetime | None = None  # when a worker may have it: now, later, or when its lease ends
    error: str | None = None  # why it was rejected, or what its work failed with last


class Unit(Record, frozen=True, gc=False):
    """The counts of a request's interactions, apart from its wait: they change often, and few waits have them."""

    run_id: RunId
    no: int
    expected: int = 0  # interactions so far
    handed: int = 0  # those that are out of the outbox's hands
    received: int = 0  # interactions that have ended
    rejected: int = 0  # of those, the ones that came to nothing
    filled: bool = False  # no interaction will be added
    dispatched: bool = False  # filled, and all handed over


class Signal(Record, frozen=True, gc=False):
    """A named payload in a run's inbox."""

    workspace: str
    run_id: RunId
    seq: int
    id: str
    name: str
    payload: str
    received_at: datetime


class Name(Record, frozen=True, gc=False):
    """Something unique across runs: a correlation key that a run holds, a dedup key that was admitted, a signal id."""

    workspace: str
    kind: Literal["correlation", "dedup", "signal"]
    name: str
    run_id: RunId  # `NO_RUN` where an answer is held for a run that is not known yet (F7)
    digest: str  # of the payload that was admitted under a dedup key; "open", "closed" or "held" for a signal id
    message_id: str  # or the number of the wait that holds a signal id, with a "!" where another run wanted it, too
    created_at: datetime

    @property
    def has_collided(self) -> bool:
        """Whether another run wanted the signal id, so that an answer must say which one it is for (F5)."""
        return self.kind == "signal" and self.message_id.endswith("!")


class EventRow(Record, frozen=True, gc=False):
    """An event on a workspace's stream, kept for those who look back, and to know a repeat by its id."""

    workspace: str
    seq: int  # its place on the stream
    id: str
    name: str
    data: str
    digest: str
    channel: str
    at: datetime
    started: int = 0
    resumed: int = 0


class Listener(Record, frozen=True, gc=False):
    """An open wait for an event, kept where an event of that topic looks for it."""

    run_id: RunId
    no: int
    workspace: str
    topic: str  # `topics.topic_of` its pattern
    eq: str  # the indexed equality of its expression, or empty
    pattern: str
    match: str  # an expression, or empty
    channel: str  # or empty: any


class QueueEntry(Record, frozen=True, gc=False):
    """A run that wants a worker, or has one. `due_at` is when it may be claimed: now, later, or when its lease ends.

    A lease that ends makes the run claimable again without anybody doing anything.
    """

    run_id: RunId
    queue: str
    priority: int
    due_at: datetime
    epoch: int
    worker: str | None = None


class Timer(Record, frozen=True, gc=False):
    """The next moment at which a wait (or with number 0 the run itself) needs a look."""

    run_id: RunId
    no: int
    due_at: datetime


class StepRow(Record, frozen=True, gc=False):
    """The stored outcome of one step, or of one wait, of a workflow: what a replay hands back (F1, F6)."""

    run_id: RunId
    key: str  # the step's id, with `#2` for its second use
    kind: str  # what made it: code that finds another kind here has changed (F17)
    status: Literal["done", "failed", "timed_out", "trying"]
    seq: int  # results are handed back in this order
    attempts: int = 1
    result: str | None = None
    error: str | None = None  # an encoded RunError


# Keys of bide's own have a character in them that no step id of a user can have, for it is not printable (law 7).
# People see them: it looks like a space. Runs that began before have keys without it.
OWN: Final = "\u00a0"
CANCELLED: Final = f"bide{OWN}cancelled"  # the row that says where in the order a workflow was cancelled (W8)
EARLIER_CANCELLED: Final = "bide/cancelled"
LIFE: Final = "\x01life"  # the row that says how often a workflow has begun anew
FAILURES: Final = "\x01failures"  # the row that says how often in a row a machine's step has failed (M5)
HEARING: Final = "\x01hearing"  # the row that says from where on a turn that has not ended hears events (F8)
_UNSEEN: Final = frozenset({LIFE, FAILURES, HEARING})
_PAUSE: Final = re.compile(rf"(?P<step>.+)(?:{OWN}\(pause{OWN}(?P<no>[0-9]+)\)|/pause(?P<earlier>[0-9]+))", re.DOTALL)


def steps_of(rows: Iterable[StepRow]) -> Iterator[StepRow]:
    """The rows that tell of steps and waits, without those of bide's own that say nothing to people."""
    return (row for row in rows if row.key not in _UNSEEN)


def pause_key(step: str, attempts: int) -> str:
    """The key of the pause after so many attempts of a step.

    >>> paused(pause_key("print", 2))
    ('print', 2)
    """
    return f"{step}{OWN}(pause{OWN}{attempts})"


def earlier_pause_key(step: str, attempts: int) -> str:
    return f"{step}/pause{attempts}"


def paused(key: str) -> tuple[str, int] | None:
    """Which step a sleep is the pause of, and after how many attempts; None for one of the user's own."""
    match = _PAUSE.fullmatch(key)
    return (match["step"], int(match["no"] or match["earlier"])) if match is not None else None


# Replays hand results back in the order in which the body got them when they were new. What a turn's own steps led to,
# the body gets in that turn; a wait that ends meanwhile, only in the next one. So the steps of a turn come right after
# the ledger's end as it was when the turn began, and a wait comes where its end is in the ledger.
STEPS_OF_A_TURN = 2**31


def live_seq(ledger_seq: int, outcome: int) -> int:
    """The place of the n-th outcome of a turn that began at this end of the ledger.

    >>> live_seq(4, 1) < live_seq(4, 2) < wait_seq(5) < live_seq(5, 1)
    True
    """
    return ledger_seq * STEPS_OF_A_TURN + outcome


def wait_seq(ledger_seq: int) -> int:
    """The place of a wait's outcome whose ledger entry has this number."""
    return ledger_seq * STEPS_OF_A_TURN


class LedgerPage(Record, frozen=True, gc=False):
    """The ledger entries of one commit of one run, as JSON text: a list of `bide.core.ledger.Entry`."""

    run_id: RunId
    seq: int  # of its first entry
    entries: str


class Chore(Record, frozen=True, gc=False):
    """Work that a commit promised and that is done after it, at least once (the outbox)."""

    id: str
    run_id: RunId
    kind: Literal["cancel_children", "notify", "emit", "dispatch", "expire", "admit", "hold", "forget"]
    data: str
    due_at: datetime  # while a process is at it, the moment at which others may try (claimed chores only)
    workspace: str = ""
    tries: int = 0


class DeadLetter(Record, frozen=True, gc=False):
    """A chore that failed as often as it may, kept until a person retries or discards it."""

    workspace: str
    id: str  # of the chore
    run_id: RunId
    kind: str
    data: str
    error: str
    tries: int
    at: datetime


class Unused(Record, frozen=True, gc=False):
    """What arrived and could not be used, kept with its reason for an operator (S12)."""

    workspace: str
    id: str
    run_id: str
    target: str
    name: str
    payload: str
    reason: str
    at: datetime


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, as its parent sees it in `ctx.children`.

    >>> ChildResult(id="run_1", definition="ship", status="completed", result=7).result
    7
    """

    id: str
    definition: str
    status: RunStatus
    result: object = None
    error: RunError | None = None


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed or stopped. `str()` of it is "CODE: message".

    >>> str(RunError(code="AWAIT_TIMEOUT", message="wait wait_1_2 timed out"))
    'AWAIT_TIMEOUT: wait wait_1_2 timed out'
    """

    code: str
    message: str
    type: str | None = None
    step: str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def told(self) -> str:
        """The same for people, with what was raised where the code does not say it.

        >>> RunError(code="RunFailed", message="'total'", type="KeyError").told
        "RunFailed (KeyError): 'total'"
        >>> RunError(code="AWAIT_TIMEOUT", message="too late", type="AwaitTimeout").told
        'AWAIT_TIMEOUT: too late'
        """
        is_said = self.type in (None, self.code) or self.code not in ("RunFailed", "StepFailed", "NonRetryable")
        return str(self) if is_said else f"{self.code} ({self.type}): {self.message}"


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claimed run with what its step needs, loaded together."""

    run: Run
    inbox: tuple[Signal, ...] = ()
    woken_by: Wait | None = None
    children: tuple[Run, ...] = ()
    steps: tuple[StepRow, ...] = ()  # of a workflow
    waits: tuple[Wait, ...] = ()  # open ones of a workflow
    stream_seq: int = 0  # of a workflow: the newest event of its workspace when the turn began


class Hearing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From where on the waits that a turn opens hear events: where the stream and the clock stood when it began."""

    after: int
    at: datetime


def hearing_of(turn: Turn, row: StepRow | None) -> Hearing:
    """From where on a turn hears events, with the row that an earlier one may have left (D4, F8).

    Where the newest commit is one that a turn meant to go on after, that turn broke off. This one does what it would
    have done, and hears what it would have heard: an event may have come between its step and the wait for it.
    """
    if row is not None and row.seq == turn.run.commits and row.result is not None:
        return msgspec.json.decode(row.result, type=Hearing)
    return Hearing(turn.stream_seq, turn.run.updated_at)


def failures_of(turn: Turn) -> int:
    """How often in a row the step that a machine's turn redoes has failed (M5).

    The row counts where the commit that wrote it is the newest. After any other one, a `Retry` too, there is no failure
    to count.
    """
    row = next((row for row in turn.steps if row.key == FAILURES), None)
    return row.attempts if row is not None and row.seq == turn.run.commits else 0


_WAIT_ID: Final = re.compile("wait_(.+)_([0-9]{1,9})", re.DOTALL)
_INTERACTION_ID: Final = re.compile("int_(.+)_([0-9]{1,9})_([0-9]{1,9})", re.DOTALL)


def wait_id(run_id: str, no: int) -> str:
    """A wait's id names its run, so that an answer finds the row to lock without a look-up.

    >>> wait_id("run_01j", 2)
    'wait_01j_2'
    """
    return f"wait_{run_id.removeprefix('run_')}_{no}"


def run_of_wait(id: str) -> tuple[RunId, int] | None:
    """The run and number that a wait's id names; None where it is not the id of a wait.

    >>> run_of_wait("wait_01j_2")
    ('run_01j', 2)
    """
    found = _WAIT_ID.fullmatch(id)
    return (RunId(f"run_{found[1]}"), int(found[2])) if found is not None else None


def interaction_id(run_id: str, no: int, item: int) -> str:
    """An interaction's id names its run and wait, for the same reason.

    >>> interaction_id("run_01j", 2, 0)
    'int_01j_2_0'
    """
    return f"int_{run_id.removeprefix('run_')}_{no}_{item}"


def run_of_interaction(id: str) -> tuple[RunId, int, int] | None:
    """The run, wait and item that an interaction's id names; None where it is not the id of one.

    >>> run_of_interaction("int_01j_2_0")
    ('run_01j', 2, 0)
    """
    found = _INTERACTION_ID.fullmatch(id)
    return (RunId(f"run_{found[1]}"), int(found[2]), int(found[3])) if found is not None else None
