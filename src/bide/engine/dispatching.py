"""The dispatcher: sends what requests left in the outbox, in batches, at least once; and looks which items have had
their time (U4, U7, U15)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bide.core.exchanging import ExpireItems, MarkDispatched, Marked, SentItem, Terms, sending, terms_of
from bide.core.payloads import BadPayload, digest, encode_payload
from bide.core.records import OPEN_INTERACTION, OPEN_WAIT, Chore, Interaction, Wait
from bide.core.requests import SettleChore
from bide.core.tokens import Signer
from bide.core.traces import headers_of
from bide.engine import tracing
from bide.engine.figures import DISPATCHES, NOT_DISPATCHED
from bide.engine.settings import Settings
from bide.engine.transport import Answered, Dispatched, Request, Transport, Undelivered
from bide.stores.interface import InteractionFilter, WaitFilter

if TYPE_CHECKING:
    from bide.engine.engine import Engine

AT_ONCE = 500
SINGLE_DELAY = timedelta(seconds=5)  # until one that failed among others is tried again


def longest_try(settings: Settings) -> float:
    """How many seconds one try may take: it ends well before others may take the chore over."""
    return settings.outbox_lease.total_seconds() * 0.75


class NotSent(Exception):
    """Nothing of a batch went out."""


class Dispatcher:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def do(self, chore: Chore) -> None:
        """Do a chore of this kind to its end; raises where nothing came of it. What is done settles it."""
        about = sending(chore.data)
        store = self._engine.runtime.store
        wanted = WaitFilter(workspace=chore.workspace, run_id=chore.run_id, no=about.no, status=None)
        found = await store.waits(wanted, after=None, limit=1)
        if not found or found[0].status not in OPEN_WAIT:
            await self._drop(chore)  # nobody needs an answer to what is over (F102)
        elif chore.kind == "expire":
            await self._expire(chore, found[0])
        else:
            await self._send_all(chore, found[0], about.item)

    async def _drop(self, chore: Chore) -> None:
        await self._engine.runtime.committer.submit(
            SettleChore(workspace=chore.workspace, actor="outbox", run_id=chore.run_id, chore=chore, outcome="dropped")
        )

    # -- sending

    async def _send_all(self, chore: Chore, wait: Wait, item: int | None) -> None:
        """Page after page, as long as there is something to send and this process has the chore."""
        terms = terms_of(wait)
        transport = self._engine.transports.get(terms.transport)
        if transport is None:
            known = ", ".join(sorted(self._engine.transports)) or "none"
            raise LookupError(f"transport {terms.transport!r} is not registered in this process; there are: {known}")
        goes_on = True
        while goes_on:
            rows = await self._page(wait, terms, item, min(AT_ONCE, getattr(transport, "at_once", AT_ONCE)))
            self._engine.probe.reached("before", wait.key)
            results = await self._send(transport, wait, rows) if rows else ()
            self._engine.probe.reached("after_code", wait.key)
            failed = sum(result.error is not None for result in results)
            self._engine.runtime.count(NOT_DISPATCHED, terms.transport, failed)
            if rows and all(result.error is not None and not result.is_final for result in results):
                raise NotSent(f"{transport.name}: {results[0].error}")
            self._engine.runtime.count(DISPATCHES, terms.transport, len(results) - failed)
            goes_on = await self._mark(chore, wait, item, results)
            self._engine.probe.reached("after_commit", wait.key)
            chore = replace(chore, tries=1)

    async def _page(self, wait: Wait, terms: Terms, item: int | None, limit: int) -> Sequence[Interaction]:
        store = self._engine.runtime.store
        if item is not None:
            one = InteractionFilter(workspace=wait.workspace, run_id=wait.run_id, no=wait.no, item=item)
            rows = [row for row, _ in await store.interactions(one, after=None, limit=1)]
            return [row for row in rows if row.status in OPEN_INTERACTION]
        if terms.max_pending is not None:
            unit = await store.unit(wait.run_id, wait.no)
            limit = min(limit, terms.max_pending - (unit.handed - unit.received)) if unit is not None else limit
        return await store.pending(wait.run_id, wait.no, limit=limit) if limit > 0 else []

    async def _send(self, transport: Transport, wait: Wait, rows: Sequence[Interaction]) -> Sequence[SentItem]:
        signer, base = await self._engine.runtime.signer(), self._engine.settings.public_url.rstrip("/")
        kept = terms_of(wait).trace
        about = {"run_id": wait.run_id, "wait_id": wait.id, "step": wait.key}
        with tracing.span(f"bide.dispatch {transport.name}", parent=kept, kind="producer", **about) as span:
            span.note(items=len(rows))
            trace = headers_of(span.context or kept)
            requests = [_request(row, wait, f"{base}/resume/{_token(signer, row)}", trace) for row in rows]
            try:
                async with asyncio.timeout(longest_try(self._engine.settings)):
                    sent = await transport.dispatch(requests)
            except Exception as error:
                tracing.broke(error)
                sent = [Undelivered(f"{type(error).__name__}: {error}") for _ in requests]
        if len(sent) != len(requests):
            raise TypeError(f"{transport.name} answered {len(sent)} results for {len(requests)} requests")
        return [self._result(row, outcome) for row, outcome in zip(rows, sent, strict=True)]

    def _result(self, row: Interaction, outcome: Dispatched) -> SentItem:
        match outcome:
            case Answered():
                try:
                    text = encode_payload(outcome.data, max_bytes=self._engine.settings.max_unit_bytes)
                except BadPayload as error:
                    return SentItem(item=row.item, error=f"its answer cannot be stored: {error}", is_final=True)
                return SentItem(item=row.item, answer=text, digest=digest(text)[:32])
            case Undelivered():
                return SentItem(item=row.item, error=outcome.reason, is_final=not outcome.retry)
            case _:
                return SentItem(item=row.item)

    async def _mark(self, chore: Chore, wait: Wait, item: int | None, results: Sequence[SentItem]) -> bool:
        command = MarkDispatched(
            workspace=wait.workspace,
            actor="outbox",
            run_id=wait.run_id,
            no=wait.no,
            chore=chore,
            item=item,
            results=tuple(results),
            lease=self._engine.settings.outbox_lease,
            delay=SINGLE_DELAY,
            offer=self._engine.items.offer() if any(result.answer is not None for result in results) else None,
        )
        reply = (await self._engine.runtime.committer.submit(command)).reply
        assert isinstance(reply, Marked), f"what was sent was answered with {reply!r}"
        if reply.run is not None and reply.items:
            self._engine.items.take(reply.run, reply.items)
        return reply.goes_on

    # -- time

    async def _expire(self, chore: Chore, wait: Wait) -> None:
        store, terms = self._engine.runtime.store, terms_of(wait)
        now = await store.now()
        wanted = InteractionFilter(
            workspace=wait.workspace, run_id=wait.run_id, no=wait.no, statuses=tuple(sorted(OPEN_INTERACTION))
        )
        rows = [row for row, _ in await store.interactions(wanted, after=None, limit=AT_ONCE)]
        deadlines = [(row, terms.deadline(row.opened_at)) for row in rows]
        expired = [row.item for row, deadline in deadlines if deadline is not None and deadline <= now]
        later = [deadline for _, deadline in deadlines if deadline is not None and deadline > now]
        next_at = now if expired and not later and len(rows) == AT_ONCE else min(later, default=None)
        await self._engine.runtime.committer.submit(
            ExpireItems(
                workspace=wait.workspace,
                actor="timer",
                run_id=wait.run_id,
                no=wait.no,
                chore=chore,
                items=tuple(expired),
                next_at=next_at,
            )
        )


def _token(signer: Signer, row: Interaction) -> str:
    """A token for one interaction: whoever has the link may answer it, and it alone (W4)."""
    return signer.mint(row.workspace, row.run_id, row.id)


def _request(row: Interaction, wait: Wait, resume_url: str, trace: Mapping[str, str]) -> Request:
    return Request(
        workspace=row.workspace,
        run_id=row.run_id,
        wait_id=wait.id,
        interaction_id=row.id,
        correlation_id=row.correlation_id,
        step=row.step,
        item=row.item,
        payload=row.payload,
        deadline=wait.deadline or terms_of(wait).deadline(row.opened_at),
        resume_url=resume_url,
        trace=trace,
    )
