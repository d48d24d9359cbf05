"""Ledgers as Server-Sent Events: of one run, and of all runs of a workspace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from bide.testing import world
from bide.testing.world import World
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

        assert code(await http.get("/v1/stream?from=yesterday")) == (422, "invalid")
        for last in ("x", "", "run_7/1", "1/x", "/", "é/1", "1.run_1/1", f"{'9' * 40}/1"):
            refused = await http.get("/v1/stream", headers={b"Last-Event-ID": last.encode()})
            assert code(refused) == (400, "bad_cursor"), last
        assert code(await http.get("/v1/stream?run_id=run_7")) == (404, "run_not_found")
        assert code(await w.http(workspace="other").get(f"/v1/stream?run_id={run.id}")) == (404, "run_not_found")
        foreign = await http.get("/v1/stream", params={"run_id": run.id}, headers={"Last-Event-ID": "run_7/1"})
        assert code(foreign) == (400, "bad_cursor")


# ---------------------------------------------------------------- of all runs

PATIENCE = 60.0


@asynccontextmanager
async def following(http: httpx.AsyncClient, last: str | None = None, **query: str) -> AsyncIterator[Any]:
    """The messages of the stream, as an EventSource would read them."""
    headers = {"Last-Event-ID": last} if last is not None else {}
    async with http.stream("GET", "/v1/stream", params=query, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield messages(response)


async def messages(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name or "comment"] = value
        else:
            yield fields
            fields = {}


async def take(stream: AsyncIterator[dict[str, str]], count: int) -> list[dict[str, str]]:
    async with asyncio.timeout(PATIENCE):
        found: list[dict[str, str]] = []
        async for message in stream:
            found += [message] if "data" in message else []
            if len(found) == count:
                return found
    raise AssertionError(f"the stream ended after {len(found)} events")


async def told(w: World, *run_ids: str) -> list[tuple[str, int]]:
    return [(run_id, entry.seq) for run_id in run_ids for entry in await w.ledger(run_id)]


def seen(events: list[dict[str, str]]) -> list[tuple[str, int]]:
    return [(data["run_id"], data["seq"]) for data in (json.loads(event["data"]) for event in events)]


async def test_the_stream_of_a_workspace_has_every_entry_of_every_run_once_and_in_order(store_url: str) -> None:
    """§7: ledger entries; those of other workspaces are nobody's business (law 8)."""
    async with world(app, store_url) as w:
        first, second = await w.start("outreach"), await w.start("typed", {"approved": True})
        foreign = await w.client("other").start("typed", {"approved": True})
        await w.settle()
        await w.complete(f"approval-{first.id}", {"approved": True})
        expected = await told(w, first.id, second.id)
        theirs = [(foreign.id, entry.seq) for entry in await w.client("other").ledger(foreign.id)]

        async with following(w.http()) as stream:
            events = await take(stream, len(expected))
        async with following(w.http(workspace="other")) as stream:
            others = await take(stream, len(theirs))

        assert sorted(seen(events)) == sorted(expected)
        for run_id in (first.id, second.id):
            numbers = [seq for run, seq in seen(events) if run == run_id]
            assert numbers == sorted(numbers)
        assert seen(others) == theirs
        entry = (await w.ledger(first.id))[0]
        shown = json.loads(events[0]["data"])
        assert (events[0]["event"], shown["hash"], shown["actor"]) == (entry.name, entry.hash, entry.actor)


async def test_the_stream_resumes_after_any_event(store_url: str) -> None:
    """§7: Last-Event-ID, also in the middle of a commit and behind entries of others."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("outreach")
        await w.client("other").start("outreach")
        await w.complete(f"approval-{run.id}", {"approved": True})
        expected = await told(w, run.id)
        async with following(http) as stream:
            whole = await take(stream, len(expected))

        for n, event in enumerate(whole[:-1]):
            async with following(http, last=event["id"]) as stream:
                assert await take(stream, len(whole) - n - 1) == whole[n + 1 :]


async def test_what_happens_while_a_stream_is_open_is_heard_of(store_url: str) -> None:
    """§7: live; from now on if so asked."""
    async with world(app, store_url) as w:
        old = await w.start("typed", {"approved": True})
        async with following(w.http()) as stream:
            await take(stream, len(await told(w, old.id)))  # all of them are settled, wherever a store keeps them back
        async with following(w.http(), **{"from": "now"}) as stream:
            run = await w.start("outreach")
            begun = await told(w, run.id)
            assert seen(await take(stream, len(begun))) == begun
            await w.complete(f"approval-{run.id}", {"approved": True})
            rest = (await told(w, run.id))[len(begun) :]
            assert seen(await take(stream, len(rest))) == rest


async def test_a_quiet_stream_shows_that_it_lives_and_moves_the_reader_s_place(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment, with an id and without data: an EventSource remembers the id and tells nobody."""
    monkeypatch.setattr("bide.server.stream.HEARTBEAT_SECONDS", 0.02)
    async with world(app, store_url) as w:
        http = w.http()
        foreign = await w.client("other").start("typed", {"approved": True})
        await w.settle()
        async with following(w.http(workspace="other")) as stream:
            await take(stream, len(await w.client("other").ledger(foreign.id)))
        async with asyncio.timeout(PATIENCE), following(http) as stream:
            async for message in stream:
                assert message["comment"] == "still there"
                if message["id"] != "/0":
                    break
        run = await w.start("typed", {"approved": True})
        expected = await told(w, run.id)

        async with following(http, last=message["id"]) as stream:
            assert seen(await take(stream, len(expected))) == expected


