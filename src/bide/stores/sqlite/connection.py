"""Reaching the file: where it may be, how connections to it are made, who may write, and what its errors mean."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bide.errors import BideError, StoreCorrupt, StoreUnavailable
from bide.stores.pages import DamagedPage

BUSY_MILLISECONDS = 10_000  # a backstop: bide's own writers queue at the lock file

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    }
)  # fmt: skip

_MOUNTS = Path("/proc/self/mountinfo")


# ---------------------------------------------------------------- the place


def check_place(path: str, *, allow_network: bool) -> None:
    """Raise `StoreUnavailable` where no store can be at *path*, with what to do about it."""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder; name a file in it, such as {os.path.join(path, 'bide.db')}")
    if not os.path.isdir(folder):
        raise StoreUnavailable(f"{path} cannot be opened: the folder {folder} does not exist; create it first")
    if allow_network:
        return
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), whose locks do not keep a SQLite file safe; "
            "use a local disk or PostgreSQL, or pass allow_network=True if you know better"
        )


def file_system(folder: str) -> str | None:
    """The type of the file system that holds *folder*, as far as the system tells."""
    try:
        return file_system_in(_MOUNTS.read_text(errors="surrogateescape"), os.path.realpath(folder))
    except OSError:
        return None


def file_system_in(mounts: str, folder: str) -> str | None:
    """The type that belongs to the longest mount point above *folder*; of equal ones the latest hides the others."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(" - ")
        if not separator:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields.split(" ")[4])
        above = point == "/" or folder == point or folder.startswith(point + "/")
        if above and (found is None or len(point) >= found[0]):
            found = len(point), rest.split(" ")[0]
    return found[1] if found else None


# ---------------------------------------------------------------- connections


def connect_to_write(path: str, synchronous: str) -> apsw.Connection:
    """The one connection that writes. Checkpoints are its owner's business, made under the lock file."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        if connection.readonly("main"):
            raise StoreUnavailable(f"{path} cannot be written; give this user the right to write it and its folder")
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreUnavailable(f"{path} cannot use a write-ahead log (got {mode}); put it on a local disk")
        connection.pragma("synchronous", synchronous)
        connection.pragma("foreign_keys", True)
        connection.wal_autocheckpoint(0)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: str) -> apsw.Connection:
    """A connection that cannot change anything. (The log's index is shared memory, so the file is opened to write.)"""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.pragma("query_only", True)
    connection.wal_autocheckpoint(0)
    return connection


def _connect(path: str, flags: int) -> apsw.Connection:
    connection = apsw.Connection(path, flags=flags)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.pragma("trusted_schema", False)
    connection.pragma("mmap_size", 0)
    return connection


# ---------------------------------------------------------------- the lock file


class LockFile:
    """The queue of the writers, across processes: SQLite's own lock is polled, and whoever polls luckily goes first.

    Correctness does not rest on it; a lock file that somebody deletes costs fairness only.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    @contextmanager
    def held(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)


# ---------------------------------------------------------------- errors


def explain(path: str, error: Exception) -> BideError | None:
    """What an error of the file or its disk means to the caller; None for an error that has nothing to do with them."""
    match error:
        case BideError():
            return error
        case DamagedPage():
            return StoreCorrupt(f"{path} has a damaged page of a ledger ({error}); restore it from a backup")
        case apsw.NotADBError():
            return StoreCorrupt(f"{path} is not a SQLite database; name another file, or restore it from a backup")
        case apsw.CorruptError():
            return StoreCorrupt(f"{path} is damaged ({error}); stop its users and restore it from a backup")
        case apsw.FullError():
            return StoreUnavailable(f"{path} cannot grow: the disk is full; free space and try again")
        case apsw.IOError():
            return StoreUnavailable(f"{path} could not be read or written ({error}); check the disk and its free space")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} was locked by another program for too long; close that one and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | PermissionError():
            return StoreUnavailable(f"{path} cannot be written; give this user the right to write it and its folder")
        case apsw.CantOpenError() | apsw.ProtocolError() | apsw.NoMemError() | OSError():
            return StoreUnavailable(f"{path} cannot be opened ({error}); check the path, its rights and the disk")
        case _:
            return None
