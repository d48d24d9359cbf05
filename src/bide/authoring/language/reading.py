"""A reader over tokens that knows the words of one language, and keeps what a translation may change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

from bide.authoring.language.source import Problem, Source, Span, problem_at
from bide.authoring.language.tokens import Token
from bide.authoring.language.tree import Mark
from bide.authoring.language.words import EXPRESSION, HOMES, HOMES_BEFORE_A_COLON, LANGUAGES, TABLE, phrases

KEYWORD: Final = re.compile("«([^«»]*)»")
NEAR: Final = 0.6
NEAR_IN_SEVERAL_WORDS: Final = 0.8
ALMOST: Final = 0.85

# What people who know other languages write, and what it is called here.
ELSEWHERE: Final = {
    "if": ("when", "decide"), "elif": ("when",), "else": ("otherwise",), "switch": ("decide",), "case": ("when",),
    "foreach": ("for each",), "loop": ("for each",), "while": ("for each",),
    "try": ("on failure",), "catch": ("on failure",), "except": ("on failure",), "rescue": ("on failure",),
    "let": ("compute",), "set": ("compute",), "var": ("compute",), "return": ("compute",),
    "fetch": ("action",), "call": ("action",), "invoke": ("action",), "http": ("action",),
    "await": ("wait for",), "sleep": ("wait for",), "pause": ("wait for",), "approve": ("wait for",),
    "publish": ("emit",), "start": ("launch",), "spawn": ("launch",), "function": ("flow",), "def": ("flow",),
    "workflow": ("machine",), "input": ("accepts",), "output": ("responds with",), "steps": ("implements",),
}  # fmt: skip


class Stop(Exception):
    """The rest of this statement cannot be read; its problem is noted."""


class Empty(Stop):
    """Nothing stands under this line. What follows may be what was meant to, so that one message is enough."""


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
        self._is_lost = [False]  # of each block: whether a line of it was said to belong elsewhere; once is enough

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

    def is_at_start(self) -> bool:
        return self._at == 0

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

    def hyphenated(self) -> tuple[Span, str] | None:
        """The words with hyphens between them that stand here, where one name is meant: `due-date`."""
        at, end = 0, self.peek().span.end
        while self.at_operator("-", at + 1) and self.peek(at + 1).span.start == end:
            following = self.peek(at + 2)
            if following.kind not in ("name", "number") or following.span.start != end + 1:
                break
            at, end = at + 2, following.span.end
        span = Span(self.peek().span.start, end)
        return (span, self.source.text[span.start : span.end]) if at else None

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

    def end_line(self, what: str = "the end of the line", known: Iterable[str] = ()) -> None:
        if self.at("newline"):
            self.advance()
        elif not self.at("end"):
            raise self._stop_in_line(what, known)

    def _stop_in_line(self, what: str, known: Iterable[str]) -> Stop:
        """Something stands where the line should end: say what was likely meant."""
        token, before = self.peek(), self._tokens[self._at - 1]
        is_word = bool(self.marks) and self.marks[-1].span == before.span and self.marks[-1].keyword is None
        if self.at_operator(":") and self.source.text.startswith("://", token.span.start):
            return self.stop(token.span, 'an address is a text, and texts stand in quotes: "https://…"')
        if self.at_operator(":") and self.peek(1).kind == "newline":
            return self.stop(token.span, "no `:` stands at the end of this line; take it away")
        if self.at_operator(":") and is_word:
            return self.stop(token.span, f"an object stands in braces: `{{{before.text}: …}}`")
        if self.at_operator("(") and is_word:
            said = f"`{before.text}` cannot be called: expressions have no functions; `«action» NAME «call»` calls code"
            return self.stop(token.span, self.in_language(said))
        if self.at_operator("{"):
            said = "what belongs to a line stands under it, indented, without braces"
            return self.stop(token.span, f"{what} was expected, not `{{`; {said}")
        for word in known:
            if self.find(*(keyword for keyword, row in TABLE.items() if row[self.language] == word)):
                return self.stop(token.span, f"a `,` was expected before `{word}`")
        if token.kind == "name" and is_word and not self._near(known):
            hint = f"; a name is one word (`{before.text}_{token.text}`), and texts stand in quotes"
            return self.stop(token.span, f"{what} was expected, not `{token.text}`{hint}")
        return self.stop_expected(what, known)

    def lines(self, read: Callable[[], None]) -> None:
        """Read each line of the block that begins here; a line that cannot be read costs only itself and its block."""
        self.advance()  # the indent
        self._is_lost.append(False)
        was_empty = False
        while not self.at("dedent") and not self.at("end"):
            was_empty = self.attempt(read, was_empty)
        self._is_lost.pop()
        if self.at("dedent"):
            self.advance()

    def attempt(self, read: Callable[[], None], was_empty: bool) -> bool:
        """Read a line, or go behind it; whether nothing stood under it, or under the one that this one belongs to."""
        before, problems = self._at, len(self.problems)
        first = self.peek().span
        is_empty = False
        try:
            if self.at("indent"):
                raise self._deeper()
            read()
        except Stop as stop:
            is_behind = self._at > before and self._tokens[self._at - 1].kind in ("newline", "dedent")
            if not is_behind or self.at("indent"):
                self.skip_statement()
            is_empty = isinstance(stop, Empty)
            if was_empty and self._is_at_most_this_line(problems, first):
                del self.problems[problems:]
                is_empty = True
        assert self._at > before or self.at("end"), "every line moves on"
        return is_empty

    def _deeper(self) -> Stop:
        said = "this line stands deeper than the one above it, under which nothing can stand; move it to the left"
        if self.is_at_start():
            said = "this line is indented, but nothing stands above it that it could belong to"
        return self.stop(self.peek(1).span, said)

    def _is_at_most_this_line(self, before: int, first: Span) -> bool:
        """Whether nothing was said since, or one thing about the line that begins there."""
        line, _ = self.source.place(first.start)
        return [each.line for each in self.problems[before:]] in ([], [line])

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

    def stop_empty(self, message: str) -> Stop:
        """Nothing stands under the line above."""
        at = self._at - 1
        end = self._tokens[at].span.start
        while at > 0 and self._tokens[at - 1].kind not in ("newline", "indent", "dedent"):
            at -= 1
        self.note(Span(self._tokens[at].span.start, end), message)
        return Empty(message)

    def stop_line(self, what: str, known: Iterable[str], *, once: bool = False) -> Stop:
        """This line begins with something that cannot stand here: a keyword of another place, a slip, or neither.

        With *once*, only the first such line of a block is spoken of.
        """
        homes = HOMES_BEFORE_A_COLON if self.at_operator(":", 1) else HOMES
        for keywords, said in homes:
            found = self.find(*keywords)
            if found is None or (found[0] in ("flow", "machine") and self.peek(found[1]).kind == "newline"):
                continue
            span = Span(self.peek().span.start, self.peek(found[1] - 1).span.end)
            return self.stop_misplaced(span, f"`{self.form(found[0])}` {self.in_language(said)}")
        if once and self._is_lost[-1]:
            return Stop(what)
        self._is_lost[-1] = once
        return self.stop_expected(what, known)

    def stop_misplaced(self, span: Span, message: str) -> Stop:
        if not self._is_lost[-1]:
            self.note(span, message)
            self._is_lost[-1] = True
        return Stop(message)

    def in_language(self, message: str) -> str:
        """A message whose keywords in «…» are said in the language of the file."""
        return KEYWORD.sub(lambda found: TABLE[found[1]][self.language], message)

    def stop_expected(self, what: str, known: Iterable[str] = ()) -> Stop:
        token = self.peek()
        known = list(known)
        if foreign := self._foreign(known):
            span, word = foreign
            shown = self.source.text[span.start : span.end]
            return self.stop(span, f"`{shown}` is a word of another language; here it is `{word}`")
        if token.text == "goto" and TABLE["run"][self.language] in known:
            said = "there is no `goto`; `«run» «flow»(NAME)` runs a flow and goes on after it"
            return self.stop(token.span, self.in_language(said))
        if near := self._near(known):
            span, word = near
            shown = self.source.text[span.start : span.end]
            return self.stop(span, f"`{shown}` means nothing here; did you mean `{word}`?")
        found = {
            "newline": "the line ends",
            "end": "the text ends" if not self.source.text.startswith("}", token.span.start) else None,
            "indent": "a deeper line begins",
            "dedent": "the block ends",
        }.get(token.kind)
        shown = self.source.text[token.span.start : max(token.span.end, token.span.start + 1)]
        said = f"{what} was expected, but {found} here" if found else f"{what} was expected, not `{shown}`"
        span = token.span if not found else Span(token.span.start, token.span.start + 1)
        return self.stop(span, said)

    def _foreign(self, known: Sequence[str]) -> tuple[Span, str] | None:
        """The keyword of another language that stands here, and what it is in this one."""
        rows = [row for row in TABLE.values() if row[self.language] in known]
        for other in LANGUAGES if self.at("name") and not self.peek().ticks else ():
            for row in rows:
                words = row[other].split(" ")
                if other != self.language and [self.peek(at).text for at in range(len(words))] == words:
                    span = Span(self.peek().span.start, self.peek(len(words) - 1).span.end)
                    return span, row[self.language]
        return None

    def _near(self, known: Iterable[str]) -> tuple[Span, str] | None:
        """The words here that are nearly one of these, and which."""
        start, written, found = self.peek().span.start, "", list[tuple[float, Span, str]]()
        known = list(known)
        for keyword in ELSEWHERE.get(self.peek().text, ()) if self.at("name") else ():
            if self.form(keyword) in known:
                return self.peek().span, self.form(keyword)
        for count in range(3):
            token = self.peek(count)
            if token.kind != "name" or token.ticks:
                break
            written = f"{written} {token.text}".strip()
            for word in known:
                ratio = SequenceMatcher(None, word, written).ratio()
                if word.startswith(f"{written} "):
                    ratio = ALMOST  # the rest of it is missing
                if (NEAR_IN_SEVERAL_WORDS if count else NEAR) <= ratio < 1:
                    found.append((ratio, Span(start, token.span.end), word))
        if not found:
            return None
        _, span, word = max(found)
        return span, word
