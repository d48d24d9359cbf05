"""Answering interactions and waits by id, and what people do with tasks before they answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from bide.authoring.checks import check_choice, check_limit, check_text, is_name
from bide.authoring.machine import definition_name, encode
from bide.client.answering import Answering, check_reason
from bide.client.cursors import after_interaction
from bide.client.door import PAGE
from bide.client.groups import groups_of
from bide.client.paging import read_page
from bide.client.refusals import raise_refused_task
from bide.core.commands import Conflicting, Denied, Done, Receipt, Unknown
from bide.core.payloads import canonical_text, digest
from bide.core.records import Interaction, InteractionStatus, RunId, Wait, run_of_interaction, run_of_wait
from bide.core.requests import Amend, Answer, ChangeWait, HandTask, Misfit
from bide.errors import AlreadyAnswered, BadInput, Forbidden, TaskTaken, WaitNotFound
from bide.stores.interface import InteractionFilter, WaitFilter
from bide.views import InteractionInfo, Page, interaction_info


class Tasks(Answering):
    async def answer(
        self,
        target: str,
        data: Any = None,
        by: str | None = None,
        dedup_key: str | None = None,
        *,
        shown: str | None = None,
        reason: str = "",
        check: bool = True,
    ) -> Receipt:
        """Answer an interaction, a wait or a signal id; durable when this returns.

        *by* is who answers: a wait with an assignee or a group takes it from them alone. *shown* is the digest of
        what they saw (`InteractionInfo.shown`), *reason* why an operator answers: it goes into the ledger. The same
        answer again is a `duplicate`, one after the end of the wait is `late`. Raises `Forbidden` always;
        `WaitNotFound`, `ConflictingAnswer` and `InvalidAnswer` unless `check=False`.
        """
        runtime = await self._open()
        if by is not None:
            check_text(by, "by")
        named = named_by(target)
        if named is None:
            return await self.complete(target, data, by=by, dedup_key=dedup_key, reason=reason, check=check)
        run_id, no, item = named
        text = encode(data, runtime.settings.max_payload_bytes, "the answer")
        command = Answer(
            workspace=self.workspace,
            actor=self.actor,
            run_id=run_id,
            no=no,
            item=item,
            target=target,
            message_id=runtime.ports.message_id(),
            data=text,
            digest=digest(canonical_text(text))[:32],
            by=by,
            groups=await groups_of(runtime, by),
            dedup_key=check_text(dedup_key, "dedup key") if dedup_key is not None else None,
            shown=shown,
            reason=check_reason(reason),
            misfits=await self._misfits(run_id, no, text) if item is None else (),
        )
        receipt = await self._submit(command)
        if isinstance(receipt, Denied):
            raise Forbidden(target, receipt.reason)
        assert isinstance(receipt, Receipt)
        if check:
            raise_refused_task(receipt, target, dedup_key)
        return receipt

    async def _misfits(self, run_id: RunId, no: int, data: str) -> tuple[Misfit, ...]:
        """Whose declarations the data does not fit, where the wait is for a signal: it is checked as that is (S13)."""
        runtime = await self._open()
        if not runtime.registry.declares_signals:
            return ()
        wanted = WaitFilter(workspace=self.workspace, run_id=run_id, no=no, status=None)
        names = {name for wait in await runtime.store.waits(wanted, after=None, limit=1) for name in wait.names}
        return tuple(misfit for name in names for misfit in runtime.registry.misfits(name, data))

    # ------------------------------------------------------------ looking

    async def interactions(
        self,
        *,
        run_id: str | None = None,
        assignee: str | None = None,
        group: str | None = None,
        channel: str | None = None,
        status: str | Iterable[str] | None = ("pending", "dispatching", "waiting"),
        definition: Any = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[InteractionInfo]:
        """Interactions of this workspace, oldest first; open ones unless others, or with None all, are asked for.

        What their definitions hide is covered, also in what is asked; `interaction` shows that.
        """
        runtime = await self._open()
        statuses = (status,) if isinstance(status, str) else tuple(status or ())
        for each in statuses:
            check_choice(each, get_args(InteractionStatus), "status")
        wanted = InteractionFilter(
            workspace=self.workspace,
            run_id=check_text(run_id, "run_id") if run_id is not None else None,
            statuses=statuses,
            definition=check_text(definition_name(definition), "definition") if definition is not None else None,
            channel=_person(channel, "channel"),
            assignee=_person(assignee, "assignee"),
            group=_person(group, "group"),
        )

        async def read(after: tuple[str, int, int] | None, limit: int) -> Sequence[tuple[Interaction, Wait]]:
            return await runtime.store.interactions(wanted, after=after, limit=limit)

        rows, last = await read_page(read, after_interaction(cursor), check_limit(limit), _place_of)
        following = last[0].id if last is not None else None
        hidden = await self._hidden_in(row.run_id for row, _ in rows if _has_fields(row))
        return Page([interaction_info(row, wait, hidden.get(row.run_id)) for row, wait in rows], following)

    async def interaction(self, id: str) -> InteractionInfo:
        """One interaction as it stands; while it is open, with all that is asked. Raises `WaitNotFound`."""
        return await self._look_at(id, to_answer=True)

    async def _look_at(self, id: str, *, to_answer: bool) -> InteractionInfo:
        run_id, no, item = _interaction(id)
        runtime = await self._open()
        wanted = InteractionFilter(workspace=self.workspace, run_id=run_id, no=no, item=item)
        rows = await runtime.store.interactions(wanted, after=None, limit=1)
        if not rows:
            raise WaitNotFound(id)
        [(row, wait)] = rows
        hidden = (await self._hidden_in([row.run_id]))[row.run_id]
        return interaction_info(row, wait, hidden, to_answer=to_answer)

    # ------------------------------------------------------------ having a task

    async def claim(self, interaction_id: str, by: str) -> InteractionInfo:
        """Take a task for one person: nobody else can answer it until they let go.

        Raises `Forbidden` where they may not answer it, `TaskTaken` where somebody else has it, `AlreadyAnswered`.
        """
        return await self._hand(interaction_id, "claim", by)

    async def release(self, interaction_id: str, by: str) -> InteractionInfo:
        """Let go of a task that *by* has claimed."""
        return await self._hand(interaction_id, "release", by)

    async def assign(
        self, interaction_id: str, *, assignee: str | None = None, group: str | None = None, reason: str = ""
    ) -> InteractionInfo:
        """Give a task to others: these alone may answer it from now on. A claim on it ends."""
        run_id, no, item = _interaction(interaction_id)
        change = Amend(assigns=True, assignee=_person(assignee, "assignee"), group=_person(group, "group"))
        reply = await self._submit(
            ChangeWait(
                workspace=self.workspace,
                actor=self.actor,
                run_id=run_id,
                no=no,
                item=item,
                change=change,
                reason=check_reason(reason),
            )
        )
        raise_unchanged(reply, interaction_id)
        return await self.interaction(interaction_id)

    async def _hand(self, id: str, action: Literal["claim", "release"], by: str) -> InteractionInfo:
        run_id, no, item = _interaction(id)
        runtime = await self._open()
        reply = await self._submit(
            HandTask(
                workspace=self.workspace,
                actor=self.actor,
                run_id=run_id,
                no=no,
                item=item,
                action=action,
                by=check_text(by, "by"),
                groups=await groups_of(runtime, by),
            )
        )
        raise_unchanged(reply, id)
        return await self.interaction(id)


def _place_of(found: tuple[Interaction, Wait]) -> tuple[str, int, int]:
    return found[0].run_id, found[0].no, found[0].item


def _has_fields(row: Interaction) -> bool:
    """Whether there is anything in it that could have a name, and be hidden by it."""
    return any("{" in text for text in (row.payload, row.answers, row.answer) if text is not None)


def raise_unchanged(reply: object, id: str) -> None:
    """An error for a reply that says that nothing was changed."""
    match reply:
        case Unknown():
            raise WaitNotFound(id)
        case Denied():
            raise Forbidden(id, reply.reason)
        case Conflicting():
            raise TaskTaken(id, reply.reason)
        case Done(changed=False):
            if reply.reason == "cancelled":
                raise WaitNotFound(id, "cancelled")
            raise AlreadyAnswered(id, reply.reason)


def named_by(target: Any) -> tuple[RunId, int, int | None] | None:
    """The run, wait and item that an id names; None for a signal id."""
    if not is_name(target):
        raise WaitNotFound(str(target)[:200])
    if target.startswith("int_"):
        return _interaction(target)
    if target.startswith("wait_"):
        found = run_of_wait(target)
        if found is None:
            raise WaitNotFound(target)
        return (*found, None)
    if target.startswith("run_"):
        raise BadInput(f"{target!r} is a run; answer one of its interactions or waits, or signal it")
    return None


def _interaction(id: Any) -> tuple[RunId, int, int]:
    found = run_of_interaction(id) if is_name(id) else None
    if found is None:
        raise WaitNotFound(str(id)[:200])
    return found


def _person(name: str | None, what: str) -> str | None:
    return check_text(name, what) if name is not None else None
