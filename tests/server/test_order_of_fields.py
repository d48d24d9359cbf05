"""The same payload again, its fields in another order, is the same payload (S7, law 5)."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

import bide
from bide.core.commands import Complete
from bide.core.payloads import digest
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app
from tests.server.test_resume_links import anonymous, link

ONE, OTHER = {"approved": True, "reason": "fine"}, {"reason": "fine", "approved": True}
DIFFERENT = {"reason": "well", "approved": True}


def form_of(w: World, form: str) -> Any:
    return w.client() if form == "in process" else bide.Client("http://bide.test", http=w.http())


@pytest.mark.parametrize("form", ["in process", "over HTTP"])
async def test_S7_a_completion_in_another_order_is_a_duplicate(store_url: str, form: str) -> None:
    """S7: as of signals, answers and events."""
    async with world(app, store_url) as w:
        client, run = form_of(w, form), await w.start("outreach")
        name = f"approval-{run.id}"

        first = await client.complete(name, ONE, dedup_key="evt-1")
        again = await client.complete(name, OTHER, dedup_key="evt-1")

        assert (first.outcome, again.outcome, again.message_id) == ("woke", "duplicate", first.message_id)
        with pytest.raises(bide.DedupConflict):
            await client.complete(name, DIFFERENT, dedup_key="evt-1")


async def test_F7_a_held_answer_in_another_order_is_a_duplicate_before_and_after_it_is_taken(store_url: str) -> None:
    async with world(app, store_url) as w:
        held = await w.complete("the-one-gate", ONE, dedup_key="evt-1", hold="1h")
        early = await w.complete("the-one-gate", OTHER, dedup_key="evt-1", hold="1h")
        run = await w.start("shared")
        late = await w.complete("the-one-gate", OTHER, dedup_key="evt-1")

        assert (held.outcome, early.outcome, late.outcome) == ("queued", "duplicate", "duplicate")
        assert await w.result(run.id) == ONE


async def test_law_5_a_resume_link_takes_the_same_body_in_another_order_as_a_duplicate(store_url: str) -> None:
    """Law 5, W4: another body is 410 still."""
    async with world(app, store_url) as w:
        _, path = await link(w, user="order of fields")
        http = anonymous(w)

        first = await http.post(path, json=ONE)
        again = await http.post(path, json=OTHER)
        different = await http.post(path, json=DIFFERENT)

        assert (first.json()["outcome"], again.status_code, again.json()["outcome"]) == ("queued", 200, "duplicate")
        assert different.status_code == 410


async def test_law_5_a_form_in_another_order_and_its_answer_as_json_are_the_same_answer(store_url: str) -> None:
    """Law 5, W5."""
    async with world(app, store_url) as w:
        _, path = await link(w, user="order of a form")
        http = anonymous(w)
        found = re.search(r'name="form" value="([^"]+)"', (await http.get(path)).text)
        assert found is not None
        filled = {"form": found[1], "data.approved": "true", "data.reason": "fine"}

        first = await http.post(path, data=filled)
        again = await http.post(path, data=dict(reversed(filled.items())))
        as_json: httpx.Response = await http.post(path, json=OTHER)

        assert (first.status_code, again.status_code, as_json.status_code) == (200, 200, 200)
        assert as_json.json()["duplicate"]


async def test_law_5_what_was_remembered_by_its_text_is_known_again(store_url: str) -> None:
    """Law 5, law 9: digests that an earlier release stored are of the text as it came."""
    async with world(app, store_url) as w:
        run = await w.start("outreach")
        text = '{"reason":"fine","approved":true}'
        earlier = Complete(
            workspace="default",
            actor="client",
            signal_id=f"approval-{run.id}",
            message_id="msg_1",
            data=text,
            digest=digest(text)[:32],
            dedup_key="evt-1",
        )
        assert (await w.runtime.committer.submit(earlier)).reply.outcome == "woke"  # type: ignore[union-attr]  # a receipt

        again = await w.complete(f"approval-{run.id}", OTHER, dedup_key="evt-1")

        assert (again.outcome, again.message_id) == ("duplicate", "msg_1")
        with pytest.raises(bide.DedupConflict):
            await w.complete(f"approval-{run.id}", DIFFERENT, dedup_key="evt-1")
