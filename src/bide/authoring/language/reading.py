"""A reader over tokens that knows the words of one language, and keeps what a translation may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from bide.authoring.language.source import Problem, Source, Span, problem_at, suggestion
from bide.authoring.language.tokens import Token
from bide.authoring.language.tree import Mark
from bide.authoring.language.words import EXPRESSION, TABLE, phrases


class Stop(Exception):
    """The rest of this statement cannot be read; its problem is noted."""


class Reader:
    def __init__(
        self, source: Source, tokens: Sequence[Token], language: str, marks: list[Mark], problems: list[Problem]
    ) -> None:
        self.source = source
        self.language = language
        self.marks = marks
        self.problems = problems
        self._tokens = tokens
        self._at = 0

    def inside(self, tokens: Sequence[Token]) -> Reader:
        """A reader over the tokens of one ${…}."""
        return Reader(self.source, tokens, self.language, self.marks, self.problems)

    # ------------------------------------------------------------ tokens

    def peek(self, ahead: int = 0) -> Token:
        try:
            return self._tokens[self._at + ahead]
        except IndexError:
            return self._tokens[-1]  # the end

    def advance(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def at(self, kind: str) -> bool:
        return self.peek().kind == kind

    def at_operator(self, text: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind == "operator" and token.text == text

    def operator(self, *texts: str) -> Token | None:
        token = self.peek()
        return self.advance() if token.kind == "operator" and token.text in texts else None

    def expect(self, operator: str, what: str) -> Token:
        found = self.operator(operator)
        if found is None:
            raise self.stop_expected(what)
        return found

    # ------------------------------------------------------------ words

    def keyword(self, *keywords: str) -> str | None:
        """Read one of these keywords, if one stands here; its English form."""
        found = self.find(*keywords)
        if found is None:
            return None
        keyword, count = found
        start, end = self.peek().span.start, self.peek(count - 1).span.end
        if self.source.text[start:end] != self.form(keyword):
            raise self.stop(Span(start, end), f"write `{self.form(keyword)}` with one space between its words")
        self.marks.append(Mark(Span(start, end), keyword))
        self._at += count
        return keyword

    def find(self, *keywords: str) -> tuple[str, int] | None:
        """The keyword that stands here, if it is one of these, and how many words it has."""
        token = self.peek()
        if token.kind != "name" or token.ticks:
            return None
        for phrase in phrases(self.language, keywords).get(token.text, ()):
            following = (self.peek(ahead) for ahead in range(len(phrase.words)))
            if all(
                word.kind == "name" and not word.ticks and word.text == expected
                for word, expected in zip(following, phrase.words, strict=True)
            ):
                return phrase.keyword, len(phrase.words)
        return None

    def form(self, keyword: str) -> str:
        return TABLE[keyword][self.language]

    def name(self, what: str, place: Literal["name", "root", "key"] = "name") -> str:
        """Read a user's name."""
        token = self.peek()
        if token.kind != "name":
            raise self.stop_expected(what)
        if place == "root" and not token.ticks and self.find(*EXPRESSION) is not None:
            raise self.stop(
                token.span, f"`{token.text}` is a word of the language; write it in backticks to use it as a name"
            )
        self.advance()
        self.marks.append(Mark(token.span, None, token.text, token.ticks, place))
        return token.text

    # ------------------------------------------------------------ lines and blocks

    def end_line(self, what: str = "the end of the line") -> None:
        if self.at("newline"):
            self.advance()
        elif not self.at("end"):
            raise self.stop_expected(what)

    def lines(self, read: Callable[[], None]) -> None:
        """Read each line of the block that begins here; a line that cannot be read costs only itself and its block."""
        self.advance()  # the indent
        while not self.at("dedent") and not self.at("end"):
            before = self._at
            try:
                read()
            except Stop:
                is_behind = self._at > before and self._tokens[self._at - 1].kind in ("newline", "dedent")
                if not is_behind or self.at("indent"):
                    self.skip_statement()
            assert self._at > before, "every line moves on"
        if self.at("dedent"):
            self.advance()

    def skip_statement(self) -> None:
        """Go behind this line, and behind the block under it."""
        while not (self.at("newline") or self.at("end") or self.at("dedent") or self.at("indent")):
            self.advance()
        if self.at("newline"):
            self.advance()
        depth = 0
        while (self.at("indent") or depth) and not self.at("end"):
            depth += {"indent": 1, "dedent": -1}.get(self.advance().kind, 0)

    # ------------------------------------------------------------ problems

    def note(self, span: Span, message: str) -> None:
        self.problems.append(problem_at(self.source, span, message))

    def stop(self, span: Span, message: str) -> Stop:
        self.note(span, message)
        return Stop(message)

    def stop_expected(self, what: str, known: Iterable[str] = ()) -> Stop:
        token = self.peek()
        found = {
            "newline": "the line ends",
            "end": "the text ends",
            "indent": "a deeper line begins",
            "dedent": "the block ends",
        }.get(token.kind)
        shown = self.source.text[token.span.start : token.span.end]
        said = f"{what} was expected, but {found} here" if found else f"{what} was expected, not `{shown}`"
        hint = suggestion(token.text, known) if token.kind == "name" else ""
        span = token.span if not found else Span(token.span.start, token.span.start + 1)
        return self.stop(span, said + hint)
