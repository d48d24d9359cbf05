"""One layout for every file: four spaces per block, one space between words, at most one empty line (`bide format`)."""

from __future__ import annotations

from typing import Final

from bide.authoring.language.parser import parse
from bide.authoring.language.source import Source, Span
from bide.authoring.language.tokens import CLOSING, Token, tokenise

INDENT: Final = "    "
TIGHT_AFTER: Final = ("(", "[", "{", ".")
TIGHT_BEFORE: Final = (")", "]", "}", ",", ":", ".")


def format_file(text: str, name: str = "machine file") -> str:
    """The text in bide's own layout; what it says, its comments too, stays. Raises `LanguageError`.

    >>> print(format_file('machine  pay\\n  implements\\n    wait for money // soon\\n'), end="")
    machine pay
        implements
            wait for money  // soon
    """
    parse(text, name)
    source = Source(text, name)
    found = tokenise(source)
    return _Printer(source, found.tokens, found.comments).print()


class _Printer:
    def __init__(self, source: Source, tokens: list[Token], comments: list[Span]) -> None:
        self._source = source
        self._items: list[Token | Span] = sorted(
            (*tokens, *comments),
            key=lambda item: (item.span if isinstance(item, Token) else item, isinstance(item, Span)),
        )
        self._lines: list[str] = []
        self._level = 0
        self._brackets: list[str] = []
        self._line: list[Token] = []
        self._comment = ""
        self._line_no = 0

    def print(self) -> str:
        waiting: list[tuple[int, str]] = []  # comments on lines of their own, until the level of what follows is known
        for item in self._items:
            if isinstance(item, Token) and item.kind in ("indent", "dedent", "end"):
                self._level += {"indent": 1, "dedent": -1}.get(item.kind, 0)
                continue
            line_no, _ = self._source.place(item.span.start if isinstance(item, Token) else item.start)
            if isinstance(item, Span):
                comment = self._source.text[item.start : item.end].rstrip()
                if self._line and line_no == self._line_no:
                    self._comment = comment
                else:
                    self._flush()
                    waiting.append((line_no, comment))
                continue
            if item.kind == "newline":
                self._flush()
                continue
            if self._line and line_no != self._line_no:
                self._flush()
            if not self._line:
                self._place_comments(waiting)
                self._gap(line_no)
                self._begun = line_no
            self._line.append(item)
            self._line_no = self._source.place(max(item.span.start, item.span.end - 1))[0]
        self._flush()
        self._level = 0
        self._place_comments(waiting)
        return "\n".join(self._lines) + "\n"

    def _place_comments(self, waiting: list[tuple[int, str]]) -> None:
        for line_no, comment in waiting:
            self._gap(line_no)
            self._lines.append(INDENT * (self._level + len(self._brackets)) + comment)
            self._last = line_no
        waiting.clear()

    _last = 0
    _begun = 0

    def _gap(self, line_no: int) -> None:
        """Keep one empty line where there were some."""
        if self._lines and line_no - self._last > 1 and not self._brackets:
            self._lines.append("")
        self._last = line_no

    def _flush(self) -> None:
        if not self._line:
            return
        first = self._line[0]
        level = self._level + len(self._brackets)
        if first.kind == "operator" and first.text in CLOSING.values():
            level -= 1
        text = INDENT * level + self._joined()
        self._lines.append(f"{text}  {self._comment}" if self._comment else text)
        for token in self._line:
            if token.kind == "operator" and token.text in CLOSING:
                self._brackets.append(token.text)
            elif token.kind == "operator" and token.text in CLOSING.values():
                self._brackets.pop()
        self._last = self._line_no
        self._line, self._comment = [], ""

    def _joined(self) -> str:
        written = ""
        for index, token in enumerate(self._line):
            before = self._line[index - 1] if index else None
            if before is not None and self._is_apart(index, before, token):
                written += " "
            raw = self._source.text[token.span.start : token.span.end]
            written += token.text if token.kind == "operator" else raw
        return written

    def _is_apart(self, index: int, before: Token, token: Token) -> bool:
        if before.kind == "operator" and before.text in TIGHT_AFTER:
            return False
        if token.kind == "operator" and token.text in TIGHT_BEFORE:
            return False
        if token.kind == "operator" and token.text in ("(", "["):
            return (
                not (before.kind == "name" or (before.kind == "operator" and before.text in (")", "]")))
                or (token.text == "[" and self._source.text[before.span.end : token.span.start] != "")
                or (token.text == "(" and not self._is_flow(index))
            )
        return not (before.kind == "operator" and before.text == "-" and self._is_sign(index - 1))

    def _is_flow(self, index: int) -> bool:
        """`flow(x)`: a bracket right behind a word is part of it."""
        before, token = self._line[index - 1], self._line[index]
        return before.span.end == token.span.start

    def _is_sign(self, index: int) -> bool:
        before = self._line[index - 1] if index else None
        return before is None or (before.kind == "operator" and before.text not in CLOSING.values())
