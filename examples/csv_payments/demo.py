"""The demo of csv-payments: a broker, a provider in a process of its own, an engine, and a progress bar.

    python examples/csv_payments/demo.py [ROWS] [--json]

The broker is the one that BIDE_TEST_KAFKA names, else Apache Kafka from its Maven artifacts, else librdkafka's mock
cluster; it says which. Exits with 1 where anything is not as it should be.
"""

from __future__ import annotations

import asyncio
import csv
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from tests.support.kafka import broker  # noqa: E402  # the same brokers as in the tests


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    rows, as_json = int(arguments[0]) if arguments else 10_000, "--json" in sys.argv
    say: Callable[[str], None] = (lambda text: None) if as_json else print
    logging.getLogger("bide.kafka").setLevel(logging.ERROR)  # a broker that has just come up lets its clients retry
    with tempfile.TemporaryDirectory(prefix="bide-payments-") as folder, broker(download=True, tells=False) as kafka:
        os.environ["BIDE_KAFKA_SERVERS"] = kafka.servers
        os.environ.setdefault("BIDE_STORE", f"sqlite:///{folder}/payments.db")
        say(f"The broker is {kafka.name}, at {kafka.servers}.")
        import payments  # type: ignore[import-not-found, unused-ignore]  # its folder is on the path, see above

        for topic in (payments.REQUESTS, payments.REPLIES, f"{payments.REPLIES}.dead-letters"):
            kafka.create(topic, 4)
        path = Path(folder) / "payments.csv"
        write_rows(path, rows)
        say(f"{rows:,} payments go to a provider in another process.")
        say("It answers 1 of 20 a second late, 1 of 10 twice, and rejects 1 of 12.")
        provider = subprocess.Popen([sys.executable, str(HERE / "provider.py")])
        try:
            report, seconds, dropped = asyncio.run(pay(payments, str(path)))
        finally:
            provider.terminate()
            provider.wait(20)
    is_right = report["paid"] + report["rejected"] == rows
    if as_json:
        print(
            json.dumps({"broker": kafka.name, "payments": rows, "seconds": seconds, "per_s": rows / seconds, **report})
        )
        return 0 if is_right else 1
    print(f"{report['paid']:,} were paid, {report['total'] / 100:,.2f} in all; {report['rejected']:,} were rejected.")
    print(f"{dropped:,} answers came a second time, and changed nothing.")
    print(f"That took {seconds:.1f} s: {rows / seconds:,.0f} payments a second.")
    if not is_right:
        print(f"This is wrong: {rows:,} payments were in the file.")
    return 0 if is_right else 1


def write_rows(path: Path, rows: int) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "recipient", "amount"])
        writer.writerows([f"pay-{row}", f"Recipient {row}", 1000 + row] for row in range(rows))


async def pay(payments: Any, path: str) -> tuple[dict[str, Any], float, int]:
    """The report, how long it took, and how many answers were repeated."""
    async with payments.app.engine():
        client = payments.app.client()
        began = time.monotonic()
        run = await client.start(payments.payments, path)
        await watch(client, run.id)
        report = await run.result(timeout="5m")
        seconds = time.monotonic() - began
        counts = (await payments.app.runtime()).figures.counts
        return report, seconds, counts[("bide_await_completion_dropped_total", "duplicate")]


async def watch(client: Any, run_id: str) -> None:
    """A bar that follows the counts of the run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=not sys.stdout.isatty()) as bar:
        sent = bar.add_task("sent    ", total=None)
        answered = bar.add_task("answered", total=None)
        ended = bar.add_task("ended   ", total=None)
        while True:
            now = await client.progress(run_id)
            total = now.expected if now.is_filled else None
            bar.update(sent, completed=now.dispatched, total=total)
            bar.update(answered, completed=now.answered, total=total)
            bar.update(ended, completed=now.done + now.rejected, total=total)
            if (await client.get(run_id)).status in ("completed", "failed", "cancelled"):
                return
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
