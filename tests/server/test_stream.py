"""The ledger of a run as Server-Sent Events."""

from __future__ import annotations

from bide.testing import world
from tests.server.shop import app
from tests.server.test_signals_over_http import code


async def test_a_stream_has_every_entry_once_and_resumes_after_the_last_one_seen(store_url: str) -> None:
    """§7: Last-Event-ID resumes."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("typed", {"approved": True})
        ledger = await w.ledger(run.id)

        whole = (await http.get("/v1/stream", params={"run_id": run.id})).text
        rest = (await http.get("/v1/stream", params={"run_id": run.id}, headers={"Last-Event-ID": f"{run.id}/1"})).text

        names = [line.removeprefix("event: ") for line in whole.splitlines() if line.startswith("event: ")]
        assert names == [entry.name for entry in ledger]
        assert whole.endswith(rest)
        assert rest.startswith(f"id: {run.id}/2\n")


async def test_what_cannot_be_streamed(store_url: str) -> None:
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("typed", {"approved": True})

        assert code(await http.get("/v1/stream")) == (422, "invalid")
        assert code(await http.get("/v1/stream?run_id=run_7")) == (404, "run_not_found")
        assert code(await w.http(workspace="other").get(f"/v1/stream?run_id={run.id}")) == (404, "run_not_found")
        foreign = await http.get("/v1/stream", params={"run_id": run.id}, headers={"Last-Event-ID": "run_7/1"})
        assert code(foreign) == (400, "bad_cursor")
