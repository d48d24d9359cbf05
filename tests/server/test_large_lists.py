"""Lists of what is large: a page ends early, and its cursor leads to the rest (T46)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import pytest

import bide
from bide.client.paging import read_page
from bide.core.records import RunId
from bide.core.requests import KeepPoison
from bide.testing import world

LARGE, BUDGET = 20_000, 100_000  # characters of a payload, bytes of a page

app = bide.App("large", store="memory://")


@app.workflow("echo")
async def echo(step: bide.Step, event: Any) -> Any:
    return event


@app.workflow("task")
async def task(step: bide.Step, event: Any) -> Any:
    return await step.request("price", event, transport="interaction-api", returns=int, timeout="48h")


@app.workflow("shown")
async def shown(step: bide.Step, event: Any) -> Any:
    return await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="48h", description=event)


@app.workflow("busy")
async def busy(step: bide.Step, event: Any) -> Any:
    for n in range(12):
        await step.run(f"say {n}", echoed, event)
    return await step.receive("end", "end", timeout="48h")


def echoed(text: str) -> str:
    return text


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.client.paging.MOST_BYTES", BUDGET)


async def followed(http: httpx.AsyncClient, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """The pages of a list, one after the other. None is empty, and each is as small as it may be."""
    pages: list[list[dict[str, Any]]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        response = await http.get(path, params={**query, **({"cursor": cursor} if cursor else {})})
        assert response.status_code == 200, response.text
        assert len(response.content) < 2 * BUDGET
        pages.append(response.json()["items"])
        cursor = response.json()["next_cursor"]
        assert pages[-1] or cursor is None
    return [page for page in pages if page]


@pytest.mark.parametrize("definition", ["echo", "task", "shown"])
async def test_T46_a_page_of_large_runs_waits_and_interactions_ends_early(store_url: str, definition: str) -> None:
    """§7: over HTTP and in the process alike; nothing is left out and nothing comes twice."""
    path = {"echo": "/v1/runs", "task": "/v1/interactions", "shown": "/v1/waits"}[definition]
    async with world(app, store_url) as w:
        runs = [(await w.start(definition, "x" * LARGE)).id for _ in range(9)]
        [*pages] = await followed(w.http(), path, limit=100)
        listed: Any = {"echo": w.runs, "task": w.interactions, "shown": w.waits}[definition]
        page = await listed(limit=100)
        found = list(page)
        while page.next_cursor is not None:
            page = await listed(limit=100, cursor=page.next_cursor)
            found += page

        assert [each.get("run_id") or each["id"] for page in pages for each in page] == sorted(runs)
        assert len(pages) > 1
        assert [msgspec.to_builtins(each)["id"] for each in found] == [each["id"] for page in pages for each in page]


async def test_T46_a_page_of_large_unused_arrivals_and_dead_letters_ends_early(store_url: str) -> None:
    """S12, §7."""
    async with world(app, store_url) as w:
        for n in range(9):
            await w.signal(f"nobody:{n}", "paid", "x" * LARGE, check=False)
            poison = KeepPoison(
                workspace="default", actor="kafka", run_id=RunId(""), id=f"kafka:{n}", text="x" * LARGE, reason="no"
            )
            await w.runtime.committer.submit(poison)

        for path in ("/v1/unused", "/v1/dead-letters"):
            pages = await followed(w.http(), path, limit=100)
            ids = [each["id"] for page in pages for each in page]
            assert (len(ids), len(set(ids))) == (9, 9), path
            assert len(pages) > 1, path


async def test_T46_a_row_that_is_larger_than_a_page_is_a_page(store_url: str) -> None:
    async with world(app, store_url) as w:
        for n in range(3):
            await w.start("echo", "x" * BUDGET if n == 1 else n)
        page = await w.runs()
        pages = [list(page)]
        while page.next_cursor is not None:
            page = await w.runs(cursor=page.next_cursor)
            pages.append(list(page))

        assert sorted(len(str(run.input)) for page in pages for run in page) == [1, 1, BUDGET]
        assert [len(page) for page in pages if "x" * BUDGET in [run.input for run in page]] == [1]


@pytest.mark.parametrize("part", ["ledger", "steps", "inbox"])
async def test_T46_what_a_run_has_comes_page_by_page_where_it_is_large(store_url: str, part: str) -> None:
    """§7: clients put it together again."""
    async with world(app, store_url) as w:
        http = w.http()
        run = await w.start("busy", "x" * LARGE)
        for n in range(12):
            await w.signal(run.id, "note", f"{n}" * LARGE)
        path, here = f"/v1/runs/{run.id}/{part}", await getattr(w, part)(run.id)
        async with bide.Client(str(http.base_url), http=http) as remote:
            assert await getattr(remote, part)(run.id) == here
        for limit, at_least in ((None, 2), (1000, 2), (5, 3), (1, 12)):
            pages = await followed(http, path, **({"limit": limit} if limit is not None else {}))
            assert [each["id" if part != "ledger" else "hash"] for page in pages for each in page] == [
                each.hash if part == "ledger" else each.id for each in here
            ]
            assert len(pages) >= at_least
            assert max(map(len, pages)) <= (limit or 1000)
        assert (await http.get(path, params={"cursor": "x"})).json()["code"] == "bad_cursor"
        assert (await http.get(path, params={"limit": 0})).status_code == 422
        assert (await http.get(path, params={"cursor": "9" * 18})).json() == {"items": [], "next_cursor": None}


async def test_no_more_rows_are_read_at_once_than_may_be_needed() -> None:
    """T46: rows that a page has no room for cost memory, too."""
    rows, asked = ["x" * size for size in (*[10] * 30, *[BUDGET // 4] * 40)], list[int]()

    async def read(after: int | None, limit: int) -> Sequence[tuple[Row]]:
        asked.append(limit)
        first = 0 if after is None else after + 1
        return [(Row(n, text),) for n, text in list(enumerate(rows))[first : first + limit]]

    page, last = await read_page(read, None, 1000, lambda found: found[0].no)

    assert [row.no for (row,) in page] == list(range(33))
    assert last == page[-1]
    assert max(asked) <= 50
    asked.clear()
    page, last = await read_page(read, 29, 1000, lambda found: found[0].no)
    assert ([row.no for (row,) in page], asked) == ([30, 31, 32, 33], [10])
    page, last = await read_page(read, 68, 1000, lambda found: found[0].no)
    assert ([row.no for (row,) in page], last) == ([69], None)


class Row(msgspec.Struct, frozen=True):
    no: int
    text: str
