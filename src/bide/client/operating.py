"""What operators do: to open waits, one by one or by filter (W10, W13), and to dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack

from msgspec.structs import replace

from bide.authoring.checks import check_choice, check_limit, check_text, is_name
from bide.authoring.machine import definition_name, encode
from bide.client.answering import check_reason
from bide.client.cursors import after_moment, moment
from bide.client.door import PAGE, began_before
from bide.client.paging import read_page
from bide.client.tasks import Tasks, _person, raise_unchanged
from bide.core.agenda import terms
from bide.core.answering import foreseen
from bide.core.commands import Done, Receipt, Unknown
from bide.core.durations import BadDuration, Duration, Timeout, parse_timeout
from bide.core.exchanging import sending
from bide.core.records import DeadLetter, RunId, Wait, run_of_interaction, run_of_wait
from bide.core.requests import Amend, Beat, ChangeWait, Fail, SettleDeadLetter, Withdraw
from bide.errors import BadInput, Conflict, DeadLetterNotFound, Forbidden, PolicyDenied, WaitNotFound
from bide.stores.interface import WaitFilter
from bide.views import DeadLetterInfo, Page, WaitInfo, WaitOutcome, WaitsChanged, dead_letter_info, wait_info

AT_ONCE = 200
ALL = 1_000_000_000  # of what a dispatch was to send
UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "(as it is)"})()


class Where(TypedDict, total=False):
    """Which open waits are meant."""

    run_id: str | None
    definition: Any
    kind: str | None
    channel: str | None
    assignee: str | None
    group: str | None
    older_than: Duration | None


class Operating(Tasks):
    # ------------------------------------------------------------ one wait

    async def wait(self, id: str) -> WaitInfo:
        """One wait as it stands. Raises `WaitNotFound`."""
        run_id, no = _wait(id)
        runtime = await self._open()
        wanted = WaitFilter(workspace=self.workspace, run_id=run_id, no=no, status=None)
        rows = await runtime.store.waits(wanted, after=None, limit=1)
        if not rows:
            raise WaitNotFound(id)
        return wait_info(rows[0])

    async def update_wait(
        self,
        id: str,
        *,
        deadline: Timeout | None = UNCHANGED,
        assignee: str | None = UNCHANGED,
        group: str | None = UNCHANGED,
        reason: str = "",
    ) -> WaitInfo:
        """Move the deadline of an open wait, or give it to others.

        A *deadline* that is a duration counts from now; None takes it away. With *assignee* or *group* these alone may
        answer. Raises `WaitNotFound`, and `AlreadyAnswered` where it has ended.
        """
        run_id, no = _wait(id)
        await self._change(id, run_id, no, _amend(deadline, assignee, group), reason)
        return await self.wait(id)

    async def fail_wait(self, id: str, reason: str) -> None:
        """End an open wait as failed: a workflow gets `WaitFailedError` with the reason, a pipeline fails.

        By the id of an interaction of a wait over items: that item alone is rejected, and the others go on.
        """
        await self._change(id, *_wait(id), Fail(), needed(reason))

    async def cancel_wait(self, id: str, reason: str) -> None:
        """End an open wait as cancelled: the run gets `WaitCancelledError` with the reason."""
        await self._change(id, *_wait(id), Withdraw(), needed(reason))

    async def heartbeat(self, id: str) -> None:
        """Say that whoever works on a wait with `heartbeat=` is alive; silence fails it."""
        await self._change(id, *_wait(id), Beat(), "")

    async def _change(self, id: str, run_id: RunId, no: int, change: Any, reason: str) -> None:
        runtime, named = await self._open(), run_of_interaction(id)
        command = self._command(run_id, no, change, check_reason(reason))
        if named is not None:
            command = replace(command, item=named[2], message_id=runtime.ports.message_id())
        raise_unchanged(await self._submit(command), id)

    def _command(self, run_id: RunId, no: int, change: Any, reason: str) -> ChangeWait:
        return ChangeWait(
            workspace=self.workspace, actor=self.actor, run_id=run_id, no=no, change=change, reason=reason
        )

    # ------------------------------------------------------------ many waits

    async def update_waits(
        self,
        *,
        reason: str,
        deadline: Timeout | None = UNCHANGED,
        to_assignee: str | None = UNCHANGED,
        to_group: str | None = UNCHANGED,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        """Move or reassign every open wait that the filter finds.

        The filter is `run_id`, `definition`, `kind`, `channel`, `assignee`, `group` or `older_than`; at least one. With
        *dry_run* nothing is changed: the ids say what would be.
        """
        return await self._change_all(_amend(deadline, to_assignee, to_group), reason, dry_run, where)

    async def fail_waits(self, *, reason: str, dry_run: bool = False, **where: Unpack[Where]) -> WaitsChanged:
        """Fail every open wait that the filter finds, as `update_waits` finds them."""
        return await self._change_all(Fail(), reason, dry_run, where)

    async def cancel_waits(self, *, reason: str, dry_run: bool = False, **where: Unpack[Where]) -> WaitsChanged:
        """Cancel every open wait that the filter finds, as `update_waits` finds them."""
        return await self._change_all(Withdraw(), reason, dry_run, where)

    async def answer_waits(
        self,
        data: Any = None,
        *,
        reason: str,
        by: str | None = None,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        """Give every open wait that the filter finds the same answer, as `update_waits` finds them.

        Each takes it or refuses it for itself, and the others go on: `outcomes` has what became of each, `ids` those
        that took it. With *dry_run* nobody is answered: `ids` are the waits that the data fits.
        """
        runtime = await self._open()
        text = encode(data, runtime.settings.max_payload_bytes, "the answer")
        needed(check_reason(reason))
        check_where(where)
        wanted = await self._where(where)
        if dry_run:
            rows = [row async for page in self._pages(wanted) for row in page]
            return would_take([(row.id, row.kind, row.names, terms(row)) for row in rows], text)

        async def answer(id: str) -> Receipt:
            return await self.answer(id, data, by, reason=reason, check=False)

        return await answer_each([row.id async for page in self._pages(wanted) for row in page], answer, AT_ONCE)

    async def _change_all(self, change: Any, reason: str, dry_run: bool, where: Where) -> WaitsChanged:
        needed(check_reason(reason))
        check_where(where)
        # All are found first: a run that goes on may open a wait that the filter would find too.
        found = [(row.id, row.run_id, row.no) async for page in self._pages(await self._where(where)) for row in page]
        if dry_run:
            return WaitsChanged(ids=tuple(id for id, _, _ in found), dry_run=True)
        changed: list[str] = []
        for at in range(0, len(found), AT_ONCE):
            some = found[at : at + AT_ONCE]
            commands = [self._command(run_id, no, change, reason) for _, run_id, no in some]
            replies = await asyncio.gather(*map(self._submit, commands))
            done = zip(some, replies, strict=True)
            changed += [id for (id, _, _), reply in done if isinstance(reply, Done) and reply.changed]
        return WaitsChanged(ids=tuple(changed))

    async def _pages(self, wanted: WaitFilter) -> AsyncIterator[Sequence[Wait]]:
        runtime = await self._open()
        after: tuple[str, int] | None = None
        while True:
            rows = await runtime.store.waits(wanted, after=after, limit=AT_ONCE)
            if rows:
                yield rows
            if len(rows) < AT_ONCE:
                return
            after = (rows[-1].run_id, rows[-1].no)

    async def _where(self, where: Where) -> WaitFilter:
        given: dict[str, Any] = {name: value for name, value in where.items() if value is not None}
        before = await began_before(await self._open(), given.pop("older_than", None))
        if "definition" in given:
            given["definition"] = definition_name(given["definition"])
        texts: dict[str, Any] = {name: check_text(value, name) for name, value in given.items()}
        return WaitFilter(workspace=self.workspace, opened_before=before, **texts)

    # ------------------------------------------------------------ dead letters

    async def dead_letters(self, *, cursor: str | None = None, limit: int = PAGE) -> Page[DeadLetterInfo]:
        """What bide stopped retrying, oldest first."""
        runtime = await self._open()

        async def read(after: tuple[datetime, str] | None, limit: int) -> Sequence[DeadLetter]:
            return await runtime.store.dead_letters(self.workspace, after=after, limit=limit)

        rows, last = await read_page(read, after_moment(cursor), check_limit(limit), lambda row: (row.at, row.id))
        following = moment(last.at, last.id) if last is not None else None
        return Page([dead_letter_info(row) for row in rows], following)

    async def retry_dead_letter(self, id: str) -> None:
        """Try it again from the start. Raises `DeadLetterNotFound`; `Conflict` for what could never succeed."""
        await self._settle_letter(id, "retry")

    async def discard_dead_letter(self, id: str) -> None:
        """Give it up. What it was to send counts as declined by the outside. Raises `DeadLetterNotFound`."""
        await self._settle_letter(id, "discard")

    async def _settle_letter(self, id: str, action: Literal["retry", "discard"]) -> None:
        if not is_name(id):
            raise DeadLetterNotFound(str(id)[:200])
        letter = await self._letter(id)
        no, items = await self._unsent(letter) if letter is not None and action == "discard" else (0, ())
        reply = await self._submit(
            SettleDeadLetter(
                workspace=self.workspace,
                actor=self.actor,
                # locked while the letter is settled, so that two who settle it see each other
                run_id=letter.run_id if letter is not None else RunId(""),
                id=id,
                action=action,
                no=no,
                items=items,
            )
        )
        if isinstance(reply, Unknown):
            raise DeadLetterNotFound(id)
        if isinstance(reply, Done) and letter is not None and letter.kind == "poison" and not reply.changed:
            raise Conflict(f"{id} cannot be retried: {reply.reason}")

    async def _unsent(self, letter: DeadLetter) -> tuple[int, tuple[int, ...]]:
        """The wait and the items that a dispatch was to send."""
        if letter.kind != "dispatch":
            return 0, ()
        about, store = sending(letter.data), (await self._open()).store
        if about.item is not None:
            return about.no, (about.item,)
        return about.no, tuple([row.item for row in await store.pending(letter.run_id, about.no, limit=ALL)])

    async def _letter(self, id: str) -> DeadLetter | None:
        store = (await self._open()).store
        after: tuple[datetime, str] | None = None
        while rows := await store.dead_letters(self.workspace, after=after, limit=1000):
            found = next((row for row in rows if row.id == id), None)
            if found is not None:
                return found
            after = (rows[-1].at, rows[-1].id)
        return None


def _amend(deadline: Any, assignee: Any, group: Any) -> Amend:
    moves = deadline is not UNCHANGED
    assigns = assignee is not UNCHANGED or group is not UNCHANGED
    if not moves and not assigns:
        raise BadInput("nothing is to be changed: give deadline=, assignee= or group=")
    return Amend(
        moves=moves,
        deadline=check_deadline(deadline) if moves else None,
        assigns=assigns,
        assignee=_person(assignee, "assignee") if assignee is not UNCHANGED else None,
        group=_person(group, "group") if group is not UNCHANGED else None,
    )


def check_deadline(deadline: Any) -> timedelta | datetime | None:
    """A deadline as it is kept; None where there is none."""
    try:
        return parse_timeout(deadline)
    except BadDuration as error:
        raise BadInput(f"deadline={deadline!r}: {error}") from error


Open = tuple[str, str, Sequence[str], Mapping[str, Any]]  # id, kind, names and details of an open wait


def would_take(waits: Iterable[Open], data: str) -> WaitsChanged:
    """The waits that an answer fits; and what is wrong with it, of those that it does not fit."""
    wrong = {id: foreseen(id, kind, names, details, data) for id, kind, names, details in waits}
    outcomes = [
        WaitOutcome(id=id, outcome="invalid", reason="; ".join(problems), problems=tuple(problems))
        for id, problems in wrong.items()
        if problems
    ]
    return WaitsChanged(
        ids=tuple(id for id, problems in wrong.items() if not problems), dry_run=True, outcomes=tuple(outcomes)
    )


async def answer_each(ids: Sequence[str], answer: Callable[[str], Awaitable[Receipt]], at_once: int) -> WaitsChanged:
    """Answer each of these waits, whatever becomes of the others; so many at once."""

    async def outcome_of(id: str) -> WaitOutcome:
        try:
            receipt = await answer(id)
        except (Forbidden, PolicyDenied) as error:
            return WaitOutcome(id=id, outcome="denied", reason=str(error))
        return WaitOutcome(id=id, outcome=receipt.outcome, reason=receipt.reason, problems=receipt.problems)

    outcomes: list[WaitOutcome] = []
    for at in range(0, len(ids), at_once):
        outcomes += await asyncio.gather(*map(outcome_of, ids[at : at + at_once]))
    taken = tuple(one.id for one in outcomes if one.outcome in ("woke", "queued"))
    return WaitsChanged(ids=taken, outcomes=tuple(outcomes))


def check_where(where: Where) -> None:
    """Whoever changes many waits says which."""
    for name in where:
        check_choice(name, tuple(Where.__annotations__), "filter")
    if not {name: value for name, value in where.items() if value is not None}:
        raise BadInput("which waits are meant? give at least one of run_id, definition, channel, older_than, …")


def needed(reason: Any) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise BadInput("say why, with reason=: it goes into the ledger, and to the run")
    return reason


def _wait(id: Any) -> tuple[RunId, int]:
    """The run and number of a wait, by its id or that of one of its interactions."""
    if is_name(id):
        item = run_of_interaction(id)
        found = item[:2] if item is not None else run_of_wait(id)
        if found is not None:
            return found
    raise WaitNotFound(str(id)[:200])
