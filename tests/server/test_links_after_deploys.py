"""A link that was given away yesterday, after a restart with the code of today."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import bide
from tests.server.test_signals_over_http import code

OLD, NEW = "s1:0123456789abcdef0123", "s2:fedcba9876543210fedc"


class Yesterday(msgspec.Struct):
    approved: bool


class Wider(msgspec.Struct):
    approved: bool
    reason: str = "none given"


class Other(msgspec.Struct):
    verdict: str


@pytest.fixture(params=["sqlite", "postgres"])
def lasting_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is there for more than one process."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    url = str(request.getfixturevalue("postgres_used_url"))
    subprocess.run([sys.executable, "-m", "bide", "migrate", "--store", url], check=True, stdout=subprocess.DEVNULL)
    return url


class Deployed:
    """One process with one version of the code, on a store that outlives it."""

    def __init__(self, store: str, returns: Any, secrets: str = OLD) -> None:
        self.links: asyncio.Queue[str] = asyncio.Queue()
        self.app = bide.App("shop", store=store, resume_secrets=secrets, public_url="http://shop.test")

        @self.app.workflow("verify")
        async def verify(step: bide.Step, user: str) -> Any:
            cb = await step.callback("kyc", timeout="7d", returns=returns)
            await step.run("begin", self.links.put, cb.url)
            return msgspec.to_builtins(await cb)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[httpx.AsyncClient]:
        async with (
            self.app.lifespan(),
            httpx.AsyncClient(transport=httpx.ASGITransport(self.app.asgi()), base_url="http://shop.test") as http,
        ):
            yield http


async def given_away(store: str) -> tuple[str, str]:
    """A run that waits, its link, and nobody who runs any more."""
    before = Deployed(store, Yesterday)
    async with before.serving():
        run = await before.app.client().start("verify", "ann")
        link = await before.links.get()
        while (await run.refresh()).status != "waiting":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return run.id, link


@pytest.mark.parametrize(("returns", "result"), [
    (Yesterday, {"approved": True}),
    (Wider, {"approved": True, "reason": "none given"}),
])  # fmt: skip
async def test_a_link_works_after_a_restart_and_a_schema_that_grew(
    returns: Any, result: Any, lasting_store: str
) -> None:
    """Law 9: the answer is checked against the schema that was stored with the wait, and read as today's type."""
    run_id, link = await given_away(lasting_store)
    after = Deployed(lasting_store, returns)
    async with after.serving() as http:
        wrong = await http.post(link, json={"approved": "maybe"})
        right = await http.post(link, json={"approved": True})

        assert (code(wrong), right.status_code) == ((422, "invalid"), 200)
        assert await after.app.client().result(run_id, timeout="2m") == result


async def test_a_schema_that_became_another_takes_the_old_answer_and_says_why_the_run_is_held(
    lasting_store: str,
) -> None:
    """Law 9: who was asked yesterday answers what was asked; the run does not guess, and the code of before goes on."""
    run_id, link = await given_away(lasting_store)
    after = Deployed(lasting_store, Other)
    async with after.serving() as http:
        new = await http.post(link, json={"verdict": "fine"})
        old = await http.post(link, json={"approved": True})
        client = after.app.client()
        while (await client.get(run_id)).held is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        why = [entry.data for entry in await client.ledger(run_id) if entry.name == "run_held"]

        assert (code(new), old.status_code) == ((422, "invalid"), 200)
        assert (await client.get(run_id)).held == "history_mismatch"
        assert "the stored answer of step 'kyc' is no" in str(why)

    again = Deployed(lasting_store, Yesterday)
    async with again.serving():
        await again.app.client().retry(run_id)
        assert await again.app.client().result(run_id, timeout="2m") == {"approved": True}


async def test_a_link_works_after_a_rotation_and_a_restart_and_says_why_once_its_secret_is_retired(
    lasting_store: str,
) -> None:
    """W4, law 9, T10: OLD, then NEW,OLD, then NEW alone, each in a process of its own."""
    (first_run, first), (last_run, last) = await given_away(lasting_store), await given_away(lasting_store)

    rotated = Deployed(lasting_store, Yesterday, f"{NEW},{OLD}")
    async with rotated.serving() as http:
        page = await http.get(first)
        taken = await http.post(first, json={"approved": True})
        assert (page.status_code, taken.status_code) == (200, 200)
        assert await rotated.app.client().result(first_run, timeout="2m") == {"approved": True}

    retired = Deployed(lasting_store, Yesterday, NEW)
    async with retired.serving() as http:
        refused = await http.post(last, json={"approved": True})
        page = await http.get(last)
        fresh_run = await retired.app.client().start("verify", "bob")
        fresh = await http.post(await retired.links.get(), json={"approved": False})

        assert code(refused) == (404, "not_found")
        assert "no longer known" in refused.json()["detail"]
        assert (page.status_code, "text/html" in page.headers["content-type"]) == (404, True)
        assert "too old" in page.text
        assert (await retired.app.client().get(last_run)).status == "waiting"
        assert fresh.status_code == 200
        assert await fresh_run.result(timeout="2m") == {"approved": False}
