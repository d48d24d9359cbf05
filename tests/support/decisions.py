"""Rows made by hand, for tests of pure decisions: a view, the commands of one batch, and what came of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import (
    Cancel,
    CommitTurn,
    Consumed,
    Continue,
    Deliver,
    End,
    FireTimer,
    Move,
    Offer,
    Park,
    TryAgain,
)
from bide.core.records import Run, RunId, Signal, Wait

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN = RunId("run_1")
HOUR = timedelta(hours=1)
WORKER = Offer(worker="w-1", lease=timedelta(seconds=30), slots=10, definitions=frozenset({"order"}))


def running(**changes: Any) -> Run:
    """A run whose step runs now, under its first claim."""
    run = Run(
        workspace="default",
        id=RUN,
        definition="order",
        version="1",
        style="machine",
        status="running",
        step="begin",
        state="{}",
        input="{}",
        created_at=NOW,
        updated_at=NOW,
        ready_at=NOW,
        epoch=1,
        claims=1,
    )
    return replace(run, **changes)


def parked(**changes: Any) -> Run:
    """A run that is parked on its first wait."""
    return running(**{"status": "waiting", "wait_no": 1, "parked_on": 1, "open_waits": (1,), "claims": 0} | changes)


def waiting_for(*names: str, due_in: timedelta | None = HOUR, **changes: Any) -> Wait:
    """The first wait of the run, open."""
    deadline = NOW + due_in if due_in is not None else None
    wait = Wait(
        workspace="default",
        run_id=RUN,
        no=1,
        key="told",
        kind="signals",
        status="waiting",
        opened_at=NOW - HOUR,
        names=names,
        deadline=deadline,
        due_at=deadline,
    )
    return replace(wait, **changes)


def arrived(seq: int, name: str = "go", payload: str = "null") -> Signal:
    return Signal(
        workspace="default", run_id=RUN, seq=seq, id=f"msg_{seq}", name=name, payload=payload, received_at=NOW
    )


def view_of(*rows: Run | Wait | Signal, offer: Offer | None = None) -> View:
    """What a store would have loaded under lock."""
    view = View(NOW, offer)
    for row in rows:
        match row:
            case Run():
                view.runs[row.id] = row
            case Wait():
                view.waits[(row.run_id, row.no)] = row
            case Signal():
                view.inbox.setdefault(row.run_id, {})[row.seq] = row
    for run in list(view.runs.values()):
        there = view.inbox.get(run.id, {})
        view.runs[run.id] = replace(run, inbox_count=len(there), inbox_seq=max(there, default=run.inbox_seq))
    view.loaded()
    return view


# ---------------------------------------------------------------- commands


def signal(id: str = "msg_new", name: str = "go", dedup_key: str | None = None, **changes: Any) -> Deliver:
    command = Deliver(
        workspace="default",
        target=RUN,
        run_id=RUN,
        signal_id=id,
        name=name,
        payload="null",
        digest="of null",
        dedup_key=dedup_key,
    )
    return replace(command, **changes)


def by_key(key: str, holder: RunId | None, id: str = "msg_new", dedup_key: str | None = None) -> Deliver:
    """A signal to a correlation key that *holder* held when it was looked up."""
    return signal(id, target=key, run_id=holder, by_correlation=True, dedup_key=dedup_key)


def commit(move: Move, *consumed: Signal, epoch: int = 1, commits: int = 0, keep: bool = False) -> CommitTurn:
    return CommitTurn(
        workspace="default",
        actor="worker:w-1",
        run_id=RUN,
        parent_id=None,
        epoch=epoch,
        commits=commits,
        move=move,
        consumed=tuple(Consumed(row.seq, row.id) for row in consumed),
        keep=keep,
    )


def park(*names: str, seen: tuple[int, ...] = (), timeout: timedelta | datetime | None = None) -> Park:
    return Park(step="told", state="{}", names=names, seen=seen, timeout=timeout)


def go_on() -> Continue:
    return Continue(step="next", state="{}")


def redo(delay: timedelta = timedelta(0)) -> TryAgain:
    return TryAgain(state="{}", delay=delay)


def end() -> End:
    return End(status="completed", result="null")


def fire(no: int = 1) -> FireTimer:
    return FireTimer(workspace="", run_id=RUN, no=no)


def cancel(**changes: Any) -> Cancel:
    return replace(Cancel(workspace="default", run_id=RUN, reason="enough"), **changes)
