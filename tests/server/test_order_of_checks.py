"""H1 as a table: of everything that is wrong with a request, the first in the order of the rule is answered."""

from __future__ import annotations

from typing import Any

import httpx

from bide.core.tokens import Signer
from bide.server import ENDPOINTS, Server
from bide.testing import world
from tests.server.shop import app
from tests.server.test_every_status import ASKED, LETTER, NOBODY, RUN, SIGNAL, WAIT, YES, Desk
from tests.server.test_every_status import app as every_status
from tests.server.test_resume_links import link

HUGE, HALF = b'{"data": "' + b"x" * 17_000_000, b'{"data": '
NO_KEY, READER, HOLDER = "no key", "a key without the scope", "a key with the scope"
Target = tuple[str, dict[str, Any], int]  # the path, a body that is wrong by itself, and what stands in the way of it
Targets = dict[str, Target]


def wrong(path: str, status: int, **body: Any) -> Target:
    """No call takes a field of this name."""
    return path, {**body, "zzz": 1}, status


async def of_signal(desk: Desk) -> Targets:
    closed = f"/v1/signals/gate-{await desk.run('gate')}/complete"
    await desk.posted(closed, {"data": YES})
    return {
        "unknown": wrong("/v1/signals/nobody/complete", 404),
        "speaking for another": wrong("/v1/signals/nobody/complete", 404, data=YES, by="ann"),
        "closed": wrong(closed, 410),
        "open": wrong(f"/v1/signals/gate-{await desk.run('gate')}/complete", 422),
    }


async def of_start(desk: Desk) -> Targets:
    key = desk.fresh()
    await desk.run("order", correlation_key=key)
    return {
        "unknown": wrong("/v1/runs", 404, definition="nobody"),
        "closed": wrong("/v1/runs", 409, definition="order", correlation_key=key),
        "open": wrong("/v1/runs", 422, definition="order"),
    }


async def of_run_signal(desk: Desk) -> Targets:
    return {
        "unknown": wrong(f"/v1/runs/{NOBODY['run_id']}/signals", 404),
        "ended": wrong(f"/v1/runs/{await desk.run('echo', YES)}/signals", 404),
        "open": wrong(f"/v1/runs/{await desk.run('order')}/signals", 422),
    }


async def of_key_signal(desk: Desk) -> Targets:
    key = desk.fresh()
    await desk.run("order", correlation_key=key)
    start = {"definition": "nobody"}
    return {
        "unknown": wrong("/v1/signals", 404, correlation_key="nobody"),
        "unknown definition": wrong("/v1/signals", 404, correlation_key="nobody", start=start),
        "open": wrong("/v1/signals", 422, correlation_key=key),
    }


async def of_many(desk: Desk) -> Targets:
    good, nobody = {"target": await desk.run("order"), "name": "a"}, {"target": NOBODY["run_id"], "name": "a"}
    return {
        "unknown": wrong("/v1/signals/many", 404, signals=[good, nobody]),
        "open": wrong("/v1/signals/many", 422, signals=[good]),
    }


async def of_cancel(desk: Desk) -> Targets:
    return {
        "unknown": wrong(f"/v1/runs/{NOBODY['run_id']}/cancel", 404),
        "closed": wrong(f"/v1/runs/{await desk.run('echo', YES)}/cancel", 409),
        "open": wrong(f"/v1/runs/{await desk.run('order')}/cancel", 422),
    }


async def of_retry(desk: Desk) -> Targets:
    return {
        "unknown": wrong(f"/v1/runs/{NOBODY['run_id']}/retry", 404),
        "closed": wrong(f"/v1/runs/{await desk.run('order')}/retry", 409),
        "open": wrong(f"/v1/runs/{await desk.run('broken')}/retry", 422),
    }


async def of_event(desk: Desk) -> Targets:
    return {"open": wrong("/v1/events", 422)}


def of_task(last: str) -> Any:
    async def targets(desk: Desk) -> Targets:
        closed, unknown = await desk.task(), f"/v1/interactions/{NOBODY['interaction_id']}/{last}"
        await desk.posted(f"{closed}/complete", {"data": YES})
        return {
            "unknown": wrong(unknown, 404),
            "speaking for another": wrong(unknown, 404, data=YES, by="ann", reason="r"),
            "closed": wrong(f"{closed}/{last}", 410),
            "open": wrong(f"{await desk.task()}/{last}", 422),
        }

    return targets


def of_wait(last: str) -> Any:
    async def targets(desk: Desk) -> Targets:
        closed = await desk.wait()
        await desk.posted(f"{closed}/complete", {"data": YES})
        return {
            "unknown": wrong(f"/v1/waits/{NOBODY['wait_id']}{last}", 404),
            "closed": wrong(f"{closed}{last}", 410),
            "open": wrong(f"{await desk.wait()}{last}", 422),
        }

    return targets


