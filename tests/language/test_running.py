"""Machine files run: steps, flows, branches, loops, failures, crashes (L1, L2, L4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import bide
from bide.authoring.language import translate
from bide.authoring.language.words import LANGUAGES
from bide.testing import world
from tests.support.web import web


def app_of(tmp_path: Path, text: str, language: str = "en") -> bide.App:
    path = tmp_path / "test.machine"
    path.write_text(translate(text, language), encoding="utf-8")
    app = bide.App(private_hosts="127.0.0.1")  # where stand-ins for the outside are
    app.load(path)
    return app


EVERYTHING = """
machine everything
    accepts
        items as list, is required
        limit as number, defaults to 10
        note as text
    responds with
        total as number, is required
        names as list
        size as text
    implements
        for each item in input.items, collect: doubled
            compute one
                {name: item.name, price: item.price * 2}
        run flow(add)
        decide size
            when steps.sum.total > input.limit
                compute word
                    "big"
            otherwise
                compute word
                    "small"
        action tell call
            machine: "@test/tell"
            message: "${steps.sum.total} is ${steps.word}"
        compute result
            {total: steps.sum.total, names: steps.doubled, size: steps.size}
    flows
        flow add
            action sum call
                machine: "@test/sum"
                prices: steps.doubled
"""


def with_actions(app: bide.App, said: list[str]) -> bide.App:
    @app.action("@test/sum")
    def total(prices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"total": sum(price["price"] for price in prices)}

    @app.action("@test/tell")
    async def tell(message: str) -> None:
        said.append(message)

    return app


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_machine_gives_the_same_in_every_language(language: str, tmp_path: Path) -> None:
    """L5: the same result, and the same entries in its ledger."""
    said: list[str] = []
    stories = []
    for each in ("en", language):
        said.clear()
        async with world(with_actions(app_of(tmp_path, EVERYTHING, each), said)) as there:
            run = await there.start("everything", {"items": [{"name": "a", "price": 3}, {"name": "b", "price": 4}]})
            result = await there.result(run.id)
            stories.append([(entry.name, entry.data.get("step")) for entry in await there.ledger(run.id)])
    assert stories[0] == stories[1]
    names = [{"name": "a", "price": 6}, {"name": "b", "price": 8}]
    assert result == {"total": 14, "names": names, "size": "big"}
    assert said == ["14 is big"]


async def test_a_machine_runs_on_every_store(store_url: str, tmp_path: Path) -> None:
    """D9."""
    said: list[str] = []
    async with world(with_actions(app_of(tmp_path, EVERYTHING), said), store=store_url) as there:
        run = await there.start("everything", {"items": [{"name": "a", "price": 3}], "limit": 6})
        assert (await there.result(run.id))["size"] == "small"
        assert (await there.get(run.id)).input == {"items": [{"name": "a", "price": 3}], "limit": 6, "note": None}


@pytest.mark.parametrize("point", ["before", "after_code", "after_commit"])
@pytest.mark.parametrize("step", ["one", "one#2", "sum", "word", "tell", "result"])
async def test_a_crash_at_any_step_changes_nothing_but_the_number_of_tries(
    step: str, point: str, store_url: str, tmp_path: Path
) -> None:
    """D2: what was committed is not done again."""
    said: list[str] = []
    async with world(with_actions(app_of(tmp_path, EVERYTHING), said), store=store_url) as there:
        there.crash_at(step, point)  # type: ignore[arg-type]  # one of the three
        run = await there.start("everything", {"items": [{"name": "a", "price": 3}, {"name": "b", "price": 4}]})
        result = await there.result(run.id)
    assert (result["total"], result["size"]) == (14, "big")
    assert said == ["14 is big"] * (2 if (step, point) == ("tell", "after_code") else 1)


# ---------------------------------------------------------------- what a machine says of itself

HEADED = """
machine "@shop/charge"
    version: "7"
    queue: "payments"
    priority: 5
    retries: 1
    redact: card_number, "security code"
    accepts
        card_number as text, is required
    implements
        action charge call
            machine: "charge"
            card: input.card_number
            retry: 0
        compute result
            {card_number: input.card_number, charged: steps.charge}
