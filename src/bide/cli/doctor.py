"""`doctor`: every setting with its source, the state of the store, and what looks wrong, with a remedy."""

from __future__ import annotations

import asyncio
import os
import platform
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bide.cli.options import StorePlace
from bide.cli.output import Cell, Column, Output
from bide.cli.session import Target, sqlite_path, without_password
from bide.core.ages import spoken
from bide.core.durations import format_duration
from bide.core.records import FINAL, Run, Wait
from bide.engine.runtime import resume_secrets
from bide.engine.settings import Settings, check_public_url
from bide.errors import BadConfiguration, BideError
from bide.stores.interface import RunFilter, Store, WaitFilter

if TYPE_CHECKING:
    from bide.app import App

SCANNED = 10_000  # rows looked at for each question: a large store must not make the doctor wait
PAGE = 1000
NAMED = 3
CLOCK_TOLERANCE = timedelta(seconds=2)
PATIENCE = timedelta(seconds=10)
LIVE = ("ready", "running", "waiting")

# Variables that are no field of `Settings` and yet mean something to bide.
OTHER_VARIABLES = {
    "BIDE_APP",
    "BIDE_AWAIT_AGGREGATE_MAX_INPUT_ITEMS",
    "BIDE_AWAIT_AGGREGATE_MAX_OUTPUT_ITEMS",
    "BIDE_FAILPOINT",
    "BIDE_PUBLIC_URL",
    "BIDE_RESUME_SECRETS",
}
MARKS = {"ok": ("ok", "green"), "notice": ("look", "yellow"), "problem": ("wrong", "red")}


