"""The virtual environment in which a peer is measured.

Peers never share our environment: their requirements must not change what we are measured with.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

# The range whose documented API `dbos_cycle.py` was written against.
DBOS_REQUIREMENT = "dbos>=3.3,<4"

INSTALL_TIMEOUT_SECONDS = 600


class PeerUnavailable(Exception):
    """The peer cannot be installed here; the benchmark goes on without it."""

    def __init__(self, requirement: str, folder: Path, reason: str) -> None:
        super().__init__(requirement, folder, reason)
        self.requirement, self.folder, self.reason = requirement, folder, reason

    def __str__(self) -> str:
        return (
            f"{self.requirement} cannot be installed into {self.folder}: {self.reason}. "
            f"Check that pip reaches a package index, or set BIDE_BENCH_CACHE to a folder where the peer is installed."
        )


def dbos_python() -> Path:
    """The Python of an environment with DBOS in it, made on first use and kept.

    Raises PeerUnavailable when it cannot be made.
    """
    return ready_environment(cache_folder() / "dbos", DBOS_REQUIREMENT)


def cache_folder() -> Path:
    """`$BIDE_BENCH_CACHE`, or `~/.cache/bide-bench`."""
    named = os.environ.get("BIDE_BENCH_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "bide-bench"


def ready_environment(folder: Path, requirement: str) -> Path:
    """The Python of the environment in *folder*, which has *requirement* installed."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    # Written last and naming the requirement: an interrupted install or another range is made anew.
    if python.exists() and ready.exists() and ready.read_text() == requirement:
        return python
    try:
        venv.create(folder, clear=True, with_pip=True)
        _install(python, requirement)
        ready.write_text(requirement)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerUnavailable(requirement, folder, _reason(error)) from error
    return python


def _install(python: Path, requirement: str) -> None:
    print(f"installing {requirement} for the benchmark", file=sys.stderr)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS)


def _reason(error: Exception) -> str:
    """What went wrong in one line; for pip, the last thing it said."""
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        said: str = error.stderr if isinstance(error.stderr, str) else error.stderr.decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip()]
        if lines:
            return lines[-1].removeprefix("ERROR: ")
    return str(error)