"""


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_machine_says_its_version_queue_priority_and_retries(language: str, tmp_path: Path) -> None:
    """F17, F18, F16: as an option of a workflow does, in every language."""
    app = app_of(tmp_path, HEADED, language)
    definition = app.registry.get("@shop/charge")
    assert (definition.queue, definition.priority) == ("payments", 5)
    tries = 0

    @app.action("charge")
    def charge(card: str) -> None:
        nonlocal tries
        tries += 1
        raise ValueError("the bank is closed")

    async with world(app) as there:
        run = await there.start("@shop/charge", {"card_number": "4111"})
        await there.advance("1h")
        info = await there.get(run.id)
        assert (info.status, info.version) == ("failed", "7")
    assert tries == 2, "one retry"


async def test_what_a_machine_redacts_is_seen_nowhere(store_url: str, tmp_path: Path) -> None:
    """G4: not in the run, its ledger, its steps or its error."""
    app = app_of(tmp_path, HEADED)

    @app.action("charge")
    def charge(card: str) -> None:
        raise bide.NonRetryable(f"{card} was refused")

    async with world(app, store=store_url) as there:
        run = await there.start("@shop/charge", {"card_number": "4111-canary"})
        await there.advance("1h")
        told = [await there.get(run.id), await there.ledger(run.id), await there.steps(run.id), await there.runs()]
        assert "canary" not in repr(told)
        error = (await there.get(run.id)).error
        assert error is not None
        assert error.message.endswith("[redacted] was refused")


# ---------------------------------------------------------------- L1: what goes in and comes out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "items is missing, and it is required"),
        (None, "items is missing, and it is required"),
        ({"items": "x"}, "items is list, but a text was given"),
        ({"items": [], "limit": True}, "limit is number, but a boolean was given"),
        ({"items": {}, "note": 3}, "items is list, but a map was given; note is text, but a number was given"),
        ([1], "it is a list, not an object with items, limit, note"),
    ],
)
async def test_an_input_that_is_not_accepted_is_refused_at_the_door(given: Any, said: str, tmp_path: Path) -> None:
    """L1."""
    async with world(with_actions(app_of(tmp_path, EVERYTHING), [])) as there:
        with pytest.raises(bide.BadInput) as caught:
            await there.start("everything", given)
        assert str(caught.value) == f"the input of 'everything' is not what it accepts: {said}"
        assert await there.runs() == []


async def test_dates_are_days_or_moments(tmp_path: Path) -> None:
    text = "machine m\n  accepts\n    at as date, is required\n  implements\n    compute a\n      input.at\n"
    async with world(app_of(tmp_path, text)) as there:
        for good in ("2030-01-31", "2030-01-31T08:00:00Z", "2030-01-31T08:00:00+02:00"):
            run = await there.start("m", {"at": good})
            assert await there.result(run.id) == good
        for bad in ("31.1.2030", "soon", 7, ""):
            with pytest.raises(bide.BadInput):
                await there.start("m", {"at": bad})


async def test_a_result_that_is_not_what_the_machine_responds_with_fails_the_run(tmp_path: Path) -> None:
    """L1."""
    text = """
machine m
    responds with
        status as text, is required
    implements
        compute result
            {status: input.x}
