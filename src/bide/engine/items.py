"""The duty that does the work of pipelines' items: claims what is due, runs user code outside of any transaction, and
commits what came of it, many items at a time (U4)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bide.core.records import Interaction, Item, Run, RunId
from bide.core.streaming import AnyItemCommand, ClaimedItems, ClaimItems, FinishItems, ItemOffer, RenewItems
from bide.core.streams import progress_of
from bide.engine.definitions import Workable
from bide.engine.probes import Crash
from bide.errors import StoreUnavailable

if TYPE_CHECKING:
    from bide.engine.engine import Engine

log = logging.getLogger("bide.engine")

ITEMS_AT_ONCE = 500  # claimed by one look
MOST_ITEMS = 1000  # in work at the same time
UNKNOWN_DEFINITION_DELAY = timedelta(seconds=5)

Claim = tuple[RunId, int, int]  # run, section, item


class ItemWork:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[Claim, int] = {}  # and their epochs
        self.stale = 0  # outcomes whose claim was lost (D3)
        self.settings = engine.settings
        self.ports = engine.runtime.ports
        self.registry = engine.runtime.registry

    # -- the session that definitions are handed

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        return await self._engine.in_thread(call, *arguments)

    async def interactions(self, run: Run, no: int, items: Sequence[int]) -> Sequence[Interaction]:
        return await self._engine.runtime.store.some_interactions([(run.id, no, item) for item in items])

    def reached(self, point: str, step: str) -> None:
        self._engine.probe.reached(point, step)

    # -- the duty

    async def tick(self) -> bool:
        """Claim what is due and begin its work; whether anything was."""
        free = MOST_ITEMS - len(self._claims)
        pipelines = self.registry.workable
        if free <= 0 or not pipelines or self._engine.stopping:
            return False
        due = await self._engine.runtime.store.due_items(self._engine.queues, pipelines, min(free, ITEMS_AT_ONCE))
        groups: dict[tuple[RunId, int], list[int]] = defaultdict(list)
        for item in due:
            groups[(item.run_id, item.section)].append(item.item)
        claimed = await asyncio.gather(*(self._claim(run_id, no, items) for (run_id, no), items in groups.items()))
        return any(claimed)

    def offer(self) -> ItemOffer | None:
        """What this process can work on at once, for whoever brings answers (U4)."""
        room, definitions = MOST_ITEMS - len(self._claims), self.registry.workable
        if room <= 0 or not definitions or self._engine.stopping:
            return None
        return ItemOffer(lease=self.settings.lease, room=room, queues=self._engine.queues, definitions=definitions)

    def take(self, run: Run, items: Sequence[Item]) -> None:
        self._note(items)
        self._begin(run, items)

    async def _claim(self, run_id: RunId, section: int, items: Sequence[int]) -> bool:
        command = ClaimItems(
            workspace="",
            actor=self._actor,
            run_id=run_id,
            section=section,
            items=tuple(items),
            lease=self.settings.lease,
            max_claims=self.settings.max_claims,
        )
        claimed = await self._submit(command)
        if claimed.run is not None and claimed.items:
            self.take(claimed.run, claimed.items)
        return bool(claimed.items) or claimed.moved

    def _begin(self, run: Run, items: Sequence[Item]) -> None:
        """Split what was claimed by stage, and each stage's part among as many tasks as may work at the same time."""
        definition = self.registry.find(run.definition, run.version)
        if not isinstance(definition, Workable):
            self._engine.spawn(self._let_go(run.id, items, UNKNOWN_DEFINITION_DELAY))
            return
        stages: dict[int, list[Item]] = defaultdict(list)
        for item in items:
            stages[item.stage].append(item)
        for stage, found in stages.items():
            parts = definition.chunks(run, progress_of(run).boundary, stage)
            size = -(-len(found) // parts)
            for at in range(0, len(found), size):
                self._engine.spawn(self._work(definition, run, found[at : at + size]))

    async def _work(self, definition: Workable, run: Run, items: Sequence[Item]) -> None:
        try:
            while items:
                began = self._engine.runtime.ports.monotonic()
                work = asyncio.ensure_future(definition.work(run, items, self))
                try:
                    await self._renew_until(work, run.id, items)
                finally:
                    if not work.done():
                        work.cancel()
                outcomes = work.result()
                seconds = self._engine.runtime.ports.monotonic() - began
                self._engine.runtime.figures.steps.observe(seconds / len(items), len(items))
                command = FinishItems(
                    workspace=run.workspace,
                    actor=self._actor,
                    run_id=run.id,
                    section=items[0].section,
                    outcomes=tuple(outcomes),
                    lease=None if self._engine.stopping else self.settings.lease,
                )
                finished = await self._until_taken(command)
                self.stale += finished.stale
                self._forget(items)
                self._note(finished.items)
                self.reached("after_commit", progress_of(run).stages[items[0].stage])
                items = finished.items
        except Crash:
            raise
        except Exception:
            log.exception(
                "the work of items broke outside of user code; their leases will end", extra={"run_id": run.id}
            )
            self._forget(items)

    async def _renew_until(self, work: asyncio.Future[Any], run_id: RunId, items: Sequence[Item]) -> None:
        """Keep the claims while the work takes its time."""
        pause = self.settings.lease.total_seconds() / 3
        while not (await asyncio.wait({work}, timeout=pause))[0]:
            with contextlib.suppress(StoreUnavailable):  # an outcome is fenced by its epoch anyway
                await self._submit(self._renewal(run_id, items, self.settings.lease))

    def _renewal(self, run_id: RunId, items: Sequence[Item], lease: timedelta) -> RenewItems:
        claims = tuple((item.item, item.epoch) for item in items)
        return RenewItems(
            workspace="", actor=self._actor, run_id=run_id, section=items[0].section, claims=claims, lease=lease
        )

    async def _let_go(self, run_id: RunId, items: Sequence[Item], delay: timedelta) -> None:
        await self._submit(self._renewal(run_id, items, delay))
        self._forget(items)

    async def drop(self) -> None:
        """Let others have what this process claimed and will not finish."""
        claims, self._claims = self._claims, {}
        groups: dict[tuple[RunId, int], list[tuple[int, int]]] = defaultdict(list)
        for (run_id, section, item), epoch in claims.items():
            groups[(run_id, section)].append((item, epoch))
        for (run_id, section), held in groups.items():
            await self._submit(
                RenewItems(
                    workspace="",
                    actor=self._actor,
                    run_id=run_id,
                    section=section,
                    claims=tuple(held),
                    lease=timedelta(0),
                )
            )

    # -- committing

    @property
    def _actor(self) -> str:
        return f"worker:{self._engine.worker}"

    def _note(self, items: Sequence[Item]) -> None:
        self._claims.update(((item.run_id, item.section, item.item), item.epoch) for item in items)

    def _forget(self, items: Sequence[Item]) -> None:
        for item in items:
            self._claims.pop((item.run_id, item.section, item.item), None)

    async def _submit(self, command: AnyItemCommand) -> ClaimedItems:
        reply = (await self._engine.runtime.committer.submit(command)).reply
        assert isinstance(reply, ClaimedItems), f"a command of items was answered with {reply!r}"
        return reply

    async def _until_taken(self, command: FinishItems) -> ClaimedItems:
        """What work came to is known and must not be lost: while the store is away, try again. A retry is fenced."""
        pause = 0.05
        while True:
            try:
                return await self._submit(command)
            except StoreUnavailable as error:
                log.warning("cannot commit items of %s yet: %s", command.run_id, error)
                if self._engine.stopping:
                    raise
                await asyncio.sleep(pause * (0.5 + self.ports.random()))
                pause = min(5.0, pause * 2)
