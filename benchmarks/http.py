"""Answers over HTTP: `bide serve` in a process of its own, the load from another (`http_load`), over loopback.

Throughput is what many connections get that each send their next answer when the one before was acknowledged. Latency
is measured at half the load that is asked for: requests are sent when they are due, and count from that moment, so that
a server that falls behind cannot hide it. Both are the median of several rounds: where the disk of the machine stands
still for a moment, all that is due meanwhile is late, and one such moment would be the figure of its round. So it is
where the machine itself stands still; rounds with much of that are left out (`stolen`), and all are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from statistics import mean, median

import asyncpg
import msgspec

from benchmarks.figures import STORES, Figure, Report
from benchmarks.http_app import app
from benchmarks.http_load import Found, Plan
from benchmarks.places import Kind, Places
from benchmarks.scale import Scale
from benchmarks.stolen import calmest
from bide.cli.access import make_key

LEAST_PER_S, P99_MS = 2_000, 50.0
CONNECTIONS = 256
MOST_TIMES = 3  # as many rounds as count, where the machine is never calm
STARTED_AT_ONCE = 500
PAUSE_SECONDS = 0.1
WARM_UP = 500
SECRETS = "bench:0123456789abcdef0123456789abcdef"


async def measure(places: Places, scale: Scale, peers: bool) -> Report:
    report = Report()
    for kind in places.kinds:
        found = await _answers(places, kind, scale)
        rounds = scale.http_rounds
        rate = median(calmest(found.per_s, found.stolen_at_most, rounds))
        p50, p99 = (median(calmest(each, found.stolen_at_rate, rounds)) for each in (found.p50_ms, found.p99_ms))
        theft = mean(calmest(found.stolen_at_rate, found.stolen_at_rate, rounds))
        report.results.setdefault("http", {})[kind] = {
            "per_s": round(rate),
            "rounds": rounds,
            "per_s_rounds": [round(one) for one in found.per_s],
            "per_s_stolen_percent": found.stolen_at_most,
            "connections": CONNECTIONS,
            "half_load_per_s": LEAST_PER_S // 2,
            "p50_ms": round(p50, 2),
            "p99_ms": round(p99, 2),
            "stolen_percent": round(theft, 2),
            "p99_ms_rounds": [round(one, 2) for one in found.p99_ms],
            "p99_ms_stolen_percent": found.stolen_at_rate,
            "longest_ms": round(max(found.longest_ms), 2),
            "uvloop": find_spec("uvloop") is not None,
        }
        name = f"{STORES[kind]}: POST /v1/signals/{{id}}/complete"
        report.figures += [
            Figure.at_least(name, rate, "/s", LEAST_PER_S),
            Figure(f"{name} at {LEAST_PER_S // 2:,}/s, p50", p50, "ms"),
            Figure.at_most(f"{name} at {LEAST_PER_S // 2:,}/s, p99", p99, "ms", P99_MS),
            Figure(f"{name} at {LEAST_PER_S // 2:,}/s: taken by the host meanwhile", theft, "%"),
        ]
    return report


async def _answers(places: Places, kind: Kind, scale: Scale) -> Found:
    url, rate = await places.store(kind), LEAST_PER_S // 2
    plan = Plan(
        port=0,
        key="",
        connections=CONNECTIONS,
        warm_up=WARM_UP,
        rounds=scale.http_rounds,
        most=MOST_TIMES * scale.http_rounds,
        answers=scale.answers,
        rate=rate,
        paced=scale.http_seconds * rate,
    )
    key = await _park(url, plan.parked)
    if kind == "postgres":
        await _tidy(url)
    async with _served(url) as port:
        return await _loaded(msgspec.structs.replace(plan, port=port, key=key))


async def _loaded(plan: Plan) -> Found:
    arguments = (sys.executable, "-m", "benchmarks.http_load", msgspec.json.encode(plan).decode())
    loading = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    said, _ = await loading.communicate()
    return msgspec.json.decode(said, type=Found)


async def _park(url: str, count: int) -> str:
    """Park so many runs, each on a signal id of its own; a key that may answer them."""
    app.configure(store=url)
    async with app.engine():
        client, runtime = app.client(), await app.runtime()
        for first in range(0, count, STARTED_AT_ONCE):
            some = range(first, min(first + STARTED_AT_ONCE, count))
            await asyncio.gather(*(client.start("approval", number) for number in some))
        while (await runtime.store.count_runs(None)).get("waiting", 0) < count:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(PAUSE_SECONDS)
        text, _ = await make_key(runtime, "default", ("signals:send",))
    await app.close()
    return text


async def _tidy(url: str) -> None:
    """As after any bulk load: else the server's own vacuum of all that was just written falls into the measurement.

    The checkpoint makes it a server that has been in use: it writes its log into old segments. A new one fills each
    segment with zeros first, 16 MiB, and all commits wait for that: 50 ms, once in every seven seconds of this load.
    """
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _served(url: str) -> AsyncIterator[int]:
    """The port of a `bide serve` on the store."""
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bide", "serve", "benchmarks.http_app:app", "--store", url, "--port", "0", "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BIDE_RESUME_SECRETS": SECRETS},
    )
    assert serving.stdout is not None
    try:
        said = json.loads(await serving.stdout.readline())
        yield int(said["url"].rpartition(":")[2])
    finally:
        serving.terminate()
        await serving.wait()
