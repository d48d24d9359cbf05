"""Signals into the inboxes of runs (S1–S13), and what could not be delivered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bide.authoring.checks import check_key, check_text, is_name
from bide.authoring.machine import encode
from bide.authoring.signals import Signal, signal_name
from bide.client.door import PAGE, Door
from bide.client.refusals import raise_refusal
from bide.core.commands import Deliver, DeliverMany, KeepUnused, Receipt, Receipts
from bide.core.payloads import BadPayload, canonical, decode_as, digest
from bide.core.records import RunId, Unused
from bide.engine.definitions import Definition
from bide.engine.runtime import Runtime
from bide.errors import Invalid, NoTarget, UnusedNotFound
from bide.views import SignalTo, UnusedInfo, unused_info

MOST_UNUSED = 10_000


class Signalling(Door):
    async def signal(
        self,
        target: str,
        signal: str | Signal[Any],
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
            command = self._deliver_command(runtime, target, signal, payload, dedup_key)
        except (Invalid, NoTarget) as error:
            if check:
                raise
            if isinstance(error, NoTarget):
                return Receipt(outcome="no_target", reason="not_found")
            return Receipt(outcome="invalid", reason=str(error))
        receipt = await self._at_the_door(runtime, command)
        if receipt is None and connection is not None:
            await runtime.store.leave(connection, await self._governed(runtime, command))
            return Receipt(outcome="deferred", run_id=command.run_id, message_id=command.signal_id)
        if receipt is None:
            reply = await self._submit(command)
            assert isinstance(reply, Receipt)
            receipt = reply
        if check:
            raise_refusal(receipt, target, dedup_key)
        return receipt

    async def signal_many(self, signals: Iterable[SignalTo], *, check: bool = True) -> list[Receipt]:
        """Deliver all of these signals in one commit, or none of them.

        Where one is refused, none is delivered: the refusal is raised, or with `check=False` the receipts say which.
        """
        runtime = await self._open()
        asked = list(signals)
        commands = [self._deliver_command(runtime, one.target, one.signal, one.payload, one.dedup_key) for one in asked]
        doors = [await self._at_the_door(runtime, command) for command in commands]
        if any(receipt is not None for receipt in doors):
            receipts = [receipt or Receipt(outcome="ignored", reason="another was refused") for receipt in doors]
        else:
            many = DeliverMany(workspace=self.workspace, actor=self.actor, deliveries=tuple(commands))
            reply = await self._submit(many)
            assert isinstance(reply, Receipts)
            receipts = list(reply.receipts)
        if check:
            for one, receipt in zip(asked, receipts, strict=True):
                raise_refusal(receipt, one.target, one.dedup_key)
        return receipts

    async def unused(self, *, limit: int = PAGE) -> list[UnusedInfo]:
        """What arrived and could not be used, oldest first (S12)."""
        runtime = await self._open()
        return [unused_info(row) for row in await runtime.store.unused(self.workspace, limit=limit)]

    async def readdress(self, unused_id: str, target: str, *, check: bool = True) -> Receipt:
        """Deliver a kept arrival to another run; it is dropped from the kept ones when it is admitted."""
        runtime = await self._open()
        rows = await runtime.store.unused(self.workspace, limit=MOST_UNUSED)
        found = next((row for row in rows if row.id == unused_id), None)
        if found is None:
            raise UnusedNotFound(unused_id)
        command = self._deliver_command(runtime, target, found.name, msgspec.json.decode(found.payload), None)
        command = msgspec.structs.replace(command, unused_id=unused_id)
        reply = await self._submit(command)
        assert isinstance(reply, Receipt)
        if check:
            raise_refusal(reply, target, None)
        return reply

    async def _at_the_door(self, runtime: Runtime, command: Deliver) -> Receipt | None:
        """Check a payload against the type that the target's definition declares for it (S13); None lets it in.

        A run's definition never changes, so it is looked up without a lock, and only where some definition of this
        app declares a signal of that name.
        """
        if not runtime.registry.declares(command.name):
            return None
        run_id = command.run_id or await runtime.store.holder(self.workspace, command.target)
        row = await runtime.store.run(self.workspace, run_id) if run_id is not None else None
        definition = runtime.registry.find(row.definition, row.version) if row is not None else None
        return await self._refuse_misfit(runtime, definition, command) if definition is not None else None

    async def _refuse_misfit(self, runtime: Runtime, definition: Definition, command: Deliver) -> Receipt | None:
        declared = definition.signals.get(command.name)
        if declared is None:
            return None
        try:
            decode_as(command.payload, declared)
        except BadPayload as error:
            kept = Unused(
                workspace=self.workspace,
                id=command.signal_id,
                run_id=command.run_id or "",
                target=command.target,
                name=command.name,
                payload=command.payload,
                reason="invalid_payload",
                at=await runtime.store.now(),
            )
            await self._submit(KeepUnused(workspace=self.workspace, actor=self.actor, unused=kept))
            return Receipt(outcome="invalid", run_id=command.run_id, message_id=command.signal_id, reason=str(error))
        return None

    def _deliver_command(
        self, runtime: Runtime, target: str, signal: str | Signal[Any], payload: Any, dedup_key: str | None
    ) -> Deliver:
        is_run = isinstance(target, str) and target.startswith("run_")
        if not is_run:
            check_key(target, "signal target")
        elif not is_name(target):
            raise NoTarget(target)  # no run has such an id, and not every store could be asked for it
        text = encode(payload, runtime.settings.max_payload_bytes, "the payload")
        return Deliver(
            workspace=self.workspace,
            actor=self.actor,
            target=target,
            run_id=RunId(target) if is_run else None,
            signal_id=runtime.ports.message_id(),
            name=signal_name(signal),
            payload=text,
            digest=digest(canonical(msgspec.json.decode(text)) if dedup_key is not None else text)[:32],
            dedup_key=check_text(dedup_key, "dedup key") if dedup_key is not None else None,
            by_correlation=not is_run,
        )
