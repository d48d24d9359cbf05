"""One workspace cannot take what is there for all (reliability §3, T30d)."""

from __future__ import annotations

from datetime import timedelta

import bide
from bide.testing import world
from tests.server.shop import app
from tests.server.test_signals_over_http import code

START = {"definition": "outreach"}


async def test_a_workspace_with_as_many_runs_as_it_may_is_429_and_another_is_not(store_url: str) -> None:
    """T30d: with what it may have in the headers; and when one has ended, there is room again."""
    async with world(app, store_url, workspace_max_runs=3) as w:
        http, other = w.http(), w.http(workspace="other")
        started = [await http.post("/v1/runs", json=START) for _ in range(4)]

        assert [response.status_code for response in started] == [201, 201, 201, 429]
        refused = started[3]
        assert code(refused) == (429, "quota_exceeded")
        assert "workspace_max_runs" in refused.json()["detail"]
        limits = {name: refused.headers[name] for name in ("retry-after", "ratelimit-limit", "ratelimit-remaining")}
        assert limits == {"retry-after": "2", "ratelimit-limit": "3", "ratelimit-remaining": "0"}
        assert (await other.post("/v1/runs", json=START)).status_code == 201

        first = started[0].json()["id"]
        answer = await http.post(f"/v1/signals/approval-{first}/complete", json={"data": {"approved": True}})
        assert answer.status_code == 200, "what lets runs end is not held back"
        w.clock.advance(timedelta(seconds=2))
        assert (await http.post("/v1/runs", json=START)).status_code == 201
        assert (await http.post("/v1/runs", json=START)).status_code == 429


async def test_open_waits_and_full_inboxes_are_counted_too(store_url: str) -> None:
    """T30d."""
    async with world(app, store_url, workspace_max_waits=2, workspace_max_inbox=2) as w:
        http = w.http()
        runs = [await w.start("order") for _ in range(2)]
        assert code(await http.post("/v1/runs", json=START)) == (429, "quota_exceeded")
        sent = [
            await http.post(f"/v1/runs/{runs[0].id}/signals", json={"name": "other", "payload": n}) for n in range(3)
        ]
        assert [response.status_code for response in sent] == [202, 202, 429]
        assert len(await w.inbox(runs[0].id)) == 2


async def test_F48_a_full_inbox_is_429_and_the_key_of_the_request_stays_unused(store_url: str) -> None:
    async with world(app, store_url, max_inbox=1) as w:
        http, run = w.http(), await w.start("order")
        path, once = f"/v1/runs/{run.id}/signals", {"Idempotency-Key": "k-1"}
        assert (await http.post(path, json={"name": "other"})).status_code == 202
        refused = await http.post(path, json={"name": "other"}, headers=once)
        assert (*code(refused), refused.headers["retry-after"]) == (429, "inbox_full", "5")
        assert run.id in refused.json()["detail"]
        assert (await http.post(path, json={"name": "paid", "payload": {"amount": 1}}, headers=once)).status_code == 202


async def test_all_keys_of_a_workspace_share_its_rate() -> None:
    """T30d: more keys are no way to more requests."""
    async with world(app, workspace_rate=5) as w:
        keys = [w.http(), w.http()]
        answers = [await keys[n % 2].get("/v1/runs") for n in range(6)]

        assert [response.status_code for response in answers] == [200] * 5 + [429]
        assert (answers[5].headers["retry-after"], answers[5].headers["ratelimit-limit"]) == ("1", "5")
        assert (await w.http(workspace="other").get("/v1/runs")).status_code == 200
        w.clock.advance(timedelta(seconds=1))
        assert (await keys[0].get("/v1/runs")).status_code == 200


def test_a_quota_is_an_error_of_its_own_and_too_many_requests() -> None:
    assert issubclass(bide.QuotaExceeded, bide.TooManyRequests)
