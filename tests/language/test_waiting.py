"""Machine files wait: for people, callbacks and events, answered or timed out (L3, L4, W2)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bide
from bide.authoring.language import translate
from bide.authoring.language.words import LANGUAGES
from bide.core.durations import parse_duration
from bide.testing import World, world
from tests.support.machine_files import EVERY_LANGUAGE_AND_EVERY_STORE
from tests.support.web import web

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


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", ["auto", "human", "timed out", "event", "no event"])
async def test_an_example_has_the_same_ledger_in_every_language(case: str, language: str, tmp_path: Path) -> None:
    """L5: the same run, entry by entry, whatever language it is written in."""
    stories = [await story(case, each, tmp_path) for each in ("en", language)]
    assert len(stories[0]) > 2
    assert stories[0] == stories[1]


async def story(case: str, language: str, tmp_path: Path) -> list[Any]:
    is_event = "event" in case
    name = "ci_gate" if is_event else "content_review"
    changes = {"auto_approve: true": "auto_approve: false"} if case in ("human", "timed out") else {}
    app = example(name, tmp_path, language, **changes)

    @app.action("@myorg/alerts/send")
    def send(message: str) -> None: ...

    async with world(app) as there:
        run = await there.start(name, {"commit": "abc"} if is_event else CONTENT)
        if case == "human":
            await there.answer((await open_task(there, run.id)).id, {"approved": True, "reviewer": "bob"})
        elif case == "event":
            await there.emit("ci.pipeline.complete", {"passed": True})
        await there.advance("73h")
        told = [msgspec.json.encode([entry.name, entry.data]).decode() for entry in await there.ledger(run.id)]
        return [re.sub(r"(run|int|msg|wait|cor|w)[_-][0-9A-Za-z_]+|[0-9a-f]{16,}", "…", entry) for entry in told]


@asynccontextmanager
async def with_a_model(app: bide.App, store: str, answer: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A world that asks a stand-in for the model in place of the assumed answer."""
    said = {"content": [{"type": "tool_use", "input": answer}]}
    async with web(lambda asked: (200, said)) as (url, requests), world(app, store=store) as there:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        object.__setattr__(there.runtime.ports, "assumes", False)
        yield there, requests


