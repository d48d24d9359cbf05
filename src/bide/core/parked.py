"""What a parked run waits for, wait by wait, in sentences: since when, until when, who can answer and how (§11)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from bide.core.agenda import planned, silent_at, terms
from bide.core.approvals import APPROVAL
from bide.core.durations import LATEST
from bide.core.exchanging import INTERACTION_API, terms_of
from bide.core.expressions import example_of
from bide.core.matching import takes
from bide.core.quorum import rule_of
from bide.core.records import (
    FINAL,
    OPEN_WAIT,
    Interaction,
    Run,
    RunError,
    Signal,
    StepRow,
    Unit,
    Unused,
    Wait,
    interaction_id,
    paused,
)
from bide.core.samples import sample
from bide.core.schema import problems
from bide.core.streams import progress_of
from bide.core.timing import FAIL
from bide.core.topics import example_name
from bide.core.wording import Wording

SHOWN: Final = 5  # of children, signals and refusals; the rest are counted
TURNED_AWAY: Final = ("await_answer_rejected", "await_answer_denied")
_TIMER: Final = "asyncio.timer"
_RAISED: Final = {"signal": "SignalTimeoutError", "children": "RunTimeoutError"}  # others: WaitTimeoutError


class LedgerEntry(Protocol):
    """What an explanation needs of a ledger's entry, in whatever form the caller has it."""

    @property
    def name(self) -> str: ...
    @property
    def at(self) -> datetime: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Facts:
    """What is known of a run. Of closed waits none is needed, of interactions the first few that are open."""

    run: Run
    waits: Sequence[Wait] = ()
    inbox: Sequence[Signal] = ()
    children: Sequence[Run] = ()
    unused: Sequence[Unused] = ()
    ledger: Sequence[LedgerEntry] = ()  # tells of workers and errors
    steps: Sequence[StepRow] = ()  # of a workflow
    units: Mapping[int, Unit] = field(default_factory=dict)  # the counts of open requests, by number
    interactions: Sequence[Interaction] = ()
    links: Mapping[int, str] = field(default_factory=dict)  # the URLs of callbacks, by the numbers of their waits
    collided: Collection[int] = ()  # numbers of waits whose signal id another run wanted, too
    no_link: str = "the secrets that make it are not at hand here"

    @property
    def open(self) -> list[Wait]:
        """The open waits, those that are only reserved at the end."""
        found = [wait for wait in self.waits if wait.status in OPEN_WAIT]
        return sorted(found, key=lambda wait: wait.status == "reserved")

    def there(self, wait: Wait) -> int:
        """How many signals of the inbox are for this wait."""
        return sum(takes(wait, signal) for signal in self.inbox)


def needed(wait: Wait) -> int:
    """How many signals let a wait go on."""
    return max(1, wait.expected)


def parked(facts: Facts, name: str, words: Wording) -> Iterator[str]:
    """What each open wait of the run *name* is for."""
    for at, wait in enumerate(facts.open):
        if wait.status == "reserved":
            subject = name if at == 0 else "It"
        else:
            subject = f"{name} is waiting" if at == 0 else "It is also waiting"
        said = _Parked(facts, wait, words)
        yield from said.about(subject)
        if wait.status == "waiting":
            yield said.deadline()
        yield from said.agenda()


