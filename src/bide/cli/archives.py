"""`ledger export` and `ledger import`: the record of an ended run as a file, and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.options import StorePlace
from bide.cli.session import StoreSession, perform_on_store
from bide.cli.usage import UsageProblem
from bide.core import archive
from bide.core.commands import Done, Restore
from bide.core.records import FINAL
from bide.engine.runtime import ledger_secrets, signing_key
from bide.errors import BadArchive
from bide.stores.interface import RunFilter

if TYPE_CHECKING:
    from bide.core.records import Run

PAGE = 200
SUFFIX = ".jsonl"

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Archives that `ledger export` wrote.")]


def export(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The id of a run that has ended.", show_default=False),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Write every ended run there that is not there yet."),
    ] = None,
    *,
    at: StorePlace,
) -> int:
    """Write what happened to ended runs as archives.

    An archive proves itself. With RUN it is printed; with --to FOLDER each ended run becomes a file, so that a daily
    call keeps what retention deletes. Archives are signed where BIDE_LEDGER_SECRETS is set.
    """
    if (run is None) == (to is None):
        raise UsageProblem("give a RUN, or --to FOLDER for all runs that have ended", "bad_input")

    async def work(session: StoreSession) -> None:
        key = signing_key(session.app.settings())
        if run is not None:
            row = await session.run(run)
            sys.stdout.writelines(f"{line}\n" for line in await _lines(session, row, key))
            return
        assert to is not None, "checked before"
        to.mkdir(parents=True, exist_ok=True)
        written = 0
        for status in sorted(FINAL):
            after: str | None = None
            filter = RunFilter(workspace=session.target.workspace, status=status)
            while rows := await session.store.runs(filter, after=after, limit=PAGE):
                after = rows[-1].id
                for row in rows:
                    written += await _keep(session, row, to, key)
        if session.out.as_json:
            session.out.value({"written": written, "folder": str(to)})
        else:
            session.out.line(f"{written} archive{'' if written == 1 else 's'} written to {to}")

    return perform_on_store(at, work)


async def _lines(session: StoreSession, row: Run, key: tuple[str, str] | None) -> list[str]:
    if row.status not in FINAL:
        raise BadArchive(f"{row.id} is {row.status}: its record is not whole before it has ended")
    return list(archive.write(row, await session.store.ledger(row.id), key))


async def _keep(session: StoreSession, row: Run, folder: Path, key: tuple[str, str] | None) -> bool:
    """Write one archive, whole or not at all; False where it is there already."""
    file = folder / f"{row.id}{SUFFIX}"
    if file.exists():
        return False
    draft = file.with_suffix(".part")
    draft.write_text("".join(f"{line}\n" for line in await _lines(session, row, key)), encoding="utf-8")
    draft.replace(file)
    return True


def import_(
    files: FilesArgument,
    *,
    at: StorePlace,
) -> int:
    """Put archived runs back into a store.

    They can be looked at with the other verbs. Every file is checked before the first run is put back. Retention
    deletes them again where it is shorter than their age.
    """

    async def work(session: StoreSession) -> int:
        secrets = ledger_secrets(session.app.settings())
        archives = [read_file(file, secrets) for file in files]
        told: list[dict[str, object]] = []
        for found in archives:
            command = Restore(workspace=session.target.workspace, actor="cli", run=found.run, entries=found.entries)
            reply = (await session.runtime.committer.submit(command)).reply
            assert isinstance(reply, Done), f"a restore was answered with {reply}"
            told.append({"id": found.run.id, "imported": reply.changed, "reason": reply.reason or None})
        if session.out.as_json:
            session.out.value({"items": told, "next_cursor": None})
        else:
            for one in told:
                session.out.line(f"{one['id']}: {'imported' if one['imported'] else one['reason']}")
        return 0 if all(one["imported"] for one in told) else 1

    return perform_on_store(at, work, creates=True)


def read_file(file: Path, secrets: dict[str, str]) -> archive.Archive:
    """A file's archive, found whole. Raises `BadArchive` naming the file."""
    try:
        with file.open(encoding="utf-8") as lines:
            return archive.read(lines, secrets)
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read: {error.strerror}", "bad_input") from error
    except UnicodeDecodeError as error:
        raise BadArchive(f"{file}: it is not UTF-8 text ({error})") from error
    except archive.Unproven as error:
        raise BadArchive(f"{file}: {error}") from error
