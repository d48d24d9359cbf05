"""The audit finds waits that nothing would end, on every store (D11, I11): each mutant forgets when to look at one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import bide
from bide.core.batch import Draft
from bide.core.records import Wait
from bide.testing import world

put_wait = Draft.put_wait


def an_app() -> bide.App:
    app = bide.App()

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> Any:
            return bide.Await("paid", then="end", timeout="1h", on_timeout="end")

        def end(self, ctx: bide.Context[Any]) -> Any:
            return bide.Done(True)

    return app


def never(deadline: datetime) -> datetime | None:
    """No moment is noted at which somebody looks."""
    return None


def too_late(deadline: datetime) -> datetime | None:
    """Somebody looks, an hour after the deadline."""
    return deadline + timedelta(hours=1)


async def left_by(mutant: Callable[[datetime], datetime | None], store_url: str, found: list[Any]) -> None:
    def put(draft: Draft, wait: Wait) -> Wait:
        if wait.status == "waiting" and wait.deadline is not None:
            wait = replace(wait, due_at=mutant(wait.deadline))
        return put_wait(draft, wait)

    async with world(an_app(), store_url) as there:
        whole = await there.start("order")
        assert await there.runtime.store.audit() == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Draft, "put_wait", put)
            broken = await there.start("order")
        found.extend(await there.runtime.store.audit())
        await there.advance("1h")
        assert ((await there.get(whole.id)).status, (await there.get(broken.id)).status) == ("completed", "waiting")
        assert {violation.id for violation in found} == {broken.id}


@pytest.mark.parametrize("mutant", [never, too_late])
async def test_a_wait_that_nobody_looks_at_by_its_deadline_breaks_i11(
    store_url: str, mutant: Callable[[datetime], datetime | None]
) -> None:
    found: list[Any] = []
    with pytest.raises(AssertionError, match="the store breaks its invariants"):  # a world asks at its end, too
        await left_by(mutant, store_url, found)
    [violation] = found
    said = "wait 1 has a deadline, and nobody would look at it by then"
    assert (violation.invariant, violation.detail) == ("I11", said)
