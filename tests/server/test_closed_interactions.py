"""What is done to interactions and waits that have ended, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bide.testing import world
from bide.testing.world import World
from bide.views import InteractionInfo
from tests.server.shop import app
from tests.server.test_signals_over_http import code

SHAPES = {"quote": None, "caught": None, "quotes": None, "task": None, "rows": [1, 2]}  # and what they are started with
ANSWERS: dict[str, tuple[Any, Any]] = {
    "quote": (7, 8),
    "caught": (7, 8),
    "quotes": (7, 8),
    "task": ({"approved": True}, {"approved": False}),
    "rows": (7, 8),
}
ENDINGS = ("fail", "answer", "run cancel", "wait fail", "wait cancel", "timeout")


@pytest.mark.parametrize("shape", SHAPES)
async def test_nothing_done_to_what_is_closed_is_a_5xx(store_url: str, shape: str) -> None:
    """H3, U8, W7, §7: 404, 409 or 410, and 200 only for an equal repeat; with other items open, too."""
    async with world(app, store_url) as w:
        http = w.http()
        for ending in ENDINGS:
            run = await w.start(shape, SHAPES[shape])
            found = (await w.client().interactions(run_id=run.id))[0]
            await _end(w, http, ending, found, ANSWERS[shape][0])
            is_wait_open = (await w.client().wait(found.wait_id)).status == "waiting"
            calls = _calls(found, ANSWERS[shape], is_wait_open)

            answers = [(path, body, await http.request(method, path, json=body)) for method, path, body in calls]

            taken = [(path, body, got.text) for path, body, got in answers if got.status_code not in (404, 409, 410)]
            repeats = _equal_repeats(found, ending, shape, ANSWERS[shape][0])
            assert [(path, body) for path, body, _ in taken] == repeats, (ending, taken)
        assert await w.audit() == []


def _equal_repeats(found: InteractionInfo, ending: str, shape: str, answer: Any) -> list[Any]:
    if ending == "fail":
        return [(f"/v1/interactions/{found.id}/fail", {"reason": "no"})]
    if ending == "answer":
        paths = [f"/v1/interactions/{found.id}/complete"]
        if shape in ("quote", "caught", "task"):  # of many, only each by itself can be answered
            paths.append(f"/v1/waits/{found.wait_id}/complete")
        return [(path, {"data": answer}) for path in paths]
    return []


async def _end(w: World, http: httpx.AsyncClient, ending: str, found: InteractionInfo, answer: Any) -> None:
    interaction, wait = f"/v1/interactions/{found.id}", f"/v1/waits/{found.wait_id}"
    if ending == "timeout":
        await w.advance("48h")
        return
    path, body = {
        "fail": (f"{interaction}/fail", {"reason": "no"}),
        "answer": (f"{interaction}/complete", {"data": answer}),
        "run cancel": (f"/v1/runs/{found.run_id}/cancel", {}),
        "wait fail": (f"{wait}/fail", {"reason": "not"}),
        "wait cancel": (f"{wait}/cancel", {"reason": "not"}),
    }[ending]
    assert (await http.post(path, json=body)).status_code in (200, 202)
    await w.settle()


def _calls(found: InteractionInfo, answers: tuple[Any, Any], is_wait_open: bool) -> list[tuple[str, str, Any]]:
    """Every call on an interaction and on its wait; on the wait none where other items keep it open."""
    interaction, wait = f"/v1/interactions/{found.id}", f"/v1/waits/{found.wait_id}"
    calls: list[tuple[str, str, Any]] = [
        ("POST", f"{interaction}/fail", {"reason": "no"}),
        ("POST", f"{interaction}/fail", {"reason": "other"}),
        *(("POST", f"{interaction}/complete", {"data": answer}) for answer in answers),
        ("POST", f"{interaction}/claim", {"by": "ann"}),
        ("POST", f"{interaction}/release", {"by": "ann"}),
        ("POST", f"{interaction}/assign", {"assignee": "ann"}),
    ]
    if is_wait_open:
        return calls
    return [
        *calls,
        ("POST", f"{wait}/fail", {"reason": "no"}),
        ("POST", f"{wait}/cancel", {"reason": "no"}),
        *(("POST", f"{wait}/complete", {"data": answer}) for answer in answers),
        ("POST", f"{wait}/heartbeat", {}),
        ("PATCH", wait, {"deadline": "1h"}),
        ("PATCH", wait, {"assignee": "ann"}),
    ]


@pytest.mark.parametrize("shape", ["quotes", "rows"])
@pytest.mark.parametrize("ending", ["fail", "answer"])
async def test_an_item_that_has_ended_is_not_handed_to_anybody(store_url: str, shape: str, ending: str) -> None:
    """§7: 410 while other items of its wait are open, and those are left as they are."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start(shape, SHAPES[shape])
        ended, other = await w.client().interactions(run_id=run.id)
        await _end(w, http, ending, ended, 7)

        for verb, body in (("claim", {"by": "ann"}), ("release", {"by": "ann"}), ("assign", {"assignee": "ann"})):
            refused = await http.post(f"/v1/interactions/{ended.id}/{verb}", json=body)
            assert code(refused) == (410, "already_answered"), verb

        assert (await w.client().interaction(ended.id)).claimed_by is None
        assert (await w.client().interaction(other.id)).assignee is None
        assert (await http.post(f"/v1/interactions/{other.id}/claim", json={"by": "ann"})).status_code == 200


@pytest.mark.parametrize(
    ("ending", "said"),
    [("wait fail", "it was failed before"), ("timeout", "its time was up"), ("answer", "it was answered before")],
)
async def test_W7_what_is_done_to_a_wait_that_has_ended_is_refused_with_the_true_reason(
    store_url: str, ending: str, said: str
) -> None:
    """W7, §7: 410 says how it ended, and speaks of no answer where none was sent."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("task")
        [found] = await w.client().interactions(run_id=run.id)
        await _end(w, http, ending, found, {"approved": True})
        path = f"/v1/waits/{found.wait_id}"
        refused = [
            await http.post(f"{path}/fail", json={"reason": "no"}),
            await http.post(f"{path}/cancel", json={"reason": "no"}),
            await http.patch(path, json={"deadline": "1h"}),
            await http.patch(path, json={"deadline": "soon"}),
        ]
        for each in refused:
            assert code(each) == (410, "already_answered")
            assert each.json()["detail"] == f"it is too late for {found.wait_id!r}: {said}"
