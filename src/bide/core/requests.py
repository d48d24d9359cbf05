"""What people, programs and operators ask of an open wait, and what becomes of chores: commands, as those of
`bide.core.commands`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from bide.core.records import Chore, RunId


class Agenda(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is to happen while a wait is open, without waking its run (W9, W13). Times count from its opening."""

    reminders: tuple[timedelta, ...] = ()
    escalate: tuple[tuple[timedelta, str], ...] = ()
    heartbeat: timedelta | None = None


class NewTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The interaction that opens with a wait."""

    payload: str = "null"
    transport: str = "interaction-api"


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """A definition that declares a signal and cannot take this payload for it (S13)."""

    definition: str
    version: str
    problem: str


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    workspace: str
    actor: str = "client"
    verdict: str = ""  # what a policy said of it (G1)
    trace: str = ""
    key: str = ""
    run_id: RunId


class Answer(Request, frozen=True, kw_only=True, gc=False):
    """Answer an interaction, or the wait that it belongs to. Its id named the run, so nothing is looked up."""

    no: int
    item: int | None  # None: the wait was addressed
    target: str
    message_id: str
    data: str
    digest: str
    by: str | None = None
    groups: tuple[str, ...] = ()  # of whoever answers, found out before the command
    dedup_key: str | None = None
    shown: str | None = None  # the digest of what the answerer saw, where the answer names it
    reason: str = ""  # that an operator gives for it (W10)
    misfits: tuple[Misfit, ...] = ()  # where the wait is for a signal: whose declarations the data does not fit (S13)
    unused_id: str | None = None  # the kept arrival that is given as the answer; it goes when it is admitted


class Amend(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Another deadline, or other people."""

    moves: bool = False
    deadline: timedelta | datetime | None = None
    assigns: bool = False
    assignee: str | None = None
    group: str | None = None


class Fail(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """End it as failed: the run is told. Of a wait over items, where one is named, that item alone."""


class Withdraw(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """End it as cancelled: the run is told."""


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Whoever works on it is alive (W13)."""


class ChangeWait(Request, frozen=True, kw_only=True, gc=False):
    """What an operator does to an open wait (W10, W13)."""

    no: int
    change: Amend | Fail | Withdraw | Beat
    item: int | None = None  # the interaction that was named
    message_id: str = ""
    reason: str = ""


class HandTask(Request, frozen=True, kw_only=True, gc=False):
    """Claim a task for one person, or let go of it."""

    no: int
    item: int
    action: Literal["claim", "release"]
    by: str
    groups: tuple[str, ...] = ()


class SettleChore(Request, frozen=True, kw_only=True, gc=False):
    """What came of a claimed chore. Counts only while it is the same try."""

    chore: Chore
    outcome: Literal["done", "dropped", "again", "dead"]
    delay: timedelta = timedelta(0)
    error: str = ""


class LetGo(Request, frozen=True, kw_only=True, gc=False):
    """The time of a chore that belongs to no run is up: of an answer that was held, or of a key that was remembered."""

    chore: Chore


class SettleDeadLetter(Request, frozen=True, kw_only=True, gc=False):
    """What a person decided about a dead letter. *items* of wait *no* are what a discarded dispatch was to send."""

    id: str
    action: Literal["retry", "discard"]
    no: int = 0
    items: tuple[int, ...] = ()


class KeepPoison(Request, frozen=True, kw_only=True, gc=False):
    """Keep something that came over a transport and can never be an answer. It belongs to no run."""

    id: str
    text: str
    reason: str


AnyRequest = Answer | ChangeWait | HandTask | SettleChore | LetGo | SettleDeadLetter | KeepPoison
