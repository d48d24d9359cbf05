"""Looking at runs, waits, inboxes and ledgers. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

import msgspec

from bide.authoring.checks import check_choice, check_limit, check_tags, check_text, is_name
from bide.authoring.context import received
from bide.authoring.machine import definition_name
from bide.client.cursors import after_part, after_run, after_wait, part
from bide.client.door import PAGE, Door, began_before
from bide.client.paging import cut, read_page
from bide.client.progress import Progress, progress_now
from bide.core import explaining
from bide.core.agenda import terms
from bide.core.durations import Duration
from bide.core.parked import Facts
from bide.core.records import OPEN_WAIT, Interaction, Run, RunStatus, StepRow, Wait, WaitStatus, steps_of
from bide.core.records import Signal as SignalRow
from bide.errors import StoreCorrupt
from bide.stores.interface import InteractionFilter, RunFilter, WaitFilter
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
MOST_WAITS = 1000  # that are open
MOST_UNUSED = 10_000  # per workspace (S12)
Part = TypeVar("Part", SignalRow, StepRow, LedgerEntry)


class Looking(Door):
    async def get(self, run_id: str) -> RunInfo:
        """A run, by its id or by the correlation key that it holds. Raises `RunNotFound`."""
        return run_info(await self._covering(await self._find(await self._id(run_id))))

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

        async def read(after: str | None, limit: int) -> Sequence[Run]:
            return await runtime.store.runs(wanted, after=after, limit=limit)

        rows, last = await read_page(read, after_run(cursor), check_limit(limit), lambda row: row.id)
        shown = [run_info(await self._covering(row)) for row in rows]
        return Page(shown, last.id if last is not None else None)

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
        before = await began_before(runtime, older_than)
        if status is not None:
            check_choice(status, get_args(WaitStatus), "status")
        name = definition_name(definition) if definition is not None else None
        texts = {"definition": name, "kind": kind, "channel": channel, "assignee": assignee, "group": group}
        texts["run_id"] = run_id
        given: dict[str, Any] = {what: check_text(text, what) for what, text in texts.items() if text is not None}
        wanted = WaitFilter(workspace=self.workspace, status=status, opened_before=before, **given)

        async def read(after: tuple[str, int] | None, limit: int) -> Sequence[Wait]:
            return await runtime.store.waits(wanted, after=after, limit=limit)

        rows, last = await read_page(read, after_wait(cursor), check_limit(limit), lambda row: (row.run_id, row.no))
        return Page([wait_info(row) for row in rows], f"{last.run_id}/{last.no}" if last is not None else None)

    async def inbox(self, run_id: str) -> list[Any]:
        """The signals that wait in a run's inbox, in arrival order."""
        return [received(signal) for signal in await self._inbox(run_id)]

    async def _inbox(self, run_id: str) -> list[SignalRow]:
        row = await self._find(run_id)
        runtime = await self._open()
        return [without_hidden(signal, row) for signal in await runtime.store.inbox(row.id)]

    async def _inbox_page(self, run_id: str, cursor: str | None, limit: int | None) -> Page[Any]:
        signals, following = _part(await self._inbox(run_id), cursor, limit)
        return Page([received(signal) for signal in signals], following)

    async def steps(self, run_id: str) -> list[StepInfo]:
        """What the steps and waits of a workflow came to so far, in the order in which a replay gets them."""
        return [step_info(step) for step in await self._steps(run_id)]

    async def _steps(self, run_id: str) -> list[StepRow]:
        row = await self._covering(await self._find(run_id))
        runtime = await self._open()
        steps = sorted(steps_of(await runtime.store.steps(row.id)), key=_place)
        return [without_hidden(step, row) for step in steps]

    async def _steps_page(self, run_id: str, cursor: str | None, limit: int | None) -> Page[StepInfo]:
        steps, following = _part(await self._steps(run_id), cursor, limit)
        return Page([step_info(step) for step in steps], following)

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

    async def _ledger_page(self, run_id: str, cursor: str | None, limit: int | None) -> Page[LedgerEntry]:
        return Page(*_part(await self.ledger(run_id), cursor, limit))

    async def explain(self, run_id: str, *, options: str = "") -> Explanation:
        """Why a run stands where it stands, in sentences; *options* is put behind every command that they name.

        The URLs of callbacks are among them: whoever has one can answer.
        """
        return await self._explain(run_id, options)

    async def _explain(self, run_id: str, options: str, *, hides_links: str = "") -> Explanation:
        """*hides_links* says why whoever asks gets no URLs."""
        row = await self._covering(await self._find(run_id))
        facts = await self._facts(row)
        if hides_links:
            facts = replace(facts, no_link=hides_links)
        else:
            facts = replace(facts, links=await self._links(facts.open))
        said = explaining.explain(facts, await (await self._open()).store.now(), options=options)
        return Explanation(id=row.id, status=row.status, held=row.held, explanation=tuple(said))

    async def _facts(self, row: Run) -> Facts:
        """All that is known of a run, but the URLs of its callbacks."""
        store = (await self._open()).store
        children = RunFilter(workspace=self.workspace, parent_id=row.id)
        waits: list[Wait] = []
        for status in OPEN_WAIT if row.open_waits else ():
            wanted = WaitFilter(workspace=self.workspace, run_id=row.id, status=status)
            waits += await store.waits(wanted, after=None, limit=MOST_WAITS)
        asked = [wait.no for wait in waits if wait.kind in ("request", "task")]
        units = {no: unit for no in asked if (unit := await store.unit(row.id, no)) is not None}
        has_pauses = any(wait.kind == "sleep" for wait in waits)
        return Facts(
            run=row,
            waits=sorted(waits, key=lambda wait: wait.no),
            inbox=await store.inbox(row.id),
            children=await store.runs(children, after=None, limit=MOST_CHILDREN) if row.has_children else [],
            unused=await store.unused(self.workspace, run_id=row.id, limit=MOST_UNUSED),
            ledger=await self.ledger(row.id),
            steps=[without_hidden(step, row) for step in await store.steps(row.id)] if has_pauses else [],
            units=units,
            collided=[wait.no for wait in waits if await self._has_collided(wait)],
            interactions=[interaction for no in asked for interaction in await self._open_ones(row.id, no)],
        )

    async def _has_collided(self, wait: Wait) -> bool:
        if wait.kind != "signal":
            return False
        name = await (await self._open()).store.name(self.workspace, "signal", wait.names[0])
        return name is not None and name.has_collided

    async def _open_ones(self, run_id: str, no: int) -> list[Interaction]:
        """The first of a wait's interactions that can be answered; of those that are not sent yet, where all are so."""
        store = (await self._open()).store
        for statuses in (("waiting",), ("pending", "dispatching")):
            wanted = InteractionFilter(workspace=self.workspace, run_id=run_id, no=no, statuses=statuses)
            found = await store.interactions(wanted, after=None, limit=1)
            if found:
                return [interaction for interaction, _ in found]
        return []

    async def _links(self, waits: Sequence[Wait]) -> dict[int, str]:
        """The URLs of callbacks that are open, made again as they were made first (W4)."""
        callbacks = [wait for wait in waits if wait.kind == "signal" and terms(wait).get("callback")]
        runtime = await self._open()
        signer = await runtime.signer_at_hand() if callbacks else None
        if signer is None:
            return {}
        base = runtime.settings.public_url.rstrip("/")
        return {
            wait.no: f"{base}/resume/{signer.mint(wait.workspace, wait.run_id, wait.names[0])}" for wait in callbacks
        }


def _part(rows: Sequence[Part], cursor: str | None, limit: int | None) -> tuple[list[Part], str | None]:
    """A page of what a run has, and the cursor of the next one; without a limit it is as long as fits."""
    after, most = after_part(cursor), check_limit(limit) if limit is not None else len(rows)
    found, last = cut((row for row in rows if _place(row) > after), most)
    return found, part(*_place(last)) if last is not None else None


def _place(row: SignalRow | StepRow | LedgerEntry) -> tuple[int, str]:
    return row.seq, row.key if isinstance(row, StepRow) else ""
