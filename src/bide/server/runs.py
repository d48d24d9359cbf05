"""Runs over HTTP: starting, looking, ending."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec

from bide.client.door import duration
from bide.client.progress import Progress
from bide.core.records import FINAL
from bide.core.records import Run as RunRow
from bide.errors import BadInput, DuplicateRun, NotHeld, RunIsFinal, RunTimeoutError
from bide.server.bodies import while_there
from bide.server.calls import Answer, Call, Endpoint, Limit
from bide.server.places import POLLS, place
from bide.views import Explanation, LedgerEntry, RunInfo, StepInfo, run_info

ANSWERS: Final = "interactions:answer"


class StartRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is started with."""

    definition: str
    input: Any = None
    correlation_key: str | None = None
    correlation_scope: Literal["live", "forever"] = "live"
    if_exists: Literal["raise", "return"] = "raise"
    version: str | None = None
    delay: str | int | float | None = None
    queue: str | None = None
    priority: int | None = None
    tags: dict[str, str] | None = None


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was started."""

    id: str
    definition: str
    version: str
    status: str
    correlation_key: str | None
    created_at: datetime


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs; each `tag` is `name=value`, and all of them must be there."""

    status: str | None = None
    definition: str | None = None
    held: bool = False
    correlation_key: str | None = None
    tag: list[str] = []
    cursor: str | None = None
    limit: Limit = 100


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    items: list[RunInfo]
    next_cursor: str | None


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: str | None = None


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, or that it has not."""

    id: str
    status: str
    result: Any = None
    error: Any = None


class CancelRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str = ""
    force: bool = False


class RetryRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    from_step: str | None = None


class ExplanationQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`options` is put behind every command that the sentences name."""

    options: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """A run and where it stands."""

    id: str
    status: str


class PartQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page; without a limit it has as many as fit."""

    cursor: str | None = None
    limit: Limit | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LedgerEntry]
    next_cursor: str | None


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    items: list[StepInfo]
    next_cursor: str | None


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    items: list[dict[str, Any]]
    next_cursor: str | None


def started(row: RunRow) -> StartedRun:
    return StartedRun(
        id=row.id,
        definition=row.definition,
        version=row.version,
        status=row.status,
        correlation_key=row.correlation_key,
        created_at=row.created_at,
    )


async def start(call: Call) -> Answer:
    asked = call.read(StartRun)
    options = msgspec.structs.asdict(asked)
    run = await call.client.start(options.pop("definition"), options.pop("input"), **options)
    return Answer(started(run._row), 201)


async def has_definition(call: Call) -> None:
    name = call.body.get("definition") if isinstance(call.body, dict) else None
    version = call.body.get("version") if isinstance(call.body, dict) else None
    if isinstance(name, str):
        call.runtime.registry.get(name, version if isinstance(version, str) else None)


async def key_is_free(call: Call) -> None:
    key = call.body.get("correlation_key") if isinstance(call.body, dict) else None
    if isinstance(key, str) and 0 < len(key) <= 200 and key.isprintable():
        holder = await call.runtime.store.holder(call.key.workspace, key)
        if holder is not None and call.body.get("if_exists") != "return":
            raise DuplicateRun(key, holder)


async def list_runs(call: Call) -> Runs:
    asked = call.ask(RunQuery)
    tags = dict(each.partition("=")[::2] for each in asked.tag)
    if not all("=" in each for each in asked.tag):
        raise BadInput("tag: write it as name=value")
    if len(tags) < len(asked.tag):
        raise BadInput("tag: a run has one value for each name")
    page = await call.client.runs(
        status=asked.status,
        definition=asked.definition,
        held=asked.held,
        correlation_key=asked.correlation_key,
        tags=tags,
        cursor=asked.cursor,
        limit=asked.limit,
    )
    return Runs(items=list(page), next_cursor=page.next_cursor)


async def run_exists(call: Call) -> None:
    await call.client._find(call.path["run_id"])


async def run_is_known(call: Call) -> None:
    await call.client.get(call.path["run_id"])


async def get(call: Call) -> RunInfo:
    call.ask(Nothing)
    """By its id, or by the correlation key that it holds: no key looks like an id (S2)."""
    return await call.client.get(call.path["run_id"])


async def result(call: Call) -> Answer:
    asked = call.ask(ResultQuery)
    run_id = call.path["run_id"]
    row = await call.client._find(run_id)
    if row.status not in FINAL and asked.wait is not None:
        limit = duration(asked.wait, "wait") or timedelta(0)
        try:
            with place(call, "result", POLLS):
                waiting = call.client._end(run_id, min(limit, call.runtime.settings.longest_poll), look_first=True)
                row = await while_there(call.receive, waiting)
        except RunTimeoutError:
            row = await call.client._find(run_id)
    if not call.key.may("runs:start"):  # who only reads gets what people see; who starts runs works with what they give
        row = await call.client._covering(row)
    else:
        row = msgspec.structs.replace(row, redact=None)
    info = run_info(row)
    found = Result(id=info.id, status=info.status, result=info.result, error=info.error)
    return Answer(found, 200 if row.status in FINAL else 202)


async def ledger(call: Call) -> Ledger:
    asked = call.ask(PartQuery)
    page = await call.client._ledger_page(call.path["run_id"], asked.cursor, asked.limit)
    return Ledger(items=list(page), next_cursor=page.next_cursor)


async def steps(call: Call) -> Steps:
    asked = call.ask(PartQuery)
    page = await call.client._steps_page(call.path["run_id"], asked.cursor, asked.limit)
    return Steps(items=list(page), next_cursor=page.next_cursor)


async def inbox(call: Call) -> Inbox:
    asked = call.ask(PartQuery)
    page = await call.client._inbox_page(call.path["run_id"], asked.cursor, asked.limit)
    items = [{"id": s.id, "name": s.name, "payload": s.payload, "received_at": s.received_at} for s in page]
    return Inbox(items=items, next_cursor=page.next_cursor)


async def progress(call: Call) -> Progress:
    call.ask(Nothing)
    return await call.client.progress(call.path["run_id"])


async def explanation(call: Call) -> Explanation:
    asked = call.ask(ExplanationQuery)
    # A callback's URL is all that it takes to answer: it is for keys that may.
    hides = "" if call.key.may(ANSWERS) else f"this key may not answer (its scopes lack {ANSWERS})"
    return await call.client._explain(call.path["run_id"], asked.options, hides_links=hides)


async def cancel(call: Call) -> Answer:
    asked = call.read(CancelRun)
    run_id = call.path["run_id"]
    await call.client.cancel(run_id, reason=asked.reason, force=asked.force)
    return Answer(await _state(call, run_id), 202)


async def is_not_final(call: Call) -> None:
    row = await call.client._find(call.path["run_id"])
    if row.status in FINAL:
        raise RunIsFinal(row.id, row.status)


async def can_be_retried(call: Call) -> None:
    row = await call.client._find(call.path["run_id"])
    if row.held is None and row.status != "failed":
        raise NotHeld(row.id, row.status)


async def retry(call: Call) -> Answer:
    asked = call.read(RetryRun)
    run = await call.client.retry(call.path["run_id"], from_step=asked.from_step)
    return Answer(RunState(id=run.id, status=run.status), 202)


async def _state(call: Call, run_id: str) -> RunState:
    row = await call.client._find(run_id)
    return RunState(id=row.id, status=row.status)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/runs",
        start,
        "runs:start",
        "Start a run",
        body=StartRun,
        answers={201: StartedRun},
        found=has_definition,
        is_open=key_is_free,
        payloads=("input",),
        refusals=(404, 409),
        uses=("runs", "waits"),
        commits=True,
    ),
    Endpoint("GET", "/v1/runs", list_runs, "runs:read", "List runs, oldest first", query=RunQuery, repeats=("tag",),
             answers={200: Runs}),
    Endpoint(
        "GET", "/v1/runs/{run_id}", get, "runs:read", "Look at a run, by its id or the correlation key it holds",
        answers={200: RunInfo}, found=run_is_known, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/explanation", explanation, "runs:read", "Why a run stands where it stands",
        query=ExplanationQuery, answers={200: Explanation}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/progress", progress, "runs:read", "How far the items of a run have come",
        answers={200: Progress}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/result", result, "runs:read", "Wait for the end of a run",
        query=ResultQuery, answers={200: Result, 202: Result}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/ledger", ledger, "runs:read", "Everything that happened to a run",
        query=PartQuery, answers={200: Ledger}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/inbox", inbox, "runs:read", "The signals in a run's inbox",
        query=PartQuery, answers={200: Inbox}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/steps", steps, "runs:read", "What the steps of a workflow came to",
        query=PartQuery, answers={200: Steps}, found=run_exists, refusals=(404,),
    ),
    Endpoint(
        "POST", "/v1/runs/{run_id}/cancel", cancel, "runs:cancel", "Cancel a run",
        body=CancelRun, answers={202: RunState}, found=run_exists, is_open=is_not_final, refusals=(404, 409),
    ),
    Endpoint(
        "POST", "/v1/runs/{run_id}/retry", retry, "runs:start", "Release a held run, or start a failed one anew",
        body=RetryRun, answers={202: RunState}, found=run_exists, is_open=can_be_retried, refusals=(404, 409),
    ),
)  # fmt: skip
