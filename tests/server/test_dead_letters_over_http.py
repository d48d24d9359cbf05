"""Dead letters over HTTP."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest

from bide.core.records import RunId
from bide.core.requests import KeepPoison
from bide.testing import world
from tests.server import shop
from tests.server.shop import app
from tests.server.test_signals_over_http import code


async def test_a_dead_letter_is_listed_retried_and_gone(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """§7, H2: 200; a repeat under its idempotency key is answered as the first; anybody else finds nothing."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("told")
        [letter] = (await http.get("/v1/dead-letters")).json()["items"]
        path, key = f"/v1/dead-letters/{quote(letter['id'], safe='')}/retry", {"Idempotency-Key": "k"}

        again_in_vain = await http.post(path)
        [still] = (await http.get("/v1/dead-letters")).json()["items"]
        monkeypatch.setattr(shop, "MAIL_WORKS", [True])
        first = await http.post(path, headers=key)
        repeated = await http.post(path, headers=key)
        late = await http.post(path)

        assert (letter["run_id"], letter["kind"], letter["error"]) == (run.id, "notify", "NonRetryable: no mail today")
        assert (again_in_vain.status_code, still["id"]) == (200, letter["id"])
        assert first.json() == {"id": letter["id"], "outcome": "retried"}
        assert (repeated.status_code, repeated.content) == (200, first.content)
        assert code(late) == (404, "dead_letter_not_found")
        assert (await http.get("/v1/dead-letters")).json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("action", ["retry", "discard"])
async def test_H2_a_dead_letter_whose_run_is_gone_is_settled_once(store_url: str, action: str) -> None:
    """H2: a letter may outlive its run, and the key that it was settled under then does, too."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("told")
        [letter] = (await http.get("/v1/dead-letters")).json()["items"]
        await w.cancel(run.id)
        await w.advance("1h")
        assert await w.runtime.store.delete_ended(timedelta(minutes=1), 9) == 1
        path, key = f"/v1/dead-letters/{quote(letter['id'], safe='')}/{action}", {"Idempotency-Key": "k"}

        first = await http.post(path, headers=key)
        repeated = await http.post(path, headers=key)

        assert (first.status_code, first.json()["id"]) == (200, letter["id"])
        assert (repeated.status_code, repeated.content) == (200, first.content)
        assert code(await http.post(path, headers={"Idempotency-Key": "other"})) == (404, "dead_letter_not_found")


async def test_a_dead_letter_is_discarded_page_by_page(store_url: str) -> None:
    """§7: lists have cursors."""
    async with world(app, store_url) as w:
        http = w.http()
        for _ in range(3):
            await w.start("told")

        first = (await http.get("/v1/dead-letters?limit=2")).json()
        second = (await http.get("/v1/dead-letters", params={"limit": 2, "cursor": first["next_cursor"]})).json()
        ids = [letter["id"] for letter in first["items"] + second["items"]]
        for id in ids:
            discarded = await http.post(f"/v1/dead-letters/{quote(id, safe='')}/discard")
            assert (discarded.status_code, discarded.json()["outcome"]) == (200, "discarded")

        assert len(set(ids)) == 3
        assert second["next_cursor"] is None
        assert (await http.get("/v1/dead-letters")).json()["items"] == []
        assert code(await http.get("/v1/dead-letters?cursor=nonsense")) == (400, "bad_cursor")


async def test_U9_what_could_never_be_an_answer_is_discarded_and_not_retried(store_url: str) -> None:
    """U9: a poison record."""
    async with world(app, store_url) as w:
        http = w.http()
        poison = KeepPoison(
            workspace="default", actor="transport:kafka", run_id=RunId(""), id="kafka:1", text="?", reason="no JSON"
        )
        await w.runtime.committer.submit(poison)

        retried = await http.post("/v1/dead-letters/kafka:1/retry")
        discarded = await http.post("/v1/dead-letters/kafka:1/discard", headers={"Idempotency-Key": "k"})

        assert code(retried) == (409, "conflict")
        assert "discard it" in retried.json()["detail"]
        assert discarded.status_code == 200
