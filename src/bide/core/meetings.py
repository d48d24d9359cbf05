"""Where events and waits for them meet: what a store locks and reads of a workspace's stream, before any run.

An emit takes the stream for itself, a commit that opens a wait for an event shares it. So of the two whichever commits
second sees the other: an emit finds the wait, or the wait finds the event. Closing a wait needs no stream: an emit
looks at each wait again under the lock of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.commands import AnyCommand, CommitTurn, Emit, Listening
from bide.core.expressions import Facts, equality_of
from bide.core.records import EventRow, Listener, RunId, Wait
from bide.core.topics import fits, literal_prefix, topic_of, topics_of

EVENTS_AT_ONCE = 100  # that a look back reads

EventKey = tuple[str, str]  # workspace, event id
Lookup = tuple[str, str, str | None]  # workspace, topic, indexed equality; None: all of the topic


class Stream:
    """What a batch knows of the streams that it holds."""

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}  # the newest event of each workspace whose stream is held
        self.known: dict[EventKey, EventRow] = {}
        self.found: dict[tuple[RunId, str], EventRow] = {}  # for a run's wait of this key, the earliest that it takes
        self.emitted: list[EventRow] = []  # by this batch


class Meeting:
    """The commands of a batch that need a stream."""

    def __init__(self) -> None:
        self.emits: list[Emit] = []
        self.searches: list[Search] = []

    def workspaces(self) -> list[tuple[str, int]]:
        """Whose streams to take, in this order, and how many events may come on each; with none it may be shared."""
        counts = dict.fromkeys((search.workspace for search in self.searches), 0)
        for emit in self.emits:
            counts[emit.workspace] = counts.get(emit.workspace, 0) + 1
        return sorted(counts.items())

    def event_ids(self) -> set[EventKey]:
        return {(emit.workspace, emit.event_id) for emit in self.emits}

    def hearings(self, known: Iterable[EventKey]) -> list[Hearing]:
        """Who may hear each event; of a repeat nobody."""
        repeats = set(known)
        return [Hearing(emit) for emit in self.emits if (emit.workspace, emit.event_id) not in repeats]


def meeting(commands: Iterable[AnyCommand]) -> Meeting | None:
    """None, as almost always, where no command needs a stream."""
    found: Meeting | None = None
    for command in commands:
        if isinstance(command, CommitTurn):
            for new in command.opens:
                if new.listening is not None:
                    found = found or Meeting()
                    found.searches.append(Search(command, new.key, new.names[0], new.listening))
        elif isinstance(command, Emit):
            found = found or Meeting()
            found.emits.append(command)
    return found


class Hearing:
    """One event that looks for the waits that want it."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self._facts = Facts(emit.data)

    def lookups(self) -> Iterable[Lookup]:
        equalities = self._facts.equalities()
        for topic in topics_of(self.emit.name):
            if equalities is None:
                yield self.emit.workspace, topic, None
            else:
                yield from ((self.emit.workspace, topic, eq) for eq in ("", *equalities))

    def hits(self, listeners: Iterable[Listener]) -> tuple[tuple[RunId, int], ...]:
        """Those among the listeners who want it."""
        return tuple(
            (listener.run_id, listener.no)
            for listener in listeners
            if listener.workspace == self.emit.workspace and wants(listener, self.emit, self._facts)
        )


def with_hits(
    commands: Sequence[AnyCommand], hearings: Iterable[Hearing], listeners: Sequence[Listener]
) -> list[AnyCommand]:
    """The commands with events addressed to the waits that want them."""
    aimed = {id(hearing.emit): replace(hearing.emit, hits=hearing.hits(listeners)) for hearing in hearings}
    return [aimed.get(id(command), command) for command in commands]


def wants(listener: Listener, event: Emit | EventRow, facts: Facts) -> bool:
    """Whether this wait takes that event (F8, L3)."""
    return (
        listener.channel in ("", event.channel) and fits(listener.pattern, event.name) and facts.satisfy(listener.match)
    )


def listener_of(wait: Wait, listening: Listening) -> Listener:
    """Where an open wait for an event is found."""
    [pattern] = wait.names
    return _listener(wait.workspace, wait.run_id, wait.no, pattern, listening)


def _listener(workspace: str, run_id: RunId, no: int, pattern: str, listening: Listening) -> Listener:
    return Listener(
        run_id=run_id,
        no=no,
        workspace=workspace,
        topic=topic_of(pattern),
        eq=equality_of(listening.match) if listening.match else "",
        pattern=pattern,
        match=listening.match,
        channel=listening.channel,
    )


class Search:
    """A wait that opens and looks for the earliest event that it takes, among those that came before it (law 2)."""

    def __init__(self, command: CommitTurn, key: str, pattern: str, listening: Listening) -> None:
        self.workspace = command.workspace
        self.key = (command.run_id, key)
        self.since = listening.since
        self.name = pattern if "*" not in pattern else None  # where it is one name, an index has its events
        self.prefix = literal_prefix(pattern)
        self.reached = listening.after
        self.found: EventRow | None = None
        self.is_over = False
        self._after = listening.after
        self._listener = _listener(command.workspace, command.run_id, 0, pattern, listening)

    def see(self, newest: int) -> None:
        """*newest* is the number of the stream's newest event: where none came in between, nothing has to be read."""
        self.is_over = self.since is None and newest <= self._after

    def begin(self, first: int | None) -> None:
        """*first* is the number of the first event since the moment that it looks back to, if there is one."""
        if first is not None:
            self.reached = min(self.reached, first - 1)

    def take(self, page: Sequence[EventRow]) -> None:
        """Look at the next events, of which there are `EVENTS_AT_ONCE` unless they are the last."""
        for event in page:
            if self._is_heard(event.seq, event.at) and wants(self._listener, event, Facts(event.data)):
                self.found = event
                self.is_over = True
                return
        self.is_over = len(page) < EVENTS_AT_ONCE
        if page:
            self.reached = page[-1].seq

    def _is_heard(self, seq: int, at: datetime) -> bool:
        return seq > self._after or (self.since is not None and at >= self.since)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A named payload on a workspace's stream, as a run that waited for it is handed it.

    >>> Event(id="evt-9", name="order.shipped", data={"order": 1}, at=datetime(2030, 1, 1)).data
    {'order': 1}
    """

    id: str
    name: str
    data: Any = None
    at: datetime
    channel: str = "api"
