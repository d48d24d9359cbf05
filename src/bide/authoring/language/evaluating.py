"""What an expression comes to. Pure and bounded: no calls, no loops, no results beyond a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

from bide.authoring.language.source import Source, Span
from bide.authoring.language.tree import (
    Binary,
    Expression,
    Index,
    ListOf,
    Literal_,
    MapOf,
    Member,
    Root,
    Text,
    Unary,
    Variable,
)
from bide.authoring.language.typing import LINKS
from bide.errors import BadExpression

MOST_LETTERS: Final = 1_000_000
MOST_ITEMS: Final = 100_000
WHOLE: Final = range(-(2**63), 2**63)


def no_secrets(name: str) -> str:
    raise LookupError(f"secret {name!r} cannot be read here, because it would be stored")


@dataclass
class Values:
    """What an expression can read."""

    input: Any = None
    steps: dict[str, Any] = field(default_factory=dict)
    links: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of callbacks: address and token
    variables: Mapping[str, Any] = field(default_factory=dict)
    error: Any = None
    secret: Callable[[str], str] = no_secrets


Compiled: TypeAlias = Callable[[Values], Any]


def evaluate(expression: Expression, values: Values, source: Source) -> Any:
    """The value of an expression. Raises `BadExpression`, which says where and why.

    >>> from bide.authoring.language.expressions import parse_text
    >>> source, expression = parse_text('"${input.n} of " + (input.n + 1) * 2')
    >>> evaluate(expression, Values(input={"n": 3}), source)
    '3 of 8'
    """
    return compiled(expression, source)(values)


def compiled(expression: Expression, source: Source) -> Compiled:
    """A function that evaluates the expression: what depends on the file alone is looked at once, not in every run."""
    return _Compiler(source).of(expression)


class _Compiler:
    """Each method gives the function of one kind of expression; the rest is what these functions share."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def _wrong(self, span: Span, message: str) -> BadExpression:
        line, column = self._source.place(span.start)
        return BadExpression(f"{self._source.name}:{line}:{column}: {message}")

    def of(self, expression: Expression) -> Compiled:
        match expression:
            case Literal_(value=value):
                return lambda values: value
            case Member():
                return self._member(expression)
            case Root():
                return self._root(expression)
            case Text():
                return self._text(expression)
            case Variable():
                return self._variable(expression)
            case Index():
                return self._index(expression)
            case ListOf(items=items):
                parts = [self.of(item) for item in items]
                return lambda values: [part(values) for part in parts]
            case MapOf(entries=entries):
                fields = [(entry.name, self.of(entry.value)) for entry in entries]
                return lambda values: {name: part(values) for name, part in fields}
            case Unary():
                return self._unary(expression)
            case Binary():
                return self._binary(expression)

    def _root(self, root: Root) -> Compiled:
        match root.name:
            case "input":
                return lambda values: values.input
            case "error":
                return lambda values: values.error
            case "steps":
                return lambda values: dict(values.steps)
            case _:
                return lambda values: self._raise(root.span, "a secret is read by its name: `secrets.NAME`")

    def _raise(self, span: Span, message: str) -> NoReturn:
        raise self._wrong(span, message)

    def _variable(self, variable: Variable) -> Compiled:
        name = variable.name

        def read(values: Values) -> Any:
            if name not in values.variables:
                raise self._wrong(variable.span, f"there is nothing called `{name}` here")
            return values.variables[name]

        return read

    def _member(self, member: Member) -> Compiled:
        name = member.name
        match member.of:
            case Root(name="steps"):
                return lambda values: values.steps.get(name)
            case Root(name="secrets"):
                return lambda values: self._secret(member, values)
            case Member(of=Root(name="steps"), name=step) if name in LINKS:
                read = self._field_of(member)
                return lambda values: values.links[step][name] if step in values.links else read(values)
            case _:
                return self._field_of(member)

    def _secret(self, member: Member, values: Values) -> str:
        try:
            return values.secret(member.name)
        except LookupError as error:
            raise self._wrong(member.span, str(error.args[0])) from None

    def _field_of(self, member: Member) -> Compiled:
        of, name, span = self.of(member.of), member.name, member.name_span
        return lambda values: self._field(of(values), name, span)

    def _field(self, of: Any, name: str, span: Span) -> Any:
        if of is None:
            return None
        if isinstance(of, dict):
            return of.get(name)
        raise self._wrong(span, f"{said(of)} has no field `{name}`")

    def _index(self, index: Index) -> Compiled:
        of, at = self.of(index.of), self.of(index.index)
        return lambda values: self._item(index, of(values), at(values))

    def _item(self, index: Index, of: Any, at: Any) -> Any:
        if isinstance(of, list) and isinstance(at, int) and not isinstance(at, bool):
            if not -len(of) <= at < len(of):
                raise self._wrong(index.index.span, f"there is no item {at} in a list of {len(of)}")
            return of[at]
        if isinstance(at, str):
            return self._field(of, at, index.index.span)
        if of is None:
            return None
        raise self._wrong(index.span, f"{said(of)} has no item {said(at)}")

    def _text(self, text: Text) -> Compiled:
        parts: list[Compiled] = [self._part(part) for part in text.parts]
        return lambda values: self._bounded("".join([part(values) for part in parts]), text.span)

    def _part(self, part: str | Expression) -> Compiled:
        if isinstance(part, str):
            return lambda values: part
        read = self.of(part)
        return lambda values: as_text(read(values))

    def _bounded(self, text: str, span: Span) -> str:
        if len(text) > MOST_LETTERS:
            raise self._wrong(span, f"the text gets longer than {MOST_LETTERS} letters")
        return text

    def _unary(self, unary: Unary) -> Compiled:
        of, span = self.of(unary.of), unary.of.span
        if unary.operator == "not":
            return lambda values: not self._truth(of(values), span)
        return lambda values: self._number(-self._as_number(of(values), span, "-"), unary.span)

    def _truth(self, value: Any, span: Span) -> bool:
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._wrong(span, f"true or false was expected, not {said(value)}")

    def _as_number(self, value: Any, span: Span, operator: str) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        raise self._wrong(span, f"`{operator}` takes numbers, but this is {said(value)}")

    def _number(self, value: Any, span: Span) -> Any:
        if (isinstance(value, float) and not isfinite(value)) or (isinstance(value, int) and value not in WHOLE):
            raise self._wrong(span, "the number gets too large")
        return value

    def _binary(self, binary: Binary) -> Compiled:
        left, right = self.of(binary.left), self.of(binary.right)
        left_span, right_span = binary.left.span, binary.right.span
        match binary.operator:
            case "and":
                return lambda values: self._truth(left(values), left_span) and self._truth(right(values), right_span)
            case "or":
                return lambda values: self._truth(left(values), left_span) or self._truth(right(values), right_span)
            case _:
                return lambda values: self._calculated(binary, left(values), right(values))

    def _calculated(self, binary: Binary, left: Any, right: Any) -> Any:
        match binary.operator:
            case "==":
                return is_same(left, right)
            case "!=":
                return not is_same(left, right)
            case "+" if isinstance(left, str) or isinstance(right, str):
                return self._joined(binary, left, right)
            case "+" if isinstance(left, list) and isinstance(right, list):
                if len(left) + len(right) > MOST_ITEMS:
                    raise self._wrong(binary.span, f"the list gets longer than {MOST_ITEMS} items")
                return [*left, *right]
            case "<" | "<=" | ">" | ">=":
                return self._compared(binary, left, right)
            case _:
                return self._arithmetic(binary, left, right)

    def _joined(self, binary: Binary, left: Any, right: Any) -> str:
        for side, value in ((binary.left, left), (binary.right, right)):
            if value is None or isinstance(value, (list, dict)):
                raise self._wrong(side.span, f"`+` cannot join a text and {said(value)}")
        return self._bounded(as_text(left) + as_text(right), binary.span)

    def _compared(self, binary: Binary, left: Any, right: Any) -> bool:
        are_texts = isinstance(left, str) and isinstance(right, str)
        if not are_texts:
            self._as_number(left, binary.left.span, binary.operator)
            self._as_number(right, binary.right.span, binary.operator)
        match binary.operator:
            case "<":
                return bool(left < right)
            case "<=":
                return bool(left <= right)
            case ">":
                return bool(left > right)
            case _:
                return bool(left >= right)

    def _arithmetic(self, binary: Binary, left: Any, right: Any) -> Any:
        self._as_number(left, binary.left.span, binary.operator)
        self._as_number(right, binary.right.span, binary.operator)
        try:
            match binary.operator:
                case "+":
                    value = left + right
                case "-":
                    value = left - right
                case "*":
                    value = left * right
                case _:
                    is_whole = isinstance(left, int) and isinstance(right, int) and right and left % right == 0
                    value = left // right if is_whole else left / right
        except ZeroDivisionError:
            raise self._wrong(binary.right.span, "nothing can be divided by 0") from None
        except OverflowError:
            raise self._wrong(binary.span, "the number gets too large") from None
        return self._number(value, binary.span)


def is_same(left: Any, right: Any) -> bool:
    """Equality as JSON sees it: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(value, right[name]) for name, value in left.items())
    return bool(left == right)


def as_text(value: Any) -> str:
    """A value inside of a text: nothing for null, 3 for 3.0, JSON for lists and objects."""
    match value:
        case None:
            return ""
        case str():
            return value
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case _:
            return json.dumps(value, ensure_ascii=False)


def said(value: Any) -> str:
    """What kind of value it is, for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "a map"