class Finding(msgspec.Struct, frozen=True):
    """Something that was looked at. `remedy` says what to do where it is not ok."""

    level: Literal["ok", "notice", "problem"]
    message: str
    remedy: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the store answered."""

    url: str
    reachable: bool
    schema: int | None = None
    clock_difference_seconds: float | None = None
    runs: Mapping[str, int] = msgspec.field(default_factory=dict)


def doctor(
    *,
    at: StorePlace,
) -> int:
    """Show the settings, the store, and what looks wrong.

    The whole store is looked at; the exit code is 1 where something is wrong.
    """
    from bide import __version__

    opened = at.open_app()
    settings = opened.settings()
    path = sqlite_path(settings.store)
    if path is not None and not os.path.exists(path):  # looking must not make it
        health = Health(url=settings.store, reachable=False)
        findings = [Finding("notice", f"there is no store at {path} yet", "The first run or worker makes it.")]
    else:
        health, findings = asyncio.run(_examine(at, opened, without_password(settings.store)))
    findings = list(dict.fromkeys([*findings, *_of_settings(settings, os.environ)]))
    rows = list(_setting_rows(settings, at))
    out = Output(as_json=at.json)
    if at.json:
        out.value(
            {
                "bide": __version__,
                "python": platform.python_version(),
                "app": opened.name if at.app else None,
                "settings": [{"name": name, "value": value, "source": source} for name, value, source in rows],
                "store": health,
                "findings": findings,
            }
        )
    else:
        of_app = f", app {opened.name}" if at.app else ""
        out.line(f"bide {__version__}, Python {platform.python_version()}{of_app}", "dim")
        out.line()
        _print(out, rows, health, findings)
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def _print(out: Output, rows: list[tuple[str, str, str]], health: Health, findings: list[Finding]) -> None:
    out.line("settings", "bold")
    columns = [Column("name", whole=True), Column("value"), Column("source", whole=True)]
    out.table(columns, [[Cell(n), Cell(v), Cell(s, "dim" if s == "default" else "cyan")] for n, v, s in rows])
    out.line()
    out.line("store", "bold")
    out.facts(_store_facts(health))
    out.line()
    out.line("findings", "bold")
    for finding in findings:
        mark, style = MARKS[finding.level]
        out.sentence(finding.message, bullet=f"{mark:<7}", style=style if finding.level != "ok" else "")
        if finding.remedy is not None:
            out.sentence(finding.remedy, bullet=" " * 7)


def _store_facts(health: Health) -> list[tuple[str, Cell]]:
    facts = [("url", Cell(health.url)), ("reachable", Cell("yes" if health.reachable else "no"))]
    if health.schema is not None:
        facts.append(("schema", Cell(str(health.schema))))
    if health.clock_difference_seconds is not None:
        facts.append(("clock difference", Cell(f"{health.clock_difference_seconds:+.3f}s")))
    if health.reachable:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(health.runs.items())) or "none"
        facts.append(("runs", Cell(counts)))
    return facts


# ---------------------------------------------------------------- settings


def _setting_rows(settings: Settings, target: Target) -> Iterator[tuple[str, str, str]]:
    for field in fields_of(Settings):
        if field.name == "sources":
            continue
        value = getattr(settings, field.name)
        source = settings.sources.get(field.name, "default")
        if source == "argument":
            source = "--store" if field.name == "store" and target.store is not None else "the app"
        is_secret = field.name.endswith(("secrets", "keys"))
        yield field.name, ("set" if value else "none") if is_secret else _shown(value), source


def _shown(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return without_password(str(value)) or "none"


def _of_settings(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    names = {field.name for field in fields_of(Settings)} - {"sources"}
    variables = {f"BIDE_{name.upper()}" for name in names} | OTHER_VARIABLES
    for variable in sorted(environment):
        if variable.startswith("BIDE_") and variable not in variables and not variable.startswith("BIDE_TEST_"):
            yield Finding("notice", f"{variable} is set, and no setting of bide is called that", "Check its spelling.")
    file = Path("bide.toml")
    known = names | {variable.removeprefix("BIDE_").lower() for variable in OTHER_VARIABLES}
    for name in sorted(set(tomllib.loads(file.read_text("utf-8"))) - known if file.is_file() else ()):
        yield Finding("notice", f"bide.toml sets {name!r}, which bide does not know", "Check its spelling.")
    if settings.poll_interval > settings.lease:
        yield Finding(
            "notice",
            f"poll_interval ({format_duration(settings.poll_interval)}) is longer than the lease "
            f"({format_duration(settings.lease)}), so the runs of a dead worker are found late",
            "Make poll_interval shorter.",
        )
    try:
        check_public_url(settings)
    except BadConfiguration as error:
        yield Finding("problem", str(error), "`bide serve` and `bide worker` do not start with it.")
    try:
        resume_secrets(settings)
    except BadConfiguration as error:
        yield Finding("problem", str(error))
    if "public_url" not in settings.sources and settings.store.startswith("postgres"):
        yield Finding(
            "notice",
            f"public_url is not set, so resume links lead to {settings.public_url}",
            "Set BIDE_PUBLIC_URL to where the outside reaches `bide serve`.",
        )
    if settings.store.startswith("memory:"):
        yield Finding("notice", "a memory:// store dies with its process", "Use sqlite:///bide.db or postgresql://…")


# ---------------------------------------------------------------- the store


async def _examine(target: Target, app: App, url: str) -> tuple[Health, list[Finding]]:
    try:
        runtime = await app.runtime()
        try:
            health, clock = await _health(runtime.store, url)
            return health, [clock, *[finding async for finding in _findings(target, app, runtime.store)]]
        finally:
            await app.close()
    except BadConfiguration as error:
        return Health(url=url, reachable=False), [Finding("problem", str(error))]
    except BideError as error:
        return Health(url=url, reachable=False), [Finding("problem", f"the store cannot be used: {error}")]


async def _health(store: Store, url: str) -> tuple[Health, Finding]:
    before = datetime.now(UTC)
    now = await store.now()
    after = datetime.now(UTC)
    difference = now - (before + (after - before) / 2)
    health = Health(
        url=url,
        reachable=True,
        schema=_schema(url),
        clock_difference_seconds=round(difference.total_seconds(), 3),
        runs=await store.count_runs(None),
    )
    if abs(difference) <= CLOCK_TOLERANCE:
        return health, Finding("ok", "the store answers, and its clock agrees with this machine's")
    ahead = "ahead of" if difference > timedelta(0) else "behind"
    return health, Finding(
        "notice",
        f"the store's clock is {spoken(difference)} {ahead} this machine's; deadlines go by the store's",
        "Set both clocks by NTP.",
    )


def _schema(url: str) -> int | None:
    """The schema that this bide knows: a store that opened has it."""
    if url.startswith("sqlite:"):
        from bide.stores.sqlite.schema import NEWEST

        return NEWEST
    if _is_postgres(url):
        from bide.stores.postgres.statements import migrations

        return max(migrations())
    return None


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgresql:", "postgres:"))


async def _findings(target: Target, app: App, store: Store) -> AsyncIterator[Finding]:
    options = f" {target.options()}" if target.options() else ""
    if _is_postgres(app.settings().store):
        yield await _durability(store)
    live = [run async for run in _live_runs(store)]
    yield await _due(app, store, live, options)
    yield _held(await store.runs(RunFilter(held=True), after=None, limit=PAGE), options)
    yield await _deadlines(store, options)
    if target.app:
        yield _definitions(app, live)
    else:
        yield Finding("notice", "no app was named, so its definitions were not looked at", "Add --app module:app.")


async def _durability(store: Store) -> Finding:
    """Whether the server keeps what bide has answered for (S1)."""
    from bide.stores.postgres import PostgresStore

    assert isinstance(store, PostgresStore), "the URL named one"
    unsafe = await store.unsafe_settings()
    if not unsafe:
        return Finding("ok", "the server writes every commit to its disk before it answers")
    are = "is" if len(unsafe) == 1 else "are"
    return Finding(
        "problem",
        f"{', '.join(unsafe)} {are} off on the server: answers that were acknowledged may be gone after a crash",
        "Turn it on for the server, the database and the role: ALTER SYSTEM, ALTER DATABASE and ALTER ROLE set it.",
    )


async def _live_runs(store: Store) -> AsyncIterator[Run]:
    for status in LIVE:
        after, seen = None, 0
        while seen < SCANNED:
            page = await store.runs(RunFilter(status=status), after=after, limit=PAGE)
            for run in page:
                yield run
            if len(page) < PAGE:
                break
            after, seen = page[-1].id, seen + len(page)


async def _due(app: App, store: Store, live: list[Run], options: str) -> Finding:
    queues = {run.queue for run in live} | {definition.queue for definition in app.registry} | {"default"}
    due = await store.until_due(frozenset(queues))
    if due is None or due > -PATIENCE:
        return Finding("ok", "no work that is due lies about")
    now = await store.now()
    waiting = [run for run in live if run.status == "ready" and run.held is None and run.ready_at <= now]
    unserved = sorted({run.queue for run in waiting} - {"default"})
    runs = f" ({len(waiting)} ready runs)" if waiting else ""
    serve = "".join(f" --queue {queue}" for queue in (["default", *unserved] if unserved else []))
    return Finding(
        "problem",
        f"work has been due for {spoken(due)} and nobody took it{runs}",
        f"See that a worker runs and is not swamped, or start one with: bide worker{serve}{options}",
    )


def _held(held: Sequence[Run], options: str) -> Finding:
    if not held:
        return Finding("ok", "no run is held")
    return Finding(
        "problem",
        f"{_count(len(held), 'run is', 'runs are')} held: {_named([f'{run.id} ({run.held})' for run in held])}",
        f"See why with: bide explain {held[0].id}{options}",
    )


async def _deadlines(store: Store, options: str) -> Finding:
    """Law 12: a wait without a deadline is flagged."""
    endless: list[Wait] = []
    after: tuple[str, int] | None = None
    scanned = 0
    while scanned < SCANNED:
        page = await store.waits(WaitFilter(status="waiting"), after=after, limit=PAGE)
        endless += [wait for wait in page if wait.deadline is None]
        scanned += len(page)
        if len(page) < PAGE:
            break
        after = page[-1].run_id, page[-1].no
    if not endless:
        return Finding("ok", f"every open wait has a deadline{_as_far_as(scanned)}")
    return Finding(
        "notice",
        f"{_count(len(endless), 'open wait has', 'open waits have')} no deadline: {_named([w.id for w in endless])}",
        f"Give such waits a timeout in the code; see one with: bide explain {endless[0].run_id}{options}",
    )


def _definitions(app: App, live: list[Run]) -> Finding:
    wanted = {(run.definition, run.version) for run in live if run.status not in FINAL}
    lacking = sorted(f"{name}@{version}" for name, version in wanted if app.registry.find(name, version) is None)
    if not lacking:
        of_each = max(Counter(run.status for run in live).values(), default=0)
        return Finding("ok", f"{app.name} has every definition that live runs need{_as_far_as(of_each)}")
    return Finding(
        "problem",
        f"{app.name} lacks {_named(lacking)}, which live runs need",
        "Keep a version registered until its last run has ended, or cancel those runs.",
    )


def _as_far_as(scanned: int) -> str:
    """What to add to a good finding where there may be more than was looked at."""
    return f" (the first {SCANNED} were looked at; there may be more)" if scanned >= SCANNED else ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
