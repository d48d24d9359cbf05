"""Events: an emit starts what it triggers and lets go on who waits for it, in one commit (F8, S10, L7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from bide.core.agenda import terms
from bide.core.batch import Draft
from bide.core.commands import REFUSED, Emit, EventReceipt, Listening, Outcome, Reply, UsedOtherwise
from bide.core.expressions import Facts
from bide.core.hiding import told_digest
from bide.core.meetings import listener_of, wants
from bide.core.moves import close_wait, wake
from bide.core.once import is_other, keep, once_name
from bide.core.records import FINAL, OPEN_WAIT, Chore, EventRow, Run, RunId, Unused, Wait
from bide.core.starting import start


def emit(draft: Draft, command: Emit) -> Reply:
    """Put the event on the stream, once for its id."""
    if command.once is None:
        return _emit(draft, command)
    if is_other(command.once, draft.name(command.workspace, "dedup", once_name(command.once)), draft.now):
        return UsedOtherwise(command.once.key)
    receipt = _emit(draft, command)
    if receipt.outcome not in REFUSED:
        keep(draft, command.workspace, command.once)
    return receipt


def _emit(draft: Draft, command: Emit) -> EventReceipt:
    if command.chore_id is not None:
        draft.chores[command.chore_id] = None
    known = draft.event(command.workspace, command.event_id)
    if known is not None:
        return _repeat(draft, command, known)
    event = EventRow(
        workspace=command.workspace,
        seq=draft.next_event(command.workspace),
        id=command.event_id,
        name=command.name,
        data=command.data,
        digest=command.digest,
        channel=command.channel,
        at=draft.now,
    )
    resumed = _resume(draft, command, event)
    for new in command.starts:
        start(draft, new)
    draft.unused.extend(replace(misfit, at=draft.now) for misfit in command.misfits)
    event = replace(event, started=len(command.starts), resumed=resumed)
    draft.events.append(event)
    outcome: Outcome = "woke" if event.started or event.resumed else "queued"
    return EventReceipt(outcome=outcome, id=event.id, started=event.started, resumed=event.resumed)


def _repeat(draft: Draft, command: Emit, known: EventRow) -> EventReceipt:
    """The same event again changes nothing and hears what the first one did; another under its id is refused (S7)."""
    if (known.digest, known.name, known.channel) == (command.digest, command.name, command.channel):
        return EventReceipt(
            outcome="duplicate", id=known.id, started=known.started, resumed=known.resumed, duplicate=True
        )
    draft.unused.append(
        Unused(
            workspace=command.workspace,
            id=command.event_id,
            run_id="",
            target=command.event_id,
            name=command.name,
            payload=command.data,
            reason="dedup_conflict",
            at=draft.now,
        )
    )
    return EventReceipt(outcome="conflict", id=known.id)


def _resume(draft: Draft, command: Emit, event: EventRow) -> int:
    """Complete every wait that wants the event; how many runs had one."""
    waits: dict[RunId, list[int]] = {}
    for run_id, no in (*command.hits, *_opened_meanwhile(draft, command)):
        waits.setdefault(run_id, []).append(no)
    answer = answer_of(event)
    resumed = 0
    for run_id, nos in waits.items():
        run = draft.run(run_id)
        if run is None or run.workspace != command.workspace or run.status in FINAL:
            continue
        there = [wait for no in nos if (wait := draft.wait(run_id, no)) is not None and wait.status in OPEN_WAIT]
        for wait in there:
            run = _complete(draft, run, wait, event, answer)
        if there:
            resumed += 1
            if run.status == "waiting":
                wake(draft, run, there[0], there[0].key)
    return resumed


def _opened_meanwhile(draft: Draft, command: Emit) -> Iterator[tuple[RunId, int]]:
    """Waits that a command before this one opened: no store has told of them."""
    opened = [row for row in draft.view.changes.listeners.values() if row is not None]
    if opened:
        facts = Facts(command.data)
        for row in opened:
            if row.workspace == command.workspace and wants(row, command, facts):
                yield row.run_id, row.no


def _complete(draft: Draft, run: Run, wait: Wait, event: EventRow, answer: str) -> Run:
    told = {"event": event.id, "name": event.name, "digest": told_digest(draft, run, event.data, event.digest)}
    return close_wait(draft, run, wait, "completed", "event", answer=answer, told=told)


def answer_of(event: EventRow) -> str:
    """The event as a run that waited for it is handed it."""
    said = {
        "id": event.id,
        "name": event.name,
        "data": msgspec.Raw(event.data.encode()),
        "at": event.at,
        "channel": event.channel,
    }
    return msgspec.json.encode(said).decode()


def stand_in(wait: Wait, id: str, data: str, digest: str, at: datetime) -> EventRow:
    """The event that an answer by hand stands for: the answer's id, and as its name what the wait listens for."""
    channel = terms(wait).get("channel") or "api"
    [name] = wait.names
    return EventRow(workspace=wait.workspace, seq=0, id=id, name=name, data=data, digest=digest, channel=channel, at=at)


def listen(draft: Draft, run: Run, wait: Wait, listening: Listening) -> Run:
    """Open a wait for an event: the earliest one that it takes completes it at once, or else the next (law 2)."""
    listener = listener_of(wait, listening)
    event = draft.view.stream.found.get((run.id, wait.key))
    if event is None:
        emitted = (event for event in draft.view.stream.emitted if event.workspace == run.workspace)
        event = next((each for each in emitted if wants(listener, each, Facts(each.data))), None)
    if event is not None:
        return _complete(draft, run, wait, event, answer_of(event))
    draft.listeners[(run.id, wait.no)] = listener
    return run


def publish(draft: Draft, run: Run, *, id: str, name: str, data: str, channel: str = "api") -> None:
    """Promise an event from within another command: it is emitted after the commit, once, by whoever is alive.

    A command that holds a run cannot take the stream any more, so the event rides in the commit as a chore.
    """
    chore = Promised(workspace=run.workspace, event_id=id, name=name, data=data, channel=channel)
    chore_id = f"emit:{run.workspace}:{id}"
    text = msgspec.json.encode(chore).decode()
    draft.chores[chore_id] = Chore(
        id=chore_id, run_id=run.id, kind="emit", data=text, due_at=draft.now, workspace=run.workspace
    )


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a commit promised."""

    workspace: str
    event_id: str
    name: str
    data: str  # JSON
    channel: str
