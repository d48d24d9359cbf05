"""A client's command as a span: what it asks for, what came of it, and the wait that it answers (§11)."""

from __future__ import annotations

from bide.core.commands import (
    AnyCommand,
    Complete,
    Deliver,
    DeliverMany,
    Emit,
    Receipt,
    Reply,
    Start,
    Started,
    StartOrSignal,
)
from bide.core.records import run_of_wait
from bide.core.requests import Answer
from bide.core.traces import trace_of
from bide.engine.runtime import Runtime
from bide.engine.tracing import Span
from bide.stores.interface import WaitFilter


def name_of(command: AnyCommand) -> str | None:
    """The name of its span; None for what is no part of a run's story. Names are few: ids are attributes."""
    match command:
        case Start():
            return f"bide.start {command.definition}"
        case StartOrSignal():
            return f"bide.start {command.start.definition}"
        case Deliver():
            return f"bide.signal {command.name}"
        case DeliverMany():
            return "bide.signal"
        case Complete() | Answer():
            return "bide.answer"
        case Emit():
            return f"bide.emit {command.name}"
        case _:
            return None


async def tell(runtime: Runtime, span: Span, reply: Reply) -> None:
    """Say what came of it. An answer's span is linked to the one that parked the run, in whichever trace that is."""
    if not span.is_recording:
        return
    match reply:
        case Started():
            span.note(run_id=reply.run.id, definition=reply.run.definition, version=reply.run.version)
        case Receipt():
            span.note(outcome=reply.outcome, run_id=reply.run_id, wait_id=reply.wait_id, reason=reply.reason)
            span.link(await _context_of(runtime, reply.wait_id))
        case _:
            pass


async def _context_of(runtime: Runtime, wait_id: str | None) -> str | None:
    place = run_of_wait(wait_id) if wait_id is not None else None
    if place is None:
        return None
    wanted = WaitFilter(run_id=place[0], no=place[1], status=None)
    found = await runtime.store.waits(wanted, after=None, limit=1)
    return trace_of(found[0]) if found else None