class _Parked:
    def __init__(self, facts: Facts, wait: Wait, words: Wording) -> None:
        self.facts, self.run, self.wait = facts, facts.run, wait
        self.words = words
        self.details = terms(wait)
        self.since = f"since {words.when(wait.opened_at)}"
        self.row = next((row for row in facts.interactions if row.no == wait.no), None)
        pause = paused(wait.key) if wait.kind == "sleep" else None
        self.retried = pause[0] if pause is not None else None
        self.attempts = pause[1] if pause is not None else 0

    # ------------------------------------------------------------ for what, and how it is answered

    def about(self, subject: str) -> Iterator[str]:
        match self.wait.kind:
            case "children":
                yield from self._join(subject)
            case "signals" | "receive":
                yield from self._signals(subject)
            case "event":
                yield from self._event(subject)
            case "task":
                yield from self._task(subject)
            case "signal":
                yield from self._callback(subject) if self.details.get("callback") else self._answer(subject)
            case "request":
                yield from self._request(subject)
            case "items":
                yield from self._items(subject)
            case _:
                yield from self._sleep(subject)
        if self._is_of_a_file and self.wait.status == "waiting":
            name = self.wait.key.partition("#")[0]
            yield f"On an answer it goes on behind {name!r}, with the answer as steps.{name}."

    def _signals(self, subject: str) -> Iterator[str]:
        wait = self.wait
        names = [repr(name) for name in wait.names]
        what = f"the signal {names[0]}" if len(names) == 1 else f"any of the signals {', '.join(names)}"
        if needed(wait) > 1:
            what = (
                f"{needed(wait)} of {what}" if len(names) == 1 else f"{needed(wait)} of the signals {', '.join(names)}"
            )
        if self.run.style == "machine":
            yield f"{subject} for {what} {self.since}; then it goes on with {self._place}."
        else:
            count = f": {self.facts.there(wait)} of {needed(wait)} are there" if needed(wait) > 1 else ""
            yield f"{subject} for {what} at {self._place} {self.since}{count}."
        yield from self._asked()
        target = self.run.correlation_key if self.run.correlation_key is not None else self.run.id
        example, data = self._example("payload")
        for at, name in enumerate(wait.names[:SHOWN]):
            how = f"Answer it, {example}, by" if at == 0 else "Or by"
            yield f"{how}: {self.words.command('signal', target, name, data)}"

    def _event(self, subject: str) -> Iterator[str]:
        [pattern] = self.wait.names
        match, channel = self.details.get("match"), self.details.get("channel")
        schema, equals = self.details.get("schema"), self.details.get("equals") or {}
        where = f" of which {match} is true" if match else ""
        if schema is not None or equals:
            where = f" with {_fields_in_words(schema or {}, equals)}"
        by = f" by channel {channel}" if channel else ""
        yield f"{subject} for an event {pattern!r}{where}{by} at {self.wait.key!r} {self.since}."
        if self.details.get("title"):
            yield f"It asks: {self.details['title']}"
        found = example_of(match) if match else None
        if schema is not None:
            found = {**sample(schema), **equals}
        data = msgspec.json.encode(found).decode() if found is not None else "{}"
        how = "with its data as JSON in place of {}" if found is None else "with the rest of its data"
        if match and found is None:
            how = "with data of which that is true in place of {}"
        if "*" in pattern:
            how += ", under any name that fits"
        more = ["--channel", channel] if channel else []
        command = self.words.command("emit", example_name(pattern), data, more=more)
        yield f"Any such event lets it go on; emit one, {how}, by: {command}"

    def _task(self, subject: str) -> Iterator[str]:
        yield f"{subject} for a person at {self.wait.key!r} {self.since}."
        yield f"It asks: {self.details.get('title', self.wait.key)}"
        rule = rule_of(self.details)
        several = f"; {rule.quorum} different people must answer" if rule.quorum > 1 else ""
        yield f"The answer is expected {self._expected_from or 'from anybody'}{several}{self._given(rule.quorum)}."
        if self.row is not None and self.row.claimed_by is not None:
            yield f"{self.row.claimed_by} has claimed it."
        yield self._answered_by("answer", interaction_id(self.run.id, self.wait.no, 0))

    def _given(self, quorum: int) -> str:
        """Who has answered, where one answer is not enough."""
        given = msgspec.json.decode(self.row.answers) if self.row is not None and quorum > 1 else []
        who = ", ".join(str(answer.get("by")) for answer in given)
        return f", and {len(given)} of {quorum} have ({who})" if given else ""

    def _answer(self, subject: str) -> Iterator[str]:
        [signal_id] = self.wait.names
        if self.wait.status == "reserved":
            yield (
                f"{subject} holds the signal id {signal_id!r} for {self.wait.key!r}, which it has not reached; "
                "an answer that comes before is kept for it."
            )
        else:
            yield f"{subject} for an answer to {signal_id!r} at {self.wait.key!r} {self.since}."
        yield from self._asked()
        if self.wait.no not in self.facts.collided:
            yield self._answered_by("complete", signal_id)
            return
        yield "Another run wanted the same signal id and was refused; so whoever answers must say which run is meant."
        yield self._answered_by("complete", signal_id, more=["--run", self.run.id])

    def _callback(self, subject: str) -> Iterator[str]:
        if self.wait.status == "reserved":
            yield (
                f"{subject} has minted a callback for {self.wait.key!r}, which it has not reached; "
                "an answer that comes before is kept for it."
            )
        else:
            yield f"{subject} for the answer to a callback at {self.wait.key!r} {self.since}."
        yield from self._asked()
        signed = self.details.get("signed")
        only = f" if {signed} signed it" if signed else ""
        if self.wait.no in self.facts.links:
            yield f"Whoever posts the answer to its URL lets it go on{only}: {self.facts.links[self.wait.no]}"
        else:
            yield f"Whoever has its URL can post the answer there{only}; it is not shown: {self.facts.no_link}."
        yield self._answered_by("answer", self.wait.id, "In their place answer it")

    def _request(self, subject: str) -> Iterator[str]:
        asked, unit = terms_of(self.wait), self.facts.units.get(self.wait.no)
        over = f"over {asked.transport}"
        if not asked.items:
            yield f"{subject} for the answer to a request {over} at {self.wait.key!r} {self.since}."
        else:
            yield f"{subject} for answers to {_requests(unit)} {over} at {self.wait.key!r} {self.since}{_counts(unit)}."
        if self._expected_from:
            yield f"The answer is expected {self._expected_from}."
        for entry in self.facts.ledger:
            if entry.name == "chore_dead" and str(entry.data.get("chore")).startswith(f"dispatch:{self.wait.id}"):
                letters = self.words.command("dead-letters")
                yield f"It could not be sent: {entry.data.get('error')}; see: {letters}"
                break
        which = "one of them" if asked.items else "it"
        how = f"Answer {which}" if asked.transport == INTERACTION_API else f"In the provider's place answer {which}"
        if self.row is not None:
            yield self._answered_by("answer", self.row.id, how)

    def _items(self, subject: str) -> Iterator[str]:
        progress = progress_of(self.run)
        total = f"{progress.total}" if progress.filled else f"{progress.total} so far"
        counts = [f"{progress.done + progress.dropped} of {total} are done"]
        counts += [f"{progress.rejected} rejected"] if progress.rejected else []
        yield f"{subject} for its items at {self.wait.key!r} {self.since}: {', '.join(counts)}."
        if progress.dead:
            letters = self.words.command("dead-letters")
            yield f"{progress.dead} of them were given up, and wait for a person to retry or discard them: {letters}"

    def _sleep(self, subject: str) -> Iterator[str]:
        if self.retried is not None:
            yield f"{subject} to try step {self.retried!r} again {self.since}: {self._failure()}."
        elif self.wait.key.partition("#")[0] == _TIMER:
            yield f"{subject} for a timer of its own (asyncio.sleep or asyncio.timeout) {self.since}."
        else:
            yield f"{subject} at {self.wait.key!r} {self.since}: it sleeps."
        ends = ["--deadline", "0s", "--reason", "no need to wait"]
        command = self.words.command("waits move", self.wait.id, more=ends)
        yield f"Nobody has to answer; let it go on at once by: {command}"

    def _failure(self) -> str:
        row = next((row for row in self.facts.steps if row.key == self.retried), None)
        if row is None or row.error is None:
            return f"attempt {self.attempts} failed"
        error = msgspec.json.decode(row.error, type=RunError)
        return f"attempt {self.attempts} failed with {error.type or error.code}: {error.message}"

    def _join(self, subject: str) -> Iterator[str]:
        wait = self.wait
        then = f"; then it goes on with {self._place}" if self.run.style == "machine" else ""
        at = "" if self.run.style == "machine" else f" at {self._place}"
        yield (
            f"{subject} for its {_count(wait.expected, 'child', 'children')}{at} {self.since}: "
            f"{wait.received} of {wait.expected} have ended{then}."
        )
        live = [child for child in self.facts.children if child.parent_wait == wait.no and child.status not in FINAL]
        for child in live[:SHOWN]:
            held = f", held as {child.held}" if child.held else ""
            yield f"Child {child.id} ({_kind_of(child)}) is {child.status}{held}, step {child.step!r}."
        if len(live) > SHOWN:
            yield f"{len(live) - SHOWN} more children have not ended."
        if live:
            yield f"See why a child has not ended with: {self.words.command('explain', live[0].id)}"

    # ------------------------------------------------------------ who, and with what

    def _asked(self) -> Iterator[str]:
        if self.details.get("title"):
            yield f"It asks: {self.details['title']}"
        if self._expected_from:
            yield f"The answer is expected {self._expected_from}."

    @property
    def _expected_from(self) -> str:
        told = {name: self.details.get(name) for name in ("assignee", "group", "channel")}
        parts = {"assignee": "from", "group": "from group", "channel": "by channel"}
        return ", ".join(f"{parts[name]} {value}" for name, value in told.items() if value)

    def _answered_by(self, verb: str, target: str, how: str = "Answer it", more: Sequence[str] = ()) -> str:
        """The command that answers, by one who may (W11)."""
        claimed = self.row.claimed_by if self.row is not None else None
        by = claimed or self.details.get("assignee")
        if by is None and (self.details.get("group") or rule_of(self.details).quorum > 1):
            by = "NAME"
        example, data = self._example("answer")
        named = ", and who answers in place of NAME" if by == "NAME" else ""
        command = self.words.command(verb, target, data, more=[*more, *(["--by", by] if by else [])])
        return f"{how}, {example}{named}, by: {command}"

    def _example(self, what: str) -> tuple[str, str]:
        """Words that say where the data goes, and data that the wait would take."""
        schema = self.details.get("schema")
        if schema is not None:
            found = msgspec.json.encode(sample(schema)).decode()
            if not problems(schema, found):
                return f"with your {what} in place of the example", found
        return f"with the {what} as JSON in place of {{}}", "{}"

    # ------------------------------------------------------------ until when

    def deadline(self) -> str:
        until = self._until()
        if self.wait.kind == "items":
            return "It has no deadline of its own: it goes on when every item has come to its end."
        if until is None or until >= LATEST:
            what = "the end of its children" if self.wait.kind == "children" else "an answer"
            return f"It has no deadline: only {what} or a cancel will ever move it."
        when, then = self.words.when(until), self._then()
        if until <= self.words.now:
            worker = self.words.command("worker")
            passed = f"Its deadline passed at {when}; then {then}."
            return f"{passed} No worker has fired the timer yet: start one with: {worker}"
        return f"Its deadline is {when}; then {then}."

    def _until(self) -> datetime | None:
        """The wait's own deadline, or that of the first of its items."""
        if self.wait.deadline is None and self.wait.kind == "request" and self.row is not None:
            return terms_of(self.wait).deadline(self.row.opened_at)
        return self.wait.deadline

    def _then(self) -> str:
        """What the end of its time leads to (W2), as far as it is stored: defaults are in the code alone."""
        wait = self.wait
        if wait.kind == "request" and terms_of(wait).items and terms_of(wait).on_item_timeout == "reject":
            return "the items that are out of time are rejected, and the others go on"
        if wait.on_timeout == FAIL or (self.run.style == "workflow" and self.details.get("on_timeout") == "fail"):
            return "the run fails with AWAIT_TIMEOUT"
        if wait.on_timeout is not None:
            return f"it goes on with step {wait.on_timeout!r} instead"
        if self._is_of_a_file:
            return self._flow()
        if self.run.style == "machine":
            rest = ", and the rest of its children are cancelled" if wait.cancel_children else ""
            return f"it goes on with {self._place} all the same and is told that the time is up{rest}"
        if self.retried is not None:
            return f"attempt {self.attempts + 1} of the step begins"
        if wait.kind == "sleep":
            is_timer = wait.key.partition("#")[0] == _TIMER
            return "that timer goes off" if is_timer else f"the sleep ends and it goes on behind {self._place}"
        raised = f"{_RAISED.get(wait.kind, 'WaitTimeoutError')} is raised at {self._place}"
        return f"{raised}, unless its code gives a default there"

    def _flow(self) -> str:
        told = self.details.get("metadata") or {}
        if "on_timeout" not in told:  # which of the two, the file alone knows
            return "its on_timeout flow runs, and without one it fails with AWAIT_TIMEOUT"
        flow = told["on_timeout"]
        if flow is not None:
            return f"its flow {flow!r} runs in place of the rest"
        return "the run fails with AWAIT_TIMEOUT, unless an `on failure` handles that"

    def agenda(self) -> Iterator[str]:
        """What is to come while it waits, and who was turned away."""
        for due in planned(self.wait)[:SHOWN]:
            what = f"it goes to {due.to}" if due.to is not None else "there is a reminder"
            yield f"At {self.words.when(due.at)} {what}, if it is still open then."
        silent = silent_at(self.wait)
        if silent is not None:
            yield f"Without a heartbeat it fails at {self.words.when(silent)}."
        refused = [e for e in self.facts.ledger if e.name in TURNED_AWAY and e.data.get("wait") == self.wait.no]
        for entry in refused[-SHOWN:]:
            who = entry.data.get("by") or "somebody"
            why = entry.data.get("reason") or "; ".join(entry.data.get("problems", ()))
            yield f"An answer of {who} was refused at {self.words.when(entry.at)}: {why}."

    # ------------------------------------------------------------ wording

    @property
    def _is_of_a_file(self) -> bool:
        """Whether it is a `wait for` of a machine file, which leads to one of two things (L3, L4)."""
        return self.run.style == "machine_file" and self.wait.kind in ("task", "event", "signal")

    @property
    def _place(self) -> str:
        return f"step {self.wait.key!r}" if self.run.style == "machine" else repr(self.wait.key)


