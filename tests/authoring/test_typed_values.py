"""What a workflow is handed is of the type that was declared, in every replay: results of children, and payloads of
signals (F1, F12, F14, F17, S13)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import bide
from bide.core.payloads import encode_payload
from bide.testing import world


@dataclass
class Bill:
    total: int
    note: str | None = None


class Invoice(msgspec.Struct):
    total: int


class Ticket(TypedDict):
    total: int


class Model(pydantic.BaseModel):
    total: int


VALUES: dict[Any, Any] = {
    Bill: Bill(7, "late"),
    Invoice: Invoice(7),
    Ticket: {"total": 7},
    Model: Model(total=7),
    list[Bill]: [Bill(7), Bill(8)],
    dict[str, Invoice]: {"a": Invoice(7)},
    Bill | None: None,
    Any: {"total": 7},
}
every_type = pytest.mark.parametrize("type_", VALUES)


def stored(value: Any) -> Any:
    return json.loads(encode_payload(value, max_bytes=1000))


@every_type
async def test_F14_invoke_gives_what_the_child_says_it_returns(store_url: str, type_: Any) -> None:
    """F1, F14: in the first turn as in every replay; by name it is the JSON that is stored."""
    app = bide.App()
    seen: list[Any] = []

    async def made(step: bide.Step) -> Any:
        return VALUES[type_]

    made.__annotations__["return"] = type_
    child = app.workflow("child")(made)

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        seen.append(await step.invoke("typed", child))
        await step.sleep("night", "8h")
        return await step.invoke("plain", "child")

    async with world(app, store_url) as w:
        run = await w.start("parent")
        await w.advance("8h")
        assert await w.result(run.id) == stored(VALUES[type_])
        assert len(seen) > 1
        assert [(type(one), one) for one in seen] == [(type(VALUES[type_]), VALUES[type_])] * len(seen)


async def test_F17_a_childs_result_that_is_not_what_it_says_holds_the_parent(store_url: str) -> None:
    """F17: it goes on after a fix."""
    app = bide.App()

    @app.workflow("child")
    async def child(step: bide.Step) -> Bill:
        return {"total": "many"}  # type: ignore[return-value]  # as a child of an older version may have

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        return await step.invoke("child", child)

    async with world(app, store_url) as w:
        run = await w.start("parent")
        found = await w.get(run.id)
        assert (found.status, found.held) == ("ready", "history_mismatch")
        [why] = [entry.data["reason"] for entry in await w.ledger(run.id) if entry.name == "run_held"]
        assert "which step 'child' invoked" in why
        assert "$.total" in why
        child.returns = dict[str, str]
        await w.retry(run.id)
        assert await w.result(run.id) == {"total": "many"}


# ---------------------------------------------------------------- signals


def taking(type_: Any, seen: list[Any], *, lists: bool, by_name: bool) -> bide.App:
    """A workflow that is handed the same payload in every way there is, and twice."""
    app = bide.App()
    given = bide.Signal("given", type_)
    wanted: Any = "given" if by_name else given

    @app.workflow("takes", signals=[given] if lists else [])
    async def takes(step: bide.Step) -> None:
        looked = [each.payload for each in await step.inbox() if each.name == "given"]
        one = await step.receive("one", wanted, timeout="1h")
        won = await step.first("won", step.receive("first", wanted, timeout="1h"), step.sleep("patience", "1h"))
        both = await step.all("all", step.receive("all", wanted, timeout="1h"), step.receive("b", "b", timeout="1h"))
        pack = await step.receive_all("pack", wanted, at_least=2, timeout="1h")
        payloads = [one, won.value, both[0], *pack]
        assert {type(each) for each in payloads} == {bide.Received}
        seen.append((looked if lists else [], [each.payload for each in payloads]))
        await step.sleep("night", "8h")

    return app


@every_type
@pytest.mark.parametrize(("lists", "by_name"), [(False, False), (True, False), (True, True)])
async def test_S13_the_payload_of_a_declared_signal_is_of_its_type(
    store_url: str, type_: Any, lists: bool, by_name: bool
) -> None:
    """S13, F12: where the signal is given, and where the definition lists it, as machines have it."""
    seen: list[Any] = []
    value = VALUES[type_]
    async with world(taking(type_, seen, lists=lists, by_name=by_name), store_url) as w:
        run = await w.start("takes", delay="1m")
        for _ in range(5):
            await w.signal(run.id, "given", value)
        await w.signal(run.id, "b")
        await w.advance("1m")
        await w.advance("8h")
        assert (await w.get(run.id)).status == "completed"
        assert len(seen) > 1
        for looked, payloads in seen:
            for each in (*looked, *payloads):
                assert (type(each), each) == (type(value), value)
            assert (len(looked), len(payloads)) == (5 if lists else 0, 5)


async def test_S13_names_without_a_type_take_any_json(store_url: str) -> None:
    """S13: also beside one that has one."""
    app = bide.App()
    paid = bide.Signal("paid", Bill)

    @app.workflow("takes")
    async def takes(step: bide.Step) -> Any:
        pack = await step.receive_all("pack", paid, "left", bide.Signal("gone"), at_least=3, timeout="1h")
        return {each.name: type(each.payload).__name__ for each in pack}

    async with world(app, store_url) as w:
        run = await w.start("takes")
        for name in ("paid", "left", "gone"):
            await w.signal(run.id, name, {"total": 7})
        assert await w.result(run.id) == {"paid": "Bill", "left": "dict", "gone": "dict"}


async def test_S13_a_payload_that_is_not_of_the_given_type_is_an_error_of_that_wait(store_url: str) -> None:
    """Nobody has looked at it before, for the definition does not list the signal; the body may catch it."""
    app = bide.App()
    paid = bide.Signal("paid", Bill)

    @app.workflow("takes")
    async def takes(step: bide.Step) -> Any:
        try:
            return (await step.receive("gate", paid, timeout="1h")).payload
        except bide.AnswerRefusedError as error:
            await step.sleep("night", "8h")
            return [error.reason, (await step.receive("again", paid, timeout="1h")).payload.total]

    async with world(app, store_url) as w:
        run = await w.start("takes")
        await w.signal(run.id, "paid", {"total": "many"})
        await w.signal(run.id, "paid", {"total": 7})
        await w.advance("8h")
        reason, total = await w.result(run.id)
        assert "'paid'" in reason
        assert "$.total" in reason
        assert total == 7


async def test_F17_a_payload_that_was_checked_and_does_not_fit_any_more_holds_the_run(store_url: str) -> None:
    """F17: the code was changed since; nothing is lost."""
    app = bide.App()
    paid: Any = bide.Signal("paid", Bill)

    @app.workflow("takes", signals=[paid])
    async def takes(step: bide.Step) -> Any:
        taken = (await step.receive("gate", paid, timeout="1h")).payload
        await step.sleep("night", "8h")
        return taken.total

    def deploy(type_: Any) -> None:
        paid.type, takes.signals = type_, {"paid": type_}

    async with world(app, store_url) as w:
        run = await w.start("takes")
        await w.signal(run.id, "paid", {"total": 7})
        deploy(list[int])
        await w.advance("8h")
        assert (await w.get(run.id)).held == "history_mismatch"
        [why] = [entry.data["reason"] for entry in await w.ledger(run.id) if entry.name == "run_held"]
        assert "signal 'paid'" in why
        deploy(Bill)
        await w.retry(run.id)
        assert await w.result(run.id) == 7


@pytest.mark.parametrize("style", ["workflow", "machine"])
async def test_S13_an_answer_to_a_wait_for_a_declared_signal_is_checked_as_the_signal_is(
    store_url: str, style: str
) -> None:
    """S13, W3, W10: by the id of the wait; the wait stays open, and the rejection is in the ledger."""
    app = bide.App()
    paid = bide.Signal("paid", Bill)
    if style == "workflow":

        @app.workflow("takes", signals=[paid])
        async def takes(step: bide.Step) -> Any:
            return (await step.receive("gate", paid, timeout="1h")).payload.total

    else:

        @app.machine("takes", signals=[paid])
        class Takes:
            @bide.start
            def begin(self, ctx: bide.Context[Any]) -> bide.Await:
                return bide.Await(paid, then="end", timeout="1h")

            def end(self, ctx: bide.Context[Any]) -> bide.Done:
                return bide.Done(ctx.awaited[0].payload.total)

    async with world(app, store_url) as w:
        run = await w.start("takes")
        [wait] = await w.waits(run_id=run.id)
        with pytest.raises(bide.InvalidAnswer, match="total"):
            await w.answer(wait.id, {"total": "many"})
        done = await w.answer_waits({"total": "many"}, run_id=run.id, reason="by phone")
        assert [(one.outcome, len(one.problems)) for one in done.outcomes] == [("invalid", 1)]
        assert [entry.name for entry in await w.ledger(run.id)].count("await_answer_rejected") == 2
        assert [kept.reason for kept in await w.unused()] == ["invalid_payload"] * 2
        assert (await w.answer(wait.id, {"total": 7})).outcome == "woke"
        assert await w.result(run.id) == 7


async def test_S2_a_final_run_is_no_target_also_where_the_declared_payload_does_not_fit(store_url: str) -> None:
    """S2, S13, H1: 404 goes before 422."""
    app, paid = bide.App(), bide.Signal("paid", int)

    @app.machine("pays", signals=[paid])
    class Pays:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await(paid, then="end")

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done()

    async with world(app, store_url) as w:
        run = await w.start("pays", correlation_key="k", correlation_scope="forever")
        for expected in ("invalid", "no_target"):
            statuses = {"invalid": 422, "no_target": 404}
            for target in (run.id, "k"):
                assert (await w.signal(target, "paid", "seven", check=False)).outcome == expected
            over_http = await w.http().post(f"/v1/runs/{run.id}/signals", json={"name": "paid", "payload": "seven"})
            assert over_http.status_code == statuses[expected]
            if expected == "invalid":
                await w.signal(run.id, paid, 7)
