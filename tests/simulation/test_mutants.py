"""The simulation finds what it is for: each of these rules, when it is broken, is noticed within some seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bide.core import completing, history, meetings, moves, turns
from bide.core.batch import Draft
from bide.core.commands import Committed, CommitTurn, Listening, NewStep, Reply, Suspend, Unseen
from bide.core.holding import chore_id
from bide.core.records import Name, Run, Wait
from tests.simulation.simulation import Broken, simulate

Patch = pytest.MonkeyPatch
SEEDS, LENGTH = 150, 80


def lost_when_given_up(patch: Patch) -> None:
    """What a wait took that the body had given up is not put back (law 1)."""

    def take_back(draft: Draft, run: Run, unseen: Unseen) -> Run:
        draft.steps[(run.id, unseen.key)] = None
        return run

    patch.setattr(history, "_take_back", take_back)


def deaf_while_it_opens(patch: Patch) -> None:
    """A wait for an event does not hear what came before it opened (law 2)."""

    def listen(draft: Draft, run: Run, wait: Wait, listening: Listening) -> Run:
        draft.listeners[(run.id, wait.no)] = meetings.listener_of(wait, listening)
        return run

    patch.setattr(history, "listen", listen)


def deaf_to_patterns(patch: Patch) -> None:
    """An event is not looked for under patterns (F8)."""
    patch.setattr(meetings, "topics_of", lambda name: [name])


def lost_when_held(patch: Patch) -> None:
    """The first wait of a signal id takes the answer that was held for it, and does not have it (F7)."""

    def take_held(draft: Draft, run: Run, wait: Wait, name: Name) -> Run:
        draft.chores[chore_id(name.workspace, name.name)] = None
        return run

    patch.setattr(history, "take_held", take_held)


def forgotten_keys(patch: Patch) -> None:
    """The dedup key of an answer is not remembered (S7)."""
    patch.setattr(completing, "remember", lambda draft, command, run_id: None)


def counted_twice(patch: Patch) -> None:
    """An event with a known id happens again (S7)."""
    patch.setattr(Draft, "event", lambda draft, workspace, event_id: None)


def asleep_for_good(patch: Patch) -> None:
    """A turn parks although one of its waits ended meanwhile (D4)."""
    by_the_rules = turns._suspend

    def suspend(draft: Draft, run: Run, command: CommitTurn, move: Suspend) -> Reply:
        still_open = draft.open_waits(run)
        if not still_open:
            return by_the_rules(draft, run, command, move)
        return Committed(moves.park(draft, run, still_open[-1]), False)

    patch.setattr(turns, "_suspend", suspend)


def unfenced(patch: Patch) -> None:
    """A worker that lost its claim commits all the same (D3)."""
    by_the_rules = turns.commit

    def commit(draft: Draft, command: CommitTurn) -> Reply:
        run = draft.run(command.run_id)
        fence = {"epoch": run.epoch, "commits": run.commits} if run is not None else {}
        return by_the_rules(draft, replace(command, **fence))

    patch.setattr(turns, "commit", commit)


def not_remembered(patch: Patch) -> None:
    """What a step came to is told to the body, and not stored (D2)."""
    by_the_rules = history._record_step

    def record(draft: Draft, run: Run, step: NewStep) -> Run:
        run = by_the_rules(draft, run, step)
        del draft.steps[(run.id, step.key)]
        return run

    patch.setattr(history, "_record_step", record)


def forsaken(patch: Patch) -> None:
    """A parent is not told of the end of its child (law 15)."""
    patch.setattr(moves, "_tell_parent", lambda draft, child: None)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (lost_when_given_up, "was handed"),
    (deaf_while_it_opens, "did not hear it"),
    (deaf_to_patterns, "it should have"),
    (lost_when_held, "was taken 0 times, and 0 times kept"),
    (forgotten_keys, "given again was answered"),
    (counted_twice, "emitted again was answered"),
    (asleep_for_good, "was not handed what became of"),
    (unfenced, "held the run|I1 |I8|I9|epochs|handed|stored"),
    (not_remembered, "again, whose result|completed 2 times|stored is"),
    (forsaken, "I13"),
]


@pytest.mark.parametrize(("mutate", "says"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
async def test_the_simulation_finds_a_broken_rule(
    monkeypatch: Patch, mutate: Callable[[Patch], None], says: str
) -> None:
    mutate(monkeypatch)
    with pytest.raises(Broken, match=says):
        await live_through(range(SEEDS))


async def live_through(seeds: range) -> None:
    for seed in seeds:
        await simulate(seed, length=LENGTH)
