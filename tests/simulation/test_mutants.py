"""The simulation finds what it is for: each of these rules, when it is broken, is noticed within some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bide.authoring.workflow.turn import WorkflowTurn
from bide.core import agenda, answering, completing, history, meetings, moves, operating, timing, turns
from bide.core.batch import Draft
from bide.core.commands import Committed, CommitTurn, Listening, NewStep, Reply, Suspend, Unseen
from bide.core.holding import chore_id
from bide.core.people import why_not
from bide.core.quorum import Given, Rule, Verdict, weigh
from bide.core.records import Name, Run, Wait
from bide.core.requests import Amend
from tests.simulation.accounts import Broken
from tests.simulation.simulation import simulate

Patch = pytest.MonkeyPatch
SEEDS, LENGTH = 300, 80


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


def ended_without_a_look(patch: Patch) -> None:
    """A run ends, and does not look what came meanwhile for waits that it has given up (law 1)."""
    patch.setattr(WorkflowTurn, "_all_open", property(lambda turn: set()))


def open_to_anybody(patch: Patch) -> None:
    """Whoever comes may answer, whomever the task is for (W11)."""

    def why(by: str | None, groups: tuple[str, ...], *, claimed_by: str | None = None, **_: Any) -> str | None:
        return why_not(by, groups, assignee=None, group=None, claimed_by=claimed_by)

    patch.setattr(answering, "why_not", why)


def claimed_in_vain(patch: Patch) -> None:
    """A task that somebody has claimed can be answered by others (W11)."""

    def why(by: str | None, groups: tuple[str, ...], *, claimed_by: str | None = None, **whom: Any) -> str | None:
        return why_not(by, groups, **whom)

    patch.setattr(answering, "why_not", why)


def without_veto(patch: Patch) -> None:
    """A veto counts as any vote (W11)."""

    def count(rule: Rule, given: Sequence[Given]) -> Verdict | None:
        return weigh(Rule(quorum=rule.quorum, decides=rule.decides, most_answers=rule.most_answers), given)

    patch.setattr(answering, "weigh", count)


def voted_twice(patch: Patch) -> None:
    """One person may vote as often as they like (W11)."""
    by_the_rules = answering._givens

    class Overlooked(list[Given]):
        """Nobody is found in it by whoever looks first."""

        is_looked_at = False

        def __iter__(self) -> Iterator[Given]:
            found = super().__iter__() if self.is_looked_at else iter(())
            self.is_looked_at = True
            return found

    class Forgetful:
        def decode(self, text: str) -> list[Given]:
            return Overlooked(by_the_rules.decode(text))

    patch.setattr(answering, "_givens", Forgetful())


def deaf_to_signs_of_life(patch: Patch) -> None:
    """A heartbeat is acknowledged, and the wait fails at the end of the time before it (W13)."""
    patch.setattr(agenda, "beat", lambda wait, now: None)


def moved_in_vain(patch: Patch) -> None:
    """A wait has another deadline, and is looked at when the one before is due (W10)."""
    by_the_rules = operating._amend

    def amend(draft: Draft, run: Run, wait: Wait, change: Amend, reason: str) -> Reply:
        reply = by_the_rules(draft, run, wait, change, reason)
        moved = draft.wait(run.id, wait.no)
        assert moved is not None
        draft.put_terms(replace(moved, due_at=wait.due_at))
        return reply

    patch.setattr(operating, "_amend", amend)


def escalated_to_nobody(patch: Patch) -> None:
    """An escalation is told of, and the task is for whom it was (W9)."""

    def assign(draft: Draft, wait: Wait, assignee: str | None, group: str | None) -> Wait:
        return wait

    patch.setattr(timing, "assign", assign)


def called_off_in_silence(patch: Patch) -> None:
    """An operator ends a wait, and its run sleeps on (W10)."""
    patch.setattr(operating, "wake", lambda draft, run, wait, step: run)


def left_on_the_desk(patch: Patch) -> None:
    """A wait ends, and its task can still be seen and claimed (U1)."""
    patch.setattr(moves, "close_all", lambda draft, wait, status: None)


# With the first seed that finds it, as things are: it is tried first, and a change that makes it live on another way is
# found by another one.
MUTANTS: list[tuple[Callable[[Patch], None], int, str]] = [
    (lost_when_given_up, 48, "was handed"),
    (deaf_while_it_opens, 7, "did not hear it"),
    (deaf_to_patterns, 0, "it should have"),
    (lost_when_held, 20, "was taken 0 times, and 0 times kept"),
    (forgotten_keys, 3, "given again was answered|it should be 200 duplicate"),
    (counted_twice, 4, "emitted again was answered"),
    (asleep_for_good, 115, "was not handed what became of"),
    (unfenced, 28, "held the run|I1 |I8|I9|epochs|handed|stored"),
    (not_remembered, 0, "again, whose result|completed 2 times|stored is"),
    (forsaken, 4, "I13"),
    (ended_without_a_look, 48, "was handed"),
    (open_to_anybody, 7, "it should be denied"),
    (claimed_in_vain, 85, "it should be denied"),
    (without_veto, 7, "it should be woke"),
    (voted_twice, 4, "it should be (duplicate|conflict)"),
    (deaf_to_signs_of_life, 71, "there was a sign of life"),
    (moved_in_vain, 3, "I11|nothing was done about"),
    (escalated_to_nobody, 0, "it was given to"),
    (called_off_in_silence, 0, "I4|was not handed what became of"),
    (left_on_the_desk, 0, "I5"),
]


@pytest.mark.parametrize(("mutate", "seed", "says"), MUTANTS, ids=[mutate.__name__ for mutate, _, _ in MUTANTS])
async def test_the_simulation_finds_a_broken_rule(
    monkeypatch: Patch, mutate: Callable[[Patch], None], seed: int, says: str
) -> None:
    mutate(monkeypatch)
    with pytest.raises(Broken, match=says):
        await live_through([seed, *range(SEEDS)])


async def live_through(seeds: Sequence[int]) -> None:
    for seed in seeds:
        await simulate(seed, length=LENGTH)
