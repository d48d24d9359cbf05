"""What the tests of a store are made of: the commands with the least said, and the first steps of most stories."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from bide.core.commands import (
    AnyCommand,
    Cancel,
    Cancelled,
    Committed,
    CommitTurn,
    Consumed,
    Continue,
    Deliver,
    DeliverMany,
    Emit,
    End,
    GiveBack,
    KeepUnused,
    Listening,
    Move,
    NewChild,
    NewWait,
    Offer,
    Park,
    Receipt,
    Release,
    Reply,
    Start,
    Started,
    StartOrSignal,
    Suspend,
    TryAgain,
)
from bide.core.records import Run, RunId, Signal, Turn, Unused, interaction_id
from bide.core.requests import Agenda, Amend, Answer, Beat, ChangeWait, Fail, NewTask, Withdraw
from bide.stores.interface import Executed, Store

WORKSPACE = "default"
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

R = TypeVar("R")

_numbers = count(1)


# ---------------------------------------------------------------- commands


def an_offer(worker: str = "worker-1", **changes: Any) -> Offer:
    """A worker with ten slots that can run the definition `order` and leases for a minute."""
    return replace(Offer(worker=worker, lease=MINUTE, slots=10, definitions=frozenset({"order"})), **changes)


def a_start(run_id: str = "run_1", **changes: Any) -> Start:
    start = Start(
        workspace=WORKSPACE,
        run_id=RunId(run_id),
        definition="order",
        version="1",
        style="machine",
        step="begin",
        input='{"n":1}',
    )
    return replace(start, **changes)


def a_signal(run_id: str = "run_1", name: str = "go", **changes: Any) -> Deliver:
    """A signal to a run. Its id is new each time; the digest stands for the payload."""
    payload = changes.get("payload", "null")
    signal = Deliver(
        workspace=WORKSPACE,
        target=run_id,
        run_id=RunId(run_id),
        signal_id=f"msg_{next(_numbers):06}",
        name=name,
        payload=payload,
        digest=f"of {payload}"[:64],
    )
    return replace(signal, **changes)


def a_signal_by_key(key: str, name: str = "go", **changes: Any) -> Deliver:
    """A signal to whichever run holds a correlation key."""
    return replace(a_signal(key, name, **changes), run_id=None, by_correlation=True)


def a_start_or_signal(run_id: str, key: str, **changes: Any) -> StartOrSignal:
    return StartOrSignal(
        workspace=WORKSPACE,
        start=a_start(run_id, correlation_key=key),
        deliver=a_signal_by_key(key, **changes),
    )


def an_event(id: str = "evt-1", name: str = "order.shipped", data: str = "null", **changes: Any) -> Emit:
    """An event; the digest stands for the data."""
    event = Emit(workspace=WORKSPACE, event_id=id, name=name, data=data, digest=f"of {data}"[:64])
    return replace(event, **changes)


def listening_for(turn: Turn, *patterns: str, timeout: timedelta | None = None, **listening: Any) -> CommitTurn:
    """A workflow's turn that ends in waits for events, each under its pattern as the key."""
    opens = tuple(
        NewWait(key=pattern, kind="event", names=(pattern,), timeout=timeout, listening=Listening(**listening))
        for pattern in patterns
    )
    return replace(a_commit(turn, Suspend()), opens=opens)


def many(*deliveries: Deliver) -> DeliverMany:
    return DeliverMany(workspace=WORKSPACE, deliveries=deliveries)


def a_cancel(run_id: str = "run_1", **changes: Any) -> Cancel:
    return replace(Cancel(workspace=WORKSPACE, run_id=RunId(run_id), reason="enough"), **changes)


def a_release(run_id: str = "run_1", **changes: Any) -> Release:
    return replace(Release(workspace=WORKSPACE, run_id=RunId(run_id)), **changes)


def an_unused(id: str, at: datetime, **changes: Any) -> KeepUnused:
    unused = Unused(
        workspace=WORKSPACE, id=id, run_id="", target="order-7", name="go", payload="null", reason="invalid", at=at
    )
    unused = replace(unused, **changes)
    return KeepUnused(workspace=unused.workspace, unused=unused)


def a_commit(turn: Turn, move: Move, *, used: Iterable[Signal] = (), keep: bool = False) -> CommitTurn:
    run = turn.run
    return CommitTurn(
        workspace=run.workspace,
        actor="worker:worker-1",
        run_id=run.id,
        parent_id=run.parent_id,
        epoch=run.epoch,
        commits=run.commits,
        move=move,
        consumed=tuple(Consumed(signal.seq, signal.id) for signal in used),
        keep=keep,
    )


def a_give_back(turn: Turn, **changes: Any) -> GiveBack:
    return replace(GiveBack(workspace=turn.run.workspace, run_id=turn.run.id, epoch=turn.run.epoch), **changes)