"""
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m", {"x": 3})
        info = await there.get(run.id)
        assert info.status == "failed"
        assert "status is text, but a number was given" in str(info.error)
        assert info.attempt == 0, "it would be the same again"
        run = await there.start("m", {"x": "fine"})
        assert await there.result(run.id) == {"status": "fine"}


ANSWERS = {
    "the last compute result": ("compute result\n  1\ncompute result\n  2\ncompute other\n  3\n", 2),
    "else the last compute": ("compute a\n  1\ncompute b\n  2\n", 2),
    "else null": ('emit tell\n  event: "order.told"\n', None),
    "also in a branch": ("decide d\n  when true\n    compute a\n      7\n", 7),
    "also in a flow that ran": ("run flow(f)\n", 5),
}


@pytest.mark.parametrize(("steps", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_the_answer_of_a_machine_is(steps: str, answer: Any, tmp_path: Path) -> None:
    """L4."""
    body = "".join(f"    {line}\n" for line in steps.splitlines())
    text = f"machine m\n  implements\n{body}  flows\n    flow f\n      compute in_flow\n        5\n"
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m")
        assert await there.result(run.id) == answer


async def test_an_expression_that_comes_to_nothing_fails_the_run_at_once(tmp_path: Path) -> None:
    """F16: what would be the same again is not retried."""
    text = "machine m\n  implements\n    compute a\n      1 / input.zero\n"
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m", {"zero": 0})
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert info.error is not None
        assert info.error.code == "BadExpression"
        assert info.error.message.endswith("test.machine:4:11: nothing can be divided by 0")


SLIPS = [
    ('wait for x\n  event: "e"\n  match: input.x\n  timeout: "1h"', 7, "match: give an object"),
    ("wait for x\n  timeout: input.x", "soon", "'soon' cannot be used as a duration"),
    ('action a call\n  machine: "f"\n  retry: {attempts: input.x}', "two", "retry: attempts and factor are numbers"),
    ('action a http\n  url: "http://127.0.0.1:9"\n  headers: input.x', [1], "headers: give an object"),
    ("emit e\n  event: input.x", "a..b", "has an empty segment"),
]


@pytest.mark.parametrize(("steps", "given", "said"), SLIPS, ids=[said for _, _, said in SLIPS])
async def test_a_value_that_cannot_be_used_fails_the_run_at_once_in_words(
    steps: str, given: Any, said: str, tmp_path: Path
) -> None:
    """L6: what the file cannot tell is told by the run, and not tried again (F16)."""
    body = "".join(f"    {line}\n" for line in steps.splitlines())
    async with world(app_of(tmp_path, f"machine m\n  implements\n{body}")) as there:
        run = await there.start("m", {"x": given})
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert said in str(info.error)


async def test_flows_that_run_each_other_for_ever_are_stopped(tmp_path: Path) -> None:
    text = (
        "machine m\n  implements\n    run flow(f)\n  flows\n    flow f\n"
        "      decide again\n        when input.go\n          run flow(f)\n"
    )
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m", {"go": True})
        assert "run each other more than 100 deep" in str((await there.get(run.id)).error)


# ---------------------------------------------------------------- failures

FAILING = """
machine careful
    implements
        action risky call
            machine: "@test/risky"
            how: input.how
            retry: 0
            on failure
                compute seen
                    {step: error.step, message: error.message, type: error.type, code: error.code}
        run flow(second)
        compute result
            {seen: steps.seen, risky: steps.risky, second: steps.caught}
    flows
        flow second
            action again call
                machine: "@test/risky"
                how: input.how
                retry: 0
            compute not_reached
                1
            on failure
                compute caught
                    "caught ${error.message}"
"""


def failing(tmp_path: Path, calls: list[str]) -> bide.App:
    app = app_of(tmp_path, FAILING)

    @app.action("@test/risky")
    def risky(how: str) -> str:
        calls.append(how)
        if how == "fail":
            raise ValueError("it broke")
        return "fine"

    return app


async def test_a_failure_is_handled_where_the_file_says(store_url: str, tmp_path: Path) -> None:
    """L2: `on failure` of a step goes on with the next step; that of a flow ends the flow."""
    calls: list[str] = []
    async with world(failing(tmp_path, calls), store=store_url) as there:
        run = await there.start("careful", {"how": "fail"})
        seen = {"step": "risky", "message": "it broke", "type": "runtime", "code": "ValueError"}
        assert await there.result(run.id) == {"seen": seen, "risky": None, "second": "caught it broke"}
        run = await there.start("careful", {"how": "well"})
        assert await there.result(run.id) == {"seen": None, "risky": "fine", "second": None}
    assert calls == ["fail", "fail", "well", "well"]


async def test_a_call_with_wrong_arguments_says_so_and_is_not_repeated(tmp_path: Path) -> None:
    text = 'machine m\n  implements\n    action a call\n      machine: "f"\n      wrong: 1\n'
    app = app_of(tmp_path, text)

    @app.action("f")
    def f(right: int) -> int:
        return right

    async with world(app) as there:
        run = await there.start("m")
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert "action 'f' cannot be called with (wrong)" in str(info.error)


async def test_a_machine_calls_another_and_takes_its_answer(store_url: str, tmp_path: Path) -> None:
    """L2: `action … call` and `ask … from` of a machine are child runs."""
    text = """
