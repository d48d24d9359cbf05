"""A world is a client that settles: all of its methods, with all of their parameters (contract §12)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import bide
from bide.client import Client
from bide.testing import World, world
from tests.support.worlds import no_free_worker

LOOKING = {"get", "runs", "wait", "waits", "explain", "inbox", "steps", "progress", "ledger", "interaction"}
LOOKING |= {"interactions", "dead_letters", "unused", "result"}

METHODS = {
    name: method
    for name, method in inspect.getmembers(Client, inspect.isfunction)
    if not name.startswith("_") and name not in ("close", "aclose")
}


@pytest.mark.parametrize("name", METHODS)
def test_a_world_has_every_method_and_parameter_of_a_client(name: str) -> None:
    mine = dict(inspect.signature(getattr(World, name)).parameters)
    settle = mine.pop("settle", None)
    theirs = inspect.signature(METHODS[name]).parameters
    assert list(mine.values()) == list(theirs.values())
    assert (settle is None) == (name in LOOKING), "what changes something can be told not to settle"
    if settle is not None:
        assert (settle.default, settle.kind) == (True, inspect.Parameter.KEYWORD_ONLY)


app = bide.App("shop")


@app.workflow("order")
async def order(step: bide.Step) -> Any:
    return (await step.receive("paid", "paid", timeout="1h")).payload


@app.workflow("task")
async def task(step: bide.Step) -> bool:
    return await step.ask("gate", title="Ship it?", form=bool, timeout="1h", heartbeat="10m")


async def test_a_result_takes_a_timeout_and_time_stands_still(store_url: str) -> None:
    async with world(app, store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.RunTimeoutError):
            await there.result(run.id, timeout="30s")
        await there.signal(run.id, "paid", 7)
        assert await there.result(run.id, timeout="30s") == 7


async def test_a_world_explains_a_run(store_url: str) -> None:
    async with world(app, store_url) as there:
        run = await there.start("order")
        assert "for the signal 'paid'" in (await there.explain(run.id)).explanation[0]


async def test_S11_a_signal_joins_a_transaction_of_the_test(store_url: str) -> None:
    if store_url.startswith("memory"):
        pytest.skip("the memory store has no transactions of callers")
    async with world(app, store_url) as there:
        run = await there.start("order")
        if store_url.startswith("sqlite"):
            async with there.connection() as connection:
                receipt = await there.signal(run.id, "paid", 7, connection=connection)
        else:
            import asyncpg

            from bide.stores.postgres.address import parse

            address = parse(there.runtime.settings.store)
            connection = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
            try:
                async with connection.transaction():
                    receipt = await there.signal(run.id, "paid", 7, connection=connection)
            finally:
                await connection.close()
        assert receipt.outcome == "deferred"
        await there.settle()
        assert await there.result(run.id) == 7


async def test_what_is_told_not_to_settle_leaves_the_run_where_it_is(store_url: str) -> None:
    async with world(app, store_url) as there:
        first = await there.start("order", correlation_key="order:1")
        second = await there.start("order")
        with no_free_worker(there):
            await there.signal_many([bide.SignalTo(second.id, "paid", 1)], settle=False)
            await there.start_or_signal("order", correlation_key="order:1", name="paid", settle=False)
            assert {(await there.get(run.id)).status for run in (first, second)} == {"ready"}
        await there.settle()
        assert {(await there.get(run.id)).status for run in (first, second)} == {"completed"}


async def test_an_operator_may_not_settle_either(store_url: str) -> None:
    async with world(app, store_url) as there:
        ids = [(await there.start("task")).id for _ in range(4)]
        [wait] = await there.waits(run_id=ids[0])
        with no_free_worker(there):
            await there.heartbeat(wait.id, settle=False)
            await there.update_wait(wait.id, assignee="ann", settle=False)
            await there.fail_waits(run_id=ids[1], reason="closed", settle=False)
            await there.cancel_waits(run_id=ids[2], reason="closed", settle=False)
            changed = await there.update_waits(run_id=ids[0], deadline="2h", reason="late", settle=False)
            assert changed.ids == (wait.id,)
            await there.answer_waits(True, run_id=ids[3], reason="by phone", settle=False)
            assert {(await there.get(id)).status for id in ids[1:]} == {"ready"}
        await there.settle()
        assert [(await there.get(id)).status for id in ids] == ["waiting", "failed", "failed", "completed"]