def going_on(step: str = "next", state: str = "{}") -> Continue:
    return Continue(step=step, state=state)


def waiting_for(*names: str, **changes: Any) -> Park:
    return replace(Park(step="told", state="{}", names=names), **changes)


def joining(*children: NewChild, **changes: Any) -> Park:
    return replace(Park(step="joined", state="{}", children=children, joins=True), **changes)


def a_child(run_id: str, **changes: Any) -> NewChild:
    child = NewChild(run_id=RunId(run_id), definition="order", version="1", style="machine", step="begin", input="{}")
    return replace(child, **changes)


def redoing(delay: timedelta = timedelta(0)) -> TryAgain:
    return TryAgain(state='{"tried":1}', delay=delay)


def ending(**changes: Any) -> End:
    return replace(End(status="completed", result='"done"'), **changes)


# ---------------------------------------------------------------- the first steps of a story


async def reply_to(store: Store, command: AnyCommand, offer: Offer | None = None) -> Reply:
    """The reply to one command on its own."""
    [reply] = (await store.execute([command], offer)).replies
    return reply


async def started(store: Store, run_id: str = "run_1", **changes: Any) -> Run:
    """A run that is ready, and that no worker has."""
    return told(Started, await reply_to(store, a_start(run_id, **changes))).run


async def running(store: Store, run_id: str = "run_1", *, offer: Offer | None = None, **changes: Any) -> Turn:
    """The first turn of a new run, in the hands of a worker."""
    done = await store.execute([a_start(run_id, **changes)], offer or an_offer())
    return done.turns[RunId(run_id)]


async def parked(store: Store, run_id: str = "run_1", *names: str, park: Park | None = None, **changes: Any) -> Run:
    """A run that waits, for a signal `go` unless told otherwise."""
    turn = await running(store, run_id, **changes)
    return told(Committed, await reply_to(store, a_commit(turn, park or waiting_for(*(names or ("go",)))))).run


async def ended(store: Store, run_id: str = "run_1", **changes: Any) -> Run:
    turn = await running(store, run_id, **changes)
    return told(Committed, await reply_to(store, a_commit(turn, ending()))).run


async def cancelled(store: Store, run_id: str = "run_1") -> Run:
    return told(Cancelled, await reply_to(store, a_cancel(run_id))).run


async def woken(store: Store, run_id: str = "run_1", name: str = "go", **changes: Any) -> Turn:
    """The turn that a signal leads to, handed to the worker in the commit of the signal."""
    done = await store.execute([a_signal(run_id, name, **changes)], an_offer())
    return done.turns[RunId(run_id)]


async def row(store: Store, run_id: str = "run_1", workspace: str = WORKSPACE) -> Run:
    run = await store.run(workspace, run_id)
    assert run is not None, f"there is no run {run_id} in {workspace}"
    return run


def a_question(key: str = "gate", payload: str = "null", agenda: Agenda | None = None, **changes: Any) -> NewWait:
    """A task that a workflow opens."""
    return NewWait(key=key, kind="task", task=NewTask(payload=payload), agenda=agenda, **changes)


async def asking(store: Store, *questions: NewWait, run_id: str = "run_1", **changes: Any) -> Run:
    """A workflow that is parked on these tasks, one unless told otherwise."""
    turn = await running(store, run_id, style="workflow", step="body", **changes)
    suspend = replace(a_commit(turn, Suspend()), opens=questions or (a_question(),))
    return told(Committed, await reply_to(store, suspend)).run


def an_answer(
    data: str = "true", by: str | None = None, *, run_id: str = "run_1", no: int = 1, **changes: Any
) -> Answer:
    command = Answer(
        workspace=WORKSPACE,
        run_id=RunId(run_id),
        no=no,
        item=0,
        target=interaction_id(run_id, no, 0),
        message_id=f"msg_{by}_{data}",
        data=data,
        digest=data,
        by=by,
    )
    return replace(command, **changes)


def a_change(change: Amend | Fail | Withdraw | Beat, *, run_id: str = "run_1", no: int = 1) -> ChangeWait:
    return ChangeWait(workspace=WORKSPACE, run_id=RunId(run_id), no=no, change=change, reason="because")


# ---------------------------------------------------------------- looking at replies


def told(kind: type[R], reply: Reply) -> R:
    """The reply, which must be of this kind."""
    assert isinstance(reply, kind), f"expected {kind.__name__}, got {reply!r}"
    return reply


def outcomes(done: Executed) -> list[str]:
    return [told(Receipt, reply).outcome for reply in done.replies]


def kinds(done: Executed) -> list[str]:
    return [type(reply).__name__ for reply in done.replies]
