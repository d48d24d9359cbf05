"""Answers that come before their wait: kept for the first wait of their signal id, for as long as was asked (F7).

The name of the signal id says that an answer is held; the answer itself is in a chore that is due when its time is up.
Whoever opens a wait of that id, and whoever finds the time up, takes both away in one commit: so it is used once, or
kept with its reason (S12), and never both.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from bide.core.batch import Draft
from bide.core.commands import Complete, Done, Receipt, Reply
from bide.core.durations import deadline_after
from bide.core.moves import TELLING_APART
from bide.core.people import dedup_name, remember
from bide.core.records import NO_RUN, Chore, Name, RunId, Unused
from bide.core.requests import LetGo

HELD = "held"


class HeldAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer and who gave it, as a chore of the kind `hold` keeps it."""

    signal_id: str
    message_id: str
    data: str
    digest: str
    at: datetime
    until: datetime
    actor: str
    verdict: str = ""
    why: str = ""
    by: str | None = None
    groups: tuple[str, ...] = ()
    only_run: RunId | None = None
    dedup: str | None = None  # under which name its dedup key is remembered


def chore_id(workspace: str, signal_id: str) -> str:
    """No two ids of any two workspaces share one.

    >>> chore_id("a:b", "c"), chore_id("a", "b:c")
    ('hold:3:a:b:c', 'hold:1:a:b:c')
    """
    return f"hold:{len(workspace)}:{workspace}:{signal_id}"


def is_held(name: Name) -> bool:
    return name.kind == "signal" and name.run_id == NO_RUN


def chores_of(names: Iterable[Name | None]) -> set[str]:
    """The chores that keep the answers which are held under some of these names."""
    return {chore_id(name.workspace, name.name) for name in names if name is not None and is_held(name)}


def held_in(chore: Chore) -> HeldAnswer:
    return msgspec.json.decode(chore.data, type=HeldAnswer)


def held_under(draft: Draft, name: Name) -> HeldAnswer | None:
    """The answer that a name tells of; None where a rival has just taken it away."""
    chore = draft.chore(chore_id(name.workspace, name.name))
    held = held_in(chore) if chore is not None else None
    return held if held is not None and held.message_id == name.message_id else None


def hold(draft: Draft, command: Complete, known: Name | None) -> Receipt:
    """Keep an answer that no wait is open for. *known* is what the signal id was used for before."""
    assert command.hold is not None, "only who asks for it has an answer held"
    at = max(draft.now, known.created_at + TELLING_APART) if known is not None else draft.now
    held = HeldAnswer(
        signal_id=command.signal_id,
        message_id=command.message_id,
        data=command.data,
        digest=command.digest,
        at=draft.now,
        until=deadline_after(draft.now, command.hold),
        actor=command.actor,
        verdict=command.verdict,
        why=command.reason,
        by=command.by,
        groups=command.groups,
        only_run=command.only_run,
        dedup=dedup_name(command),
    )
    name = Name(
        workspace=command.workspace,
        kind="signal",
        name=command.signal_id,
        run_id=NO_RUN,
        digest=HELD,
        message_id=command.message_id,
        created_at=at,
    )
    if known is None:
        draft.put_name(name)
    else:
        draft.replace_name(name, known)
    id = chore_id(command.workspace, command.signal_id)
    draft.chores[id] = Chore(
        id=id,
        run_id=NO_RUN,
        kind="hold",
        data=msgspec.json.encode(held).decode(),
        due_at=held.until,
        workspace=command.workspace,
    )
    remember(draft, command, NO_RUN)
    return Receipt(outcome="queued", message_id=command.message_id)


def hand_over(draft: Draft, workspace: str, held: HeldAnswer, run_id: RunId) -> None:
    """A run has the answer: what is remembered of it goes with that run from now on."""
    draft.chores[chore_id(workspace, held.signal_id)] = None
    if held.dedup is not None:
        known = Name(
            workspace=workspace,
            kind="dedup",
            name=held.dedup,
            run_id=NO_RUN,
            digest=held.digest,
            message_id=held.message_id,
            created_at=held.at,
        )
        draft.replace_name(msgspec.structs.replace(known, run_id=run_id), known)


def keep_unused(draft: Draft, workspace: str, held: HeldAnswer, reason: str, run_id: RunId = NO_RUN) -> None:
    """Nobody had any use for the answer: an operator may (S12). Its sender may send it again, under the same key."""
    draft.chores[chore_id(workspace, held.signal_id)] = None
    if held.dedup is not None:
        draft.drop_name(workspace, "dedup", held.dedup)
    draft.unused.append(
        Unused(
            workspace=workspace,
            id=held.message_id,
            run_id=run_id,
            target=held.signal_id,
            name=held.signal_id,
            payload=held.data,
            reason=reason,
            at=draft.now,
        )
    )


def expire(draft: Draft, workspace: str, held: HeldAnswer) -> None:
    """No wait came in time: the signal id is free again."""
    keep_unused(draft, workspace, held, "expired")
    name = draft.name(workspace, "signal", held.signal_id)
    if name is not None and is_held(name) and name.message_id == held.message_id:
        draft.drop_name(workspace, "signal", held.signal_id)


def let_go(draft: Draft, command: LetGo) -> Reply:
    """The time of a chore that belongs to no run is up: of a held answer, or of an idempotency key."""
    chore = draft.chore(command.chore.id)
    if chore is None or chore.tries != command.chore.tries:  # a key that was used anew has another under the same id
        return Done(False, "it was taken")
    if chore.kind == "forget":
        draft.chores[chore.id] = None
        draft.drop_name(chore.workspace, "dedup", chore.data)
        return Done(True)
    held = held_in(chore)
    if held.until > draft.now:
        return Done(False, "it is held still")
    expire(draft, chore.workspace, held)
    return Done(True)
