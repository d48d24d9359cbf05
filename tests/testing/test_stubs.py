"""The testing kit for workflows: stubs, crashes at their steps, and time that passes through their waits (§12)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest

import bide
import bide.testing
from bide.engine.probes import Point


@dataclass
class Charge:
    id: str
    amount: int


async def charge(amount: int, currency: str = "eur") -> Charge:
    raise AssertionError("a test that charges real money")


def send(text: str) -> None:
    raise AssertionError("a test that sends real mail")


class Shop:
    def pack(self, item: str) -> str:
        raise AssertionError


shop = Shop()
QUICK = bide.RetryPolicy(attempts=3, first="1s", factor=2)

app = bide.App("shop")


@app.workflow("order", step_retry=QUICK)
async def order(step: bide.Step, amount: int) -> str:
    paid = await step.run("charge", charge, amount, currency="usd")
    await step.run("pack", shop.pack, "tea")
    await step.run("mail", send, f"charged {paid.id}")
    return paid.id


@app.workflow("retried", step_retry=QUICK)
async def retried(step: bide.Step) -> str:
    try:
        return (await step.run("charge", charge, 5)).id
    except bide.StepFailedError as error:
        return f"{error.error_type} after {error.attempts}"


@app.workflow("waits", step_retry=QUICK)
async def waits(step: bide.Step) -> list[Any]:
    await step.run("one", send, "one")
    await step.sleep("night", "8h")
    item = await step.receive("item", "item", timeout="1d", default=None)
    await step.run("two", send, "two")
    answer = await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1d", default="nobody")
    return [item.payload if item is not None else None, answer]


async def test_a_stub_answers_for_a_function_and_lists_its_calls(store_url: str) -> None:
    async with bide.testing.world(app, store_url) as world:
        charged = world.stub(charge, returns=Charge("pi_1", 10))
        packed = world.stub(shop.pack, returns="parcel")
        mailed = world.stub(send)
        assert await (await world.start(order, 10)).result() == "pi_1"
        assert charged == [((10,), {"currency": "usd"})]
        assert charged[0].kwargs["currency"] == "usd"
        assert [call.args for call in packed] == [("tea",)]
        assert mailed == [(("charged pi_1",), {})]


async def test_a_stub_of_a_step_id_goes_before_one_of_its_function() -> None:
    async with bide.testing.world(app) as world:
        by_function = world.stub(send)
        by_id = world.stub("two")
        run = await world.start(waits)
        await world.advance("8h")
        await world.signal(run.id, "item", 7)
        await world.complete(f"gate-{run.id}", "yes")
        assert await run.result() == [7, "yes"]
        assert (by_function, by_id) == ([(("one",), {})], [(("two",), {})])


async def test_a_stub_that_raises_is_retried_by_the_policy_of_the_step() -> None:
    """F16, in virtual time."""
    async with bide.testing.world(app) as world:
        failing = world.stub(charge, raises=ConnectionError("no route"), times=3)
        run = await world.start(retried)
        assert (len(failing), run.status) == (1, "waiting")
        await world.advance("1m")
        assert await run.result() == "ConnectionError after 3"


async def test_stubs_of_one_function_answer_one_after_the_other() -> None:
    async with bide.testing.world(app) as world:
        world.stub(charge, raises=TimeoutError, times=2)
        charged = world.stub(charge, returns=Charge("pi_2", 5), times=1)
        run = await world.start(retried)
        await world.advance("1m")
        assert await run.result() == "pi_2"
        assert charged == [((5,), {})]


async def test_a_stub_whose_result_does_not_fit_fails_the_step_as_the_function_would() -> None:
    """F1: the result is read as what the function says it returns."""
    async with bide.testing.world(app) as world:
        world.stub(charge, returns="pi_1")
        run = await world.start(retried)
        assert await run.result() == "BadInput after 1"


async def test_a_stub_that_is_called_too_often_fails_the_step_and_the_test() -> None:
    says = r"was called 2 times, now with \(2,\) {'currency': 'usd'}"
    with pytest.raises(AssertionError, match=r"^stub 'charge' was to be called 1 time and was called 2 times$"):  # noqa: PT012  # as above
        async with bide.testing.world(app) as world:
            world.stub(charge, returns=Charge("pi_1", 1), times=1)
            world.stub(shop.pack, returns="parcel")
            world.stub(send)
            await world.start(order, 1)
            second = await world.start(order, 2)
            await world.advance("1h")
            with pytest.raises(bide.RunFailedError, match=says):
                await second.result()


async def test_a_stub_that_is_not_called_often_enough_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"^stub 'nobody' was to be called 2 times and was called 0 times$"):
        async with bide.testing.world(app) as world:
            world.stub("nobody", times=2)


async def test_an_error_of_the_test_itself_is_not_hidden_by_a_stub() -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  # it is the end of the block that is tested
        async with bide.testing.world(app) as world:
            world.stub("nobody", times=2)
            raise ZeroDivisionError


async def test_a_partial_is_its_function_with_its_arguments() -> None:
    local = bide.App("local")

    @local.workflow("partial")
    async def partial(step: bide.Step) -> None:
        await step.run("send", functools.partial(send, "bound"))

    async with bide.testing.world(local) as world:
        sent = world.stub(send)
        await (await world.start(partial)).result()
        assert sent == [(("bound",), {})]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"target": 7}, "a function or a step id, not for 7"),
        ({"target": "x", "returns": 1, "raises": ValueError}, "cannot both return and raise"),
        ({"target": "x", "times": -1}, "times=-1"),
        ({"target": "x", "times": "two"}, "times='two'"),
    ],
)
async def test_a_stub_that_makes_no_sense_is_refused(given: dict[str, Any], says: str) -> None:
    async with bide.testing.world(app) as world:
        with pytest.raises(bide.BadInput, match=says):
            world.stub(given.pop("target"), **given)


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
async def test_a_crash_at_a_step_of_a_workflow_repeats_it_only_before_its_commit(store_url: str, point: Point) -> None:
    """D2."""
    async with bide.testing.world(app, store_url) as world:
        charged = world.stub(charge, returns=Charge("pi_1", 10))
        world.stub(shop.pack, returns="parcel")
        mailed = world.stub(send, times=1)
        world.crash_at("charge", point)
        assert await (await world.start(order, 10)).result() == "pi_1"
        assert len(charged) == (2 if point == "after_code" else 1)
        assert len(mailed) == 1
        assert world.crashes.happened == [("charge", point)]


async def test_a_point_that_there_is_not_is_refused() -> None:
    async with bide.testing.world(app) as world:
        with pytest.raises(bide.BadInput, match="after_code"):
            world.crash_at("charge", "during")  # type: ignore[arg-type]  # checkers refuse it too


async def test_a_handle_of_a_world_never_waits_for_time_that_stands_still() -> None:
    async with bide.testing.world(app) as world:
        world.stub(send)
        run = await world.start(waits)
        with pytest.raises(bide.RunTimeoutError):
            await run.result()
        with pytest.raises(bide.RunTimeoutError):
            await run.result(timeout="8h")
        await world.advance("8h")
        await run.signal("item", 7)
        await run.cancel("enough")
        assert run.status == "cancelled"


async def test_time_goes_through_sleeps_waits_and_their_defaults_in_one_go() -> None:
    async with bide.testing.world(app) as world:
        sent = world.stub(send)
        run = await world.start(waits)
        await world.advance("3d")
        assert await run.result() == [None, "nobody"]
        assert [call.args for call in sent] == [("one",), ("two",)]


# ---------------------------------------------------------------- machines and pipelines


class Checkout:
    @bide.start
    def begin(self, ctx: bide.Context[Any]) -> bide.Next:
        return bide.Next("ship", {**ctx.state, "begun": True})

    async def ship(self, ctx: bide.Context[Any]) -> bide.Done:
        raise AssertionError("a test that ships real goods")

    def on_error(self, error: Exception, ctx: bide.Context[Any]) -> bide.Stop:
        raise AssertionError("a test that calls a real person") from error


@pytest.mark.parametrize("target", ["ship", Checkout.ship])
async def test_a_stub_answers_for_the_step_of_a_machine_by_name_or_method(target: Any, store_url: str) -> None:
    """Contract §12: what it returns is the outcome."""
    local = bide.App("local")
    local.machine("checkout")(Checkout)
    async with bide.testing.world(local, store_url) as world:
        shipped = world.stub(target, returns=bide.Done("stubbed"), times=1)
        run = await world.start("checkout", {"order": 1})
        assert await run.result() == "stubbed"
        [ctx] = shipped[0].args
        assert (ctx.step, ctx.state) == ("ship", {"order": 1, "begun": True})


async def test_a_stub_of_a_machines_step_that_raises_goes_the_way_of_the_steps_errors(store_url: str) -> None:
    """M5: `on_error` gets it, and may be stubbed as well."""
    local = bide.App("local")
    local.machine("checkout")(Checkout)
    async with bide.testing.world(local, store_url) as world:
        world.stub("ship", raises=ConnectionError("no van"))
        asked = world.stub(Checkout.on_error, returns=bide.Stop("no van today"))
        run = await world.start("checkout", {"order": 1})
        assert run.status == "stopped"
        assert [type(call.args[0]) for call in asked] == [ConnectionError]


def rows(text: str) -> list[str]:
    raise AssertionError("a test that reads real files")


def shout(word: str, item: bide.Item) -> str:
    raise AssertionError("a test that shouts")


async def is_long(word: str) -> bool:
    raise AssertionError


def report(words: Any) -> str:
    raise AssertionError


@pytest.mark.parametrize("by", ["name", "function"])
async def test_a_stub_answers_for_the_stages_of_a_pipeline_by_name_or_function(by: str, store_url: str) -> None:
    local = bide.App("local")
    local.pipeline("words").map(str.strip).expand(rows).map(shout).filter(is_long).collect(report)
    async with bide.testing.world(local, store_url) as world:

        def stub(fn: Any, returns: Any) -> bide.testing.Stub:
            return world.stub(fn if by == "function" else fn.__name__, returns=returns)

        expanded, shouted = stub(rows, ["a", "b"]), stub(shout, "A!")
        filtered, collected = stub(is_long, True), stub(report, "two")
        run = await world.start("words", " a b ")
        assert await run.result() == "two"
        assert expanded == [(("a b",), {})]
        assert sorted((call.args[0], call.args[1].index) for call in shouted) == [("a", 0), ("b", 1)]
        assert (len(filtered), len(collected[0].args[0])) == (2, 2)


async def test_a_stub_of_a_stage_that_raises_is_retried_by_the_policy_of_the_stage() -> None:
    local = bide.App("local")
    local.pipeline("words").expand(str.split).map(shout, retry=QUICK)
    async with bide.testing.world(local) as world:
        world.stub(shout, raises=ConnectionError, times=2)
        world.stub(shout, returns="A!", times=1)
        run = await world.start("words", "a")
        await world.advance("1m")
        assert await run.result() == ["A!"]


async def test_a_world_says_at_its_end_which_stub_was_never_called() -> None:
    """A function that a step calls itself is none that bide could answer for: it was called for real."""
    local, calls = bide.App("local"), list[int]()

    def charge_really(amount: int) -> None:
        calls.append(amount)

    @local.machine("checkout")
    class Pays:
        def pay(self, ctx: bide.Context[Any]) -> bide.Done:
            charge_really(ctx.input)
            return bide.Done()

    with pytest.warns(UserWarning, match=r"^stub 'charge_really' was never called: .* times=0 "):  # noqa: PT031  # as above
        async with bide.testing.world(local) as world:
            world.stub(charge_really)
            world.stub("nobody", times=0)
            await (await world.start("checkout", 5)).result()
    assert calls == [5]


async def test_an_order_in_which_a_stub_is_not_called_says_nothing_of_it() -> None:
    async def scenario(world: bide.testing.World, ex: bide.testing.Exploration) -> None:
        world.stub(send)
        run = await world.start(waits, delay="1d")
        ex.action("item", lambda: world.signal(run.id, "item", 1))

    await bide.testing.explore(app, scenario, timeouts=1, crashes=0, cancels=1)