async def of_readdress(desk: Desk) -> Targets:
    unknown = f"/v1/unused/{NOBODY['unused_id']}/readdress"
    return {"unknown": wrong(unknown, 404), "open": wrong(await desk.unused(), 422)}


def of_letter(last: str) -> Any:
    async def targets(desk: Desk) -> Targets:
        unknown = f"/v1/dead-letters/nobody/{last}"
        return {"unknown": wrong(unknown, 404), "open": wrong(f"{await desk.letter()}/{last}", 422)}

    return targets


CHANGES: dict[str, Any] = {
    f"POST {SIGNAL}/{{signal_id}}/complete": of_signal,
    "POST /v1/runs": of_start,
    f"POST {RUN}/signals": of_run_signal,
    f"POST {SIGNAL}": of_key_signal,
    f"POST {SIGNAL}/many": of_many,
    f"POST {RUN}/cancel": of_cancel,
    f"POST {RUN}/retry": of_retry,
    "POST /v1/events": of_event,
    **{f"POST {ASKED}/{last}": of_task(last) for last in ("complete", "claim", "release", "assign", "fail")},
    **{f"POST {WAIT}/{last}": of_wait(f"/{last}") for last in ("complete", "fail", "cancel", "heartbeat")},
    f"PATCH {WAIT}": of_wait(""),
    "POST /v1/unused/{unused_id}/readdress": of_readdress,
    **{f"POST {LETTER}/{last}": of_letter(last) for last in ("retry", "discard")},
}


def test_every_call_that_changes_something_is_in_the_table() -> None:
    changing = {f"{e.method} {e.path}" for e in ENDPOINTS if e.method in ("POST", "PATCH") and not e.is_public}
    assert set(CHANGES) == changing


async def test_the_first_thing_that_is_wrong_is_answered(store_url: str) -> None:
    """H1: 401, 413, 400, 404, 403, 409/410, 422."""
    scopes = {f"{endpoint.method} {endpoint.path}": endpoint.scope for endpoint in ENDPOINTS}
    async with world(every_status, store_url) as w:
        desk = Desk(w)
        clients = {NO_KEY: w.http(), READER: w.http(scopes=["runs:read"])}
        del clients[NO_KEY].headers["Authorization"]
        for scope in sorted({scopes[call] or "" for call in CHANGES}):
            clients[scope] = w.http(scopes=[scope])
        for call, prepare in CHANGES.items():
            targets: Targets = await prepare(desk)
            first = next(iter(targets.values()))
            rows = [
                (NO_KEY, first[0], HUGE, 401),
                (READER, first[0], HUGE, 413),
                (READER, first[0], HALF, 400),
                *((READER, path, body, status if status == 404 else 403) for path, body, status in targets.values()),
                *((scopes[call], path, body, status) for path, body, status in targets.values()),
            ]
            for who, path, body, status in rows:
                sent: Any = {"content": body} if isinstance(body, bytes) else {"json": body}
                response = await clients[who or ""].request(call.partition(" ")[0], path, **sent)
                assert response.status_code == status, (call, who, path, response.text[:300])


async def test_a_scope_of_its_own_is_asked_for_after_what_is_not_there() -> None:
    """H1: 404 before 403, also where what is missing is the scope to start, or to speak for others."""
    async with world(every_status) as w:
        http = w.http(scopes=["signals:send", "interactions:answer"])
        start = {"correlation_key": "k", "name": "a", "start": {"definition": "order"}}
        assert (await http.post("/v1/signals", json=start)).status_code == 403
        start["start"] = {"definition": "nobody"}
        assert (await http.post("/v1/signals", json=start)).status_code == 404
        task = await Desk(w).task()
        assert (await http.post(f"{task}/claim", json={"by": "ann"})).status_code == 403


async def test_an_idempotency_key_that_was_used_otherwise_counts_before_what_is_wrong_with_the_body() -> None:
    """H1, H2."""
    async with world(every_status) as w:
        http, key = w.http(), {"Idempotency-Key": "k"}
        assert (await http.post("/v1/runs", json={"definition": "order"}, headers=key)).status_code == 201
        body = {"definition": "order", "delay": "soon"}
        assert (await http.post("/v1/runs", json=body, headers=key)).status_code == 409


async def test_W4_a_forged_token_costs_no_round_trip_to_the_store(store_url: str) -> None:
    """W4, T01, T02, T09: counted by the store itself, on every path that a token can come by."""
    async with world(app, store_url) as w:
        _, path = await link(w)

        async def opened() -> Any:
            return w.runtime

        forged = [path[:-4] + "AAAA", f"/resume/{Signer([('s1', b'x' * 32)]).mint('default', 'run_1', 'callback:1')}"]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(Server(opened)), base_url="http://x") as http:
            before = w.runtime.store.round_trips
            for token in forged * 50:
                assert (await http.post(token, json={"approved": True})).status_code in (404, 429)
                assert (await http.post(token, data={"approved": "true"})).status_code in (404, 429)
                assert (await http.get(token)).status_code in (404, 429)
            assert w.runtime.store.round_trips == before
