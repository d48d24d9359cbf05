"""The ledger of a run as Server-Sent Events: what happened so far, then what happens, until the run has ended.

The id of an event is the run and the number of its entry; `Last-Event-ID` goes on after it. Nothing is missed and
nothing comes twice, because entries of a run are numbered without gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from bide.core.records import FINAL, RunId
from bide.server.bodies import header
from bide.server.calls import Call, Endpoint
from bide.server.problems import Refusal
from bide.views import LedgerEntry, ledger_entries

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
KEEP_ALIVE = b": still there\n\n"


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose entries."""

    run_id: str


async def stream(call: Call) -> Any:
    run_id = call.ask(StreamQuery).run_id
    await call.client._find(run_id)
    after = _after(header(call.scope, b"last-event-id"), run_id)
    return StreamingResponse(_events(call, run_id, after), 200, HEADERS, "text/event-stream")


def _after(last: str | None, run_id: str) -> int:
    if last is None:
        return 0
    run, _, seq = last.rpartition("/")
    if run != run_id or not (seq.isascii() and seq.isdigit()) or len(seq) > 9:
        raise Refusal(400, "bad_cursor", "Last-Event-ID is not one of this stream")
    return int(seq)


async def _events(call: Call, run_id: str, after: int) -> AsyncIterator[bytes]:
    runtime = call.runtime
    pause = runtime.settings.poll_interval.total_seconds()
    while True:
        row = await runtime.store.run(call.key.workspace, run_id)
        entries = ledger_entries(await runtime.store.ledger(run_id)) if row is not None else []
        news = [entry for entry in entries if entry.seq > after]
        for entry in news:
            after = entry.seq
            yield _event(run_id, entry)
        if row is None or (row.status in FINAL and row.ledger_seq <= after):
            return
        if not news:
            yield KEEP_ALIVE
        # A commit of this process that ends the run is heard of at once; the rest is looked for (D7).
        await runtime.end_of(RunId(run_id), pause)
        await asyncio.sleep(0)


def _event(run_id: str, entry: LedgerEntry) -> bytes:
    body = msgspec.json.encode({"run_id": run_id, **msgspec.structs.asdict(entry)})
    return b"id: %s/%d\nevent: %s\ndata: %s\n\n" % (run_id.encode(), entry.seq, entry.name.encode(), body)


async def has_run(call: Call) -> None:
    run_id = call.query.get("run_id")
    if run_id is not None:
        await call.client._find(run_id)


ENDPOINTS = (Endpoint("GET", "/v1/stream", stream, "runs:read", "The ledger of a run as it grows", found=has_run),)
