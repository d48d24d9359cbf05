"""Which expressions a step has itself, and what they read."""

from __future__ import annotations

from collections.abc import Iterator

from bide.authoring.language.tree import (
    AskModel,
    Binary,
    Call,
    Compute,
    Decide,
    Emit,
    Entry,
    Expression,
    ForEach,
    Http,
    Index,
    ListOf,
    Machine,
    MapOf,
    Member,
    Root,
    RunFlow,
    Step,
    Text,
    Unary,
    Variable,
    WaitFor,
    all_steps,
)
from bide.authoring.language.typing import LINKS


def expressions_of(step: Step) -> list[Expression]:
    """The expressions of the step itself, not those of steps inside of it."""
    match step:
        case Compute():
            return [step.value]
        case Http():
            return _values(step.told)
        case Call():
            return [step.machine, *_values(step.arguments), *_values(step.told)]
        case AskModel():
            return [step.using, step.task, *_values(step.told)]
        case Decide():
            return [branch.condition for branch in step.branches if branch.condition is not None]
        case Emit():
            return [each for each in (step.event, step.data, step.channel) if each is not None]
        case WaitFor():
            return _values(step.told)
        case ForEach():
            return [step.items]
        case RunFlow():
            return []


def _values(entries: tuple[Entry, ...]) -> list[Expression]:
    return [entry.value for entry in entries]


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside of it."""
    yield expression
    match expression:
        case Text(parts=parts):
            inner = [part for part in parts if not isinstance(part, str)]
        case Member(of=of) | Unary(of=of):
            inner = [of]
        case Index(of=of, index=index):
            inner = [of, index]
        case ListOf(items=items):
            inner = list(items)
        case MapOf(entries=entries):
            inner = _values(entries)
        case Binary(left=left, right=right):
            inner = [left, right]
        case _:
            inner = []
    for part in inner:
        yield from parts_of(part)


def names_in(machine: Machine) -> set[str]:
    """What data of the machine's runs is called, as far as the file says: fields, entries and steps."""
    found = {field.name for field in (*(machine.accepts or ()), *(machine.responds or ()))}
    for step in all_steps(machine):
        found.add(step.name)
        match step:
            case WaitFor(schema=fields) | Call(returns=fields) | AskModel(returns=fields):
                found |= {field.name for field in fields or ()}
            case _:
                pass
        for expression in expressions_of(step):
            for part in parts_of(expression):
                match part:
                    case MapOf(entries=entries):
                        found |= {entry.name for entry in entries}
                    case Member(name=name):
                        found.add(name)
                    case _:
                        pass
    return found


def is_the_same_in_every_run(step: Step) -> bool:
    """Whether the step's own expressions read nothing, so that they come to the same wherever they are evaluated."""
    return not any(
        isinstance(part, (Root, Variable)) for expression in expressions_of(step) for part in parts_of(expression)
    )


def links_in(step: Step) -> tuple[str, ...]:
    """The waits whose addresses the step reads."""
    found: dict[str, None] = {}
    for expression in expressions_of(step):
        for part in parts_of(expression):
            match part:
                case Member(of=Member(of=Root(name="steps"), name=wait), name=field) if field in LINKS:
                    found[wait] = None
                case _:
                    pass
    return tuple(found)
