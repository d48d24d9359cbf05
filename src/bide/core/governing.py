"""Governance: what a policy is asked about, and what it may say (G1).

A policy runs before a command, outside of any transaction; its verdict rides in the command and stands in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from bide.core.approvals import Asked
from bide.core.batch import Draft
from bide.core.commands import (
    AnyCommand,
    Cancel,
    CommitTurn,
    Complete,
    Deliver,
    DeliverMany,
    Done,
    NewChild,
    NoteDenial,
    Once,
    Park,
    Reply,
    Start,
    StartOrSignal,
)
from bide.core.durations import Duration, parse_duration
from bide.core.ledger import Entry
from bide.core.records import FINAL, Run, RunId, Unused, Wait, wait_id
from bide.core.redaction import covered, names_in
from bide.core.requests import Answer, ChangeWait, Fail, Withdraw
from bide.core.streaming import Ask, Feed
from bide.core.streams import progress_of

ActionKind = Literal["start", "suspend", "resume", "answer", "cancel"]
KINDS: tuple[ActionKind, ...] = ("start", "suspend", "resume", "answer", "cancel")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a principal is about to do, as a policy sees it.

    >>> Action(kind="start", principal="key:sales", definition="payout").kind
    'start'
    """

    kind: ActionKind
    principal: str
    workspace: str = "default"
    definition: str | None = None
    version: str | None = None
    run_id: str | None = None
    correlation_key: str | None = None
    tags: Mapping[str, str] = {}
    step: str | None = None  # the step or the wait's id that it concerns
    wait_id: str | None = None
    wait_kind: str | None = None
    names: tuple[str, ...] = ()  # signal names or ids, event names
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None
    deadline: datetime | None = None
    data: Any = None  # the input, the answer or the payload


class Allow(msgspec.Struct, frozen=True, tag=True):
    """The action may happen.

    >>> Allow("within the limit").note
    'within the limit'
    """

    note: str = ""


class Deny(msgspec.Struct, frozen=True, tag=True):
    """The action may not happen.

    >>> Deny("payouts are closed on Sundays").reason
    'payouts are closed on Sundays'
    """

    reason: str


