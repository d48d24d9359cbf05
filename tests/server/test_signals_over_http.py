"""Answering signal ids over HTTP: the codes, the limits and the borders between workspaces."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import bide
from bide.testing import world
from tests.server.shop import app
from tests.support.doors import WAYS_IN, WayIn


@pytest.fixture(params=WAYS_IN)
def way_in(request: pytest.FixtureRequest) -> WayIn:
    """Every line of §7 on signals holds in process and over a real connection."""
    return WAYS_IN[request.param]


def code(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    assert {"type", "title", "detail", "code"} <= body.keys()
    return response.status_code, body["code"]


def undated(response: httpx.Response) -> dict[str, str]:
    """The headers but for the moment of the answer, which a socket's server adds."""
    return {name: value for name, value in response.headers.items() if name != "date"}


async def outreach(http: httpx.AsyncClient, definition: str = "outreach") -> str:
    response = await http.post("/v1/runs", json={"definition": definition, "input": {}})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def test_an_answer_is_admitted_and_the_run_goes_on(store_url: str, way_in: WayIn) -> None:
    """§7, F4: 200, the run queued for resume with `data`."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)

        response = await http.post(f"/v1/signals/approval-{run_id}/complete", json={"data": {"approved": True}})

        assert response.status_code == 200
        assert response.json()["outcome"] == "woke"
        assert response.json()["run_id"] == run_id
        result = await http.get(f"/v1/runs/{run_id}/result")
        assert (result.status_code, result.json()["result"]) == (200, {"status": "sent", "reason": None})


async def test_an_unknown_signal_is_404(store_url: str, way_in: WayIn) -> None:
    """§7: 404 for an id that nobody waits for."""
    async with world(app, store_url) as w, way_in(w) as client:
        response = await client().post("/v1/signals/approval-7/complete", json={"data": 1})

        assert code(response) == (404, "no_target")


async def test_another_workspace_gets_404_byte_for_byte_as_for_an_unknown_id(store_url: str, way_in: WayIn) -> None:
    """H1, law 8: existence is not told across workspaces."""
    async with world(app, store_url) as w, way_in(w) as client:
        http, other = client(), client(workspace="other")
        run_id = await outreach(http)

        foreign = await other.post(f"/v1/signals/approval-{run_id}/complete", json={"data": {"approved": True}})
        unknown = await other.post("/v1/signals/approval-none/complete", json={"data": {"approved": True}})

        assert code(foreign) == (404, "no_target")
        assert foreign.content == unknown.content
        assert undated(foreign) == undated(unknown)
        assert (await w.get(run_id)).status == "waiting"


async def test_a_collision_is_409_until_the_run_is_named(store_url: str, way_in: WayIn) -> None:
    """F5, §7: 409 with an unresolved collision; `run_id` says which run is meant."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        first, second = await outreach(http, "shared"), await outreach(http, "shared")
        failed = (await http.get(f"/v1/runs/{second}")).json()
        assert failed["status"] == "failed"
        assert failed["error"]["type"] == "SignalCollisionError"
        assert "the-one-gate" in failed["error"]["message"]

        response = await http.post("/v1/signals/the-one-gate/complete", json={"data": 1})
        named = await http.post("/v1/signals/the-one-gate/complete", json={"data": 1, "run_id": first})

        assert code(response) == (409, "signal_collision")
        assert named.status_code == 200
        assert await w.result(first) == 1


