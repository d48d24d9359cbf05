"""Trying the orders in which the outside can come, and showing the shortest that breaks a property (contract §12)."""

from __future__ import annotations

import heapq
import inspect
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar, get_args

from bide.app import App
from bide.engine.probes import Point
from bide.errors import BadInput, BideError
from bide.testing.world import ANY_STEP, World, world

Order = tuple[str, ...]
Check = Callable[[], Any]
C = TypeVar("C", bound=Check)

TIME: Final = "time passes"
HOLD: Final = "nobody works yet"
CRASHES: Final[dict[str, Point]] = {f"crash {point}": point for point in get_args(Point)}
PREPARES: Final = (*CRASHES, HOLD)  # they come before another move, and change what happens in it


class PropertyBroken(AssertionError):
    """A property that does not hold, with the shortest order of moves that was found to break it.

    >>> str(PropertyBroken(("pay", "pay"), "ships_once", AssertionError("shipped twice"))).splitlines()[:3]
    ['ships_once breaks in 2 moves (AssertionError: shipped twice):', '  pay', '  pay']
    """

    def __init__(self, order: Order, name: str, error: BaseException) -> None:
        super().__init__(order, name, error)
        self.order, self.name, self.error = order, name, error

    def __str__(self) -> str:
        moves = f"{len(self.order)} move{'' if len(self.order) == 1 else 's'}"
        said = f"{type(self.error).__name__}: {self.error}".partition("\n")[0].rstrip(": ")
        lines = [f"{self.name} breaks in {moves} ({said}):", *(f"  {move}" for move in self.order)]
        return "\n".join([*lines, f"play it again with: explore(…, order={list(self.order)!r})"])


@dataclass(frozen=True)
class Explored:
    """How many orders were tried, and whether these were all."""

    orders: int
    is_complete: bool


@dataclass
class Exploration:
    """What a scenario says: which moves the outside has, and what must hold whatever comes."""

    actions: dict[str, tuple[Callable[[], Any], int]] = field(default_factory=dict)
    always_checks: list[Check] = field(default_factory=list)
    end_checks: list[Check] = field(default_factory=list)

    def action(self, name: str, call: Callable[[], Any], *, times: int = 2) -> None:
        """Something that may come from outside, up to *times* times: the second is its duplicate.

        That bide refuses it is no mistake: it came too late, or twice.
        """
        if name in self.actions or name in (TIME, *PREPARES):
            raise BadInput(f"there is a move {name!r} already; give each its own name")
        self.actions[name] = (call, times)

    def always(self, check: C) -> C:
        """Must hold after every move; it asserts, or says False."""
        self.always_checks.append(check)
        return check

    def at_end(self, check: C) -> C:
        """Must hold when nothing more comes from outside; it may let time pass."""
        self.end_checks.append(check)
        return check


Scenario = Callable[[World, Exploration], Awaitable[None]]


async def explore(
    app: App,
    scenario: Scenario,
    *,
    crashes: int = 1,
    timeouts: int = 1,
    cancels: int = 1,
    races: int = 1,
    most: int = 500,
    samples: int = 100,
    seed: int = 0,
    order: Sequence[str] | None = None,
    **settings: Any,
) -> Explored:
    """Try the orders in which answers, duplicates, timeouts, crashes and cancels can come, the shortest ones first.

    *scenario* is called with a fresh world for every order: it starts runs, and declares actions and checks. Beside
    the actions, time passes to the next moment at which something is due, workers crash around the next step, runs
    are cancelled, and an action comes before anybody works on the one before; each as often as is said. Where there
    are more than *most* orders, *samples* of the longer ones are tried, chosen by *seed*. With *order* that one alone
    is. Raises `PropertyBroken` with the shortest order that breaks a check, or an invariant of the store.

    >>> async def scenario(world: World, ex: Exploration) -> None:
    ...     run = await world.start("checkout", {"order": 1})
    ...     ex.action("pay", lambda: world.signal(run.id, "paid", dedup_key="evt-1"))
    """
    limits = {TIME: timeouts, HOLD: races, "crash": crashes, "cancel": cancels}
    explorer = _Explorer(app, scenario, limits, settings)
    if order is not None:
        await explorer.play(_following(order))
        return Explored(1, False)
    count = itertools.count()
    waiting: list[tuple[int, int, Order]] = [(0, next(count), ())]
    tried = 0
    while waiting and tried < most:
        known = heapq.heappop(waiting)[2]
        tried += 1
        for more in (await explorer.play(_following(known))).further():
            heapq.heappush(waiting, (len(known) + len(more), next(count), known + more))
    if not waiting:
        return Explored(tried, True)
    for number in range(samples):
        await explorer.sample(Random(f"{seed}/{number}"))
    return Explored(tried + samples, False)


