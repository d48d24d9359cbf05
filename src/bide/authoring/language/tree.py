"""What a machine file says, as a tree. Every node knows its place in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from bide.authoring.language.source import Source, Span

Type = Literal["text", "number", "boolean", "list", "map", "date"]


class Node(msgspec.Struct, frozen=True, gc=False):
    """A part of the tree; made by the thousand, so it is a struct."""


# ---------------------------------------------------------------- expressions


class Literal_(Node, frozen=True, gc=False):
    value: str | int | float | bool | None
    span: Span


class Text(Node, frozen=True, gc=False):
    """A text with ${…} in it."""

    parts: tuple[str | Expression, ...]
    span: Span


class Root(Node, frozen=True, gc=False):
    """`input`, `steps`, `secrets` or `error`."""

    name: str
    span: Span


class Variable(Node, frozen=True, gc=False):
    """The item that a loop is at."""

    name: str
    span: Span


class Member(Node, frozen=True, gc=False):
    of: Expression
    name: str
    span: Span
    name_span: Span


class Index(Node, frozen=True, gc=False):
    of: Expression
    index: Expression
    span: Span


class ListOf(Node, frozen=True, gc=False):
    items: tuple[Expression, ...]
    span: Span


class MapOf(Node, frozen=True, gc=False):
    entries: tuple[Entry, ...]
    span: Span


class Unary(Node, frozen=True, gc=False):
    operator: str  # - or not
    of: Expression
    span: Span


class Binary(Node, frozen=True, gc=False):
    operator: str
    left: Expression
    right: Expression
    span: Span


Expression: TypeAlias = "Literal_ | Text | Root | Variable | Member | Index | ListOf | MapOf | Unary | Binary"


class Entry(Node, frozen=True, gc=False):
    """`name: expression`, in an object or as what a step is told."""

    name: str
    value: Expression
    span: Span  # of the name


# ---------------------------------------------------------------- parts


class Field(Node, frozen=True, gc=False):
    name: str
    type: Type
    span: Span
    is_required: bool = False
    default: Expression | None = None


class FlowName(Node, frozen=True, gc=False):
    """`flow(name)`: a mention of a flow."""

    name: str
    span: Span


class FieldName(Node, frozen=True, gc=False):
    """A mention of a field, wherever in a run's data it stands."""

    name: str
    span: Span


class Sequence(Node, frozen=True, gc=False):
    """Steps in order, and what is done where one of them fails."""

    steps: tuple[Step, ...]
    on_failure: Sequence | None = None


# ---------------------------------------------------------------- steps


class Compute(Node, frozen=True, gc=False):
    name: str
    span: Span  # of the name
    value: Expression


class Http(Node, frozen=True, gc=False):
    name: str
    span: Span
    told: tuple[Entry, ...]  # method, url, headers, body, timeout, retry
    assuming: tuple[Entry, ...] | None = None
    on_failure: Sequence | None = None


class Call(Node, frozen=True, gc=False):
    """`action … call`, `ask … from` and `launch`: another machine, or a Python action."""

    kind: Literal["call", "launch"]
    name: str
    span: Span
    machine: Expression
    arguments: tuple[Entry, ...]
    told: tuple[Entry, ...] = ()  # timeout, retry
    returns: tuple[Field, ...] | None = None
    assuming: tuple[Entry, ...] | None = None
    on_failure: Sequence | None = None


class AskModel(Node, frozen=True, gc=False):
    name: str
    span: Span
    using: Expression
    task: Expression
    returns: tuple[Field, ...]
    assuming: tuple[Entry, ...] | None
    told: tuple[Entry, ...] = ()
    on_failure: Sequence | None = None


class Branch(Node, frozen=True, gc=False):
    condition: Expression | None  # None: otherwise
    body: Sequence
    span: Span


class Decide(Node, frozen=True, gc=False):
    name: str
    span: Span
    branches: tuple[Branch, ...]


class Emit(Node, frozen=True, gc=False):
    name: str
    span: Span
    event: Expression
    data: Expression | None
    channel: Expression | None


class WaitFor(Node, frozen=True, gc=False):
    name: str
    span: Span
    told: tuple[Entry, ...]  # event, match, callback, timeout, channel, title, …
    on_timeout: FlowName | None
    schema: tuple[Field, ...] | None

    def entry(self, name: str) -> Expression | None:
        return next((entry.value for entry in self.told if entry.name == name), None)

    @property
    def is_callback(self) -> bool:
        value = self.entry("callback")
        return isinstance(value, Literal_) and value.value is True

    @property
    def asks_a_person(self) -> bool:
        return not self.is_callback and self.entry("event") is None


class RunFlow(Node, frozen=True, gc=False):
    flow: FlowName

    @property
    def name(self) -> str:
        return self.flow.name

    @property
    def span(self) -> Span:
        return self.flow.span


class ForEach(Node, frozen=True, gc=False):
    name: str  # of the item
    span: Span
    items: Expression
    body: Sequence
    collect: str | None = None
    collect_span: Span | None = None


Step: TypeAlias = "Compute | Http | Call | AskModel | Decide | Emit | WaitFor | RunFlow | ForEach"


class Flow(Node, frozen=True, gc=False):
    name: str
    span: Span
    body: Sequence


class Subscription(Node, frozen=True, gc=False):
    event: str
    span: Span


@dataclass(frozen=True)
class Machine:
    name: str
    span: Span
    source: Source
    main: Sequence
    language: str = "en"
    version: str = "1"
    queue: str = "default"
    priority: int = 0
    retries: int = 3
    redact: tuple[FieldName, ...] = ()
    accepts: tuple[Field, ...] | None = None
    responds: tuple[Field, ...] | None = None
    subscribes: tuple[Subscription, ...] = ()
    flows: dict[str, Flow] = field(default_factory=dict)


class Mark(Node, frozen=True, gc=False):
    """A word of the text that a translation may change: a keyword, or a user's name."""

    span: Span
    keyword: str | None = None  # None: a user's name
    name: str = ""
    ticks: int = 0
    place: Literal["name", "root", "key", "language"] = "name"


@dataclass(frozen=True)
class File:
    source: Source
    language: str
    machines: tuple[Machine, ...]
    marks: tuple[Mark, ...]


def steps_of(sequence: Sequence | None) -> list[Step]:
    """Every step of a sequence, inner ones too, in the order of the text."""
    found: list[Step] = []
    for step in sequence.steps if sequence is not None else ():
        found.append(step)
        match step:
            case Decide():
                for branch in step.branches:
                    found += steps_of(branch.body)
            case ForEach():
                found += steps_of(step.body)
            case Http() | Call() | AskModel():
                found += steps_of(step.on_failure)
            case _:
                pass
    if sequence is not None:
        found += steps_of(sequence.on_failure)
    return found


def all_steps(machine: Machine) -> list[Step]:
    found = steps_of(machine.main)
    for flow in machine.flows.values():
        found += steps_of(flow.body)
    return found