async def test_after_a_collision_wrong_data_for_the_run_that_is_named_is_422(store_url: str, way_in: WayIn) -> None:
    """F5, H1: it was said which run is meant. Another run than the holder is not waited for by anybody."""
    narrow = bide.App("narrow", store="memory://")

    @narrow.workflow("narrow")
    async def wait(step: bide.Step, input: Any) -> Any:
        return await step.wait_for_signal("gate", signal="narrow", timeout="48h", returns=int)

    async with world(narrow, store_url) as w, way_in(w) as client:
        http, path = client(), "/v1/signals/narrow/complete"
        holder, other = await outreach(http, "narrow"), await outreach(http, "narrow")

        wrong = await http.post(path, json={"data": "x", "run_id": holder})
        odd = await http.post(path, json={"data": 1, "run_id": holder, "dedup_key": 7})
        unnamed = await http.post(path, json={"data": "x"})
        foreign = [await http.post(path, json={"data": data, "run_id": other}) for data in (1, "x")]

        assert code(wrong) == (422, "invalid")
        assert wrong.json()["errors"] == [{"path": "$", "message": '"x" is not of type "integer"'}]
        assert code(odd) == (422, "invalid")
        assert code(unnamed) == (409, "signal_collision")
        assert [code(each) for each in foreign] == [(404, "no_target")] * 2
        assert (await http.post(path, json={"data": 1, "run_id": holder})).status_code == 200


async def test_one_signal_id_in_two_workspaces_is_two_signals(store_url: str, way_in: WayIn) -> None:
    """F5: an id is unique in its workspace, and an answer reaches the run of its own."""
    async with world(app, store_url) as w, way_in(w) as client:
        here, there = client(), client(workspace="other")
        mine, theirs = await outreach(here, "shared"), await outreach(there, "shared")

        response = await there.post("/v1/signals/the-one-gate/complete", json={"data": "theirs"})

        assert (response.status_code, response.json()["run_id"]) == (200, theirs)
        assert (await there.get(f"/v1/runs/{theirs}/result")).json()["result"] == "theirs"
        assert (await here.get(f"/v1/runs/{mine}")).json()["status"] == "waiting"


async def test_an_answered_signal_is_410(store_url: str, way_in: WayIn) -> None:
    """§7: a second answer comes too late, and changes nothing."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        path = f"/v1/signals/approval-{run_id}/complete"
        assert (await http.post(path, json={"data": {"approved": True}})).status_code == 200

        again = await http.post(path, json={"data": {"approved": False}})

        assert code(again) == (410, "already_answered")
        assert (await w.result(run_id))["status"] == "sent"


async def test_a_signal_whose_time_is_up_is_410(store_url: str, way_in: WayIn) -> None:
    """§7: 410 after the timeout."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        await w.advance("48h")

        response = await http.post(f"/v1/signals/approval-{run_id}/complete", json={"data": {"approved": True}})

        assert code(response) == (410, "already_answered")
        assert await w.result(run_id) == {"status": "expired"}


async def test_the_signal_of_a_cancelled_run_is_404(store_url: str, way_in: WayIn) -> None:
    """W8, §7: a cancelled run frees its signal ids."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        assert (await http.post(f"/v1/runs/{run_id}/cancel", json={"reason": "no more"})).status_code == 202

        response = await http.post(f"/v1/signals/approval-{run_id}/complete", json={"data": {"approved": True}})

        assert code(response) == (404, "no_target")


async def test_a_cancelled_run_leaves_its_signal_id_to_the_next(store_url: str, way_in: WayIn) -> None:
    """W8, F5: the id is free at once; its next holder is answered under it."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        first = await outreach(http, "shared")
        assert (await http.post(f"/v1/runs/{first}/cancel", json={"reason": "no more"})).status_code == 202
        second = await outreach(http, "shared")

        response = await http.post("/v1/signals/the-one-gate/complete", json={"data": 2})

        assert (response.status_code, response.json()["run_id"]) == (200, second)
        assert await w.result(second) == 2


@pytest.mark.parametrize(
    "body", [{}, {"result": {"approved": True}}, [1], "yes", {"data": {"approved": True}, "workspace": "other"}]
)
async def test_a_body_without_data_is_422(store_url: str, way_in: WayIn, body: Any) -> None:
    """§7: `data` is missing, or something is there that bide does not know."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)

        response = await http.post(f"/v1/signals/approval-{run_id}/complete", json=body)

        assert code(response) == (422, "invalid")
        assert (await w.get(run_id)).status == "waiting"


async def test_data_against_the_schema_is_422_with_every_problem_and_the_wait_stays_open(
    store_url: str, way_in: WayIn
) -> None:
    """W3: every problem with its path; the next answer is taken."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        path = f"/v1/signals/approval-{run_id}/complete"

        response = await http.post(path, json={"data": {"approved": "yes", "reason": 7}})

        assert code(response) == (422, "invalid")
        assert {error["path"] for error in response.json()["errors"]} == {"$.approved", "$.reason"}
        assert (await http.post(path, json={"data": {"approved": True}})).status_code == 200


