"""The client over HTTP: the methods of `Client`, with a key, against a server's URL.

What it sends twice is done once: each change carries an idempotency key of its own, so a call whose answer was lost is
simply made again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, Unpack, get_args
from urllib.parse import quote

import msgspec

from bide import errors
from bide.authoring.checks import MAX_NAME, check_choice, check_key, check_tags, check_text, is_name, shown
from bide.authoring.context import Received
from bide.authoring.machine import definition_name, encode
from bide.authoring.signals import Signal, signal_name
from bide.client.answering import check_reason
from bide.client.door import PAGE, duration
from bide.client.handle import Run
from bide.client.operating import UNCHANGED, Where, answer_each, check_deadline, check_where, needed, would_take
from bide.client.progress import Progress
from bide.client.refusals import raise_refusal, raise_refused_answer, raise_refused_event, raise_refused_task
from bide.client.rescuing import raise_misdirected
from bide.client.signalling import run_meant
from bide.client.starting import check_if_exists
from bide.client.tasks import named_by
from bide.core.commands import EventReceipt, Receipt
from bide.core.durations import Duration, Timeout, format_duration
from bide.core.payloads import BadPayload, encode_payload
from bide.core.records import FINAL, InteractionStatus, RunId, RunStatus, WaitStatus, run_of_wait
from bide.core.records import Run as RunRow
from bide.engine import tracing
from bide.engine.ports import Ports
from bide.engine.trust import trust
from bide.errors import BadConfiguration, BadInput, BideError, RunTimeoutError, Unavailable
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
EVERY_STATUS = "all"  # as the URL says it; here it is None
NO_LIMIT = 2**31
ENVELOPES = {"/v1/signals": 2, "/v1/signals/many": 3}  # levels of a body around its payloads; of others it is one
AT_ONCE = 8  # of requests that one call makes
ASKED_FOR = ("target", "run_id", "id")  # what errors call that which is not there
DOTS = {".": "%2E", "..": "%2E%2E"}  # as they are, they lead to another path
PORTS = range(1, 65_536)
CLOSED = "this client is closed; make another"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Server(Unavailable):
    """The server could not be reached, or did not answer as one of bide's does."""


