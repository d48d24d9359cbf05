"""`start`, `signal`, `emit`, `cancel`, `retry`: the verbs that change runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bide.cli.options import Place
from bide.cli.output import Cell, status_cell
from bide.cli.session import Session, perform
from bide.cli.usage import (
    RunArgument,
    is_duration,
    read_duration,
    read_json,
    read_tags,
)

FOREVER = "forever"


class StartCommand(TyperCommand):
    """Lets `--wait` stand alone or be followed by a duration: a duration is never an input, since it is no JSON."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_with_wait(args)))


def _with_wait(args: list[str]) -> list[str]:
    read: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*read, word, *rest]
        if word == "--wait":
            word = f"--wait={rest.pop(0) if rest and is_duration(rest[0]) else FOREVER}"
        read.append(word)
    return read


def start(
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="The name of the definition.")],
    input: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    correlation_key: Annotated[
        str | None,
        typer.Option("--correlation-key", metavar="KEY", help="Its address while it lives.", show_default=False),
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help='Not before, such as "30m".', show_default=False)
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="May be repeated.")] = None,
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="[TIME]", help="Wait for the end and print the result.", show_default=False),
    ] = None,
    *,
    at: Place,
) -> int:
    """Start a run.

    Prints its id; with --wait its result, which needs a worker somewhere.
    """
    at.need_app("start")
    pause = read_duration(delay, "--delay")
    tags = read_tags(tag or [])
    limit = None if wait in (None, FOREVER) else read_duration(wait, "--wait")

    async def work(session: Session) -> None:
        given = read_json(input, "the input", session.max_payload_bytes)
        run = await session.client.start(definition, given, correlation_key=correlation_key, delay=pause, tags=tags)
        out = session.out
        if wait is not None:
            if out.is_terminal and not out.as_json:
                out.note(f"started {run.id}; waiting for its end")
            result = await run.result(timeout=limit)
            if not out.as_json:
                out.value(result)
                return
        if out.as_json:
            out.value(run.info)
        elif out.is_terminal:
            out.line(f"started {run.id} ({run.info.definition}@{run.info.version})", "green")
        else:
            out.line(run.id)

    return perform(at, work, creates=True)


OUTCOMES = {
    "woke": "{run} was waiting for it and goes on",
    "queued": "it lies in the inbox of {run} until the run awaits it",
    "duplicate": "{run} had it already under this dedup key; nothing was changed",
}


def signal(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A run id or a correlation key.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option("--dedup-key", metavar="KEY", help="Makes sending it again harmless.", show_default=False),
    ] = None,
    *,
    at: Place,
) -> int:
    """Send a signal to a run."""

    async def work(session: Session) -> None:
        given = read_json(payload, "the payload", session.max_payload_bytes)
        receipt = await session.client.signal(target, name, given, dedup_key)
        if session.knows_no_definitions and given is not None:
            session.out.note("not checked: what a definition declares for a signal is known with --app only")
        if session.out.as_json:
            session.out.value(receipt)
        else:
            said = OUTCOMES.get(receipt.outcome, "{run}").format(run=receipt.run_id)
            session.out.line(f"{receipt.outcome}: {said}", "green" if receipt.outcome == "woke" else "")

    return perform(at, work)


_ANSWERED = {
    "woke": "has its answer and goes on",
    "queued": "keeps the answer until it waits for it",
    "duplicate": "had this answer already",
}


def complete(
    signal_id: Annotated[str, typer.Argument(metavar="SIGNAL_ID", help="The id that a workflow waits on.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Which run is meant, after a collision.", show_default=False),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who answers.", show_default=False)] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option("--dedup-key", metavar="KEY", help="Makes answering again harmless.", show_default=False),
    ] = None,
    hold: Annotated[
        str | None,
        typer.Option(
            "--hold",
            metavar="TIME",
            help="Where no wait is open: keep the answer this long for the first one, such as 10m.",
            show_default=False,
        ),
    ] = None,
    *,
    at: Place,
) -> int:
    """Answer the wait that holds a signal id."""

    async def work(session: Session) -> None:
        from bide.client.refusals import raise_late

        given = read_json(data, "the data", session.max_payload_bytes)
        receipt = await session.client.complete(signal_id, given, run_id=run, by=by, dedup_key=dedup_key, hold=hold)
        raise_late(receipt, signal_id)
        if session.out.as_json:
            session.out.value(receipt)
        else:
            said = f"{receipt.run_id} {_ANSWERED[receipt.outcome]}"
            if receipt.run_id is None:
                said = f"the answer is held for the first wait of {signal_id}"
            session.out.line(f"{receipt.outcome}: {said}", "green")

    return perform(at, work)


def emit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the event, such as order.shipped.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="JSON, @file, or - for stdin.", show_default=False)
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Makes emitting it again harmless.", show_default=False),
    ] = None,
    channel: Annotated[str, typer.Option("--channel", metavar="NAME", help="Where it comes from.")] = "api",
    *,
    at: Place,
) -> int:
    """Put an event on the workspace's stream.

    Runs that wait for it go on, and definitions of the app that it triggers are started.
    """
    at.need_app("emit")

    async def work(session: Session) -> None:
        given = read_json(data, "the data", session.max_payload_bytes)
        receipt = await session.client.emit(name, given, id=id, channel=channel)
        if session.out.as_json:
            session.out.value(receipt)
        else:
            did = f"{receipt.started} started, {receipt.resumed} resumed"
            session.out.line(f"{receipt.outcome}: {did} ({receipt.id})", "green" if receipt.outcome == "woke" else "")

    return perform(at, work, creates=True)


def cancel(
    run: RunArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept in the ledger.", show_default=False)
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="End it at once, without its clean-up.")] = False,
    *,
    at: Place,
) -> int:
    """Cancel a run and its children."""

    async def work(session: Session) -> None:
        run_id = await session.run_id(run)
        await session.client.cancel(run_id, reason=reason, force=force)
        info = await session.client.get(run_id)
        if session.out.as_json:
            session.out.value(info)
        elif info.status == "cancelled":
            session.out.line(f"{run_id} is cancelled")
        else:
            session.out.line(f"{run_id} is being cancelled: its clean-up runs first (--force ends it at once)")

    return perform(at, work)


def retry(
    run: RunArgument,
    from_step: Annotated[
        str | None, typer.Option("--from-step", help="Run this step of a failed workflow anew, and all after it.")
    ] = None,
    *,
    at: Place,
) -> int:
    """Release a held run, or start a failed one anew."""

    async def work(session: Session) -> None:
        run_id = await session.run_id(run)
        goes_on = await session.client.retry(run_id, from_step=from_step)
        if session.out.as_json:
            session.out.value(goes_on.info)
        elif goes_on.id == run_id:
            session.out.facts([("released", Cell(run_id)), ("status", status_cell(goes_on.status, goes_on.info.held))])
        else:
            session.out.line(f"started {goes_on.id}, which retries {run_id}")

    return perform(at, work)
