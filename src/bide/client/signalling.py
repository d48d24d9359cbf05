"""Signals into the inboxes of runs (S1–S13), and what could not be delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from bide.authoring.checks import check_key, check_limit, check_text, is_name
from bide.authoring.machine import encode
from bide.authoring.signals import Signal, signal_name
from bide.client.cursors import after_moment, moment
from bide.client.door import PAGE, Door
from bide.client.paging import read_page
from bide.client.refusals import raise_refusal
from bide.core.commands import Deliver, DeliverMany, Receipt, Receipts
from bide.core.payloads import canonical_text, digest
from bide.core.records import RunId, Unused
from bide.engine.runtime import Runtime
from bide.errors import Invalid, NoTarget
from bide.views import Page, SignalTo, UnusedInfo, unused_info

P = TypeVar("P")


class Signalling(Door):
    @overload
    async def signal(
        self,
        target: str,
        name: Signal[None],
        payload: None = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    @overload
    async def signal(
        self,
        target: str,
        name: Signal[P],
        payload: P,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    @overload
    async def signal(
        self,
        target: str,
        name: str,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt: ...
    async def signal(
        self,
        target: str,
        name: Any,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt:
        """Put a signal into the inbox of a run, named by its id or its correlation key; durable when this returns.

        Raises `NoTarget`, `Invalid` and `DedupConflict`; with `check=False` the receipt says so instead.
        """
        runtime = await self._open()
        try:
            run_id = run_meant(target)
            if run_id is not None and dedup_key is None and connection is None:
                await self._foresee(runtime, run_id)
            command = self._deliver_command(runtime, target, run_id, name, payload, dedup_key)
        except (Invalid, NoTarget) as error:
            if check:
                raise
            if isinstance(error, NoTarget):
                return Receipt(outcome="no_target", reason="not_found")
            return Receipt(outcome="invalid", reason=str(error))
        if connection is not None:
            receipt = await self._known_misfit(runtime, command)
            if receipt is None:
                await runtime.store.leave(connection, await self._governed(runtime, command))
                return Receipt(outcome="deferred", run_id=command.run_id, message_id=command.signal_id)
        else:
            reply = await self._submit(command, runtime)
            assert isinstance(reply, Receipt)
            receipt = reply
        if check:
            raise_refusal(receipt, target, dedup_key)
        return receipt

    async def signal_many(self, signals: Iterable[SignalTo], *, check: bool = True) -> list[Receipt]:
        """Deliver all of these signals in one commit, or none of them.

        Where one is refused, none is delivered: the refusal is raised, or with `check=False` the receipts say which.
        What cannot become a message at all, as a payload over the limit, is raised either way.
        """
        runtime = await self._open()
        asked = list(signals)
        commands = [
            self._deliver_command(runtime, one.target, run_meant(one.target), one.signal, one.payload, one.dedup_key)
            for one in asked
        ]
        many = DeliverMany(workspace=self.workspace, actor=self.actor, deliveries=tuple(commands))
        reply = await self._submit(many)
        assert isinstance(reply, Receipts)
        receipts = list(reply.receipts)
        if check:
            for one, receipt in zip(asked, receipts, strict=True):
                raise_refusal(receipt, one.target, one.dedup_key)
        return receipts

    async def unused(self, *, cursor: str | None = None, limit: int = PAGE) -> Page[UnusedInfo]:
        """What arrived and could not be used, oldest first (S12)."""
        runtime = await self._open()

        async def read(after: tuple[datetime, str] | None, limit: int) -> Sequence[Unused]:
            return await runtime.store.unused(self.workspace, after=after, limit=limit)

        rows, last = await read_page(read, after_moment(cursor), check_limit(limit), lambda row: (row.at, row.id))
        hidden = await self._hidden_in(row.run_id for row in rows)
        following = moment(last.at, last.id) if last is not None else None
        return Page([unused_info(row, hidden[row.run_id]) for row in rows], following)

    async def _known_misfit(self, runtime: Runtime, command: Deliver) -> Receipt | None:
        """The refusal of a signal that joins a transaction, where its run is known already (S13).

        It is not kept: where the transaction is rolled back, nothing of it may be left.
        """
        if not command.misfits:
            return None
        run_id = command.run_id or await runtime.store.holder(self.workspace, command.target)
        row = await runtime.store.run(self.workspace, run_id) if run_id is not None else None
        for misfit in command.misfits:
            if row is not None and (misfit.definition, misfit.version) == (row.definition, row.version):
                return Receipt(outcome="invalid", run_id=row.id, message_id=command.signal_id, reason=misfit.problem)
        return None

    def _deliver_command(
        self,
        runtime: Runtime,
        target: str,
        run_id: RunId | None,
        signal: str | Signal[Any],
        payload: Any,
        dedup_key: str | None,
    ) -> Deliver:
        text = encode(payload, runtime.settings.max_payload_bytes, "the payload")
        name = signal_name(signal)
        return Deliver(
            workspace=self.workspace,
            actor=self.actor,
            target=target,
            run_id=run_id,
            signal_id=runtime.ports.message_id(),
            name=name,
            payload=text,
            misfits=runtime.registry.misfits(name, text),
            digest=digest(canonical_text(text) if dedup_key is not None else text)[:32],
            dedup_key=check_text(dedup_key, "dedup key") if dedup_key is not None else None,
            by_correlation=run_id is None,
            room=runtime.settings.max_inbox,
        )


def run_meant(target: Any) -> RunId | None:
    """The run whose id the target of a signal is; None where it is a correlation key. Raises what neither can be."""
    if not isinstance(target, str) or not target.startswith("run_"):
        check_key(target, "signal target")
        return None
    if not is_name(target):
        raise NoTarget(target)  # no run has such an id, and not every store could be asked for it
    return RunId(target)
