"""Retention: runs that ended long ago go, with everything of theirs."""

from __future__ import annotations

from datetime import datetime, timedelta

from bide.stores.postgres.arrays import array
from bide.stores.postgres.transactions import Transaction


class Retention:
    def __init__(self, ended_before: timedelta, limit: int, now: datetime | None) -> None:
        self._ended_before = ended_before
        self._limit = limit
        self._now = now

    async def __call__(self, transaction: Transaction) -> int:
        rows = await transaction.fetch("lock_ended", self._now, self._ended_before, self._limit)
        if rows:
            await transaction.fetch("delete_ended", array([run_id for (run_id,) in rows]))
        return len(rows)
