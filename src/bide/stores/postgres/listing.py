"""Which statement a listing is: the filter that narrows most has an index, the others are looked at row by row."""

from __future__ import annotations

import msgspec

from bide.core.records import OPEN_INTERACTION
from bide.stores.interface import InteractionFilter, RunFilter, WaitFilter
from bide.stores.postgres.arrays import array


def of_runs(filter: RunFilter, after: str | None, limit: int) -> tuple[str, list[object]]:
    """The statement and its parameters for a page of runs."""
    tags = msgspec.json.encode(filter.tags).decode() if filter.tags else None
    common = [after or "", filter.status, filter.definition, filter.held, tags, limit]
    if filter.parent_id is not None:
        return "select_runs_of_parent", [filter.parent_id, *common, filter.workspace, filter.correlation_key]
    if filter.correlation_key is not None:
        return "select_runs_of_correlation_key", [filter.correlation_key, *common, filter.workspace]
    if filter.workspace is not None:
        return "select_runs_of_workspace", [filter.workspace, *common]
    return "select_runs", [None, *common]


def of_waits(filter: WaitFilter, after: tuple[str, int] | None, limit: int) -> tuple[str, list[object]]:
    """The statement and its parameters for a page of waits."""
    last = after or ("", 0)
    statement = "select_waits_of_run" if filter.run_id is not None else "select_waits_page"
    terms = [filter.no, filter.kind, filter.definition, filter.channel, filter.assignee, filter.group]
    return statement, [*last, filter.workspace, filter.run_id, filter.status, filter.opened_before, limit, *terms]


def of_interactions(
    filter: InteractionFilter, after: tuple[str, int, int] | None, limit: int
) -> tuple[str, list[object]]:
    """The statement and its parameters for a page of interactions."""
    last = after or ("", 0, 0)
    statement = "select_interactions_of_run" if filter.run_id is not None else "select_interactions_page"
    is_open = bool(filter.statuses) and OPEN_INTERACTION.issuperset(filter.statuses)
    if filter.run_id is None and filter.workspace is not None and is_open:
        statement = "select_open_interactions"
    names = ("workspace", "run_id", "no", "item", "definition", "channel", "assignee", "group")
    statuses = array(filter.statuses) if filter.statuses else None
    return statement, [*last, *(getattr(filter, name) for name in names), statuses, limit]
