"""What the benchmark measured: as a table, as a file and as a picture."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = ("figure", "value", "unit", "target", "")
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True)
class Figure:
    """One measured number. `ok` says whether it meets its target and is None where there is no target."""

    name: str
    value: float
    unit: str
    target: str = ""
    ok: bool | None = None

    @classmethod
    def at_least(cls, name: str, value: float, unit: str, target: float) -> "Figure":
        return cls(name, value, unit, f"≥ {readable(target)}", value >= target)

    @classmethod
    def at_most(cls, name: str, value: float, unit: str, target: float) -> "Figure":
        return cls(name, value, unit, f"≤ {readable(target)}", value <= target)


@dataclass
class Report:
    """What one part of the benchmark found: figures for people, and the same and more for `results.json`."""

    figures: list[Figure] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)


def readable(value: float) -> str:
    """Three significant digits at least, and no more decimals than they need: 19,174, 47.8, 0.0321."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_table(figures: Sequence[Figure], console: Console | None = None) -> None:
    """Print *figures* as a table on a terminal, and as aligned plain text in a pipe."""
    console = console or Console()
    if console.is_terminal:
        console.print(_table(figures))
    else:
        print(_plain(figures), file=console.file)


def _table(figures: Sequence[Figure]) -> Table:
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="right" if column == "value" else "left")
    styles = {True: "green", False: "bold red", None: ""}
    for figure in figures:
        table.add_row(*_cells(figure), style=styles[figure.ok])
    return table


def _plain(figures: Sequence[Figure]) -> str:
    rows = [COLUMNS, *(_cells(figure) for figure in figures)]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for name, value, *rest in rows:
        cells = [name.ljust(widths[0]), value.rjust(widths[1])]
        cells += [cell.ljust(width) for cell, width in zip(rest, widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, str, str, str, str]:
    verdict = {True: "ok", False: "missed", None: ""}[figure.ok]
    return figure.name, readable(figure.value), figure.unit, figure.target, verdict


def write_results(path: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Merge *results* into the JSON file at *path*, key by key at every depth, and return the whole.

    A part of the benchmark run alone thus renews its own figures and keeps the others.
    """
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    merged = merge(known, results)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(merged, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return merged


def merge(known: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """*known* with what *new* says; where both have an object, these are merged in turn."""
    merged = dict(known)
    for key, value in new.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


# The bars of each store, in order: where the number stands in its results, the label and the colour.
BARS = (
    ("", "per_s", "bide", "#1f6f8b"),
    ("dbos", "per_s", "DBOS\nTransact", "#d98e04"),
    ("raw", "per_s_single", "raw,\nsingle commits", "#b8bcc2"),
    ("raw", "per_s_grouped", "raw,\ngroup commit", "#7d838c"),
)


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw the wait cycles per second of every system on each store as a PNG at *path*.

    Reads `results["wait_cycle"]["machine"][store]`, with *store* `sqlite` or `postgres`: `per_s` is bide's, those of
    the others are in `dbos` and `raw`. What was not measured has no bar.
    """
    import matplotlib  # takes most of a second to import

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cycles: Mapping[str, Any] = results.get("wait_cycle", {}).get("machine", {})
    stores = [store for store in STORES if store in cycles]
    figure, panels = pyplot.subplots(1, max(len(stores), 1), figsize=(10, 4.2), sharey=True, squeeze=False)
    for axes, store in zip(panels[0], stores, strict=False):
        bars = list(_measured(cycles[store]))
        drawn = axes.bar(range(len(bars)), [value for _, value, _ in bars], color=[colour for *_, colour in bars])
        axes.bar_label(drawn, labels=[readable(value) for _, value, _ in bars], padding=3, fontsize=10)
        axes.set_xticks(range(len(bars)), [label for label, *_ in bars], fontsize=9)
        axes.set_title(STORES[store])
        axes.set_yscale("log")
        axes.grid(axis="y", which="major", color="#e3e5e8")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    values = [value for store in stores for _, value, _ in _measured(cycles[store])]
    if values:  # from a whole power of ten, with room above for the labels
        panels[0][0].set_ylim(10 ** floor(log10(min(values))), max(values) * 2)
    panels[0][0].set_ylabel("wait cycles per second (log scale)")
    figure.suptitle("Start, step, wait for a signal, step, end")
    figure.tight_layout()
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


def _measured(found: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Label, value and colour of each bar that has a number."""
    for system, name, label, colour in BARS:
        value = (found.get(system, {}) if system else found).get(name)
        if value:
            yield label, float(value), colour
