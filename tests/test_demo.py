"""The demo tells its story, and the story is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def run_demo(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environment,
        timeout=600,
        check=False,
    )


def test_a_run_outlives_its_worker_in_the_demo(tmp_path: Path) -> None:
    """In a pipe the story is plain text, and nothing is left behind."""
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for sentence in (
        "a parked run is rows, not a process",
        "Receipt: woke",
        "Receipt: duplicate, and nothing happens",
        "Result: {'order': 1001, 'paid': {'amount': 49, 'currency': 'EUR'}}",
        "entries verifies: nothing was changed, nothing was removed.",
    ):
        assert sentence in done.stdout
    took = re.findall(r"worker (w-\w+) took the run \(claim (\d)\)", done.stdout)
    assert [claim for _, claim in took] == ["1", "2"]
    assert took[0][0] != took[1][0], "another worker goes on"
    assert "\x1b" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_demo_says_what_went_wrong(tmp_path: Path) -> None:
    """A worker that dies before it has parked the run is not part of the story."""
    done = run_demo(tmp_path, BIDE_FAILPOINT="before:begin")
    assert done.returncode == 1
    assert "The demo failed: the worker ended by itself with -9" in done.stderr
    assert "Traceback" not in done.stderr
