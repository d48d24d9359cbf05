"""Starting a run (S8)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import DuplicateRun, NewChild, Reply, Start, Started
from bide.core.durations import deadline_after
from bide.core.moves import make_ready
from bide.core.records import Name, Run, RunId


def start(draft: Draft, command: Start) -> Reply:
    known = draft.run(command.run_id)
    if known is not None:
        return Started(known)
    if command.correlation_key is not None:
        holder = draft.name(command.workspace, "correlation", command.correlation_key)
        if holder is not None and holder.run_id != command.retry_of:
            return DuplicateRun(command.correlation_key, holder.run_id)
        hold_key(draft, command.workspace, command.correlation_key, command.run_id, holder)
    for step in command.steps:
        draft.steps[(command.run_id, step.key)] = replace(step, run_id=command.run_id)
    run = new_run(command, draft.now, command.trace or draft.trace)
    return Started(_insert(draft, run, command.delay or timedelta(0)))


def new_run(command: Start, now: datetime, trace: str = "") -> Run:
    """The run that a start makes, as it stands before anything happened to it."""
    return Run(
        workspace=command.workspace,
        id=command.run_id,
        definition=command.definition,
        version=command.version,
        style=command.style,
        status="ready",
        step=command.step,
        state=command.state if command.state is not None else command.input,
        input=command.input,
        created_at=now,
        updated_at=now,
        ready_at=now,
        queue=command.queue,
        priority=command.priority,
        correlation_key=command.correlation_key,
        correlation_scope=command.correlation_scope,
        cleanup_seconds=command.cleanup_seconds,
        retry_of=command.retry_of,
        tags=command.tags,
        redact=command.redact,
        trace=trace or None,
    )


def start_child(draft: Draft, parent: Run, wait_no: int, no: int, child: NewChild) -> Run:
    """Insert a child of a parent that parks in this commit; the key was found free before."""
    return _insert_child(draft, parent.workspace, child, parent_id=parent.id, parent_wait=wait_no, child_no=no)


def start_detached(draft: Draft, workspace: str, child: NewChild) -> Run:
    """Insert a run that a workflow launches and lets go; the key was found free before."""
    return _insert_child(draft, workspace, child)


def _insert_child(draft: Draft, workspace: str, child: NewChild, **parent: Any) -> Run:
    if child.correlation_key is not None:
        hold_key(draft, workspace, child.correlation_key, child.run_id)
    run = Run(
        workspace=workspace,
        id=child.run_id,
        definition=child.definition,
        version=child.version,
        style=child.style,
        status="ready",
        step=child.step,
        state=child.input,
        input=child.input,
        created_at=draft.now,
        updated_at=draft.now,
        ready_at=draft.now,
        queue=child.queue,
        priority=child.priority,
        correlation_key=child.correlation_key,
        cleanup_seconds=child.cleanup_seconds,
        tags=child.tags,
        redact=child.redact,
        trace=draft.trace or None,
        **parent,
    )
    return _insert(draft, run, timedelta(0))


def hold_key(draft: Draft, workspace: str, key: str, run_id: RunId, before: Name | None = None) -> None:
    """Give a run its key. *before* is the row of the run that it is a retry of, where that kept its key for ever."""
    held = Name(
        workspace=workspace,
        kind="correlation",
        name=key,
        run_id=run_id,
        digest="",
        message_id="",
        created_at=draft.now,
    )
    if before is None:
        draft.put_name(held)
    else:
        draft.replace_name(held, known=before)


def _insert(draft: Draft, run: Run, delay: timedelta) -> Run:
    data = {"definition": run.definition, "version": run.version}
    if run.correlation_key is not None:
        data["correlation_key"] = run.correlation_key
    if run.parent_id is not None:
        data["parent"] = run.parent_id
    return make_ready(draft, run, deadline_after(draft.now, delay), "run_started", data)
