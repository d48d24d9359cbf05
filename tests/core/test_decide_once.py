"""Idempotency keys, decided (H2)."""

from __future__ import annotations

from datetime import datetime

from bide.core.batch import View
from bide.core.commands import AnyCommand, Once, OnceKey, Reply, Start
from bide.core.decide import decide_all
from bide.core.once import KEPT_FOR
from bide.core.records import RunId
from tests.support.decisions import NOW

KEY = OnceKey(path="/v1/runs", key="k", digest="d")


def once(run_id: str) -> Once:
    start = Start(
        workspace="default",
        run_id=RunId(run_id),
        definition="order",
        version="1",
        style="machine",
        step="begin",
        input="null",
    )
    return Once(workspace="default", once=KEY, command=start, outlives_run=True)


def decide(before: View, at: datetime, command: AnyCommand) -> tuple[View, Reply]:
    """What the next commit makes of the rows that the one before left."""
    view = View(at, None)
    view.names.update(before.names)
    view.outside.chores.update({id: chore for id, chore in before.changes.chores.items() if chore is not None})
    [reply] = decide_all(view, [command])
    return view, reply


def test_H2_a_key_that_is_used_anew_takes_the_place_of_the_row_that_was_read() -> None:
    """A rival may use it anew at the same time: where the row is another by then, this one looks again."""
    used, _ = decide(View(NOW, None), NOW, once("run_1"))
    [(key, row)] = used.names.items()
    anew, _ = decide(used, NOW + KEPT_FOR, once("run_2"))
    assert anew.changes.names_deleted == {key: row}
