"""The loop of a process that forks others: it hears lines on its standard input, and of children that are gone."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable


def serve(begin: Callable[[str], None], look_after: Callable[[], None]) -> None:
    """Call *begin* with each line of the standard input, and *look_after* when a child has ended or was stopped, until
    the input ends.

    A signal that comes right before a read blocks would be heard of after that read: it is heard on a pipe instead.
    """
    heard, told = os.pipe()
    for end in (heard, told):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    unfinished = b""
    while True:
        ready, _, _ = select.select([0, heard], [], [])
        if heard in ready:
            os.read(heard, 65536)
            look_after()
        if 0 in ready:
            said = os.read(0, 65536)
            if not said:
                return
            *lines, unfinished = (unfinished + said).split(b"\n")
            for line in lines:
                begin(line.decode())


def become_a_child() -> None:
    """What a process does first that was forked from this loop."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.close(0)
