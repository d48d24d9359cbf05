"""A machine file as it was written, and what is wrong with it: places, problems, and how they are shown (L6)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple

MOST_BEFORE = 100
MOST_SHOWN = 160

Severity = Literal["error", "warning"]


class Span(NamedTuple):
    """A piece of the text, by offsets."""

    start: int
    end: int


class Source:
    """The text of one file, with its lines."""

    def __init__(self, text: str, name: str = "machine file") -> None:
        self.text = text
        self.name = name
        self._starts = [0]
        self._starts += [found.end() for found in re.finditer("\n", text)]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where, and what to do about it."""

    file: str
    line: int
    column: int
    length: int
    message: str
    text: str  # of the line
    severity: Severity = "error"

    def __str__(self) -> str:
        said = "" if self.severity == "error" else "warning: "
        head = f"{self.file}:{self.line}:{self.column}: {said}{self.message}"
        if not self.text.strip():
            return head
        start = max(0, self.column - 1 - MOST_BEFORE)  # a very long line is shown around the mark
        shown = self.text[start : start + MOST_SHOWN].expandtabs(4)
        before = self.text[start : self.column - 1].expandtabs(4)
        marked = self.text[self.column - 1 : min(self.column - 1 + max(1, self.length), start + MOST_SHOWN)] or " "
        number = f"{self.line:>5}"
        carets = " " * _width(before) + "^" * max(1, _width(marked))
        return f"{head}\n{number} | {shown}\n      | {carets}"


def problem_at(source: Source, span: Span, message: str, severity: Severity = "error") -> Problem:
    line, column = source.place(min(span.start, len(source.text)))
    text = source.line(line)
    length = max(1, min(span.end - span.start, len(text) - column + 1))
    return Problem(source.name, line, column, length, message, text, severity)


def in_order(problems: Iterable[Problem]) -> Iterator[Problem]:
    seen = set()
    for problem in sorted(problems, key=lambda one: (one.file, one.line, one.column, one.severity)):
        key = (problem.file, problem.line, problem.column, problem.message)
        if key not in seen:
            seen.add(key)
            yield problem


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "; did you mean `x`?", or nothing where nothing is near."""
    close = get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""


def _width(text: str) -> int:
    """Columns on a terminal: letters of East Asia are twice as wide."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
