"""What an expression gives, as far as the file says, and which names in it are not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from bide.authoring.language.source import Span, suggestion
from bide.authoring.language.tree import (
    Binary,
    Expression,
    Field,
    Index,
    ListOf,
    Literal_,
    Machine,
    MapOf,
    Member,
    Root,
    Text,
    Unary,
    Variable,
    WaitFor,
)
from bide.authoring.language.words import CONSTANTS, ROOTS, TABLE

LINKS: Final = ("_resume_url", "_resume_token")
TALKING: Final = [TABLE[word] for word in (*ROOTS, *CONSTANTS)]
NOTHING: Final = frozenset({"None", "nil", "NULL", "Null", "undefined", "nothing"})
ERROR_FIELDS: Final = ("message", "step", "type", "code")


@dataclass(frozen=True)
class Shape:
    """A type, and of a map with known fields their shapes."""

    type: str  # of fields, or null, or any
    fields: Mapping[str, Shape] | None = None

    def either(self, other: Shape) -> Shape:
        if self == other:
            return self
        if self.type != other.type:
            return ANY
        if self.fields is None or other.fields is None:
            return Shape(self.type)
        return Shape(self.type, {**self.fields, **other.fields})


ANY: Final = Shape("any")


def shape_of_fields(fields: Iterable[Field]) -> Shape:
    return Shape("map", {field.name: Shape(field.type) for field in fields})


def fits(wanted: str, shape: Shape, value: Expression | None = None) -> bool:
    if shape.type in ("any", wanted):
        return True
    if wanted == "date" and shape.type == "text":
        return not isinstance(value, Literal_) or is_date(value.value)
    return wanted == "text" and shape.type == "date"


def is_date(value: object) -> bool:
    """A day or a moment, as ISO 8601 writes them.

    >>> is_date("2030-01-31"), is_date("2030-01-31T08:00:00Z"), is_date("tomorrow")
    (True, True, False)
    """
    if not isinstance(value, str):
        return False
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            read(value)
        except ValueError:
            continue
        return "-" in value
    return False


class Typing:
    """Looks at one expression; *say* is told of problems."""

    def __init__(
        self,
        machine: Machine,
        shapes: Mapping[str, Shape],
        waits: Mapping[str, WaitFor],
        ran: Mapping[str, Shape],
        variables: Mapping[str, Shape],
        say: Callable[..., None],  # where, what, and how bad it is
        say_unknown: Callable[[tuple[str, ...], Span, str], None],
        *,
        has_error: bool,
        allows_secrets: bool,
        in_flow: bool,
        never: Collection[str] = (),
    ) -> None:
        self._machine = machine
        self._shapes = shapes
        self._waits = waits
        self._ran = ran
        self._variables = variables
        self._say = say
        self._say_unknown = say_unknown  # of one name, in however many places it stands
        self._has_error = has_error
        self._allows_secrets = allows_secrets
        self._in_flow = in_flow
        self._never = never

    def of(self, expression: Expression) -> Shape:
        match expression:
            case Literal_(value=value):
                return Shape(_type_of(value))
            case Text(parts=parts):
                for part in parts:
                    if not isinstance(part, str):
                        self.of(part)
                return Shape("text")
            case Root():
                return self._root(expression)
            case Variable():
                return self._variable(expression)
            case Member():
                return self._member(expression)
            case Index():
                return self._index(expression)
            case ListOf(items=items):
                for item in items:
                    self.of(item)
                return Shape("list")
            case MapOf(entries=entries):
                return Shape("map", {entry.name: self.of(entry.value) for entry in entries})
            case Unary():
                return self._unary(expression)
            case Binary():
                return self._binary(expression)

    # ------------------------------------------------------------ names

    def _root(self, root: Root) -> Shape:
        match root.name:
            case "input":
                return shape_of_fields(self._machine.accepts) if self._machine.accepts is not None else ANY
            case "error" if not self._has_error:
                self._say(root.span, "an error can be read under `«on failure»` only")
                return ANY
            case "error":
                return Shape("map", {name: Shape("text") for name in ERROR_FIELDS})
            case "secrets":
                self._say(root.span, "a secret is read by its name: `«secrets».NAME`")
            case _:
                self._say(root.span, "a step is read by its name: `«steps».NAME`")
        return ANY

    def _variable(self, variable: Variable) -> Shape:
        found = self._variables.get(variable.name)
        if found is not None:
            return found
        name = variable.name
        if name in NOTHING:
            hint = "; nothing is `«null»`"
        elif name in self._shapes:
            hint = f"; a step is read as `«steps».{name}`"
        elif any(field.name == name for field in self._machine.accepts or ()):
            hint = f"; a field of the input is read as `«input».{name}`"
        elif here := next((row for row in TALKING if name in row.values()), None):
            hint = f"; in this language it is `{here[self._machine.language]}`"
        else:
            words = [row[self._machine.language] for row in TALKING]
            hint = suggestion(name, (*self._variables, *words)) or f'; a text stands in quotes: "{name}"'
        self._say_unknown(("", variable.name), variable.span, f"there is nothing called `{variable.name}` here{hint}")
        return ANY

    def _member(self, member: Member) -> Shape:
        match member.of:
            case Root(name="steps"):
                return self._step(member)
            case Root(name="secrets"):
                if not self._allows_secrets:
                    self._say(
                        member.span, "a secret would be stored here; only what actions send can have secrets in it"
                    )
                return Shape("text")
            case Member(of=Root(name="steps"), name=step) if member.name in LINKS:
                return self._link(member, step)
            case _:
                pass
        shape = self.of(member.of)
        if shape.type == "map" and shape.fields is not None:
            found = shape.fields.get(member.name)
            if found is None:
                self._no_field(member, shape.fields)
            return found or ANY
        if shape.type not in ("any", "map", "null"):
            self._say(member.name_span, f"«{shape.type}» has no fields")
        return ANY

    def _no_field(self, member: Member, fields: Mapping[str, Shape]) -> None:
        key: tuple[str, ...]
        match member.of:
            case Root(name="input"):
                key, where = ("input",), "the machine accepts no"
            case Member(of=Root(name="steps"), name=step):
                key, where = ("steps", step), f"`{step}` gives no"
            case Root(name="error"):
                key, where = ("error",), "an error has no"
            case _:
                key, where = (f"{member.span}",), "there is no"
        said = f"{where} `{member.name}`{suggestion(member.name, fields)}"
        self._say_unknown((*key, member.name), member.name_span, said)

    def _step(self, member: Member) -> Shape:
        shape = self._shapes.get(member.name)
        if shape is None:
            said = f"there is no step `{member.name}`{suggestion(member.name, self._shapes)}"
            self._say_unknown(("steps", member.name), member.name_span, said)
            return ANY
        if member.name not in self._ran and not self._in_flow:
            self._say(member.name_span, f"`{member.name}` is read before it has run")
            return ANY
        if member.name not in self._ran and member.name in self._never:
            said = f"`{member.name}` is null here: this flow runs because a time was up before it"
            self._say(member.name_span, said, "warning")
        return shape

    def _link(self, member: Member, step: str) -> Shape:
        """The address of a callback exists before its wait is reached (L3)."""
        wait = self._waits.get(step)
        if wait is None:
            assert isinstance(member.of, Member)
            if step not in self._shapes:
                self._step(member.of)
            else:
                self._say(member.name_span, f"only a wait has `{member.name}`, and `{step}` is none")
        elif wait.entry("callback") is None:
            self._say(
                member.name_span,
                f"`{step}` has no `{member.name}`, because it is no callback; add `«callback»: «true»`",
            )
        return Shape("text")

    def _index(self, index: Index) -> Shape:
        of, at = self.of(index.of), self.of(index.index)
        if of.type not in ("any", "list", "map"):
            self._say(index.of.span, f"«{of.type}» has no items")
        wanted = {"list": "number", "map": "text"}.get(of.type)
        if wanted is not None and at.type not in ("any", wanted):
            self._say(index.index.span, f"an item of a «{of.type}» is named by «{wanted}», but this is «{at.type}»")
        return ANY

    # ------------------------------------------------------------ operators

    def _unary(self, unary: Unary) -> Shape:
        of = self.of(unary.of)
        wanted = "boolean" if unary.operator == "not" else "number"
        allowed = ("any", wanted, "null") if wanted == "boolean" else ("any", wanted)
        if of.type not in allowed:
            self._say(unary.of.span, f"`«{unary.operator}»` takes «{wanted}», but this is «{of.type}»")
        return Shape(wanted)

    def _binary(self, binary: Binary) -> Shape:
        left, right = self.of(binary.left), self.of(binary.right)
        types = {left.type, right.type}
        match binary.operator:
            case "and" | "or":
                for side, shape in ((binary.left, left), (binary.right, right)):
                    if shape.type not in ("any", "boolean", "null"):
                        self._say(
                            side.span, f"`«{binary.operator}»` joins what is true or false, but this is «{shape.type}»"
                        )
                return Shape("boolean")
            case "==" | "!=":
                if (
                    "any" not in types
                    and "null" not in types
                    and not fits(left.type, right)
                    and not fits(right.type, left)
                ):
                    self._say(binary.span, f"«{left.type}» and «{right.type}» are never equal")
                return Shape("boolean")
            case "<" | "<=" | ">" | ">=":
                self._comparable(binary, types)
                return Shape("boolean")
            case "+":
                return self._sum(binary, left, right)
            case _:
                for side, shape in ((binary.left, left), (binary.right, right)):
                    if shape.type not in ("any", "number"):
                        self._say(side.span, f"`{binary.operator}` takes numbers, but this is «{shape.type}»")
                return Shape("number")

    def _comparable(self, binary: Binary, types: set[str]) -> None:
        concrete = types - {"any"}
        if not (concrete <= {"number"} or concrete <= {"text", "date"}):
            said = " with ".join(f"«{one}»" for one in sorted(concrete))
            self._say(binary.span, f"`{binary.operator}` compares numbers or texts, not {said}")

    def _sum(self, binary: Binary, left: Shape, right: Shape) -> Shape:
        types = {left.type, right.type}
        if "text" in types or "date" in types:
            if wrong := types & {"list", "map", "null"}:
                self._say(binary.span, f"`+` cannot join «text» and «{next(iter(wrong))}»")
            return Shape("text")
        if types <= {"any", "number"}:
            return Shape("number") if types == {"number"} else ANY
        if types <= {"any", "list"}:
            return Shape("list")
        self._say(binary.span, f"`+` cannot join «{left.type}» and «{right.type}»")
        return ANY


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _:
            return "text"
