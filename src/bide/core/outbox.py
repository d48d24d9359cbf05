"""The outbox: what a commit promises to tell others, and what becomes of it (U7).

A chore is written in the commit that gives rise to it and done after it, at least once: claimed with a lease,
repeated with growing pauses, and kept as a dead letter when it failed as often as it may.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from bide.core.asking import asked_in
from bide.core.batch import Draft
from bide.core.commands import Done, Reply, Unknown
from bide.core.durations import deadline_after
from bide.core.interactions import INTERACTING
from bide.core.records import FINAL, Chore, DeadLetter, Run, Wait, interaction_id
from bide.core.replying import decline_unsent, unsent
from bide.core.requests import KeepPoison, SettleChore, SettleDeadLetter
from bide.core.streams import item_of_letter, settle_item

Cause = Literal["opened", "reminder", "escalated"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a chore of the kind `notify` says: who is to be told of which wait, and why."""

    notifier: str
    no: int
    cause: Cause


def notify(draft: Draft, run: Run, wait: Wait, cause: Cause, nth: int = 0) -> None:
    """Promise to tell the wait's notifier, if it has one."""
    notifier = asked_in(wait).notify
    if notifier is None:
        return
    id = f"notify:{wait.id}:{cause}:{nth}"
    notice = Notice(notifier=notifier, no=wait.no, cause=cause)
    draft.chores[id] = Chore(
        id=id,
        run_id=run.id,
        kind="notify",
        data=msgspec.json.encode(notice).decode(),
        due_at=draft.now,
        workspace=run.workspace,
    )


def notice_of(chore: Chore) -> Notice:
    return msgspec.json.decode(chore.data, type=Notice)


def told_id(wait: Wait) -> str:
    """The id that a notifier is given: that of the interaction, where the wait has one."""
    return interaction_id(wait.run_id, wait.no, 0) if wait.kind in INTERACTING else wait.id


def settle_chore(draft: Draft, command: SettleChore) -> Reply:
    """Record what came of one try. A try whose lease ran out, and that another process took over, counts no more."""
    chore = draft.view.outside.chores.get(command.chore.id)
    if chore is None or chore.tries != command.chore.tries:
        return Done(False, "another process took it over")
    entry = {"chore": chore.id, "kind": chore.kind, "tries": chore.tries}
    match command.outcome:
        case "done":
            draft.chores[chore.id] = None
            _note(draft, chore, "chore_done", entry)
        case "dropped":
            draft.chores[chore.id] = None
        case "again":
            draft.chores[chore.id] = replace(chore, due_at=deadline_after(draft.now, command.delay))
        case "dead":
            draft.chores[chore.id] = None
            draft.outside.letters[(chore.workspace, chore.id)] = DeadLetter(
                workspace=chore.workspace,
                id=chore.id,
                run_id=chore.run_id,
                kind=chore.kind,
                data=chore.data,
                error=command.error,
                tries=chore.tries,
                at=draft.now,
            )
            _note(draft, chore, "chore_dead", {**entry, "error": command.error})
    return Done(True)


def _note(draft: Draft, chore: Chore, name: str, data: dict[str, object]) -> None:
    """In the ledger of the run, as long as that goes on."""
    run = draft.run(chore.run_id)
    if run is not None and run.status not in FINAL:
        draft.record(run, name, data)


def keep_poison(draft: Draft, command: KeepPoison) -> Reply:
    """The same record again is the same dead letter."""
    draft.outside.letters[(command.workspace, command.id)] = DeadLetter(
        workspace=command.workspace,
        id=command.id,
        run_id=command.run_id,
        kind="poison",
        data=msgspec.json.encode(command.text).decode(),
        error=command.reason,
        tries=1,
        at=draft.now,
    )
    return Done(True)


def settle_letter(draft: Draft, command: SettleDeadLetter) -> Reply:
    letter = draft.view.outside.letters.get((command.workspace, command.id))
    if letter is None:
        return Unknown(command.id)
    if letter.kind == "poison" and command.action == "retry":
        return Done(False, "it can never be an answer; discard it")
    draft.outside.letters[(letter.workspace, letter.id)] = None
    item = item_of_letter(letter.id)
    if item is not None:
        return Done(settle_item(draft, *item, command.action))
    chore = Chore(
        id=letter.id,
        run_id=letter.run_id,
        kind=letter.kind,  # type: ignore[arg-type]  # it was the kind of a chore
        data=letter.data,
        due_at=draft.now,
        workspace=letter.workspace,
    )
    entry: dict[str, object] = {"chore": letter.id, "kind": letter.kind}
    if command.action == "retry":
        draft.chores[letter.id] = chore
        _note(draft, chore, "chore_retried", entry)
    else:
        rows = unsent(draft, command)
        _note(draft, chore, "chore_discarded", {**entry, "declined": len(rows)} if rows else entry)
        decline_unsent(draft, command, rows, f"it could not be sent: {letter.error}")
    return Done(True)
