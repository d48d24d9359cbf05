"""Looking at runs, waits, inboxes and ledgers. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from bide.authoring.checks import check_choice, check_limit, check_tags, check_text
from bide.authoring.context import received
from bide.authoring.machine import definition_name
from bide.client.door import PAGE, Door, duration
from bide.client.progress import Progress, progress_now
from bide.core.durations import Duration
from bide.core.records import RunStatus, WaitStatus
from bide.errors import BadInput
from bide.stores.interface import RunFilter, WaitFilter
from bide.views import (
    LedgerEntry,
    Page,
    RunInfo,
    StepInfo,
    WaitInfo,
    ledger_entries,
    run_info,
    step_info,
    wait_info,
    without_hidden,
)


class Looking(Door):
    async def get(self, run_id: str) -> RunInfo:
        return run_info(await self._find(run_id))

    async def runs(
        self,
        *,
        status: str | None = None,
        definition: Any = None,
        held: bool = False,
        correlation_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[RunInfo]:
        """Runs of this workspace, oldest first."""
        runtime = await self._open()
        wanted = RunFilter(
            workspace=self.workspace,
            status=check_choice(status, get_args(RunStatus), "status") if status is not None else None,
            definition=check_text(definition_name(definition), "definition") if definition is not None else None,
            held=held,
            correlation_key=check_text(correlation_key, "correlation key") if correlation_key is not None else None,
            tags=check_tags(tags if tags is not None else {}),
        )
        rows = await runtime.store.runs(wanted, after=cursor, limit=check_limit(limit))
        return Page([run_info(row) for row in rows], rows[-1].id if len(rows) == limit else None)

    async def waits(
        self,
        *,
        run_id: str | None = None,
        older_than: Duration | None = None,
        status: str | None = "waiting",
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[WaitInfo]:
        """Waits of this workspace; open ones unless another status, or None for all, is asked for."""
        runtime = await self._open()
        age = duration(older_than, "older_than")
        before = (await runtime.store.now()) - age if age is not None else None
        if status is not None:
            check_choice(status, get_args(WaitStatus), "status")
        wanted = WaitFilter(workspace=self.workspace, run_id=run_id, status=status, opened_before=before)
        rows = await runtime.store.waits(wanted, after=_wait_cursor(cursor), limit=check_limit(limit))
        following = f"{rows[-1].run_id}/{rows[-1].no}" if len(rows) == limit else None
        return Page([wait_info(row) for row in rows], following)

    async def inbox(self, run_id: str) -> list[Any]:
        """The signals that wait in a run's inbox, in arrival order."""
        row = await self._find(run_id)
        runtime = await self._open()
        return [received(without_hidden(signal, row)) for signal in await runtime.store.inbox(row.id)]

    async def steps(self, run_id: str) -> list[StepInfo]:
        """What the steps and waits of a workflow came to so far, in the order in which a replay gets them."""
        row = await self._find(run_id)
        runtime = await self._open()
        steps = sorted(await runtime.store.steps(row.id), key=lambda step: step.seq)
        return [step_info(without_hidden(step, row)) for step in steps]

    async def progress(self, run_id: str) -> Progress:
        """How far the items of a run have come, as counts."""
        row = await self._find(run_id)
        return await progress_now((await self._open()).store, row)

    async def ledger(self, run_id: str) -> list[LedgerEntry]:
        """Everything that happened to a run, oldest first."""
        row = await self._find(run_id)
        runtime = await self._open()
        return ledger_entries(await runtime.store.ledger(row.id))


def _wait_cursor(cursor: str | None) -> tuple[str, int] | None:
    if cursor is None:
        return None
    run_id, _, no = cursor.rpartition("/")
    if not no.isdigit():
        raise BadInput(f"cursor {cursor!r} is not one that bide gave out")
    return run_id, int(no)
