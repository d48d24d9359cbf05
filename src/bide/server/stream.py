"""Ledgers as Server-Sent Events: what happened so far, then what happens; of one run until it ends, or of all runs.

The id of an event says where it stands, and `Last-Event-ID` goes on after it. Nothing is missed and nothing comes
twice: entries of a run are numbered without gaps, and the store gives the pages of all runs one order in which nothing
comes in later (`Store.stream`). Each connection reads at its own pace, a page at a time: a slow one holds a place, and
no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bide.core.records import FINAL
from bide.server.bodies import header, until_gone
from bide.server.calls import Call, Endpoint
from bide.server.places import STREAMS, place
from bide.server.problems import Refusal
from bide.server.stopping import is_stopping
from bide.stores.interface import Streamed
from bide.views import ledger_entries

log = logging.getLogger("bide.server")

HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
TYPE: Final = "text/event-stream"
HEARTBEAT_SECONDS = 5.0  # how often a quiet stream says so, and whether the key is still good is looked at (T29)
SEND_SECONDS = 30.0  # how long a reader may leave what was sent untouched
LONGEST_SECONDS = 300.0  # that a stream lasts: a server that cannot tell us that it stops waits for it
LOOK_SECONDS = 0.5  # between two looks whether the server stops
PAUSE_SECONDS = 0.05  # between two looks at a stream that grows: each look has its price
PAGES_AT_ONCE = 100
QUIET = b": still there\n"


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Whose entries: of one run, or of all. Without `Last-Event-ID` they come from the start, or from now on."""

    run_id: str | None = None
    from_: Literal["start", "now"] = "start"


async def stream(call: Call) -> Any:
    asked = call.ask(StreamQuery)
    last = header(call.scope, b"last-event-id")
    if asked.run_id is not None:
        row = await call.client._find(asked.run_id)
        after = _seq_after(last, asked.run_id)
        if last is None and asked.from_ == "now":
            after = row.ledger_seq
        events = _of_run(call, pulse := _Pulse(call), asked.run_id, after)
    else:
        events = _of_all(call, pulse := _Pulse(call), *await _place_after(call, last, asked.from_))
    if call.scope["method"] == "HEAD":
        await events.aclose()
        return Response(b"", 200, HEADERS, TYPE)
    return EventStream(call, pulse, events)


def _seq_after(last: str | None, run_id: str) -> int:
    if last is None:
        return 0
    run, _, seq = last.rpartition("/")
    return _number(seq) if run == run_id else _number("")


async def _place_after(call: Call, last: str | None, start: str) -> tuple[str, int]:
    """The place to go on from, and the last entry of its page that was seen."""
    if last is None:
        return (await call.runtime.store.stream_end() if start == "now" else ""), 0
    at, separator, seq = last.rpartition("/")
    if not separator:
        raise _bad_cursor()
    try:
        await call.runtime.store.stream(call.key.workspace, at, limit=1)
    except ValueError:
        raise _bad_cursor() from None
    return at, _number(seq)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise _bad_cursor()
    return int(text)


def _bad_cursor() -> Refusal:
    return Refusal(400, "bad_cursor", "Last-Event-ID is not one of this stream")


Events = AsyncGenerator[bytes, None]


async def _of_run(call: Call, pulse: _Pulse, run_id: str, after: int) -> Events:
    runtime = call.runtime
    while True:
        pulse.look()
        row = await runtime.store.run(call.key.workspace, run_id)
        pages = await runtime.store.ledger(run_id) if row is not None and row.ledger_seq > after else ()
        for entry in ledger_entries(pages):
            if entry.seq > after:
                after = entry.seq
                yield _event(f"{run_id}/{entry.seq}", {"run_id": run_id, **msgspec.structs.asdict(entry)})
                pulse.spoke()
        if row is None or (row.status in FINAL and row.ledger_seq <= after):
            return
        if await pulse.is_due():
            yield _quiet(f"{run_id}/{after}")
            pulse.spoke()


