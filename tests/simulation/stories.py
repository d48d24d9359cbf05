"""The workflows that the simulation runs: each run is handed the list of acts that it plays, one after the other.

Its result tells what came of each act: `[key, kind, what, value]`. So at the end what the body saw can be compared with
what is stored. Every wait has a deadline, so that a run that is left alone always ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import bide

Act = list[Any]
Told = list[Any]

DESKS = ("desk:1", "desk:2", "desk:3")  # signal ids that runs may collide on
RECEIVED = ("item", "go")
EVENTS = ("order.paid", "order.sent", "stock.low")
PATTERNS = ("order.paid", "order.sent", "order.*", "stock.low", "*")
TRIGGER = "begin.story"
GROUPS: Mapping[str, tuple[str, ...]] = {"ann": ("leads",), "ben": ("leads", "ops"), "cat": ("ops",), "dan": ()}
VOTE = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer"}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}
STORIES = ("story", "tidy", "triggered")
CLEANED_UP = ("tidy",)
POLICY = bide.RetryPolicy(attempts=3, first="5s")
STORY_STEPS = (*(f"work{no}" for no in range(4)), "emit0", "emit1", "tidied", "body", "body")

# What a wait may come to beside a value, as the body sees it.
ENDS: dict[type[Exception], str] = {
    bide.RunTimeoutError: "timed out",
    bide.WaitTimeoutError: "timed out",
    bide.SignalCollisionError: "collided",
    bide.RunFailedError: "failed",
    bide.RunCancelledError: "cancelled",
    bide.RunStoppedError: "stopped",
    bide.StepFailedError: "failed",
    bide.WaitFailedError: "failed",
    bide.WaitCancelledError: "called off",
}


class Witness(Protocol):
    """Who looks on, and lets steps stand still."""

    def begins(self, run_id: str) -> object:
        """A turn of that run begins; what stands for it at the gate."""

    async def works(self, turn: object, run_id: str, key: str) -> int:
        """The code of a step: how often it was begun before, or where it stands until it is let go."""

    async def leaves(self, turn: object, run_id: str, key: str, token: str) -> None:
        """A step is about to give the token of that callback to somebody."""

    def number(self) -> int:
        """One that nobody was given before."""

    def awaits(self, turn: object, key: str) -> None:
        """From now on the body is to be handed what comes of that wait."""

    def has(self, turn: object, key: str) -> None:
        """It was, or it does not want it any more."""

    def complain(self, text: str) -> None: ...


def add_stories(app: bide.App, witness: Witness) -> None:
    @app.groups
    def groups_of(person: str) -> tuple[str, ...]:
        return GROUPS[person]

    @app.workflow("story", retries=1)
    async def story(step: bide.Step, acts: list[Any]) -> Any:
        return await Play(step, witness).all(acts)

    @app.workflow("tidy", retries=1, on_cancel="raise", cancel_grace="40s")
    async def tidy(step: bide.Step, acts: list[Any]) -> Any:
        play = Play(step, witness)
        try:
            return await play.all(acts)
        except bide.Cancelled:
            await play.work("tidied", 0)
            raise

    @app.workflow("triggered", trigger=TRIGGER)
    async def triggered(step: bide.Step, event: Any) -> Any:
        return await Play(step, witness).all(event["acts"])


class Play:
    def __init__(self, step: bide.Step, witness: Witness) -> None:
        self.step, self.witness = step, witness
        self.turn = witness.begins(step.run_id)

    async def all(self, acts: list[Any]) -> list[Told] | bide.Restart:
        told: list[Told] = []
        for no, (kind, *given) in enumerate(acts):
            if kind == "restart":
                return bide.Restart([act for act in acts if act[0] != "restart"])
            told += await getattr(self, f"act_{kind}")(no, *given)
        return told

    # ------------------------------------------------------------ acts

    async def act_work(self, no: int, fails: int) -> list[Told]:
        return [await self.work(f"work{no}", fails)]

    async def act_stumble(self, no: int, tries: int) -> list[Told]:
        """The run itself fails so often."""
        if self.step.attempt < tries:
            raise RuntimeError("stumbled")
        return []

    async def act_wait(self, no: int, act: Act) -> list[Told]:
        return [await self.come(*self.wait(f"{act[0]}{no}", act))]

    async def act_early(self, no: int, desk: str | None, timeout: str) -> list[Told]:
        """The signal id is taken before the work, and awaited after it."""
        key = f"signal{no}"
        await self.step.reserve_signal(key, signal=self.desk(desk, key), returns=int)
        return [await self.work(f"work{no}", 0), await self.come(*self.wait(key, ["signal", desk, timeout]))]

    async def act_callback(self, no: int, terms: dict[str, Any], timeout: str) -> list[Told]:
        """The link leaves with the work, so it may be answered before anybody waits."""
        key = f"callback{no}"
        link = await self.step.callback(key, timeout=timeout, returns=int, **terms)
        return [await self.work(f"work{no}", 0, link), await self.come(key, "callback", link)]

    async def act_beside(self, no: int, act: Act) -> list[Told]:
        """A step is at work while the wait is open."""
        waited = self.come(*self.wait(f"{act[0]}{no}", act))
        return list(await asyncio.gather(self.work(f"work{no}", 0), waited))

    async def act_limit(self, no: int, seconds: float, act: Act) -> list[Told]:
        """The body gives the wait up by itself."""
        try:
            async with asyncio.timeout(seconds):
                return [await self.come(*self.wait(f"{act[0]}{no}", act))]
        except TimeoutError:
            self.witness.has(self.turn, f"{act[0]}{no}")
            return [[f"{act[0]}{no}", act[0], "given up", None]]

    async def act_first(self, no: int, acts: list[Act]) -> list[Told]:
        waits = self.several(no, acts)
        won = await self.step.first(f"first{no}", *(wait for _, _, wait in waits))
        over = [(key, kind, wait) for key, kind, wait in waits if wait.is_over]
        if len(over) != 1 or over[0][2] is not won:
            self.witness.complain(f"{self.step.run_id}: first{no} was won by {won}, over are {over}")
        return [await self.come(*over[0])]

    async def act_race(self, no: int, acts: list[Act]) -> list[Told]:
        """A step is at work while several wait: more than one of them may be over when the body looks again."""
        worked, won = await asyncio.gather(self.work(f"work{no}", 0), self.act_first(no, acts))
        return [worked, *won]

    async def act_every(self, no: int, acts: list[Act]) -> list[Told]:
        waits = self.several(no, acts)
        try:
            await self.step.all(f"all{no}", *(wait for _, _, wait in waits))
        except tuple(ENDS):
            pass  # of one of them, and then the others are withdrawn
        return [await self.come(*each) for each in waits if each[2].is_over]

    async def act_emit(self, no: int, name: str, n: int) -> list[Told]:
        receipt = await self.step.emit(f"emit{no}", f"of_run.{name}", {"n": n})
        return [[f"emit{no}", "emit", "value", receipt.id]]

    async def act_launch(self, no: int, acts: list[Act]) -> list[Told]:
        return [await self.come(f"launch{no}", "launch", self.step.launch(f"launch{no}", "story", acts))]

    # ------------------------------------------------------------ waits

    def several(self, no: int, acts: list[Act]) -> list[tuple[str, str, bide.Wait[Any]]]:
        return [self.wait(f"{act[0]}{no}{letter}", act) for letter, act in zip("abc", acts, strict=False)]

    def desk(self, desk: str | None, key: str) -> str:
        return desk if desk is not None else f"own:{self.step.run_id}:{key}"

    def wait(self, key: str, act: Act) -> tuple[str, str, bide.Wait[Any]]:
        step, (kind, *given) = self.step, act
        match kind:
            case "signal":
                desk, timeout = given
                return key, kind, step.wait_for_signal(key, signal=self.desk(desk, key), timeout=timeout, returns=int)
            case "receive":
                names, timeout = given
                return key, kind, step.receive(key, *names, timeout=timeout)
            case "pack":
                name, at_least, timeout = given
                return key, kind, step.receive_all(key, name, at_least=at_least, timeout=timeout)
            case "event":
                pattern, match, lookback, timeout = given
                terms = {"match": match, "lookback": lookback}
                return key, kind, step.wait_for_event(key, event=pattern, timeout=timeout, **terms)
            case "ask":
                terms, timeout = given
                return key, kind, step.ask(key, title="?", form=int, timeout=timeout, **terms)
            case "vote":
                rule, terms, timeout = given
                told = {"title": "?", "form": VOTE, "decides": "ok", **rule, **terms}
                return key, kind, step.ask(key, timeout=timeout, **told)
            case "sleep":
                return key, kind, step.sleep(key, given[0])
            case "invoke":
                definition, input, timeout = given
                return key, kind, step.invoke(key, definition, input, timeout=timeout)
        raise AssertionError(kind)

    async def come(self, key: str, kind: str, wait: Awaitable[Any]) -> Told:
        sleeps = kind == "sleep" and isinstance(wait, bide.Wait) and not wait.is_over
        before = await self.step.now(f"{key}/before") if sleeps else None
        self.witness.awaits(self.turn, key)
        try:
            value = await wait
        except tuple(ENDS) as error:
            self.witness.has(self.turn, key)
            return [key, kind, ENDS.get(type(error), "timed out"), None]
        self.witness.has(self.turn, key)
        if kind == "receive":
            value = value.payload
        elif kind == "pack":
            value = [one.payload for one in value]
        elif kind == "event":
            value = value.id
        elif kind == "vote":
            value = [value.outcome, value.value, [[one.value, one.by] for one in value.answers]]
        elif before is not None:
            after = await self.step.now(f"{key}/after")
            if after - before < timedelta(seconds=1):
                self.witness.complain(f"{self.step.run_id} slept from {before} to {after}")
        return [key, kind, "value", value]

    async def work(self, key: str, fails: int, link: bide.Callback[Any] | None = None) -> Told:
        async def code() -> int:
            if link is not None:
                await self.witness.leaves(self.turn, self.step.run_id, link.key, link.token)
            begun = await self.witness.works(self.turn, self.step.run_id, key)
            if begun < fails:
                raise RuntimeError("once more")
            return self.witness.number()

        return await self.come(key, "work", self.step.options(retry=POLICY).run(key, code))


# ------------------------------------------------------------ how they are made up


class Dice(random.Random):
    people = 1  # how much more often than other waits those that people answer come


def some_acts(dice: Dice, depth: int = 0) -> list[Act]:
    if dice.random() < 0.1:  # the end comes with the first answer, and the others may come with the end
        easy = [["signal", None, _some_time(dice)], ["receive", ["item", "go"], _some_time(dice)]]
        return [["first", [*easy, ["signal", None, _some_time(dice)]]]]
    acts = [_some_act(dice, depth) for _ in range(dice.choice((1, 2, 2, 3, 4)))]
    if depth == 0 and dice.random() < 0.08:
        acts.append(["restart"])
    return acts


def _some_act(dice: Dice, depth: int) -> Act:
    makers: dict[Callable[[], Act], int] = {
        lambda: ["work", dice.choice((0, 0, 0, 1, 2, 3))]: 4,
        lambda: ["wait", _some_wait(dice, depth)]: 10,
        lambda: ["early", _some_desk(dice), _some_time(dice)]: 3,
        lambda: ["callback", {"heartbeat": dice.choice((None, None, "15s", "50s"))}, _some_time(dice)]: 3 * dice.people,
        lambda: ["beside", _some_wait(dice, depth)]: 3,
        lambda: ["limit", dice.choice((1, 15, 40)), _some_wait(dice, depth)]: 2,
        lambda: ["first", _some_waits(dice, depth)]: 5,
        lambda: ["race", _some_waits(dice, depth)]: 6,
        lambda: ["every", _some_waits(dice, depth)]: 3,
        lambda: ["emit", dice.choice(EVENTS), dice.randrange(3)]: 2,
        lambda: ["launch", some_acts(dice, depth + 1) if depth < 2 else []]: 1,
        lambda: ["stumble", dice.choice((1, 1, 3))]: 1,
    }
    return dice.choices(list(makers), list(makers.values()))[0]()


def _some_waits(dice: Dice, depth: int) -> list[Act]:
    return [_some_wait(dice, depth) for _ in range(dice.choice((2, 2, 3)))]


def _some_wait(dice: Dice, depth: int) -> Act:
    match dice.choices(
        ("signal", "receive", "pack", "event", "sleep", "ask", "vote", "invoke"),
        (5, 5, 2, 5, 2, 3 * dice.people, 2 * dice.people, 2 if depth < 2 else 0),
    )[0]:
        case "signal":
            return ["signal", _some_desk(dice), _some_time(dice)]
        case "receive":
            return ["receive", dice.choice((["item"], ["go"], list(RECEIVED))), _some_time(dice)]
        case "pack":
            return ["pack", dice.choice(RECEIVED), dice.choice((1, 2, 3)), _some_time(dice)]
        case "event":
            match = dice.choice((None, f"data.n == {dice.randrange(3)}", "data.n > 0"))
            return ["event", dice.choice(PATTERNS), match, dice.choice((None, None, "20s", "5m")), _some_time(dice)]
        case "sleep":
            return ["sleep", dice.choice(("1s", "30s", "3m"))]
        case "ask":
            return ["ask", _some_terms(dice), _some_longer_time(dice)]
        case "vote":
            quorum = dice.choice((2, 2, 3))
            most = dice.choice((None, quorum, quorum + 1))
            rule = {"quorum": quorum, "veto": dice.random() < 0.5, "most_answers": most}
            return ["vote", rule, _some_terms(dice), _some_longer_time(dice)]
    if dice.random() < 0.3:
        return ["invoke", "flaky", dice.choice(("wake", "step", "fail")), _some_time(dice)]
    return ["invoke", dice.choice(("story", "tidy")), some_acts(dice, depth + 1), _some_time(dice)]


def _some_terms(dice: Dice) -> dict[str, Any]:
    """Who is asked, and what happens while nobody answers. All of it comes before the time is up."""
    terms: dict[str, Any] = dict(
        dice.choice(((), (), (("assignee", "ann"),), (("group", "leads"),), (("group", "ops"),)))
    )
    if dice.random() < 0.3:
        terms["reminders"] = dice.choice((["10s"], ["10s", "30s"]))
    if dice.random() < 0.3:
        terms["escalate"] = dice.choice(
            ({"20s": "group:ops"}, {"10s": "dan"}, {"20s": "user:ben", "40s": "group:leads"})
        )
    if dice.random() < 0.2:
        terms["heartbeat"] = dice.choice(("15s", "50s"))
    return terms


def _some_longer_time(dice: Dice) -> str:
    return dice.choice(("1m", "5m", "20m"))


def _some_desk(dice: Dice) -> str | None:
    return dice.choice((None, None, *DESKS))


def _some_time(dice: Dice) -> str:
    return dice.choice(("10s", "1m", "5m", "20m"))
