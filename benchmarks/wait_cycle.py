"""Wait cycles per second: bide and DBOS Transact in turns on the same server, next to the raw limit of the database."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
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
BIDE_SETTINGS = "500:500,1000:1000,2000:1000"
DBOS_CONCURRENCIES: dict[Kind, str] = {"sqlite": "2,4", "postgres": "8,16"}
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
        report.figures.append(Figure(f"{name}, signalled at once", found["per_s"], "/s"))
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
    settings = f"{bide[0]['concurrency']}:{bide[0]['batch']}"
    parked = _run_bide(await places.store(kind), scale.cycles, settings, "--parked-first")
    raw = await _run_raw(places, kind, scale.raw_seconds)
    found = _found(bide, dbos)
    return {
        **found,
        "per_s_parked_first": parked["per_s"],
        "ratio_to_raw": round(found["per_s"] / raw.per_s_grouped, 3),
        "raw": {name: round(value, 1) for name, value in asdict(raw).items()},
    }


async def _in_turns(
    places: Places, kind: Kind, scale: Scale, dbos_python: Path | None, style: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """In turns, so that whatever else the machine does hits both; the first turn chooses each one's best setting."""
    bide: list[dict[str, Any]] = []
    dbos: list[dict[str, Any]] = []
    for _ in range(scale.rounds):
        settings = f"{bide[0]['concurrency']}:{bide[0]['batch']}" if bide else BIDE_SETTINGS
        bide.append(_run_bide(await places.store(kind), scale.cycles, settings, "--style", style))
        if dbos_python is not None:
            concurrency = str(dbos[0]["concurrency"]) if dbos else DBOS_CONCURRENCIES[kind]
            dbos.append(_run_dbos(dbos_python, await _dbos_place(places, kind), scale.dbos_cycles, concurrency))
    return bide, dbos


def _found(bide: list[dict[str, Any]], dbos: list[dict[str, Any]]) -> dict[str, Any]:
    per_s = median(each["per_s"] for each in bide)
    dbos_per_s = median(each["per_s"] for each in dbos) if dbos else None
    return {
        "per_s": per_s,
        "cpu_us": median(each["cpu_us"] for each in bide),
        "ratio_to_dbos": round(per_s / dbos_per_s, 1) if dbos_per_s else None,
        "concurrency": bide[0]["concurrency"],
        "batch": bide[0]["batch"],
        "dbos": {"per_s": dbos_per_s, "concurrency": dbos[0]["concurrency"] if dbos else None},
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
    figures = [Figure(f"{name}: wait cycles, signalled at once", found["per_s"], "/s")]
    if found["ratio_to_dbos"] is not None:
        figures += [
            Figure(f"{name}: wait cycles of DBOS Transact", found["dbos"]["per_s"], "/s"),
            Figure.at_least(f"{name}: times DBOS Transact", found["ratio_to_dbos"], "×", TIMES_DBOS),
        ]
    return [
        *figures,
        Figure(f"{name}: wait cycles, signalled when all are parked", found["per_s_parked_first"], "/s"),
        Figure(f"{name}: raw limit, grouped commits", raw["per_s_grouped"], "/s"),
        Figure(f"{name}: raw limit, single commits", raw["per_s_single"], "/s"),
        Figure(f"{name}: part of the raw limit", found["ratio_to_raw"], "×"),
    ]
