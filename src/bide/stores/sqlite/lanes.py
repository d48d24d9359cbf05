"""The threads of the store: one that writes, a few that read, one that looks for changes of others.

A connection never leaves its thread. Callers post what is to be done and wait for the answer, on an event loop or not.
All threads are daemons: a forgotten `close` never hangs an exit, and a commit that was acknowledged is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import apsw

from bide.errors import BideError, StoreUnavailable
from bide.stores.sqlite.connection import (
    BUSY_MILLISECONDS,
    LockFile,
    check_place,
    connect_to_read,
    connect_to_write,
    explain,
)
from bide.stores.sqlite.keys import note_keys
from bide.stores.sqlite.rows import Rows
from bide.stores.sqlite.schema import migrate
from bide.stores.sqlite.tables import Tables

log = logging.getLogger(__name__)

T = TypeVar("T")
W = TypeVar("W", bound=Callable[..., Any])

READERS = 2
LONGEST_GROUP = 256  # calls in one transaction
LOG_PAGES = 4_000  # checkpoint when the write-ahead log is this long (16 MiB)
LONG_LOG_PAGES = 16 * LOG_PAGES  # a reader kept it from being reused: wait for readers a little, and cut it
CUT_MILLISECONDS = 200


class Call(Generic[W]):
    """Something to do on a lane, and where its answer goes: to an event loop, or to a thread that blocks."""

    def __init__(self, work: W, waiter: asyncio.Future[Any] | Future[Any]) -> None:
        self.work = work
        self.waiter = waiter

    def is_wanted(self) -> bool:
        """Whether somebody still waits. From here on, a thread that waits cannot withdraw."""
        if isinstance(self.waiter, Future):
            return self.waiter.set_running_or_notify_cancel()
        return not self.waiter.cancelled()


class Answer(NamedTuple):
    waiter: asyncio.Future[Any] | Future[Any]
    result: Any
    error: Exception | None


def give(answers: Iterable[Answer]) -> None:
    """Hand out answers, waking each event loop once however many answers it gets."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        if isinstance(answer.waiter, asyncio.Future):
            by_loop.setdefault(answer.waiter.get_loop(), []).append(answer)
        else:
            _settle([answer])
    for loop, its in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, its)
        except RuntimeError:
            log.debug("an event loop was closed before its answers came")


def _settle(answers: list[Answer]) -> None:
    for waiter, result, error in answers:
        if waiter.done():
            continue  # cancelled meanwhile
        if error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(result)


