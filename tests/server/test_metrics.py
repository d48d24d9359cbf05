"""Figures for Prometheus: what is counted, under which names, and who may see it (§11, W7, H1)."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import bide
from bide.core.access import new_key
from bide.engine.admission import Admitting
from bide.engine.figures import REASONS, REQUESTS
from bide.engine.transport import Answer
from bide.server.metrics import exposition
from bide.server.metrics_port import metrics_served
from bide.stores import postgres
from bide.stores.postgres import PostgresStore, migrate
from bide.testing import world
from tests.server.shop import SEEN, app
from tests.server.test_signals_over_http import code
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, available_postgres, chosen_postgres, temporary_folder

NAMES = [
    "bide_turns", "bide_step_seconds", "bide_wake_seconds", "bide_timer_late_seconds", "bide_timers_late",
    "bide_await_completions_admitted", "bide_await_completions_early_held", "bide_await_completion_dropped",
    "bide_dispatches", "bide_dispatch_failures", "bide_dead_letters", "bide_dead_letters_open", "bide_stale_commits",
    "bide_batch_commands", "bide_store_round_trips", "bide_http_requests", "bide_runs", "bide_waits_open",
    "bide_await_interaction_dispatched", "bide_await_unit_dispatch_complete", "bide_await_execution_waiting",
    "bide_await_unit_item_completed", "bide_await_unit_completed", "bide_await_resume_released",
    "bide_await_unit_terminal",
]  # fmt: skip
DROPPED = "bide_await_completion_dropped_total"


async def figures(http: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """Each figure by its name and the value of its label."""
    response = await http.get("/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }


async def test_W7_every_figure_of_the_contract_is_there_from_the_start(store_url: str) -> None:
    """§11; W7: with exactly its reasons."""
    async with world(app, store_url) as w:
        text = (await w.http().get("/metrics")).text

        shown = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
        assert shown == set(NAMES)
        found = await figures(w.http())
        reasons = {label for name, label in found if name == DROPPED}
        assert reasons == set(REASONS)
        assert len(reasons) == 10


async def test_what_runs_do_is_counted(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """§11: turns, steps, waits, wake-ups, timers, answers, dead letters, batches, round trips."""
    monkeypatch.setattr("bide.server.metrics.GAUGE_SECONDS", -1.0)
    async with world(app, store_url) as w:
        http = w.http()
        order, late = await w.start("order"), await w.start("order")
        await w.signal(order.id, "other")
        await w.signal(order.id, "paid")
        task = await w.start("told")
        waiting = await figures(http)
        w.clock.advance(timedelta(minutes=90))
        await w.settle()
        after = await figures(http)

        assert waiting[("bide_runs", "waiting")] == 2
        assert waiting[("bide_runs", "completed")] == 1
        assert waiting[("bide_waits_open", "waiting")] == 2
        assert waiting[("bide_dead_letters_open", "")] == waiting[("bide_dead_letters_total", "notify")] == 1
        assert waiting[("bide_await_completions_admitted_total", "woke")] == 1
        assert waiting[("bide_await_completions_early_held_total", "")] == 1
        assert waiting[("bide_turns_total", "machine")] >= 3
        assert waiting[("bide_step_seconds_count", "")] >= 3
        assert waiting[("bide_wake_seconds_count", "")] == sum(
            n for (name, _), n in waiting.items() if name == "bide_turns_total"
        )
        assert waiting[("bide_batch_commands_count", "")] > 0
        assert after[("bide_store_round_trips_total", "")] > waiting[("bide_store_round_trips_total", "")] > 0
        assert after[("bide_timer_late_seconds_count", "")] == after[("bide_timers_late_total", "")] == 1
        assert after[("bide_timer_late_seconds_sum", "")] == 1800
        assert (await w.get(late.id)).status == "completed"
        assert (await w.get(task.id)).status == "waiting"


async def test_W7_every_refusal_is_counted_under_its_reason(store_url: str) -> None:
    """W7: each of its reasons comes about once."""
    yes, no = {"data": {"approved": True}}, {"data": {"approved": False}}
    async with world(app, store_url) as w:
        http = w.http()

        async def answer(run_id: str, body: Any = yes) -> int:
            listed = await http.get("/v1/interactions", params={"run_id": run_id, "status": "all"})
            [row] = listed.json()["items"]
            return (await http.post(f"/v1/interactions/{row['id']}/complete", json=body)).status_code

        expired = await w.start("task")
        await w.advance("48h")
        task, called_off, race, quote = [await w.start(name) for name in ("task", "task", "race", "quote")]
        gate = await w.start("outreach")
        await w.cancel(called_off.id)
        await w.complete(f"gate-{race.id}", "quicker")
        [asked] = await w.client().interactions(run_id=quote.id)

        assert (await http.post("/v1/signals/nobody/complete", json=yes)).status_code == 404
        assert (await http.post("/resume/a.b.c", json=1)).status_code == 404
        assert [await answer(task.id, body) for body in ({"data": 1}, yes, yes, no)] == [422, 200, 200, 409]
        for status in (200, 410):
            assert (await http.post(f"/v1/signals/approval-{gate.id}/complete", json=yes)).status_code == status
        assert [await answer(run.id) for run in (expired, called_off, race)] == [410, 404, 404]
        foreign = Answer(interaction_id=asked.id, workspace="other", data=1)
        [receipt] = await Admitting(w.runtime, "kafka").admit([foreign])
        assert (receipt.outcome, receipt.reason) == ("no_target", "wrong_workspace")

        found = await figures(http)
        assert {label: n for (name, label), n in found.items() if name == DROPPED} == dict.fromkeys(REASONS, 1)
        assert found[("bide_http_requests_total", "404")] == 4
        [kept] = [one for one in await w.client().unused() if one.run_id == race.id]
        assert kept.reason == "stale"


async def test_every_request_is_counted_with_or_without_a_key(store_url: str) -> None:
    """§11: also where nobody with a key came yet: links, probes, guesses, what is refused before its key is read."""
    async with world(app, store_url) as w:
        await w.start("kyc", "counted")
        http = w.http()
        keyless = {"Authorization": ""}
        for status, method, path in (
            (404, "GET", "/nowhere"),
            (200, "GET", "/healthz"),
            (405, "DELETE", "/healthz"),
            (200, "GET", "/readyz"),
            (200, "GET", "/docs"),
            (200, "HEAD", SEEN["counted"]),
            (404, "POST", "/resume/a.b.c"),
            (401, "GET", "/v1/runs"),
        ):
            answered = await http.request(method, path, headers=keyless, content=b"1" if method == "POST" else None)
            assert answered.status_code == status, path

        found = await figures(http)
        counted = {label: n for (name, label), n in found.items() if name == "bide_http_requests_total"}
        assert counted == {"200": 4, "401": 1, "404": 2, "405": 1}
        assert (await figures(http))[("bide_http_requests_total", "200")] == 5  # that of the figures themselves


async def test_what_a_process_counted_is_shown_while_its_store_is_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§11: nobody needs figures more than who looks for an outage. What only the store knows is left out."""
    if not available_postgres():
        pytest.skip("no PostgreSQL here")
    monkeypatch.setattr(postgres, "PostgresStore", partial(PostgresStore, patience=0.5))
    with PostgresServer(chosen_postgres(), temporary_folder()) as server:
        there = bide.App("there", store=server.url(), resume_secrets="s1:" + "x" * 32)
        await migrate(server.url())
        async with there.opened():
            runtime = await there.runtime()
            runtime.count(REQUESTS, "200")
            server.stop("immediate")
            asgi = httpx.ASGITransport(there.asgi(engine=False))
            async with httpx.AsyncClient(transport=asgi, base_url="http://bide.test") as http:
                key = {"Authorization": f"Bearer {new_key(b'k' * 32)}"}
                assert (await http.get("/v1/runs", headers=key)).status_code == 503
            text = (await exposition(runtime)).decode()

    assert 'bide_http_requests_total{status="200"} 1.0' in text
    assert 'bide_http_requests_total{status="503"} 1.0' in text
    assert "# TYPE bide_runs gauge" in text
    assert not re.search(r"^bide_(runs|waits_open|dead_letters_open)\b", text, re.MULTILINE)
    assert [record.levelname for record in caplog.records if record.name == "bide.server"] == ["WARNING", "WARNING"]
    assert "Traceback" not in caplog.text


async def test_figures_need_an_admin_key_or_a_port_of_their_own(store_url: str) -> None:
    """H1."""
    port = free_port()
    async with world(app, store_url, metrics_port=port) as w:
        keyless = w.http()
        del keyless.headers["Authorization"]

        assert code(await keyless.get("/metrics")) == (401, "unauthorized")
        assert code(await w.http(scopes=["runs:read"]).get("/metrics")) == (403, "forbidden")
        own_port = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120)
        async with metrics_served(w.runtime), own_port as there:
            assert ("bide_runs", "waiting") in await figures(there)
            assert (await there.get("/v1/runs")).status_code == 404
