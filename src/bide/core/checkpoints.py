"""Checkpoints: what one pipeline publishes and others admit as work of their own (U12).

A checkpoint is promised in the commit that reaches it and handed over after that, at least once, by a chore. The key
makes it once: who admitted a key admits it no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from bide.core.batch import Draft
from bide.core.commands import Admission, AdmitCheckpoint, Done, Reply
from bide.core.payloads import canonical, digest
from bide.core.records import FINAL, Chore, DeadLetter, Name, Run
from bide.core.starting import start
from bide.core.streaming import Publication

AT_ONCE = 500
BYTES_AT_ONCE = 1024 * 1024


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """What a chore of the kind `admit` hands over; *to* is the one pipeline that could not take it before."""

    checkpoint: str
    publications: tuple[Publication, ...]
    to: str | None = None


def handoff_of(chore: Chore) -> Handoff:
    return msgspec.json.decode(chore.data, type=Handoff)


# ---------------------------------------------------------------- publishing


def publish(draft: Draft, run: Run, published: Sequence[Publication]) -> Run:
    """Promise to hand these over; they are on record with the commit that came to them."""
    for part in _parts(published):
        checkpoint, items = part[0].checkpoint, [each.item for each in part if each.item is not None]
        told = {"items": items} if items else {"key": part[0].key}
        run = draft.record(run, "checkpoint_published", {"checkpoint": checkpoint, **told})
        _promise(draft, run, f"admit:{run.id}:{run.ledger_seq}", Handoff(checkpoint=checkpoint, publications=part))
    return run


def _parts(published: Sequence[Publication]) -> Iterator[tuple[Publication, ...]]:
    """By checkpoint, and so many that the commit which starts their runs does not grow without bound."""
    for name in dict.fromkeys(each.checkpoint for each in published):
        part: list[Publication] = []
        size = 0
        for each in published:
            if each.checkpoint != name:
                continue
            if part and (len(part) >= AT_ONCE or size + len(each.value) > BYTES_AT_ONCE):
                yield tuple(part)
                part, size = [], 0
            part.append(each)
            size += len(each.value)
        yield tuple(part)


def _promise(draft: Draft, run: Run, id: str, handoff: Handoff) -> None:
    data = msgspec.json.encode(handoff).decode()
    draft.chores[id] = Chore(id=id, run_id=run.id, kind="admit", data=data, due_at=draft.now, workspace=run.workspace)


# ---------------------------------------------------------------- admitting


def admission_name(admission: Admission) -> str:
    """Under which name the key is kept: it counts for one checkpoint and one pipeline of a workspace."""
    known_by = (admission.publication.checkpoint, admission.definition, admission.publication.key)
    return "checkpoint:" + hashlib.sha256(msgspec.json.encode(known_by)).hexdigest()[:40]


def admit(draft: Draft, command: AdmitCheckpoint) -> Reply:
    """Start a run for each key that is new, and keep what its pipeline cannot take, all in the commit that ends the
    chore. A chore that another process has done, or took over, changes nothing."""
    chore = draft.view.outside.chores.get(command.chore.id)
    if chore is None or chore.tries != command.chore.tries:
        return Done(False, "another process took it over")
    draft.chores[chore.id] = None
    counts = {"started": 0, "duplicates": 0, "refused": 0}
    for no, admission in enumerate(command.admissions):
        counts[_admit_one(draft, chore, no, admission)] += 1
    run = draft.run(chore.run_id)
    if run is not None and run.status not in FINAL:
        checkpoint = handoff_of(chore).checkpoint
        draft.record(run, "checkpoint_handed_over", {"checkpoint": checkpoint, **counts})
    return Done(True)


def _admit_one(draft: Draft, chore: Chore, no: int, admission: Admission) -> str:
    name = admission_name(admission)
    if draft.name(chore.workspace, "dedup", name) is not None:
        return "duplicates"
    if admission.start is None:
        _refuse(draft, chore, no, admission)
        return "refused"
    start(draft, admission.start)
    run = draft.run(admission.start.run_id)
    assert run is not None, "it was started"
    publication = admission.publication
    told = {"checkpoint": publication.checkpoint, "key": publication.key, "published_by": chore.run_id}
    if publication.item is not None:
        told["item"] = str(publication.item)
    draft.put_run(draft.record(run, "checkpoint_admitted", told))
    draft.put_name(
        Name(
            workspace=chore.workspace,
            kind="dedup",
            name=name,
            run_id=run.id,
            digest=digest(canonical(msgspec.json.decode(publication.value)))[:32],
            message_id="",
            created_at=draft.now,
        )
    )
    return "started"


def _refuse(draft: Draft, chore: Chore, no: int, admission: Admission) -> None:
    """A dead letter of the pipeline that could not take it: a retry offers it to that pipeline alone."""
    publication = admission.publication
    handoff = Handoff(checkpoint=publication.checkpoint, publications=(publication,), to=admission.definition)
    id = chore.id if handoff_of(chore).to is not None else f"{chore.id}:{no}"
    draft.outside.letters[(chore.workspace, id)] = DeadLetter(
        workspace=chore.workspace,
        id=id,
        run_id=chore.run_id,
        kind="admit",
        data=msgspec.json.encode(handoff).decode(),
        error=admission.refusal,
        tries=chore.tries,
        at=draft.now,
    )
