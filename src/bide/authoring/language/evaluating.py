"""What an expression comes to. Pure and bounded: no calls, no loops, no results beyond a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

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


def evaluate(expression: Expression, values: Values, source: Source) -> Any:
    """The value of an expression. Raises `BadExpression`, which says where and why.

    >>> from bide.authoring.language.expressions import parse_text
    >>> source, expression = parse_text('"${input.n} of " + (input.n + 1) * 2')
    >>> evaluate(expression, Values(input={"n": 3}), source)
    '3 of 8'
    """
    return _Evaluator(values, source).of(expression)


class _Evaluator:
    def __init__(self, values: Values, source: Source) -> None:
        self._values = values
        self._source = source

    def _wrong(self, span: Span, message: str) -> BadExpression:
        line, column = self._source.place(span.start)
        return BadExpression(f"{self._source.name}:{line}:{column}: {message}")

    def of(self, expression: Expression) -> Any:
        match expression:
            case Literal_(value=value):
                return value
            case Member():
                return self._member(expression)
            case Root():
                return self._root(expression)
            case Text():
                return self._text(expression)
            case Variable(name=name):
                if name not in self._values.variables:
                    raise self._wrong(expression.span, f"there is nothing called `{name}` here")
                return self._values.variables[name]
            case Index():
                return self._index(expression)
            case ListOf(items=items):
                return [self.of(item) for item in items]
            case MapOf(entries=entries):
                return {entry.name: self.of(entry.value) for entry in entries}
            case Unary():
                return self._unary(expression)
            case Binary():
                return self._binary(expression)

    def _root(self, root: Root) -> Any:
        match root.name:
            case "input":
                return self._values.input
            case "error":
                return self._values.error
            case "steps":
                return dict(self._values.steps)
            case _:
                raise self._wrong(root.span, "a secret is read by its name: `secrets.NAME`")

    def _member(self, member: Member) -> Any:
        match member.of:
            case Root(name="steps"):
                return self._values.steps.get(member.name)
            case Root(name="secrets"):
                try:
                    return self._values.secret(member.name)
                except LookupError as error:
                    raise self._wrong(member.span, str(error.args[0])) from None
            case Member(of=Root(name="steps"), name=step) if member.name in LINKS and step in self._values.links:
                return self._values.links[step][member.name]
            case _:
                return self._field(self.of(member.of), member.name, member.name_span)

    def _field(self, of: Any, name: str, span: Span) -> Any:
        if of is None:
            return None
        if isinstance(of, dict):
            return of.get(name)
        raise self._wrong(span, f"{said(of)} has no field `{name}`")

    def _index(self, index: Index) -> Any:
        of, at = self.of(index.of), self.of(index.index)
        if isinstance(of, list) and isinstance(at, int) and not isinstance(at, bool):
            if not -len(of) <= at < len(of):
                raise self._wrong(index.index.span, f"there is no item {at} in a list of {len(of)}")
            return of[at]
        if isinstance(at, str):
            return self._field(of, at, index.index.span)
        if of is None:
            return None
        raise self._wrong(index.span, f"{said(of)} has no item {said(at)}")

    def _text(self, text: Text) -> str:
        written = "".join(part if isinstance(part, str) else as_text(self.of(part)) for part in text.parts)
        return self._bounded(written, text.span)

    def _bounded(self, text: str, span: Span) -> str:
        if len(text) > MOST_LETTERS:
            raise self._wrong(span, f"the text gets longer than {MOST_LETTERS} letters")
        return text

    def _unary(self, unary: Unary) -> Any:
        value = self.of(unary.of)
        if unary.operator == "not":
            return not self._truth(value, unary.of.span)
        return self._number(-self._as_number(value, unary.of.span, "-"), unary.span)

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

    def _binary(self, binary: Binary) -> Any:
        left = self.of(binary.left)
        match binary.operator:
            case "and":
                return self._truth(left, binary.left.span) and self._truth(self.of(binary.right), binary.right.span)
            case "or":
                return self._truth(left, binary.left.span) or self._truth(self.of(binary.right), binary.right.span)
            case _:
                return self._calculated(binary, left, self.of(binary.right))

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
