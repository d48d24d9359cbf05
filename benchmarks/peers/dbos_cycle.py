"""The wait cycle on DBOS Transact: start, one step, wait for a message, send it, one step, result.

Run by the Python of `environment.dbos_python()`:

    python dbos_cycle.py DATABASE CYCLES CONCURRENCY[,CONCURRENCY...]

DATABASE is a PostgreSQL URL (the database is made if missing; give it one of its own) or the path of an SQLite file
that does not exist yet. With several concurrencies each is measured over all cycles and the quickest is printed, as
one JSON line. One process, as the other side of the comparison.

The settings are those a careful user would choose, each tried against its default:

- Threads, not asyncio: DBOS calls its database from threads either way, and the hop from the loop cost 5 to 20 %.
- No ping before each use of a pooled connection: one round trip less, a few percent quicker.
- SQLite in WAL mode (1.6 times as quick as the rollback journal) with its default `synchronous=FULL`, and a poll for
  messages every 10 ms: the default of one second would be most of the latency, and 1 ms was slower than 10.
"""

import argparse
import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any

# Installed only in the peer's own environment, so for our type checker all of DBOS is Any.
from dbos import DBOS  # type: ignore[import-not-found]

TOPIC = "go"
RECV_TIMEOUT_SECONDS = 300
WARM_UP_CYCLES = 50
POOL_SIZE = 20

about_to_wait: dict[int, threading.Event] = {}
numbers = count(1)


@DBOS.step()  # type: ignore[untyped-decorator]  # DBOS is Any here, see the import
def first_step(number: int) -> int:
    return number


@DBOS.step()  # type: ignore[untyped-decorator]  # DBOS is Any here, see the import
def second_step(number: int, message: int) -> int:
    return number + message


@DBOS.workflow()  # type: ignore[untyped-decorator]  # DBOS is Any here, see the import
def wait_cycle(number: int) -> int:
    value: int = first_step(number)
    about_to_wait[number].set()
    message: int = DBOS.recv(TOPIC, timeout_seconds=RECV_TIMEOUT_SECONDS)
    result: int = second_step(value, message)
    return result


def one_cycle(number: int) -> float:
    """Drive one workflow from start to result and return the seconds it took.

    The message is sent as soon as the workflow reaches its `recv`. Asking the database whether it is parked would cost
    a query; not asking can only favour DBOS, for a message that is already there is received without a wake-up.
    """
    began = time.perf_counter()
    waiting = about_to_wait[number] = threading.Event()
    handle = DBOS.start_workflow(wait_cycle, number)
    if not waiting.wait(RECV_TIMEOUT_SECONDS):
        raise TimeoutError(f"workflow {handle.workflow_id} did not reach its wait")
    DBOS.send(handle.workflow_id, 1, TOPIC)
    result = handle.get_result()
    if result != number + 1:
        raise AssertionError(f"workflow {handle.workflow_id} returned {result}, not {number + 1}")
    del about_to_wait[number]
    return time.perf_counter() - began


def measure(cycles: int, concurrency: int) -> dict[str, Any]:
    with ThreadPoolExecutor(concurrency) as drivers:
        list(drivers.map(one_cycle, [next(numbers) for _ in range(min(cycles, WARM_UP_CYCLES))]))
        began = time.perf_counter()
        latencies = list(drivers.map(one_cycle, [next(numbers) for _ in range(cycles)]))
        seconds = time.perf_counter() - began
    return {
        "cycles": cycles,
        "seconds": round(seconds, 3),
        "per_s": round(cycles / seconds, 1),
        "latency_ms": percentiles_ms(latencies),
        "concurrency": concurrency,
    }


def percentiles_ms(latencies: list[float]) -> dict[str, float]:
    cuts = quantiles(latencies, n=100, method="inclusive") if len(latencies) > 1 else latencies * 99
    return {f"p{percent}": round(cuts[percent - 1] * 1000, 2) for percent in (50, 95, 99)}


def system_database_url(database: str) -> str:
    if database.startswith(("postgresql://", "postgres://")):
        return database
    path = Path(database).resolve()
    if path.exists():
        raise SystemExit(f"{path} exists; name a new file, so that old workflows are not measured too")
    # The journal mode is kept in the file, so DBOS's own connections find it set.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    return f"sqlite:///{path}"


def launch(database: str) -> None:
    DBOS(
        config={
            "name": "wait-cycle",
            "system_database_url": system_database_url(database),
            "sys_db_pool_size": POOL_SIZE,
            "db_engine_kwargs": {"pool_pre_ping": False},
            "notification_listener_polling_interval_sec": 0.01,
            "log_level": "CRITICAL",
            "console_log_level": "CRITICAL",
        }
    )
    DBOS.launch()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the wait cycle on DBOS Transact.")
    parser.add_argument("database", help="a PostgreSQL URL, or the path of a new SQLite file")
    parser.add_argument("cycles", type=int)
    parser.add_argument("concurrency", help="one number, or several with commas: the quickest is printed")
    arguments = parser.parse_args()
    launch(arguments.database)
    tried = [measure(arguments.cycles, int(each)) for each in arguments.concurrency.split(",")]
    print(json.dumps(max(tried, key=lambda figures: float(figures["per_s"]))), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
