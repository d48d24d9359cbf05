"""Parsing of expressions: literals, objects, lists, `input.x`, `steps.a.b`, arithmetic, comparison, and/or/not."""

from __future__ import annotations

from typing import Final, TypeVar

from bide.authoring.language.reading import Reader, Stop
from bide.authoring.language.source import Source, Span
from bide.authoring.language.tokens import Token, tokenise
from bide.authoring.language.tree import (
    Binary,
    Entry,
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
from bide.authoring.language.words import CONSTANTS, EXPRESSION, ROOTS
from bide.errors import LanguageError

COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
MOST_DIGITS: Final = 30
DEEPEST: Final = 100

Made = TypeVar("Made", bound="Expression")


def parse_expression(reader: Reader) -> Expression:
    """Read one expression where the reader stands."""
    return _Expressions(reader, {}).any()


def parse_text(text: str) -> tuple[Source, Expression]:
    """Read a text that is one expression, in English. Raises `LanguageError`."""
    source = Source(text, "expression")
    found = tokenise(source)
    problems = list(found.problems)
    if not problems:
        reader = Reader(source, found.tokens, "en", [], problems)
        try:
            expression = parse_expression(reader)
            reader.end_line("an operator or the end of the expression")
            return source, expression
        except Stop:
            pass
    raise LanguageError(tuple(problems))


class _Expressions:
    def __init__(self, reader: Reader, depths: dict[int, int]) -> None:
        self._reader = reader
        self._depths = depths  # of the trees under the nodes made so far, by their identity

    def any(self) -> Expression:
        return self._or()

    def _deeper(self, made: Made, *parts: Expression) -> Made:
        """Trees are walked by recursion: what would be too deep for that is refused here."""
        depth = 1 + max((self._depths.get(id(part), 0) for part in parts), default=0)
        if depth > DEEPEST:
            raise self._reader.stop(
                made.span, f"the expression is nested more than {DEEPEST} deep; compute it in steps"
            )
        self._depths[id(made)] = depth
        return made

    def _or(self) -> Expression:
        left = self._and()
        while self._reader.keyword("or"):
            left = self._binary("or", left, self._and())
        return left

    def _and(self) -> Expression:
        left = self._not()
        while self._reader.keyword("and"):
            left = self._binary("and", left, self._not())
        return left

    def _not(self) -> Expression:
        start = self._reader.peek().span.start
        count = 0
        while self._reader.keyword("not"):
            count += 1
        made = self._comparison()
        for _ in range(min(count, 2 - count % 2)):  # an even number of them is two
            made = self._deeper(Unary("not", made, Span(start, made.span.end)), made)
        return made

    def _comparison(self) -> Expression:
        left = self._sum()
        operator = self._reader.operator(*COMPARISONS)
        if operator is None:
            return left
        made = self._binary(operator.text, left, self._sum())
        again = self._reader.peek()
        if again.kind == "operator" and again.text in COMPARISONS:
            raise self._reader.stop(again.span, "comparisons do not follow each other; join them with `and`")
        return made

    def _sum(self) -> Expression:
        left = self._product()
        while operator := self._reader.operator("+", "-"):
            left = self._binary(operator.text, left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._sign()
        while operator := self._reader.operator("*", "/"):
            left = self._binary(operator.text, left, self._sign())
        return left

    def _sign(self) -> Expression:
        sign = self._reader.operator("-")
        if sign is None:
            return self._postfix()
        if self._reader.at_operator("-"):
            raise self._reader.stop(self._reader.peek().span, "a second minus means nothing here")
        made = self._postfix()
        if isinstance(made, Literal_) and isinstance(made.value, (int, float)) and not isinstance(made.value, bool):
            return Literal_(-made.value, Span(sign.span.start, made.span.end))
        return self._deeper(Unary("-", made, Span(sign.span.start, made.span.end)), made)

    def _binary(self, operator: str, left: Expression, right: Expression) -> Expression:
        return self._deeper(Binary(operator, left, right, Span(left.span.start, right.span.end)), left, right)

    # ------------------------------------------------------------ values

    def _postfix(self) -> Expression:
        made = self._value()
        while True:
            if self._reader.operator("."):
                token = self._reader.peek()
                name = self._reader.name("the name of a field after the dot")
                made = self._deeper(Member(made, name, Span(made.span.start, token.span.end), token.span), made)
            elif self._reader.operator("["):
                index = self.any()
                end = self._reader.expect("]", "`]` after the index")
                made = self._deeper(Index(made, index, Span(made.span.start, end.span.end)), made, index)
            else:
                return made

    def _value(self) -> Expression:
        token = self._reader.peek()
        match token.kind:
            case "number":
                self._reader.advance()
                return Literal_(self._number(token), token.span)
            case "text":
                self._reader.advance()
                return self._text(token)
            case "name":
                return self._named(token)
            case "operator" if token.text == "{":
                return self._map()
            case "operator" if token.text == "[":
                return self._list()
            case "operator" if token.text == "(":
                self._reader.advance()
                made = self.any()
                self._reader.expect(")", "`)` after the expression")
                return made
            case _:
                raise self._reader.stop_expected("a value")

    def _number(self, token: Token) -> int | float:
        if len(token.text) > MOST_DIGITS:
            raise self._reader.stop(token.span, "the number is too long")
        if token.text.isdigit():
            whole = int(token.text)
            if whole >= 2**63:
                raise self._reader.stop(token.span, "the number does not fit into 64 bits; write it as a text")
            return whole
        value = float(token.text)
        if value in (float("inf"), float("-inf")):
            raise self._reader.stop(token.span, "the number is too large; write it as a text")
        return value

    def _named(self, token: Token) -> Expression:
        keyword = self._reader.keyword(*EXPRESSION)
        if keyword is None:
            name = self._reader.name("a value", place="root")
            return Variable(name, token.span)
        if keyword in ROOTS:
            return Root(keyword, token.span)
        if keyword in CONSTANTS:
            return Literal_(CONSTANTS[keyword], token.span)
        raise self._reader.stop(token.span, f"a value was expected, not `{token.text}`")

    def _text(self, token: Token) -> Expression:
        parts: list[str | Expression] = []
        for part in token.parts:
            if isinstance(part, str):
                parts.append(part)
                continue
            inner = self._reader.inside(part)
            parts.append(_Expressions(inner, self._depths).any())
            if inner.peek().kind != "end":
                raise inner.stop_expected("`}` after the expression")
        if all(isinstance(part, str) for part in parts):
            return Literal_("".join(part for part in parts if isinstance(part, str)), token.span)
        return self._deeper(Text(tuple(parts), token.span), *(part for part in parts if not isinstance(part, str)))

    def _map(self) -> Expression:
        opened = self._reader.advance()
        entries: list[Entry] = []
        while not self._reader.at_operator("}"):
            entries.append(self._entry())
            if not self._reader.operator(","):
                break
        closed = self._reader.expect("}", "`,` or `}`")
        seen: set[str] = set()
        for entry in entries:
            if entry.name in seen:
                raise self._reader.stop(entry.span, f"`{entry.name}` is in this object already")
            seen.add(entry.name)
        made = MapOf(tuple(entries), Span(opened.span.start, closed.span.end))
        return self._deeper(made, *(entry.value for entry in entries))

    def _entry(self) -> Entry:
        token = self._reader.peek()
        if token.kind == "text":
            self._reader.advance()
            if any(not isinstance(part, str) for part in token.parts):
                raise self._reader.stop(token.span, "the name of an entry cannot have ${…} in it")
            name = "".join(part for part in token.parts if isinstance(part, str))
        elif token.kind == "name" and (found := self._reader.hyphenated()):
            span, written = found
            raise self._reader.stop(span, f'a name with `-` in it stands in quotes: "{written}"')
        else:
            name = self._reader.name("the name of an entry, or `}`")
        self._reader.expect(":", f"`:` after `{name}`")
        return Entry(name, self.any(), token.span)

    def _list(self) -> Expression:
        opened = self._reader.advance()
        items: list[Expression] = []
        while not self._reader.at_operator("]"):
            items.append(self.any())
            if not self._reader.operator(","):
                break
        closed = self._reader.expect("]", "`,` or `]`")
        return self._deeper(ListOf(tuple(items), Span(opened.span.start, closed.span.end)), *items)
