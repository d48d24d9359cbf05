"""`runs`, `show`, `explain`, `waits`, `unused`: the verbs that look and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from bide.cli.options import Place
from bide.cli.output import Cell, Column, Output, age_cell, fields, status_cell, to_json, value_cell
from bide.cli.session import Session, perform
from bide.cli.usage import (
    CursorOption,
    LimitOption,
    RunArgument,
    check_choice,
    read_duration,
)
from bide.client.progress import Progress
from bide.core.records import RunStatus, WaitStatus

if TYPE_CHECKING:
    from bide.views import Page, RunInfo, WaitInfo

ALL = "all"
MOST_SHOWN = 1000  # waits of one run


def runs(
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help=f"One of {', '.join(get_args(RunStatus))}.")
    ] = None,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="Of this definition only.")
    ] = None,
    held: Annotated[bool, typer.Option("--held", help="Only runs that bide holds back.")] = False,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    *,
    at: Place,
) -> int:
    """List runs, oldest first."""
    check_choice(status, get_args(RunStatus), "--status")

    async def work(session: Session) -> None:
        page = await session.client.runs(status=status, definition=definition, held=held, cursor=cursor, limit=limit)
        now = await session.now()
        columns = [
            Column("id", whole=True),
            Column("status", whole=True),
            Column("age", whole=True),
            Column("definition"),
            Column("step"),
            Column("key"),
        ]
        print_page(session.out, page, "runs", columns, [_run_row(info, now) for info in page])

    return perform(at, work)


def _run_row(info: RunInfo, now: datetime) -> list[Cell]:
    return [
        Cell(info.id),
        status_cell(info.status, info.held),
        age_cell(info.created_at, now),
        Cell(info.definition),
        Cell(info.step, "dim" if info.ended_at else ""),
        Cell(info.correlation_key or "-", "" if info.correlation_key else "dim"),
    ]


def waits(
    context: typer.Context,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run only.")] = None,
    older_than: Annotated[str | None, typer.Option("--older-than", metavar="TIME", help='Such as "1d".')] = None,
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help=f"{', '.join(get_args(WaitStatus))}, or all.")
    ] = "waiting",
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    *,
    at: Place,
) -> int:
    """List what runs wait for; move, fail, cancel or assign it."""
    if context.invoked_subcommand is not None:
        return 0
    check_choice(status, (*get_args(WaitStatus), ALL), "--status")
    age = read_duration(older_than, "--older-than")

    async def work(session: Session) -> None:
        page = await session.client.waits(
            run_id=await session.run_id(run) if run is not None else None,
            older_than=age,
            status=None if status == ALL else status,
            cursor=cursor,
            limit=limit,
        )
        now = await session.now()
        columns = [Column("id", whole=True), *WAIT_COLUMNS[1 if status == ALL else 2 :]]
        rows = [[Cell(info.id), *_wait_row(info, now)[1 if status == ALL else 2 :]] for info in page]
        print_page(session.out, page, "waits", columns, rows)

    return perform(at, work)


WAIT_COLUMNS = [
    Column("no", whole=True),
    Column("status", whole=True),
    Column("since", whole=True),
    Column("deadline", whole=True),
    Column("for"),
]


def _wait_row(info: WaitInfo, now: datetime) -> list[Cell]:
    if info.closed_at is not None:
        deadline = Cell("-", "dim")
    elif info.deadline is None:
        deadline = Cell("none", "yellow")
    else:
        deadline = age_cell(info.deadline, now)
    return [
        Cell(info.id.rpartition("_")[2]),
        status_cell(info.status),
        age_cell(info.opened_at, now),
        deadline,
        Cell(_awaited(info)),
    ]


def _awaited(info: WaitInfo) -> str:
    if info.kind == "children":
        return f"children ({info.received} of {info.expected})"
    names = [name for name in info.names if not name.startswith("callback:")]  # those are bide's own, and say nothing
    if names:
        return ", ".join(names)
    step = info.step.replace("\xa0", " ")  # which keeps what bide calls its own from what users call theirs
    return f"{'callback' if info.names else info.kind}: {info.details.get('title') or step}"


def unused(
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    *,
    at: Place,
) -> int:
    """List what arrived and could not be used."""

    async def work(session: Session) -> None:
        page = await session.client.unused(limit=limit, cursor=cursor)
        now = await session.now()
        columns = [
            Column("id", whole=True),
            Column("came", whole=True),
            Column("signal"),
            Column("target"),
            Column("reason"),
        ]
        rows = [[Cell(r.id), age_cell(r.at, now), Cell(r.name), Cell(r.target), Cell(r.reason)] for r in page]
        print_page(session.out, page, "unused arrivals", columns, rows)

    return perform(at, work)


def print_page(
    out: Output, page: Page[Any], what: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> None:
    if out.as_json:
        out.value({"items": list(page), "next_cursor": page.next_cursor})
        return
    if not page:
        out.note(f"no {what}")
        return
    out.table(columns, rows)
    if page.next_cursor is not None:
        out.note(f"there may be more: add --cursor {page.next_cursor}")


# ---------------------------------------------------------------- one run


def show(
    run: RunArgument,
    *,
    at: Place,
) -> int:
    """Show a run: its facts, state, waits, inbox and error."""

    async def work(session: Session) -> None:
        run_id = await session.run_id(run)
        info = await session.client.get(run_id)
        waits = await _waits(session, run_id)
        inbox = await session.client.inbox(run_id)
        out = session.out
        if out.as_json:
            progress = await session.client.progress(run_id)
            out.value({**fields(info), "waits": waits, "inbox": inbox, "progress": progress})
            return
        now = await session.now()
        out.facts(_facts(info, now))
        progress = await session.client.progress(run_id)
        if progress.expected:
            out.line()
            _items(out, progress)
        if waits:
            out.line()
            out.line("waits", "bold")
            out.table(WAIT_COLUMNS, [_wait_row(wait, now) for wait in waits])
        if inbox:
            out.line()
            out.line("inbox", "bold")
            columns = [Column("id", whole=True), Column("came", whole=True), Column("signal"), Column("payload")]
            out.table(
                columns,
                [[Cell(s.id), age_cell(s.received_at, now), Cell(s.name), Cell(to_json(s.payload))] for s in inbox],
            )

    return perform(at, work)


async def _waits(session: Session, run_id: str) -> list[WaitInfo]:
    """The first of a run's waits. Large ones come on several pages."""
    page = await session.client.waits(run_id=run_id, status=None, limit=MOST_SHOWN)
    waits = list(page)
    while page.next_cursor is not None and len(waits) < MOST_SHOWN:
        left = MOST_SHOWN - len(waits)
        page = await session.client.waits(run_id=run_id, status=None, limit=left, cursor=page.next_cursor)
        waits += page
    return waits