machine outer
    implements
        ask price from "inner"
            item: "book"
        action again call
            machine: "in" + "ner"
            item: "pen"
        compute result
            [steps.price.price, steps.again.price]

machine inner
    accepts
        item as text, is required
    responds with
        price as number
    implements
        decide which
            when input.item == "book"
                compute result
                    {price: 12}
            otherwise
                compute result
                    {price: 1}
"""
    async with world(app_of(tmp_path, text), store=store_url) as there:
        run = await there.start("outer")
        assert await there.result(run.id) == [12, 1]
        assert sorted(info.definition for info in await there.runs()) == ["inner", "inner", "outer"]


async def test_calling_what_does_not_exist_fails_with_its_name(tmp_path: Path) -> None:
    text = 'machine m\n  implements\n    action a call\n      machine: "nobody"\n'
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m")
        await there.advance("1h")
        assert "no definition is called 'nobody'" in str((await there.get(run.id)).error)


# ---------------------------------------------------------------- HTTP

HTTP = """
machine fetch
    accepts
        url as text, is required
    implements
        action get http
            method: "POST"
            url: input.url + "/orders?x=1"
            headers: {Authorization: "Bearer ${secrets.TOKEN}", X_Count: 3}
            body: {order: 7}
            retry: {attempts: 3, first: "1s"}
            timeout: "2m"
        compute result
            {status: steps.get.status, body: steps.get.body, kind: steps.get.headers["content-type"]}
"""


async def test_an_http_action_sends_and_gives_what_came_back(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2. The secret is read when it is used, and stored nowhere."""
    monkeypatch.setenv("BIDE_SECRET_TOKEN", "s3cr3t-canary")
    async with (
        web(lambda asked: (200, {"ok": True})) as (url, requests),
        world(app_of(tmp_path, HTTP), store=store_url) as there,
    ):
        run = await there.start("fetch", {"url": url})
        result = await there.result(run.id)
        assert result == {"status": 200, "body": {"ok": True}, "kind": "application/json"}
        [asked] = requests
        assert (asked.method, asked.path, asked.body) == ("POST", "/orders?x=1", {"order": 7})
        assert asked.headers["authorization"] == "Bearer s3cr3t-canary"
        assert asked.headers["x_count"] == "3"
        assert asked.headers["idempotency-key"] == f"{run.id}/get"
        told = repr([await there.get(run.id), await there.ledger(run.id), await there.waits()])
        assert "canary" not in told


async def test_a_server_error_is_tried_again_and_a_refusal_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: retries."""
    monkeypatch.setenv("TOKEN", "t")
    answers = iter([(503, "busy"), (500, "oops"), (200, "fine")])
    async with web(lambda asked: next(answers)) as (url, requests), world(app_of(tmp_path, HTTP)) as there:
        run = await there.start("fetch", {"url": url})
        await there.advance("1m")
        assert (await there.result(run.id))["body"] == "fine"
        assert len(requests) == 3
    async with (
        web(lambda asked: (400, {"why": "no such order"})) as (url, requests),
        world(app_of(tmp_path, HTTP)) as there,
    ):
        run = await there.start("fetch", {"url": url})
        await there.settle()
        assert len(requests) == 1
        await there.advance("1h")
        error = str((await there.get(run.id)).error)
        assert "answered 400" in error
        assert "no such order" in error
        assert "Bearer" not in error


INNER = """
machine fetch
    implements
        action get http
            url: input.url
        compute result
            steps.get.body
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_an_http_action_reaches_no_inner_address_that_is_not_listed(host: str, tmp_path: Path) -> None:
    """T57: the host may come from an input. It would be refused again, so it is not tried again."""
    app = app_of(tmp_path, INNER)
    app.configure(private_hosts="pay.internal,*.shop.internal")
    async with web(lambda asked: (200, "inside")) as (url, requests), world(app) as there:
        run = await there.start("fetch", {"url": url.replace("127.0.0.1", host)})
        await there.advance("1h")
        info = await there.get(run.id)
        assert (info.status, requests) == ("failed", [])
        assert "failed once" in str(info.error)
        assert "which is no public address; the setting private_hosts allows it" in str(info.error)


