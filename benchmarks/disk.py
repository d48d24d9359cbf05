"""What the disk alone does: one page written and made durable, again and again. No commit is quicker, or steadier."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import quantiles

from benchmarks.figures import Figure, Report
from benchmarks.places import Places
from benchmarks.scale import Scale

PAGE = b"x" * 4096


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    took = await asyncio.to_thread(_syncs, places.file(), 4 * scale.raw_seconds)
    cuts = quantiles(took, n=1000, method="inclusive")
    found = {"p50_ms": cuts[499], "p99_ms": cuts[989], "p999_ms": cuts[998], "longest_ms": max(took)}
    report.results["disk"] = {name: round(value, 2) for name, value in found.items()}
    report.figures += [
        Figure(f"the disk: one page made durable, {name.removesuffix('_ms')}", round(value, 2), "ms")
        for name, value in found.items()
    ]
    return report


def _syncs(path: Path, seconds: float) -> list[float]:
    """How many milliseconds each took."""
    took, end = [], time.perf_counter() + seconds
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while time.perf_counter() < end:
            os.pwrite(file, PAGE, 0)
            began = time.perf_counter()
            os.fsync(file)
            took.append((time.perf_counter() - began) * 1e3)
    finally:
        os.close(file)
    return took
