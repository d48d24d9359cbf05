"""Answers to waits that the outside holds a name of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bide.authoring.checks import check_key, check_text, shown
from bide.authoring.machine import encode
from bide.client.door import Door, duration
from bide.client.groups import groups_of
from bide.client.refusals import raise_refused_answer
from bide.core.commands import Complete, Denied, Receipt
from bide.core.durations import Duration
from bide.core.payloads import canonical_text, digest
from bide.core.records import RunId
from bide.errors import BadInput, Forbidden


class Answering(Door):
    async def complete(
        self,
        signal_id: str,
        data: Any = None,
        *,
        run_id: str | None = None,
        by: str | None = None,
        dedup_key: str | None = None,
        hold: Duration | None = None,
        reason: str = "",
        check: bool = True,
    ) -> Receipt:
        """Answer the one wait that holds a signal id; durable when this returns.

        The data is checked against the wait's schema before the run is let go on. *run_id* says which run is meant
        after a collision, *by* who answers. Where no wait is open, *hold* keeps the answer for the first one of that
        id, for so long; then it is among the unused arrivals. *reason* goes into the ledger. Raises `Forbidden`; and
        `NoTarget`, `BadInput` and `SignalCollisionError`, or with `check=False` the receipt says so instead. A second
        answer, or one after the time is up, is `late`.
        """
        runtime = await self._open()
        if by is not None:
            check_text(by, "by")
        text = encode(data, runtime.settings.max_payload_bytes, "the data")
        command = Complete(
            workspace=self.workspace,
            actor=self.actor,
            signal_id=check_key(signal_id, "signal id"),
            message_id=runtime.ports.message_id(),
            data=text,
            digest=digest(canonical_text(text) if dedup_key is not None else text)[:32],
            only_run=RunId(run_id) if run_id is not None else None,
            by=by,
            groups=await groups_of(runtime, by),
            dedup_key=check_text(dedup_key, "dedup key") if dedup_key is not None else None,
            hold=_hold(hold),
            reason=check_reason(reason),
        )
        receipt = await self._submit(command)
        if isinstance(receipt, Denied):
            raise Forbidden(signal_id, receipt.reason)
        assert isinstance(receipt, Receipt)
        if check:
            raise_refused_answer(receipt, signal_id, dedup_key)
        return receipt


def check_reason(reason: Any) -> str:
    if not isinstance(reason, str) or len(reason) > 4000:
        raise BadInput(f"reason={shown(reason)}: give a text of at most 4000 characters")
    if reason:
        encode(reason, 100_000, "the reason")
    return reason


def _hold(value: Duration | None) -> timedelta | None:
    found = duration(value, "hold")
    if found is not None and found <= timedelta(0):
        raise BadInput(f"hold={value!r}: an answer cannot be held for no time")
    return found
