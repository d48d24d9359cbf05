"""Why a run stands where it stands, in sentences (`bide explain`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from bide.core.ages import spoken
from bide.core.matching import takes
from bide.core.parked import SHOWN, Facts, needed, parked
from bide.core.records import FINAL, RunError, Signal
from bide.core.redaction import covered_text
from bide.core.wording import Wording

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
_REFUSED = {
    "already_completed": "another answer was there before, and the first one stands",
    "timed_out": "the time was up",
    "shown": "it is an answer to something else than what is shown",
    "conflict": "its giver had given another answer before",
    "cancelled": "its wait was cancelled",
    "stale": "the run had gone on without it",
    "dedup_conflict": "its dedup key had come with another payload before, and the first one stands",
    "inbox_full": "as many signals as may were in its inbox",
    "withdrawn": "the wait that it answered had lost against another when it came",
    "invalid_payload": "its payload is not of the type that the definition declares for it",
}


def explain(facts: Facts, now: datetime, *, options: str = "") -> list[str]:
    """Sentences that say what the run waits for or does, since when and until when, and what a person can do about it.

    *options* is put behind every command shown, such as `--workspace eu`.
    """
    said = _Explanation(facts, Wording(now, options))
    return [*said.standing(), *said.mailbox(), *said.refusals(), *said.relatives()]


class _Explanation:
    def __init__(self, facts: Facts, words: Wording) -> None:
        self.facts, self.run, self.ledger = facts, facts.run, facts.ledger
        self.now = words.now
        self.words = words
        self._when, self._command = words.when, words.command

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
                result = (
                    "."
                    if run.result in (None, "null")
                    else f" with the result {_short(covered_text(run.result, run.redact))}."
                )
                yield ended.format("completed") + result
            case "stopped":
                reason = f": {error.message}" if error is not None and error.message else ""
                yield ended.format("stopped") + f"{reason}."
            case "failed":
                at = f" in step {error.step!r}" if error is not None and error.step else ""
                yield ended.format("failed") + f"{at}: {error.told if error is not None else 'it is not known why'}."
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

    def _waiting(self) -> Iterator[str]:
        if not self.facts.open:
            yield f"{self._name} says that it waits, yet no wait of it is open; run: {self._command('audit')}"
        yield from parked(self.facts, self._name, self.words)

    # ------------------------------------------------------------ what came

    def mailbox(self) -> Iterator[str]:
        for signal in self.facts.inbox[:SHOWN]:
            when = self._when(signal.received_at)
            yield f"Signal {signal.name!r} ({signal.id}) came at {when}: {self._unread(signal)}."
        if len(self.facts.inbox) > SHOWN:
            yield f"{len(self.facts.inbox) - SHOWN} more signals lie in the inbox."

    def _unread(self, signal: Signal) -> str:
        if self.run.status != "waiting":
            return "it lies in the inbox for the step that awaits it"
        takers = [wait for wait in self.facts.open if takes(wait, signal)]
        if any(self.facts.there(wait) >= needed(wait) for wait in takers):
            return f"it should have woken the run and did not; run: {self._command('audit')}"
        if takers:
            wait, came = takers[0], self.facts.there(takers[0])
            return f"it is one of the {needed(wait)} that {wait.key!r} takes together ({came} of them came)"
        if any(signal.seq in wait.seen for wait in self.facts.open):
            return "the step was handed it and chose to wait on, so only another one wakes the run"
        return "nothing waits for that name now, so it lies in the inbox for a later wait"

    def refusals(self) -> Iterator[str]:
        for refused in self.facts.unused[-SHOWN:]:
            why = f"the run was {refused.reason} already" if refused.reason in FINAL else _REFUSED.get(refused.reason)
            why = why or refused.reason
            what = "An answer at" if refused.target.startswith(("int_", "wait_")) else "Signal"
            yield f"{what} {refused.name!r} ({refused.id}) was refused at {self._when(refused.at)}: {why}."
        if len(self.facts.unused) > SHOWN:
            more = len(self.facts.unused) - SHOWN
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


def _short(text: str | None) -> str:
    text = text or "null"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
