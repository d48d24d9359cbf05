"""Keys at the door: who is let in, to do what, and in which order that is judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import bide
from bide.core.access import SCOPES, Key, key_hash, new_key
from bide.server import keys
from bide.stores.interface import Executed
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app
from tests.server.test_signals_over_http import code


async def a_key(w: World, **fields: Any) -> str:
    text = new_key(w.runtime.ports.random_bytes(32))
    key = Key(id="key_1", workspace="default", hash=key_hash(text), name="", scopes=SCOPES, created_at=w.now)
    await w.runtime.store.add_key(replace(key, **fields))
    return text


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer bide_ws_",
        "Bearer " + new_key(bytes(32)),
        "Basic " + new_key(bytes(32)),
        "Bearer bide_ws_" + "é" * 43,
        "Bearer x" * 20_000,
    ],
)
async def test_a_missing_or_wrong_key_is_401_whatever_else_is_wrong(header: str | None) -> None:
    """H1: 401 comes first, and does not say what was wrong with the key."""
    async with world(app) as w:
        http = w.http()
        del http.headers["Authorization"]
        headers = {b"Authorization": header.encode()} if header is not None else {}

        response = await http.post("/v1/signals/none/complete", content=b"{" * 600_000, headers=headers)

        assert code(response) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["detail"].startswith("send a good key")


async def test_two_authorization_headers_are_401() -> None:
    """T28."""
    async with world(app) as w:
        http = w.http()
        sent = http.headers["Authorization"]

        response = await http.get("/v1/runs", headers=[("Authorization", sent), ("Authorization", sent)])

        assert code(response) == (401, "unauthorized")


async def test_a_revoked_key_fails_at_the_next_request(store_url: str) -> None:
    """G5: revocation at once."""
    async with world(app, store_url) as w:
        http = w.http()
        http.headers["Authorization"] = f"Bearer {await a_key(w)}"
        assert (await http.get("/v1/runs")).status_code == 200

        assert await w.runtime.store.revoke_key("key_1")

        assert code(await http.get("/v1/runs")) == (401, "unauthorized")
        assert not await w.runtime.store.revoke_key("key_1")
        assert not await w.runtime.store.revoke_key("key_2")


EVENT, START = {"name": "order.shipped", "data": {}}, {"definition": "outreach", "input": {}}
ANSWER, SIGNAL = {"data": {"approved": True}}, {"name": "note"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/signals/approval-{run}/complete", ANSWER),
        ("/v1/runs/{run}/signals", SIGNAL),
        ("/v1/signals/many", {"signals": [{"target": "{run}", **SIGNAL}]}),
        ("/v1/signals", {"correlation_key": "one", **SIGNAL}),
        ("/v1/runs", START),
        ("/v1/events", EVENT),
    ],
)
async def test_a_commit_sees_that_its_key_was_revoked_since_the_last_request(
    store_url: str, path: str, body: dict[str, Any]
) -> None:
    """G5: revocation at once, also where nobody looks the key up before the commit."""
    async with world(app, store_url) as w:
        run = await w.start("outreach", correlation_key="one")
        http = w.http()
        http.headers["Authorization"] = f"Bearer {await a_key(w)}"
        assert (await http.post("/v1/events", json=EVENT)).status_code == 202
        assert await w.runtime.store.revoke_key("key_1")
        before = await w.runtime.store.count_runs(None), (await w.get(run.id)).status, await w.ledger(run.id)
        sent = msgspec.json.encode(body).replace(b"{run}", run.id.encode())

        for headers in ({}, {"Idempotency-Key": "one"}):
            response = await http.post(path.format(run=run.id), content=sent, headers=headers)

            assert code(response) == (401, "unauthorized")
        now = await w.runtime.store.count_runs(None), (await w.get(run.id)).status, await w.ledger(run.id)
        assert now == before


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/signals/none/complete", b'{"data": "' + b"x" * 600_000),
        ("/v1/signals/none/complete", b'{"data": '),
        ("/v1/signals/none/complete", b'{"data": 1}'),
        ("/v1/signals/run_1/complete", b'{"data": 1}'),
        ("/v1/runs", b'{"definition": "none"}'),
        ("/v1/runs/run_1/signals", b"{}"),
    ],
)
async def test_a_key_that_was_good_and_is_revoked_is_401_whatever_else_is_wrong(path: str, content: bytes) -> None:
    """H1."""
    async with world(app) as w:
        http = w.http()
        http.headers["Authorization"] = f"Bearer {await a_key(w)}"
        assert (await http.post("/v1/events", json=EVENT)).status_code == 202
        good = await http.post(path, content=content)
        assert await w.runtime.store.revoke_key("key_1")

        assert good.status_code in (400, 404, 413, 422)
        assert code(await http.post(path, content=content)) == (401, "unauthorized")


async def test_a_key_that_was_good_and_is_revoked_is_401_also_over_a_rate_or_a_quota() -> None:
    """H1."""
    limited = bide.App("limited", workspace_rate=3)
    for limits, rate in ((app, 2), (limited, None)):
        async with world(limits) as w:
            http = w.http()
            http.headers["Authorization"] = f"Bearer {await a_key(w, rate=rate)}"
            statuses = [(await http.post("/v1/events", json=EVENT)).status_code for _ in range(4)]
            assert statuses[-1] == 429
            assert await w.runtime.store.revoke_key("key_1")

            assert code(await http.post("/v1/events", json=EVENT)) == (401, "unauthorized")


async def test_answers_under_a_key_that_was_good_a_moment_ago_are_let_in_by_their_commit(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app, store_url) as w:
        looks, look, http = 0, w.runtime.store.key, w.http()

        async def counted(hash: str) -> Any:
            nonlocal looks
            looks += 1
            return await look(hash)

        monkeypatch.setattr(w.runtime.store, "key", counted)
        runs = [await w.start("outreach") for _ in range(3)]
        paths = [f"/v1/signals/approval-{run.id}/complete" for run in runs]

        assert [(await http.post(path, json=ANSWER)).status_code for path in paths] == [200, 200, 200]
        assert looks == 1
        assert code(await http.post(paths[0], json=ANSWER))[0] == 410  # its commit has seen the key, too
        assert looks == 1
        await w.advance("2m")  # the last use of the key is to be noted again
        assert (await http.post("/v1/events", json=EVENT)).status_code == 202
        assert looks == 2


async def test_a_key_expires_by_the_clock_of_the_store_and_its_use_is_noted(store_url: str) -> None:
    """G5: expiry, last use."""
    async with world(app, store_url) as w:
        http = w.http()
        text = await a_key(w, expires_at=w.now.replace(hour=1))
        http.headers["Authorization"] = f"Bearer {text}"
        await w.advance("30m")
        assert (await http.get("/v1/runs")).status_code == 200
        used_at = w.now
        await w.advance("30m")

        assert code(await http.get("/v1/runs")) == (401, "unauthorized")
        [key] = [key for key in await w.runtime.store.keys("default") if key.id == "key_1"]
        assert key.last_used_at == used_at
        assert text not in repr(key)


async def test_a_key_over_its_rate_is_429_with_retry_after() -> None:
    """H1."""
    async with world(app) as w:
        http = w.http()
        http.headers["Authorization"] = f"Bearer {await a_key(w, rate=2)}"

        statuses = [(await http.get("/v1/runs")).status_code for _ in range(3)]
        refused = await http.get("/v1/runs")
        await w.advance("1s")

        assert statuses == [200, 200, 429]
        assert refused.headers["retry-after"] == "1"
        assert code(refused) == (429, "too_many_requests")
        assert (await http.get("/v1/runs")).status_code == 200


async def test_the_order_of_the_checks(store_url: str) -> None:
    """H1: 401, 413, 400, 404, 403, 409/410, 422."""
    async with world(app, store_url) as w:
        run = await w.start("outreach")
        answered = await w.start("outreach")
        await w.complete(f"approval-{answered.id}", {"approved": True})
        reader = w.http(scopes=["runs:read"])
        sender = w.http(scopes=["signals:send"])
        unknown, known = "/v1/signals/none/complete", f"/v1/signals/approval-{run.id}/complete"
        late = f"/v1/signals/approval-{answered.id}/complete"
        huge = b'{"data": ' + b'"' + b"x" * 600_000

        assert code(await reader.post(unknown, content=huge))[0] == 413
        assert code(await reader.post(unknown, content=b'{"data": '))[0] == 400
        assert code(await reader.post(unknown, json={}))[0] == 404
        assert code(await reader.post(known, json={}))[0] == 403
        assert code(await reader.post(late, json={}))[0] == 403
        assert code(await sender.post(late, json={}))[0] == 410
        assert code(await sender.post(known, json={}))[0] == 422
        assert (await w.get(run.id)).status == "waiting"


@asynccontextmanager
async def a_batch_that_hangs(w: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """The commit of one answer, under way until the event is set, or to the end."""
    go_on, began = asyncio.Event(), asyncio.Event()
    execute = w.runtime.store.execute

    async def slowly(commands: Sequence[Any], offer: Any = None) -> Executed:
        began.set()
        await go_on.wait()
        return await execute(commands, offer)

    run = await w.start("outreach")
    monkeypatch.setattr(w.runtime.store, "execute", slowly)
    answering = asyncio.create_task(
        w.http().post(f"/v1/signals/approval-{run.id}/complete", json={"data": {"approved": True}})
    )
    await began.wait()
    try:
        yield go_on
    finally:
        go_on.set()
        assert (await answering).status_code == 200


async def test_requests_that_come_while_a_batch_is_committed_share_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(app) as w:
        http, looks, look = w.http(), 0, w.runtime.store.key

        async def counted(hash: str) -> Any:
            nonlocal looks
            looks += 1
            return await look(hash)

        monkeypatch.setattr(keys, "LONGEST_REST", 60.0)
        async with a_batch_that_hangs(w, monkeypatch) as go_on:
            monkeypatch.setattr(w.runtime.store, "key", counted)
            asked = [asyncio.create_task(http.get("/v1/runs")) for _ in range(50)]
            for _ in range(500):
                await asyncio.sleep(0)  # all of them get as far as they can
            assert looks == 0
            go_on.set()
            assert {response.status_code for response in await asyncio.gather(*asked)} == {200}
        assert looks == 1


async def test_a_batch_that_hangs_holds_up_no_read_and_no_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(app) as w:
        http = w.http()
        http.headers["Authorization"] = f"Bearer {await a_key(w)}"
        async with a_batch_that_hangs(w, monkeypatch):
            assert (await http.get("/v1/runs")).status_code == 200
            assert await w.runtime.store.revoke_key("key_1")
            assert code(await http.get("/v1/runs")) == (401, "unauthorized")