@pytest.mark.parametrize("listed", ["localhost", "pay.internal, LOCALHOST", "*"])
async def test_an_http_action_reaches_an_inner_address_that_is_listed_by_its_name(listed: str, tmp_path: Path) -> None:
    """T57, T58: the name stays in the header, and a user in the URL goes out as a header."""
    app = app_of(tmp_path, INNER)
    app.configure(private_hosts=listed)
    async with web(lambda asked: (200, "inside")) as (url, requests), world(app) as there:
        given = url.replace("127.0.0.1", "ann:pw@localhost")
        run = await there.start("fetch", {"url": f"{given}/a b"})
        assert await there.result(run.id) == "inside"
        [asked] = requests
        assert asked.path == "/a%20b"
        assert asked.headers["host"] == url.replace("http://127.0.0.1", "localhost")
        assert asked.headers["authorization"] == "Basic YW5uOnB3"


@pytest.mark.parametrize("url", ["ftp://host/", "https://", "//host", "nonsense", "http://" + "a" * 70 + ".example/"])
async def test_an_http_action_says_which_address_it_cannot_use(url: str, tmp_path: Path) -> None:
    """T60."""
    async with world(app_of(tmp_path, INNER)) as there:
        run = await there.start("fetch", {"url": url})
        info = await there.get(run.id)
        assert (info.status, info.attempt) == ("failed", 0)
        assert "the request cannot be sent" in str(info.error)


async def test_each_request_of_a_loop_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Else the other side would take the second for the first again."""
    text = """
machine m
    implements
        for each n in [1, 2]
            action send http
                method: "POST"
                url: input.url
                body: {n: n}
"""
    async with web(lambda asked: (200, "ok")) as (url, requests), world(app_of(tmp_path, text)) as there:
        there.crash_at("send#2", "after_code")
        run = await there.start("m", {"url": url})
        keys = [(asked.headers["idempotency-key"], asked.body["n"]) for asked in requests]
        assert keys == [(f"{run.id}/send", 1), (f"{run.id}/send#2", 2), (f"{run.id}/send#2", 2)]


async def test_the_whole_machine_can_have_a_handler(tmp_path: Path) -> None:
    text = """
machine m
    implements
        compute a
            1 / input.zero
    on failure
        compute result
            error.code
"""
    async with world(app_of(tmp_path, text)) as there:
        run = await there.start("m", {"zero": 0})
        assert await there.result(run.id) == "BadExpression"


async def test_a_missing_secret_fails_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    async with world(app_of(tmp_path, HTTP)) as there:
        run = await there.start("fetch", {"url": "http://127.0.0.1:9"})
        assert "there is no secret 'TOKEN'; set BIDE_SECRET_TOKEN" in str((await there.get(run.id)).error)


ECHOED = """
machine fetch
    accepts
        url as text
    implements
        action get http
            method: "POST"
            url: "${input.url}/x?key=${secrets.TOKEN}"
            headers: {Authorization: "Bearer ${secrets.TOKEN}"}
            body: {key: secrets.TOKEN}
            retry: 0
        compute result
            steps.get.body
