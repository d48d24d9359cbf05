"""Redaction: what a definition hides is used, and never shown (G4)."""

from __future__ import annotations

import logging
from typing import Any, TypedDict

import msgspec
import pytest

import bide
from bide.testing import World, world

CANARY = "4111-canary-1111"
NUMBER = 73519


class Card(TypedDict):
    card: str
    ok: bool


def secretive() -> bide.App:
    app = bide.App()

    @app.workflow("pay", redact=["card"], retries=0)
    async def pay(step: bide.Step, order: dict[str, Any]) -> Any:
        await step.run("charge", lambda: {"card": order["card"], "sum": 5})
        answer = await step.wait_for_signal("bank", signal=f"bank-{step.run_id}", timeout="1h", returns=Card)
        got = await step.receive("more", "more", timeout="1h")
        if not answer["ok"]:
            raise ValueError(f"{answer['card']} and {got.payload['card']} were refused")
        return {"card": answer["card"], "paid": True}

    @app.machine("order", redact=("card",), retries=0)
    class Order:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end", state=ctx.state)

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            card = ctx.awaited[0].payload["card"]
            if ctx.awaited[0].payload.get("bad"):
                raise ValueError(f"no such card: {card}")
            return bide.Done({"card": card})

    return app


async def everything_shown(there: World, run_id: str) -> str:
    """All that a person can look at."""
    seen: list[Any] = [await there.get(run_id), await there.ledger(run_id), await there.inbox(run_id)]
    seen += [await there.waits(run_id=run_id, status=None), await there.runs()]
    seen += [await there.client().steps(run_id), await there.client().interactions(run_id=run_id)]
    return repr(seen) + msgspec.json.encode(await there.ledger(run_id)).decode()


@pytest.mark.parametrize("ok", [True, False])
async def test_G4_what_a_workflow_hides_is_never_shown(
    store_url: str, ok: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world(secretive(), store=store_url) as there:
        run = await there.start("pay", {"card": CANARY, "item": 7})
        await there.signal(run.id, "more", {"card": NUMBER})
        with pytest.raises(bide.BideError):
            await there.complete(f"bank-{run.id}", {"card": CANARY, "ok": CANARY})
        assert CANARY not in await everything_shown(there, run.id)
        await there.complete(f"bank-{run.id}", {"card": CANARY, "ok": ok})
        shown = await everything_shown(there, run.id)
        if ok:
            assert await there.result(run.id) == {"card": CANARY, "paid": True}
        else:
            with pytest.raises(bide.RunFailedError) as failed:
                await there.result(run.id)
            shown += str(failed.value)
            assert "were refused" in shown
        assert CANARY not in shown
        assert str(NUMBER) not in shown
        assert CANARY not in caplog.text
        assert await there.audit() == []


async def test_G4_what_a_machine_hides_is_used_and_never_shown(store_url: str) -> None:
    async with world(secretive(), store=store_url) as there:
        good, bad = await there.start("order", {"card": CANARY}), await there.start("order", {})
        await there.signal(good.id, "paid", {"card": CANARY})
        await there.signal(bad.id, "paid", {"card": CANARY, "bad": True})
        assert await there.result(good.id) == {"card": CANARY}
        assert "no such card: [redacted]" in str((await there.get(bad.id)).error)
        for run in (good, bad):
            assert CANARY not in await everything_shown(there, run.id)


async def test_G4_a_retried_run_and_a_child_hide_the_same(store_url: str) -> None:
    app = secretive()

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        return await step.invoke("child", "order", {"card": CANARY})

    async with world(app, store=store_url) as there:
        bad = await there.start("order", {"card": CANARY})
        await there.signal(bad.id, "paid", {"card": CANARY, "bad": True})
        again = await there.retry(bad.id)
        await there.start("parent")
        [child] = [run for run in await there.runs() if run.parent_id is not None]
        for run_id in (again.id, child.id):
            assert CANARY not in await everything_shown(there, run_id)


@pytest.mark.parametrize("names", ["card", ["a,b"], [""], [7]])
def test_G4_names_that_cannot_be_hidden_are_refused_at_registration(names: Any) -> None:
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="redact"):

        @app.workflow("pay", redact=names)
        async def pay(step: bide.Step) -> None: ...
