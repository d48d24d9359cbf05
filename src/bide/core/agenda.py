"""What happens while a wait is open and its run sleeps on: reminders, escalation, heartbeats (W9, W13)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bide.core.durations import deadline_after
from bide.core.records import Wait
from bide.core.requests import Agenda

WHOM: Final = ("assignee", "group")
REASSIGNED: Final = "reassigned"  # among the details of a reserved wait


class Due(msgspec.Struct, frozen=True):
    """One thing that is due: `to` is who it is escalated to, None for a reminder."""

    at: datetime
    to: str | None = None


def terms(wait: Wait) -> dict[str, Any]:
    """The details of a wait."""
    found: dict[str, Any] = msgspec.json.decode(wait.details) if wait.details != "{}" else {}
    return found


def with_terms(wait: Wait, details: dict[str, Any]) -> Wait:
    return replace(wait, details=msgspec.json.encode(details).decode())


def assigned(wait: Wait, assignee: str | None, group: str | None) -> Wait:
    """The wait for these from now on. One that is reserved keeps in mind that they were named from outside (W10)."""
    details = {name: value for name, value in terms(wait).items() if name not in WHOM}
    if wait.status == "reserved":
        details[REASSIGNED] = True
    given = {"assignee": assignee, "group": group}
    return with_terms(wait, details | {name: whom for name, whom in given.items() if whom is not None})


def reached(reserved: Wait, details: str) -> str:
    """The details that the body gives a reserved wait when it gets there, but for whom the outside named before."""
    before = terms(reserved)
    if not before.get(REASSIGNED):
        return details
    given = {name: value for name, value in msgspec.json.decode(details).items() if name not in WHOM}
    return msgspec.json.encode(given | {name: before[name] for name in WHOM if name in before}).decode()


def begin(wait: Wait, agenda: Agenda | None, now: datetime) -> Wait:
    """Set the clock of a wait that opens now: its times are moments from here on."""
    if agenda is None:
        return wait
    details = terms(wait)
    steps: list[tuple[datetime, str | None]] = [(now_plus(now, after), None) for after in agenda.reminders]
    steps += [(now_plus(now, after), to) for after, to in agenda.escalate]
    if steps:
        details["agenda"] = sorted(steps, key=lambda step: step[0])
    if agenda.heartbeat is not None:
        details["heartbeat"] = agenda.heartbeat.total_seconds()
        details["silent_at"] = now_plus(now, agenda.heartbeat)
    return look(with_terms(wait, details))


def now_plus(now: datetime, after: timedelta) -> datetime:
    return deadline_after(now, after)


def planned(wait: Wait) -> list[Due]:
    """What is still to come, in its order."""
    details = terms(wait)
    return [Due(*step) for step in msgspec.convert(details.get("agenda", []), list[tuple[datetime, str | None]])]


def silent_at(wait: Wait) -> datetime | None:
    """When silence fails the wait."""
    moment = terms(wait).get("silent_at")
    return msgspec.convert(moment, datetime) if moment is not None else None


def look(wait: Wait) -> Wait:
    """The wait with the moment at which it next needs a look (`Wait.due_at`)."""
    moments = [wait.deadline, silent_at(wait), *(due.at for due in planned(wait)[:1])]
    return replace(wait, due_at=min((moment for moment in moments if moment is not None), default=None))


def take_due(wait: Wait, now: datetime) -> tuple[list[Due], Wait]:
    """What is due by now, and the wait without it."""
    steps = planned(wait)
    due = [step for step in steps if step.at <= now]
    details = terms(wait)
    details["agenda"] = [(step.at, step.to) for step in steps if step.at > now]
    if not details["agenda"]:
        del details["agenda"]
    return due, look(with_terms(wait, details))


def beat(wait: Wait, now: datetime) -> Wait | None:
    """The wait after a sign of life; None where it needs none."""
    details = terms(wait)
    if "heartbeat" not in details:
        return None
    details["silent_at"] = now_plus(now, timedelta(seconds=details["heartbeat"]))
    return look(with_terms(wait, details))


def recipient(to: str) -> tuple[str | None, str | None]:
    """Assignee and group that an escalation names.

    >>> recipient("group:leads"), recipient("ann")
    ((None, 'leads'), ('ann', None))
    """
    kind, separator, name = to.partition(":")
    if separator and kind == "group":
        return None, name
    if separator and kind == "user":
        return name, None
    return to, None