async def _of_all(call: Call, pulse: _Pulse, at: str, seq: int) -> Events:
    store = call.runtime.store
    while True:
        pulse.look()
        found = await store.stream(call.key.workspace, at, limit=PAGES_AT_ONCE)
        for streamed in found:
            seq = seq if streamed.place == at else 0
            at = streamed.place
            for entry in _entries(streamed, seq):
                seq = entry["seq"]
                yield _event(f"{at}/{seq}", entry)
                pulse.spoke()
        if len(found) == PAGES_AT_ONCE:
            continue
        await asyncio.sleep(PAUSE_SECONDS)
        if await pulse.is_due():
            yield _quiet(f"{at}/{seq}")
            pulse.spoke()


def _quiet(id: str) -> bytes:
    """An id without data moves the reader's place: it need not pass over others' entries again, and whoever asked for
    what happens from now on misses nothing."""
    return QUIET + b"id: %s\n\n" % id.encode()


class _Pulse:
    """Waits for news, and says when a stream has been quiet for long, and when it has to end."""

    def __init__(self, call: Call) -> None:
        self._tail = call.runtime.tail
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + LONGEST_SECONDS
        self._length = 0
        self.spoke()

    @property
    def is_over(self) -> bool:
        return self._tail.is_closed or self._clock() >= self._ends_at or is_stopping()

    def spoke(self) -> None:
        self._spoke_at = self._clock()

    def look(self) -> None:
        """From here on, what is written is news."""
        self._length = self._tail.length

    async def is_due(self) -> bool:
        """Wait until there may be news or it is time for a sign of life; whether it is. The last one is that."""
        while not self.is_over:
            left = self._spoke_at + HEARTBEAT_SECONDS - self._clock()
            if left <= 0:
                return True
            if await self._tail.beyond(self._length, min(left, LOOK_SECONDS)):
                return False
        return True


def _entries(streamed: Streamed, after: int) -> list[dict[str, Any]]:
    """Without `prev`: that is the hash of the run's entry before, which may be far back in the stream."""
    if streamed.page is None:
        return []
    run_id, entries = streamed.page.run_id, ledger_entries([streamed.page])
    shown = [{"run_id": run_id, **msgspec.structs.asdict(entry)} for entry in entries if entry.seq > after]
    return [{name: value for name, value in entry.items() if name != "prev"} for entry in shown]


def _event(id: str, entry: dict[str, Any]) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), entry["name"].encode(), msgspec.json.encode(entry))


class EventStream:
    """Sends events as they come, until there are no more, the reader has gone or is stuck, or its key is not good."""

    def __init__(self, call: Call, pulse: _Pulse, events: Events) -> None:
        self._call = call
        self._pulse = pulse
        self._events = events
        self._place = ExitStack()
        self._place.enter_context(place(call, "stream", STREAMS))  # refused before anything is sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            sending, gone = asyncio.create_task(self._send(send)), asyncio.create_task(until_gone(receive))
            try:
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                gone.cancel()
                await asyncio.wait({sending, gone})
            error = sending.exception() if not sending.cancelled() else None
            if error is not None:  # whoever comes back goes on after the last event that they saw
                log.info("a stream ended early", exc_info=error)

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", f"{TYPE}; charset=utf-8".encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        tail, now = self._call.runtime.tail, asyncio.get_running_loop().time
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        looked_at = now()
        async with tail.followed(), aclosing(self._events):
            async for event in self._events:
                if now() - looked_at >= HEARTBEAT_SECONDS:
                    if not await self._is_welcome():
                        break
                    looked_at = now()
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                if self._pulse.is_over:
                    break
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _is_welcome(self) -> bool:
        found = await self._call.runtime.store.key(self._call.key.hash)
        return found is not None and found[0].is_good(found[1])


async def has_run(call: Call) -> None:
    run_id = call.query.get("run_id")
    if run_id is not None:
        await call.client._find(run_id)


ENDPOINTS = (
    Endpoint("GET", "/v1/stream", stream, "runs:read", "Ledgers as they grow, as Server-Sent Events",
             query=StreamQuery, answers={200: str}, media_type=TYPE, found=has_run, refusals=(404,)),
)  # fmt: skip
