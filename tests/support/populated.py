"""A store with one run of each kind, made by plain commands, for tests that damage its rows or look at its files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bide.core.commands import (
    AnyCommand,
    CommitTurn,
    Consumed,
    Continue,
    Deliver,
    End,
    Failed,
    Move,
    NewChild,
    Offer,
    Park,
    Start,
)
from bide.core.records import RunId, Turn
from bide.stores.interface import Store

WORKSPACE = "main"
HOUR = timedelta(hours=1)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.moment = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, by: timedelta) -> None:
        self.moment += by


def start(run_id: str, **changes: Any) -> Start:
    values: dict[str, Any] = {"definition": "order", "version": "1", "style": "machine", "step": "begin", "input": "{}"}
    return Start(workspace=WORKSPACE, run_id=RunId(run_id), **{**values, **changes})


def deliver(run_id: str, name: str, id: str, payload: str = "{}") -> Deliver:
    return Deliver(
        workspace=WORKSPACE,
        target=run_id,
        run_id=RunId(run_id),
        signal_id=id,
        name=name,
        payload=payload,
        digest="d",
    )


def commit(turn: Turn, move: Move, consumed: tuple[Consumed, ...] = ()) -> CommitTurn:
    run = turn.run
    return CommitTurn(
        workspace=WORKSPACE,
        run_id=run.id,
        parent_id=run.parent_id,
        epoch=run.epoch,
        commits=run.commits,
        move=move,
        consumed=consumed,
    )


def offer(slots: int) -> Offer:
    return Offer(worker="w1", lease=HOUR, slots=slots, definitions=frozenset({"order", "item"}))


def child(run_id: str) -> NewChild:
    return NewChild(run_id=RunId(run_id), definition="item", version="1", style="machine", step="begin", input="{}")


async def turns_of(store: Store, *commands: AnyCommand) -> Mapping[str, Turn]:
    executed = await store.execute(commands, offer(slots=len(commands)))
    assert not [reply for reply in executed.replies if isinstance(reply, Failed)]
    return {str(run_id): turn for run_id, turn in executed.turns.items()}


async def populate(store: Store) -> None:
    """One run of each kind: parked, running, ready, done, and a parent whose first child has ended."""
    begun = await turns_of(
        store,
        start("run_parked", correlation_key="order-1"),
        start("run_running"),
        start("run_done"),
        start("run_parent"),
    )
    children = (child("run_child_1"), child("run_child_2"))
    spawned = await turns_of(
        store,
        commit(begun["run_parked"], Park(step="paid", state="{}", names=("payment",), timeout=HOUR)),
        commit(begun["run_done"], Park(step="go", state="{}", names=("go",))),
        commit(begun["run_parent"], Park(step="joined", state="{}", joins=True, children=children)),
    )
    ended = await turns_of(store, commit(spawned["run_child_1"], End(status="completed", result="1")))
    assert ended == {}
    woken = await turns_of(store, deliver("run_parked", "chat", "sig_chat"), deliver("run_done", "go", "sig_go"))
    going = await turns_of(
        store, commit(woken["run_done"], Continue(step="end", state="{}"), (Consumed(seq=1, id="sig_go"),))
    )
    await turns_of(store, commit(going["run_done"], End(status="completed", result="true")))
    await store.execute([start("run_ready")])
