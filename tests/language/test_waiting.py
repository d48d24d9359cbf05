"""Machine files wait: for people, callbacks and events, answered or timed out (L3, L4, W2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bide
from bide.authoring.language import translate
from bide.testing import World, world
from tests.support.machine_files import EVERY_LANGUAGE_AND_EVERY_STORE

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, tmp_path: Path, language: str = "en", **changes: str) -> bide.App:
    """An app with one of the examples, in any language, with pieces of it changed first."""
    text = (EXAMPLES / f"{name}.machine").read_text(encoding="utf-8")
    for piece, instead in changes.items():
        assert piece in text
        text = text.replace(piece, instead)
    path = tmp_path / f"{name}.machine"
    path.write_text(translate(text, language), encoding="utf-8")
    app = bide.App()
    app.load(path)
    return app


# ---------------------------------------------------------------- the human approval gate

CONTENT = {"content": "hello", "author": "ann"}


async def open_task(there: World, run_id: str) -> Any:
    [task] = await there.interactions(run_id=run_id)
    return task


async def test_content_that_needs_no_look_is_approved_at_once(store_url: str, tmp_path: Path) -> None:
    """Seed 001, the approval gate: auto."""
    async with world(example("content_review", tmp_path), store=store_url) as there:
        run = await there.start("content_review", CONTENT)
        assert await there.result(run.id) == {"approved": True, "reviewer": "auto"}


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_a_person_decides_where_the_model_is_not_sure(language: str, store_url: str, tmp_path: Path) -> None:
    """Seed 001, the approval gate: human. W3: an answer that does not fit is refused, and the run goes on waiting."""
    app = example("content_review", tmp_path, language, **{"auto_approve: true": "auto_approve: false"})
    async with world(app, store=store_url) as there:
        run = await there.start("content_review", CONTENT)
        task = await open_task(there, run.id)
        assert (task.status, task.channel, task.step) == ("waiting", "chat", "human_review")
        with pytest.raises(bide.Invalid):
            await there.answer(task.id, {"approved": "yes"})
        assert (await there.get(run.id)).status == "waiting"
        await there.answer(task.id, {"approved": False, "reviewer": "bob"}, by="bob")
        assert await there.result(run.id) == {"approved": False, "reviewer": "bob", "notes": None}


async def test_a_wait_without_a_flow_for_its_timeout_fails_the_run(store_url: str, tmp_path: Path) -> None:
    """W2."""
    text = 'machine m\n  implements\n    wait for x\n      timeout: "1h"\n    compute result\n      1\n'
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        run = await there.start("m")
        await there.advance("59m")
        assert (await there.get(run.id)).status == "waiting"
        await there.advance("1m")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert info.error.code == "AWAIT_TIMEOUT"


async def test_a_timeout_can_be_handled_as_a_failure(tmp_path: Path) -> None:
    text = """
machine m
  implements
    wait for x
      timeout: "1h"
    compute not_reached
      1
    on failure
      compute result
        error.type
"""
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)
    async with world(app) as there:
        run = await there.start("m")
        await there.advance("1h")
        assert await there.result(run.id) == "timeout"


async def test_a_flow_runs_in_place_of_the_rest_when_the_time_is_up(store_url: str, tmp_path: Path) -> None:
    """L4: from inside of a branch, of a loop and of a flow; waits in that flow have flows of their own."""
    text = """
machine m
  implements
    compute result
      "main"
    for each day in [1, 2]
      run flow(inner)
    compute result
      "never"
  flows
    flow inner
      decide d
        when true
          wait for x
            timeout: "1h"
            on_timeout: flow(second)
    flow second
      wait for y
        timeout: "1h"
        on_timeout: flow(third)
      compute result
        "y came"
    flow third
      compute last
        {day: steps.nothing, said: "third"}
      compute nothing
        null
