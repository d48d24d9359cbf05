"""Idempotency keys, decided: what their time, and its end, leaves of them (H2)."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from bide.core.batch import View
from bide.core.commands import AnyCommand, Done, Once, OnceKey, Reply, Start, Started
from bide.core.decide import decide_all
from bide.core.once import KEPT_FOR, once_name
from bide.core.records import NO_RUN, Chore, RunId
from bide.core.requests import LetGo
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


def the_chore(view: View) -> Chore:
    [chore] = view.changes.chores.values()
    assert chore is not None
    return chore


def test_H2_a_key_whose_time_is_up_is_forgotten() -> None:
    used, _ = decide(View(NOW, None), NOW, once("run_1"))
    forgotten, reply = decide(used, NOW + KEPT_FOR, LetGo(workspace="default", run_id=NO_RUN, chore=the_chore(used)))
    assert reply == Done(True)
    assert forgotten.names[("default", "dedup", once_name(KEY))] is None


def test_H2_a_key_that_was_used_anew_is_not_forgotten_with_its_first_use() -> None:
    """Whoever was about to forget it has claimed the chore of the first use: that of the second is another."""
    used, _ = decide(View(NOW, None), NOW, once("run_1"))
    claimed = replace(the_chore(used), tries=1)
    anew, reply = decide(used, NOW + KEPT_FOR, once("run_2"))
    assert isinstance(reply, Started)

    kept, reply = decide(anew, NOW + KEPT_FOR, LetGo(workspace="default", run_id=NO_RUN, chore=claimed))

    assert isinstance(reply, Done)
    assert not reply.changed
    assert kept.changes.is_empty
    _, reply = decide(anew, NOW + KEPT_FOR, once("run_3"))
    assert isinstance(reply, Started)
    assert (reply.run.id, reply.repeated) == ("run_2", True)


def test_H2_a_key_that_is_used_anew_takes_the_place_of_the_row_that_was_read() -> None:
    """A rival may use it anew at the same time: where the row is another by then, this one looks again."""
    used, _ = decide(View(NOW, None), NOW, once("run_1"))
    [(key, row)] = used.names.items()
    anew, _ = decide(used, NOW + KEPT_FOR, once("run_2"))
    assert anew.changes.names_deleted == {key: row}
