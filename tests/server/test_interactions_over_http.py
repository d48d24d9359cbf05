"""Interactions and waits over HTTP."""

from __future__ import annotations

from bide.testing import world
from tests.server.shop import app
from tests.server.test_signals_over_http import code


async def test_U8_an_interaction_is_listed_answered_and_repeated(store_url: str) -> None:
    """§7, U8: 200, the same again `duplicate`, another one 409."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("task")
        [listed] = (await http.get("/v1/interactions", params={"run_id": run.id})).json()["items"]
        path = f"/v1/interactions/{listed['id']}"

        invalid = await http.post(f"{path}/complete", json={"data": {"approved": 1}})
        first = await http.post(f"{path}/complete", json={"data": {"approved": True}})
        again = await http.post(f"{path}/complete", json={"data": {"approved": True}})
        other = await http.post(f"{path}/complete", json={"data": {"approved": False}})

        assert listed["title"] == "Is this fine?"
        assert code(invalid) == (422, "invalid")
        assert invalid.json()["errors"][0]["path"] == "$.approved"
        assert (first.status_code, first.json()["outcome"]) == (200, "woke")
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        assert code(other) == (409, "conflicting_answer")
        shown = (await http.get(path)).json()
        assert (shown["status"], shown["answer"], shown["answered_by"]) == (
            "completed",
            {"approved": True, "reason": None} if "reason" in shown["answer"] else {"approved": True},
            "world",
        )


async def test_only_some_keys_act_in_the_name_of_others(store_url: str) -> None:
    """W11: `by` needs the scope interactions:answer_as."""
    async with world(app, store_url) as w:
        plain, speaker = w.http(scopes=["interactions:answer", "waits:operate", "runs:read"]), w.http()
        run = await w.start("task")
        [task] = (await plain.get("/v1/interactions", params={"run_id": run.id})).json()["items"]
        path = f"/v1/interactions/{task['id']}"

        assert (await plain.post(f"{path}/assign", json={"assignee": "ann"})).json()["assignee"] == "ann"
        refused = await plain.post(f"{path}/complete", json={"data": {"approved": True}, "by": "ann"})
        not_ann = await plain.post(f"{path}/complete", json={"data": {"approved": True}})
        claimed = await speaker.post(f"{path}/claim", json={"by": "ann"})
        released = await speaker.post(f"{path}/release", json={"by": "ann"})
        answered = await speaker.post(f"{path}/complete", json={"data": {"approved": True}, "by": "ann"})

        assert code(refused) == code(not_ann) == (403, "forbidden")
        assert claimed.json()["claimed_by"] == "ann"
        assert released.json()["claimed_by"] is None
        assert answered.status_code == 200


async def test_W10_a_wait_is_moved_failed_and_cancelled(store_url: str) -> None:
    """W10, W13, §7."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("outreach")
        [wait] = (await http.get("/v1/waits", params={"run_id": run.id})).json()["items"]
        path = f"/v1/waits/{wait['id']}"

        moved = await http.patch(path, json={"deadline": "2030-01-09T00:00:00+00:00", "reason": "holidays"})
        nonsense = await http.patch(path, json={"deadline": "soon"})
        nothing = await http.patch(path, json={})
        unsaid = await http.post(f"{path}/fail", json={"reason": " "})
        failed = await http.post(f"{path}/fail", json={"reason": "the bank is closed"})
        late = await http.patch(path, json={"deadline": "soon"})

        assert moved.json()["deadline"] == "2030-01-09T00:00:00Z"
        assert code(nonsense) == code(nothing) == code(unsaid) == (422, "bad_input")
        assert failed.json()["status"] == "failed"
        assert code(late)[0] == 410
        assert (await w.get(run.id)).status == "failed"
