"""The loop of a body that does one thing after the other and is bide's own, such as a machine file's.

`BodyLoop` is there for whatever user code does: tasks beside tasks, timers, `finally` blocks that raise. A body that
does none of that goes on where it stands as soon as what it awaits is there, and nothing has to be scheduled for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Straight:
    """Runs one body, which awaits nothing but the futures that it is given here; and is what comes of it."""

    def __init__(self) -> None:
        self._body: Coroutine[Any, Any, Any] | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._error: BaseException | None = None
        self._result: Any = None

    def begin(self, body: Coroutine[Any, Any, Any]) -> Straight:
        self._body = body
        return self

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def has_only_this(self) -> bool:
        """Whoever asks is the body, and nothing else is ever ready to run."""
        return True

    def pump(self) -> None:
        """Let the body go on, unless what it awaits is not there yet."""
        if self._body is None or (self._awaited is not None and not self._awaited.done()):
            return
        try:
            self._awaited = self._body.send(None)
        except StopIteration as end:
            self._result, self._body = end.value, None
        except BaseException as error:
            self._error, self._body = error, None

    def shut(self) -> None:
        """Close the body where it is suspended (F15). What it was made of and came to refers to the turn: let it go."""
        if self._body is not None:
            self._body.close()
        self._body = self._awaited = self._error = self._result = None

    # -- what came of the body

    def done(self) -> bool:
        return self._body is None

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result
