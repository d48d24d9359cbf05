"""People, providers and operators in a simulated story: they answer tasks and links, vote, claim, beat, change waits.

What each of them is told is compared with rules of the simulation's own, by what stood there right before: between two
actions nothing moves.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import bide
from bide.authoring.checks import MOST_LISTED
from bide.core.durations import parse_duration
from bide.core.records import OPEN_INTERACTION, OPEN_WAIT, run_of_wait
from bide.testing.http import http_client
from tests.simulation.accounts import Broken, Ended
from tests.simulation.stories import GROUPS, STORIES

if TYPE_CHECKING:
    import httpx

    from tests.simulation.simulation import Simulation

PEOPLE = tuple(GROUPS)
OPERATED = ("task", "signal", "receive", "event")
MOVES = ("5s", "2m", "10m")
NOTICES = ("await_reminder", "await_escalated")


@dataclasses.dataclass(frozen=True)
class Given:
    """An answer to a task or a link that was acknowledged."""

    message_id: str
    target: str
    data: Any
    by: str | None


def verdict(rule: Mapping[str, Any], votes: Sequence[bool]) -> str | None:
    """What so many votes come to; None while another one can matter."""
    if rule.get("veto") and not all(votes):
        return "vetoed"
    most = max(votes.count(True), votes.count(False))
    if most >= rule["quorum"]:
        return "agreed"
    left = rule["most_answers"] - len(votes) if rule.get("most_answers") is not None else rule["quorum"]
    return "undecided" if most + left < rule["quorum"] else None


class People:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.rng, self.clock, self.sometimes = simulation.rng, simulation.clock, Counter[str]()
        self.given: dict[str, Given] = {}
        self.keys: dict[tuple[str, str], Any] = {}  # what was answered to a task under a dedup key
        self.bodies: dict[str, Any] = {}  # what waits were answered with by their links
        self.beats: defaultdict[str, list[datetime]] = defaultdict(list)  # of waits
        self.http: dict[int, httpx.AsyncClient] = {}
        self.actions: dict[Callable[[], Awaitable[str]], int] = {
            self.answer_task: 6,
            self.hand_task: 2,
            self.follow_link: 3,
            self.beat: 2,
            self.move_wait: 2,
            self.end_wait: 1,
        }

    @property
    def client(self) -> Any:
        return self.simulation.processes[0].client

    def note(self, what: str) -> None:
        self.simulation.sometimes[what] += 1

    def take(self, receipt: bide.Receipt, target: str, data: Any, by: str | None) -> None:
        if receipt.outcome in ("woke", "queued"):
            assert receipt.message_id is not None
            self.given[receipt.message_id] = Given(receipt.message_id, target, data, by)

    # ------------------------------------------------------------ tasks

    async def some_task(self) -> bide.InteractionInfo | None:
        """Mostly one that is open."""
        tasks = await self.client.interactions(status=None, limit=MOST_LISTED)
        there = [task for task in tasks if task.status in OPEN_INTERACTION]
        chosen = there if self.rng.random() < 0.8 else tasks
        return self.rng.choice(chosen) if chosen else None

    async def answer_task(self) -> str:
        """One person, or a few of those who vote, one after the other."""
        task = await self.some_task()
        if task is None:
            return "nothing"
        said = [await self.answer_once(task)]
        while task.quorum > 1 and self.rng.random() < 0.6:
            said.append(await self.answer_once(await self.client.interaction(task.id)))
        return ", ".join(said)

    async def answer_once(self, task: bide.InteractionInfo) -> str:
        by, data = self.some_answer(task)
        key = f"t{self.rng.randrange(3)}" if self.rng.random() < 0.25 else None
        target = task.wait_id if self.rng.random() < 0.2 else task.id
        wait = await self.client.wait(task.wait_id)
        expected = self.expected(task, wait, by, data, key)
        try:
            receipt = await self.simulation.somebody().client.answer(target, data, by, key, check=False)
        except bide.Forbidden:
            outcome = "denied"
        else:
            outcome = receipt.outcome
            self.take(receipt, task.id, data, by)
        if outcome != expected:
            raise Broken(f"{data} by {by} ({key}) to {task} of {wait} was {outcome}; it should be {expected}")
        if key is not None and outcome in ("woke", "queued"):
            self.keys[(task.id, key)] = data
        self.note(f"task {outcome}")
        await self.simulation.quiet()
        return f"{target} {data} by {by} {key} -> {outcome}"

    def some_answer(self, task: bide.InteractionInfo) -> tuple[str | None, Any]:
        if task.answers and self.rng.random() < 0.2:  # somebody who does not know that it was received
            again = self.rng.choice(task.answers)
            return again.by, again.value
        is_anybody = self.rng.random() < (0.4 if task.claimed_by is None else 0.8)
        by = self.rng.choice((*PEOPLE, None)) if is_anybody else self.somebody_for(task)
        if self.rng.random() < 0.08:
            return by, "nothing that fits"
        number = self.simulation.number()
        return by, number if task.quorum == 1 else {"ok": self.rng.random() < 0.7, "n": number}

    def somebody_for(self, task: bide.InteractionInfo) -> str:
        may = [person for person in PEOPLE if self.why_not(task, person) is None]
        return task.claimed_by or self.rng.choice(may)

    def why_not(self, task: bide.InteractionInfo, by: str | None) -> str | None:
        """W11: only whom it is for."""
        if task.assignee is None and task.group is None:
            return None
        if by is not None and (by == task.assignee or (task.group is not None and task.group in GROUPS[by])):
            return None
        return f"it is for {task.assignee} and {task.group}"

    def expected(
        self, task: bide.InteractionInfo, wait: bide.WaitInfo, by: str | None, data: Any, key: str | None
    ) -> str:
        """What the answer must be told (W3, W7, W11, U8)."""
        if key is not None and (task.id, key) in self.keys:
            return "duplicate" if self.keys[(task.id, key)] == data else "conflict"
        if wait.status == "cancelled":
            return "no_target"
        is_claimed = task.claimed_by is not None and by != task.claimed_by
        if self.why_not(task, by) is not None or is_claimed or (by is None and task.quorum > 1):
            return "denied"
        own = [answer.value for answer in task.answers if task.quorum > 1 and answer.by == by]
        if data in own:
            return "duplicate"
        if wait.status == "completed":
            return "duplicate" if task.answer == data else "conflict"
        if wait.status not in OPEN_WAIT:
            return "late"
        if own:
            return "conflict"
        if data == "nothing that fits":
            return "invalid"
        if task.quorum == 1:
            return "woke"
        votes = [*(answer.value["ok"] for answer in task.answers), data["ok"]]
        return "queued" if verdict(wait.details, votes) is None else "woke"

    async def hand_task(self) -> str:
        """Claim a task, let go of it, or give it to somebody."""
        task = await self.some_task()
        if task is None:
            return "nothing"
        action = self.rng.choice(("claim", "claim", "release"))
        by = self.rng.choice(PEOPLE) if self.rng.random() < 0.4 else self.somebody_for(task)
        if action == "release" and task.claimed_by is not None and self.rng.random() < 0.7:
            by = task.claimed_by
        expected = self.expected_hand(task, await self.client.wait(task.wait_id), action, by)
        client = self.simulation.somebody().client
        outcome = "done"
        try:
            handed = await (client.claim if action == "claim" else client.release)(task.id, by)
        except (bide.Forbidden, bide.TaskTaken, bide.AlreadyAnswered, bide.WaitNotFound) as refusal:
            outcome = type(refusal).__name__
        else:
            if handed.claimed_by != (by if action == "claim" else None):
                raise Broken(f"{action} by {by} of {task} led to {handed}")
        if outcome != expected:
            raise Broken(f"{action} by {by} of {task} was {outcome}; it should be {expected}")
        self.note(f"{action} {outcome}")
        return f"{action} {task.id} by {by} -> {outcome}"

    def expected_hand(self, task: bide.InteractionInfo, wait: bide.WaitInfo, action: str, by: str) -> str:
        if self.why_not(task, by) is not None:
            return "Forbidden"
        if wait.status not in OPEN_WAIT:
            return "WaitNotFound" if wait.status == "cancelled" else "AlreadyAnswered"
        if task.claimed_by not in (None, by):
            return "TaskTaken"
        return "TaskTaken" if action == "claim" and task.quorum > 1 else "done"

    # ------------------------------------------------------------ links

    async def follow_link(self) -> str:
        """Whoever was given it: looks at the page, answers, answers again."""
        links = self.simulation.onlooker.links
        if not links:
            return "nothing"
        token = self.rng.choice(list(links))
        run_id, key = links[token]
        waits = [
            wait for wait in await self.client.waits(run_id=run_id, status=None, limit=MOST_LISTED) if wait.step == key
        ]
        wait = max(waits, key=number_of) if waits else None
        http = self.http_of(self.rng.randrange(len(self.simulation.processes)))
        if self.rng.random() < 0.2:
            await http.get(f"/resume/{token}")
            if wait is not None and (await self.client.wait(wait.id)) != wait:
                raise Broken(f"a look at the link of {wait} changed it (law 10)")
        data: Any = self.simulation.number()
        if wait is not None and wait.id in self.bodies and self.rng.random() < 0.5:
            data = self.bodies[wait.id]
        elif self.rng.random() < 0.08:
            data = "no number"
        expected = self.expected_by_link(wait, data)
        response = await http.post(f"/resume/{token}", json=data)
        said = response.json()
        outcome = f"{response.status_code} {said.get('outcome') or said.get('code')}"
        if outcome != expected:
            raise Broken(f"{data} by the link of {wait} was {outcome}; it should be {expected}")
        if said.get("outcome") in ("woke", "queued"):
            self.given[said["message_id"]] = Given(said["message_id"], token, data, None)
            self.bodies[said["wait_id"]] = data
        self.note(f"link {outcome}")
        await self.simulation.quiet()
        return f"{run_id} {key} {data} -> {outcome}"

    def expected_by_link(self, wait: bide.WaitInfo | None, data: Any) -> str:
        """W4, law 5: it takes one answer; the same again is success."""
        if wait is None:
            return "410 gone"
        if wait.status in OPEN_WAIT:
            if not isinstance(data, int):
                return "422 invalid"
            return "200 woke" if wait.status == "waiting" else "200 queued"
        is_repeat = wait.id in self.bodies and self.bodies[wait.id] == data
        return "200 duplicate" if is_repeat else "410 gone"

    def http_of(self, index: int) -> httpx.AsyncClient:
        if index not in self.http:
            runtime = self.simulation.processes[index].runtime
            self.http[index] = http_client(runtime, "default", (), None)
        return self.http[index]

    # ------------------------------------------------------------ operators

    async def some_wait(self, *kinds: str, beating: bool = False) -> bide.WaitInfo | None:
        """One of a story; mostly one that is open."""
        waits: list[bide.WaitInfo] = await self.client.waits(status=None, limit=MOST_LISTED)
        waits = [
            wait
            for wait in waits
            if wait.kind in kinds
            and self.simulation.known.get(wait.run_id) in STORIES
            and ("heartbeat" in wait.details or not beating)
        ]
        there = [wait for wait in waits if wait.status in OPEN_WAIT]
        chosen = there if self.rng.random() < 0.85 else waits
        return self.rng.choice(chosen) if chosen else None

    async def operate(self, wait: bide.WaitInfo, what: str, change: Awaitable[Any]) -> str:
        """An operator, or whoever works on it, changes a wait, if it is open (W10)."""
        expected = "done"
        if wait.status not in OPEN_WAIT:
            expected = "WaitNotFound" if wait.status == "cancelled" else "AlreadyAnswered"
        outcome = "done"
        try:
            await change
        except (bide.AlreadyAnswered, bide.WaitNotFound) as refusal:
            outcome = type(refusal).__name__
        if outcome != expected:
            raise Broken(f"{what} of {wait} was {outcome}; it should be {expected}")
        self.note(f"{what} {outcome}")
        return outcome

    async def beat(self) -> str:
        """Often after a while."""
        self.clock.set(self.clock() + timedelta(seconds=self.rng.choice((0, 0, 5, 12))))
        wait = await self.some_wait("task", "signal", beating=True)
        if wait is None:
            return "nothing"
        outcome = await self.operate(wait, "beat", self.simulation.somebody().client.heartbeat(wait.id))
        if outcome == "done":
            self.beats[wait.id].append(self.clock())
            beaten = await self.client.wait(wait.id)
            silent_at = self.clock() + timedelta(seconds=beaten.details["heartbeat"])
            if datetime.fromisoformat(beaten.details["silent_at"]) != silent_at:
                raise Broken(f"there was a sign of life at {self.clock()}: {beaten}")
        return f"{wait.id} -> {outcome}"

    async def move_wait(self) -> str:
        """Another deadline, or other people."""
        wait = await self.some_wait(*OPERATED)
        if wait is None:
            return "nothing"
        client = self.simulation.somebody().client
        if wait.kind == "task" and self.rng.random() < 0.4:
            person = self.rng.choice((*PEOPLE, None))
            return await self.operate(wait, "assign", client.update_wait(wait.id, assignee=person, reason="because"))
        time = self.rng.choice(MOVES)
        outcome = await self.operate(wait, "move", client.update_wait(wait.id, deadline=time, reason="because"))
        moved = await self.client.wait(wait.id)
        if outcome == "done" and moved.deadline != self.clock() + parse_duration(time):
            raise Broken(f"{wait} was moved by {time} and is {moved}")
        return f"{wait.id} {time} -> {outcome}"

    async def end_wait(self) -> str:
        """The run is told of it."""
        wait = await self.some_wait(*OPERATED)
        if wait is None:
            return "nothing"
        how = self.rng.choice(("fail", "cancel"))
        client = self.simulation.somebody().client
        change = client.fail_wait if how == "fail" else client.cancel_wait
        outcome = await self.operate(wait, how, change(wait.id, "because"))
        ended = await self.client.wait(wait.id)
        if outcome == "done" and ended.status != ("failed" if how == "fail" else "cancelled"):
            raise Broken(f"{how} of {wait} led to {ended}")
        await self.simulation.quiet()
        return f"{how} {wait.id} -> {outcome}"

    # ------------------------------------------------------------ promises

    async def check_rest(self) -> None:
        """W6, W9, W13: where nothing moves, no open wait has a moment that has passed."""
        for wait in await self.client.waits(status="waiting", limit=MOST_LISTED):
            moments = [wait.deadline, wait.details.get("silent_at"), *(at for at, _ in wait.details.get("agenda", ()))]
            for moment in moments:
                at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
                if at is not None and at <= self.clock():
                    raise Broken(f"it is {self.clock()}, and nothing was done about {wait}")

    async def account(self, ended: Ended) -> None:
        if ended.run.definition not in STORIES:
            return
        tasks = {
            task.wait_id: task
            for task in await self.client.interactions(run_id=ended.run.id, status=None, limit=MOST_LISTED)
        }
        for wait in ended.waits:
            entries = [entry for entry in ended.entries if entry.data.get("wait") == number_of(wait)]
            wrong = [*self.noticed_wrong(wait, entries), *self.silenced_early(wait, entries)]
            if wait.id in tasks:
                wrong += self.miscounted(wait, tasks[wait.id], entries)
            if wrong:
                raise Broken(f"{ended.run.id} {'; '.join(wrong)}: {wait}, {tasks.get(wait.id)}")

    def noticed_wrong(self, wait: bide.WaitInfo, entries: Sequence[bide.LedgerEntry]) -> list[str]:
        """W9: each reminder and escalation comes once, not before its time, and not after the end of the wait."""
        notices = [entry for entry in entries if entry.name in NOTICES]
        self.sometimes.update(entry.name for entry in notices)
        wrong = [f"{entry} came early" for entry in notices if entry.at < datetime.fromisoformat(entry.data["due"])]
        wrong += [f"{entry} came after its end" for entry in notices if wait.closed_at and entry.at > wait.closed_at]
        counted = Counter((entry.data["due"], entry.data.get("recipient")) for entry in notices)
        return wrong + [f"{notice} came {times} times" for notice, times in counted.items() if times > 1]

    def silenced_early(self, wait: bide.WaitInfo, entries: Sequence[bide.LedgerEntry]) -> list[str]:
        """W13: only silence fails it, and every beat counts."""
        if not str(wait.cause).startswith("silent"):
            return []
        self.note("fell silent")
        opened = [entry.at for entry in entries if entry.name == "await_execution_waiting"]
        last = max([*opened, *self.beats[wait.id]])
        assert wait.closed_at is not None
        early = wait.closed_at < last + timedelta(seconds=wait.details["heartbeat"])
        return [f"there was a sign of life at {last}"] if early else []

    def miscounted(
        self, wait: bide.WaitInfo, task: bide.InteractionInfo, entries: Sequence[bide.LedgerEntry]
    ) -> list[str]:
        """W11: answers are those of the ledger, of different people, and end the wait exactly when they are enough."""
        told = [entry.data for entry in entries if entry.name == "await_answer_received"]
        wrong, last = [], None
        if [(one["payload"], one["by"]) for one in told] != [(answer.value, answer.by) for answer in task.answers]:
            wrong.append(f"its ledger tells of {told}")
        if (wait.status == "completed") is not (task.status == "completed"):
            wrong.append("only one of them is completed")
        for entry in entries:
            whom = assigned_by(entry)
            if whom is not None:
                last = whom
        if last is not None and last != (task.assignee, task.group):
            wrong.append(f"it was given to {last}")
        if task.quorum == 1:
            return wrong + ([f"{len(told)} answers were taken"] if len(told) != (wait.status == "completed") else [])
        people = [one["by"] for one in told]
        if len(set(people)) < len(people):
            wrong.append(f"{people} have voted")
        votes = [one["payload"]["ok"] for one in told]
        early = [count for count in range(len(votes)) if verdict(wait.details, votes[:count]) is not None]
        decided = verdict(wait.details, votes)
        if early or (decided is not None) is not (wait.status == "completed"):
            wrong.append(f"{votes} come to {decided}, and to something before at {early}")
        self.note(f"vote {decided}")
        return wrong


def assigned_by(entry: bide.LedgerEntry) -> tuple[str | None, str | None] | None:
    """The person and the group that a task is for from there on."""
    if entry.name == "await_escalated":
        kind, _, name = entry.data["recipient"].rpartition(":")
        return (None, name) if kind == "group" else (name, None)
    if entry.name == "await_updated" and "assignee" in entry.data:
        return entry.data["assignee"], entry.data["group"]
    return None


def number_of(wait: bide.WaitInfo) -> int:
    found = run_of_wait(wait.id)
    assert found is not None
    return found[1]
