"""Where events and waits for them meet, on a server with other clients: the twin of `transaction._meet`.

The streams come before any run, in the order of their workspaces, and what is read of them in later statements. A batch
that needs no stream sends not one statement more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from bide.core import meetings
from bide.core.batch import Changes
from bide.core.commands import AnyCommand
from bide.core.records import EventRow, Listener
from bide.stores.postgres.arrays import arrays
from bide.stores.postgres.rows import Row
from bide.stores.postgres.transactions import Transaction


async def meet(
    transaction: Transaction, stream: meetings.Stream, commands: Sequence[AnyCommand]
) -> Sequence[AnyCommand]:
    """Take the streams that commands need and see who meets there; the commands with events aimed at their waits."""
    meeting = meetings.meeting(commands)
    if meeting is None:
        return commands
    tables = Streams(transaction)
    for workspace, events in meeting.workspaces():
        stream.seqs[workspace] = await tables.take(workspace, events)
    for search in meeting.searches:
        search.see(stream.seqs[search.workspace])
        if search.since is not None:
            search.begin(await tables.first_event_since(search.workspace, search.since))
        while not search.is_over:
            search.take(await tables.next_events(search))
        if search.found is not None:
            stream.found[search.key] = search.found
    if not meeting.emits:
        return commands
    known = await tables.load_events(meeting.event_ids())
    stream.known.update(((event.workspace, event.id), event) for event in known)
    hearings = meeting.hearings(stream.known)
    lookups = {lookup for hearing in hearings for lookup in hearing.lookups()}
    return meetings.with_hits(commands, hearings, await tables.load_listeners(lookups))


async def write(transaction: Transaction, changes: Changes) -> None:
    if changes.events:
        await transaction.fetch("insert_events", *arrays(transaction.rows.columns(changes.events)))
    gone = [key for key, listener in changes.listeners.items() if listener is None]
    if gone:
        await transaction.fetch("delete_listeners", *arrays(zip(*gone, strict=True)))
    opened = [listener for listener in changes.listeners.values() if listener is not None]
    if opened:
        await transaction.fetch("insert_listeners", *arrays(transaction.rows.columns(opened)))


class Streams:
    def __init__(self, transaction: Transaction) -> None:
        self._fetch = transaction.fetch
        self._rows = transaction.rows

    async def take(self, workspace: str, events: int) -> int:
        """Hold a stream for events that may come, or share it where none will; the number before them."""
        if events:
            [(last,)] = await self._fetch("take_stream", workspace, events)
            return int(last) - events
        rows = await self._fetch("share_stream", workspace)
        if not rows:
            await self._fetch("open_stream", workspace)
            rows = await self._fetch("share_stream", workspace)
        return int(rows[0][0])

    async def load_events(self, keys: Collection[meetings.EventKey]) -> list[EventRow]:
        return [
            self._rows.read_event(row) for row in await self._fetch("select_events", *arrays(zip(*keys, strict=True)))
        ]

    async def load_listeners(self, lookups: Collection[meetings.Lookup]) -> list[Listener]:
        by_equality = [lookup for lookup in lookups if lookup[2] is not None]
        by_topic = [lookup[:2] for lookup in lookups if lookup[2] is None]
        rows: list[Row] = []
        if by_equality:
            rows += await self._fetch("select_listeners", *arrays(zip(*by_equality, strict=True)))
        if by_topic:
            rows += await self._fetch("select_listeners_of_topic", *arrays(zip(*by_topic, strict=True)))
        return [self._rows.read_listener(row) for row in rows]

    async def first_event_since(self, workspace: str, moment: datetime) -> int | None:
        rows = await self._fetch("select_first_event_since", workspace, moment)
        return rows[0][0] if rows else None

    async def next_events(self, search: meetings.Search) -> list[EventRow]:
        statement = "select_events_fitting" if search.name is None else "select_events_named"
        name = search.prefix if search.name is None else search.name
        rows = await self._fetch(statement, search.workspace, name, search.reached, meetings.EVENTS_AT_ONCE)
        return [self._rows.read_event(row) for row in rows]
