"""Looking at runs, waits, inboxes and ledgers. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from bide.authoring.checks import check_choice, check_limit, check_tags, check_text, is_name
from bide.authoring.context import received
from bide.authoring.machine import definition_name
from bide.client.door import PAGE, Door, duration
from bide.client.progress import Progress, progress_now
from bide.core import explaining
from bide.core.durations import Duration
from bide.core.records import RunStatus, WaitStatus
from bide.errors import BadInput, StoreCorrupt
from bide.stores.interface import RunFilter, WaitFilter
from bide.views import (
    Explanation,
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

MOST_CHILDREN = 1000
MOST_UNUSED = 10_000  # per workspace (S12)


class Looking(Door):
    async def get(self, run_id: str) -> RunInfo:
        """A run, by its id or by the correlation key that it holds. Raises `RunNotFound`."""
        return run_info(await self._find(await self._id(run_id)))

    async def _id(self, name: str) -> str:
        if not is_name(name) or name.startswith("run_"):
            return name
        return await (await self._open()).store.holder(self.workspace, name) or name

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
        definition: Any = None,
        kind: str | None = None,
        channel: str | None = None,
        assignee: str | None = None,
        group: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[WaitInfo]:
        """Waits of this workspace; open ones unless another status, or None for all, is asked for."""
        runtime = await self._open()
        age = duration(older_than, "older_than")
        before = (await runtime.store.now()) - age if age is not None else None
        if status is not None:
            check_choice(status, get_args(WaitStatus), "status")
        name = definition_name(definition) if definition is not None else None
        texts = {"definition": name, "kind": kind, "channel": channel, "assignee": assignee, "group": group}
        given: dict[str, Any] = {what: check_text(text, what) for what, text in texts.items() if text is not None}
        wanted = WaitFilter(workspace=self.workspace, run_id=run_id, status=status, opened_before=before, **given)
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
        try:
            return ledger_entries(await runtime.store.ledger(row.id))
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(f"the ledger of {run_id} was changed and cannot be read: {error}") from error

    async def explain(self, run_id: str, *, options: str = "") -> Explanation:
        """Why a run stands where it stands, in sentences; *options* is put behind every command that they name."""
        row = await self._find(run_id)
        store = (await self._open()).store
        children = RunFilter(workspace=self.workspace, parent_id=row.id)
        said = explaining.explain(
            row,
            await store.waits(WaitFilter(workspace=self.workspace, run_id=row.id, status=None), after=None, limit=1000),
            await store.inbox(row.id),
            await store.runs(children, after=None, limit=MOST_CHILDREN) if row.has_children else [],
            [unused for unused in await store.unused(self.workspace, limit=MOST_UNUSED) if unused.run_id == row.id],
            await store.now(),
            ledger=await self.ledger(row.id),
            options=options,
        )
        return Explanation(id=row.id, status=row.status, held=row.held, explanation=tuple(said))


def _wait_cursor(cursor: str | None) -> tuple[str, int] | None:
    if cursor is None:
        return None
    run_id, _, no = cursor.rpartition("/")
    if not no.isdigit():
        raise BadInput(f"cursor {cursor!r} is not one that bide gave out")
    return run_id, int(no)
