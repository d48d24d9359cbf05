"""`policy test`: what the app's policies would have said of what has happened."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from bide.cli.options import StorePlace
from bide.cli.output import Cell, Column
from bide.cli.session import StoreSession, perform_on_store
from bide.cli.usage import LimitOption
from bide.errors import BadConfiguration

WORDS = {"Allow": "allowed", "Deny": "denied", "NeedsApproval": "needs approval"}
PAGE = 100


def try_out(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Only this run, by id or key.", show_default=False)
    ] = None,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="Only runs of this definition.")
    ] = None,
    limit: LimitOption = 1000,
    *,
    at: StorePlace,
) -> int:
    """Try the app's policies against recorded history.

    Each start, suspension, resumption, answer and cancel is put before them as if it were about to
    happen; nothing changes. What they would not have allowed is printed.
    """
    aim = at
    aim.need_app("policy test")

    async def work(session: StoreSession) -> None:
        if not session.app.registry.governor.is_asked:
            raise BadConfiguration(f"app {session.app.name!r} has no policy: give it one with @app.policy")
        counts: Counter[str] = Counter()
        refused: list[dict[str, Any]] = []
        for row in await _runs(session, run, definition, limit):
            await _judge(session, row, counts, refused)
        if session.out.as_json:
            session.out.value({"items": refused, "counts": dict(counts), "next_cursor": None})
            return
        if refused:
            columns = [
                Column(name, whole=name in ("run", "seq")) for name in ("run", "seq", "action", "verdict", "why")
            ]
            session.out.table(columns, [[Cell(str(each[column.title])) for column in columns] for each in refused])
        words = ", ".join(f"{counts[word]} {word}" for word in WORDS.values())
        session.out.line(f"{counts.total()} actions judged: {words}")

    return perform_on_store(aim, work)


async def _runs(session: StoreSession, run: str | None, definition: str | None, limit: int) -> list[Any]:
    from bide.stores.interface import RunFilter

    if run is not None:
        return [await session.run(run)]
    rows: list[Any] = []
    filter = RunFilter(workspace=session.target.workspace, definition=definition)
    while len(rows) < limit:
        after = rows[-1].id if rows else None
        page = await session.store.runs(filter, after=after, limit=min(PAGE, limit - len(rows)))
        if not page:
            break
        rows += page
    return rows


async def _judge(session: StoreSession, row: Any, counts: Counter[str], refused: list[dict[str, Any]]) -> None:
    from bide.core import ledger
    from bide.core.governing import Allow, Deny, recorded_actions

    entries = (e for page in await session.store.ledger(row.id) for e in ledger.decode_page(page.entries))
    for seq, action in recorded_actions(row, entries):
        verdict = await session.app.registry.governor.verdict(action)
        word = WORDS[type(verdict).__name__]
        counts[word] += 1
        if not isinstance(verdict, Allow):
            why = verdict.reason if isinstance(verdict, Deny) else verdict.title
            refused.append({"run": row.id, "seq": seq, "action": action.kind, "verdict": word, "why": why})