class NeedsApproval(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The action may happen once a person has approved it. Only starts, answers and cancels can wait for that.

    >>> NeedsApproval(title="Pay 900?", group="finance").group
    'finance'
    """

    title: str
    assignee: str | None = None
    group: str | None = None
    timeout: Duration = "7d"


Verdict = Allow | Deny | NeedsApproval


class Rule(msgspec.Struct, frozen=True):
    """A declared rule: what it names must all match (`*` stands for any text); what it leaves out matches anything.

    >>> rule = Rule(Deny("only operators cancel payouts"), actions=("cancel",), definitions=("payout*",))
    >>> rule.matches(Action(kind="cancel", principal="key:sales", definition="payout-eu"))
    True
    """

    verdict: Verdict
    actions: Sequence[ActionKind] = ()
    definitions: Sequence[str] = ()
    principals: Sequence[str] = ()
    channels: Sequence[str] = ()
    workspaces: Sequence[str] = ()

    def matches(self, action: Action) -> bool:
        return (
            (not self.actions or action.kind in self.actions)
            and _any(self.definitions, action.definition)
            and _any(self.principals, action.principal)
            and _any(self.channels, action.channel)
            and _any(self.workspaces, action.workspace)
        )


def _any(patterns: Sequence[str], text: str | None) -> bool:
    return not patterns or (text is not None and any(fnmatchcase(text, pattern) for pattern in patterns))


def by_rules(rules: Sequence[Rule], action: Action) -> Verdict:
    """The verdict of the first rule that matches; what no rule speaks of is allowed."""
    return next((rule.verdict for rule in rules if rule.matches(action)), Allow())


def actions_of(command: AnyCommand) -> list[Action]:
    """What a client's command does that a policy has a say in. What it concerns is filled in by `about`."""
    match command:
        case Start():
            return [_starting(command, command.actor, command.workspace)]
        case Once():
            return actions_of(command.command)
        case StartOrSignal():
            return [*actions_of(command.start), *actions_of(command.deliver)]
        case DeliverMany():
            return [action for delivery in command.deliveries for action in actions_of(delivery)]
        case Deliver():
            return [_from(command, "answer", run_id=command.run_id, names=(command.name,), data=command.payload)]
        case Complete():
            return [_from(command, "answer", run_id=command.run_id, names=(command.signal_id,), data=command.data)]
        case Answer():
            wait = wait_id(command.run_id, command.no)
            return [_from(command, "answer", run_id=command.run_id, wait_id=wait, data=command.data)]
        case Cancel():
            return [_from(command, "cancel", run_id=command.run_id, data=_text(command.reason))]
        case ChangeWait(change=Fail() | Withdraw()):
            # Who fails a wait answers it, with a no; who cancels it takes away what the run waits for.
            kind: ActionKind = "answer" if isinstance(command.change, Fail) else "cancel"
            wait = wait_id(command.run_id, command.no)
            return [_from(command, kind, run_id=command.run_id, wait_id=wait, data=_text(command.reason))]
        case _:
            return []


def _text(reason: str) -> str:
    return msgspec.json.encode(reason).decode()


def _from(
    command: Deliver | Complete | Answer | Cancel | ChangeWait, kind: ActionKind, *, data: str, **fields: Any
) -> Action:
    return Action(
        kind=kind, principal=command.actor, workspace=command.workspace, data=msgspec.json.decode(data), **fields
    )


def _starting(child: Start | NewChild, principal: str, workspace: str) -> Action:
    return Action(
        kind="start",
        principal=principal,
        workspace=workspace,
        definition=child.definition,
        version=child.version,
        run_id=child.run_id,
        correlation_key=child.correlation_key,
        tags=msgspec.json.decode(child.tags),
        data=msgspec.json.decode(child.input),
    )


def actions_of_turn(run: Run, command: CommitTurn) -> list[Action]:
    """What a turn's commit does that a policy has a say in: waits that it opens, children that it starts."""
    principal = f"run:{run.id}"
    actions: list[Action] = []
    if isinstance(command.move, Park):
        park = command.move
        kind = "children" if park.joins else "signals"
        actions.append(_suspending(run, park.step, kind, park.names, park.details))
        actions += [_starting(child, principal, run.workspace) for child in park.children]
    for wait in command.opens:
        actions.append(_suspending(run, wait.key, wait.kind, wait.names, wait.details))
        if wait.child is not None:
            actions.append(_starting(wait.child, principal, run.workspace))
    if isinstance(command.move, Ask):
        actions.append(_suspending(run, command.move.stage.name, "request", (), command.move.stage.details))
    if command.feed is not None:
        actions += _suspending_stream(run, command.feed)
    return actions


def _suspending_stream(run: Run, feed: Feed) -> Iterator[Action]:
    """What a pipeline's run will be parked on once a stream begins: the waits of its stages, and its own work on the
    items. Asked before the first item is stored, since waits open as items come to them, in no turn of the run."""
    if not feed.items or feed.section == progress_of(run).section:
        return
    for stage in feed.stages:
        if stage.kind == "wait":
            yield _suspending(run, stage.name, "request", (), stage.details)
    if any(stage.kind == "work" for stage in feed.stages):
        yield _suspending(run, feed.boundary_name, "items", (), "{}")


def _suspending(run: Run, step: str, kind: str, names: tuple[str, ...], details: str) -> Action:
    return _seen(
        Action(kind="suspend", principal=f"run:{run.id}", step=step, wait_kind=kind, names=names),
        run,
        msgspec.json.decode(details),
    )


def resuming(run: Run, wait: Wait | None) -> Action:
    """A run that goes on after a wait."""
    action = Action(kind="resume", principal=f"run:{run.id}", step=run.step)
    return about(action, run, wait)


def about(action: Action, run: Run | None, wait: Wait | None = None) -> Action:
    """The action with what is known of the run and the wait that it concerns."""
    if run is None:
        return action
    if wait is not None:
        action = msgspec.structs.replace(
            action, step=wait.key, wait_id=wait.id, wait_kind=wait.kind, names=wait.names, deadline=wait.deadline
        )
    return _seen(action, run, msgspec.json.decode(wait.details) if wait is not None else {})


def _seen(action: Action, run: Run, details: Mapping[str, Any]) -> Action:
    return msgspec.structs.replace(
        action,
        workspace=run.workspace,
        definition=run.definition,
        version=run.version,
        run_id=run.id,
        correlation_key=run.correlation_key,
        tags=msgspec.json.decode(run.tags),
        channel=details.get("channel"),
        assignee=details.get("assignee"),
        group=details.get("group"),
    )


def asked_of(action: Action, needed: NeedsApproval, redact: str | None, **waiting: str) -> Asked:
    """What a run that asks is started with; people see it without what *redact* hides."""
    return Asked(
        action=action.kind,
        principal=action.principal,
        target=target_of(action),
        data=covered(action.data, names_in(redact)),
        title=needed.title,
        assignee=needed.assignee,
        group=needed.group,
        seconds=parse_duration(needed.timeout).total_seconds(),
        **waiting,
    )


def target_of(action: Action) -> str:
    target = action.definition if action.kind == "start" else action.run_id
    return target or ", ".join(action.names)


def recorded_actions(run: Run, entries: Iterable[Entry]) -> Iterator[tuple[int, Action]]:
    """What happened to a run that a policy has a say in, as its ledger tells of it, with the number of each entry."""
    is_cancelled = False
    for entry in entries:
        kind = _RECORDED.get(entry.name)
        data = entry.data
        if entry.name == "await_unit_item_completed" and "id" in data and not entry.actor.startswith(_UNASKED):
            kind = "answer"  # to a request; its data is not in the ledger
        how, _, why = str(data.get("cause", "")).partition(": ")
        if entry.name == "await_unit_terminal" and how in _ENDED_EARLY and not entry.actor.startswith(_UNASKED):
            kind, data = _ENDED_EARLY[how], {"step": data.get("step"), "payload": why, "reason": why}
        if kind is None or (kind == "cancel" and is_cancelled):  # a clean-up tells of it twice
            continue
        is_cancelled = is_cancelled or entry.name in _CANCELS
        names = data.get("names") or ((data["signal"],) if "signal" in data else ())
        said = msgspec.json.decode(run.input) if kind == "start" else data.get("payload")
        if kind == "cancel":
            said = data.get("reason")
        outer = kind in ("start", "answer", "cancel")
        action = Action(
            kind=kind,
            principal=entry.actor if outer else f"run:{run.id}",
            step=data.get("step"),
            wait_kind=data.get("kind"),
            names=tuple(names),
            data=said,
        )
        yield entry.seq, msgspec.structs.replace(_seen(action, run, {}), channel=data.get("channel"))


_UNASKED = ("transport:", "worker:", "outbox", "timer")  # what brokers and providers reply is not put before policies
_ENDED_EARLY: Mapping[str, ActionKind] = {"failed": "answer", "cancelled": "cancel"}  # by the cause of a wait's end
_CANCELS = frozenset({"run_cancel_requested", "run_cancelled"})
_RECORDED: Mapping[str, ActionKind] = {
    "run_started": "start",
    "await_execution_waiting": "suspend",
    "await_resume_released": "resume",
    "signal_received": "answer",
    "await_answer_received": "answer",
    "run_cancel_requested": "cancel",
    "run_cancelled": "cancel",
}


def deny(draft: Draft, command: NoteDenial) -> Reply:
    """Keep on record that something was denied: in the ledger of the run that it concerned, or of the run that wanted
    to start another; among the unused where there is no run."""
    run = draft.run(RunId(command.run_id)) if command.run_id is not None else None
    if run is not None and run.workspace == command.workspace and run.status not in FINAL:
        data = {"action": command.action, "principal": command.principal, "reason": command.reason}
        if command.action == "start":
            data["definition"] = command.target
        draft.record(run, "policy_denied", data)
        return Done(True)
    draft.unused.append(
        Unused(
            workspace=command.workspace,
            id=command.id,
            run_id=command.run_id or "",
            target=command.target,
            name=command.action,
            payload=command.payload,
            reason="denied",
            at=draft.now,
        )
    )
    return Done(True)
