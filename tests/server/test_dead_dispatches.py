"""Dead letters of dispatches and the progress of items, by the client in process and by the one over HTTP (U4, U7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import bide
from bide.engine.transport import Dispatched, Request, Sent, Undelivered
from bide.testing import World, world


class Bank:
    """Does not know one of the accounts, until it is told."""

    name = "bank"

    def __init__(self) -> None:
        self.unknown = {1}
        self.seen: list[Request] = []

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        self.seen += requests
        return [Undelivered("no such account", retry=False) if r.data in self.unknown else Sent() for r in requests]


def an_app() -> tuple[bide.App, Bank]:
    app, bank = bide.App("bank"), Bank()
    (
        app.pipeline("pay", retries=0)
        .expand(range)
        .wait_external("pay", transport=bank, timeout=bide.FOREVER)
        .collect(lambda items: [list(items), [bad.reason for bad in items.rejected]])
    )
    return app, bank


def client_of(there: World, way: str) -> Any:
    return there.client() if way == "in process" else bide.Client("http://bide.test", http=there.http())


@pytest.mark.parametrize("way", ["in process", "over HTTP"])
@pytest.mark.parametrize("action", ["retry", "discard"])
async def test_U7_a_dispatch_that_was_given_up_is_listed_and_retried_or_discarded(
    store_url: str, way: str, action: str
) -> None:
    """U7: a retry sends it again with the same ids; a discard rejects its item; either way it is gone."""
    app, bank = an_app()
    async with world(app, store_url, live=["bank"]) as there:
        client = client_of(there, way)
        run = await client.start("pay", 3)
        await there.settle()
        [letter] = await client.dead_letters()
        assert (letter.kind, letter.error, letter.run_id) == ("dispatch", "no such account", run.id)
        bank.unknown.clear()
        await getattr(client, f"{action}_dead_letter")(letter.id)
        await there.settle()
        assert await client.dead_letters() == []
        with pytest.raises(bide.DeadLetterNotFound):
            await client.retry_dead_letter(letter.id)
        sent = {request.interaction_id: request for request in bank.seen}
        assert (len(bank.seen), len(sent)) == (4 if action == "retry" else 3, 3)
        for request in sent.values():
            if action == "retry" or request.data != 1:
                await there.reply(request, request.data)
        expected = [[0, 1, 2], []] if action == "retry" else [[0, 2], ["it could not be sent: no such account"]]
        assert await client.result(run.id) == expected


@pytest.mark.parametrize("way", ["in process", "over HTTP"])
async def test_the_progress_of_items_is_told_by_every_client(store_url: str, way: str) -> None:
    """U4: expected, dispatched, answered, done, rejected."""
    app, bank = an_app()
    bank.unknown.clear()
    async with world(app, store_url, live=["bank"]) as there, there.http() as http:
        client = client_of(there, way)
        run = await client.start("pay", 4)
        await there.settle()
        counts = []
        for at, request in enumerate(list(bank.seen)):
            if at == 1:
                await there.reply(request, error="no funds")
            else:
                await there.reply(request, 1)
            told = await client.progress(run.id)
            counts.append((told.expected, told.dispatched, told.answered, told.done, told.rejected))
        assert counts == [(4, 4, 1, 1, 0), (4, 4, 2, 1, 1), (4, 4, 3, 2, 1), (4, 4, 4, 3, 1)]
        body = (await http.get(f"/v1/runs/{run.id}/progress")).json()
        assert body == {
            "expected": 4,
            "dispatched": 4,
            "answered": 4,
            "done": 3,
            "dropped": 0,
            "rejected": 1,
            "dead": 0,
            "is_filled": True,
        }
        async with there.http("other") as elsewhere:
            assert (await elsewhere.get(f"/v1/runs/{run.id}/progress")).status_code == 404