def _requests(unit: Unit | None) -> str:
    if unit is None:
        return "its requests"
    return _count(unit.expected, "request", "requests") + ("" if unit.filled else " so far")


def _counts(unit: Unit | None) -> str:
    """How far they have come, in words."""
    if unit is None:
        return ""
    said = [f"{unit.received - unit.rejected} of {unit.expected} are answered"]
    said += [f"{unit.rejected} came to nothing"] if unit.rejected else []
    said += [f"{unit.expected - unit.handed} are not sent yet"] if unit.handed < unit.expected else []
    return f": {', '.join(said)}"


def _kind_of(child: Run) -> str:
    """Its definition; of a run that asks first whether another may be started (G1), that of the other."""
    if child.definition != APPROVAL:
        return child.definition
    return f"{msgspec.json.decode(child.input)['target']}, once it is approved"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _fields_in_words(schema: Mapping[str, Any], equals: Mapping[str, Any]) -> str:
    """What the data of an event must have, for people who do not program.

    >>> _fields_in_words({"properties": {"ok": {"type": "boolean"}, "why": {"type": ["string", "null"]}},
    ...                   "required": ["ok"]}, {"order": 7})
    'order 7, ok (boolean) and perhaps why (string)'
    """
    required = schema.get("required", ())
    words = [f"{name} {msgspec.json.encode(value).decode()}" for name, value in equals.items()]
    for name, wanted in schema.get("properties", {}).items():
        types = wanted.get("type", "date")  # a date is a text of one of two formats
        kind = next(each for each in ([types] if isinstance(types, str) else types) if each != "null")
        words.append(f"{'' if name in required else 'perhaps '}{name} ({kind})")
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