"""

SECRET = 's3cr3t/"canary"'


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, {"echo": {SECRET: [f"key {SECRET} it is"]}}),
        (200, f"key {SECRET}"),
        (400, {"bad": f"key {SECRET} is unknown"}),
        (400, f"/x?key={quote(SECRET, safe='')} is unknown"),
        (400, "-" * 290 + SECRET),
        (500, SECRET),
    ],
)
async def test_a_secret_that_the_other_side_repeats_is_stored_nowhere(
    status: int, said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Secrets are never stored, nor logged: not in results, errors, the file of the store, or the logs of clients."""
    monkeypatch.setenv("BIDE_SECRET_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    async with (
        web(lambda asked: (status, said)) as (url, requests),
        world(app_of(tmp_path, ECHOED), store="sqlite://") as there,
    ):
        run = await there.start("fetch", {"url": url})
        await there.advance("1h")
        info = await there.get(run.id)
        told = repr([info, await there.ledger(run.id), await there.steps(run.id)])
        store: Any = there.runtime.store
        place = Path(store.path)
        stored = b"".join(f.read_bytes() for f in place.parent.iterdir() if f.name.startswith(place.name))
        assert requests[0].body == {"key": SECRET}
        assert info.status == ("completed" if status == 200 else "failed")
        assert "[redacted]" in told
        for piece in ("s3cr3t", "canary"):
            assert piece not in told.replace("[redacted]", "")
            assert piece.encode() not in stored
            assert piece not in caplog.text