class Lane(Generic[W]):
    """Threads that share a queue of calls."""

    def __init__(self, path: str, name: str, threads: int = 1) -> None:
        self.path = path
        self._calls: SimpleQueue[Call[W] | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._is_closing = False
        self._left: list[Future[None]] = [Future() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._live, args=(left,), name=f"bide {name} {path}", daemon=True)
            for left in self._left
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(self, call: Call[W]) -> None:
        with self._gate:  # nothing is posted behind the sign to stop, where nobody would answer it
            if self._is_closing:
                raise StoreUnavailable(f"{self.path} is closed; open the store again")
            self._calls.put(call)

    async def call(self, work: W) -> Any:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(Call(work, waiter))
        return await waiter

    async def close(self) -> None:
        """Finish what was posted, then end the threads."""
        with self._gate:
            if not self._is_closing:
                self._is_closing = True
                for _ in self._threads:
                    self._calls.put(None)
        for left, thread in zip(self._left, self._threads, strict=True):
            await asyncio.wrap_future(left)
            thread.join()

    def _live(self, left: Future[None]) -> None:
        try:
            self._serve()
        finally:
            left.set_result(None)

    def _serve(self) -> None:
        raise NotImplementedError


WriteWork = Callable[[Tables, datetime], Any]
ReadWork = Callable[[apsw.Connection], Any]


class Writer(Lane[WriteWork]):
    """The thread that writes. What is posted while it commits goes into its next transaction together.

    A work that raises must have undone what it wrote (`Tables.savepoint`): its neighbours in the transaction commit.
    """

    def __init__(
        self, path: str, now: Callable[[], datetime], rows: Rows, synchronous: str, *, allow_network: bool
    ) -> None:
        super().__init__(path, "writer")
        self._rows = rows
        self._opened: Future[None] = Future()
        self._now = now
        self._synchronous = synchronous
        self._allow_network = allow_network
        self._log_pages = 0
        self._checkpoint_at = LOG_PAGES
        self.changes = 0  # transactions of its own that others may see
        self.on_foreign_changes: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Start, and wait until the file is open and up to date."""
        self.start()
        await asyncio.wrap_future(self._opened)

    def _serve(self) -> None:
        try:
            self._open()
        except Exception as error:
            self._opened.set_exception(_explained(self.path, error))
            return
        self._opened.set_result(None)
        call = self._calls.get()
        while call is not None:
            call = self._group(call)
        self._close()

    def _open(self) -> None:
        check_place(self.path, allow_network=self._allow_network)
        self._lock_file = LockFile(f"{self.path}.lock")
        try:
            with self._lock_file.held():
                self._connection = connect_to_write(self.path, self._synchronous)
                try:
                    migrate(self._connection, self.path)
                    note_keys(self._connection, self._rows.sealing)
                except BaseException:
                    self._connection.close()
                    raise
        except BaseException:
            self._lock_file.close()
            raise
        self._tables = Tables(self._connection, self._rows)
        self._connection.set_wal_hook(self._note_commit)
        self._identity = _identity(self.path)
        self._foreign_version = self._connection.pragma("data_version")

    def _close(self) -> None:
        try:
            with self._lock_file.held():  # closing the last connection is a checkpoint
                self._connection.close()
        except Exception as error:
            log.warning("closing %s failed: %s", self.path, error)
        self._lock_file.close()

    def _group(self, first: Call[WriteWork]) -> Call[WriteWork] | None:
        """Commit a group of calls; returns the next call, None for the sign to stop."""
        try:
            with self._lock_file.held():
                calls, ahead = self._drain(first)  # after the lock: waiting for it lets the group grow
                give(self._transaction([call for call in calls if call.is_wanted()]))
                self._checkpoint()
        except OSError as error:
            give([Answer(first.waiter, None, _explained(self.path, error))])
            ahead = True
        return self._calls.get() if ahead else None

    def _drain(self, first: Call[WriteWork]) -> tuple[list[Call[WriteWork]], bool]:
        calls = [first]
        try:
            while len(calls) < LONGEST_GROUP:
                call = self._calls.get_nowait()
                if call is None:
                    return calls, False
                calls.append(call)
        except Empty:
            pass
        return calls, True

    def _transaction(self, calls: list[Call[WriteWork]]) -> list[Answer]:
        connection = self._connection
        try:
            if _identity(self.path) != self._identity:
                raise StoreUnavailable(
                    f"{self.path} was moved, deleted or replaced while it was open; put it back and start again"
                )
            connection.execute("BEGIN IMMEDIATE")
            self._note_foreign_changes()
            now = self._now()  # after the lock: nobody decides by a moment before another's commit
            answers = [self._attempt(call, now) for call in calls]
            connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return [Answer(call.waiter, None, _explained(self.path, error)) for call in calls]
        return answers

    def _attempt(self, call: Call[WriteWork], now: datetime) -> Answer:
        try:
            return Answer(call.waiter, call.work(self._tables, now), None)
        except Exception as error:
            if explain(self.path, error) is not None:
                raise  # the file is at fault, not the call: nobody of the group can commit
            return Answer(call.waiter, None, error)

    def _roll_back(self) -> None:
        self._tables.forget()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            log.warning("rolling back %s failed: %s", self.path, error)

    # -- changes of others

    def look_for_foreign_changes(self) -> None:
        """Find out, soon, whether anybody else committed: every transaction does, so an empty one is enough."""
        self.post(Call(lambda tables, now: None, Future()))

    def _note_foreign_changes(self) -> None:
        version = self._connection.pragma("data_version")  # its own commits do not change it
        if version != self._foreign_version:
            self._foreign_version = version
            self._tables.forget()
            self.on_foreign_changes()

    # -- the write-ahead log

    def _note_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self.changes += 1
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Copy a long log into the file, as the holder of the lock file and after the answers went out."""
        pages = self._log_pages
        if pages < self._checkpoint_at:
            return
        is_long = pages >= LONG_LOG_PAGES
        try:
            if is_long:
                self._connection.set_busy_timeout(CUT_MILLISECONDS)
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_long else apsw.SQLITE_CHECKPOINT_PASSIVE
            length, copied = self._connection.wal_checkpoint(mode=mode)
            is_done = length == copied
        except apsw.Error as error:
            is_done = False
            log.warning("the write-ahead log of %s could not be copied at %d pages: %s", self.path, pages, error)
        if is_long:
            self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Where a reader keeps a part of the log, trying at every commit would not help.
        self._checkpoint_at = LOG_PAGES if is_done else pages + LOG_PAGES
        self._log_pages = 0


class Readers(Lane[ReadWork]):
    """Threads that read, each on a connection of its own, each call in a snapshot that ends with it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "reader", READERS)

    def _serve(self) -> None:
        connection: apsw.Connection | None = None
        while (call := self._calls.get()) is not None:
            if not call.is_wanted():
                continue
            try:
                if connection is None:
                    connection = connect_to_read(self.path)
                give([Answer(call.waiter, _in_snapshot(connection, call.work), None)])
            except Exception as error:
                give([Answer(call.waiter, None, _explained(self.path, error))])
        if connection is not None:
            connection.close()


class Hints:
    """A thread that polls whether the file was changed, and tells those who asked.

    What this process commits it knows of already. A look at all that may be due after each commit of its own would
    take a fifth of the processor, most of it for handing Python's lock to and fro. The poll itself cannot tell whose
    a change is, the connection that writes can.
    """

    def __init__(self, path: str, poll_seconds: float, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._own_changes = 0
        writer.on_foreign_changes = self.tell
        self._poll_seconds = poll_seconds
        self._wakes: list[Callable[[], None]] = []
        self._end = threading.Event()
        self._left: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, name=f"bide hints {path}", daemon=True)

    def add(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Tell *wake* too, on the event loop that runs here or else on the polling thread."""
        tell = _on_this_loop(wake)
        self._wakes = [*self._wakes, tell]
        if not self._thread.is_alive() and not self._end.is_set():
            self._version = self._connect()
            self._thread.start()

        def stop() -> None:
            self._wakes = [other for other in self._wakes if other is not tell]

        return stop

    def tell(self) -> None:
        for wake in self._wakes:
            wake()

    async def close(self) -> None:
        self._wakes = []
        self._end.set()
        if self._thread.is_alive():
            await asyncio.wrap_future(self._left)
            self._thread.join()

    def _connect(self) -> Any:
        """Connect in the caller's thread: what is committed after `subscribe` returned is noticed."""
        try:
            self._connection = connect_to_read(self._path)
            return self._connection.pragma("data_version")
        except apsw.Error as error:
            raise _explained(self._path, error) from error

    def _live(self) -> None:
        try:
            while not self._end.wait(self._poll_seconds):
                self._poll()
            self._connection.close()
        finally:
            self._left.set_result(None)

    def _poll(self) -> None:
        try:
            version = self._connection.pragma("data_version")
        except apsw.Error as error:
            log.warning("%s could not be polled: %s", self._path, error)
            return
        if version == self._version:
            return
        self._version = version
        own, self._own_changes = self._own_changes, self._writer.changes
        if own == self._own_changes:
            self.tell()
            return
        with contextlib.suppress(StoreUnavailable):  # it is being closed
            self._writer.look_for_foreign_changes()


def _on_this_loop(wake: Callable[[], None]) -> Callable[[], None]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda: wake()

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            log.debug("an event loop was closed before its hint came")

    return tell


def _in_snapshot(connection: apsw.Connection, work: ReadWork) -> Any:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # nothing was written; this only lets go of the snapshot


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _explained(path: str, error: Exception) -> Exception:
    explained: BideError | None = explain(path, error)
    if explained is None or explained is error:
        return error
    explained.__cause__ = error
    return explained
