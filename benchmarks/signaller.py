"""The other process of the wake latency: signals the runs whose ids it reads, one to a line.

python -m benchmarks.signaller STORE
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import bide
from bide.cli.quickly import run_quickly

READY = b"ready\n"


async def send(client: bide.Client, run_id: str) -> None:
    """Signal with the moment of sending, by the clock that all processes of this machine share."""
    await client.signal(run_id, "wake", {"sent_ns": time.time_ns()})


async def serve(store: str) -> None:
    app = bide.App("bench", store=store)
    await app.runtime()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        await send(app.client(), line.strip())
    await app.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Signal the runs whose ids come in on standard input.")
    parser.add_argument("store", help="the URL of the store")
    run_quickly(serve(parser.parse_args().store))
