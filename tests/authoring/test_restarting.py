"""Loops without end, and runs that are launched and let go (F14)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bide
from bide.testing import world
from tests.support.worlds import ledger_names, no_free_worker


async def test_F14_a_restart_clears_the_steps_and_keeps_the_inbox(store_url: str) -> None:
    app, calls = bide.App(), list[int]()

    @app.workflow("rounds")
    async def rounds(step: bide.Step, left: int) -> str | bide.Restart:
        await step.run("count", calls.append, left)
        message = await step.receive("next", "next", timeout="1d")
        if left:
            return bide.Restart(left - 1)
        return str(message.payload)

    async with world(app, store=store_url) as there:
        run = await there.start("rounds", 2, correlation_key="k")
        for payload in ("a", "b", "c"):
            await there.signal("k", "next", payload, settle=False)
        await there.settle()
        assert await there.result(run.id) == "c"
        assert calls == [2, 1, 0]
        assert (await ledger_names(there, run.id)).count("run_restarted") == 2


async def test_F14_two_hundred_restarts_keep_the_stored_steps_bounded(store_url: str) -> None:
    app, most = bide.App(), list[int]()

    @app.workflow("loop")
    async def loop(step: bide.Step, left: int) -> int | bide.Restart:
        await step.run("work", lambda: None)
        await step.uuid(f"id-{left}")
        await step.sleep("pause", "1s")
        most.append(len(step._turn._stored))
        return bide.Restart(left - 1) if left else 0

    async with world(app, store_url) as there:
        run = await there.start("loop", 200)
        await there.advance("201s")
        assert await there.result(run.id) == 0
        assert max(most) == 4  # and the count of its lives
        assert (await there.get(run.id)).attempt == 0


async def test_F14_the_row_that_counts_lives_is_no_step_that_anybody_sees(store_url: str) -> None:
    app = bide.App()

    @app.workflow("loop")
    async def loop(step: bide.Step, life: int) -> bide.Restart:
        await step.run("work", lambda: None)
        await step.sleep("pause", "1h")
        return bide.Restart(life + 1)

    async with world(app, store_url) as there:
        run = await there.start("loop", 1)
        await there.advance("1h")
        assert (await there.get(run.id)).state == 2
        assert [step.id for step in await there.steps(run.id)] == ["work"]
        over_http = (await there.http().get(f"/v1/runs/{run.id}/steps")).json()
        assert [step["id"] for step in over_http["items"]] == ["work"]


async def test_F14_a_restart_withdraws_open_waits_and_a_crash_changes_nothing(store_url: str) -> None:
    app = bide.App()

    @app.workflow("leaves")
    async def leaves(step: bide.Step, round: int) -> int | bide.Restart:
        task = asyncio.create_task(step.wait_for_signal("gate", signal="a", timeout="1d"))
        await step.receive("go", "go", timeout="1d")
        del task
        return bide.Restart(round + 1) if round < 2 else round

    async with world(app, store=store_url) as there:
        run = await there.start("leaves", 0)
        for _ in range(3):
            assert len(await there.waits(run_id=run.id)) == 2
            there.crash_at("body", "after_commit")
            await there.signal(run.id, "go")
        assert await there.result(run.id) == 2
        with pytest.raises(bide.NoTarget):
            await there.complete("a")


async def test_law_13_a_signal_that_was_taken_and_not_seen_before_a_restart_is_there_after_it(store_url: str) -> None:
    app = bide.App()

    @app.workflow("keeps")
    async def keeps(step: bide.Step, is_first: bool) -> Any:
        if not is_first:
            return (await step.receive("late", "late", timeout="1d")).payload
        task = asyncio.create_task(step.receive("late", "late", timeout="1d"))
        await step.receive("go", "go", timeout="1d")
        del task
        return bide.Restart(False)

    async with world(app, store=store_url) as there:
        run = await there.start("keeps", True)
        with no_free_worker(there):
            await there.signal(run.id, "go", settle=False)
            assert (await there.signal(run.id, "late", 7, settle=False)).outcome == "woke"
        await there.settle()
        assert await there.result(run.id) == 7


async def test_F14_a_restart_with_an_input_that_does_not_fit_fails_the_run(store_url: str) -> None:
    app = bide.App()

    @app.workflow("typed")
    async def typed(step: bide.Step, round: int) -> bide.Restart:
        return bide.Restart("two")

    async with world(app, store_url) as there:
        info = await there.get((await there.start("typed", 1)).id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert info.error.code == "BadInput"


# ---------------------------------------------------------------- launch


def launching() -> bide.App:
    app = bide.App()

    @app.workflow("mail")
    async def mail(step: bide.Step, to: str) -> str:
        await step.wait_for_signal("sent", signal=f"sent-{to}", timeout="1d")
        return f"sent to {to}"

    @app.workflow("order")
    async def order(step: bide.Step) -> str:
        launched = await step.launch("mail", mail, "ann", correlation_key="mail:ann", tags={"kind": "mail"})
        await step.receive("end", "end", timeout="1d")
        return launched

    return app


async def test_F14_a_launched_run_is_started_once_and_outlives_the_one_that_launched_it(store_url: str) -> None:
    async with world(launching(), store=store_url) as there:
        run = await there.start("order")
        [launched] = await there.runs(definition="mail")
        await there.crash()
        await there.cancel(run.id)
        assert (await there.get(launched.id)).status == "waiting"
        assert (launched.tags, launched.correlation_key) == ({"kind": "mail"}, "mail:ann")
        await there.complete("sent-ann")
        assert await there.result(launched.id) == "sent to ann"
        other = await there.start("order")
        await there.signal(other.id, "end")
        assert {run.id for run in await there.runs(definition="mail")} == {launched.id, await there.result(other.id)}


async def test_F14_a_launch_under_a_key_that_is_held_raises_in_the_body(store_url: str) -> None:
    async with world(launching(), store=store_url) as there:
        holder = await there.start("mail", "bob", correlation_key="mail:ann")
        info = await there.get((await there.start("order")).id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert holder.id in info.error.message
        assert len(await there.runs(definition="mail")) == 1


async def test_F14_a_launch_of_what_is_not_there_or_does_not_fit_starts_nothing(store_url: str) -> None:
    app = launching()

    @app.workflow("wrong", retries=0)
    async def wrong(step: bide.Step, case: int) -> str:
        cases: list[dict[str, Any]] = [
            {"definition": "nobody"},
            {"definition": "mail", "input": 7},
            {"definition": "mail", "input": "x", "correlation_key": "run_1"},
            {"definition": "mail", "input": "x", "queue": ""},
        ]
        return await step.launch("x", **cases[case])

    async with world(app, store_url) as there:
        for case in range(4):
            assert (await there.get((await there.start("wrong", case)).id)).status == "failed"
        assert not await there.runs(definition="mail")
