"""The demo: a checkout waits for its payment, its worker is killed, and it goes on in another process.

Runs by itself in a fresh temporary folder, on SQLite, in a few seconds. Exits with 1 where anything is not as it
should be.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import bide

FOLDER = Path(__file__).parent
CHECKOUT = FOLDER / "checkout.py"

ORDER = {"order": 1001}
PAYMENT = {"amount": 49, "currency": "EUR"}
EXPECTED = {"order": 1001, "paid": PAYMENT}
PATIENCE = 30.0  # seconds that anything may take; on an idle machine the whole demo takes two or three

IN_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class NotAsItShouldBe(Exception):
    """Something that the demo promises did not happen."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-demo-") as folder:
        os.environ["BIDE_STORE"] = f"sqlite:///{folder}/shop.db"
        try:
            asyncio.run(tell(Path(folder)))
        except (NotAsItShouldBe, bide.BideError) as error:
            print(f"\nThe demo failed: {error}", file=sys.stderr)
            return 1
    return 0


async def tell(folder: Path) -> None:
    from checkout import app  # type: ignore[import-not-found, unused-ignore]  # this script's own folder is on its path

    client: bide.Client = app.client()
    say(colour("bide: a checkout waits for its payment, and its worker is killed meanwhile", "1"))
    say()
    try:
        run = await client.start("checkout", ORDER)
        step("start", f"Order 1001 is placed. Its run is on disk: {run.id}")
        with worker(folder, "first") as first:
            await parked(client, run.id, first, folder / "first.log")
            step("park", f"Worker {first.pid} ran the first step. The run waits for the payment, at most an hour.")
            kill(first)
        check((await client.get(run.id)).status == "waiting", "the run should still be waiting")
        step("kill -9", f"Worker {first.pid} is dead. The run is not: a parked run is rows, not a process.", "31")
        with worker(folder, "second") as second:
            step("restart", f"Worker {second.pid} is started. It has never heard of this run.")
            await pay(client, run.id)
            result = await client.result(run.id, timeout=PATIENCE)
            check(result == EXPECTED, f"the result should be {EXPECTED}, it is {result}")
            step("finish", f"Worker {second.pid} ran the second step. Result: {result}", "32")
        await show_ledger(client, run.id)
    finally:
        await app.close()


async def pay(client: bide.Client, run_id: str) -> None:
    """Deliver the payment as a payment provider does: again, if it is not sure that the first try got through."""
    receipt = await client.signal(run_id, "payment_confirmed", PAYMENT, dedup_key="evt-7")
    check(receipt.outcome == "woke", f"the payment should wake the run, its receipt says {receipt.outcome}")
    step("signal", f"The payment comes in as event evt-7. Receipt: {colour(receipt.outcome, '1')}")
    receipt = await client.signal(run_id, "payment_confirmed", PAYMENT, dedup_key="evt-7")
    check(receipt.outcome == "duplicate", f"the repeat should be a duplicate, its receipt says {receipt.outcome}")
    step("signal", f"The provider sends evt-7 again.    Receipt: {colour(receipt.outcome, '1')}, and nothing happens.")


async def show_ledger(client: bide.Client, run_id: str) -> None:
    entries = await client.ledger(run_id)
    say()
    say(colour("What the ledger of this run says (UTC)", "1"))
    say()
    for entry in entries:
        say(f"  {colour(f'{entry.at:%H:%M:%S.%f}'[:-3], '2')}  {in_words(entry)}")
    workers = {entry.data["worker"] for entry in entries if "worker" in entry.data}
    check(len(workers) == 2, f"two workers should have had the run, the ledger names {len(workers)}")
    payments = [entry for entry in entries if entry.name == "signal_received"]
    check(len(payments) == 1, f"one payment should have been let in, the ledger has {len(payments)}")
    verify(run_id, len(entries))


def verify(run_id: str, entries: int) -> None:
    """Ask as anybody can: a command reads the chain again, and computes every hash anew."""
    command = subprocess.run(bide_command("ledger", "verify", run_id), capture_output=True, text=True, check=False)
    check(command.returncode == 0, f"the ledger should verify, yet {command.stderr or command.stdout}")
    say()
    say(f"The chain of {entries} entries verifies: nothing was changed, nothing was removed.")


def in_words(entry: bide.LedgerEntry) -> str:
    data = entry.data
    match entry.name:
        case "run_started":
            return f"the run was started: {data['definition']}, version {data['version']}"
        case "run_claimed":
            return f"worker {data['worker']} took the run (claim {data['epoch']})"
        case "step_committed":
            return f"step {data['step']!r} is done, {data['next']!r} is next"
        case "await_execution_waiting":
            return f"the run waits for {' or '.join(data['names'])}"
        case "signal_received":
            return f"signal {data['signal']!r} came in"
        case "await_unit_completed":
            return f"the wait is over, by a {data['cause']}"
        case "await_resume_released":
            return f"the run goes on with {data['step']!r}"
        case "signals_consumed":
            return "the signal is used up"
        case "run_completed":
            return "the run is completed"
        case name:
            return name.replace("_", " ")


# ---------------------------------------------------------------- workers


@contextmanager
def worker(folder: Path, name: str) -> Generator[subprocess.Popen[bytes], None, None]:
    """A worker in a process of its own; it is told to stop at the end, unless it is dead by then."""
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen(bide_command("worker", str(CHECKOUT)), stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def bide_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "bide", *words]


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    check(process.wait(PATIENCE) == -signal.SIGKILL, "the worker should have died of SIGKILL")


async def parked(client: bide.Client, run_id: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the run is parked; look often, because nobody tells this process."""
    until = time.monotonic() + PATIENCE
    while (info := await client.get(run_id)).status != "waiting":
        check_alive(process, log)
        check(time.monotonic() < until, f"the run should be parked after {PATIENCE:.0f} seconds, it is {info.status}")
        await asyncio.sleep(0.02)


def check_alive(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        raise NotAsItShouldBe(f"the worker ended by itself with {process.returncode}; it said: {log.read_text()}")


# ---------------------------------------------------------------- words


def check(is_so: bool, message: str) -> None:
    if not is_so:
        raise NotAsItShouldBe(message)


def step(what: str, text: str, code: str = "36") -> None:
    say(f"  {colour(f'{what:<8}', code)}  {text}")


def say(text: str = "") -> None:
    print(text, flush=True)


def colour(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if IN_COLOUR else text


if __name__ == "__main__":
    sys.exit(main())
