"""What of a run's data must be hidden, where commands come in and where user code failed (G4)."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core.commands import AnyCommand, CommitTurn, Complete, Deliver, End, Once, TryAgain
from bide.core.records import Turn
from bide.core.redaction import hidden_values, names_in, scrubbed
from bide.core.requests import Answer


def incoming_of(command: AnyCommand) -> str | None:
    """The payload that came with a command from the outside."""
    match command:
        case Deliver():
            return command.payload
        case Complete() | Answer():
            return command.data
        case Once():
            return incoming_of(command.command)
        case _:
            return None


def with_scrubbed_errors(command: CommitTurn, turn: Turn) -> CommitTurn:
    """The commit without hidden values in what user code said when it failed. All that the turn was handed counts:
    its input and state, its signals, and what its steps and waits came to."""
    run = turn.run
    stored = [*(step.result for step in turn.steps), *(step.result for step in command.steps)]
    signals = [signal.payload for signal in turn.inbox]
    values = hidden_values(names_in(run.redact), run.input, run.state, *stored, *signals)
    if not values:
        return command
    steps = tuple(
        replace(step, error=scrubbed(step.error, values)) if step.error is not None else step for step in command.steps
    )
    move = command.move
    if isinstance(move, (End, TryAgain)) and move.error is not None:
        move = replace(move, error=scrubbed(move.error, values))
    return replace(command, steps=steps, move=move)
