"""The workflow behind `bide.NeedsApproval`: it asks a person, and does what waited once they said yes (G1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from bide.authoring.workflow import Step, Workflow
from bide.core.approvals import APPROVAL, Approval, Asked, Ended, approved_command
from bide.core.commands import Cancelled, Done, DuplicateRun, Failed, InboxFull, NewChild, Receipt, Started, Unknown
from bide.core.retrying import RetryPolicy
from bide.engine.runtime import runtime_at_work
from bide.errors import RunCancelledError, RunFailedError, RunStoppedError, WaitTimeoutError


def approval_workflow() -> Workflow[Any, Any]:
    """The definition that an app with policies has; its runs are listed, explained and answered like any other."""

    async def ask(step: Step, asked: Asked) -> Any:
        task = step.ask(
            "approval",
            title=asked.title,
            form=Approval,
            assignee=asked.assignee,
            group=asked.group,
            timeout=timedelta(seconds=asked.seconds),
            shown={
                "action": asked.action,
                "principal": asked.principal,
                "target": asked.target,
                "data": asked.data,
            },
        )
        try:
            answer = await task
        except WaitTimeoutError:
            return {"approved": False, "reason": "nobody answered in time"}
        by = task.receipt.by if task.receipt is not None else None
        if not answer.approved:
            return {"approved": False, "reason": answer.reason, "by": by}
        if asked.child is not None:
            return {"approved": True, "reason": answer.reason, "by": by, "child": await _child(step, asked.child)}
        verdict = f"approved by {by or 'somebody'} in {step.run_id}"
        done = await step.run("perform", _perform, asked.command, step.run_id, verdict)
        return {"approved": True, "reason": answer.reason, "by": by, **done}

    return Workflow(
        ask,
        APPROVAL,
        version="1",
        retry=RetryPolicy(attempts=1),
        step_retry=RetryPolicy(),
        queue="default",
        priority=0,
    )


async def _child(step: Step, text: str) -> Ended:
    """Start the child that waited, as a child of this run, which ends with it and tells how."""
    child = msgspec.json.decode(text, type=NewChild)
    options = {
        "run_id": child.run_id,
        "correlation_key": child.correlation_key,
        "queue": child.queue,
        "priority": child.priority,
        "tags": msgspec.json.decode(child.tags),
    }
    started = (child.definition, msgspec.json.decode(child.input), options)
    try:
        result = await step._turn.wait("child", "children", invokes=started)
    except RunFailedError as error:
        return Ended(id=child.run_id, status="failed", error=error.error)
    except RunStoppedError as error:
        return Ended(id=child.run_id, status="stopped", error=error.error)
    except RunCancelledError as error:
        return Ended(id=child.run_id, status="cancelled", error=error.error)
    return Ended(id=child.run_id, status="completed", result=result)


async def _perform(command: str, approval: str, verdict: str) -> dict[str, Any]:
    """Execute what waited, in the store of the engine that runs this step."""
    committer = runtime_at_work.get().committer
    reply = (await committer.submit(approved_command(command, approval, verdict))).reply
    if isinstance(reply, Failed):
        raise reply.error
    return _told(reply)


def _told(reply: object) -> dict[str, Any]:
    """What came of it, for who looks at the run that asked."""
    match reply:
        case Started():
            return {"outcome": "started", "run_id": reply.run.id}
        case DuplicateRun():
            return {"outcome": "conflict", "run_id": reply.holder}
        case Cancelled():
            return {"outcome": "cancelled", "run_id": reply.run.id}
        case Done():
            return {"outcome": "changed" if reply.changed else reply.reason}
        case Receipt():
            return {"outcome": reply.outcome, "run_id": reply.run_id, "reason": reply.reason}
        case Unknown():
            return {"outcome": "no_target", "run_id": reply.run_id}
        case InboxFull():
            return {"outcome": "inbox_full", "run_id": reply.run_id}
        case _:
            return {"outcome": msgspec.to_builtins(reply)}
