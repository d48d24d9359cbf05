"""Moments and commands, as explanations say them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from bide.core.ages import relative, stamp


class Wording:
    """Says moments as seen from *now*, and commands with *options* behind them, such as `--workspace eu`."""

    def __init__(self, now: datetime, options: str = "") -> None:
        self.now = now
        self._options = f" {options}" if options else ""

    def when(self, moment: datetime | None) -> str:
        assert moment is not None, "only asked where there is a moment"
        return f"{stamp(moment)} ({relative(moment, self.now)})"

    def command(self, verb: str, *words: str, more: Sequence[str] = ()) -> str:
        """A command that can be typed; *more* are options of its own.

        >>> Wording(datetime.min, "--app shop.py").command("answer", "int_1", "{}", more=["--by", "ann"])
        "bide answer int_1 '{}' --by ann --app shop.py"
        """
        own = f" {shlex.join(more)}" if more else ""
        if any(word.startswith("-") for word in words):  # not to be taken for an option
            return f"bide {verb}{own}{self._options} -- {shlex.join(words)}"
        return shlex.join(("bide", *verb.split(), *words)) + own + self._options
