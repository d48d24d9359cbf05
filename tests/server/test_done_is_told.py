"""What was done over HTTP is told as done, also where the run cannot be looked at afterwards (H2, G5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

import bide
from bide.client import remote
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import app


def cut() -> httpx.Response:
    raise httpx.ReadError("the connection broke")


BLIND: dict[str, Callable[[], httpx.Response]] = {
    "not allowed": lambda: httpx.Response(403, json={"code": "forbidden", "error": "Forbidden", "detail": "no"}),
    "too many": lambda: httpx.Response(429, json={"code": "too_many_requests", "detail": "later"}),
    "unavailable": lambda: httpx.Response(503, json={"code": "unavailable", "detail": "later"}),
    "no answer of bide's": lambda: httpx.Response(200, text="<html>"),
    "cut": cut,
}


@pytest.fixture(params=BLIND)
def blind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Any]:
    """Makes a client whose every look fails, in one of the ways there are."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)

    def client(w: World) -> Any:
        http = w.http()

        class Blind(httpx.AsyncBaseTransport):
            async def handle_async_request(self, asked: httpx.Request) -> httpx.Response:
                if asked.method == "GET":
                    return BLIND[request.param]()
                return await http._transport.handle_async_request(asked)

        return bide.Client("http://bide.test", http=httpx.AsyncClient(transport=Blind(), headers=http.headers))

    return client


async def test_a_start_that_cannot_be_looked_at_gives_a_handle(blind: Callable[[World], Any]) -> None:
    """H2: whoever hears of an error would start another."""
    async with world(app) as w:
        run = await blind(w).start("order", {"item": 7}, correlation_key="order:1", tags={"city": "Bern"})

        [found] = await w.runs()
        assert (run.id, run.info.definition, run.info.version) == (found.id, found.definition, found.version)
        assert (run.info.input, run.info.tags, run.info.correlation_key) == ({"item": 7}, {"city": "Bern"}, "order:1")


async def test_a_retry_that_cannot_be_looked_at_gives_a_handle(blind: Callable[[World], Any]) -> None:
    """F16: the run that goes on is there."""
    async with world(app) as w:
        failed = await w.start("broken")

        run = await blind(w).retry(failed.id)

        assert [one.id for one in await w.runs() if one.retry_of == failed.id] == [run.id]
        assert run.id in repr(run)


async def test_a_cancel_that_cannot_be_looked_at_is_done(blind: Callable[[World], Any]) -> None:
    """W8: the status is the one that the cancel answered with."""
    async with world(app) as w:
        run = await blind(w).start("order")

        await run.cancel("enough")

        assert run.status == (await w.get(run.id)).status == "cancelled"


async def test_G5_a_key_that_may_do_it_and_not_look_is_told_that_it_is_done(store_url: str) -> None:
    """G5: each scope is enough for what it allows."""
    async with world(app, store_url) as w:
        failed = await w.start("broken")
        client: Any = bide.Client("http://bide.test", http=w.http(scopes=["runs:start", "runs:cancel"]))

        again = await client.retry(failed.id)
        run = await client.start("order", {"item": 7})
        await run.cancel()

        assert {one.id for one in await w.runs(definition="broken")} == {failed.id, again.id}
        assert run.status == (await w.get(run.id)).status == "cancelled"


async def test_an_error_of_the_cancel_itself_is_raised(store_url: str) -> None:
    async with world(app, store_url) as w:
        client: Any = bide.Client("http://bide.test", http=w.http())
        run = await client.start("order")
        await w.signal(run.id, "paid")

        with pytest.raises(bide.RunIsFinal):
            await run.cancel()
