"""Which commands share a batch, and which wait for the one under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bide.core.commands import AnyCommand, Deliver, Offer
from bide.core.records import RunId
from bide.engine.committer import ENOUGH, Committer
from bide.engine.ports import wall_clock
from bide.stores.interface import Executed
from bide.stores.memory import MemoryStore


class Doors(MemoryStore):
    """A store in which every batch stands before a door until the test opens it."""

    def __init__(self, at_once: int) -> None:
        super().__init__(now=wall_clock)
        self.batches_at_once = at_once
        self.batches: list[tuple[Sequence[AnyCommand], asyncio.Event]] = []
        self.foreseen: list[RunId] = []

    def foresee(self, run_id: RunId) -> bool:
        self.foreseen.append(run_id)
        return True

    async def execute(self, commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
        door = asyncio.Event()
        self.batches.append((commands, door))
        await door.wait()
        return await super().execute(commands, offer)


def signal(run: int, no: int = 0) -> Deliver:
    run_id = RunId(f"run_{run}")
    return Deliver(
        workspace="default", target=run_id, run_id=run_id, signal_id=f"msg_{no}", name="paid", payload="{}", digest=""
    )


async def passes() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def under(store: Doors) -> tuple[Committer, list[asyncio.Future[Any]], Any]:
    committer = Committer(store, 1000)
    tasks: list[asyncio.Future[Any]] = []

    def send(*commands: Deliver) -> None:
        tasks.extend(committer.submit(command) for command in commands)

    return committer, tasks, send


async def everything(store: Doors, committer: Committer, tasks: list[asyncio.Future[Any]]) -> None:
    while not all(task.done() for task in tasks):
        for _, door in store.batches:
            door.set()
        await passes()
    assert committer.is_idle


async def test_a_command_alone_is_committed_at_once_and_the_next_ones_wait_together() -> None:
    store = Doors(2)
    committer, tasks, send = under(store)
    send(signal(1))
    await passes()
    send(signal(2), signal(3))
    await passes()

    assert [len(commands) for commands, _ in store.batches] == [1]
    await everything(store, committer, tasks)
    assert [len(commands) for commands, _ in store.batches] == [1, 2]


async def test_a_second_batch_goes_out_where_enough_commands_of_other_runs_wait() -> None:
    store = Doors(2)
    committer, tasks, send = under(store)
    send(signal(0))
    await passes()
    send(*(signal(run) for run in range(1, ENOUGH + 1)))
    await passes()

    assert [len(commands) for commands, _ in store.batches] == [1, ENOUGH]
    await everything(store, committer, tasks)


async def test_where_two_batches_may_be_under_way_each_takes_half_of_what_waits() -> None:
    """There is something to make ready while the server is at the other."""
    store = Doors(2)
    committer, tasks, send = under(store)
    send(signal(0))
    await passes()
    send(*(signal(run) for run in range(1, 4 * ENOUGH + 1)))
    await passes()

    assert [len(commands) for commands, _ in store.batches] == [1, 2 * ENOUGH]
    store.batches[0][1].set()
    await passes()
    assert [len(commands) for commands, _ in store.batches] == [1, 2 * ENOUGH, ENOUGH]
    await everything(store, committer, tasks)
    assert sum(len(commands) for commands, _ in store.batches) == 4 * ENOUGH + 1


async def test_a_run_is_in_one_batch_at_a_time_so_that_its_commands_keep_their_order() -> None:
    store = Doors(2)
    committer, tasks, send = under(store)
    send(signal(0, 1))
    await passes()
    send(signal(0, 2), *(signal(run) for run in range(1, 2 * ENOUGH)), signal(0, 3))
    await passes()
    await everything(store, committer, tasks)

    order = [c.signal_id for commands, _ in store.batches for c in commands if c.run_id == "run_0"]  # type: ignore[union-attr]
    assert order == ["msg_1", "msg_2", "msg_3"]
    for commands, _ in store.batches[:2]:
        assert sum(c.run_id == "run_0" for c in commands) <= 1  # type: ignore[union-attr]


async def test_a_store_that_works_in_this_process_has_one_batch_at_a_time() -> None:
    store = Doors(1)
    committer, tasks, send = under(store)
    send(signal(0))
    await passes()
    send(*(signal(run) for run in range(1, 3 * ENOUGH)))
    await passes()

    assert [len(commands) for commands, _ in store.batches] == [1]
    await everything(store, committer, tasks)
    assert [len(commands) for commands, _ in store.batches] == [1, 3 * ENOUGH - 1]


async def test_a_store_may_read_for_a_signal_that_is_being_made_ready_unless_a_batch_is_under_way() -> None:
    store = Doors(at_once=1)
    committer, tasks, send = under(store)
    await committer.foresee(RunId("run_1"))
    send(signal(1))
    await passes()
    await committer.foresee(RunId("run_2"))
    await everything(store, committer, tasks)
    assert store.foreseen == ["run_1"]
