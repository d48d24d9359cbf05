"""What a parked run costs: bytes on disk with its ledger, and memory of the process, which should be none."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import asyncpg

from benchmarks.figures import STORES, Figure, Report
from benchmarks.places import Kind, Places
from benchmarks.programs import cycle_app, park_by_engine
from benchmarks.scale import Scale

MOST_KIB_ON_DISK = 1.5
MOST_MIB_OF_MEMORY = 1.0
KIB, MIB = 1024, 1024 * 1024

RELATION_SIZES = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
  FROM pg_class
 WHERE relnamespace = to_regnamespace('bide')
   AND relkind = 'r'
"""


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        url = await places.store(kind)
        # Runs in progress leave room behind that the next ones use: what a parked run takes is what more of them add.
        app = cycle_app(url)
        async with app.engine() as engine:
            await park_by_engine(engine, app.client(), "cycle", 2 * scale.weighed)
        before = await _bytes_on_disk(kind, url)
        async with app.engine() as engine:
            await park_by_engine(
                engine, app.client(), "cycle", scale.weighed
            )  # what the process keeps for good is there now
            memory = _resident_bytes()
            await park_by_engine(engine, app.client(), "cycle", scale.weighed)
            grown = _resident_bytes() - memory
        per_run = (await _bytes_on_disk(kind, url) - before) / (2 * scale.weighed)
        report.results.setdefault("parked", {})[kind] = {
            "bytes_per_run": round(per_run),
            "memory_growth_bytes": grown,
            "runs": scale.weighed,
        }
        name = STORES[kind]
        more = f"{name}: memory of {scale.weighed:,} more parked runs"
        report.figures += [
            Figure.at_most(f"{name}: a parked run on disk with its ledger", per_run / KIB, "KiB", MOST_KIB_ON_DISK),
            Figure.at_most(more, grown / MIB, "MiB", MOST_MIB_OF_MEMORY),
        ]
    return report


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _bytes_on_disk(kind: Kind, url: str) -> int:
    """Of a closed store: the SQLite file after its checkpoint, the PostgreSQL tables with indexes after a vacuum."""
    if kind == "sqlite":
        return await asyncio.to_thread(_size, Path(url.removeprefix("sqlite:///")))
    connection = await asyncpg.connect(url)
    try:
        for _ in range(2):  # pages of an index that the first one empties are free after the second
            await connection.execute("VACUUM")
        size: int = await connection.fetchval(RELATION_SIZES)
        return size
    finally:
        await connection.close()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
