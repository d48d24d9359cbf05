"""What of a run's data must be hidden, where commands come in and where user code failed (G4)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.commands import (
    AnyCommand,
    CommitTurn,
    Complete,
    Deliver,
    End,
    Once,
    Park,
    Receipt,
    Reply,
    Start,
    TryAgain,
)
from bide.core.decisions import digest_of
from bide.core.records import Run, RunId, Turn
from bide.core.redaction import covered, hidden_values, names_in, scrubbed
from bide.core.requests import Answer


def told_digest(draft: Draft, run: Run, text: str, digest: str) -> str:
    """The digest of a payload as it may be told: of the covered payload where the run hides anything. Who has a digest
    of the payload itself finds a short hidden value by trying all there are."""
    if not run.redact:
        return digest
    names = names_in(run.redact)
    values = hidden_values(names, run.input, run.state, draft.incoming, text)
    return digest_of(covered(msgspec.json.decode(text), names, values))


def incoming_of(command: AnyCommand) -> str | None:
    """The payload that came with a command from the outside."""
    match command:
        case CommitTurn() | Start():
            return None
        case Deliver():
            return command.payload
        case Complete() | Answer():
            return command.data
        case Once():
            return incoming_of(command.command)
        case _:
            return None


def scrubbed_reply(reply: Reply, draft: Draft) -> Reply:
    """The reply without hidden values in what it says of an answer that does not fit: whoever sent it may be told,
    but what is told is logged and shown (W3)."""
    if not isinstance(reply, Receipt) or not reply.problems or reply.run_id is None:
        return reply
    run = draft.run(RunId(reply.run_id))
    values = hidden_values(names_in(run.redact), draft.incoming) if run is not None and run.redact else []
    if not values:
        return reply
    told = tuple(scrubbed(problem, values) for problem in reply.problems)
    return replace(reply, problems=told, reason=scrubbed(reply.reason, values) if reply.reason is not None else None)


TOLD = ("metadata", "equals", "match")  # of a wait's details: data that is there to be looked at


def without_hidden(command: CommitTurn, turn: Turn) -> CommitTurn:
    """The commit without hidden values in what user code said: when it failed, and of the waits that it opens. All that
    the turn was handed counts: its input and state, its signals, and what its steps and waits came to."""
    run = turn.run
    names = names_in(run.redact)
    stored = [*(step.result for step in turn.steps), *(step.result for step in command.steps)]
    signals = [signal.payload for signal in turn.inbox]
    values = hidden_values(names, run.input, run.state, *stored, *signals)
    command = _with_covered_waits(command, names, values)
    if not values:
        return command
    steps = tuple(
        replace(step, error=_rid_of(values, step.error)) if step.error is not None else step for step in command.steps
    )
    move = command.move
    if isinstance(move, End) and move.error is not None:
        move = replace(move, error=_rid_of(values, move.error))
    elif isinstance(move, TryAgain) and move.error is not None:
        move = replace(move, error=scrubbed(move.error, values))
    return replace(command, steps=steps, move=move)


def _with_covered_waits(command: CommitTurn, names: Collection[str], values: list[str]) -> CommitTurn:
    """What a wait carries for people to see is stored covered: it is told in many places, and nothing works with it."""

    def told(details: str) -> str:
        if not any(f'"{name}":' in details for name in TOLD):
            return details
        said = msgspec.json.decode(details)
        hidden = {name: covered(said[name], names, values) for name in TOLD if name in said}
        return msgspec.json.encode({**said, **hidden}).decode()

    move = command.move
    if isinstance(move, Park):
        move = replace(move, details=told(move.details))
    opens = tuple(replace(wait, details=told(wait.details)) for wait in command.opens)
    return replace(command, move=move, opens=opens)


def _rid_of(values: list[str], error: str) -> str:
    """An error, which is JSON, with none of these values in its texts."""
    return msgspec.json.encode(covered(msgspec.json.decode(error), (), values)).decode()
