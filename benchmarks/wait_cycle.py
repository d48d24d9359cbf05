"""Wait cycles per second: bide and DBOS Transact in turns on the same server, next to the raw limit of the database."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import STORES, Figure, Report
from benchmarks.peers import environment
from benchmarks.places import Kind, Places
from benchmarks.raw import RawResult, raw_postgres, raw_sqlite
from benchmarks.scale import Scale

TIMES_DBOS = 40  # the least that is asked of bide
WORKFLOW_TIMES_DBOS = 30  # and of its workflows, which replay
LONGEST_SECONDS = 300
PARKED_FIRST = "--parked-first"
BIDE_SETTINGS = ("1000:1000", "2000:1000", "4000:500")  # concurrency and batch
DBOS_CONCURRENCIES: dict[Kind, tuple[str, ...]] = {"sqlite": ("2", "4"), "postgres": ("8", "16")}
DBOS_SCRIPT = Path(__file__).parent / "peers" / "dbos_cycle.py"


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    dbos = _dbos_python() if peers else None
    report = Report()
    for kind in places.kinds:
        found = await _measure_store(places, kind, scale, dbos)
        report.results.setdefault("wait_cycle", {}).setdefault("machine", {})[kind] = found
        report.figures += _figures(kind, found)
    return report


async def measure_workflow(places: Places, scale: Scale, peers: bool) -> Report:
    dbos = _dbos_python() if peers else None
    report = Report()
    for kind in places.kinds:
        bide, other = await _in_turns(places, kind, scale, dbos, "workflow")
        found = _found(bide, other)
        report.results.setdefault("wait_cycle", {}).setdefault("workflow", {})[kind] = found
        name = f"{STORES[kind]}: wait cycles of workflows"
        report.figures.append(Figure(name, found["per_s"], "/s"))
        if found["ratio_to_dbos"] is not None:
            report.figures.append(_ratio(f"{name}, times DBOS Transact", kind, found["ratio_to_dbos"]))
    return report


def _ratio(name: str, kind: Kind, ratio: float) -> Figure:
    """On PostgreSQL so much is asked; on SQLite it is only told."""
    if kind == "sqlite":
        return Figure(name, ratio, "×")
    return Figure.at_least(name, ratio, "×", WORKFLOW_TIMES_DBOS)


def _dbos_python() -> Path | None:
    try:
        return environment.dbos_python()
    except environment.PeerUnavailable as reason:
        print(f"without DBOS Transact, so the ratios to it are missing: {reason}", file=sys.stderr)
        return None


async def _measure_store(places: Places, kind: Kind, scale: Scale, dbos_python: Path | None) -> dict[str, Any]:
    bide, dbos = await _in_turns(places, kind, scale, dbos_python, "machine")
    settings = f"{bide['concurrency']}:{bide['batch']}"
    at_once = _run_bide(await places.store(kind), scale.cycles, settings)
    raw = await _run_raw(places, kind, scale.raw_seconds)
    found = _found(bide, dbos)
    return {
        **found,
        "per_s_at_once": at_once["per_s"],
        "ratio_to_raw": round(found["per_s"] / raw.per_s_grouped, 3),
        "raw": {name: round(value, 1) for name, value in asdict(raw).items()},
    }


async def _in_turns(
    places: Places, kind: Kind, scale: Scale, dbos_python: Path | None, style: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """In turns, so that whatever else the machine does hits both; of each one the setting with the best median."""
    bide: dict[str, list[dict[str, Any]]] = {settings: [] for settings in BIDE_SETTINGS}
    dbos: dict[str, list[dict[str, Any]]] = {concurrency: [] for concurrency in DBOS_CONCURRENCIES[kind]}
    for _ in range(scale.rounds):
        for settings, found in bide.items():
            how = (PARKED_FIRST, "--style", style)  # as the peer's driver, which sends to those that wait
            found.append(_run_bide(await places.store(kind), scale.cycles, settings, *how))
        for concurrency, found in dbos.items() if dbos_python is not None else ():
            assert dbos_python is not None
            found.append(_run_dbos(dbos_python, await _dbos_place(places, kind), scale.dbos_cycles, concurrency))
    return _best(bide.values()), _best(dbos.values()) if dbos_python is not None else None


def _best(tried: Iterable[list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures of the setting that was quickest in the median of its turns."""
    medians = (
        {**found[0], **{name: median(each[name] for each in found) for name in ("per_s", "cpu_us") if name in found[0]}}
        for found in tried
    )
    return max(medians, key=lambda figures: float(figures["per_s"]))


def _found(bide: dict[str, Any], dbos: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "per_s": bide["per_s"],
        "cpu_us": bide["cpu_us"],
        "ratio_to_dbos": round(bide["per_s"] / dbos["per_s"], 1) if dbos is not None else None,
        "concurrency": bide["concurrency"],
        "batch": bide["batch"],
        "dbos": {name: dbos[name] if dbos is not None else None for name in ("per_s", "concurrency")},
    }


def _run_bide(store: str, cycles: int, settings: str, *options: str) -> dict[str, Any]:
    return _json_line([sys.executable, "-m", "benchmarks.bide_cycle", store, str(cycles), settings, *options])


def _run_dbos(python: Path, database: str, cycles: int, concurrency: str) -> dict[str, Any]:
    return _json_line([str(python), str(DBOS_SCRIPT), database, str(cycles), concurrency])


def _json_line(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _dbos_place(places: Places, kind: Kind) -> str:
    return str(places.file()) if kind == "sqlite" else await places.database()


async def _run_raw(places: Places, kind: Kind, seconds: float) -> RawResult:
    if kind == "sqlite":
        return await asyncio.to_thread(raw_sqlite, places.file(), seconds)
    return await raw_postgres(await places.database(), seconds)


def _figures(kind: Kind, found: dict[str, Any]) -> list[Figure]:
    name, raw = STORES[kind], found["raw"]
    figures = [Figure(f"{name}: wait cycles", found["per_s"], "/s")]
    if found["ratio_to_dbos"] is not None:
        figures += [
            Figure(f"{name}: wait cycles of DBOS Transact", found["dbos"]["per_s"], "/s"),
            Figure.at_least(f"{name}: times DBOS Transact", found["ratio_to_dbos"], "×", TIMES_DBOS),
        ]
    return [
        *figures,
        Figure(f"{name}: wait cycles, signalled before they are parked", found["per_s_at_once"], "/s"),
        Figure(f"{name}: raw limit, grouped commits", raw["per_s_grouped"], "/s"),
        Figure(f"{name}: raw limit, single commits", raw["per_s_single"], "/s"),
        Figure(f"{name}: part of the raw limit", found["ratio_to_raw"], "×"),
    ]
