"""Text into tokens, with indentation as in Python: lines inside of brackets go on, deeper lines make a block."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from bide.authoring.language.source import Problem, Source, Span, problem_at

Kind = Literal["name", "number", "text", "operator", "newline", "indent", "dedent", "end"]

MOST_LETTERS: Final = 1_000_000
DEEPEST: Final = 30  # brackets in brackets, and texts in texts

TextPart: TypeAlias = "str | tuple[Token, ...]"


class Token(msgspec.Struct, frozen=True, gc=False):
    kind: Kind
    text: str  # of a name without its backticks, of a text nothing
    span: Span
    ticks: int = 0  # backticks on each side of a name
    parts: tuple[TextPart, ...] = ()  # of a text: letters, and the tokens of each ${…}


@dataclass(frozen=True)
class Tokens:
    tokens: list[Token]
    comments: list[Span]
    problems: list[Problem]


NAME: Final = re.compile(r"[^\W\d]\w*")
NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
TICKED: Final = re.compile(r"(`+)([^`\r\n]*)(`+)")
COMMON: Final = re.compile(r"(?P<name>[^\W\d]\w*)|(?P<operator>[:.,+])|[ \t　]+")  # most of a file, at a glance
BLANK: Final = re.compile(r"[ \t]*")
OPERATORS: Final = ("==", "!=", "<=", ">=", "&&", "||", *"+-*/%<>=!(){}[],:.")
WIDE: Final = {"：": ":", "，": ",", "、": ",", "（": "(", "）": ")", "　": " "}  # as East Asian keyboards give them
CLOSING: Final = {"(": ")", "{": "}", "[": "]"}
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "$": "$"}
UNITS: Final = ("w", "d", "h", "m", "s", "ms", "us")
BETTER: Final = {
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`",
    "=": "write `:` to give a value, `==` to compare",
    "%": "there are `+ - * /`",
}
INSTEAD: Final = {
    "?": "`decide` with `when` and `otherwise` chooses",
    "&": "write `and`, or `+` to join texts",
    "|": "write `or`",
    ";": "a `,` stands between entries",
    "#": "comments begin with `//`",
}
HEX: Final = re.compile(r"[0-9a-fA-F]{4}")


class Broken(Exception):
    """Nothing sensible can be read behind this."""


def tokenise(source: Source) -> Tokens:
    """Read the whole text. Where there are problems, what was read up to there is of no use."""
    return _Lexer(source).run()


class _Lexer:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._tokens: list[Token] = []
        self._comments: list[Span] = []
        self._problems: list[Problem] = []
        self._brackets: list[Token] = []
        self._indents = [""]
        self._begun = [0]  # where the block of each indentation begins

    def run(self) -> Tokens:
        if len(self._text) > MOST_LETTERS:
            self._problem(0, 1, f"the file is longer than {MOST_LETTERS} letters; split it")
            return Tokens([], [], self._problems)
        with contextlib.suppress(Broken):
            self._lines()
        if not self._problems:
            self._end()
        return Tokens(self._tokens, self._comments, self._problems)

    def _problem(self, start: int, end: int, message: str) -> None:
        self._problems.append(problem_at(self._source, Span(start, end), message))

    def _break(self, start: int, end: int, message: str) -> Broken:
        self._problem(start, end, message)
        return Broken()

    def _add(self, kind: Kind, text: str, start: int, **rest: object) -> Token:
        token = Token(kind, text, Span(start, self._at), **rest)  # type: ignore[arg-type]  # fields by their names
        self._tokens.append(token)
        return token

    # ------------------------------------------------------------ lines

    def _lines(self) -> None:
        if self._text.startswith("\ufeff"):
            self._at = 1
        is_start = True
        while self._at < len(self._text):
            if is_start:
                is_start = self._line_start()
                continue
            match = COMMON.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                if match.lastgroup is not None:
                    self._tokens.append(Token(match.lastgroup, match[0], Span(*match.span())))  # type: ignore[arg-type]
                continue
            letter = self._text[self._at]
            if letter == "\r" and self._text.startswith("\r\n", self._at):
                self._at += 1
            elif letter == "\n":
                is_start = self._line_end()
            elif self._text.startswith("//", self._at):
                self._comment()
            else:
                self._token()
        if self._brackets:
            opened = self._brackets[-1]
            raise self._break(*opened.span, f"this `{opened.text}` is never closed")

    def _line_end(self) -> bool:
        start = self._at
        self._at += 1
        if self._brackets:
            return False
        self._add("newline", "", start)
        return True

    def _line_start(self) -> bool:
        """Look at the indentation of a line that has something on it; whether the next line is a start too."""
        start = self._at
        match = BLANK.match(self._text, start)
        assert match is not None
        indent, self._at = match[0], match.end()
        rest = self._text[self._at : self._at + 2]
        if rest[:1] == "\n" or rest == "\r\n":
            self._at += len(rest) if rest == "\r\n" else 1
            return True
        if rest == "//":
            self._comment()
            if self._at < len(self._text):
                self._at = self._text.index("\n", self._at) + 1
            return True
        if self._at < len(self._text):
            self._indent(indent, start)
        return False

    def _indent(self, indent: str, start: int) -> None:
        current = self._indents[-1]
        if indent == current:
            return
        if indent.startswith(current):
            self._indents.append(indent)
            self._begun.append(self._at)
            self._add("indent", "", start)
            return
        inner, deeper = self._begun[-1], current
        while len(self._indents) > 1 and len(self._indents[-1]) > len(indent):
            self._indents.pop()
            inner = self._begun.pop()
            self._add("dedent", "", self._at)
        if self._indents[-1] != indent:
            raise self._break(start, self._at + 1, f"this line fits no block: {self._why_not(indent, inner, deeper)}")

    def _why_not(self, indent: str, inner: int, deeper: str) -> str:
        around = self._indents[-1]
        if ("\t" in indent) != ("\t" in deeper) or ("\t" in indent and not indent.startswith(around)):
            return "it mixes tabs and spaces otherwise than the lines above"
        line, column = self._source.place(inner)
        return (
            f"it begins at column {len(indent) + 1}, the block above it (from line {line}) at column {column}, "
            f"and the one around that at column {len(around) + 1}"
        )

    def _comment(self) -> None:
        start = self._at
        end = self._text.find("\n", start)
        end = len(self._text) if end < 0 else end
        if end > start and self._text[end - 1] == "\r" and end < len(self._text):
            end -= 1
        self._at = end
        self._comments.append(Span(start, end))

    def _end(self) -> None:
        self._at = len(self._text)
        if self._tokens and self._tokens[-1].kind not in ("newline", "dedent"):
            self._add("newline", "", self._at)
        for _ in self._indents[1:]:
            self._add("dedent", "", self._at)
        self._add("end", "", self._at)

    # ------------------------------------------------------------ tokens

    def _token(self) -> None:
        start, letter = self._at, self._text[self._at]
        if match := NAME.match(self._text, start):
            self._at = match.end()
            self._add("name", match[0], start)
        elif letter.isascii() and letter.isdigit():
            self._number(start)
        elif letter == '"':
            self._string(start)
        elif letter == "`":
            self._ticked(start)
        elif operator := next((one for one in OPERATORS if self._text.startswith(one, start)), WIDE.get(letter)):
            self._operator(operator, start)
        elif letter in "“”„«»「」'‘’":
            raise self._break(start, start + 1, f'`{letter}` begins nothing here; texts stand in straight quotes: "…"')
        else:
            shown = letter if letter.isprintable() else f"U+{ord(letter):04X}"
            hint = INSTEAD.get(letter, "texts stand in quotes, comments after //")
            raise self._break(start, start + 1, f"`{shown}` means nothing here; {hint}")

    def _number(self, start: int) -> None:
        match = NUMBER.match(self._text, start)
        assert match is not None
        self._at = match.end()
        if following := NAME.match(self._text, self._at):
            shown = match[0] + following[0]
            is_time = following[0] in UNITS
            hint = f'a length of time stands in quotes: "{shown}"' if is_time else "a name does not begin with a digit"
            raise self._break(start, following.end(), f"`{shown}` is no number and no name; {hint}")
        self._add("number", match[0], start)

    def _ticked(self, start: int) -> None:
        match = TICKED.match(self._text, start)
        if match is None:
            raise self._break(start, start + 1, "this backtick is not closed on its line")
        if len(match[1]) != len(match[3]) or not NAME.fullmatch(match[2]):
            raise self._break(start, match.end(), "backticks enclose one name, as many on its left as on its right")
        self._at = match.end()
        self._add("name", match[2], start, ticks=len(match[1]))

    def _operator(self, operator: str, start: int) -> None:
        self._at += len(operator) if self._text.startswith(operator, start) else 1
        if operator in BETTER:
            raise self._break(start, self._at, f"`{operator}` is no operator here; {BETTER[operator]}")
        token = self._add("operator", operator, start)
        if operator in CLOSING:
            if len(self._brackets) >= DEEPEST:
                raise self._break(start, self._at, f"brackets are nested more than {DEEPEST} deep")
            self._brackets.append(token)
        elif operator in CLOSING.values():
            self._close(operator, start)

    def _close(self, operator: str, start: int) -> None:
        if not self._brackets:
            raise self._break(start, self._at, f"this `{operator}` closes nothing")
        opened = self._brackets.pop()
        if CLOSING[opened.text] != operator:
            line, _ = self._source.place(opened.span.start)
            raise self._break(
                start,
                self._at,
                f"`{operator}` does not close the `{opened.text}` of line {line}; `{CLOSING[opened.text]}` would",
            )

    # ------------------------------------------------------------ texts

    def _string(self, start: int, depth: int = 0) -> None:
        parts: list[TextPart] = []
        letters: list[str] = []
        self._at += 1
        while True:
            letter = self._text[self._at : self._at + 1]
            if letter in ("", "\n"):
                raise self._break(start, self._at, "this text is not closed on its line; end it with a quote")
            if letter == '"':
                break
            if letter == "\\":
                letters.append(self._escape())
            elif letter == "$" and self._text.startswith("${", self._at):
                if letters:
                    parts.append("".join(letters))
                    letters = []
                parts.append(self._inset(depth))
            else:
                letters.append(letter)
                self._at += 1
        self._at += 1
        if letters:
            parts.append("".join(letters))
        self._add("text", "", start, parts=tuple(parts))

    def _escape(self) -> str:
        start, letter = self._at, self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in ESCAPES:
            return ESCAPES[letter]
        if letter == "u" and (match := HEX.match(self._text, self._at)):
            self._at = match.end()
            code = int(match[0], 16)
            if 0xD800 <= code < 0xE000 or code == 0:
                raise self._break(start, self._at, f"\\u{match[0]} is no letter that can be stored")
            return chr(code)
        raise self._break(start, self._at, r"a backslash stands before n, t, r, \", \\, /, $ or uXXXX only")

    def _inset(self, depth: int) -> tuple[Token, ...]:
        """The tokens of ${…}, up to the bracket that closes it."""
        start = self._at
        if depth >= DEEPEST or len(self._brackets) >= DEEPEST:
            raise self._break(start, start + 2, f"texts and brackets are nested more than {DEEPEST} deep")
        line_end = self._text.find("\n", start)
        if self._text.find("}", start, line_end if line_end >= 0 else len(self._text)) < 0:
            raise self._break(start, start + 2, "this `${` is not closed on its line; end it with `}`")
        self._at += 2
        outer, self._tokens = self._tokens, []
        brackets, self._brackets = self._brackets, []
        while True:
            letter = self._text[self._at : self._at + 1]
            if letter in ("", "\n"):
                raise self._break(
                    start, min(self._at, start + 2), "this `${` is not closed on its line; end it with `}`"
                )
            if letter in " \t\r　":
                self._at += 1
            elif letter == "}" and not self._brackets:
                break
            elif letter == '"':
                self._string(self._at, depth + 1)
            else:
                self._token()
        self._add("end", "", self._at)
        self._at += 1
        inner, self._tokens, self._brackets = self._tokens, outer, brackets
        return tuple(inner)
