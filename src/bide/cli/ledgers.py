"""`ledger show` and `ledger verify`: what happened to a run, and the proof that nobody changed the record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bide.cli.archives import SUFFIX, read_file
from bide.cli.options import Place, StorePlace
from bide.cli.output import Cell, Column, Output, age_cell, to_json
from bide.cli.session import Session, StoreSession, Target, perform, perform_on_store
from bide.cli.usage import RunArgument
from bide.engine.runtime import ledger_secrets


def show(
    run: RunArgument,
    *,
    at: Place,
) -> int:
    """Print everything that happened to a run, oldest first."""

    async def work(session: Session) -> None:
        entries = await session.client.ledger(await session.run_id(run))
        if session.out.as_json:
            session.out.value({"items": entries, "next_cursor": None})
            return
        now = await session.now()
        columns = [
            Column("seq", whole=True),
            Column("when", whole=True),
            Column("entry", whole=True),
            Column("actor"),
            Column("data"),
        ]
        session.out.table(
            columns,
            [
                [
                    Cell(str(e.seq)),
                    age_cell(e.at, now),
                    Cell(e.name),
                    Cell(e.actor, "dim"),
                    Cell(to_json(e.data), "dim"),
                ]
                for e in entries
            ],
        )

    return perform(at, work)


def verify(
    run: RunArgument,
    file: Annotated[
        bool, typer.Option("--file", help="RUN is a file that `ledger export` wrote, whatever it is called.")
    ] = False,
    *,
    at: StorePlace,
) -> int:
    """Prove that nothing in a run's ledger was changed.

    Nor removed: the exit code is 1 where something was. A file that `ledger export` wrote is looked at by itself,
    without a store.
    """
    if file or (run.endswith(SUFFIX) and Path(run).is_file()):
        return _verify_file(Path(run), at)

    async def work(session: StoreSession) -> int:
        from bide.core import ledger
        from bide.core.accounting import kept_of

        row = await session.run(run)
        pages = [(page.seq, page.entries) for page in await session.store.ledger(row.id, as_found=True)]
        kept = kept_of(row, await session.store.steps(row.id))
        broken = ledger.flaw(pages, row.ledger_head, row.ledger_seq, row.status, kept)
        secrets = ledger_secrets(session.app.settings())
        if broken is None and secrets:
            entries = [entry for _, text in pages for entry in ledger.decode_page(text)]
            broken = ledger.unsigned(row.id, entries, secrets)
        reason = broken.reason if broken is not None else None
        if session.out.as_json:
            told = {"id": row.id, "verified": broken is None, "entries": row.ledger_seq, "reason": reason}
            session.out.value({**told, "first_bad": broken.seq if broken is not None else None})
        elif reason is None:
            session.out.line(f"{row.id}: all {row.ledger_seq} entries hold", "green")
        else:
            session.out.line(f"{row.id}: {reason}", "red")
        return 0 if reason is None else 1

    return perform_on_store(at, work)


def _verify_file(file: Path, target: Target) -> int:
    found = read_file(file, ledger_secrets(target.open_app().settings()))
    out = Output(as_json=target.json)
    if out.as_json:
        told = {"id": found.run.id, "verified": True, "entries": len(found.entries), "reason": None}
        out.value({**told, "signed_by": found.signed_by})
    else:
        signed = f", signed with {found.signed_by}" if found.signed_by else ", not signed"
        out.line(f"{found.run.id}: all {len(found.entries)} entries hold{signed}", "green")
    return 0
