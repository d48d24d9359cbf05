"""Everything of a store that can be seen through its reads, to compare before with after and store with store."""

from __future__ import annotations

from collections.abc import Iterable

from bide.stores.interface import InteractionFilter, RunFilter, Store, WaitFilter

EVERYTHING = 1_000_000


async def visible_rows(store: Store, workspaces: Iterable[str] = ("default", "other")) -> dict[str, object]:
    runs = await store.runs(RunFilter(), after=None, limit=EVERYTHING)
    keys = {(run.workspace, run.correlation_key) for run in runs if run.correlation_key is not None}
    return {
        "runs": list(runs),
        "waits": list(await store.waits(WaitFilter(status=None), after=None, limit=EVERYTHING)),
        "inboxes": {run.id: list(await store.inbox(run.id)) for run in runs},
        "ledgers": {run.id: list(await store.ledger(run.id)) for run in runs},
        "holders": {(workspace, key): await store.holder(workspace, key) for workspace, key in sorted(keys)},
        "unused": {workspace: list(await store.unused(workspace, limit=EVERYTHING)) for workspace in workspaces},
        "counts": dict(await store.count_runs(None)),
        "chores": list(await store.due_chores(EVERYTHING)),
        "interactions": list(await store.interactions(InteractionFilter(), after=None, limit=EVERYTHING)),
        "dead letters": {
            workspace: list(await store.dead_letters(workspace, after=None, limit=EVERYTHING))
            for workspace in workspaces
        },
        "until due": await store.until_due(frozenset(run.queue for run in runs)),
    }
