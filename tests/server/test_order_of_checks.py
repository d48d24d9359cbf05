"""H1 as a table: of everything that is wrong with a request, the first in the order of the rule is answered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bide.core.tokens import Signer
from bide.server import Server
from bide.testing import world
from tests.server.shop import app
from tests.server.test_resume_links import link

HUGE, HALF = b'{"data": "' + b"x" * 600_000, b'{"data": '
NO_KEY, READER, HOLDER = "no key", "a key without the scope", "a key with the scope"

# Who asks, what for, with what body; and what is answered. Each row repairs what the one before it was refused for.
ORDER: list[tuple[str, str, Any, int]] = [
    (NO_KEY, "unknown", HUGE, 401),
    (READER, "unknown", HUGE, 413),
    (READER, "unknown", HALF, 400),
    (READER, "unknown", b"{}", 404),
    (READER, "foreign", b"{}", 404),
    (READER, "closed", b"{}", 403),
    (HOLDER, "closed", b"{}", 410),
    (HOLDER, "open", b"{}", 422),
]
PATHS = {
    "signal": ("/v1/signals/{}/complete", "signals:send"),
    "interaction": ("/v1/interactions/{}/complete", "interactions:answer"),
    "fail": ("/v1/waits/{}/fail", "waits:operate"),
}


@pytest.mark.parametrize("what", PATHS)
async def test_the_first_thing_that_is_wrong_is_answered(store_url: str, what: str) -> None:
    """H1: 401, 413, 400, 404, 403, 409/410, 422."""
    path, scope = PATHS[what]
    async with world(app, store_url) as w:
        targets = {"unknown": {"signal": "none", "interaction": "int_1_1_0", "fail": "wait_1_1"}[what]}
        for standing, workspace in (("open", "default"), ("closed", "default"), ("foreign", "other")):
            client = w.client(workspace)
            run = await client.start("outreach" if what == "signal" else "task")
            await w.settle()
            [wait] = await client.waits(run_id=run.id)
            ids = {"signal": f"approval-{run.id}", "fail": wait.id}
            ids["interaction"] = wait.id.replace("wait_", "int_") + "_0"
            targets[standing] = ids[what]
            if standing == "closed":
                await client.answer(ids["signal" if what == "signal" else "interaction"], {"approved": True})
        clients = {NO_KEY: w.http(), READER: w.http(scopes=["runs:read"]), HOLDER: w.http(scopes=[scope])}
        del clients[NO_KEY].headers["Authorization"]

        for who, target, body, status in ORDER:
            response = await clients[who].post(path.format(targets[target]), content=body)
            assert response.status_code == status, (who, target, response.text)


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
                assert (await http.post(token, json={"approved": True})).status_code == 404
                assert (await http.post(token, data={"approved": "true"})).status_code == 404
                assert (await http.get(token)).status_code == 404
            assert w.runtime.store.round_trips == before
