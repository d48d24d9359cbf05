"""SQLite files for tests: copies of one that has all tables, in memory where the system has a place for that.

Making the tables takes longer than most tests do, and so does waiting for the disk. No test that uses these survives a
crash of the machine; a test about durability makes a file of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bide.stores.sqlite.connection import connect_to_write
from bide.stores.sqlite.schema import migrate

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1024 * 1024 * 1024  # containers may have very little of it


@contextlib.contextmanager
def made_file() -> Iterator[str]:
    """The path of a store's file that has all tables and no rows, alone in a folder that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="bide-world-", dir=quick_folder()) as folder:
        path = Path(folder) / "world.db"
        path.write_bytes(_made())
        yield str(path)


@functools.cache
def quick_folder() -> Path | None:
    """Where a file need not wait for a disk; None where there is no such place."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ENOUGH_BYTES:
        return None
    return MEMORY


@functools.cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory(prefix="bide-world-") as folder:
        path = Path(folder) / "world.db"
        connection = connect_to_write(str(path), "OFF")
        migrate(connection, str(path))
        connection.close()  # the last one: what its log holds goes into the file
        assert [each.name for each in Path(folder).iterdir()] == [path.name]
        return path.read_bytes()