@pytest.mark.parametrize("case", ["auto", "human", "timed out"])
async def test_the_approval_gate_as_it_is_written_asks_a_model_first(
    case: str, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 001, unchanged: a model server stands in for the one of the file, and a person or nobody answers."""
    app, told = example("content_review", tmp_path), list[str]()

    @app.action("@myorg/alerts/send")
    def send(message: str) -> None:
        told.append(message)

    answer = {"flags": ["odd"], "auto_approve": case == "auto"}
    async with with_a_model(app, store_url, answer, monkeypatch) as (there, requests):
        run = await there.start("content_review", CONTENT)
        assert [asked.body["model"] for asked in requests] == ["claude-haiku-4"]
        assert "Content: hello" in requests[0].body["messages"][0]["content"]
        if case == "human":
            await there.answer((await open_task(there, run.id)).id, {"approved": True, "reviewer": "bob"}, by="bob")
        await there.advance("72h")
        expected = {
            "auto": {"approved": True, "reviewer": "auto"},
            "human": {"approved": True, "reviewer": "bob", "notes": None},
            "timed out": None,
        }
        assert await there.result(run.id) == expected[case]
        assert (told, len(requests)) == (["Content review timed out for ann"] * (case == "timed out"), 1)


SEED = {
    "payment": """
machine payment_workflow
accepts
order_id as text, is required
amount as number, is required
responds with
payment_status as text
payment_id as text
implements
action request_payment http
method: "POST"
url: "https://payments.example.com/charge"
body: {
order_id: input.order_id,
amount: input.amount,
callback_url: steps.wait_for_payment._resume_url
}
wait for wait_for_payment
callback: true
timeout: "24h"
on_timeout: flow(cancel_order)
schema
payment_id as text, is required
status as text, is required
compute result
{
payment_status: steps.wait_for_payment.status,
payment_id: steps.wait_for_payment.payment_id
}
flows
flow cancel_order
action notify call
machine: "@mashin/actions/notifications/send"
message: "Payment timed out for order " + input.order_id
compute result
{payment_status: "timed_out", payment_id: null}
""",
    "content_review": """
machine content_review
accepts
content as text, is required
author as text, is required
implements
ask pre_screen, using: "anthropic:claude-haiku-4"
with task "Check this content for policy violations.\\n\\nContent: ${input.content}"
returns
flags as list
auto_approve as boolean
assuming
flags: []
auto_approve: true
decide needs_review
when steps.pre_screen.auto_approve
compute auto_result
{approved: true, reviewer: "auto"}
otherwise
wait for human_review
channel: "chat"
timeout: "72h"
on_timeout: flow(escalate)
schema
approved as boolean, is required
reviewer as text, is required
notes as text
flows
flow escalate
launch notify_admin
machine: "@myorg/alerts/send"
message: "Content review timed out for " + input.author
""",
    "ci_gate": """
wait for ci_result
event: "ci.pipeline.complete"
timeout: "1h"
schema
passed as boolean, is required
build_id as text
test_count as number
failures as list
""",
}


@pytest.mark.parametrize("name", SEED)
def test_an_example_has_the_lines_that_it_was_asked_for_with(name: str) -> None:
    """Seed 001: all of them, in their order, and of the first two nothing else but a comment."""
    text = (EXAMPLES / f"{name}.machine").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("//")]
    wanted = SEED[name].strip().splitlines()
    if name == "ci_gate":
        start = lines.index(wanted[0])
        lines = lines[start : start + len(wanted)]
    assert lines == wanted


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
        assert (await there.answer(task.id, {"approved": True, "reviewer": "late"})).outcome == "late"


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


DATED = """
machine dated
    implements
        wait for told
            event: "day.told"
            match: {order: 7}
            timeout: "1h"
            schema
                day as date, is required
                note as text
        compute result
            steps.told.day
"""


async def test_what_an_event_must_have_is_kept_with_its_wait_and_said_in_words(store_url: str, tmp_path: Path) -> None:
    """L3, G3, W3: the schema is in the wait and in the ledger, and nobody has to read an expression."""
    (tmp_path / "dated.machine").write_text(DATED)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        run = await there.start("dated")
        [wait] = await there.waits(run_id=run.id)
        assert wait.details["schema"]["required"] == ["day"]
        [opened] = [e for e in await there.ledger(run.id) if e.name == "await_execution_waiting"]
        assert opened.data["schema"] == wait.details["schema"]
        said = " ".join((await there.explain(run.id)).explanation)
        assert "for an event 'day.told' with order 7, day (date) and perhaps note (string) at 'told'" in said
        for bad in ("2030-99-99", "2030-02-31", "2030-02-31T08:00:00Z", "2030-01-01T25:00:00", "tomorrow", "", 7, None):
            assert (await there.emit("day.told", {"order": 7, "day": bad})).resumed == 0, bad
        assert (await there.emit("day.told", {"order": 8, "day": "2030-01-31"})).resumed == 0
        with pytest.raises(bide.InvalidAnswer):
            await there.answer(wait.id, {"order": 7, "day": "2030-02-31"})
        command = said.split("by: ")[1]
        assert "day.told" in command
        assert (await there.emit("day.told", {"order": 7, "day": "2030-01-31"})).resumed == 1
        assert await there.result(run.id) == "2030-01-31"


@pytest.mark.parametrize(
    "day", ["2028-02-29", "2030-01-31T08:00:00Z", "2030-01-31T08:00:00+02:00", "2030-01-31T08:00:00"]
)
async def test_a_day_and_a_moment_are_dates_of_events(day: str, tmp_path: Path) -> None:
    (tmp_path / "dated.machine").write_text(DATED)
    app = bide.App()
    app.load(tmp_path)
    async with world(app) as there:
        run = await there.start("dated")
        await there.emit("day.told", {"order": 7, "day": day})
        assert await there.result(run.id) == day


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


async def test_what_is_launched_goes_on_by_itself(store_url: str, tmp_path: Path) -> None:
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

    async with world(app, store=store_url) as there:
        run = await there.start("m")
        result = await there.result(run.id)
        assert (await there.get(result["one"])).status == "failed"
        assert (await there.get(result["two"])).status == "waiting"


async def test_what_a_person_is_asked_is_each_runs_own_where_the_file_reads_the_run(
    store_url: str, tmp_path: Path
) -> None:
    """L3: the first wait asks every run the same, the second one reads its input."""
    text = """
machine m
  accepts
    name as text, is required
    limit as text, is required
  implements
    wait for a_look
      timeout: "1h"
    wait for a_word
      title: "Hello ${input.name}"
      assignee: input.name
      timeout: input.limit
"""
    (tmp_path / "m.machine").write_text(text)
    app = bide.App()
    app.load(tmp_path)
    async with world(app, store=store_url) as there:
        for name, limit in (("ann", "1h"), ("bob", "2h")):
            run = await there.start("m", {"name": name, "limit": limit})
            look = await open_task(there, run.id)
            assert (look.title, look.assignee) == ("a look", None)
            await there.answer(look.id, None)
            word = await open_task(there, run.id)
            assert (word.title, word.assignee) == (f"Hello {name}", name)
            assert word.deadline - word.opened_at == parse_duration(limit)


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


async def test_W10_an_answer_by_hand_stands_for_an_event_of_a_file(store_url: str, tmp_path: Path) -> None:
    """L3, F8: its data is what the step gives; data without the fields of its `schema` is refused."""
    path = tmp_path / "ship.machine"
    path.write_text(
        'machine ship\n  implements\n    wait for parcel\n      event: "order.*"\n      timeout: "1h"\n'
        "      schema\n        weight as number, is required\n    compute result\n      steps.parcel.weight\n",
        encoding="utf-8",
    )
    app = bide.App()
    app.load(path)
    async with world(app, store=store_url) as there:
        run = await there.start("ship", {})
        [wait] = await there.waits(run_id=run.id)
        with pytest.raises(bide.Invalid):
            await there.answer(wait.id, {"weight": "much"})
        await there.answer(wait.id, {"weight": 7})
        assert await there.result(run.id) == 7