async def test_data_over_the_limit_is_413_and_data_at_it_is_taken(store_url: str, way_in: WayIn) -> None:
    """S9, H3: 512 KiB of payload, whatever the envelope."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http, "shared")
        path = "/v1/signals/the-one-gate/complete"
        limit = 512 * 1024

        over = await http.post(path, json={"data": "x" * (limit - 1)})
        far_over = await http.post(path, content=b"x" * (limit + 16 * 1024 + 1))
        at = await http.post(path, json={"data": "x" * (limit - 2)})

        assert code(over) == code(far_over) == (413, "payload_too_large")
        assert at.status_code == 200
        assert len(await w.result(run_id)) == limit - 2


async def test_an_answer_with_hold_and_no_open_wait_is_202(store_url: str, way_in: WayIn) -> None:
    """§7, F7: held for the first wait; where a wait is open it is answered as ever."""
    async with world(waiting_for_anything(), store_url) as w, way_in(w) as client:
        http = client()
        body = {"data": {"approved": True}, "hold": "10m"}

        held = await http.post("/v1/signals/gate-7/complete", json=body)
        second = await http.post("/v1/signals/gate-7/complete", json=body)
        unheld = await http.post("/v1/signals/gate-7/complete", json={"data": 1})
        other = await client(workspace="other").post("/v1/signals/gate-7/complete", json={"data": 1})

        assert (held.status_code, held.json()["outcome"], held.json()["run_id"]) == (202, "queued", None)
        assert code(second) == code(unheld) == (410, "already_answered")
        assert code(other) == (404, "no_target")
        run = await w.start("gate", "gate-7")
        assert await w.result(run.id) == {"approved": True}
        again = await http.post("/v1/signals/gate-7/complete", json={"data": 1})
        assert code(again) == (410, "already_answered")
        waiting = await w.start("gate", "gate-8")
        woken = await http.post("/v1/signals/gate-8/complete", json=body)
        assert (woken.status_code, woken.json()["run_id"]) == (200, waiting.id)


@pytest.mark.parametrize("hold", ["soon", "0s", -1, {"for": "ever"}, True])
async def test_an_impossible_hold_is_422(way_in: WayIn, hold: Any) -> None:
    async with world(waiting_for_anything()) as w, way_in(w) as client:
        response = await client().post("/v1/signals/gate-7/complete", json={"data": 1, "hold": hold})

        assert response.status_code == 422


def waiting_for_anything() -> bide.App:
    gates = bide.App()

    @gates.workflow("gate")
    async def gate(step: bide.Step, signal: str) -> Any:
        return await step.wait_for_signal("gate", signal=signal, timeout="1h")

    return gates


async def test_a_redelivery_under_its_idempotency_key_gets_the_first_answer(store_url: str, way_in: WayIn) -> None:
    """H2, law 5: the client can tell its own retry from someone else's win."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        path, body = f"/v1/signals/approval-{run_id}/complete", {"data": {"approved": True}}
        key = {"Idempotency-Key": "evt-7"}

        first = await http.post(path, json=body, headers=key)
        again = await http.post(path, json=body, headers=key)
        another_body = await http.post(path, json={"data": {"approved": False}}, headers=key)
        another_key = await http.post(path, json=body, headers={"Idempotency-Key": "evt-8"})

        assert first.status_code == again.status_code == 200
        assert again.json() == {**first.json(), "duplicate": True}
        assert code(another_body) == (409, "idempotency_conflict")
        assert code(another_key) == (410, "already_answered")


