"""`answer`, `waits move|fail|cancel|assign|answer` and `dead-letters`: what people and operators do to open waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.cli import looking
from bide.cli.changing import OUTCOMES
from bide.cli.options import Filters, Place
from bide.cli.output import Cell, Column, age_cell
from bide.cli.session import Session, Target, perform
from bide.cli.usage import (
    CursorOption,
    LimitOption,
    UsageProblem,
    read_duration,
    read_json,
)

if TYPE_CHECKING:
    from bide.views import WaitsChanged


def answer(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="An interaction, wait or signal id.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who answers.", show_default=False)] = None,
    shown: Annotated[
        str | None,
        typer.Option("--shown", metavar="DIGEST", help="The digest of what they saw.", show_default=False),
    ] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option("--dedup-key", metavar="KEY", help="Makes sending it again harmless.", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the ledger.")] = "",
    *,
    at: Place,
) -> int:
    """Answer a task, a wait or a signal id.

    Who is in which group is known to the app: give --app where a group may answer.
    """

    async def work(session: Session) -> None:
        from bide.client.refusals import raise_late

        given = read_json(data, "the answer", session.max_payload_bytes)
        receipt = await session.client.answer(target, given, by, dedup_key, shown=shown, reason=reason)
        raise_late(receipt, target)
        if session.out.as_json:
            session.out.value(receipt)
            return
        said = SAID.get(receipt.outcome, OUTCOMES.get(receipt.outcome, "{run}")).format(run=receipt.run_id)
        session.out.line(f"{receipt.outcome}: {said}", "green" if receipt.outcome == "woke" else "")

    return perform(at, work)


SAID = {
    "woke": "{run} has its answer and goes on",
    "queued": "the answer counts; {run} waits for more of them",
    "duplicate": "{run} had this answer already; nothing was changed",
}

# ---------------------------------------------------------------- open waits

IdArgument = Annotated[
    str | None,
    typer.Argument(metavar="[WAIT]", help="A wait or interaction id; else every wait that the filters find."),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the ledger.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print which waits are meant.")]


def move(
    deadline: Annotated[str, typer.Option("--deadline", metavar="TIME", help='From now, such as "2d"; or "never".')],
    reason: ReasonOption,
    wait: IdArgument = None,
    dry_run: DryRunOption = False,
    *,
    where: Filters,
    at: Place,
) -> int:
    """Move the deadline of open waits."""
    until = None if deadline == "never" else read_duration(deadline, "--deadline")
    return _change(
        at,
        wait,
        where,
        reason,
        dry_run,
        "update",
        "moved",
        {"deadline": until},
    )


def assign(
    reason: ReasonOption,
    wait: IdArgument = None,
    to: Annotated[str | None, typer.Option("--to", metavar="NAME", help="Whom to give it to.")] = None,
    to_group: Annotated[str | None, typer.Option("--to-group", metavar="GROUP", help="Or to which group.")] = None,
    dry_run: DryRunOption = False,
    *,
    where: Filters,
    at: Place,
) -> int:
    """Give open waits to others."""
    if to is None and to_group is None:
        raise UsageProblem("whom is it for? give --to, --to-group or both")
    people = {"assignee": to, "group": to_group}
    return _change(at, wait, where, reason, dry_run, "update", "assigned", people)


def fail(
    reason: ReasonOption,
    wait: IdArgument = None,
    dry_run: DryRunOption = False,
    *,
    where: Filters,
    at: Place,
) -> int:
    """Fail open waits: their runs are told why."""
    return _change(at, wait, where, reason, dry_run, "fail", "failed", {})


def cancel(
    reason: ReasonOption,
    wait: IdArgument = None,
    dry_run: DryRunOption = False,
    *,
    where: Filters,
    at: Place,
) -> int:
    """Cancel open waits: their runs are told why."""
    return _change(at, wait, where, reason, dry_run, "cancel", "cancelled", {})


def answer_many(
    reason: ReasonOption,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who answers.", show_default=False)] = None,
    dry_run: DryRunOption = False,
    *,
    where: Filters,
    at: Place,
) -> int:
    """Give open waits the same answer; `bide answer` answers one.

    Each takes it or refuses it for itself. With --dry-run the data is looked at, not who answers.
    """
    if not where:
        raise UsageProblem("say by filters which waits are meant; for one wait there is `bide answer`")

    async def work(session: Session) -> int:
        given = read_json(data, "the answer", session.max_payload_bytes)
        if "run_id" in where:
            where["run_id"] = await session.run_id(where["run_id"])
        changed = await session.client.answer_waits(given, reason=reason, by=by, dry_run=dry_run, **where)
        if session.out.as_json:
            outcomes = [
                {"id": one.id, "outcome": one.outcome, "reason": one.reason, "problems": one.problems}
                for one in changed.outcomes
            ]
            session.out.value({"ids": changed.ids, "count": changed.count, "dry_run": dry_run, "outcomes": outcomes})
        elif not changed.ids and not changed.outcomes:
            session.out.note("no open wait was found")
        else:
            for id in changed.ids:
                session.out.line(f"{id} {'would be ' if dry_run else ''}answered")
            for one in changed.outcomes:
                if one.id not in changed.ids:
                    session.out.line(f"{one.id} {'would be ' if dry_run else ''}refused, {one.outcome}: {one.reason}")
        return 1 if changed.refused and not dry_run else 0

    return perform(at, work)


def _change(
    target: Target,
    wait: str | None,
    where: dict[str, Any],
    reason: str,
    dry_run: bool,
    verb: str,
    done: str,
    changes: dict[str, Any],
) -> int:
    if (wait is None) == (not where):
        raise UsageProblem("name one wait, or say by filters which are meant")

    async def work(session: Session) -> None:
        client: Any = session.client
        if "run_id" in where:
            where["run_id"] = await session.run_id(where["run_id"])
        if wait is None:
            in_bulk = {f"to_{name}" if name != "deadline" else name: value for name, value in changes.items()}
            changed = await getattr(client, f"{verb}_waits")(reason=reason, dry_run=dry_run, **in_bulk, **where)
            _print_changed(session, changed, done)
            return
        if not dry_run:
            await getattr(client, f"{verb}_wait")(wait, reason=reason, **changes)
        from bide.views import WaitsChanged

        _print_changed(session, WaitsChanged(ids=((await client.wait(wait)).id,), dry_run=dry_run), done)

    return perform(target, work)


def _print_changed(session: Session, changed: WaitsChanged, done: str) -> None:
    if session.out.as_json:
        session.out.value({"ids": changed.ids, "count": changed.count, "dry_run": changed.dry_run})
        return
    for id in changed.ids:
        session.out.line(f"{id} {'would be ' if changed.dry_run else ''}{done}")
    if not changed.ids:
        session.out.note("no open wait was found")


# ---------------------------------------------------------------- dead letters

LETTER_COLUMNS = [
    Column("id", whole=True),
    Column("kind", whole=True),
    Column("since", whole=True),
    Column("tries", whole=True),
    Column("error"),
]


def dead_letters(
    context: typer.Context,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    *,
    at: Place,
) -> int:
    """List, retry or discard what bide stopped retrying."""
    if context.invoked_subcommand is not None:
        return 0

    async def work(session: Session) -> None:
        page = await session.client.dead_letters(cursor=cursor, limit=limit)
        now = await session.now()
        rows = [
            [Cell(row.id), Cell(row.kind), age_cell(row.at, now), Cell(str(row.tries)), Cell(row.error)] for row in page
        ]
        looking.print_page(session.out, page, "dead letters", LETTER_COLUMNS, rows)

    return perform(at, work)


def retry(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the dead letter.")],
    *,
    at: Place,
) -> int:
    """Try it again from the start."""
    return _settle(at, id, "retry", "is tried again")


def discard(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the dead letter.")],
    *,
    at: Place,
) -> int:
    """Give it up."""
    return _settle(at, id, "discard", "is discarded")


def _settle(target: Target, id: str, action: str, said: str) -> int:
    async def work(session: Session) -> None:
        await getattr(session.client, f"{action}_dead_letter")(id)
        if session.out.as_json:
            session.out.value({"id": id, "done": action})
        else:
            session.out.line(f"{id} {said}")

    return perform(target, work)
