"""What the API says of itself: its description, whether it is well, and its figures."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import HTMLResponse, PlainTextResponse

from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from bide.server.calls import Answer, Call, Endpoint, unreached
from bide.server.metrics import MEDIA_TYPE, exposition

log = logging.getLogger("bide.server")

READY_SECONDS = 5.0
ENDED = "the engine of this process has ended"
PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    detail: str = ""


async def healthz(opened: Callable[[], Awaitable[Runtime]]) -> Answer:
    """This process answers, whatever its store does."""
    return Answer(Health(status="ok"))


async def readyz(opened: Callable[[], Awaitable[Runtime]]) -> Answer:
    """The store answers and takes writes, and the engine that was started here works: a request that came now could be
    served.

    Anybody may ask, so it is not said which store that is, nor what is wrong with it; the log has that.
    """
    missing = "the store does not answer"
    try:
        async with asyncio.timeout(READY_SECONDS):
            runtime = await opened()
            store = runtime.store
            await store.key("")
            missing = "the store takes no writes"
            await store.touch_key("")  # nobody's: only whether it could be
    except Exception as error:
        log.warning("not ready: %s", missing, exc_info=error)
        return Answer(Health(status="unavailable", detail=missing), 503)
    engine = getattr(runtime.committer.offer, "__self__", None)  # whoever takes what this process commits
    if isinstance(engine, Engine) and engine.has_ended:
        log.warning("not ready: %s", ENDED)
        return Answer(Health(status="unavailable", detail=ENDED), 503)
    return Answer(Health(status="ok"))


async def metrics(call: Call) -> Any:
    return PlainTextResponse(await exposition(call.runtime), media_type=MEDIA_TYPE)


async def openapi(call: Call) -> dict[str, Any]:
    return described()


def described() -> dict[str, Any]:
    from bide import __version__
    from bide.server import ENDPOINTS as ALL
    from bide.server.openapi import document

    return document(ALL, __version__)


async def docs(call: Call) -> Any:
    """A plain page of the API, made of the same description; it needs no script and loads nothing."""
    rows = []
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            answers = " · ".join(sorted(operation["responses"]))
            said = f"{operation['summary']}. {operation.get('description', '')}".strip()
            shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(said))
            cells = (f"<code>{method.upper()} {html.escape(path)}</code>", shown, answers)
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return HTMLResponse(_DOCS.replace("ROWS", "\n".join(rows)), headers=PAGE_HEADERS)


_DOCS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>bide: HTTP API</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1.5rem; color: #1b1f24; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .4rem .6rem; vertical-align: top;
border-bottom: 1px solid #d8dee4; } code { white-space: nowrap; }
@media (max-width: 45rem) { thead { display: none; } table, tbody, tr, td { display: block; border: 0; }
tr { border-bottom: 1px solid #d8dee4; padding: .6rem 0; } code { white-space: normal; overflow-wrap: anywhere; } }
</style></head><body>
<h1>HTTP API</h1>
<p>Send a key of your workspace as <code>Authorization: Bearer bide_ws_…</code>. The same for machines:
<a href="openapi.json">openapi.json</a>.</p>
<table><thead><tr><th scope="col">call</th><th scope="col">does</th><th scope="col">answers</th></tr></thead>
<tbody>
ROWS
</tbody></table></body></html>
"""


ENDPOINTS = (
    Endpoint("GET", "/healthz", unreached, None, "Whether this process answers", is_public=True, is_probe=True,
             probe=healthz, answers={200: Health}),
    Endpoint("GET", "/readyz", unreached, None, "Whether the store answers and the engine works", is_public=True,
             is_probe=True, probe=readyz, answers={200: Health, 503: Health}),
    Endpoint("GET", "/metrics", metrics, "admin", "Figures for Prometheus", is_probe=True,
             answers={200: str}, media_type="text/plain"),
    Endpoint("GET", "/openapi.json", openapi, None, "This description", is_public=True),
    Endpoint("GET", "/docs", docs, None, "This description, for people", is_public=True),
)  # fmt: skip
