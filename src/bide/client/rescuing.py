"""Sending what arrived and could not be used to where it was meant for (S12)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.authoring.checks import is_name
from bide.client.refusals import raise_refusal, raise_refused_answer, raise_refused_task
from bide.client.signalling import Signalling, run_meant
from bide.client.tasks import Tasks, named_by
from bide.core.commands import AnyCommand, Complete, Denied, Receipt, Unknown
from bide.core.payloads import canonical_text, digest
from bide.core.records import Unused
from bide.core.requests import Answer
from bide.errors import Forbidden, UnusedNotFound

ASKED = ("wait_", "int_")  # ids of what takes an answer


class Rescuing(Signalling, Tasks):
    async def readdress(self, unused_id: str, target: str, *, check: bool = True) -> Receipt:
        """Deliver a kept arrival to a run, or give it to a wait, an interaction or a signal id as its answer.

        It is dropped from the kept ones when it is admitted. Raises `UnusedNotFound`, `Forbidden`, and unless
        `check=False` what `signal` and `answer` raise.
        """
        runtime = await self._open()
        found = await runtime.store.unused_by_id(self.workspace, unused_id) if is_name(unused_id) else None
        reply = await self._submit(await self._sent_on(unused_id, found, target))
        if isinstance(reply, Unknown):
            raise UnusedNotFound(unused_id)
        if isinstance(reply, Denied):
            raise Forbidden(target, reply.reason)
        assert isinstance(reply, Receipt)
        if check:
            raise_misdirected(reply, target)
        return reply

    async def _sent_on(self, unused_id: str, found: Unused | None, target: str) -> AnyCommand:
        runtime = await self._open()
        if found is None:  # it was sent on before: a repeat of that is known by its idempotency key
            gone = self._deliver_command(runtime, target, None, "gone", None, None)
            return replace(gone, unused_id=unused_id, is_gone=True)
        named = named_by(target) if isinstance(target, str) and target.startswith(ASKED) else None
        message_id, text = runtime.ports.message_id(), found.payload
        if named is not None:
            run_id, no, item = named
            return Answer(
                workspace=self.workspace,
                actor=self.actor,
                run_id=run_id,
                no=no,
                item=item,
                target=target,
                message_id=message_id,
                data=text,
                digest=digest(canonical_text(text))[:32],
                misfits=await self._misfits(run_id, no, text) if item is None else (),
                unused_id=unused_id,
            )
        run_id_meant = run_meant(target)
        if run_id_meant is None and await self._is_signal_id(target):
            return Complete(
                workspace=self.workspace,
                actor=self.actor,
                signal_id=target,
                message_id=message_id,
                data=text,
                digest=digest(text)[:32],
                unused_id=unused_id,
            )
        payload = msgspec.json.decode(text)
        command = self._deliver_command(runtime, target, run_id_meant, found.name, payload, None)
        return replace(command, unused_id=unused_id)

    async def _is_signal_id(self, target: str) -> bool:
        """Whether a wait has or had this id. It may be a correlation key as well: then the run is meant."""
        store = (await self._open()).store
        if await store.holder(self.workspace, target) is not None:
            return False
        return await store.name(self.workspace, "signal", target) is not None


def raise_misdirected(receipt: Receipt, target: str) -> None:
    if target.startswith(ASKED):
        raise_refused_task(receipt, target)
    elif receipt.wait_id is not None:
        raise_refused_answer(receipt, target)
    else:
        raise_refusal(receipt, target, None)
