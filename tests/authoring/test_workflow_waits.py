"""Waits of workflows: signal ids, answers, schemas, timeouts, cancelling (F4–F6, F12, F13, W3, W7, W8, laws)."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import bide
from bide.authoring.workflow import turn
from bide.core.records import earlier_pause_key
from bide.testing import world
from bide.testing.world import START
from tests.support.worlds import ledger_names

Step = bide.Step


class Approval(msgspec.Struct):
    approved: bool
    reason: str = ""
    at: datetime | None = None


@dataclass
class Plain:
    approved: bool


class Typed(TypedDict):
    approved: bool


class Model(pydantic.BaseModel):
    approved: pydantic.StrictBool


@dataclass
class Holder:
    model: Model


class Even(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def is_even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n


def gate(retries: int = 3, **options: Any) -> bide.App:
    """An app whose workflow waits for the signal id that it is started with."""
    app = bide.App()

    @app.workflow("gate", retries=retries)
    async def workflow(step: Step, signal: str) -> Any:
        return await step.wait_for_signal("gate", signal=signal, **({"timeout": "48h"} | options))

    return app


# ---------------------------------------------------------------- F4, F6: one answer, one wait


async def test_F4_an_answer_resumes_exactly_the_run_that_waits_on_the_id(store_url: str) -> None:
    async with world(gate(), store=store_url) as there:
        one, two = await there.start("gate", "a"), await there.start("gate", "b")
        receipt = await there.complete("b", {"approved": True})
        assert (receipt.outcome, receipt.run_id) == ("woke", two.id)
        assert await there.result(two.id) == {"approved": True}
        assert (await there.get(one.id)).status == "waiting"


async def test_F4_a_signal_id_is_unique_in_its_workspace_and_free_in_every_other(store_url: str) -> None:
    """F4, law 8."""
    async with world(gate(), store=store_url) as there:
        here, away = await there.start("gate", "a"), await there.client("other").start("gate", "a")
        await there.settle()
        assert (await there.client("other").complete("a", 2)).run_id == away.id
        assert (await there.get(here.id)).status == "waiting"
        assert (await there.complete("a", 1)).run_id == here.id
        assert await there.result(here.id) == 1


async def test_W7_a_second_answer_is_late_and_an_unknown_id_has_no_target(store_url: str) -> None:
    async with world(gate(), store=store_url) as there:
        run = await there.start("gate", "a")
        await there.complete("a", 1)
        late = await there.complete("a", 2)
        assert (late.outcome, late.reason) == ("late", "already_completed")
        with pytest.raises(bide.NoTarget):
            await there.complete("b", 1)
        with pytest.raises(bide.NoTarget):
            await there.client("other").complete("a", 1)
        assert await there.result(run.id) == 1


async def test_F6_a_crash_or_a_retry_never_makes_a_second_wait(store_url: str) -> None:
    app, tries = bide.App(), list[int]()

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        wait = asyncio.create_task(step.wait_for_signal("gate", signal="a", timeout="1h"))
        await asyncio.sleep(0)
        await step.run("x", lambda: None)
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return await wait

    async with world(app, store=store_url) as there:
        run = await there.start("gate")
        await there.advance("1m")
        await there.crash()
        await there.settle()
        assert (await there.get(run.id)).attempt == 1
        assert (await ledger_names(there, run.id)).count("await_execution_waiting") == 1
        await there.complete("a", "yes")
        await there.crash()
        assert await there.result(run.id) == "yes"


async def test_F6_an_answer_that_came_before_a_retry_is_handed_back_from_the_store(store_url: str) -> None:
    app, answers = bide.App(), list[Any]()

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        answers.append(await step.wait_for_signal("gate", signal="a", timeout="1h"))
        if len(answers) == 1:
            raise ValueError("once")
        return "ok"

    async with world(app, store=store_url) as there:
        run = await there.start("gate")
        await there.complete("a", None)
        await there.advance("1m")
        assert await there.result(run.id) == "ok"
        assert answers == [None, None]


# ---------------------------------------------------------------- F5: collision


async def test_F5_a_second_run_on_a_held_id_fails_at_once_and_the_first_keeps_waiting(store_url: str) -> None:
    async with world(gate(), store=store_url) as there:
        first = await there.start("gate", "a")
        second = await there.start("gate", "a")
        info = await there.get(second.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert info.error.code == "SignalCollisionError"
        assert "'a'" in info.error.message
        assert first.id in info.error.message
        with pytest.raises(bide.SignalCollisionError) as refused:
            await there.complete("a", 1)
        assert (refused.value.signal_id, refused.value.holder, refused.value.status) == ("a", first.id, 409)
        assert (await there.complete("a", 1, check=False)).outcome == "conflict"
        assert (await there.get(first.id)).status == "waiting"
        with pytest.raises(bide.NoTarget):
            await there.complete("a", 1, run_id=second.id)
        await there.complete("a", 1, run_id=first.id)
        assert await there.result(first.id) == 1
        third = await there.start("gate", "a")  # the collision went with the wait
        await there.complete("a", 3)
        assert await there.result(third.id) == 3


async def test_F5_a_collision_can_be_caught_and_replays_as_itself(store_url: str) -> None:
    app, holders = bide.App(), list[str]()

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        try:
            return await step.wait_for_signal("gate", signal="a", timeout="1h")
        except bide.SignalCollisionError as error:
            holders.append(error.holder)
            return await step.wait_for_signal("gate", signal="b", timeout="1h")

    async with world(app, store=store_url) as there:
        first, second = await there.start("gate"), await there.start("gate")
        await there.complete("b", "other")
        assert await there.result(second.id) == "other"
        assert holders == [first.id, first.id]


async def test_law_7_two_waits_of_one_run_on_one_id_collide_too(store_url: str) -> None:
    app = bide.App()

    @app.workflow("twice")
    async def workflow(step: Step) -> Any:
        waits = [step.wait_for_signal("gate", signal="a", timeout="1h") for _ in range(2)]
        return [type(found).__name__ for found in await asyncio.gather(*waits, return_exceptions=True)]

    async with world(app, store_url) as there:
        run = await there.start("twice")
        await there.complete("a", "yes", run_id=run.id)
        assert await there.result(run.id) == ["str", "SignalCollisionError"]


async def test_law_7_no_id_of_a_user_is_that_of_a_pause_or_of_a_cancelling(store_url: str) -> None:
    app, calls = bide.App(), list[int]()

    def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("down")
        return "up"

    @app.workflow("names", on_cancel="raise")
    async def workflow(step: Step) -> Any:
        await step.run("bide/cancelled", str)
        a, b, _ = await asyncio.gather(
            step.run("a", flaky),
            step.receive("a/pause1", "go", timeout="1d"),
            step.sleep("a (pause 1)", "1h"),
        )
        return [a, b.payload]

    async with world(app, store=store_url) as there:
        run = await there.start("names")
        waits = await there.waits(run_id=run.id)
        assert len({wait.step for wait in waits}) == len(waits) == 3
        await there.advance("2h")
        await there.signal(run.id, "go", 7)
        assert await there.result(run.id) == ["up", 7]


async def test_law_7_a_pause_that_began_under_an_earlier_key_ends_under_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, calls = bide.App(), list[int]()

    def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("down")
        return len(calls)

    @app.workflow("flaky")
    async def workflow(step: Step) -> int:
        return await step.run("a", flaky)

    async with world(app, store=store_url) as there:
        with monkeypatch.context() as earlier:
            earlier.setattr(turn, "pause_key", earlier_pause_key)
            run = await there.start("flaky")
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["a/pause1"]
        await there.advance("10m")
        assert await there.result(run.id) == 3


# ---------------------------------------------------------------- F13: timeouts


async def test_F13_a_timeout_raises_and_the_late_answer_is_refused(store_url: str) -> None:
    app = bide.App()

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        found: list[Any] = []
        for kind in ("signal", "inbox"):
            try:
                if kind == "signal":
                    await step.wait_for_signal("gate", signal="a", timeout="1h")
                await step.receive("inbox", "go", timeout=timedelta(hours=1))
            except TimeoutError as error:
                found.append(type(error).__name__)
        found.append(await step.receive("default", "go", timeout=START + timedelta(hours=3), default=None))
        found.append(await step.wait_for_signal("last", signal="c", timeout=bide.FOREVER))
        return found

    async with world(app, store=store_url) as there:
        run = await there.start("gate")
        await there.advance("1h")
        late = await there.complete("a")
        assert (late.outcome, late.reason) == ("late", "timed_out")
        await there.advance("365d")
        await there.complete("c", "at last")
        assert await there.result(run.id) == ["SignalTimeoutError", "WaitTimeoutError", None, "at last"]
    assert issubclass(bide.SignalTimeoutError, bide.WaitTimeoutError)
    assert issubclass(bide.WaitTimeoutError, bide.BideError)


async def test_law_4_a_timeout_is_not_a_null_answer(store_url: str) -> None:
    async with world(gate(default="nobody"), store=store_url) as there:
        answered, timed_out = await there.start("gate", "a"), await there.start("gate", "b")
        await there.complete("a", None)
        await there.advance("48h")
        assert await there.result(answered.id) is None
        assert await there.result(timed_out.id) == "nobody"


@pytest.mark.parametrize("method", ["receive", "receive_all"])
async def test_F13_a_wait_that_may_never_end_says_so(store_url: str, method: str) -> None:
    app = bide.App()

    @app.workflow("for-ever")
    async def workflow(step: Step, timeout: str | None) -> None:
        await getattr(step, method)("a", "go", timeout=bide.FOREVER if timeout else None)

    async with world(app, store_url) as there:
        refused = await there.get((await there.start("for-ever", None)).id)
        assert (refused.status, refused.attempt) == ("failed", 0)
        assert "receive 'a' has no timeout; give one, or bide.FOREVER" in str(refused.error)
        run = await there.start("for-ever", "never")
        assert [wait.deadline for wait in await there.waits(run_id=run.id)] == [None]


@pytest.mark.parametrize("timeout", ["soon", -1, datetime(2030, 1, 1), True, [], float("nan")])  # noqa: DTZ001
async def test_F13_an_impossible_timeout_fails_the_run_at_once(timeout: Any) -> None:
    async with world(gate(timeout=timeout)) as there:
        info = await there.get((await there.start("gate", "a")).id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert info.error.code == "BadInput"


@pytest.mark.parametrize("signal", ["", "run_1", "a\x00", "x" * 201])
async def test_F4_a_signal_id_that_cannot_be_used_fails_the_run_at_once(signal: str) -> None:
    app = bide.App()

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        return await step.wait_for_signal("gate", signal=signal, timeout="1h")

    async with world(app) as there:
        info = await there.get((await there.start("gate")).id)
        assert (info.status, info.attempt) == ("failed", 0)


# ---------------------------------------------------------------- W3: answers are checked at the door


@pytest.mark.parametrize(
    "returns",
    [
        Approval,
        Plain,
        Typed,
        Model,
        {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
    ],
)
async def test_W3_an_answer_that_does_not_fit_is_refused_and_the_wait_stays_open(returns: Any, store_url: str) -> None:
    app, seen = bide.App(), list[Any]()

    @app.workflow("gate")
    async def workflow(step: Step) -> None:
        seen.append(await step.wait_for_signal("gate", signal="a", timeout="1h", returns=returns))

    async with world(app, store=store_url) as there:
        run = await there.start("gate")
        misfits: tuple[Any, ...] = ({"approved": "maybe"}, {}, [], None)
        for wrong in misfits:
            with pytest.raises(bide.BadInput):
                await there.complete("a", wrong)
        assert (await there.complete("a", 7, check=False)).outcome == "invalid"
        assert (await there.get(run.id)).status == "waiting"
        rejected = [e for e in await there.ledger(run.id) if e.name == "await_answer_rejected"]
        assert len(rejected) == 5
        assert "$.approved" in rejected[0].data["problems"][0]
        await there.complete("a", {"approved": True})
        assert (await there.get(run.id)).status == "completed"
    [answer] = seen
    if isinstance(returns, dict) or returns is Typed:
        assert answer == {"approved": True}
    else:
        assert isinstance(answer, returns)


async def test_W3_every_problem_is_told_with_its_path(store_url: str) -> None:
    async with world(gate(returns=Approval), store_url) as there:
        await there.start("gate", "a")
        receipt = await there.complete("a", {"approved": 1, "reason": 2, "at": 7}, check=False)
        assert receipt.reason is not None
        assert all(path in receipt.reason for path in ("$.approved", "$.reason", "$.at"))


async def test_W3_a_choice_of_words_is_a_schema(store_url: str) -> None:
    async with world(gate(returns=Literal["yes", "no"]), store_url) as there:
        run = await there.start("gate", "a")
        with pytest.raises(bide.BadInput):
            await there.complete("a", "maybe")
        await there.complete("a", "yes")
        assert await there.result(run.id) == "yes"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("returns", "wrong", "right", "value"),
    [
        (Colour, "green", "red", Colour.RED),
        (Colour | None, "green", None, None),
        (int | str, [], 3, 3),
        (int | str, None, "three", "three"),
        (Approval | None, {"approved": "maybe"}, {"approved": True}, Approval(approved=True)),
    ],
)
async def test_W3_an_enum_and_a_union_are_checked_and_read_back(
    returns: Any, wrong: Any, right: Any, value: Any, store_url: str
) -> None:
    app, seen = bide.App(), list[Any]()

    @app.workflow("gate")
    async def workflow(step: Step) -> None:
        seen.append(await step.wait_for_signal("gate", signal="a", timeout="1h", returns=returns))

    async with world(app, store=store_url) as there:
        run = await there.start("gate")
        assert (await there.complete("a", wrong, check=False)).outcome == "invalid"
        assert (await there.get(run.id)).status == "waiting"
        assert (await there.complete("a", right)).outcome == "woke"
        assert (await there.get(run.id)).status == "completed"
    assert seen == [value]


@pytest.mark.parametrize(
    ("returns", "why"),
    [
        ({"type": "strin"}, '"strin" is not valid under any of the schemas'),
        ({"$ref": "http://localhost:1/x"}, "Retrieval is disabled, cannot fetch http://localhost:1/x"),
        ({"$ref": "#/no"}, "Pointer '/no' does not exist"),
        (gate, "is not supported"),
        (7, "Type '7' is not supported"),
    ],
)
async def test_W3_what_is_no_schema_fails_the_run_before_anybody_is_asked(
    store_url: str, returns: Any, why: str
) -> None:
    async with world(gate(returns=returns), store_url) as there:
        run = await there.start("gate", "a")
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert f"returns={returns!r} is no type and no JSON Schema to check answers against" in info.error.message
        assert why in info.error.message
        assert "await_execution_waiting" not in await ledger_names(there, run.id)


async def test_W3_a_whole_number_with_a_point_over_http_is_read_as_an_integer(store_url: str) -> None:
    async with world(gate(returns=int), store=store_url) as there:
        run = await there.start("gate", "a")
        sent = await there.http().post(
            "/v1/signals/a/complete", content=b'{"data": 3.0}', headers={"content-type": "application/json"}
        )
        assert sent.status_code == 200
        assert await there.result(run.id) == 3


@pytest.mark.parametrize(
    ("returns", "wrong", "right"),
    [
        (Decimal, "x", "1.50"),
        (bytes, "!!!", "YmlkZQ=="),
        (timedelta, "P1M", "PT1H"),
        (dict[date, int], {"soon": 1}, {"2030-01-01": 1}),
        (list[Model], [{"approved": 1}], [{"approved": True}]),
        (Model | None, {}, None),
        (Holder, {"model": {}}, {"model": {"approved": True}}),
    ],
)
async def test_W3_what_could_not_be_read_is_refused_and_never_holds_the_run(
    returns: Any, wrong: Any, right: Any, store_url: str
) -> None:
    async with world(gate(returns=returns), store=store_url) as there:
        run = await there.start("gate", "a")
        assert (await there.complete("a", wrong, check=False)).outcome == "invalid"
        assert (await there.complete("a", right)).outcome == "woke"
        assert (await there.get(run.id)).status == "completed"


async def test_W3_an_answer_that_a_validator_refuses_is_raised_and_can_be_asked_for_again(store_url: str) -> None:
    app = bide.App()

    @app.workflow("even")
    async def workflow(step: Step) -> Any:
        while True:
            try:
                return (await step.wait_for_signal("n", signal="n", timeout="1h", returns=Even)).n
            except bide.AnswerRefusedError as error:
                await step.run("tell", str, error.reason)

    async with world(app, store=store_url) as there:
        run = await there.start("even")
        assert (await there.complete("n", {"n": 3})).outcome == "woke"
        assert (await there.get(run.id)).status == "waiting"
        assert (await there.complete("n", {"n": 4})).outcome == "woke"
        assert await there.result(run.id) == 4


async def test_W3_uncaught_it_fails_the_run_at_once_and_a_retry_asks_again(store_url: str) -> None:
    async with world(gate(returns=Even), store=store_url) as there:
        run = await there.start("gate", "a")
        await there.complete("a", {"n": 3})
        info = await there.get(run.id)
        assert (info.status, info.attempt, info.held) == ("failed", 0, None)
        assert info.error is not None
        assert str(info.error) == (
            "AnswerRefusedError: wait 'gate' got an answer that its type refuses: at $.n: Value error, 3 is odd"
        )
        again = await there.retry(run.id)
        await there.complete("a", {"n": 4})
        assert (await there.get(again.id)).result == {"n": 4}


async def test_W3_a_task_and_a_request_tell_that_their_answer_was_refused(store_url: str) -> None:
    app = bide.App()

    @app.workflow("both")
    async def workflow(step: Step) -> list[str]:
        said = []
        for wait in (
            step.ask("ask", title="How many?", form=Even, timeout="1h"),
            step.request("send", 1, transport="interaction-api", timeout="1h", returns=Even),
            step.request_each("each", [1], transport="interaction-api", timeout="1h", returns=Even),
        ):
            try:
                await wait
            except bide.WaitFailedError as error:
                said.append(f"{type(error).__name__}: {error.step}: {error.reason}")
        return said

    async with world(app, store=store_url) as there:
        run = await there.start("both")
        for _ in range(3):
            [open_one] = await there.interactions(run_id=run.id, status="waiting")
            await there.answer(open_one.id, {"n": 3})
        assert await there.result(run.id) == [
            "AnswerRefusedError: ask: at $.n: Value error, 3 is odd",
            "AnswerRefusedError: send: at $.n: Value error, 3 is odd",
            "AnswerRefusedError: each: item 0, at $.n: Value error, 3 is odd",
        ]


@pytest.mark.parametrize("option", ["returns", "form"])
async def test_W3_a_bound_that_would_be_ignored_is_refused_before_anybody_is_asked(option: str) -> None:
    app, bound = bide.App(), Annotated[int, pydantic.Field(ge=3)]

    @app.workflow("gate")
    async def workflow(step: Step) -> Any:
        if option == "form":
            return await step.ask("n", title="How many?", form=bound, timeout="1h")
        return await step.wait_for_signal("n", signal="n", timeout="1h", returns=bound)

    async with world(app) as there:
        run = await there.start("gate")
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert "has no effect outside of a pydantic model; write msgspec.Meta(…)" in str(info.error)


# ---------------------------------------------------------------- W8: cancelling


async def test_W8_cancelling_frees_the_signal_id_and_a_later_answer_has_no_target(store_url: str) -> None:
    async with world(gate(), store=store_url) as there:
        run = await there.start("gate", "a")
        await there.cancel(run.id)
        with pytest.raises(bide.NoTarget):
            await there.complete("a")
        again = await there.start("gate", "a")
        await there.complete("a", "yes")
        assert await there.result(again.id) == "yes"


async def test_W8_a_run_that_ends_with_open_waits_frees_their_ids(store_url: str) -> None:
    app = bide.App()

    @app.workflow("leaves")
    async def workflow(step: Step) -> str:
        task = asyncio.create_task(step.wait_for_signal("gate", signal="a", timeout="1h"))
        await asyncio.sleep(0)
        await step.receive("go", "go", timeout="1h")
        del task
        return "left"

    async with world(app, store=store_url) as there:
        run = await there.start("leaves")
        assert len(await there.waits(run_id=run.id)) == 2
        await there.signal(run.id, "go")
        assert await there.result(run.id) == "left"
        with pytest.raises(bide.NoTarget):
            await there.complete("a")


async def test_W8_a_run_that_is_cancelled_while_its_step_runs_commits_nothing_more(store_url: str) -> None:
    app, started, go_on = bide.App(), asyncio.Event(), asyncio.Event()

    async def long() -> None:
        started.set()
        await go_on.wait()

    @app.workflow("long")
    async def workflow(step: Step) -> None:
        await step.run("long", long)
        await step.wait_for_signal("gate", signal="a", timeout="1h")

    async with world(app, store=store_url) as there:
        run = await there.start("long", settle=False)
        settling = asyncio.create_task(there.settle())
        await started.wait()
        await there.cancel(run.id, settle=False)
        go_on.set()
        await settling
        assert (await there.get(run.id)).status == "cancelled"
        assert "step_completed" not in await ledger_names(there, run.id)
        with pytest.raises(bide.NoTarget):
            await there.complete("a")


# ---------------------------------------------------------------- F12: the inbox, laws 1 and 2


async def test_F12_receive_takes_the_oldest_matching_signal_and_leaves_the_others(store_url: str) -> None:
    app = bide.App()

    @app.workflow("inbox")
    async def workflow(step: Step) -> list[Any]:
        await step.sleep("first", "1h")
        found = [await step.receive("next", "a", "b", timeout="1h") for _ in range(3)]
        return [[one.name, one.payload] for one in found]

    async with world(app, store=store_url) as there:
        run = await there.start("inbox")
        for name, payload in (("x", 0), ("b", 1), ("a", 2)):
            assert (await there.signal(run.id, name, payload)).outcome == "queued"
        await there.advance("1h")
        assert [one.name for one in await there.inbox(run.id)] == ["x"]
        assert (await there.signal(run.id, "a", 3)).outcome == "woke"
        assert await there.result(run.id) == [["b", 1], ["a", 2], ["a", 3]]


async def test_F12_waits_that_open_together_share_a_backlog_of_many_names_in_its_order(store_url: str) -> None:
    """Of a full inbox only what they may take is read (F48); a pack leaves nothing of its names behind."""
    app = bide.App("shop")

    @app.workflow("sort")
    async def sort(step: Step, event: Any) -> Any:
        await step.receive("start", "start", timeout="1h")
        both = await asyncio.gather(
            step.receive("either", "a", "b", timeout="1h"), step.receive("only", "b", timeout="1h")
        )
        again = await asyncio.gather(*(step.receive(f"more{at}", "a", "b", timeout="1h") for at in range(3)))
        pack = await step.receive_all("rest", "a", "b", at_least=2, timeout="1h")
        later = await step.receive_all("later", "a", "c", at_least=3, timeout="1h")
        left = await step.inbox("left")
        return [[signal.payload for signal in signals] for signals in (both, again, pack, later, left)]

    async with world(app, store=store_url) as w:
        run = await w.start("sort", None, settle=False)
        for number, name in enumerate("xbaxbbaxabxbb"):
            await w.signal(run.id, name, number, settle=False)
        await w.signal(run.id, "start")
        for number, name in enumerate("xcxa", 20):
            assert (await w.signal(run.id, name, number)).outcome == "queued"
        assert (await w.signal(run.id, "c", 24)).outcome == "woke"
        assert await w.result(run.id) == [[1, 4], [2, 5, 6], [8, 9, 11, 12], [21, 23, 24], [0, 3, 7, 10, 20, 22]]


async def test_law_1_a_receive_whose_time_is_up_takes_nothing(store_url: str) -> None:
    app = bide.App()

    @app.workflow("inbox")
    async def workflow(step: Step) -> Any:
        assert await step.receive("early", "go", timeout="1m", default=None) is None
        await step.sleep("pause", "1h")
        return (await step.receive("late", "go", timeout="1h")).payload

    async with world(app, store=store_url) as there:
        run = await there.start("inbox")
        await there.advance("2m")
        assert (await there.signal(run.id, "go", "kept")).outcome == "queued"
        await there.advance("1h")
        assert await there.result(run.id) == "kept"


async def test_law_1_a_receive_that_the_body_gave_up_takes_nothing_while_a_step_runs(store_url: str) -> None:
    app, started, go_on = bide.App(), asyncio.Event(), asyncio.Event()

    async def long() -> None:
        started.set()
        await go_on.wait()

    @app.workflow("inbox")
    async def workflow(step: Step) -> Any:
        try:
            async with asyncio.timeout(60):
                await step.receive("early", "go", timeout="1h")
        except TimeoutError:
            await step.run("long", long)
        return (await step.receive("late", "go", timeout="1h")).payload

    async with world(app, store=store_url) as there:
        run = await there.start("inbox")
        advancing = asyncio.create_task(there.advance("1m"))
        await started.wait()
        assert (await there.signal(run.id, "go", "kept", settle=False)).outcome == "queued"
        go_on.set()
        await advancing
        assert await there.result(run.id) == "kept"


async def test_law_2_an_answer_that_comes_while_the_run_is_busy_is_seen_when_it_parks(store_url: str) -> None:
    app, started, go_on = bide.App(), asyncio.Event(), asyncio.Event()

    async def long() -> None:
        started.set()
        await go_on.wait()

    @app.workflow("busy")
    async def workflow(step: Step) -> list[Any]:
        found = await asyncio.gather(
            step.wait_for_signal("gate", signal="a", timeout="1h"),
            step.receive("inbox", "go", timeout="1h"),
            step.run("long", long),
        )
        return [found[0], found[1].payload]

    async with world(app, store=store_url) as there:
        run = await there.start("busy", settle=False)
        settling = asyncio.create_task(there.settle())
        await started.wait()
        assert (await there.complete("a", 1, settle=False)).outcome == "woke"
        assert (await there.signal(run.id, "go", 2, settle=False)).outcome == "woke"
        go_on.set()
        await settling
        assert await there.result(run.id) == [1, 2]


async def test_S10_a_duplicate_answer_names_the_same_wait_as_the_first(store_url: str) -> None:
    """S10: by signal id and by wait id; also when the signal id was used again since."""
    app = bide.App()

    @app.workflow("gates")
    async def gates(step: Step) -> None:
        for _ in range(2):
            await step.wait_for_signal("gate", signal="a", timeout="1d")
        await step.sleep("night", "1d")

    async with world(app, store=store_url) as there:
        run = await there.start("gates")
        await there.complete("a", 1, dedup_key="k")
        await there.advance("1s")
        [wait] = await there.waits(run_id=run.id)
        second = await there.answer(wait.id, 2, dedup_key="l")
        receipts = [await there.answer(wait.id, 2, dedup_key="l"), await there.complete("a", 1, dedup_key="k")]
        assert [(receipt.outcome, receipt.wait_id) for receipt in receipts] == [
            ("duplicate", second.wait_id),
            ("duplicate", None),  # whose it was is not known any more
        ]


async def test_S10_a_duplicate_of_the_newest_answer_to_a_signal_id_names_its_wait(store_url: str) -> None:
    app = bide.App()

    @app.workflow("gate")
    async def gate(step: Step) -> None:
        await step.wait_for_signal("gate", signal="a", timeout="1d")
        await step.sleep("night", "1d")

    async with world(app, store=store_url) as there:
        await there.start("gate")
        first, again = [await there.complete("a", 1, dedup_key="k") for _ in range(2)]
        assert (first.outcome, again.outcome) == ("woke", "duplicate")
        assert again.wait_id == first.wait_id is not None
        body = {"data": 1, "dedup_key": "k"}
        assert (await there.http().post("/v1/signals/a/complete", json=body)).json()["wait_id"] == first.wait_id
