"""Waits of waits, packs and looks at the inbox (F12, F13, laws 1, 2, 13)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import bide
from bide.testing import World, world
from tests.support.worlds import ledger_names, no_free_worker


def racing(kind: str = "first", **options: Any) -> bide.App:
    """An app whose workflow waits for `a`, `b` and `c`, and then for the signal `end`."""
    app = bide.App()

    @app.workflow("race")
    async def race(step: bide.Step) -> Any:
        waits = [step.wait_for_signal(name, signal=name, **({"timeout": "1h"} | options)) for name in ("a", "b", "c")]
        if kind == "all":
            values = list(await step.all("all", *waits))
        else:
            n = 1 if kind == "first" else 2
            over = [await step.first("race", *waits)] if n == 1 else list(await step.quorum("race", n, *waits))
            values = []
            for wait in over:
                try:
                    values.append(wait.value)
                except bide.WaitTimeoutError as error:
                    values.append(type(error).__name__)
        await step.receive("end", "end", timeout="2d")
        return values

    return app


async def test_F12_the_first_answer_wins_and_the_others_are_withdrawn_in_the_same_commit(store_url: str) -> None:
    async with world(racing(), store=store_url) as there:
        run = await there.start("race")
        assert len(await there.waits(run_id=run.id)) == 3
        await there.complete("b", "B")
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["end"]
        for name in ("a", "c"):
            with pytest.raises(bide.NoTarget):
                await there.complete(name)
        await there.crash()
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["B"]


async def test_F12_a_timeout_wins_like_an_answer_and_its_value_raises_or_is_the_default(store_url: str) -> None:
    async with world(racing(), store=store_url) as there, world(racing(default="nobody"), store=store_url) as other:
        for place, expected in ((there, ["SignalTimeoutError"]), (other, ["nobody"])):
            run = await place.start("race")
            await place.advance("1h")
            await place.signal(run.id, "end")
            assert await place.result(run.id) == expected


async def test_F12_all_gives_every_value_in_the_order_given(store_url: str) -> None:
    async with world(racing("all"), store=store_url) as there:
        run = await there.start("race")
        for name in ("c", "a", "b"):
            await there.complete(name, name.upper())
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["A", "B", "C"]


async def test_F12_the_first_error_of_all_is_raised_and_the_rest_are_withdrawn(store_url: str) -> None:
    app = bide.App()

    @app.workflow("all")
    async def workflow(step: bide.Step) -> str:
        try:
            await step.all(
                "all",
                step.wait_for_signal("short", signal="short", timeout="1m"),
                step.wait_for_signal("long", signal="long", timeout="1h"),
            )
        except bide.SignalTimeoutError:
            await step.sleep("night", "8h")
        return "late"

    async with world(app, store=store_url) as there:
        run = await there.start("all")
        await there.advance("1m")
        assert [wait.step for wait in await there.waits(run_id=run.id)] == ["night"]
        await there.advance("8h")
        assert await there.result(run.id) == "late"


async def test_F12_a_quorum_gives_the_first_n_in_the_order_they_ended(store_url: str) -> None:
    async with world(racing("quorum"), store=store_url) as there:
        run = await there.start("race")
        await there.complete("c", "C")
        assert len(await there.waits(run_id=run.id)) == 2
        await there.complete("a", "A")
        with pytest.raises(bide.NoTarget):
            await there.complete("b")
        await there.crash()
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["C", "A"]


async def test_F12_combined_waits_can_be_combined_again(store_url: str) -> None:
    app = bide.App()

    @app.workflow("nested")
    async def workflow(step: bide.Step) -> list[Any]:
        a, b, c = (step.receive(name, name, timeout="1h") for name in "abc")
        both = step.all("both", a, b)
        won = await step.first("either", both, c)
        await step.sleep("night", "8h")
        return ["both" if won is both else "c", both.is_over, c.is_over]

    async with world(app, store=store_url) as there:
        one, two = await there.start("nested"), await there.start("nested")
        await there.signal(one.id, "a")
        await there.signal(one.id, "b")
        await there.signal(two.id, "a")
        await there.signal(two.id, "c")
        for run in (one, two):
            assert [wait.step for wait in await there.waits(run_id=run.id)] == ["night"]
        await there.advance("8h")
        assert await there.result(one.id) == ["both", True, False]
        assert await there.result(two.id) == ["c", False, True]


STRAYS: list[Any] = []


def stray() -> Any:
    """What is no wait, and is awaited by nobody; closed in the end, so that it does not complain in another test."""
    STRAYS.append(asyncio.sleep(1))
    return STRAYS[-1]


@pytest.mark.parametrize(
    "combine",
    [
        lambda step, wait: step.first("x"),
        lambda step, wait: step.first("x", wait, wait),
        lambda step, wait: step.quorum("x", 2, wait),
        lambda step, wait: step.quorum("x", 0, wait),
        lambda step, wait: step.first("x", stray()),
        lambda step, wait: step.all("x", wait, step.invoke("child", "nobody")),
        lambda step, wait: step.receive_all("x", "go", at_least=0, timeout="1h"),
        lambda step, wait: step.receive_all("x", timeout="1h"),
    ],
)
async def test_F12_what_could_never_be_over_fails_the_run_and_opens_nothing(store_url: str, combine: Any) -> None:
    app = bide.App()

    @app.workflow("wrong")
    async def workflow(step: bide.Step) -> None:
        await combine(step, step.receive("gate", "go", timeout="1h"))

    async with world(app, store_url) as there:
        run = await there.start("wrong")
        await there.advance("1m")  # an unknown definition may be there at the next try
        assert (await there.get(run.id)).status == "failed"
        assert "await_execution_waiting" not in await ledger_names(there, run.id)
    while STRAYS:
        STRAYS.pop().close()


# ---------------------------------------------------------------- law 1: who stops waiting takes nothing


def patience(kind: str) -> bide.App:
    """An app whose workflow waits an hour for `go`, gives up, and takes what is in the inbox after the signal `end`."""
    app = bide.App()

    @app.workflow("patience")
    async def workflow(step: bide.Step) -> list[Any]:
        found: list[Any] = []
        one = step.receive("go", "go", timeout=bide.FOREVER)
        go: bide.Wait[Any] = one if kind != "pack" else step.receive_all("go", "go", timeout=bide.FOREVER)
        if kind == "timeout":
            try:
                async with asyncio.timeout(3600):
                    found.append((await go).payload)
            except TimeoutError:
                found.append("gave up")
        else:
            won: Any = await step.first("either", go, step.sleep("hour", "1h"))
            found.append("went" if won is go else "gave up")
        await step.receive("end", "end", timeout="2d")
        found.append([signal.payload for signal in await step.inbox()])
        return found

    return app


@pytest.mark.parametrize("kind", ["first", "timeout", "pack"])
async def test_law_1_a_signal_that_a_receive_took_after_it_had_lost_stays_in_the_inbox(
    kind: str, store_url: str
) -> None:
    """Laws 1, 13: the hour is over, the run was not told yet, the receive is still open and takes the signal."""
    async with world(patience(kind), store=store_url) as there:
        run = await there.start("patience")
        await _time_is_up(there)
        receipt = await there.signal(run.id, "go", 7, settle=False)
        assert receipt.outcome == "woke"
        await there.settle()
        assert [signal.payload for signal in await there.inbox(run.id)] == [7]
        assert "signals_returned" in await ledger_names(there, run.id)
        await there.crash()
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["gave up", [7]]


@pytest.mark.parametrize("kind", ["first", "timeout", "pack"])
async def test_law_1_a_signal_that_is_taken_while_the_run_gives_up_stays_in_the_inbox(
    kind: str, store_url: str
) -> None:
    """The body has given up, its commit is not there yet: whichever commits second sees the other."""
    async with world(patience(kind), store=store_url) as there:
        run = await there.start("patience")
        await _time_is_up(there)
        session_commit, taken = there.runtime.committer.submit, list[str]()

        async def submit(command: Any) -> Any:
            if type(command).__name__ == "CommitTurn" and not taken:
                taken.append((await there.client().signal(run.id, "go", 7)).outcome)
            return await session_commit(command)

        there.runtime.committer.submit = submit  # type: ignore[method-assign, assignment]  # to be there right before the commit
        await there.settle()
        assert taken == ["woke"]
        assert [signal.payload for signal in await there.inbox(run.id)] == [7]
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["gave up", [7]]


async def test_law_1_a_signal_that_came_back_is_handed_to_the_next_receive(store_url: str) -> None:
    app = bide.App()

    @app.workflow("again")
    async def workflow(step: bide.Step) -> list[Any]:
        go = step.receive("go", "go", timeout=bide.FOREVER)
        await step.first("either", go, step.sleep("hour", "1h"))
        second = await step.receive("go", "go", timeout="1d")
        third = await step.receive("go", "go", timeout="1d")
        return [go.is_over, second.payload, third.payload]

    async with world(app, store=store_url) as there:
        run = await there.start("again")
        await _time_is_up(there)
        await there.signal(run.id, "go", 1, settle=False)
        await there.signal(run.id, "go", 2, settle=False)
        await there.settle()
        assert await there.result(run.id) == [False, 1, 2]


async def test_S12_an_answer_to_a_wait_that_had_lost_is_kept_for_an_operator(store_url: str) -> None:
    """S12, law 1."""
    async with world(racing(), store=store_url) as there:
        run = await there.start("race")
        with no_free_worker(there):
            await there.complete("a", "A", settle=False)
            assert (await there.complete("b", "B", settle=False)).outcome == "woke"
        await there.settle()
        [kept] = await there.unused()
        assert (kept.target, kept.payload, kept.reason) == ("b", "B", "withdrawn")
        await there.signal(run.id, "end")
        assert await there.result(run.id) == ["A"]


@pytest.mark.parametrize("comes", ["answer", "signal"])
async def test_law_1_what_comes_for_a_wait_while_the_run_ends_without_it_is_not_lost(
    comes: str, store_url: str
) -> None:
    """Laws 1, 13, S12: the body has enough and has returned, its commit is not there yet. An answer is kept, a signal
    discarded with the inbox; neither counts as handed over."""
    app = bide.App()

    @app.workflow("enough")
    async def workflow(step: bide.Step) -> str:
        gates = [step.wait_for_signal(name, signal=name, timeout="1h") for name in ("a", "b")]
        won: Any = await step.first("one", *gates, step.receive("go", "go", timeout="1h"))
        return str(won.value)

    async with world(app, store=store_url) as there:
        run = await there.start("enough")
        with no_free_worker(there):
            await there.complete("a", "A", settle=False)
        session_commit, receipts = there.runtime.committer.submit, list[bide.Receipt]()

        async def submit(command: Any) -> Any:
            if type(command).__name__ == "CommitTurn" and not receipts:
                sent = there.client().complete("b", "B") if comes == "answer" else there.client().signal(run.id, "go")
                receipts.append(await sent)
            return await session_commit(command)

        there.runtime.committer.submit = submit  # type: ignore[method-assign, assignment]  # to be there right before the commit
        await there.settle()
        [receipt] = receipts
        assert receipt.outcome == "woke"
        assert await there.result(run.id) == "A"
        kept = [(each.target, each.payload, each.reason) for each in await there.unused()]
        assert kept == ([("b", "B", "withdrawn")] if comes == "answer" else [])
        ended = (await there.ledger(run.id))[-1]
        assert ended.data.get("discarded", []) == ([receipt.message_id] if comes == "signal" else [])


async def _time_is_up(there: World) -> None:
    """The hour passed and its timer fired, and no worker was there to go on with the run."""
    await there.settle()
    there.clock.advance(timedelta(hours=1))
    await there.runtime.store.fire_timers(10, None)  # nobody offers a slot


# ---------------------------------------------------------------- packs and looks


async def test_F12_receive_all_waits_for_enough_and_takes_all_in_arrival_order(store_url: str) -> None:
    app = bide.App()

    @app.workflow("pack")
    async def workflow(step: bide.Step) -> list[Any]:
        first = await step.receive_all("votes", "yes", "no", at_least=2, timeout="1h")
        try:
            await step.receive_all("votes", "yes", "no", at_least=2, timeout="1h")
        except bide.WaitTimeoutError:
            rest = await step.receive_all("rest", "yes", "no", timeout="1h")
        none = await step.receive_all("none", "yes", timeout="1h", default=None)
        return [[[one.name, one.payload] for one in pack] for pack in (first, rest)] + [none]

    async with world(app, store=store_url) as there:
        run = await there.start("pack")
        await there.signal(run.id, "yes", 1)
        await there.signal(run.id, "other", 0)
        assert (await there.get(run.id)).status == "waiting"
        await there.signal(run.id, "no", 2)
        await there.crash()
        await there.signal(run.id, "yes", 3)
        assert [signal.name for signal in await there.inbox(run.id)] == ["other", "yes"]
        await there.advance("2h")
        assert await there.result(run.id) == [[["yes", 1], ["no", 2]], [["yes", 3]], None]


async def test_F12_a_look_at_the_inbox_takes_nothing_and_sees_the_same_in_every_replay(store_url: str) -> None:
    app, looks = bide.App(), list[Any]()

    @app.workflow("look")
    async def workflow(step: bide.Step) -> list[Any]:
        await step.sleep("hour", "1h")
        seen = [signal.payload for signal in await step.inbox()]
        looks.append(seen)
        taken = await step.receive("go", "go", timeout="1h")
        later = [signal.payload for signal in await step.inbox()]
        await step.receive("end", "end", timeout="1h")
        return [seen, taken.payload, later]

    async with world(app, store=store_url) as there:
        run = await there.start("look")
        await there.signal(run.id, "go", 1)
        await there.signal(run.id, "go", 2)
        await there.advance("1h")
        await there.signal(run.id, "go", 3)
        await there.crash()
        await there.signal(run.id, "end")
        assert await there.result(run.id) == [[1, 2], 1, [2]]
        assert looks[0] == looks[-1] == [1, 2]
        empty = await there.start("look")
        await there.advance("1h")
        assert (await there.get(empty.id)).status == "waiting"