class BadAddress(BadConfiguration):
    """No server can be asked with this: `option` is `url` or `key`."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option, self.problem = option, problem

    def __str__(self) -> str:
        return f"{self.option} {self.problem}"


class RemoteClient:
    """What `bide.Client(url, key=…)` gives: runs of the key's workspace, over HTTP.

    Use it as `async with`, or `await client.aclose()` it, to close its connections; those of an *http* that the caller
    gave stay open. It may be used from one event loop after the other, and in a process that was forked: each has
    connections of its own.
    """

    def __init__(
        self, url: str, key: str = "", *, timeout: float = 30.0, http: httpx.AsyncClient | None = None
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise BadConfiguration("a client over HTTP needs httpx: pip install 'bide[http]'") from error
        self.url = _check_url(url).rstrip("/")
        self._ports = Ports()
        self._told_at: datetime | None = None
        self._silence: tuple[type[Exception], ...] = (httpx.TransportError,)
        self._garbage: tuple[type[Exception], ...] = (httpx.RequestError,)
        self._unsendable: tuple[type[Exception], ...] = (httpx.InvalidURL, ValueError, TypeError)
        self._authorization = {"Authorization": f"Bearer {_check_sendable(key)}"} if key else {}
        self._connect = partial(httpx.AsyncClient, timeout=timeout, follow_redirects=False, verify=trust(url))
        self._callers = http
        self._own: _Connections | None = None
        self._is_closed = False

    async def __aenter__(self) -> RemoteClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, but for those that came as `http=`. A closed client cannot be used again."""
        self._is_closed = True
        if self._own is not None and self._own.home == _here():
            await self._own.http.aclose()

    def _http(self) -> httpx.AsyncClient:
        """What sends here. Sockets work in the loop that opened them, and a fork shares them with its parent: those of
        another loop or process are left as they are, for whoever still uses them."""
        if self._is_closed:
            raise BadInput(CLOSED)
        if self._callers is not None:
            return self._callers
        own, here = self._own, _here()
        if own is None or own.home != here:
            own = self._own = _Connections(self._connect(), here)  # in one, for loops of other threads look too
        return own.http

    # ------------------------------------------------------------ talking

    async def _call(
        self,
        method: str,
        path: str,
        type_: Any,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        about: str = "",
        most_tries: int = TRIES,
    ) -> Any:
        """The answer as *type_*. Raises the error that the server names; *about* is the id that it is about."""
        headers, content = {**tracing.current_headers(), **self._authorization}, None
        if body is not None:
            sent = {name: value for name, value in body.items() if value is not UNCHANGED}
            content = _encoded(sent, ENVELOPES.get(path, 1))
            headers["Content-Type"] = "application/json"
        if method in ("POST", "PATCH") and (body or {}).get("id") is None:  # an event with an id is done once by that
            headers["Idempotency-Key"] = str(self._ports.uuid())
        asked = {name: value for name, value in (query or {}).items() if value is not None and value is not UNCHANGED}
        options: dict[str, Any] = {"params": asked, "headers": headers, "content": content}
        if timeout is not None:
            options["timeout"] = timeout
        http = self._http()
        try:
            request = http.build_request(method, f"{self.url}{path}", **options)
        except self._unsendable as error:
            raise BadInput(f"what is asked for cannot be sent: {error}") from error
        pause = FIRST_PAUSE
        for tries in itertools.count(1):
            try:
                response = await http.send(request)
            except self._silence as error:
                if tries == most_tries:
                    why = str(error) or type(error).__name__
                    raise Server(f"{self.url} does not answer: {why}; is that where `bide serve` runs?") from error
            except self._garbage as error:  # it says that it is packed, and cannot be unpacked
                raise Server(f"{self.url} answered with what is no answer of bide's: {error}") from error
            except RuntimeError as error:  # the caller's own, of another loop, or closed meanwhile
                raise Server(f"{self.url} cannot be asked over these connections: {error}") from error
            else:
                self._told_at = _date(response.headers.get("date")) or self._told_at
                if response.status_code < 300:
                    return _read(response, type_, self.url)
                if response.status_code not in AGAIN or tries == most_tries:
                    raise error_of(response.status_code, response.content, self.url, about)
                pause = max(pause, self._asked_pause(response.headers.get("retry-after")))
            await asyncio.sleep(min(pause, LONGEST_PAUSE) * (0.5 + self._ports.random()))
            pause *= 2
        raise AssertionError("the last try answers or raises")

    def _asked_pause(self, header: str | None) -> float:
        """The seconds of a Retry-After, which is a number or a date."""
        if header is not None and header.isascii() and header.isdigit():
            return float(header)
        until = _date(header)
        return (until - self._ports.now()).total_seconds() if until is not None else 0.0

    # ------------------------------------------------------------ starting

    async def start(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str | None = None,
        correlation_scope: Literal["live", "forever"] = "live",
        if_exists: Literal["raise", "return"] = "raise",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> Run[Any]:
        """Start a run, as `Client.start` does, but for `connection=`."""
        _join_nothing(connection)
        check_if_exists(if_exists)
        options = {
            "correlation_key": correlation_key,
            "correlation_scope": correlation_scope,
            "if_exists": if_exists,
            "version": version,
            "delay": _span(delay, "delay"),
            "queue": queue,
            "priority": priority,
            "tags": tags,
        }
        body = {"definition": definition_name(definition), "input": input, **_given(options)}
        started = await self._call("POST", "/v1/runs", _Started, body)
        returns = getattr(definition, "returns", Any)
        row = await self._look(_begun(started, input, tags))
        return Run(self, row, returns if row.definition == body["definition"] else Any)

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
        correlation_scope: Literal["live", "forever"] = "live",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Receipt:
        options = {
            "correlation_scope": correlation_scope,
            "version": version,
            "delay": _span(delay, "delay"),
            "queue": queue,
            "priority": priority,
            "tags": tags,
        }
        start = {"definition": definition_name(definition), "input": input, **_given(options)}
        body = {"name": signal_name(name), "payload": payload, "dedup_key": dedup_key, "start": start}
        refuse = partial(raise_refusal, target=correlation_key, dedup_key=dedup_key)
        return await self._deliver("/v1/signals", {**body, "correlation_key": correlation_key}, check, refuse)

    # ------------------------------------------------------------ signals and answers

    async def signal(
        self,
        target: str,
        name: str | Signal[Any],
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
    ) -> Receipt:
        """Put a signal into the inbox of a run, as `Client.signal` does, but for `connection=`."""
        _join_nothing(connection)
        refuse = partial(raise_refusal, target=target, dedup_key=dedup_key)
        try:
            run_id = run_meant(target)
            body: dict[str, Any] = {"name": signal_name(name), "payload": payload, "dedup_key": dedup_key}
            if run_id is None:
                path, body = "/v1/signals", {**body, "correlation_key": target}
            else:
                path = _run(run_id, "/signals")
            return await self._deliver(path, body, check, refuse, about=target)
        except errors.NoTarget:
            if check:
                raise
            return Receipt(outcome="no_target", reason="not_found")
        except errors.Invalid as error:
            if check:
                raise
            return Receipt(outcome="invalid", reason=str(error))

    async def signal_many(self, signals: Iterable[SignalTo], *, check: bool = True) -> list[Receipt]:
        """Deliver all of these in one commit, or none of them, as `Client.signal_many` does."""
        asked = list(signals)
        many = [
            {"target": one.target, "name": signal_name(one.signal), "payload": one.payload, "dedup_key": one.dedup_key}
            for one in asked
        ]
        try:
            found = await self._call("POST", "/v1/signals/many", _Receipts, {"signals": many})
        except BideError as error:
            receipts = receipts_of(error, Receipt)
            if len(receipts) != len(asked):
                raise
            if check:
                for one, receipt in zip(asked, receipts, strict=True):
                    raise_refusal(receipt, one.target, one.dedup_key)
            return receipts
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
        reason: str = "",
        check: bool = True,
    ) -> Receipt:
        """Answer the one wait that holds a signal id, or with *hold* the first one that will."""
        path = f"/v1/signals/{_quoted(check_key(signal_id, 'signal id'))}/complete"
        _check_by(by)
        until = _span(hold, "hold")
        options = {"run_id": run_id, "by": by, "dedup_key": dedup_key, "hold": until, "reason": reason or None}
        refuse = partial(raise_refused_answer, signal_id=signal_id, dedup_key=dedup_key)
        return await self._deliver(path, {"data": data, **_given(options)}, check, refuse, about=signal_id)

    async def answer(
        self,
        target: str,
        data: Any = None,
        by: str | None = None,
        dedup_key: str | None = None,
        *,
        shown: str | None = None,
        reason: str = "",
        check: bool = True,
    ) -> Receipt:
        """Answer an interaction, a wait or a signal id."""
        _check_by(by)
        if named_by(target) is None:
            return await self.complete(target, data, by=by, dedup_key=dedup_key, reason=reason, check=check)
        path = (_interaction if target.startswith("int_") else _wait)(target, "/complete")
        body = {"data": data, "by": by, "dedup_key": dedup_key, "shown": shown, "reason": reason}
        refuse = partial(raise_refused_task, target=target, dedup_key=dedup_key)
        return await self._deliver(path, body, check, refuse, about=target)

    async def _deliver(
        self, path: str, body: Mapping[str, Any], check: bool, refuse: Callable[[Receipt], None], about: str = ""
    ) -> Receipt:
        """The receipt of a delivery. If it is refused, it comes with the problem, and *refuse* raises what it means."""
        try:
            receipt: Receipt = await self._call("POST", path, Receipt, body, about=about)
        except BideError as error:
            for receipt in receipts_of(error, Receipt) or _told_by(error):
                if check:
                    refuse(receipt)
                return receipt
            raise
        return receipt

    async def emit(
        self, name: str, data: Any = None, *, id: str | None = None, channel: str = "api", check: bool = True
    ) -> EventReceipt:
        body = {"name": name, "data": data, "id": id, "channel": channel}
        try:
            receipt: EventReceipt = await self._call("POST", "/v1/events", EventReceipt, body)
        except BideError as error:
            for receipt in receipts_of(error, EventReceipt):
                if check:
                    raise_refused_event(receipt)
                return receipt
            raise
        return receipt

    # ------------------------------------------------------------ ending

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False) -> None:
        await self._cancel(run_id, reason, force)

    async def _cancel(self, run_id: str, reason: str, force: bool) -> RunStatus:
        body = {"reason": reason, "force": force}
        cancelled: _State = await self._call("POST", _run(run_id, "/cancel"), _State, body, about=run_id)
        return cancelled.status

    async def retry(self, run_id: str, *, from_step: str | None = None) -> Run[Any]:
        body = {"from_step": from_step} if from_step is not None else {}
        going_on: _State = await self._call("POST", _run(run_id, "/retry"), _State, body, about=run_id)
        told = _Started(going_on.id, "", "", going_on.status, None, await self.now())
        return Run(self, await self._look(_begun(told, None, None)))

    async def result(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        return result_of(await self._end(run_id, timeout, look_first=True))

    async def _end(self, run_id: str, timeout: Duration | None, *, look_first: bool) -> RunRow:
        limit = duration(timeout, "timeout")
        now = self._ports.monotonic
        until = None if limit is None else now() + limit.total_seconds()
        while True:
            left = ONE_POLL if until is None else max(0.0, min(ONE_POLL, until - now()))
            query = {"wait": f"{max(1, int(left * 1000))}ms"}
            ended = await self._call(
                "GET", _run(run_id, "/result"), _Ended, query=query, timeout=left + ONE_POLL, about=run_id
            )
            if ended.status in FINAL:
                result = bytes(ended.result).decode()
                row = await self._find(run_id)
                return msgspec.structs.replace(row, result=result if row.result is not None else None)
            if until is not None and now() >= until:
                raise RunTimeoutError(run_id, ended.status)
            await asyncio.sleep(FIRST_PAUSE if left else 0)

    # ------------------------------------------------------------ looking

    async def _find(self, run_id: str) -> RunRow:
        return _row(await self.get(run_id))

    async def _look(self, told: RunRow) -> RunRow:
        """The run that goes on after a call, as it is now; as it was *told* where it cannot be looked at.

        The call is done: whoever heard of an error would make it again. And a key that may start runs need not be one
        that may look at them.
        """
        try:
            return _row(await self._call("GET", _run(told.id), RunInfo, most_tries=1))
        except BideError:
            return told

    async def get(self, run_id: str) -> RunInfo:
        info: RunInfo = await self._call("GET", _run(run_id), RunInfo, about=run_id)
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
        query = {
            "status": status,
            "definition": definition_name(definition) if definition is not None else None,
            "held": "true" if held else None,
            "correlation_key": correlation_key,
            "tag": [f"{name}={value}" for name, value in check_tags(tags if tags is not None else {}).items()],
        }
        return await self._page("/v1/runs", RunInfo, query, cursor, limit)

    async def waits(
        self,
        *,
        run_id: str | None = None,
        older_than: Duration | None = None,
        status: str | None = "waiting",
        definition: Any = None,
        kind: str | None = None,
        channel: str | None = None,
        assignee: str | None = None,
        group: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[WaitInfo]:
        query = {
            "run_id": run_id,
            "older_than": _span(older_than, "older_than"),
            "status": check_choice(status, get_args(WaitStatus), "status") if status is not None else EVERY_STATUS,
            "definition": definition_name(definition) if definition is not None else None,
            "kind": kind,
            "channel": channel,
            "assignee": assignee,
            "group": group,
        }
        return await self._page("/v1/waits", WaitInfo, query, cursor, limit)

    async def wait(self, id: str) -> WaitInfo:
        found: WaitInfo = await self._call("GET", _wait(id), WaitInfo, about=id)
        return found

    async def interactions(
        self,
        *,
        run_id: str | None = None,
        assignee: str | None = None,
        group: str | None = None,
        channel: str | None = None,
        status: str | Iterable[str] | None = ("pending", "dispatching", "waiting"),
        definition: Any = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[InteractionInfo]:
        asked = (status,) if isinstance(status, str) else tuple(status or ())
        query = {
            "run_id": run_id,
            "assignee": assignee,
            "group": group,
            "channel": channel,
            "status": [check_choice(each, get_args(InteractionStatus), "status") for each in asked] or [EVERY_STATUS],
            "definition": definition_name(definition) if definition is not None else None,
        }
        return await self._page("/v1/interactions", InteractionInfo, query, cursor, limit)

    async def interaction(self, id: str) -> InteractionInfo:
        found: InteractionInfo = await self._call("GET", _interaction(id), InteractionInfo, about=id)
        return found

    async def _page(
        self, path: str, type_: Any, query: Mapping[str, Any], cursor: str | None, limit: int, about: str = ""
    ) -> Page[Any]:
        asked = {**query, "cursor": cursor, "limit": limit}
        found = await self._call("GET", path, _Items[type_], query=asked, about=about)
        return Page(found.items, found.next_cursor)

    async def _everything(self, run_id: str, part: str, type_: Any) -> list[Any]:
        """All that a run has of something, page by page: each is as long as the server lets it be."""
        found: list[Any] = []
        cursor: str | None = None
        while True:
            query = {"cursor": cursor}
            page = await self._call("GET", _run(run_id, part), _Items[type_], query=query, about=run_id)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def inbox(self, run_id: str) -> list[Received]:
        found = await self._everything(run_id, "/inbox", _Signal)
        return [Received(one.id, one.name, one.payload, one.received_at) for one in found]

    async def steps(self, run_id: str) -> list[StepInfo]:
        return await self._everything(run_id, "/steps", StepInfo)

    async def ledger(self, run_id: str) -> list[LedgerEntry]:
        return await self._everything(run_id, "/ledger", LedgerEntry)

    async def progress(self, run_id: str) -> Progress:
        found: Progress = await self._call("GET", _run(run_id, "/progress"), Progress, about=run_id)
        return found

    async def explain(self, run_id: str, *, options: str = "") -> Explanation:
        path, query = _run(run_id, "/explanation"), {"options": options or None}
        found: Explanation = await self._call("GET", path, Explanation, query=query, about=run_id)
        return found

    async def now(self) -> datetime:
        """The time as the server told it last, to the second; the one here where it never did."""
        return self._told_at or self._ports.now()

    async def unused(self, *, cursor: str | None = None, limit: int = PAGE) -> Page[UnusedInfo]:
        return await self._page("/v1/unused", UnusedInfo, {}, cursor, limit)

    async def readdress(self, unused_id: str, target: str, *, check: bool = True) -> Receipt:
        path = f"/v1/unused/{_segment(unused_id, errors.UnusedNotFound(unused_id))}/readdress"
        refuse = partial(raise_misdirected, target=target)
        return await self._deliver(path, {"target": target}, check, refuse, about=unused_id)

    # ------------------------------------------------------------ tasks and waits

    async def claim(self, interaction_id: str, by: str) -> InteractionInfo:
        check_text(by, "by")
        return await self._hand(interaction_id, "/claim", {"by": by})

    async def release(self, interaction_id: str, by: str) -> InteractionInfo:
        check_text(by, "by")
        return await self._hand(interaction_id, "/release", {"by": by})

    async def assign(
        self, interaction_id: str, *, assignee: str | None = None, group: str | None = None, reason: str = ""
    ) -> InteractionInfo:
        return await self._hand(interaction_id, "/assign", {"assignee": assignee, "group": group, "reason": reason})

    async def _hand(self, id: str, part: str, body: Mapping[str, Any]) -> InteractionInfo:
        found: InteractionInfo = await self._call("POST", _interaction(id, part), InteractionInfo, body, about=id)
        return found

    async def update_wait(
        self,
        id: str,
        *,
        deadline: Timeout | None = UNCHANGED,
        assignee: str | None = UNCHANGED,
        group: str | None = UNCHANGED,
        reason: str = "",
    ) -> WaitInfo:
        path, until = _wait(id), deadline
        if until is not UNCHANGED:
            until = check_deadline(until)
            until = format_duration(until) if isinstance(until, timedelta) else until
        body = {"deadline": until, "assignee": assignee, "group": group, "reason": reason}
        found: WaitInfo = await self._call("PATCH", path, WaitInfo, body, about=id)
        return found

    async def fail_wait(self, id: str, reason: str) -> None:
        await self._call("POST", _wait(id, "/fail"), WaitInfo, {"reason": reason}, about=id)

    async def cancel_wait(self, id: str, reason: str) -> None:
        await self._call("POST", _wait(id, "/cancel"), WaitInfo, {"reason": reason}, about=id)

    async def heartbeat(self, id: str) -> None:
        await self._call("POST", _wait(id, "/heartbeat"), WaitInfo, {}, about=id)

    async def update_waits(
        self,
        *,
        reason: str,
        deadline: Timeout | None = UNCHANGED,
        to_assignee: str | None = UNCHANGED,
        to_group: str | None = UNCHANGED,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        """Change every open wait that the filter finds, one request for each."""

        def change(id: str) -> Awaitable[Any]:
            return self.update_wait(id, deadline=deadline, assignee=to_assignee, group=to_group, reason=reason)

        return await self._all(change, reason, dry_run, where)

    async def fail_waits(self, *, reason: str, dry_run: bool = False, **where: Unpack[Where]) -> WaitsChanged:
        return await self._all(lambda id: self.fail_wait(id, reason), reason, dry_run, where)

    async def cancel_waits(self, *, reason: str, dry_run: bool = False, **where: Unpack[Where]) -> WaitsChanged:
        return await self._all(lambda id: self.cancel_wait(id, reason), reason, dry_run, where)

    async def answer_waits(
        self,
        data: Any = None,
        *,
        reason: str,
        by: str | None = None,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        """Give every open wait that the filter finds the same answer, one request for each."""
        text = encode(data, NO_LIMIT, "the answer")
        found = await self._found(reason, where)
        if dry_run:
            return would_take([(wait.id, wait.kind, wait.names, wait.details) for wait in found], text)

        async def answer(id: str) -> Receipt:
            return await self.answer(id, data, by, reason=reason, check=False)

        return await answer_each([wait.id for wait in found], answer, AT_ONCE)

    async def _all(
        self, change: Callable[[str], Awaitable[Any]], reason: str, dry_run: bool, where: Where
    ) -> WaitsChanged:
        changed: list[str] = []
        for wait in await self._found(reason, where):
            try:
                if not dry_run:
                    await change(wait.id)
            except (errors.NotFound, errors.AlreadyAnswered):
                continue  # it ended meanwhile
            changed.append(wait.id)
        return WaitsChanged(ids=tuple(changed), dry_run=dry_run)

    async def _found(self, reason: str, where: Where) -> list[WaitInfo]:
        """All of them, before any is changed: a run that goes on may open a wait that the filter would find too."""
        needed(check_reason(reason))
        check_where(where)
        page = await self.waits(**where)
        found = list(page)
        while page.next_cursor is not None:
            page = await self.waits(**where, cursor=page.next_cursor)
            found += page
        return found

    # ------------------------------------------------------------ dead letters

    async def dead_letters(self, *, cursor: str | None = None, limit: int = PAGE) -> Page[DeadLetterInfo]:
        return await self._page("/v1/dead-letters", DeadLetterInfo, {}, cursor, limit)

    async def retry_dead_letter(self, id: str) -> None:
        await self._call("POST", _dead_letter(id, "/retry"), None, {}, about=id)

    async def discard_dead_letter(self, id: str) -> None:
        await self._call("POST", _dead_letter(id, "/discard"), None, {}, about=id)


_Home: TypeAlias = tuple[int, asyncio.AbstractEventLoop]


class _Connections(NamedTuple):
    http: httpx.AsyncClient
    home: _Home  # the process and the event loop that they were opened in


class _State(msgspec.Struct):
    id: str
    status: RunStatus


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
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Items(msgspec.Struct, Generic[T]):
    items: list[T]
    next_cursor: str | None = None


class _Signal(msgspec.Struct):
    id: str
    name: str
    payload: Any
    received_at: datetime


class _Field(msgspec.Struct):
    path: str
    message: str


class _Problem(msgspec.Struct):
    code: str  # which others' problems have not
    detail: str = ""
    errors: list[_Field] = []
    error: str = ""
    facts: dict[str, Any] = {}
    receipts: list[msgspec.Raw] = []


def _encoded(body: Mapping[str, Any], envelope: int) -> str:
    try:
        return encode_payload(body, max_bytes=NO_LIMIT, around=envelope)
    except BadPayload as error:
        raise BadInput(f"what is sent cannot be stored: {error}") from error


def _here() -> _Home:
    return os.getpid(), asyncio.get_running_loop()


def _told_by(error: BideError) -> list[Receipt]:
    """The receipt that a refusal stands for which came before anything was looked at."""
    if isinstance(error, errors.NoTarget):
        return [Receipt(outcome="no_target", reason="not_found")]
    if isinstance(error, errors.AlreadyAnswered):
        return [Receipt(outcome="late", reason=error.reason)]
    return []


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _span(value: Duration | None, what: str) -> str | None:
    found = duration(value, what)
    return format_duration(found) if found is not None else None


def _join_nothing(connection: Any) -> None:
    if connection is not None:
        raise errors.ForeignConnectionError("a client over HTTP joins no transaction; use app.client()")


def _check_by(by: Any) -> None:
    """Whoever says that somebody acts names them: to the server an empty name is that of the key."""
    if by is not None:
        check_text(by, "by")


def _check_url(url: Any) -> str:
    problem = _problem_with(url)
    if problem:
        raise BadAddress("url", f"{shown(url)} is no URL of a server ({problem}); write it as https://bide.example")
    return str(url)


def _problem_with(url: Any) -> str:
    """Why nothing can be sent to a URL; empty where it can."""
    import httpx

    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return "it does not begin with http:// or https://"
    if "?" in url or "#" in url:
        return "nothing may follow its path"
    try:
        parsed = httpx.URL(url)
        host = parsed.host
        parsed.raw_host.decode("ascii").encode("idna")  # as it is looked up
    except (httpx.InvalidURL, ValueError) as error:
        return str(error)
    if not host or "%" in host:
        return "it names no host"
    return "" if parsed.port is None or parsed.port in PORTS else f"there is no port {parsed.port}"


def _check_sendable(key: Any) -> str:
    """A key as a header carries it. It is a secret: no message has it."""
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise BadAddress("key", "has characters that no key has; give the text that `bide keys create` printed")
    return key


def _no_answer(url: str, status: int) -> str:
    if status == 404:
        return f"no bide API answers at {url} (404); the URL must include the path that it is mounted at"
    return f"{url} answered {status} with what is no answer of bide's"


def _read(response: httpx.Response, type_: Any, url: str) -> Any:
    if type_ is None:
        return response
    try:
        return msgspec.json.decode(response.content, type=type_)
    except UNREADABLE as error:
        raise Server(_no_answer(url, response.status_code)) from error


def _date(header: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(header) if header else None
    except (ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def _segment(id: Any, missing: errors.NotFound) -> str:
    """An id as one segment of a path. One that no store could have, and not every URL could carry, is *missing*."""
    if not is_name(id):
        raise missing
    return _quoted(id)


def _quoted(name: str) -> str:
    return DOTS.get(name) or quote(name, safe="")


def _run(id: str, part: str = "") -> str:
    return f"/v1/runs/{_segment(id, errors.RunNotFound(id))}{part}"


def _wait(id: str, part: str = "") -> str:
    return f"/v1/waits/{_segment(id, errors.WaitNotFound(str(id)[:MAX_NAME]))}{part}"


def _interaction(id: str, part: str = "") -> str:
    return f"/v1/interactions/{_segment(id, errors.WaitNotFound(str(id)[:MAX_NAME]))}{part}"


def _dead_letter(id: str, part: str) -> str:
    return f"/v1/dead-letters/{_segment(id, errors.DeadLetterNotFound(str(id)[:MAX_NAME]))}{part}"


def _begun(started: _Started, input: Any, tags: Any) -> RunRow:
    """What is known of a run by who started it and cannot look."""
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


def error_of(status: int, content: bytes, url: str, about: str = "") -> BideError:
    """The error that a problem names: the one that the client in the app's own process would raise."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except UNREADABLE:
        return _by_status(status)(_no_answer(url, status))
    error = _made(problem, status, about)
    error.__dict__["_receipts"] = problem.receipts
    error.__dict__["_unread"] = _by_status(status)(_no_answer(url, status))
    return error


def receipts_of(error: BideError, type_: type[T]) -> list[T]:
    """What the server says became of the deliveries that it refused."""
    try:
        return [msgspec.json.decode(each, type=type_) for each in error.__dict__.get("_receipts", ())]
    except UNREADABLE as unreadable:
        raise error.__dict__["_unread"] from unreadable


def _made(problem: _Problem, status: int, about: str) -> BideError:
    named = getattr(errors, problem.error, None)
    if isinstance(named, type) and issubclass(named, BideError) and named.status == status:
        kind = named
    else:
        kind = _by_code().get((problem.code, status)) or _by_status(status)
    problems = tuple(f"at {each.path}: {each.message}" for each in problem.errors)
    facts = {**dict.fromkeys(ASKED_FOR, about), "problems": problems, **problem.facts}
    names = errors.fact_names(kind)
    given = {name: _as_given(facts[name]) for name in names if name in facts}
    with suppress(Exception):  # an older server does not say all of it, and one that is none says anything
        error = kind(**given) if names else kind(problem.detail)
        str(error)
        return error
    told: BideError = _told(kind)(problem.detail, problems)
    return told


def _as_given(fact: Any) -> Any:
    return tuple(fact) if isinstance(fact, list) else fact


@cache
def _by_code() -> dict[tuple[str, int], type[BideError]]:
    known = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, BideError)]
    by_code = {(error.code, error.status): error for error in reversed(known)}
    return {**by_code, ("invalid", 422): BadInput}  # a request that cannot be read has no class of the server's


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
