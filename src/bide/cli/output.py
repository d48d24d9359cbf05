"""What the verbs print: tables and colours on a terminal, plain aligned text in a pipe, JSON where it was asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bide.core.ages import relative

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STATUS_STYLES = {
    "ready": "cyan",
    "running": "blue",
    "waiting": "yellow",
    "completed": "green",
    "stopped": "bright_black",
    "failed": "red",
    "cancelled": "magenta",
    "timed_out": "magenta",
    "reserved": "cyan",
}
SHORT_VALUE = 60
GAP = "  "
BAR = 40  # characters that the bar of a progress is wide
LEAST_WIDTH = 6
_COMMAND = re.compile(r"^(?P<words>.*): (?P<command>bide .*)$")


class Cell(NamedTuple):
    text: str
    style: str = ""


class Column(NamedTuple):
    title: str
    whole: bool = False  # never shortened: what people copy


class Output:
    """Where a verb's answer goes. Notes that are no part of the answer go to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty()
        self._console: Console | None = None

    # ------------------------------------------------------------ JSON

    def value(self, value: object) -> None:
        print(to_json(value, indent=self.is_terminal))

    # ------------------------------------------------------------ words

    def line(self, text: str = "", style: str = "") -> None:
        if self.is_terminal:
            self._rich().print(self._text(text, style), soft_wrap=True)
        else:
            print(one_line(text))

    def sentence(self, text: str, bullet: str = "", style: str = "") -> None:
        """A sentence, wrapped on a terminal; a command at its end stands on a line of its own, to be copied whole."""
        if not self.is_terminal:
            print(f"{bullet}{one_line(text)}")
            return
        text = one_line(text)
        console, found = self._rich(), _COMMAND.match(text)
        indent = " " * len(bullet)
        words = self._text(f"{found['words']}:" if found else text, style)
        lines = words.wrap(console, max(20, console.width - len(bullet)))
        for at, line in enumerate(lines):
            line.rstrip()
            console.print(self._text(bullet if at == 0 else indent, style) + line, soft_wrap=True)
        if found:
            console.print(self._text(f"{indent}  {found['command']}", "cyan"), soft_wrap=True)

    def note(self, text: str) -> None:
        print(one_line(text), file=sys.stderr, flush=True)

    # ------------------------------------------------------------ tables

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        shown = [[Cell(one_line(cell.text), cell.style) for cell in row] for row in rows]
        lines = [[Cell(column.title, "dim") for column in columns], *shown]
        widths = [max(len(line[at].text) for line in lines) for at in range(len(columns))]
        if self.is_terminal:
            widths = fitting(columns, widths, self._rich().width)
        for line in lines:
            self._row(line, widths)

    def _row(self, line: Sequence[Cell], widths: Sequence[int]) -> None:
        if not self.is_terminal:
            padded = (cell.text.ljust(width) for cell, width in zip(line, widths, strict=True))
            print(GAP.join(padded).rstrip())
            return
        row = self._text("")
        for cell, width in zip(line, widths, strict=True):
            text = self._text(cell.text, cell.style)
            text.truncate(width, overflow="ellipsis", pad=True)
            row.append_text(text).append(GAP)
        row.rstrip()
        self._rich().print(row, soft_wrap=True)

    def facts(self, facts: Iterable[tuple[str, Cell]]) -> None:
        """Names and values, one a line; a value of several lines is indented under its name."""
        shown = list(facts)
        width = max((len(name) for name, _ in shown), default=0) + 2
        for name, cell in shown:
            first, *rest = cell.text.split("\n")
            for at, text in enumerate((first, *rest)):
                label = (name if at == 0 else "").ljust(width)
                if self.is_terminal:
                    self._rich().print(self._label(label).append(visible(text), cell.style), soft_wrap=True)
                else:
                    print(f"{label}{visible(text)}")

    def bar(self, name: str, parts: Sequence[tuple[int, str]], total: int, words: str) -> None:
        """How much of *total* there is, each part in its style, with the words under it; in a pipe one line."""
        share = f"{100 * sum(count for count, _ in parts) // max(1, total)} %"
        label = name.ljust(len(name) + 2)
        if not self.is_terminal:
            print(f"{label}{share}: {words}")
            return
        console = self._rich()
        full, empty = ("#", ".") if console.options.ascii_only else ("\u2501", "\u2500")
        drawn, filled = self._label(label), 0
        for width, (_, style) in zip(bar_widths([count for count, _ in parts], total), parts, strict=True):
            drawn.append(full * width, style)
            filled += width
        drawn.append(empty * (BAR - filled), "dim").append(f"  {share}", "bold")
        console.print(drawn, soft_wrap=True)
        console.print(self._text(" " * len(label) + words), soft_wrap=True)

    def _rich(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)
        return self._console

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(visible(text), style=style)

    def _label(self, text: str) -> Text:
        """A text to append to; what is appended is not dim, as it would be after `_text(…, "dim")`."""
        return self._text("").append(visible(text), "dim")


def bar_widths(counts: Sequence[int], total: int) -> list[int]:
    """How wide each part of a bar is. One that is there at all is seen, and only a whole is drawn full.

    >>> bar_widths([50, 1, 0], 100), bar_widths([99_999, 0], 100_000), bar_widths([3, 1], 4)
    ([20, 1, 0], [39, 0], [30, 10])
    """
    widths = [max(count * BAR // max(1, total), min(1, count)) for count in counts]
    widest = widths.index(max(widths))
    if sum(counts) == total:
        widths[widest] += BAR - sum(widths)
    elif (over := sum(widths) - (BAR - 1)) > 0:
        widths[widest] -= over
    return widths


def fitting(columns: Sequence[Column], widths: Sequence[int], space: int) -> list[int]:
    """Widths that fit into *space*: the widest of the columns that may be shortened gives way first.

    >>> fitting([Column("id", whole=True), Column("step"), Column("key")], [10, 30, 12], 40)
    [10, 14, 12]
    """
    fitted = list(widths)
    room = space - len(GAP) * (len(columns) - 1)
    while sum(fitted) > room:
        short = [at for at, column in enumerate(columns) if not column.whole and fitted[at] > LEAST_WIDTH]
        if not short:
            break  # a very narrow terminal: it wraps the lines
        fitted[max(short, key=lambda at: fitted[at])] -= 1
    return fitted


# ---------------------------------------------------------------- values as text


def status_cell(status: str, held: str | None = None) -> Cell:
    if held is not None:
        return Cell(f"held ({held})", "bold red")
    return Cell(status, STATUS_STYLES.get(status, ""))


def age_cell(moment: datetime | None, now: datetime) -> Cell:
    return Cell(relative(moment, now) if moment is not None else "-", "dim" if moment is None else "")


def value_cell(value: object) -> Cell:
    """A JSON value: on one line where it is short, indented where it is not."""
    text = to_json(value)
    return Cell(text if len(text) <= SHORT_VALUE else to_json(value, indent=True))


def to_json(value: object, *, indent: bool = False) -> str:
    """JSON with the client's own field names; times are absolute."""
    encoded = msgspec.json.encode(value)
    return (msgspec.json.format(encoded, indent=2) if indent else encoded).decode()


def fields(record: Any) -> dict[str, Any]:
    """The fields of a record of the client's, to which a verb adds its own."""
    built = msgspec.to_builtins(record)
    assert isinstance(built, dict)
    return built


def visible(text: str) -> str:
    """Make control characters visible: what came from outside must not drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "replace").decode() for c in text)


def one_line(text: str) -> str:
    return visible(" ".join(text.splitlines()))
