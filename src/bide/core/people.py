"""Who may answer a wait, and under which name the dedup key of an answer is kept (W11, S7)."""

from __future__ import annotations

import hashlib

import msgspec

from bide.core.batch import Draft
from bide.core.commands import Complete, Denied, Receipt
from bide.core.payloads import digest
from bide.core.records import Name, Run, RunId, Wait, wait_id
from bide.core.requests import Answer


def why_not(
    by: str | None,
    groups: tuple[str, ...],
    *,
    assignee: str | None,
    group: str | None,
    claimed_by: str | None = None,
) -> str | None:
    """Why this person may not answer; None where they may (W11).

    >>> why_not("ann", ("leads",), assignee=None, group="leads") is None
    True
    >>> why_not("bob", (), assignee="ann", group=None)
    'it is for ann, not for bob'
    """
    if not assignee and not group and claimed_by is None:
        return None
    whom = " or ".join([*([assignee] if assignee else []), *([f"group {group}"] if group else [])])
    if by is None:
        return f"it is for {claimed_by or whom}; say who answers with by="
    if claimed_by is not None and claimed_by != by:
        return f"{claimed_by} has claimed it"
    if not whom or by == assignee or (group is not None and group in groups):
        return None
    return f"it is for {whom}, not for {by}"


def deny(draft: Draft, run: Run, wait: Wait, by: str | None, reason: str) -> Denied:
    """Refuse for who they are, with an entry in the ledger (G1)."""
    draft.record(run, "await_answer_denied", {"wait": wait.no, "step": wait.key, "by": by, "reason": reason})
    return Denied(run_id=run.id, wait_id=wait.id, reason=reason)


def dedup_name(command: Answer | Complete) -> str | None:
    """Where the dedup key of an answer is remembered: with its wait, or with its signal id (S7)."""
    if command.dedup_key is None:
        return None
    if isinstance(command, Complete):
        parts = msgspec.json.encode(("complete", command.signal_id, command.dedup_key))
    else:
        parts = msgspec.json.encode(("answer", command.run_id, command.no, command.item or 0, command.dedup_key))
    return hashlib.sha256(parts).hexdigest()[:40]


def admitted_before(draft: Draft, command: Answer | Complete) -> Receipt | None:
    name = dedup_name(command)
    earlier = draft.name(command.workspace, "dedup", name) if name is not None else None
    if earlier is None:
        return None
    # Digests of completions may have been stored of the text as it came, not of its canonical form.
    same = earlier.digest == command.digest or earlier.digest == digest(command.data)[:32]
    return Receipt(
        outcome="duplicate" if same else "conflict",
        run_id=earlier.run_id or None,
        wait_id=_taken_by(draft, command, earlier) if same else None,
        message_id=earlier.message_id,
        duplicate=same,
        reason="duplicate" if same else "dedup_conflict",
    )


def _taken_by(draft: Draft, command: Answer | Complete, earlier: Name) -> str | None:
    """The wait that took the answer, where that is known: another one may have been known by the signal id since."""
    if isinstance(command, Answer):
        return wait_id(command.run_id, command.no)
    wait = draft.wait(earlier.run_id, command.no) if command.run_id == earlier.run_id else None
    return wait.id if wait is not None and wait.closed_at == earlier.created_at else None


def rescued(draft: Draft, command: Answer | Complete, reply: object) -> None:
    """A kept arrival that was taken as an answer is kept no more (S12)."""
    if command.unused_id is not None and isinstance(reply, Receipt) and reply.outcome in ("woke", "queued"):
        draft.unused_deleted.append((command.workspace, command.unused_id))


def remember(draft: Draft, command: Answer | Complete, run_id: RunId) -> None:
    name = dedup_name(command)
    if name is not None:
        draft.put_name(
            Name(
                workspace=command.workspace,
                kind="dedup",
                name=name,
                run_id=run_id,
                digest=command.digest,
                message_id=command.message_id,
                created_at=draft.now,
            )
        )
