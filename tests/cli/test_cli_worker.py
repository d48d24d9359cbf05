"""`worker`: real processes, real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_SECONDS, Bide


def until_exists(path: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not Path(path).exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.01)


def until_gone(pid: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid):
        assert time.monotonic() < until, f"process {pid} never ended"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_gracefully_at_a_signal(bide: Bide, number: signal.Signals) -> None:
    worker = bide.worker()
    worker.send_signal(number)
    answer = bide.finished(worker)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("stopping")


def test_a_worker_says_in_one_line_what_it_serves(bide: Bide) -> None:
    worker = bide.process("worker", "--queue", "b", "--queue", "a", "--concurrency", "3", "--json")
    assert worker.stdout is not None
    said = json.loads(worker.stdout.readline())
    [ready] = said["workers"]
    assert (said["event"], ready["queues"], ready["concurrency"], ready["app"]) == ("ready", ["a", "b"], 3, "shop")
    worker.terminate()
    assert bide.finished(worker).code == 0


def test_a_worker_finishes_the_step_it_is_in_before_it_stops(bide: Bide) -> None:
    run_id = bide("start", "slow").out.strip()
    worker = bide.worker()
    until_exists("slow-began")
    worker.terminate()
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("stopping")
    Path("slow-may-end").touch()
    assert bide.finished(worker).code == 0
    assert bide("show", run_id, "--json").json["result"] == "slow and steady"


def test_a_second_signal_ends_a_worker_at_once(bide: Bide) -> None:
    run_id = bide("start", "slow").out.strip()
    worker = bide.worker()
    until_exists("slow-began")
    worker.terminate()
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("stopping")
    worker.terminate()
    assert bide.finished(worker).code == 128 + signal.SIGTERM
    assert bide("show", run_id, "--json").json["status"] == "running"


def test_several_processes_are_ready_together_and_stop_together(bide: Bide) -> None:
    worker = bide.process("worker", "shop.py", "--processes", "2", "--json")
    assert worker.stdout is not None
    ready = json.loads(worker.stdout.readline())["workers"]
    pids = {one["pid"] for one in ready}
    assert len(pids) == 2
    assert worker.pid not in pids
    assert bide("start", "echo", "5", "--wait", "50s").out == "5\n"
    worker.terminate()
    assert bide.finished(worker).code == 0
    assert not any(is_alive(pid) for pid in pids)


def test_a_process_that_dies_is_replaced(bide: Bide) -> None:
    worker = bide.process("worker", "shop.py", "--processes", "2", "--json")
    assert worker.stdout is not None
    assert worker.stderr is not None
    first, second = (one["pid"] for one in json.loads(worker.stdout.readline())["workers"])
    os.kill(first, signal.SIGKILL)
    assert worker.stderr.readline() == "a worker process was killed by SIGKILL; starting another in 0.5s\n"
    os.kill(second, signal.SIGKILL)
    assert "was killed by SIGKILL" in worker.stderr.readline()
    assert bide("start", "echo", "6", "--wait", "50s").out == "6\n"
    worker.send_signal(signal.SIGINT)
    assert bide.finished(worker).code == 0


def test_children_stop_when_their_parent_is_killed(bide: Bide) -> None:
    worker = bide.process("worker", "shop.py", "--processes", "2", "--json")
    assert worker.stdout is not None
    pids = [one["pid"] for one in json.loads(worker.stdout.readline())["workers"]]
    worker.kill()
    try:
        for pid in pids:
            until_gone(pid)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_that_cannot_open_its_store_says_so_once(bide: Bide, processes: str) -> None:
    place = bide.folder / "nowhere" / "shop.db"
    answer = bide.finished(bide.process("worker", "shop.py", "--processes", processes, "--store", f"sqlite:///{place}"))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["nowhere.py"], ["shop:nothing"], ["shop.py", "--processes", "0"], ["shop.py", "--concurrency", "x"], ["a", "b"]],
)
def test_a_worker_refuses_what_it_cannot_read(bide: Bide, arguments: list[str]) -> None:
    answer = bide("worker", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")


def test_a_worker_without_an_app_says_how_to_name_one(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIDE_APP")
    answer = bide("worker", "--json")
    assert (answer.code, answer.error["code"]) == (2, "app_missing")
