"""The client over HTTP: the methods of `Client`, with a key, against a server's URL.

What it sends twice is done once: each change carries an idempotency key of its own, so a call whose answer was lost is
simply made again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from bide import errors
from bide.authoring.context import Received
from bide.authoring.machine import definition_name
from bide.authoring.signals import Signal, signal_name
from bide.client.door import PAGE, duration
from bide.client.handle import Run
from bide.client.operating import UNCHANGED
from bide.client.progress import Progress
from bide.core.commands import EventReceipt, Receipt
from bide.core.durations import Duration, format_duration
from bide.core.payloads import encode_payload
from bide.core.records import FINAL, RunId, RunStatus, run_of_wait
from bide.core.records import Run as RunRow
from bide.engine import tracing
from bide.engine.ports import Ports
from bide.errors import BadConfiguration, BideError, RunTimeoutError, Unavailable
from bide.views import (
    DeadLetterInfo,
    Explanation,
    InteractionInfo,
    LedgerEntry,
    Page,
    RunInfo,
    SignalTo,
    StepInfo,
    UnusedInfo,
    WaitInfo,
    WaitsChanged,
    result_of,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
ONE_POLL = 30.0
AGAIN = frozenset({408, 429, 502, 503, 504})
NO_LIMIT = 2**31


class Server(Unavailable):
    """The server could not be reached, or did not answer as one of bide's does."""


