"""Quotas at the door: requests a second, live runs, open waits and waiting signals of each workspace (T30d).

Counting rows has its price, so each server looks at a workspace every few seconds at most and adds what it let in
since. Several servers may let in a little more together.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from weakref import WeakKeyDictionary

from bide.core.quotas import Full, full
from bide.engine.runtime import Runtime
from bide.errors import QuotaExceeded
from bide.server.keys import Bucket

LOOK_SECONDS: Final = 2.0
SETTINGS: Final = {"runs": "workspace_max_runs", "waits": "workspace_max_waits", "inbox": "workspace_max_inbox"}


class _Known:
    """What a workspace had when it was last looked at, and what was let in since."""

    def __init__(self, used: Counter[str], at: float) -> None:
        self.used, self.at = used, at


class Quotas:
    def __init__(self, runtime: Runtime) -> None:
        self._store, self._now = runtime.store, runtime.ports.monotonic  # not the runtime: it is what this is found by
        settings = runtime.settings
        self._limits = {what: getattr(settings, name) for what, name in SETTINGS.items()}
        self._rate = settings.workspace_rate
        self._known: dict[str, _Known] = {}
        self._buckets: dict[str, Bucket] = {}

    @property
    def is_limited(self) -> bool:
        return bool(self._rate) or any(self._limits.values())

    async def admit(self, workspace: str, wanted: tuple[str, ...]) -> None:
        """Let one request of a workspace in. Raises `QuotaExceeded`."""
        self._pace(workspace)
        wanted = tuple(what for what in wanted if self._limits[what])
        if not wanted:
            return
        known = await self._look(workspace)
        lacking = full(self._limits, known.used, wanted)
        if lacking is not None:
            raise self._refusal(lacking)
        known.used.update(wanted)

    def _pace(self, workspace: str) -> None:
        if not self._rate:
            return
        now = self._now()
        bucket = self._buckets.setdefault(workspace, Bucket(self._rate, now))
        wait = bucket.take(now)
        if wait > 0:
            raise QuotaExceeded("workspace_rate", self._rate, "requests a second", max(1, int(wait + 0.999)))

    async def _look(self, workspace: str) -> _Known:
        now = self._now()
        known = self._known.get(workspace)
        if known is None or now - known.at >= LOOK_SECONDS:
            used = Counter(dict(await self._store.count_live(workspace)))
            known = self._known[workspace] = _Known(used, now)
        return known

    @staticmethod
    def _refusal(lacking: Full) -> QuotaExceeded:
        words = {"runs": "live runs", "waits": "open waits", "inbox": "signals that wait in inboxes"}
        return QuotaExceeded(SETTINGS[lacking.what], lacking.limit, words[lacking.what], int(LOOK_SECONDS))


_QUOTAS: WeakKeyDictionary[Runtime, Quotas] = WeakKeyDictionary()


def quotas_of(runtime: Runtime) -> Quotas | None:
    """Those of a process, however many applications it serves; None where nothing is limited."""
    quotas = _QUOTAS.get(runtime)
    if quotas is None:
        quotas = _QUOTAS[runtime] = Quotas(runtime)
    return quotas if quotas.is_limited else None
