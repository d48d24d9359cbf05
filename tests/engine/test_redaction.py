"""Redaction: what a definition hides is used, and never shown (G4)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, TypedDict

import httpx
import msgspec
import pytest

import bide
from bide.core.decisions import digest_of, seal
from bide.core.ledger import payload_digest
from bide.core.payloads import canonical, digest
from bide.server import ENDPOINTS
from bide.testing import World, world

CANARY = "4111-canary-1111"
NUMBER = 7_351_904_428_173_519  # too long to stand in a hash by chance


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


@pytest.mark.parametrize("card", ['41"11\\n\n canary', "41'canary", "canary\t\u00e9", "canary\\", "\U0001f4b3 canary"])
@pytest.mark.parametrize("told", ["{}", "{!r}", "json"])
async def test_G4_a_value_with_signs_that_are_escaped_is_hidden_in_errors_too(
    store_url: str, card: str, told: str
) -> None:
    app, say = bide.App(), json.dumps if told == "json" else told.format

    @app.workflow("flow", redact=["card"], retries=1)
    async def flow(step: bide.Step, order: dict[str, Any]) -> Any:
        def charge() -> None:
            raise ValueError("no such card: " + say(order["card"]))

        await step.options(retry=bide.RetryPolicy(attempts=2)).run("charge", charge)

    @app.machine("steps", redact=["card"], retries=1)
    class Steps:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Done:
            raise ValueError("no such card: " + say(ctx.input["card"]))

    async with world(app, store=store_url) as there:
        for definition in ("flow", "steps"):
            run = await there.start(definition, {"card": card})
            await there.advance("1h")
            assert (await there.get(run.id)).status == "failed"
            shown = await everything_shown(there, run.id)
            assert "no such card: " in shown
            assert "canary" not in shown


@pytest.mark.parametrize("names", ["card", ["a,b"], [""], [7]])
def test_G4_names_that_cannot_be_hidden_are_refused_at_registration(names: Any) -> None:
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="redact"):

        @app.workflow("pay", redact=names)
        async def pay(step: bide.Step) -> None: ...


# ---------------------------------------------------------------- digests

PIN = {"pin": "1234", "note": "my pin is 1234"}


def guarded() -> bide.App:
    """Everything whose digest a ledger tells of, with a value that is short enough to try them all."""
    app = bide.App()

    @app.workflow("guarded", redact=["pin"])
    async def guarded(step: bide.Step, order: dict[str, str]) -> Any:
        task = step.ask("task", title="?", form=dict[str, Any], shown=PIN, timeout="1h")
        await task
        await step.options(requires=task.receipt, shown=PIN).run("act", dict, order)
        await step.wait_for_signal("id", signal=f"id-{step.run_id}", timeout="1h")
        await step.receive("inbox", "told", timeout="1h")
        await step.wait_for_event("event", event="said", timeout="1h")
        await step.request("one", PIN, transport="interaction-api", timeout="1h")
        return order

    return app


async def test_G4_no_digest_that_is_shown_can_be_found_by_trying_what_is_hidden(store_url: str) -> None:
    text, sealed = msgspec.json.encode(PIN).decode(), set[str]()
    tried = {digest(each)[:16] for each in (text, canonical(PIN), canonical(PIN["pin"]))}
    tried |= {payload_digest(None, *texts) for texts in ((text,), (text, text, None), (text, None, None))}
    async with world(guarded(), store=store_url) as there:
        run = await there.start("guarded", PIN)
        [task] = await there.interactions(run_id=run.id)
        for shown in (task.shown, digest_of(PIN)):
            for answer in (digest(text)[:32], digest_of(PIN)):
                schema = msgspec.json.encode(task.schema)
                receipt = seal(
                    "default", task.id, shown=shown, schema=schema, answer=answer, by=None, at=task.opened_at
                )
                sealed.add(receipt.digest)
        assert (await there.answer(task.id, PIN, shown=task.shown)).outcome == "woke"
        assert (await there.answer(task.id, PIN)).outcome == "duplicate"
        await there.complete(f"id-{run.id}", PIN)
        assert (await there.signal(run.id, "told", PIN, dedup_key="d")).outcome == "woke"
        assert (await there.signal(run.id, "told", PIN, dedup_key="d")).outcome == "duplicate"
        await there.emit("said", PIN)
        [request] = await there.interactions(run_id=run.id, status="waiting")
        await there.answer(request.id, PIN)
        assert (await there.get(run.id)).status == "completed"
        shown_text = await everything_shown(there, run.id)
        digests = [entry.data["digest"] for entry in await there.ledger(run.id) if "digest" in entry.data]
        assert len(digests) == 7
        assert [each for each in (*tried, *sealed) if each in shown_text] == []
        assert await there.audit() == []


# ---------------------------------------------------------------- over HTTP, wherever one can look


def full(policy: Any = None) -> bide.App:
    app = secretive()
    if policy is not None:
        app.policy(policy)

    def priced(answer: dict[str, Any]) -> Any:
        if answer.get("bad"):
            raise bide.NonRetryable(f"{answer['card']} is unknown")
        return answer

    app.pipeline("rows", redact=["card"]).expand(list).wait_external(
        "bank", transport="interaction-api", returns=dict[str, Any], timeout="1h"
    ).map(priced).collect(list)  # fmt: skip

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        return await step.invoke("child", "given", {"card": CANARY})

    @app.workflow("grandparent")
    async def grandparent(step: bide.Step) -> Any:
        return {"inner": await step.invoke("child", "parent")}

    @app.workflow("requested", redact=["card"])
    async def requested(step: bide.Step, order: dict[str, Any]) -> Any:
        over: Any = {"transport": "interaction-api", "timeout": "1h"}
        async with asyncio.TaskGroup() as group:
            group.create_task(wait(step.ask("task", title="?", form=dict[str, Any], shown=order, timeout="1h")))
            group.create_task(wait(step.request("one", order, **over)))
            group.create_task(wait(step.request_each("each", [order, order], **over)))

    async def wait(opened: bide.Wait[Any]) -> Any:
        return await opened

    @app.workflow("given", redact=["card"])
    async def given(step: bide.Step, order: dict[str, Any]) -> Any:
        return order

    return app


def waiting() -> tuple[bide.App, list[str]]:
    """Every kind of wait with hidden data in what it carries for people to see; and what was told of them elsewhere."""
    app, told = bide.App(), list[str]()
    carried: Any = {"reminders": ["10m"], "escalate": {"20m": "group:leads"}, "notify": "note"}

    @app.notifier
    def note(task: bide.Task) -> None:
        told.append(repr(task))

    @app.workflow("overhears", trigger="bide.wait.*")
    async def overhears(step: bide.Step, said: Any) -> None:
        told.append(repr(said))

    def metadata(card: str) -> dict[str, Any]:
        return {"card": card, "note": f"of {card}", "deep": [{"card": card}], "open": "seen"}

    @app.workflow("waits", redact=["card"])
    async def waits(step: bide.Step, order: dict[str, Any]) -> Any:
        terms = {"metadata": metadata(order["card"]), "timeout": "1h", **carried}
        match = f"data.card == '{order['card']}'"
        over: Any = {"transport": "interaction-api"}
        callback = await step.callback("callback", **terms)
        labels = {"metadata": terms["metadata"], "timeout": "1h"}
        await step.all(
            "all",
            callback,
            step.ask("task", title="?", form=dict[str, Any], **terms),
            step.wait_for_signal("signal", signal=f"s-{step.run_id}", **terms),
            step.wait_for_event("event", event="paid", match=match, **terms),
            step.receive("inbox", "paid", **terms),
            step.request("one", {}, **over, **terms),
            step.request_each("each", [{}, {}], **over, **labels),
        )

    @app.machine("parks", redact=["card"])
    class Parks:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            terms: Any = {"metadata": metadata(ctx.input["card"]), **carried}
            return bide.Await("paid", then="begin", timeout="1h", **terms)

    return app, told


@pytest.mark.parametrize("definition", ["waits", "parks"])
async def test_G4_what_waits_carry_for_people_is_hidden_everywhere(
    definition: str, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app, told = waiting()
    async with world(app, store=store_url) as there:
        run = await there.start(definition, {"card": CANARY})
        await there.advance("30m")
        shown = await everything_shown(there, run.id) + repr(await there.client().explain(run.id))
        assert shown.count("'open': 'seen'") >= 1
        assert any("reminder" in each and "seen" in each for each in told)
        assert await leaks(there, there.http()) == []
        assert CANARY not in shown + "".join(told) + caplog.text
        assert len(await there.waits(run_id=run.id)) == (7 if definition == "waits" else 1)
        await there.cancel(run.id)
        assert await there.audit() == []


async def leaks(there: World, http: httpx.AsyncClient) -> list[str]:
    """Every GET of the API whose body has the canary."""
    ids: dict[str, list[str]] = {
        "run_id": [run.id for run in await there.runs()],
        "wait_id": [wait.id for wait in await there.waits(status=None)],
        "interaction_id": [each.id for each in await there.client().interactions(status=None)],
    }
    paths = []
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or "{token}" in endpoint.path or endpoint.path.endswith("/result"):
            continue
        names = re.findall(r"\{(\w+)\}", endpoint.path)
        paths += [endpoint.path.replace(f"{{{name}}}", id) for name in names for id in ids.get(name, [])]
        paths += [] if names else [endpoint.path]
    found = []
    for path in [*paths, "/v1/waits?status=all", "/v1/interactions?status=all"]:
        if path == "/v1/stream":
            for run_id in ids["run_id"]:
                ended = (await there.get(run_id)).ended_at is not None
                text = (await http.get(path, params={"run_id": run_id})).text if ended else ""
                found += [path] if CANARY in text else []
            continue
        response = await http.get(path)
        assert response.status_code in (200, 403), (path, response.text)
        found += [path] if CANARY in response.text else []
    return found


async def test_G4_no_call_that_looks_shows_what_is_hidden(store_url: str) -> None:
    """Late and invalid answers, a denied start, a pipeline with a dead item, and the parents of a run that hides."""

    def judge(action: bide.Action) -> Any:
        return bide.Deny("no") if action.kind == "start" and action.data == {"card": CANARY, "deny": True} else None

    async with world(full(judge), store=store_url) as there:
        http = there.http()
        run = await there.start("pay", {"card": CANARY})
        complete = f"/v1/signals/bank-{run.id}/complete"
        invalid = await http.post(complete, json={"data": {"card": CANARY, "ok": CANARY}})
        assert (invalid.status_code, CANARY in invalid.text) == (422, False)
        assert (await http.post(complete, json={"data": {"card": CANARY, "ok": True}})).status_code == 200
        assert (await http.post(complete, json={"data": {"card": CANARY, "ok": False}})).status_code == 410
        await there.signal(run.id, "other", {"card": CANARY})
        denied = await http.post("/v1/runs", json={"definition": "pay", "input": {"card": CANARY, "deny": True}})
        assert denied.status_code == 403
        await there.signal("nobody", "paid", {"card": CANARY}, check=False)

        rows = await there.start("rows", [{"card": CANARY}, {"card": CANARY}])
        for item, answer in zip(await there.interactions(run_id=rows.id), ({}, {"bad": True}), strict=True):
            await there.answer(item.id, {"card": CANARY, **answer})
        one = await there.start("rows", [{"card": CANARY}])
        await there.answer((await there.interactions(run_id=one.id))[0].id, {"card": CANARY})
        ended = [await there.start("grandparent"), await there.start("given", {"card": CANARY})]

        assert len(await there.dead_letters()) == 1
        assert {kept.reason for kept in await there.unused()} == {
            "invalid_payload", "already_completed", "denied", "not_found",
        }  # fmt: skip
        requested = await there.start("requested", {"card": CANARY})
        still_open = [each.id for each in await there.interactions(run_id=requested.id)]
        assert len(still_open) == 4
        assert await leaks(there, there.http(scopes=["runs:read"])) == []
        assert await leaks(there, http) == [f"/v1/interactions/{id}" for id in still_open]  # it may answer them
        for each in (run, rows, one, requested, *ended):
            assert CANARY not in repr(await there.client().explain(each.id))
        assert CANARY not in repr(await there.unused())
        assert CANARY not in await everything_shown(there, run.id)


async def test_G4_who_readdresses_an_arrival_sends_it_as_it_came(store_url: str) -> None:
    """S12: what is shown is covered, what is kept is not."""
    async with world(secretive(), store=store_url) as there:
        await there.signal("nobody", "paid", {"card": CANARY}, check=False)
        [kept] = await there.unused()
        assert kept.payload == {"card": "[redacted]"}
        run = await there.start("order", {})
        await there.readdress(kept.id, run.id)
        assert await there.result(run.id) == {"card": CANARY}


async def test_G4_who_may_start_runs_is_given_their_results_and_who_only_reads_is_not(store_url: str) -> None:
    """The same in process and over HTTP: a program works with what a run gives."""
    async with world(full(), store=store_url) as there:
        run = await there.start("given", {"card": CANARY})
        remote = bide.Client("http://bide.test", http=there.http())
        reading = bide.Client("http://bide.test", http=there.http(scopes=["runs:read"]))
        assert await there.result(run.id) == await remote.result(run.id) == {"card": CANARY}
        assert await reading.result(run.id) == {"card": "[redacted]"}
        for client in (there.client(), remote, reading):
            assert (await client.get(run.id)).result == {"card": "[redacted]"}


async def test_G4_a_parent_hides_what_its_child_hides_and_its_code_has_it(store_url: str) -> None:
    async with world(full(), store=store_url) as there:
        run = await there.start("grandparent")
        assert await there.result(run.id) == {"inner": {"card": CANARY}}
        assert (await there.get(run.id)).result == {"inner": {"card": "[redacted]"}}
        assert CANARY not in repr(await there.client().steps(run.id))