async def test_an_action_that_repeats_a_secret_has_it_stored_nowhere(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_SECRET_TOKEN", SECRET)
    app = app_of(
        tmp_path,
        'machine m\n  implements\n    action say call\n      machine: "echo"\n      key: secrets.TOKEN\n'
        "      retry: 0\n    compute result\n      steps.say\n",
    )

    @app.action("echo")
    def echo(key: str) -> Any:
        return {"said": key}

    async with world(app, store=store_url) as there:
        run = await there.start("m", {})
        assert await there.result(run.id) == {"said": "[redacted]"}


# ---------------------------------------------------------------- models

ASKING = """
machine screen
    implements
        ask check, using: "PROVIDER:model-1"
            with task "Is ${input.content} fine?"
            returns
                flags as list
                fine as boolean, is required
            assuming
                fine: true
                flags: []
            retry: 1
        compute result
            {fine: steps.check.fine, flags: steps.check.flags}
"""


async def test_the_assumed_answer_stands_in_for_the_model_in_the_testing_kit(tmp_path: Path) -> None:
    """L2."""
    app = app_of(tmp_path, ASKING)

    class Never:
        async def ask(self, model: str, task: str, schema: Mapping[str, Any] | None) -> Any:
            raise AssertionError("nobody asks a model in a test")

    app.provider("PROVIDER", Never())
    async with world(app) as there:
        run = await there.start("screen", {"content": "x"})
        assert await there.result(run.id) == {"fine": True, "flags": []}


async def test_a_provider_is_asked_and_its_answer_is_checked(tmp_path: Path) -> None:
    """L2: outside of the testing kit. A misfit is a failed try."""
    asked: list[tuple[str, str]] = []
    answers: list[Any] = [{"fine": "perhaps"}, {"fine": False, "flags": ["x"]}]

    class Model:
        async def ask(self, model: str, task: str, schema: Mapping[str, Any] | None) -> Any:
            asked.append((model, task))
            assert schema is not None
            assert schema["required"] == ["fine"]
            return answers.pop(0)

    app = app_of(tmp_path, ASKING)
    app.provider("PROVIDER", Model())
    result = await really(app, "screen", {"content": "this"})
    assert result == {"fine": False, "flags": ["x"]}
    assert asked == [("model-1", "Is this fine?")] * 2


async def test_the_assumed_answer_is_taken_where_no_provider_is_configured(tmp_path: Path) -> None:
    """L2: outside of the testing kit."""
    assert await really(app_of(tmp_path, ASKING), "screen", {"content": "this"}) == {"fine": True, "flags": []}


async def really(app: bide.App, definition: str, input: Any) -> Any:
    """Run it as in production, without the testing kit."""
    app.configure(store="memory://")
    async with app.engine():
        run = await app.client().start(definition, input)
        return await asyncio.wait_for(run.result(), 120)


@pytest.mark.parametrize(
    ("name", "path", "answer"),
    [
        ("anthropic", "/v1/messages", {"content": [{"type": "tool_use", "input": {"fine": True, "flags": []}}]}),
        ("openai", "/chat/completions", {"choices": [{"message": {"content": '{"fine": true, "flags": []}'}}]}),
    ],
)
async def test_both_shapes_of_providers_are_spoken(
    name: str, path: str, answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: keys come from the environment."""
    app = app_of(tmp_path, ASKING.replace("PROVIDER", name))
    async with web(lambda asked: (200, answer)) as (url, requests):
        monkeypatch.setenv(f"{name.upper()}_API_KEY", "key-1")
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", url)
        assert await really(app, "screen", {"content": "this"}) == {"fine": True, "flags": []}
    [asked] = requests
    assert asked.path == path
    assert asked.body["model"] == "model-1"
    assert "key-1" in (asked.headers.get("x-api-key") or asked.headers["authorization"])


# ---------------------------------------------------------------- loading


def test_a_folder_is_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    good = "machine {}\n  implements\n    compute a\n      1\n"
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.machine").write_text(good.format("one"))
    (tmp_path / "inner" / "two.machine").write_text(good.format("two"))
    app = bide.App()
    assert sorted(definition.name for definition in app.load(tmp_path)) == ["one", "two"]
    (tmp_path / "bad.machine").write_text("machine x\n  implements\n    compute a\n      input..b\n")
    (tmp_path / "worse.machine").write_text("macine x\n")
    other = bide.App()
    with pytest.raises(bide.LanguageError) as caught:
        other.load(tmp_path)
    assert len(caught.value.problems) == 2
    assert other.registry.names() == frozenset()


def test_what_cannot_be_read_is_refused_with_its_name(tmp_path: Path) -> None:
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="there is no machine file"):
        app.load(tmp_path / "no.machine")
    with pytest.raises(bide.BadDefinition, match=r"there is no \.machine file in"):
        app.load(tmp_path)
    (tmp_path / "latin.machine").write_bytes(b"machine caf\xe9\n")
    with pytest.raises(bide.BadDefinition, match="is not UTF-8"):
        app.load(tmp_path / "latin.machine")


def test_two_machines_of_one_name_and_version_clash(tmp_path: Path) -> None:
    text = 'machine m\n  version: "{}"\n  implements\n    compute a\n      1\n'
    app = bide.App()
    for name, version in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.machine").write_text(text.format(version))
        app.load(tmp_path / f"{name}.machine")
    with pytest.raises(bide.BadDefinition, match="registered already"):
        app.load(tmp_path / "a.machine")


# ---------------------------------------------------------------- the testing kit


async def test_stubs_stand_in_for_actions_by_function_and_by_step(tmp_path: Path) -> None:
    """They see the entries of the step, and wrong ones are refused as the action itself would."""
    said: list[str] = []
    app = app_of(tmp_path, EVERYTHING)

    @app.action("@test/sum")
    def total(prices: list[Any]) -> dict[str, Any]:
        raise AssertionError("the stub stands in")

    async with world(app) as there:
        summed = there.stub(total, returns={"total": 3})
        told = there.stub("tell", returns=None)
        run = await there.start("everything", {"items": [{"name": "a", "price": 1}]})
        assert (await there.result(run.id))["total"] == 3
        assert summed == [((), {"prices": [{"name": "a", "price": 2}]})]
        assert told == [((), {"message": "3 is small"})], "though nobody registered that action"
    assert said == []


async def test_a_failed_run_is_retried_with_the_steps_that_it_has(tmp_path: Path) -> None:
    """F16."""
    text = """
machine m
    implements
        action one call
            machine: "one"
        action two call
            machine: "two"
            retry: 0
        compute result
            [steps.one, steps.two]
"""
    app, calls = app_of(tmp_path, text), list[str]()

    @app.action("one")
    def one() -> int:
        calls.append("one")
        return 1

    @app.action("two")
    def two() -> int:
        calls.append("two")
        if calls.count("two") == 1:
            raise bide.NonRetryable("not yet")
        return 2

    async with world(app) as there:
        run = await there.start("m")
        await there.advance("1h")
        if (await there.get(run.id)).status == "failed":
            run = await there.retry(run.id)
        assert await there.result(run.id) == [1, 2]
    assert calls.count("one") == 1