class _Explorer:
    def __init__(self, app: App, scenario: Scenario, limits: dict[str, int], settings: dict[str, Any]) -> None:
        self._app, self._scenario, self._limits, self._settings = app, scenario, limits, settings

    async def play(self, choose: Callable[[_Play], Order]) -> _Play:
        """One order in a world of its own; *choose* says what comes next, nothing at its end."""
        played: _Play | None = None
        try:
            async with world(self._app, **self._settings) as fresh:
                fresh.stubs.may_be_idle = True
                exploration = Exploration()
                await self._scenario(fresh, exploration)
                runs = [run.id for run in await fresh.runs() if run.parent_id is None]
                played = _Play(fresh, exploration, runs, self._limits)
                while moves := choose(played):
                    await played.take(moves)
                await played.end()
        except AssertionError as error:
            if isinstance(error, PropertyBroken) or played is None:
                raise
            raise PropertyBroken(tuple(played.order), "an invariant of the store", error) from error
        return played

    async def sample(self, random: Random) -> None:
        """An order by chance; where it breaks something, the shortest one that is left of it does so too."""
        try:
            await self.play(lambda played: random.choice(further) if (further := list(played.further())) else ())
        except PropertyBroken as broken:
            raise await self._shrunk(broken) from None

    async def _shrunk(self, broken: PropertyBroken) -> PropertyBroken:
        for at in range(len(broken.order)):
            try:
                await self.play(_following(broken.order[:at] + broken.order[at + 1 :]))
            except PropertyBroken as shorter:
                return await self._shrunk(shorter)
        return broken


def _following(order: Sequence[str]) -> Callable[[_Play], Order]:
    """Chooses the moves of a known order, one after the other."""
    rest = iter(order)

    def choose(_: _Play) -> Order:
        moves = list(itertools.islice(rest, 1))
        while moves and moves[-1] in PREPARES:
            following = next(rest, None)
            if following is None:
                return ()
            moves.append(following)
        return tuple(moves)

    return choose


class _Play:
    """One order, while it is played."""

    def __init__(self, fresh: World, exploration: Exploration, runs: Sequence[str], limits: dict[str, int]) -> None:
        self.world, self._said, self._limits = fresh, exploration, limits
        names = ["cancel"] if len(runs) == 1 else [f"cancel run {no}" for no in range(1, len(runs) + 1)]
        self._cancels = dict(zip(names, runs, strict=True))
        self.order: list[str] = []
        self._is_fruitful = True  # the last move changed something; else whatever follows was tried without it

    def further(self) -> Iterator[Order]:
        """What may come next: a move, or one that is prepared by another."""
        done = Counter(_kind(move) for move in self.order)
        moves = [name for name, (_, times) in self._said.actions.items() if self.order.count(name) < times]
        moves += [TIME] if done[TIME] < self._limits[TIME] else []
        moves += (
            [name for name in self._cancels if name not in self.order]
            if done["cancel"] < self._limits["cancel"]
            else []
        )
        prepares = [name for name in PREPARES if done[_kind(name)] < self._limits[_kind(name)]]
        if self._is_fruitful:
            yield from ((move,) for move in moves)
            yield from ((before, move) for before in prepares for move in moves if (before, move) != (HOLD, TIME))

    async def take(self, moves: Order) -> None:
        *before, move = moves
        self.order += moves
        happened = len(self.world.crashes.happened)
        for name in before:
            if name in CRASHES:
                self.world.crashes.plan(ANY_STEP, CRASHES[name])
        if HOLD in before and move != TIME:  # time that passes is work for somebody
            with self.world._nobody_works():
                self._is_fruitful = await self._do(move)
            return  # what it led to is seen when somebody has worked
        self._is_fruitful = await self._do(move)
        await self.world.settle()
        self.world.crashes.forget(ANY_STEP)
        if before:
            self._is_fruitful = len(self.world.crashes.happened) > happened
        for check in self._said.always_checks:
            await self._hold(check)

    async def _do(self, move: str) -> bool:
        if move == TIME:
            await self.world.settle()
            due = await self.world.runtime.store.until_due(self.world.engine.queues)
            if due is not None:
                await self.world.advance(due)
            return due is not None
        call: Callable[[], Any]
        if move in self._cancels:
            call = lambda: self.world.cancel(self._cancels[move])  # noqa: E731 - named by its move
        elif move in self._said.actions:
            call = self._said.actions[move][0]
        else:
            raise BadInput(f"the scenario has no move {move!r}; it has: {', '.join(self._said.actions)}")
        try:
            await _awaited(call())
        except BideError:
            return False
        return True

    async def end(self) -> None:
        await self.world.settle()
        for check in (*self._said.always_checks, *self._said.end_checks):
            await self._hold(check)

    async def _hold(self, check: Check) -> None:
        name = getattr(check, "__name__", "a property")
        try:
            held = await _awaited(check())
        except Exception as error:
            raise PropertyBroken(tuple(self.order), name, error) from error
        if held is False:
            raise PropertyBroken(tuple(self.order), name, AssertionError("it is false"))


def _kind(move: str) -> str:
    """What a move counts as, where several share a limit."""
    return move.partition(" ")[0] if move.startswith(("crash ", "cancel")) else move


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
