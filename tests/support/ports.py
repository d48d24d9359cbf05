"""Ports for servers that must know theirs before they listen, or keep it while they are down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

FIRST = 20_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One on loopback that nobody has, and that the system hands to nobody who asks for any.

    The system gives ports of its own range to clients and to tests that bind port 0: one of those could be taken as
    soon as we have let go of it. Below that range only other callers of this could, and they draw from thousands.
    """
    below = int(RANGE.read_text().split()[0]) if RANGE.exists() else 0
    candidates = random.SystemRandom().sample(range(FIRST, below), 100) if below >= FIRST + 1000 else []
    for port in (*candidates, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise RuntimeError("no port is free")
