"""Requests: interactions that go out over a transport and come back, one or very many for one wait (U1–U9, U15).

The counts of a wait's interactions are a row of their own (`Unit`); no rule ever reads all interactions of a wait. What
is not handed to a transport yet is `pending`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.batch import Draft
from bide.core.exchanging import INTERACTION_API, MoreItems, NewRequest, Terms, correlation_id, terms_of
from bide.core.moves import close_wait, wake
from bide.core.records import OPEN_WAIT, Chore, Interaction, Run, Unit, Wait

# ---------------------------------------------------------------- opening


def add(draft: Draft, run: Run, wait: Wait, new: NewRequest) -> Run:
    """Give a wait interactions; the outbox is written in the same commit (U7)."""
    terms, unit = terms_of(wait), unit_of(draft, wait)
    for no, payload in enumerate(new.payloads, start=new.first):
        if no >= unit.expected:
            unit = open_item(draft, run, wait, terms, unit, no, payload)
    if new.is_last and not unit.filled:
        unit = replace(unit, filled=True)
    return settle(draft, run, wait, unit)


def add_more(draft: Draft, run: Run, more: MoreItems) -> Run:
    wait = draft.wait(run.id, more.no)
    return add(draft, run, wait, more.request) if wait is not None and wait.status in OPEN_WAIT else run


def unit_of(draft: Draft, wait: Wait) -> Unit:
    return draft.unit((wait.run_id, wait.no)) or Unit(run_id=wait.run_id, no=wait.no)


def open_item(draft: Draft, run: Run, wait: Wait, terms: Terms, unit: Unit, item: int, payload: str) -> Unit:
    """One interaction more: to be sent by the outbox, unless being listed is all there is to it."""
    is_listed = terms.transport == INTERACTION_API
    row = Interaction(
        workspace=run.workspace,
        run_id=run.id,
        no=wait.no,
        item=item,
        status="waiting" if is_listed else "pending",
        opened_at=draft.now,
        definition=run.definition,
        step=wait.key,
        correlation_id=correlation_id(terms.nonce, run.id, wait.key, wait.no, item),
        payload=payload,
        transport=terms.transport,
        channel=terms.channel,
        assignee=terms.assignee,
        group=terms.group,
    )
    draft.outside.interactions[(run.id, wait.no, item)] = row
    if not is_listed and unit.handed == unit.expected and has_room(terms, unit):
        draft.chores[dispatch_id(wait)] = dispatch(draft, run, wait)
    deadline = terms.deadline(draft.now) if terms.items else None
    known = draft.wait(wait.run_id, wait.no)
    if deadline is not None and known is not None and known.due_at is None:
        draft.put_wait(replace(known, due_at=deadline))
    return draft.put_unit(replace(unit, expected=unit.expected + 1, handed=unit.handed + is_listed))


def dispatch_id(wait: Wait, item: int | None = None) -> str:
    return f"dispatch:{wait.id}" if item is None else f"dispatch:{wait.id}:{item}"


def dispatch(draft: Draft, run: Run, wait: Wait, item: int | None = None) -> Chore:
    return Chore(
        id=dispatch_id(wait, item),
        run_id=run.id,
        kind="dispatch",
        data=msgspec.json.encode({"no": wait.no, "item": item}).decode(),
        due_at=draft.now,
        workspace=run.workspace,
    )


def has_room(terms: Terms, unit: Unit) -> bool:
    """Whether one more may be unanswered (U15)."""
    return terms.max_pending is None or unit.handed - unit.received < terms.max_pending


# ---------------------------------------------------------------- ending items


def settle(draft: Draft, run: Run, wait: Wait, unit: Unit) -> Run:
    """Put the counts away; complete the wait when nothing more can come (U6)."""
    before = draft.unit((wait.run_id, wait.no))
    draft.put_unit(unit)
    terms = terms_of(wait)
    if unit.filled and unit.handed >= unit.expected and not unit.dispatched:
        unit = draft.put_unit(replace(unit, dispatched=True))
        run = draft.record(run, "await_unit_dispatch_complete", {**counts(wait, unit), "status": wait.status})
    if before is not None and unit.handed < unit.expected and not has_room(terms, before) and has_room(terms, unit):
        draft.chores[dispatch_id(wait)] = dispatch(draft, run, wait)  # those behind it get their turn
    if unit.filled and unit.received == unit.expected and terms.items:
        wait = draft.wait(wait.run_id, wait.no) or wait
        answer = msgspec.json.encode({"wait": wait.no, "items": unit.expected}).decode()
        run = close_wait(draft, run, wait, "completed", "items", answer=answer, told=counts(wait, unit))
        if run.style != "pipeline" and run.status == "waiting":
            run = wake(draft, run, wait, wait.key)
    return run


def counts(wait: Wait, unit: Unit) -> dict[str, Any]:
    return {"wait": wait.no, "step": wait.key, "expected": unit.expected, "completed": unit.received}
