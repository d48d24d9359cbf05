"""What a wait cycle of a machine file costs: as many commits as one of a Python machine."""

from __future__ import annotations

from pathlib import Path

import bide
from bide.authoring.language.walking import Walk
from bide.authoring.workflow.straight import Straight
from bide.authoring.workflow.turn import MOST_IN_A_ROW, WorkflowTurn
from bide.engine.engine import Engine
from bide.testing import world
from tests.support.counting import counted
from tests.support.leftovers import leaving_nothing
from tests.support.staging import client_of, real_store, until

CYCLE = """
machine cycle
    implements
        compute before
            {n: 1}
        compute again
            steps.before.n + 1
        wait for go
            timeout: "1h"
            schema
                n as number, is required
        compute result
            steps.again + steps.go.n
"""


async def test_a_wait_cycle_of_a_machine_file_takes_four_commits(store_url: str, tmp_path: Path) -> None:
    """Start, park, answer, end: what is computed rides in the commit of what comes next."""
    (tmp_path / "cycle.machine").write_text(CYCLE)
    app = bide.App()
    app.load(tmp_path)
    async with real_store(app, store_url) as opened:
        runtime, store = counted(opened)
        async with Engine(runtime) as engine:
            client = client_of(runtime)

            async def is_parked() -> bool:
                return bool(await client.interactions(run_id=run.id)) and not engine.active

            for n in range(5):
                before = store.transactions
                run = await client.start("cycle")
                await until(is_parked)
                [task] = await client.interactions(run_id=run.id)
                await client.answer(task.id, {"n": n})
                assert await run.result() == 2 + n
                assert store.transactions - before == 4
        await runtime.committer.drain()


FAILING = """
machine failing
    responds with
        n as number, is required
    implements
        compute result
            {n: input.n}
"""


async def test_a_turn_of_a_machine_file_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    (tmp_path / "cycle.machine").write_text(CYCLE)
    (tmp_path / "failing.machine").write_text(FAILING)
    app = bide.App()
    app.load(tmp_path)
    async with world(app) as there:
        with leaving_nothing(WorkflowTurn, Straight, Walk):
            run = await there.start("cycle")
            [task] = await there.interactions(run_id=run.id)
            await there.answer(task.id, {"n": 1})
            assert await there.result(run.id) == 3
            failed = await there.start("failing", {"n": "none"})
            assert (await there.get(failed.id)).status == "failed"


LOOP = """
machine loop
    implements
        for each item in input.items, collect: doubled
            compute twice
                item * 2
        compute result
            steps.doubled
"""


async def test_F2_computing_in_a_long_loop_takes_one_commit_and_each_result_is_a_step_of_its_own(
    store_url: str, tmp_path: Path
) -> None:
    """What is only computed needs no task of its own; after some in a row the engine has its turn in between."""
    (tmp_path / "loop.machine").write_text(LOOP)
    app = bide.App()
    app.load(tmp_path)
    items = list(range(2 * MOST_IN_A_ROW + 5))
    async with real_store(app, store_url) as opened:
        runtime, store = counted(opened)
        async with Engine(runtime):
            client = client_of(runtime)
            before = store.transactions
            run = await client.start("loop", {"items": items})
            assert await run.result() == [2 * item for item in items]
            assert store.transactions - before == 2, "the start and the end"
            done = [entry.data["step"] for entry in await client.ledger(run.id) if entry.name == "step_completed"]
            assert done == ["twice", *(f"twice#{n}" for n in range(2, len(items) + 1)), "result"]
        await runtime.committer.drain()