class RemoteClient:
    """What `bide.Client(url, key=…)` gives: runs of the key's workspace, over HTTP.

    Use it as `async with`, or `await client.aclose()` it, to close its connections.
    """

    def __init__(
        self, url: str, key: str = "", *, timeout: float = 30.0, http: httpx.AsyncClient | None = None
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise BadConfiguration("a client over HTTP needs httpx: pip install 'bide[http]'") from error
        if not url.startswith(("http://", "https://")):
            raise BadConfiguration(f"{url!r} is no URL of a server; write it as https://bide.example")
        self.url = url.rstrip("/")
        self._ports = Ports()
        self._told_at: datetime | None = None
        self._errors: tuple[type[Exception], ...] = (httpx.TransportError,)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = http or httpx.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False)

    async def __aenter__(self) -> RemoteClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    # ------------------------------------------------------------ talking

    async def _call(
        self,
        method: str,
        path: str,
        type_: Any,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The answer as *type_*. Raises the error that the server names."""
        headers, content = tracing.current_headers(), None
        if body is not None:
            sent = {name: value for name, value in body.items() if value is not UNCHANGED}
            content = encode_payload(sent, max_bytes=NO_LIMIT)
            headers["Content-Type"] = "application/json"
        if method == "POST":
            headers["Idempotency-Key"] = str(self._ports.uuid())
        asked = {name: value for name, value in (query or {}).items() if value is not None and value is not UNCHANGED}
        options: dict[str, Any] = {"params": asked, "headers": headers, "content": content}
        if timeout is not None:
            options["timeout"] = timeout
        pause = FIRST_PAUSE
        for tries in itertools.count(1):
            try:
                response = await self._http.request(method, f"{self.url}{path}", **options)
            except self._errors as error:
                if tries == TRIES:
                    raise Server(f"{self.url} does not answer: {type(error).__name__}") from error
            else:
                self._told_at = _date(response.headers.get("date")) or self._told_at
                if response.status_code < 300:
                    return msgspec.json.decode(response.content, type=type_) if type_ is not None else response
                if response.status_code not in AGAIN or tries == TRIES:
                    raise error_of(response.status_code, response.content)
                pause = max(pause, float(response.headers.get("retry-after") or 0))
            await asyncio.sleep(min(pause, LONGEST_PAUSE) * (0.5 + self._ports.random()))
            pause *= 2
        raise AssertionError("the last try answers or raises")

    # ------------------------------------------------------------ starting

    async def start(self, definition: Any, input: Any = None, **options: Any) -> Run[Any]:
        """Start a run, as `Client.start` does, but for `connection=`."""
        if options.pop("connection", None) is not None:
            raise errors.ForeignConnectionError("a client over HTTP joins no transaction; use app.client()")
        body = {"definition": definition_name(definition), "input": input, **options}
        body = {name: value for name, value in body.items() if value is not None or name == "input"}
        if isinstance(body.get("delay"), timedelta):
            body["delay"] = format_duration(body["delay"])
        started = await self._call("POST", "/v1/runs", _Started, body)
        returns = getattr(definition, "returns", Any)
        try:
            return Run(self, await self._find(started.id), returns)
        except errors.Forbidden:  # a key that may start runs need not be one that may look at them
            return Run(self, _begun(started, input, options.get("tags")), returns)

    async def start_or_signal(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str,
        name: str | Signal[Any],
        payload: Any = None,
        dedup_key: str | None = None,
        check: bool = True,
        **options: Any,
    ) -> Receipt:
        given = {option: value for option, value in options.items() if value is not None}
        if isinstance(given.get("delay"), timedelta):
            given["delay"] = format_duration(given["delay"])
        start = {"definition": definition_name(definition), "input": input, **given}
        body = {"name": signal_name(name), "payload": payload, "dedup_key": dedup_key, "start": start}
        return await self._deliver("/v1/signals", {**body, "correlation_key": correlation_key}, check)

    # ------------------------------------------------------------ signals and answers

    async def signal(
        self,
        target: str,
        signal: str | Signal[Any],
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
    ) -> Receipt:
        body: dict[str, Any] = {"name": signal_name(signal), "payload": payload, "dedup_key": dedup_key}
        path = f"/v1/runs/{quote(target, safe='')}/signals"
        if not target.startswith("run_"):
            path, body = "/v1/signals", {**body, "correlation_key": target}
        return await self._deliver(path, body, check)

    async def signal_many(self, signals: Iterable[SignalTo], *, check: bool = True) -> list[Receipt]:
        """Deliver all of these in one commit, or none. Over HTTP a refusal is always raised: it is one for all."""
        many = [
            {"target": one.target, "name": signal_name(one.signal), "payload": one.payload, "dedup_key": one.dedup_key}
            for one in signals
        ]
        found = await self._call("POST", "/v1/signals/many", _Receipts, {"signals": many})
        return list(found.receipts)

    async def complete(
        self,
        signal_id: str,
        data: Any = None,
        *,
        run_id: str | None = None,
        by: str | None = None,
        dedup_key: str | None = None,
        hold: Duration | None = None,
        check: bool = True,
        **more: Any,
    ) -> Receipt:
        """Answer the one wait that holds a signal id, or with *hold* the first one that will."""
        held = format_duration(hold) if isinstance(hold, timedelta) else hold
        body = {"data": data, "run_id": run_id, "by": by, "dedup_key": dedup_key, "hold": held, **more}
        body = {name: value for name, value in body.items() if value is not None or name == "data"}
        return await self._deliver(f"/v1/signals/{quote(signal_id, safe='')}/complete", body, check)

    async def answer(
        self,
        target: str,
        data: Any = None,
        by: str | None = None,
        dedup_key: str | None = None,
        *,
        shown: str | None = None,
        check: bool = True,
    ) -> Receipt:
        """Answer an interaction, a wait or a signal id."""
        body = {"data": data, "by": by, "dedup_key": dedup_key, "shown": shown}
        if target.startswith("int_"):
            return await self._deliver(_interaction(target, "/complete"), body, check)
        if target.startswith("wait_"):
            return await self._deliver(_wait(target, "/complete"), body, check)
        return await self.complete(target, data, by=by, dedup_key=dedup_key, check=check)

    async def _deliver(self, path: str, body: Mapping[str, Any], check: bool) -> Receipt:
        try:
            receipt: Receipt = await self._call("POST", path, Receipt, body)
        except BideError as error:
            outcome = REFUSALS.get(error.status)
            if check or outcome is None:
                raise
            return Receipt(outcome=outcome, reason=error.code)
        return receipt

    async def emit(
        self, name: str, data: Any = None, *, id: str | None = None, channel: str = "api", check: bool = True
    ) -> EventReceipt:
        body = {"name": name, "data": data, "id": id, "channel": channel}
        receipt: EventReceipt = await self._call("POST", "/v1/events", EventReceipt, body)
        return receipt

    # ------------------------------------------------------------ ending

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False) -> None:
        await self._call("POST", _run(run_id, "/cancel"), _Named, {"reason": reason, "force": force})

    async def retry(self, run_id: str, *, from_step: str | None = None) -> Run[Any]:
        body = {"from_step": from_step} if from_step is not None else {}
        going_on = await self._call("POST", _run(run_id, "/retry"), _Named, body)
        return Run(self, await self._find(going_on.id))

    async def result(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        return result_of(await self._end(run_id, timeout, look_first=True))

    async def _end(self, run_id: str, timeout: Duration | None, *, look_first: bool) -> RunRow:
        limit = duration(timeout, "timeout")
        now = self._ports.monotonic
        until = None if limit is None else now() + limit.total_seconds()
        while True:
            left = ONE_POLL if until is None else max(0.0, min(ONE_POLL, until - now()))
            query = {"wait": f"{max(1, int(left * 1000))}ms"}
            ended = await self._call("GET", _run(run_id, "/result"), _Ended, query=query, timeout=left + ONE_POLL)
            if ended.status in FINAL:
                return await self._find(run_id)
            if until is not None and now() >= until:
                raise RunTimeoutError(run_id, ended.status)
            await asyncio.sleep(FIRST_PAUSE if left else 0)

    # ------------------------------------------------------------ looking

    async def _find(self, run_id: str) -> RunRow:
        return _row(await self.get(run_id))

    async def get(self, run_id: str) -> RunInfo:
        info: RunInfo = await self._call("GET", _run(run_id), RunInfo)
        return info

    async def runs(
        self,
        *,
        status: str | None = None,
        definition: Any = None,
        held: bool = False,
        correlation_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[RunInfo]:
        if len(tags or {}) > 1:
            raise errors.BadInput("over HTTP runs are found by one tag at a time")
        tag = next((f"{name}={value}" for name, value in (tags or {}).items()), None)
        query = {
            "status": status,
            "definition": definition_name(definition) if definition is not None else None,
            "held": "true" if held else None,
            "correlation_key": correlation_key,
            "tag": tag,
        }
        return await self._page("/v1/runs", RunInfo, query, cursor, limit)

    async def waits(
        self,
        *,
        run_id: str | None = None,
        older_than: Duration | None = None,
        status: str | None = "waiting",
        definition: Any = None,
        cursor: str | None = None,
        limit: int = PAGE,
        **where: Any,
    ) -> Page[WaitInfo]:
        age = duration(older_than, "older_than")
        query = {"run_id": run_id, "status": status or "all", "older_than": age and format_duration(age), **where}
        query["definition"] = definition_name(definition) if definition is not None else None
        return await self._page("/v1/waits", WaitInfo, query, cursor, limit)

    async def wait(self, id: str) -> WaitInfo:
        found: WaitInfo = await self._call("GET", _wait(id), WaitInfo)
        return found

    async def interactions(
        self,
        *,
        status: str | None = UNCHANGED,
        cursor: str | None = None,
        limit: int = PAGE,
        **where: Any,
    ) -> Page[InteractionInfo]:
        asked = None if status is UNCHANGED else "all" if status is None else status
        return await self._page("/v1/interactions", InteractionInfo, {**where, "status": asked}, cursor, limit)

    async def interaction(self, id: str) -> InteractionInfo:
        found: InteractionInfo = await self._call("GET", _interaction(id), InteractionInfo)
        return found

    async def _page(self, path: str, type_: Any, query: Mapping[str, Any], cursor: str | None, limit: int) -> Page[Any]:
        found = await self._call("GET", path, _Items, query={**query, "cursor": cursor, "limit": limit})
        return Page([msgspec.json.decode(item, type=type_) for item in found.items], found.next_cursor)

    async def inbox(self, run_id: str) -> list[Received]:
        found = await self._call("GET", _run(run_id, "/inbox"), _Inbox)
        return [Received(one.id, one.name, one.payload, one.received_at) for one in found.items]

    async def steps(self, run_id: str) -> list[StepInfo]:
        return list(await self._page(_run(run_id, "/steps"), StepInfo, {}, None, UNCHANGED))

    async def ledger(self, run_id: str) -> list[LedgerEntry]:
        return list(await self._page(_run(run_id, "/ledger"), LedgerEntry, {}, None, UNCHANGED))

    async def progress(self, run_id: str) -> Progress:
        found: Progress = await self._call("GET", _run(run_id, "/progress"), Progress)
        return found

    async def explain(self, run_id: str, *, options: str = "") -> Explanation:
        query = {"options": options or None}
        found: Explanation = await self._call("GET", _run(run_id, "/explanation"), Explanation, query=query)
        return found

    async def now(self) -> datetime:
        """The time as the server told it last, to the second; the one here where it never did."""
        return self._told_at or self._ports.now()

    async def unused(self, *, limit: int = PAGE) -> list[UnusedInfo]:
        return list(await self._page("/v1/unused", UnusedInfo, {}, None, limit))

    async def readdress(self, unused_id: str, target: str, *, check: bool = True) -> Receipt:
        return await self._deliver(f"/v1/unused/{quote(unused_id, safe='')}/readdress", {"target": target}, check)

    # ------------------------------------------------------------ tasks and waits

    async def claim(self, interaction_id: str, by: str | None = None) -> InteractionInfo:
        return await self._hand(interaction_id, "/claim", {"by": by})

    async def release(self, interaction_id: str, by: str | None = None) -> InteractionInfo:
        return await self._hand(interaction_id, "/release", {"by": by})

    async def assign(
        self, interaction_id: str, *, assignee: str | None = None, group: str | None = None, reason: str = ""
    ) -> InteractionInfo:
        return await self._hand(interaction_id, "/assign", {"assignee": assignee, "group": group, "reason": reason})

    async def _hand(self, id: str, part: str, body: Mapping[str, Any]) -> InteractionInfo:
        found: InteractionInfo = await self._call("POST", _interaction(id, part), InteractionInfo, body)
        return found

    async def update_wait(
        self, id: str, *, deadline: Any = UNCHANGED, assignee: Any = UNCHANGED, group: Any = UNCHANGED, reason: str = ""
    ) -> WaitInfo:
        if isinstance(deadline, timedelta):
            deadline = format_duration(deadline)
        body = {"deadline": deadline, "assignee": assignee, "group": group, "reason": reason}
        found: WaitInfo = await self._call("PATCH", _wait(id), WaitInfo, body)
        return found

    async def fail_wait(self, id: str, reason: str) -> None:
        await self._call("POST", _wait(id, "/fail"), WaitInfo, {"reason": reason})

    async def cancel_wait(self, id: str, reason: str) -> None:
        await self._call("POST", _wait(id, "/cancel"), WaitInfo, {"reason": reason})

    async def heartbeat(self, id: str) -> None:
        await self._call("POST", _wait(id, "/heartbeat"), WaitInfo, {})

    async def update_waits(
        self,
        *,
        reason: str,
        deadline: Any = UNCHANGED,
        to_assignee: Any = UNCHANGED,
        to_group: Any = UNCHANGED,
        dry_run: bool = False,
        **where: Any,
    ) -> WaitsChanged:
        """Change every open wait that the filter finds, one request for each."""
        changes = {"deadline": deadline, "assignee": to_assignee, "group": to_group}
        return await self._all(lambda id: self.update_wait(id, reason=reason, **changes), dry_run, where)

    async def fail_waits(self, *, reason: str, dry_run: bool = False, **where: Any) -> WaitsChanged:
        return await self._all(lambda id: self.fail_wait(id, reason), dry_run, where)

    async def cancel_waits(self, *, reason: str, dry_run: bool = False, **where: Any) -> WaitsChanged:
        return await self._all(lambda id: self.cancel_wait(id, reason), dry_run, where)

    async def _all(
        self, change: Callable[[str], Awaitable[Any]], dry_run: bool, where: Mapping[str, Any]
    ) -> WaitsChanged:
        if not any(value is not None for value in where.values()):
            raise errors.BadInput("which waits are meant? give at least one of run_id, definition, channel, …")
        changed: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.waits(**where, cursor=cursor)
            for wait in page:
                try:
                    if not dry_run:
                        await change(wait.id)
                except (errors.NotFound, errors.AlreadyAnswered):
                    continue  # it ended meanwhile
                changed.append(wait.id)
            cursor = page.next_cursor
            if cursor is None:
                return WaitsChanged(ids=tuple(changed), dry_run=dry_run)

    # ------------------------------------------------------------ dead letters

    async def dead_letters(self, *, cursor: str | None = None, limit: int = PAGE) -> Page[DeadLetterInfo]:
        return await self._page("/v1/dead-letters", DeadLetterInfo, {}, cursor, limit)

    async def retry_dead_letter(self, id: str) -> None:
        await self._call("POST", f"/v1/dead-letters/{quote(id, safe='')}/retry", None, {})

    async def discard_dead_letter(self, id: str) -> None:
        await self._call("POST", f"/v1/dead-letters/{quote(id, safe='')}/discard", None, {})


REFUSALS: Mapping[int, Any] = {404: "no_target", 409: "conflict", 410: "late", 422: "invalid"}


class _Named(msgspec.Struct):
    id: str


class _Started(msgspec.Struct):
    id: str
    definition: str
    version: str
    status: RunStatus
    correlation_key: str | None
    created_at: datetime


class _Receipts(msgspec.Struct):
    receipts: list[Receipt]


class _Ended(msgspec.Struct):
    status: str


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]
    next_cursor: str | None = None


class _Signal(msgspec.Struct):
    id: str
    name: str
    payload: Any
    received_at: datetime


class _Inbox(msgspec.Struct):
    items: list[_Signal]


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""
    errors: list[dict[str, str]] = []


def _date(header: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(header) if header else None
    except ValueError:
        return None


def _run(id: str, part: str = "") -> str:
    return f"/v1/runs/{quote(id, safe='')}{part}"


def _wait(id: str, part: str = "") -> str:
    return f"/v1/waits/{quote(id, safe='')}{part}"


def _interaction(id: str, part: str = "") -> str:
    return f"/v1/interactions/{quote(id, safe='')}{part}"


def _begun(started: _Started, input: Any, tags: Any) -> RunRow:
    """What is known of a run by who started it and may not look."""
    return RunRow(
        workspace="",
        id=RunId(started.id),
        definition=started.definition,
        version=started.version,
        style="workflow",
        status=started.status,
        step="",
        state=encode_payload(input, max_bytes=NO_LIMIT),
        input=encode_payload(input, max_bytes=NO_LIMIT),
        created_at=started.created_at,
        updated_at=started.created_at,
        ready_at=started.created_at,
        correlation_key=started.correlation_key,
        tags=encode_payload(tags or {}, max_bytes=NO_LIMIT),
    )


def _row(info: RunInfo) -> RunRow:
    """A run as the handle keeps it."""
    parked = run_of_wait(info.wait_id) if info.wait_id is not None else None
    open_waits = [run_of_wait(id) for id in info.wait_ids]
    encode = msgspec.json.encode
    return RunRow(
        workspace=info.workspace,
        id=RunId(info.id),
        definition=info.definition,
        version=info.version,
        style="workflow",
        status=info.status,
        step=info.step,
        state=encode(info.state).decode(),
        input=encode(info.input).decode(),
        created_at=info.created_at,
        updated_at=info.updated_at,
        ready_at=info.created_at,
        ended_at=info.ended_at,
        result=encode(info.result).decode() if info.status == "completed" else None,
        error=encode(info.error).decode() if info.error is not None else None,
        held=info.held,  # type: ignore[arg-type]  # the server says one of these
        attempt=info.attempt,
        parked_on=parked[1] if parked is not None else None,
        open_waits=tuple(found[1] for found in open_waits if found is not None),
        correlation_key=info.correlation_key,
        parent_id=RunId(info.parent_id) if info.parent_id is not None else None,
        retry_of=RunId(info.retry_of) if info.retry_of is not None else None,
        tags=encode(info.tags).decode(),
    )


def error_of(status: int, content: bytes) -> BideError:
    """The error that a problem names: of the class that the client in the app's own process would raise."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.MsgspecError:
        problem = _Problem(detail=f"the server answered {status}, which is no answer of bide's")
    made = _told(_by_code().get((problem.code, status)) or _by_status(status))
    error: BideError = made(problem.detail, tuple(f"at {e['path']}: {e['message']}" for e in problem.errors))
    return error


@cache
def _by_code() -> dict[tuple[str, int], type[BideError]]:
    known = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, BideError)]
    return {(error.code, error.status): error for error in reversed(known)}


def _by_status(status: int) -> type[BideError]:
    return {404: errors.NotFound, 409: errors.Conflict, 422: errors.Invalid, 503: errors.Unavailable}.get(
        status, errors.Invalid if status < 500 else errors.Unavailable
    )


def _told(kind: type[BideError]) -> Any:
    """The error with the server's words; the facts that its own class would have are in them."""

    def __init__(self: Any, detail: str, problems: tuple[str, ...]) -> None:
        Exception.__init__(self, detail)
        self.problems = problems

    def __str__(self: Any) -> str:
        return str(self.args[0])

    return type(kind.__name__, (kind,), {"__init__": __init__, "__str__": __str__, "__module__": kind.__module__})