async def test_nothing_that_comes_over_a_stream_names_a_run_of_another_workspace(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1, law 8: also where the reader's place is moved past what others wrote, and goes on from there."""
    monkeypatch.setattr("bide.server.stream.HEARTBEAT_SECONDS", 0.02)
    async with world(app, store_url) as w:
        other = w.client("other")
        foreign = await other.start("outreach")
        last = await moved_past(w, foreign.id, await other.ledger(foreign.id))
        mine, foreign = await w.start("typed", {"approved": True}), await other.start("outreach")
        expected = await told(w, mine.id)

        async with following(w.http(), last=last) as stream:
            events = await take(stream, len(expected))
        last = await moved_past(w, foreign.id, await other.ledger(foreign.id), events[-1]["id"])
        mine = await w.start("typed", {"approved": True})
        async with following(w.http(), last=last) as stream:
            rest = await take(stream, len(expected))

        assert seen(events) == expected
        assert seen(rest) == await told(w, mine.id)


async def moved_past(w: World, foreign: str, ledger: Sequence[Any], last: str | None = None) -> str:
    """The id that a quiet stream of `default` gives once a foreign run is settled; nothing on the way names that."""
    async with following(w.http(workspace="other")) as stream:
        while (foreign, ledger[-1].seq) not in seen(await take(stream, 1)):
            pass
    async with asyncio.timeout(PATIENCE), following(w.http(), last=last) as stream:
        async for message in stream:
            assert foreign not in str(message)
            assert "data" not in message
            if message["id"] not in ("/0", last):
                return str(message["id"])
    raise AssertionError("the stream ended")


async def test_a_reader_that_is_stuck_loses_its_place_and_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """§7, T42, T47: it is let go, and may come back; others are served meanwhile."""
    # Long enough that what is asked meanwhile is answered before, also where the machine stands still for a while.
    monkeypatch.setattr("bide.server.stream.SEND_SECONDS", 5.0)
    monkeypatch.setattr("bide.server.stream.STREAMS", 1)
    async with world(app) as w:
        http = w.http()
        run = await w.start("outreach")
        async with http.stream("GET", "/v1/stream") as stuck:
            assert code(await http.get("/v1/stream")) == (429, "too_many_requests")
            assert (await http.get(f"/v1/runs/{run.id}")).status_code == 200
            await asyncio.wait_for(stuck.stream._stream._task, PATIENCE)  # type: ignore[union-attr]  # of the world
        async with following(http) as stream:
            assert len(await take(stream, 2)) == 2


async def test_a_stream_ends_with_its_key(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G5, T29: revocation reaches those who are in already."""
    monkeypatch.setattr("bide.server.stream.HEARTBEAT_SECONDS", 0.02)
    async with world(app, store_url) as w:
        http = w.http()
        async with asyncio.timeout(PATIENCE), following(http) as stream:
            assert (await anext(stream))["comment"] == "still there"
            [key] = await w.runtime.store.keys("default")
            await w.runtime.store.revoke_key(key.id)
            async for message in stream:
                assert "data" not in message


async def test_a_stream_ends_when_the_server_stops() -> None:
    """D12: an open stream does not hold up a stop."""
    async with world(app) as w, asyncio.timeout(PATIENCE), following(w.http()) as stream:
        w.runtime.tail.close()
        assert not [message async for message in stream if "data" in message]


async def test_a_stream_ends_after_a_while_and_goes_on_where_it_ended(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D12, §7: so that none outlives a server that nobody tells to stop. Also where nothing was sent yet."""
    monkeypatch.setattr("bide.server.stream.LONGEST_SECONDS", 0.0)
    async with world(app, store_url) as w, asyncio.timeout(PATIENCE):
        http = w.http()
        run = await w.start("outreach")
        begun = await told(w, run.id)
        for query in ({}, {"run_id": run.id}):
            shown, last = list[tuple[str, int]](), None
            while len(shown) < len(begun):
                async with following(http, last=last, **query) as stream:
                    found = [message async for message in stream]
                last = found[-1]["id"]
                shown += seen([message for message in found if "data" in message])
            assert shown == begun

        async with following(http, **{"run_id": run.id, "from": "now"}) as stream:
            [quiet] = [message async for message in stream]
        assert "data" not in quiet
        await w.complete(f"approval-{run.id}", {"approved": True})
        rest = (await told(w, run.id))[len(begun) :]
        monkeypatch.undo()
        async with following(http, last=quiet["id"], run_id=run.id) as stream:
            assert seen(await take(stream, len(rest))) == rest


async def test_head_of_a_stream_is_answered_at_once() -> None:
    async with world(app) as w:
        response = await w.http().head("/v1/stream")

        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-type"].startswith("text/event-stream")
