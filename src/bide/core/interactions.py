"""Interactions: their legal moves, how they open with their wait and end with it (U1, G3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bide.core.asking import asked_in
from bide.core.batch import Draft
from bide.core.outside import Assigning, Closing
from bide.core.payloads import digest
from bide.core.records import Interaction, InteractionStatus, Run, Wait
from bide.core.requests import NewTask

INTERACTION_MOVES: Mapping[InteractionStatus, frozenset[InteractionStatus]] = {
    "pending": frozenset({"dispatching", "waiting", "completed", "timed_out", "failed", "cancelled"}),
    "dispatching": frozenset({"pending", "waiting", "completed", "timed_out", "failed", "cancelled"}),
    "waiting": frozenset({"completed", "timed_out", "failed", "cancelled"}),
    "completed": frozenset(),
    "timed_out": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

WITHDRAWN = "withdrawn"  # the cause of waits that lost against another, or that the code no longer reaches (F12, F17)
# Causes of waits that nobody called off: their run went on without them, began anew or ended otherwise.
LEFT_BEHIND = frozenset({WITHDRAWN, "restarted", "run restarted", "run completed", "run stopped", "run failed"})
UNSENT: frozenset[InteractionStatus] = frozenset({"pending", "dispatching"})  # no transport has taken them yet
INTERACTING = frozenset({"task", "request"})  # kinds of waits that have interactions


def open_interaction(draft: Draft, run: Run, wait: Wait, new: NewTask, item: int = 0) -> Run:
    """Make the interaction that a wait opens with. Being listed is how `interaction-api` dispatches it."""
    asked = asked_in(wait)
    row = Interaction(
        workspace=run.workspace,
        run_id=run.id,
        no=wait.no,
        item=item,
        status="waiting",
        opened_at=draft.now,
        definition=run.definition,
        step=wait.key,
        correlation_id=digest(f"{run.id}/{wait.key}/{item}")[:32],
        payload=new.payload,
        transport=new.transport,
        channel=asked.channel,
        assignee=asked.assignee,
        group=asked.group,
    )
    draft.outside.interactions[(run.id, wait.no, item)] = row
    run = draft.record(run, "await_interaction_dispatched", {**told(row), "timeout": wait.deadline})
    counts = {"expected": wait.expected, "completed": wait.received}
    data = {"wait": wait.no, "step": wait.key, "status": wait.status, **counts}
    return draft.record(run, "await_unit_dispatch_complete", data)


def told(row: Interaction) -> dict[str, Any]:
    """The fields that every ledger entry about an interaction has (G3)."""
    data: dict[str, Any] = {
        "wait": row.no,
        "step": row.step,
        "status": row.status,
        "interaction": row.id,
        "correlation": row.correlation_id,
        "transport": row.transport,
        "item": row.item,
    }
    if row.channel is not None:
        data["channel"] = row.channel
    return data


def complete(draft: Draft, row: Interaction, answer: str, digest: str, by: str | None, answers: str) -> Interaction:
    """Bring an interaction to its answer."""
    assert "completed" in INTERACTION_MOVES[row.status], f"{row.id} is {row.status}"
    row = replace(
        row,
        status="completed",
        answer=answer,
        digest=digest,
        answered_by=by,
        answers=answers,
        closed_at=draft.now,
    )
    draft.outside.interactions[(row.run_id, row.no, row.item)] = row
    return row


def why_cancelled(wait: Wait) -> str:
    """Why a wait that was cancelled takes no answer (W7): somebody cancelled it, or its run went on without it."""
    return "stale" if wait.cause in LEFT_BEHIND else "cancelled"


def close_all(draft: Draft, wait: Wait, status: InteractionStatus) -> None:
    """The wait has ended: what of it is still open ends with it. They are not read: there may be a million."""
    draft.outside.closed[(wait.run_id, wait.no)] = Closing(status, draft.now)


def assign_all(draft: Draft, wait: Wait, assignee: str | None, group: str | None) -> None:
    draft.outside.assigned[(wait.run_id, wait.no)] = Assigning(assignee, group)
