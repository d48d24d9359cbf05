"""The end of a run: waiting for it, and bringing it about."""

from __future__ import annotations

from typing import Any

from bide.authoring.checks import is_name
from bide.authoring.machine import encode
from bide.client.door import Door, duration
from bide.core.commands import Cancel, Cancelled, Start, Unknown
from bide.core.durations import Duration
from bide.core.records import FINAL, RunId, RunStatus
from bide.core.records import Run as RunRow
from bide.errors import RunIsFinal, RunNotFound, RunTimeoutError
from bide.views import result_of


class Ending(Door):
    async def result(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        """Wait for the end and return the result.

        Raises `RunFailedError`, `RunStoppedError`, `RunCancelledError`, or `RunTimeoutError` (the run goes on).
        """
        return result_of(await self._end(run_id, timeout, look_first=True))

    async def _end(self, run_id: str, timeout: Duration | None, *, look_first: bool) -> RunRow:
        """The row of a run that has ended. Ends that this process commits are heard of; others are looked for."""
        runtime = await self._open()
        limit = duration(timeout, "timeout")
        monotonic = runtime.ports.monotonic
        until = None if limit is None else monotonic() + limit.total_seconds()
        longest = runtime.settings.poll_interval.total_seconds()
        with runtime.ends.listening(RunId(run_id)) as ear:
            while True:
                if look_first:
                    ear.has_news = False
                    row = await self._admitted(run_id)
                    if row is not None and row.status in FINAL:
                        return row
                left = None if until is None else until - monotonic()
                if look_first and left is not None and left <= 0:
                    raise RunTimeoutError(run_id, row.status if row is not None else "ready")
                # The time of a test goes at another pace than the one that is slept here.
                heard = await ear.hear(None if left is None else min(longest, max(0.0, left)))
                if heard is not None:
                    return heard
                look_first = ear.has_news or (until is not None and monotonic() >= until)

    async def _admitted(self, run_id: str) -> RunRow | None:
        """The row; None while its start, which a committed transaction left, is not admitted (S11)."""
        try:
            return await self._find(run_id)
        except RunNotFound:
            if not is_name(run_id):  # no store has it, or could
                raise
            left = await (await self._open()).store.left(run_id)
            if not isinstance(left, Start) or left.workspace != self.workspace:
                return await self._find(run_id)  # it was admitted between the two looks, or there is none
        return None

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False) -> None:
        """Cancel a run. Raises `RunNotFound`, and `RunIsFinal` where it has ended otherwise."""
        await self._cancel(run_id, reason, force)

    async def _cancel(self, run_id: str, reason: str, force: bool) -> RunStatus:
        """The same; gives the status that the run has then."""
        if not is_name(run_id):
            raise RunNotFound(run_id)
        runtime = await self._open()
        encode(reason, runtime.settings.max_payload_bytes, "the reason")
        reply = await self._submit(
            Cancel(workspace=self.workspace, actor=self.actor, run_id=RunId(run_id), reason=str(reason), force=force)
        )
        if isinstance(reply, Unknown):
            raise RunNotFound(run_id)
        assert isinstance(reply, Cancelled)
        if reply.already_final and reply.run.status != "cancelled":
            raise RunIsFinal(run_id, reply.run.status)
        return reply.run.status
