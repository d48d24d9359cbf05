"""Runs that a workflow starts: children that it waits for, and runs that it launches and lets go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bide.authoring.checks import check_key, check_priority, check_tags, check_text
from bide.authoring.machine import definition_name, encode
from bide.core.commands import NewChild
from bide.core.records import RunId
from bide.engine.definitions import Session


def new_child(
    session: Session,
    definition: Any,
    input: Any,
    *,
    correlation_key: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    tags: Mapping[str, str] | None = None,
    run_id: RunId | None = None,
) -> NewChild:
    """The run as it is to be started. Raises `DefinitionNotFound`, and `Invalid` for what cannot be taken."""
    found, limit = session.registry.get(definition_name(definition)), session.settings.max_payload_bytes
    return NewChild(
        run_id=run_id if run_id is not None else session.ports.run_id(),
        definition=found.name,
        version=found.version,
        style=found.style,
        step=found.first_step,
        input=found.encode_input(input, limit),
        queue=check_text(queue, "queue") if queue is not None else found.queue,
        priority=check_priority(priority) if priority is not None else found.priority,
        correlation_key=check_key(correlation_key, "correlation key") if correlation_key is not None else None,
        cleanup_seconds=found.cleanup.total_seconds() if found.cleanup is not None else None,
        tags=encode(check_tags(tags), limit, "the tags") if tags is not None else "{}",
        redact=found.redact,
    )


def returned_by(definition: Any) -> Any:
    """The type of what a run of it comes to, where the workflow itself was given: a name may stand for another one."""
    from bide.authoring.workflow.definition import Workflow

    return definition.returns if isinstance(definition, Workflow) else Any
