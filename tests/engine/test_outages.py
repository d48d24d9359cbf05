"""What a store that is away for a moment may and may not do to a process that goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import bide
from bide.core.commands import AnyCommand, CommitTurn, Failed, Hold, Offer
from bide.core.streaming import FinishItems
from bide.errors import StoreUnavailable
from bide.stores.interface import Executed
from bide.testing import world

Ctx = bide.Context[Any]


def working_app(calls: Counter[str]) -> bide.App:
    app = bide.App()

    def charge(*_: Any) -> str:
        calls["charged"] += 1
        return "charged"

    @app.machine("machine")
    class Machine:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Next:
            charge()
            return bide.Next("end")

        async def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(["charged"])

    @app.workflow("workflow")
    async def workflow(step: bide.Step) -> list[str]:
        return [await step.run("charge", charge), await step.run("tell", lambda: "told")][:1]

    app.pipeline("pipeline").expand(lambda count: range(1)).map(charge).collect(list)
    return app


@pytest.mark.parametrize("kind", ["machine", "workflow", "pipeline"])
async def test_D2_an_outcome_that_met_an_outage_in_a_part_of_its_batch_is_committed_when_the_store_is_back(
    kind: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a store that had applied the other part answers for this one. User code does not run again, a lease later."""
    calls: Counter[str] = Counter()
    async with world(working_app(calls), store=store_url) as w:
        execute, missed = w.runtime.store.execute, list[AnyCommand]()

        async def away_for_a_moment(commands: Sequence[AnyCommand], offer: Offer | None = None) -> Executed:
            if missed or not any(_brings_the_outcome(command, kind) for command in commands):
                return await execute(commands, offer)
            missed.extend(commands)
            return Executed(replies=[Failed(StoreUnavailable("gone for a moment")) for _ in commands])

        monkeypatch.setattr(w.runtime.store, "execute", away_for_a_moment)
        run = await w.start(kind, 1)
        assert missed
        assert await w.result(run.id) == ["charged"]
        assert calls == {"charged": 1}


def _brings_the_outcome(command: AnyCommand, kind: str) -> bool:
    match kind:
        case "pipeline":
            return isinstance(command, FinishItems)
        case "workflow":
            return isinstance(command, CommitTurn) and isinstance(command.move, Hold)
        case _:
            return isinstance(command, CommitTurn)
