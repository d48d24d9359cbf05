"""Nothing a client sends makes a 5xx: every endpoint of the table, with every field right, wrong, odd or left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

import bide
from bide.server import ENDPOINTS
from bide.server.router import Api
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import SEEN, app

TRIES = 30
SHAPES = ("quote", "caught", "quotes", "rows", "event")  # what waits and interactions can be of, beside tasks
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**62, "", "x", "order", "outreach", "run_1", "wait_1_1", "int_1_1_0", "\x07", "é" * 300,
    "1d", "soon", "2030-01-01T00:00:00Z", [], [1], {}, {"a": 1},
]  # fmt: skip


async def test_no_combination_of_odd_values_makes_a_5xx(store_url: str) -> None:
    """H3."""
    dice = Random(7)
    async with world(app, store_url) as w:
        http = w.http()
        run, task, _ = await w.start("outreach"), await w.start("task"), await w.start("told")
        [letter] = await w.dead_letters()
        shapes = [await w.start(name, [1, 2]) for name in SHAPES]
        await w.complete("held", 1, hold="10m")
        for payload in range(3):
            await w.signal("nobody", "paid", payload, check=False)
        [wait] = await w.waits(run_id=run.id)
        waits = [each.id for shape in (task, *shapes) for each in await w.waits(run_id=shape.id)]
        asked = [each.id for shape in (task, *shapes) for each in await w.client().interactions(run_id=shape.id)]
        ids = {
            "run_id": [run.id, task.id, "run_7", "%00", "%C3%A9"],
            "wait_id": [wait.id, *waits, "wait_x", "wait_1_999999999999"],
            "interaction_id": [*asked, "int_1_1_1", "int_x"],
            "signal_id": [f"approval-{run.id}", "held", "x", "run_1", "a%2Fb", "%F0%9F%98%80"],
            "unused_id": [*(each.id for each in await w.unused()), "x", "msg_1"],
            "letter_id": [letter.id, "x", "a%2Fb"],
            "token": [*await _tokens(w), "x", "a.b.c", "s1.e30.AAAA"],
        }
        seen = defaultdict[str, set[int]](set)
        for endpoint in ENDPOINTS:
            is_of_many = "{wait_id}" in endpoint.path or "{interaction_id}" in endpoint.path
            varies = "{" in endpoint.path or _fields(endpoint.body) or _fields(endpoint.query)
            odd = defaultdict[str, Iterator[Any]](lambda: _in_turns(dice))
            for _ in range(3 * TRIES if is_of_many else TRIES if varies else 5):
                path = re.sub(r"\{(\w+)\}", lambda match: dice.choice(ids[match[1]]), endpoint.path)
                body, query = _some(dice, endpoint.body, 0.7, odd), _some(dice, endpoint.query, 0.4, odd)
                if endpoint.body is Any:
                    body = {"approved": next(odd["approved"])} if dice.random() < 0.5 else next(odd["body"])
                keys = {"Idempotency-Key": dice.choice("abc")} if dice.random() < 0.3 else {}
                sent = body if endpoint.method != "GET" else None
                method = "HEAD" if endpoint.media_type == "text/event-stream" else endpoint.method  # it may have no end
                response = await http.request(
                    method, path, json=sent, params={k: str(v) for k, v in query.items()}, headers=keys
                )
                assert response.status_code < 500, (endpoint.method, path, body, query, response.text)
                seen[endpoint.path].add(response.status_code)
        assert {200, 202, 404, 422} <= seen["/resume/{token}"]
        assert {404, 422} <= seen["/v1/unused/{unused_id}/readdress"]


DURATIONS: list[Any] = [
    "9999999d", "999999d", "36500d", "P9999Y", "PT1H", 1e15, 9e11, -1, 0, "0s", "-1s", "1e9", "inf", "nan", "٣d", "²s",
    " 1h ", "1h\u00a0",
]  # fmt: skip
MOMENTS: list[Any] = [
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2030-01-01T00:00:00", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "2030-13-01T00:00:00Z", "2030-01-01T24:00:00Z", "1T", "2030-01-01T00:00:00+99:99",
]  # fmt: skip
NUMBERS = ["²", "٣", "-1", "1e3", "9" * 30, "2147483648", "9223372036854775808"]
CURSORS = [
    "", "x", "/", "\u202e", "é", "x" * 7000, "run_1\n/1", "run_1\n", f"run_{'x' * 5000}", "2030-01-01T00:00:00Z",
    "2030-01-01/x", "2030-01-01T00:00:00Z/", f"2030-01-01T00:00:00Z/{'x' * 5000}", f"int_{'x' * 5000}_1_0",
    *(f"run_1/{number}" for number in NUMBERS),
    *(f"int_1_{number}_0" for number in NUMBERS), *(f"int_1_1_{number}" for number in NUMBERS),
    *(f"{moment}/x" for moment in MOMENTS if not moment.endswith("Z")),
]  # fmt: skip
LISTS = ("/v1/runs", "/v1/waits", "/v1/interactions", "/v1/unused", "/v1/dead-letters")


async def test_T46_a_cursor_that_no_page_gave_out_is_400(store_url: str) -> None:
    """H3, T46: also one of the right shape, with what no column could hold."""
    async with world(app, store_url) as w:
        http = w.http()
        for path in LISTS:
            for cursor in CURSORS:
                answer = await http.get(path, params={"cursor": cursor})
                assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), (path, cursor, answer.text)


async def test_T46_a_page_that_is_too_long_is_422_and_says_how_long_it_may_be(store_url: str) -> None:
    async with world(app, store_url) as w:
        http = w.http()
        described = (await http.get("/openapi.json")).json()["paths"]
        for path in LISTS:
            for limit in (0, -1, 1001, 10_000, 10**30):
                answer = await http.get(path, params={"limit": limit})
                assert (answer.status_code, answer.json()["code"]) == (422, "bad_input"), (path, limit, answer.text)
                assert "from 1 to 1000" in answer.json()["detail"]
            assert (await http.get(path, params={"limit": 1000})).status_code == 200
            [shown] = [one["schema"] for one in described[path]["get"]["parameters"] if one["name"] == "limit"]
            assert (shown["minimum"], shown["maximum"]) == (1, 1000)


async def test_H3_no_time_is_too_long_or_too_far_away(store_url: str) -> None:
    async with world(app, store_url, audit=False) as w:  # the end of the calendar is no moment to stop at
        http, run = w.http(), await w.start("order")
        for given in (*DURATIONS, *MOMENTS):
            task = await w.start("task")
            [wait] = await w.waits(run_id=task.id)
            tried = [
                await http.patch(f"/v1/waits/{wait.id}", json={"deadline": given, "reason": "r"}),
                await http.post("/v1/runs", json={"definition": "order", "delay": given}),
                await http.post(f"/v1/signals/held-{task.id}/complete", json={"data": 1, "hold": given}),
                await http.get("/v1/waits", params={"older_than": given}),
                await http.get("/v1/interactions", params={"older_than": given}),
                await http.get(f"/v1/runs/{task.id}/result", params={"wait": given}),
            ]
            start = {"definition": "order", "delay": given}
            both = {"correlation_key": f"key-{task.id}", "name": "paid", "start": start}
            tried.append(await http.post("/v1/signals", json=both))
            assert [answer.text for answer in tried if answer.status_code >= 500] == [], given
        for change in (w.client().update_waits(to_group="all", reason="r", older_than="999999d"),):
            with pytest.raises(bide.BadInput, match="calendar"):
                await change
        assert (await http.get(f"/v1/runs/{run.id}")).status_code == 200


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "POST"])
async def test_H3_a_target_that_is_no_path_is_404(method: str) -> None:
    """`OPTIONS *` asks about the server as a whole; nothing of ours is there."""
    async with world(app) as w:
        sent: list[Any] = []

        async def opened() -> Any:
            return w.runtime

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": "*", "raw_path": b"*", "headers": [(b"host", b"x")]}
        await Api(opened, ENDPOINTS)(scope, None, send)  # type: ignore[arg-type]  # nothing is read
        assert sent[0]["status"] == 404


async def _tokens(w: World) -> list[str]:
    """Links that are open: of forms, of a provider with a body of its own, and one that takes anything at all."""
    tokens = []
    for name in ("kyc", "payment", "form", "pressed"):
        await w.start(name, "anything")
        tokens.append(urlsplit(SEEN["anything"]).path.rpartition("/")[2])
    return tokens


def _some(dice: Random, type_: Any, share: float, odd: Mapping[str, Iterator[Any]]) -> dict[str, Any]:
    return {name: next(odd[name]) for name in _fields(type_) if dice.random() < share}


def _fields(type_: Any) -> tuple[str, ...]:
    return getattr(type_, "__struct_fields__", ())


def _in_turns(dice: Random) -> Iterator[Any]:
    """Odd values, none of them again before all others came: few tries are enough for most of them."""
    while True:
        yield from dice.sample(ODD, len(ODD))
