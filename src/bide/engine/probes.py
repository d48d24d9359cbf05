"""Points at which a fault can be injected: by the testing kit in process, by `BIDE_FAILPOINT` with a real SIGKILL."""

from __future__ import annotations

import os
import signal
from typing import Literal, Protocol

Point = Literal["before", "after_code", "after_commit"]


class Crash(BaseException):
    """The process dies here. Nothing may catch it but the engine, which drops the turn."""


class Probe(Protocol):
    def reached(self, point: str, step: str) -> None:
        """Called where a turn reaches *point* of *step*; may raise `Crash`."""


class NoProbe:
    def reached(self, point: str, step: str) -> None:
        return None


class KillProbe:
    """Kills this process for real at the n-th time a point is reached: `after_code:ship` or `after_code:ship:2`.

    A `*` stands for every point, or for every step: `*:*:7` kills at the seventh point of any kind.
    """

    def __init__(self, text: str) -> None:
        point, _, rest = text.partition(":")
        step, _, count = rest.partition(":")
        self._point, self._step, self._left = point, step or "*", int(count or 1)

    def reached(self, point: str, step: str) -> None:
        if self._point in (point, "*") and self._step in (step, "*"):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


NO_PROBE: Probe = NoProbe()


def probe_from(environment: dict[str, str] | os._Environ[str]) -> Probe:
    text = environment.get("BIDE_FAILPOINT")
    return KillProbe(text) if text else NO_PROBE