"""
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        run = await there.start("m")
        await there.advance("1h")
        task = (await there.interactions(run_id=run.id, status="waiting"))[0]
        assert task.step == "y"
        await there.answer(task.id, None)
        assert await there.result(run.id) == "y came"
        run = await there.start("m")
        await there.advance("2h")
        assert await there.result(run.id) is None, "the last compute of the flow that ran gave null"


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_nobody_decides_in_time_and_the_admin_is_told(language: str, store_url: str, tmp_path: Path) -> None:
    """Seed 001, the approval gate: timed out. L4: that flow computes nothing, so the answer is null."""
    app, told = (
        example("content_review", tmp_path, language, **{"auto_approve: true": "auto_approve: false"}),
        list[str](),
    )

    @app.action("@myorg/alerts/send")
    def send(message: str) -> None:
        told.append(message)

    async with world(app, store=store_url) as there:
        run = await there.start("content_review", CONTENT)
        task = await open_task(there, run.id)
        await there.advance("72h")
        assert await there.result(run.id) is None
        assert told == ["Content review timed out for ann"]
        with pytest.raises(bide.BideError):
            await there.answer(task.id, {"approved": True, "reviewer": "late"})


# ---------------------------------------------------------------- events


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_a_named_event_resumes_the_machine(language: str, store_url: str, tmp_path: Path) -> None:
    """Seed 001, the named event. L3: one whose data does not fit the schema is not for this wait."""
    async with world(example("ci_gate", tmp_path, language), store=store_url) as there:
        run = await there.start("ci_gate", {"commit": "abc"})
        assert (await there.get(run.id)).status == "waiting"
        for bad in ({"passed": "yes"}, {"build_id": "b"}, {"passed": True, "failures": 3}, None):
            await there.emit("ci.pipeline.complete", bad)
        await there.emit("ci.pipeline.started", {"passed": True})
        assert (await there.get(run.id)).status == "waiting"
        receipt = await there.emit(
            "ci.pipeline.complete", {"passed": False, "build_id": "b7", "test_count": 12, "x": 1}
        )
        assert receipt.resumed == 1
        assert await there.result(run.id) == {"commit": "abc", "passed": False, "build_id": "b7"}


async def test_an_event_that_never_comes_fails_the_run(store_url: str, tmp_path: Path) -> None:
    """W2."""
    async with world(example("ci_gate", tmp_path), store=store_url) as there:
        run = await there.start("ci_gate", {"commit": "abc"})
        await there.advance("1h")
        info = await there.get(run.id)
        assert (info.status, info.error and info.error.code) == ("failed", "AWAIT_TIMEOUT")


SHIPPING = """
machine shipping
    accepts
        order as text, is required
    implements
        wait for shipped
            event: "order.*"
            match: {order: input.order}
            channel: "webhook"
            timeout: forever
        emit "mail.wanted"
            about: input.order
            by: steps.shipped.carrier
        compute result
            steps.shipped.carrier

machine mailer
    accepts
        about as text, is required
        by as text
    subscribes "mail.*"
    implements
        compute result
            "${input.about} by ${input.by}"
"""


async def test_events_are_matched_emitted_and_start_runs(store_url: str, tmp_path: Path) -> None:
    """L2: `emit`; L3: `match` and `channel`; L7: `subscribes`."""
    (tmp_path / "m.machine").write_text(SHIPPING)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        one, two = await there.start("shipping", {"order": '7"'}), await there.start("shipping", {"order": "8"})
        await there.emit("order.shipped", {"order": "8", "carrier": "by api"})
        await there.emit("order.shipped", {"order": '7"', "carrier": "bike"}, channel="webhook")
        assert await there.result(one.id) == "bike"
        assert (await there.get(two.id)).status == "waiting"
        [mail] = await there.runs(definition="mailer")
        assert await there.result(mail.id) == '7" by bike'


async def test_what_is_launched_goes_on_by_itself(tmp_path: Path) -> None:
    """L2: `launch` does not wait, and what becomes of it does not matter to the machine."""
    text = """
machine m
    implements
        launch one
            machine: "broken"
            x: 1
        launch two
            machine: "slow"
        compute result
            {one: steps.one, two: steps.two}

machine slow
    implements
        wait for a_person
            timeout: "1h"
"""
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)

    @app.action("broken")
    async def broken(x: int) -> None:
        raise bide.NonRetryable("always")

    async with world(app) as there:
        run = await there.start("m")
        result = await there.result(run.id)
        assert (await there.get(result["one"])).status == "failed"
        assert (await there.get(result["two"])).status == "waiting"


@pytest.mark.parametrize("how", ['event: "ci.done"', "callback: true", 'channel: "chat"'])
async def test_W2_explain_says_what_an_answer_and_what_a_timeout_leads_to(
    store_url: str, tmp_path: Path, how: str
) -> None:
    """Both outcomes of a `wait for`, with and without a flow for the second."""
    text = f"""
machine m
  implements
    wait for ready
      {how}
      timeout: "1h"
      on_timeout: flow(give_up)
    wait for again
      {how}
      timeout: "1h"
  flows
    flow give_up
      compute result
        "none"
"""
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        run = await there.start("m")
        said = " ".join((await there.client().explain(run.id)).explanation)
        assert "On an answer it goes on behind 'ready', with the answer as steps.ready." in said
        assert "then its flow 'give_up' runs in place of the rest." in said

        if how.startswith("event"):
            await there.emit("ci.done", {})
        else:
            [wait] = await there.client().waits(run_id=run.id)
            await there.answer(wait.id, {})
        said = " ".join((await there.client().explain(run.id)).explanation)
        assert "On an answer it goes on behind 'again', with the answer as steps.again." in said
        assert "then the run fails with AWAIT_TIMEOUT" in said

        await there.advance("1h")
        error = (await there.get(run.id)).error
        assert error is not None
        assert error.code == "AWAIT_TIMEOUT"