def _items(out: Output, progress: Progress) -> None:
    """How far the items of a run have come, as a bar and in words."""
    parts = [(progress.done + progress.dropped, "green"), (progress.rejected, "red"), (progress.dead, "yellow")]
    out.bar("items", parts, progress.expected, _spoken(progress))


def _spoken(progress: Progress) -> str:
    """Counts of items in words; dropped ones and dead letters where there are any."""
    words = [f"{progress.expected:,} expected" if progress.is_filled else f"{progress.expected:,} so far"]
    words += [f"{getattr(progress, name):,} {name}" for name in ("dispatched", "answered", "done", "rejected")]
    words += [f"{progress.dropped:,} dropped"] if progress.dropped else []
    words += [f"{progress.dead:,} in dead letters"] if progress.dead else []
    return ", ".join(words)


def _facts(info: RunInfo, now: datetime) -> list[tuple[str, Cell]]:
    facts = [
        ("id", Cell(info.id, "bold")),
        ("definition", Cell(f"{info.definition}@{info.version}")),
        ("status", status_cell(info.status, info.held)),
        ("step", Cell(info.step)),
        ("attempt", Cell(str(info.attempt)) if info.attempt else None),
        ("workspace", Cell(info.workspace)),
        ("key", Cell(info.correlation_key) if info.correlation_key is not None else None),
        ("tags", Cell(", ".join(f"{k}={v}" for k, v in info.tags.items())) if info.tags else None),
        ("parent", Cell(info.parent_id) if info.parent_id is not None else None),
        ("retry of", Cell(info.retry_of) if info.retry_of is not None else None),
        ("created", age_cell(info.created_at, now)),
        ("changed", age_cell(info.updated_at, now)),
        ("ended", age_cell(info.ended_at, now) if info.ended_at is not None else None),
        ("input", value_cell(info.input)),
        ("state", value_cell(info.state) if info.state != info.input else None),
        ("result", value_cell(info.result) if info.status == "completed" else None),
        ("error", Cell(info.error.told, "red" if info.status == "failed" else "") if info.error is not None else None),
    ]
    return [(name, cell) for name, cell in facts if cell is not None]


def explain(
    run: RunArgument,
    *,
    at: Place,
) -> int:
    """Say why a run stands where it stands, and what to do.

    What it waits for, since when and until when, who can answer and how, and what was refused.
    """

    async def work(session: Session) -> None:
        found = await session.client.explain(await session.run_id(run), options=at.options())
        if session.out.as_json:
            session.out.value(found)
            return
        for number, sentence in enumerate(found.explanation):
            session.out.sentence(sentence, style="bold" if number == 0 else "")

    return perform(at, work)
