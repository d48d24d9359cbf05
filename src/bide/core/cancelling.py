"""Cancelling a run and its children (W8)."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import Cancel, CancelChildren, Cancelled, Done, Reply, Unknown
from bide.core.moves import begin_cleanup, finish
from bide.core.records import FINAL, Run


def cancel(draft: Draft, command: Cancel) -> Reply:
    run = draft.run(command.run_id)
    if run is None or run.workspace != command.workspace:
        return Unknown(command.run_id)
    if run.status in FINAL:
        return Cancelled(run, already_final=True)
    return Cancelled(_cancel(draft, run, command.reason, command.force))


def _cancel(draft: Draft, run: Run, reason: str, force: bool) -> Run:
    if run.cleanup_seconds is not None and not force:
        if run.cancel_reason is not None:
            return run  # the clean-up is under way; asking again changes nothing
        return begin_cleanup(draft, run, reason, timedelta(seconds=run.cleanup_seconds))
    # The epoch moves on, so a turn that is running now can commit nothing any more (D3).
    run = replace(run, epoch=run.epoch + 1, cancel_reason=reason or run.cancel_reason or "cancelled")
    return finish(draft, run, "cancelled")


def cancel_children(draft: Draft, command: CancelChildren) -> Reply:
    """Do a part of the chore; it stays until no live child is left."""
    for child_id in command.children:
        child = draft.run(child_id)
        if child is not None and child.parent_id == command.run_id and child.status not in FINAL:
            _cancel(draft, child, command.reason, force=False)
    if command.is_last:
        draft.chores[command.chore_id] = None
    return Done(True)
