"""Several worker processes under one parent: it restarts a child that dies and passes signals on.

Parent and child share a socket pair, the lifeline: the child says on it that it is ready, and sees on it that the
parent is gone, however the parent died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from bide.cli.worker import Ready

SHORT_LIFE = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


class Lifeline:
    """The child's end."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(False)

    def watch(self, ended: Callable[[], None]) -> None:
        """Call *ended* once the parent is gone. It never writes, so what can be read is the end."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            loop.remove_reader(self._socket)
            ended()

        loop.add_reader(self._socket, readable)

    def tell(self, ready: Ready) -> None:
        with contextlib.suppress(OSError):  # the parent is gone, which `watch` notices
            self._socket.sendall(msgspec.json.encode(ready) + b"\n")


def supervise(command: list[str], processes: int, announce: Callable[[list[Ready]], None]) -> int:
    """Run *command* in this many processes until a signal stops them; the exit code."""
    return asyncio.run(Supervisor(command, processes, announce).run())


class Supervisor:
    def __init__(self, command: list[str], processes: int, announce: Callable[[list[Ready]], None]) -> None:
        self._command = command
        self._processes = processes
        self._announce = announce
        self._children: set[asyncio.subprocess.Process] = set()
        self._ready: list[Ready] = []
        self._announced = False
        self._signals = 0
        self._stopping = asyncio.Event()
        self._go_ahead = asyncio.Event()  # the first child is ready: what keeps all from starting is said only once

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(self._received, number))
        codes = await asyncio.gather(*(self._keep(no) for no in range(self._processes)))
        return max(codes)

    def _received(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1:
            _say("stopping: running steps may finish; once more to stop at once")
            self._stop(signal.SIGTERM)
            return
        self._stop(signal.SIGKILL)
        sys.stdout.flush()
        os._exit(128 + number)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        self._go_ahead.set()
        for child in self._children:
            _send(child, number)

    async def _keep(self, no: int) -> int:
        """Keep one child alive until all are to stop; the exit code of the last one."""
        if no > 0:
            await self._go_ahead.wait()
        deaths = 0
        is_first = True
        while not self._stopping.is_set():
            began = time.monotonic()
            code, was_ready = await self._one_life()
            if self._stopping.is_set():
                is_asked = code == 0 or (code == -signal.SIGTERM and not was_ready)  # it had no handler yet
                return 0 if is_asked else 1
            if is_first and not was_ready and code > 0:
                self._stop(signal.SIGTERM)  # it cannot start at all and has said why
                return code
            is_first = False
            deaths = deaths + 1 if time.monotonic() - began < SHORT_LIFE else 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (deaths - 1))
            _say(f"a worker process {_ending(code)}; starting another in {pause:g}s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
        return 0

    async def _one_life(self) -> tuple[int, bool]:
        """Start a child and see it to its end: its exit code, and whether it ever was ready."""
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                # A group of its own: Ctrl-C reaches the parent alone, which passes it on once.
                child = await asyncio.create_subprocess_exec(
                    *self._command,
                    "--lifeline",
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,
                )
            self._children.add(child)
            if self._stopping.is_set():
                _send(child, signal.SIGTERM)
            try:
                was_ready = await self._await_ready(ours)
                return await child.wait(), was_ready
            finally:
                self._children.discard(child)

    async def _await_ready(self, ours: socket.socket) -> bool:
        from bide.cli.worker import Ready

        said = b""
        while not said.endswith(b"\n"):
            try:
                part = await asyncio.get_running_loop().sock_recv(ours, 65536)
            except ConnectionError:
                return False
            if not part:
                return False
            said += part
        self._go_ahead.set()
        self._ready.append(msgspec.json.decode(said, type=Ready))
        if not self._announced and len(self._ready) == self._processes:
            self._announced = True
            self._announce(self._ready)
        return True


def _send(child: asyncio.subprocess.Process, number: int) -> None:
    # Not `child.send_signal`: that may reap the child behind the back of the event loop, which then loses its code.
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)


def _ending(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"


def _signal_name(number: int) -> Any:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
