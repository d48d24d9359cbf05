"""When a wait ends by itself (W1)."""

from __future__ import annotations

from datetime import datetime, timedelta

from bide.core.durations import deadline_after, utc


def deadline_of(now: datetime, timeout: timedelta | datetime | None) -> datetime | None:
    """Time counts from the commit that opens the wait (W1); a moment in the past is due at once."""
    if timeout is None:
        return None
    return utc(timeout) if isinstance(timeout, datetime) else deadline_after(now, timeout)