async def test_a_refusal_is_not_kept_under_its_idempotency_key(store_url: str, way_in: WayIn) -> None:
    """H2: what was refused may be tried again with the same key."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        run_id = await outreach(http)
        path, key = f"/v1/signals/approval-{run_id}/complete", {"Idempotency-Key": "evt-7"}

        refused = await http.post(path, json={"data": {"approved": "yes"}}, headers=key)
        taken = await http.post(path, json={"data": {"approved": True}}, headers=key)

        assert (refused.status_code, taken.status_code) == (422, 200)


async def test_an_idempotency_key_counts_for_one_path_of_one_workspace_and_seven_days(
    store_url: str, way_in: WayIn
) -> None:
    """H2: scope and retention."""
    async with world(app, store_url, retention="30d") as w, way_in(w) as client:
        key = {"Idempotency-Key": "same"}
        body = {"definition": "order", "input": {}}
        http, other = client(), client(workspace="other")

        first = (await http.post("/v1/runs", json=body, headers=key)).json()
        foreign = (await other.post("/v1/runs", json=body, headers=key)).json()
        signalled = await http.post(f"/v1/runs/{first['id']}/signals", json={"name": "x"}, headers=key)
        again = (await http.post("/v1/runs", json=body, headers=key)).json()
        await w.advance("7d")
        later = (await http.post("/v1/runs", json=body, headers=key)).json()

        assert first == again
        assert len({first["id"], foreign["id"], later["id"]}) == 3
        assert signalled.status_code == 202


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"name": ""}, "$.name"), ({"name": "x" * 201}, "$.name"), ({"dedup_key": "\n"}, "$.dedup_key")],
)
async def test_what_is_wrong_with_a_signal_is_said_at_its_field(wrong: dict[str, str], path: str) -> None:
    """§7: `errors[]` of a 422."""
    async with world(app) as w:
        http, run = w.http(), await w.start("order", correlation_key="order:1")
        by_run = await http.post(f"/v1/runs/{run.id}/signals", json={"name": "paid", **wrong})
        by_key = await http.post("/v1/signals", json={"correlation_key": "order:1", "name": "paid", **wrong})

        for refused in (by_run, by_key):
            assert code(refused) == (422, "invalid")
            assert [error["path"] for error in refused.json()["errors"]] == [path]


async def test_a_signal_by_run_and_by_correlation_key(store_url: str, way_in: WayIn) -> None:
    """§7, S1, S7: 202, and `duplicate` for a redelivery."""
    async with world(app, store_url) as w, way_in(w) as client:
        http = client()
        started = await http.post("/v1/runs", json={"definition": "order", "correlation_key": "order:7"})
        run_id = started.json()["id"]
        by_run = await http.post(f"/v1/runs/{run_id}/signals", json={"name": "seen", "dedup_key": "a"})
        again = await http.post(f"/v1/runs/{run_id}/signals", json={"name": "seen", "dedup_key": "a"})
        other = await http.post(f"/v1/runs/{run_id}/signals", json={"name": "seen", "payload": 1, "dedup_key": "a"})
        inbox = await http.get(f"/v1/runs/{run_id}/inbox")
        by_key = await http.post(
            "/v1/signals", json={"correlation_key": "order:7", "name": "paid", "payload": {"amount": 5}}
        )
        ended = await http.post(f"/v1/runs/{run_id}/signals", json={"name": "paid"})
        nobody = await http.post("/v1/signals", json={"correlation_key": "order:7", "name": "paid"})

        assert (by_run.status_code, by_run.json()["outcome"]) == (202, "queued")
        assert (again.status_code, again.json()["outcome"], again.json()["duplicate"]) == (202, "duplicate", True)
        assert code(other) == (409, "dedup_conflict")
        assert [signal["name"] for signal in inbox.json()["items"]] == ["seen"]
        assert (by_key.status_code, by_key.json()["outcome"]) == (202, "woke")
        assert code(ended) == (404, "no_target")
        assert code(nobody) == (404, "no_target")
        assert await w.result(run_id) == {"paid": [{"amount": 5}]}
