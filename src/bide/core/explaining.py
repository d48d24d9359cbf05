"""Why a run stands where it stands, in sentences (`bide explain`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from bide.core.agenda import planned, silent_at, terms
from bide.core.ages import relative, spoken, stamp
from bide.core.durations import LATEST
from bide.core.matching import takes
from bide.core.quorum import rule_of
from bide.core.records import FINAL, OPEN_WAIT, Run, RunError, Signal, Unused, Wait, interaction_id
from bide.core.timing import FAIL

SHOWN = 5  # of children, signals and refusals; the rest are counted
LONGEST_VALUE = 200
PATIENCE = timedelta(seconds=10)  # a ready run that nobody took for longer wants a worker

_HELD = {
    "poison": "it was claimed {claims} times in a row and its worker died or vanished each time before a commit",
    "history_mismatch": "its code and its stored history do not fit each other",
    "stuck_thread": "a thread of its step ran past its time and cannot be stopped",
}
_REMEDY = {
    "poison": "Find out what step {step!r} does to its worker",
    "history_mismatch": "Deploy code that fits the history",
    "stuck_thread": "See that step {step!r} ends in time, and restart the worker that runs the thread",
}
TURNED_AWAY = ("await_answer_rejected", "await_answer_denied")
_REFUSED = {
    "already_completed": "another answer was there before, and the first one stands",
    "timed_out": "the time was up",
    "shown": "it is an answer to something else than what is shown",
    "conflict": "its giver had given another answer before",
    "cancelled": "its wait was cancelled",
    "stale": "the run had gone on without it",
    "dedup_conflict": "its dedup key had come with another payload before, and the first one stands",
    "withdrawn": "the wait that it answered had lost against another when it came",
    "invalid_payload": "its payload is not of the type that the definition declares for it",
}


class LedgerEntry(Protocol):
    """What an explanation needs of a ledger's entry, in whatever form the caller has it."""

    @property
    def name(self) -> str: ...
    @property
    def at(self) -> datetime: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


def explain(
    run: Run,
    waits: Sequence[Wait],
    inbox: Sequence[Signal],
    children: Sequence[Run],
    unused: Sequence[Unused],
    now: datetime,
    *,
    ledger: Sequence[LedgerEntry] = (),
    options: str = "",
) -> list[str]:
    """Sentences that say what the run waits for or does, since when and until when, and what a person can do about it.

    *waits*, *inbox*, *children* and *unused* are the run's own; of closed waits none is needed. *ledger* tells of
    workers and errors where it is given. *options* is put behind every command shown, such as `--workspace eu`.
    """
    said = _Explanation(run, waits, inbox, children, unused, now, ledger, options)
    return [*said.standing(), *said.mailbox(), *said.refusals(), *said.relatives()]


