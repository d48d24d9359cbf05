"""The API inside somebody else's application: FastAPI and Starlette, with our lifespan as theirs."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import bide
from bide.cli.access import make_key
from bide.core.access import SCOPES

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]
Outer = Callable[[bide.App, Lifespan], Any]

SITE = "https://shop.example"
PATIENCE_SECONDS = 60.0


def in_fastapi(app: bide.App, lifespan: Lifespan) -> Any:
    api = FastAPI(lifespan=lifespan)

    @api.post("/orders")
    async def order() -> dict[str, str]:
        return {"run": (await app.client().start("verify", "ann")).id}

    api.mount("/flows/bide", app.asgi())
    return api


def in_starlette(app: bide.App, lifespan: Lifespan) -> Any:
    async def order(_: Request) -> JSONResponse:
        return JSONResponse({"run": (await app.client().start("verify", "ann")).id})

    routes = [Route("/orders", order, methods=["POST"]), Mount("/flows", routes=[Mount("/bide", app=app.asgi())])]
    return Starlette(routes=routes, lifespan=lifespan)


BOTH = pytest.mark.parametrize("outer", [in_fastapi, in_starlette])


def shop(folder: Path, links: asyncio.Queue[str]) -> bide.App:
    app = bide.App("shop", store=f"sqlite:///{folder}/shop.db", public_url=f"{SITE}/flows/bide")

    @app.workflow("verify")
    async def verify(step: bide.Step, user: str) -> Any:
        cb = await step.callback("kyc", timeout="7d", returns=bool)
        await step.run("begin", links.put, cb.url)
        return await cb

    return app


@asynccontextmanager
async def served(application: Any) -> AsyncIterator[httpx.AsyncClient]:
    """As a server does it: lifespan first, then requests, then lifespan again."""
    inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outbox: asyncio.Queue[Any] = asyncio.Queue()
    await inbox.put({"type": "lifespan.startup"})
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    living = asyncio.create_task(application(scope, inbox.get, outbox.put))
    assert (await outbox.get())["type"] == "lifespan.startup.complete"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url=SITE) as http:
        yield http
    await inbox.put({"type": "lifespan.shutdown"})
    assert (await outbox.get())["type"] == "lifespan.shutdown.complete"
    await living


@BOTH
async def test_W4_a_mounted_api_answers_below_its_path_and_its_links_lead_there(outer: Outer, tmp_path: Path) -> None:
    """H4, W4: `public_url` has the mount path, so a link that left the process comes back to the mounted API."""
    links: asyncio.Queue[str] = asyncio.Queue()
    app = shop(tmp_path, links)
    async with served(outer(app, app.lifespan)) as http:
        key, _ = await make_key(await app.runtime(), "default", tuple(SCOPES), name="test", expires=None)
        http.headers["Authorization"] = f"Bearer {key}"
        run_id = (await http.post("/orders")).json()["run"]
        link = await links.get()

        page = await http.get(link)
        answered = await http.post(link, json=True)
        result = await http.get(f"/flows/bide/v1/runs/{run_id}/result", params={"wait": "30s"})

        assert urlsplit(link).path.startswith("/flows/bide/resume/")
        assert (page.status_code, answered.status_code) == (200, 200)
        assert result.json()["result"] is True
        for path in ("healthz", "readyz", "openapi.json", "docs"):
            assert (await http.get(f"/flows/bide/{path}")).status_code == 200
        for path in ("/healthz", "/v1/runs", urlsplit(link).path.removeprefix("/flows/bide")):
            assert (await http.get(path)).status_code == 404  # not ours: the outer application's


@BOTH
async def test_the_outer_lifespan_stops_the_engine_and_brings_it_up_again(outer: Outer, tmp_path: Path) -> None:
    """H4, law 9: a link of before the restart works after it, with an engine that the outer lifespan brought up."""
    links: asyncio.Queue[str] = asyncio.Queue()
    app = shop(tmp_path, links)
    async with served(outer(app, app.lifespan)) as http:
        run_id = (await http.post("/orders")).json()["run"]
        link = await links.get()

    async with served(outer(app, app.lifespan)) as http:
        assert (await http.post(link, json=True)).status_code == 200
        assert await app.client().result(run_id, timeout="2m") is True


@BOTH
async def test_our_lifespan_is_combined_with_theirs(outer: Outer, tmp_path: Path) -> None:
    """H4: what they open is there before the engine, and until after it."""
    links: asyncio.Queue[str] = asyncio.Queue()
    app = shop(tmp_path, links)
    told: list[str] = []

    @asynccontextmanager
    async def theirs(outer_app: Any) -> AsyncIterator[None]:
        told.append("open")
        async with app.lifespan(outer_app):
            yield
        told.append("closed")

    async with served(outer(app, theirs)) as http:
        assert (await http.post("/orders")).status_code == 200
        await links.get()
        assert told == ["open"]
    assert told == ["open", "closed"]


SERVED = """
import bide
from starlette.applications import Starlette
from starlette.routing import Mount

app = bide.App("shop", store="sqlite:///shop.db")


@app.workflow("echo")
async def echo(step: bide.Step, said: object) -> object:
    return said


alone = app.asgi()
mounted = Starlette(routes=[Mount("/flows", app=app.asgi())], lifespan=app.lifespan)
"""


@pytest.mark.parametrize(("name", "path"), [("alone", ""), ("mounted", "/flows")])
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_reader_of_a_stream_does_not_hold_up_the_stop_of_another_s_server(
    tmp_path: Path, name: str, path: str, stop: signal.Signals
) -> None:
    """H4, D12: a server tells an application that it stops once every connection has ended, so nobody tells us."""
    (tmp_path / "shop.py").write_text(SERVED)
    app = bide.App("shop", store=f"sqlite:///{tmp_path}/shop.db")
    key, _ = await make_key(await app.runtime(), "default", tuple(SCOPES), name="test", expires=None)
    await app.close()
    command = [sys.executable, "-m", "uvicorn", f"shop:{name}", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            url = await listening_at(process) + path
            http.headers["Authorization"] = f"Bearer {key}"
            await http.post(f"{url}/v1/runs", json={"definition": "echo"})
            async with http.stream("GET", f"{url}/v1/stream") as response:
                lines = response.aiter_lines()
                assert (await anext(lines)).startswith("id: ")
                process.send_signal(stop)
                rest = [line async for line in lines]  # to its proper end: a reader that is cut off raises
            assert "event: run_started" in rest
            assert process.stderr is not None
            said = (await process.stderr.read()).decode()
            assert await process.wait() in (0, -stop)  # as this version of the server ends when it was asked to
            assert "Traceback" not in said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def listening_at(process: asyncio.subprocess.Process) -> str:
    """Where a server listens, as it says once it takes connections."""
    assert process.stderr is not None
    async for line in process.stderr:
        found = re.search(rb"running on (http://\S+)", line)
        if found is not None:
            return found[1].decode()
    raise AssertionError("the server did not start")
