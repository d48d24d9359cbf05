"""Whether the server that this application runs in was told to stop.

uvicorn tells its applications once every connection has ended, so one that does not end by itself holds up the stop.
Signals and their handlers belong to the program around us: we look at them, and leave them as they are.
"""

from __future__ import annotations

import signal


def is_stopping() -> bool:
    """Only where it is uvicorn, and handles the signals of this process itself."""
    handlers = (signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT))
    return any(getattr(getattr(handler, "__self__", None), "should_exit", False) is True for handler in handlers)