class _Explanation:
    def __init__(
        self,
        run: Run,
        waits: Sequence[Wait],
        inbox: Sequence[Signal],
        children: Sequence[Run],
        unused: Sequence[Unused],
        now: datetime,
        ledger: Sequence[LedgerEntry],
        options: str,
    ) -> None:
        self.run = run
        self.open = [wait for wait in waits if wait.status in OPEN_WAIT]
        self.inbox = inbox
        self.children = children
        self.unused = unused
        self.now = now
        self.ledger = ledger
        self.options = f" {options}" if options else ""

    # ------------------------------------------------------------ where it stands

    def standing(self) -> Iterator[str]:
        run = self.run
        if run.status in FINAL:
            yield from self._end()
            return
        if run.status == "waiting":
            yield from self._waiting()
        elif run.status == "running":
            yield from self._running()
        elif run.held is not None:
            yield from self._held()
        else:
            yield from self._ready()
        yield from self._attempts()
        if run.cancel_reason is not None:
            until = f" and may take until {self._when(run.cancel_until)}" if run.cancel_until is not None else ""
            yield f"It is being cancelled ({run.cancel_reason}): its clean-up goes on{until}."

    def _end(self) -> Iterator[str]:
        run = self.run
        error = msgspec.json.decode(run.error, type=RunError) if run.error is not None else None
        ended = f"{self._name} {{}} at {self._when(run.ended_at)}"
        match run.status:
            case "completed":
                result = "." if run.result in (None, "null") else f" with the result {_short(run.result)}."
                yield ended.format("completed") + result
            case "stopped":
                reason = f": {error.message}" if error is not None and error.message else ""
                yield ended.format("stopped") + f"{reason}."
            case "failed":
                at = f" in step {error.step!r}" if error is not None and error.step else ""
                yield ended.format("failed") + f"{at}: {error}."
                yield f"Start it anew with: {self._command('retry', run.id)}"
            case _:
                reason = f": {run.cancel_reason}" if run.cancel_reason else ""
                yield ended.format("was cancelled") + f"{reason}."

    def _held(self) -> Iterator[str]:
        run = self.run
        held = next((entry for entry in reversed(self.ledger) if entry.name == "run_held"), None)
        since = f" since {self._when(held.at)}" if held is not None else ""
        assert run.held is not None
        why = _HELD[run.held].format(claims=run.claims)
        yield f"{self._name} is held as {run.held}{since}: {why}."
        if held is not None and held.data.get("reason"):
            yield f"What was found: {held.data['reason']}."
        remedy = _REMEDY[run.held].format(step=run.step)
        yield f"No worker takes it until a person releases it. {remedy}, then: {self._command('retry', run.id)}"

    def _ready(self) -> Iterator[str]:
        run = self.run
        when = self._when(run.ready_at)
        if run.ready_at > self.now:
            again = " again" if run.attempt else ""
            yield f"{self._name} is ready and runs step {run.step!r}{again} at {when}{self._delay()}."
            return
        yield f"{self._name} is ready to run step {run.step!r} since {when}, in queue {run.queue!r}."
        if self.now - run.ready_at > PATIENCE:
            queue = "" if run.queue == "default" else f" --queue {shlex.quote(run.queue)}"
            yield (
                f"No worker took it for {spoken(self.now - run.ready_at)}: none serves this queue and definition, "
                f"or all are busy. Start one with: {self._command('worker')}{queue}"
            )

    def _delay(self) -> str:
        if self.ledger and self.ledger[-1].name == "run_given_back":
            return f": a worker gave it back, probably because it lacks {self.run.definition}@{self.run.version}"
        return ": it was started with a delay" if self.run.commits == 0 else ""

    def _running(self) -> Iterator[str]:
        run = self.run
        claim = next((entry for entry in reversed(self.ledger) if "worker" in entry.data), None)
        who = f" by worker {claim.data['worker']} since {self._when(claim.at)}" if claim is not None else ""
        yield f"{self._name} is running step {run.step!r}{who}, under claim {run.epoch}."
        yield "Should that worker die, its lease ends by itself and another worker takes the run."
        if run.claims > 1:
            yield (
                f"This is claim number {run.claims} without a commit in between: earlier workers died or lost it. "
                "After a few more it is held as poison."
            )

    def _attempts(self) -> Iterator[str]:
        run = self.run
        if run.attempt == 0:
            return
        times = "once" if run.attempt == 1 else f"{run.attempt} times"
        retried = next((entry for entry in reversed(self.ledger) if entry.name == "step_retried"), None)
        error = retried.data.get("error") if retried is not None else None
        last = f"; the last error, at {self._when(retried.at)}, was {error}" if retried is not None and error else ""
        yield f"That step was tried {times} so far{last}."

    # ------------------------------------------------------------ what it waits for

    def _waiting(self) -> Iterator[str]:
        if not self.open:
            yield f"{self._name} says that it waits, yet no wait of it is open; run: {self._command('audit')}"
        for at, wait in enumerate(self.open):
            subject = f"{self._name} is waiting" if at == 0 else "It is also waiting"
            if wait.kind == "children":
                yield from self._join(subject, wait)
            elif wait.kind in ("signals", "receive"):
                yield from self._signals(subject, wait)
            elif wait.kind == "event":
                yield from self._event(subject, wait)
            elif wait.kind == "task":
                yield from self._task(subject, wait)
            elif wait.kind == "signal":
                [signal_id] = wait.names
                if wait.status == "reserved":
                    yield f"{self._name} holds the signal id {signal_id!r} for {wait.key!r}, which it has not reached."
                    continue
                yield f"{subject} for an answer to {signal_id!r} at {wait.key!r} since {self._when(wait.opened_at)}."
                command = self._command("complete", signal_id, "{}")
                yield f"Answer it, with the data as JSON in place of {{}}, by: {command}"
            else:
                yield f"{subject} at {wait.key!r} since {self._when(wait.opened_at)}: it sleeps."
            if self._is_of_a_file(wait):
                name = wait.key.partition("#")[0]
                yield f"On an answer it goes on behind {name!r}, with the answer as steps.{name}."
            yield self._deadline(wait)
            yield from self._agenda(wait)

    def _task(self, subject: str, wait: Wait) -> Iterator[str]:
        details = terms(wait)
        yield f"{subject} for a person at {wait.key!r} since {self._when(wait.opened_at)}."
        yield f"It asks: {details.get('title', wait.key)}"
        rule = rule_of(details)
        who = _expected_from(details) or "from anybody"
        several = f"; {rule.quorum} different people must answer" if rule.quorum > 1 else ""
        yield f"The answer is expected {who}{several}."
        command = self._command("answer", interaction_id(wait.run_id, wait.no, 0), "{}")
        if details.get("assignee") or details.get("group") or rule.quorum > 1:
            command = command.replace(" '{}'", " '{}' --by NAME", 1)
        yield f"Answer it, with the answer as JSON in place of {{}}, by: {command}"

    def _agenda(self, wait: Wait) -> Iterator[str]:
        """What is to come while it waits, and who was turned away."""
        for due in planned(wait)[:SHOWN]:
            what = f"it goes to {due.to}" if due.to is not None else "there is a reminder"
            yield f"At {self._when(due.at)} {what}, if it is still open then."
        silent = silent_at(wait)
        if silent is not None:
            yield f"Without a heartbeat it fails at {self._when(silent)}."
        refused = [e for e in self.ledger if e.name in TURNED_AWAY and e.data.get("wait") == wait.no]
        for entry in refused[-SHOWN:]:
            who = entry.data.get("by") or "somebody"
            why = entry.data.get("reason") or "; ".join(entry.data.get("problems", ()))
            yield f"An answer of {who} was refused at {self._when(entry.at)}: {why}."

    def _event(self, subject: str, wait: Wait) -> Iterator[str]:
        [pattern] = wait.names
        details = msgspec.json.decode(wait.details, type=dict[str, Any])
        where = f" of which {details['match']} is true" if details.get("match") else ""
        by = f" by channel {details['channel']}" if details.get("channel") else ""
        since = self._when(wait.opened_at)
        yield f"{subject} for an event {pattern!r}{where}{by} at {wait.key!r} since {since}."
        if "*" not in pattern:
            command = self._command("emit", pattern, "{}")
            yield f"Any such event lets it go on; emit one, with the data as JSON in place of {{}}, by: {command}"

    def _signals(self, subject: str, wait: Wait) -> Iterator[str]:
        names = [repr(name) for name in wait.names]
        what = f"the signal {names[0]}" if len(names) == 1 else f"any of the signals {', '.join(names)}"
        yield f"{subject} for {what} since {self._when(wait.opened_at)}; then it goes on with {self._place(wait)}."
        details = msgspec.json.decode(wait.details, type=dict[str, Any])
        if details.get("title"):
            yield f"It asks: {details['title']}"
        expected = _expected_from(details)
        if expected:
            yield f"The answer is expected {expected}."
        target = self.run.correlation_key if self.run.correlation_key is not None else self.run.id
        for at, name in enumerate(wait.names[:SHOWN]):
            words = "Answer it, with the payload as JSON in place of {}, by" if at == 0 else "Or by"
            yield f"{words}: {self._command('signal', target, name, '{}')}"

    def _join(self, subject: str, wait: Wait) -> Iterator[str]:
        yield (
            f"{subject} for its {_count(wait.expected, 'child', 'children')} since {self._when(wait.opened_at)}: "
            f"{wait.received} of {wait.expected} have ended; then it goes on with {self._place(wait)}."
        )
        live = [child for child in self.children if child.parent_wait == wait.no and child.status not in FINAL]
        for child in live[:SHOWN]:
            held = f", held as {child.held}" if child.held else ""
            yield f"Child {child.id} ({child.definition}) is {child.status}{held}, step {child.step!r}."
        if len(live) > SHOWN:
            yield f"{len(live) - SHOWN} more children have not ended."
        if live:
            yield f"See why a child has not ended with: {self._command('explain', live[0].id)}"

    def _deadline(self, wait: Wait) -> str:
        if wait.deadline is None or wait.deadline >= LATEST:
            what = "the end of its children" if wait.kind == "children" else "an answer"
            return f"It has no deadline: only {what} or a cancel will ever move it."
        then = self._then(wait)
        if wait.deadline <= self.now:
            return (
                f"Its deadline passed at {self._when(wait.deadline)}; then {then}. No worker has fired the timer yet: "
                f"start one with: {self._command('worker')}"
            )
        return f"Its deadline is {self._when(wait.deadline)}; then {then}."

    def _then(self, wait: Wait) -> str:
        """What the end of its time leads to (W2)."""
        if wait.on_timeout == FAIL:
            return "the run fails with AWAIT_TIMEOUT"
        if wait.on_timeout is not None:
            return f"it goes on with step {wait.on_timeout!r} instead"
        if self._is_of_a_file(wait):
            told = terms(wait).get("metadata") or {}
            if "on_timeout" not in told:  # which of the two, the file alone knows
                return "its on_timeout flow runs, and without one it fails with AWAIT_TIMEOUT"
            flow = told["on_timeout"]
            if flow is not None:
                return f"its flow {flow!r} runs in place of the rest"
            return "the run fails with AWAIT_TIMEOUT, unless an `on failure` handles that"
        return f"it goes on with {self._place(wait)} all the same and is told that the time is up"

    def _is_of_a_file(self, wait: Wait) -> bool:
        """Whether it is a `wait for` of a machine file, which leads to one of two things (L3, L4)."""
        return self.run.style == "machine_file" and wait.kind in ("task", "event", "signal")

    def _place(self, wait: Wait) -> str:
        return f"step {wait.key!r}" if self.run.style == "machine" else repr(wait.key)

    # ------------------------------------------------------------ what came

    def mailbox(self) -> Iterator[str]:
        for signal in self.inbox[:SHOWN]:
            when = self._when(signal.received_at)
            yield f"Signal {signal.name!r} ({signal.id}) came at {when}: {self._unread(signal)}."
        if len(self.inbox) > SHOWN:
            yield f"{len(self.inbox) - SHOWN} more signals lie in the inbox."

    def _unread(self, signal: Signal) -> str:
        if self.run.status != "waiting":
            return "it lies in the inbox for the step that awaits it"
        if any(takes(wait, signal) for wait in self.open):
            return f"it should have woken the run and did not; run: {self._command('audit')}"
        if any(signal.seq in wait.seen for wait in self.open):
            return "the step was handed it and chose to wait on, so only another one wakes the run"
        return "nothing waits for that name now, so it lies in the inbox for a later wait"

    def refusals(self) -> Iterator[str]:
        for refused in self.unused[-SHOWN:]:
            why = f"the run was {refused.reason} already" if refused.reason in FINAL else _REFUSED.get(refused.reason)
            why = why or refused.reason
            what = "An answer at" if refused.target.startswith(("int_", "wait_")) else "Signal"
            yield f"{what} {refused.name!r} ({refused.id}) was refused at {self._when(refused.at)}: {why}."
        if len(self.unused) > SHOWN:
            more = len(self.unused) - SHOWN
            yield f"{more} earlier arrivals were refused too; list them with: {self._command('unused')}"

    def relatives(self) -> Iterator[str]:
        if self.run.parent_id is not None:
            yield f"It is a child of {self.run.parent_id}."
        if self.run.retry_of is not None:
            yield f"It retries {self.run.retry_of}."

    # ------------------------------------------------------------ wording

    @property
    def _name(self) -> str:
        return f"{self.run.id} ({self.run.definition}@{self.run.version})"

    def _when(self, moment: datetime | None) -> str:
        assert moment is not None, "only asked where there is a moment"
        return f"{stamp(moment)} ({relative(moment, self.now)})"

    def _command(self, verb: str, *words: str) -> str:
        if any(word.startswith("-") for word in words):  # not to be taken for an option
            return f"bide {verb}{self.options} -- {shlex.join(words)}"
        return shlex.join(("bide", verb, *words)) + self.options


def _expected_from(details: dict[str, Any]) -> str:
    said = []
    if details.get("assignee"):
        said.append(f"from {details['assignee']}")
    if details.get("group"):
        said.append(f"from group {details['group']}")
    if details.get("channel"):
        said.append(f"by channel {details['channel']}")
    return ", ".join(said)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _short(text: str | None) -> str:
    text = text or "null"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
