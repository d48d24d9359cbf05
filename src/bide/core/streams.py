"""Item streams of pipelines: items enter, their work is claimed and committed item by item, and the run goes on when
every item has come to its end (U4, U5).

How far a stream has come is kept as counts in the run's state, so nothing ever reads all of its items. The run row is
locked by whoever changes them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from bide.core import checkpoints, exchanges
from bide.core.batch import Draft
from bide.core.commands import CommitTurn, Reply
from bide.core.deadlines import deadline_of
from bide.core.durations import deadline_after
from bide.core.exchanging import NewRequest, terms_of
from bide.core.moves import close_wait, describe, make_ready, park, wake
from bide.core.records import FINAL, OPEN_WAIT, DeadLetter, Item, Run, RunId, Unit, Wait
from bide.core.redaction import hidden_values, names_in, scrubbed
from bide.core.streaming import (
    Ask,
    ClaimedItems,
    ClaimItems,
    Feed,
    FinishItems,
    ItemOffer,
    ItemOutcome,
    NewItem,
    Publication,
    RenewItems,
    Stage,
)
from bide.core.traces import with_trace

START = "(start)"  # the step of a pipeline's run before its first commit: its state is its input


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a pipeline has come: its state. *at* is the stage that the run itself does next.

    While a stream is being filled that is the stage that feeds it, and *value* is what it is made from.
    """

    at: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")  # what the last stage that gave one thing gave
    section: int = 0  # the newest stream
    boundary: int = 0  # the stage of the run that follows the stream
    boundary_name: str = ""
    stages: list[str] = []
    waits: list[int] = []  # the number of the wait of each stage, 0 for work
    lost: list[int] = []  # how many items ended at each stage
    total: int = 0
    filled: bool = False  # no item will be added
    done: int = 0
    dropped: int = 0
    rejected: int = 0
    dead: int = 0  # given up, and waiting for a person
    unit: int = 0  # the wait whose stored output this stream replays as a whole
    source: int = 0  # of such a stream: the stage that feeds it, and its name
    source_name: str = ""
    failures: int = 0  # of such a stream, since its output was stored
    restart: bool = False  # such a stream failed and is given anew

    @property
    def is_over(self) -> bool:
        return self.filled and not self.restart and self.done + self.dropped + self.rejected == self.total


_decoder = msgspec.json.Decoder(Progress)


def progress_of(run: Run) -> Progress:
    """The progress of a pipeline's run; before its first commit its state is its input.

    >>> _decoder.decode('{"at":2,"total":5,"done":5,"filled":true}').is_over
    True
    """
    return _decoder.decode(run.state) if run.step != START else Progress(value=msgspec.Raw(run.input.encode()))


def encode_progress(progress: Progress) -> str:
    return msgspec.json.encode(progress).decode()


def letter_id(item: Item) -> str:
    return f"item:{item.run_id}:{item.section}:{item.item}"


def item_of_letter(id: str) -> tuple[RunId, int, int] | None:
    """The item that a dead letter is about; None where it is about something else.

    >>> item_of_letter("item:run_7:1:20")
    ('run_7', 1, 20)
    """
    kind, _, rest = id.partition(":")
    if kind != "item":
        return None
    run_id, section, item = rest.rsplit(":", 2)
    return RunId(run_id), int(section), int(item)


class Stream:
    """The newest stream of one run, while a command changes it."""

    def __init__(self, draft: Draft, run: Run) -> None:
        self.draft = draft
        self.run = run
        self.progress = progress_of(run)
        self._changed: dict[str, list[int]] = {}  # for the ledger
        self.published: list[Publication] = []
        self.offer: ItemOffer | None = None
        self.handed: list[Item] = []  # to the process that made the offer
        self._delay = timedelta(0)

    # -- items

    def begin(self, feed: Feed) -> None:
        stages, before = feed.stages, self.progress
        for wait in self.draft.open_waits(self.run):  # of a unit that is given anew
            self.run = close_wait(self.draft, self.run, wait, "cancelled", "restarted")
        self.run = replace(self.run, step=feed.source_name)
        self.progress = Progress(
            at=self.progress.at,
            value=self.progress.value,
            section=feed.section,
            boundary=feed.boundary,
            boundary_name=feed.boundary_name,
            stages=[stage.name for stage in stages],
            waits=[0] * len(stages),
            lost=[0] * len(stages),
            unit=feed.unit,
            source=before.at if feed.unit else 0,
            source_name=feed.source_name if feed.unit else "",
            failures=before.failures if feed.unit and feed.unit == before.unit else 0,
        )
        data = {"section": feed.section, "stages": self.progress.stages, "until": feed.boundary_name}
        self.run = self.draft.put_run(self.draft.record(self.run, "stream_began", data))
        for at, stage in enumerate(stages):
            if stage.kind == "wait":
                self.run, wait = open_wait(self.draft, self.run, stage)
                self.progress.waits[at] = wait.no

    def is_worn_out(self, most: int) -> bool:
        """Whether a unit failed so often that a further item whose worker died is not tried again."""
        return bool(self.progress.unit) and self.progress.failures + 1 >= most

    def has_left(self, section: int) -> bool:
        """Whether the run has nothing to do with the items of this stream any more: it is given anew."""
        return section != self.progress.section or self.progress.restart

    def waiting_at(self, no: int, item_no: int) -> Item | None:
        """The item that waits for an answer at the wait with this number."""
        item = self.draft.item((self.run.id, self.progress.section, item_no))
        if item is None or item.status != "waiting" or self.progress.waits[item.stage] != no:
            return None
        return item

    def add(self, no: int, new: NewItem) -> None:
        progress = self.progress
        progress.total += 1
        item = Item(
            run_id=self.run.id,
            section=progress.section,
            item=no,
            status="ready",
            stage=0,
            value=new.value,
            key=new.key,
        )
        self.arrive(item)

    def arrive(self, item: Item) -> Item:
        """Let an item stand before its stage: its work is due, or it goes out, or it is done."""
        if item.stage == len(self.progress.stages):
            return self.end(replace(item, status="done"))
        no = self.progress.waits[item.stage]
        if not no:
            return self.draft.put_item(self._hand_over(replace(item, status="ready", due_at=self.draft.now)))
        wait = self.draft.wait(self.run.id, no)
        assert wait is not None, "the waits of a stream are open while it has items"
        unit = exchanges.unit_of(self.draft, wait)
        exchanges.open_item(self.draft, self.run, wait, terms_of(wait), unit, item.item, item.value)
        return self.draft.put_item(replace(item, status="waiting", due_at=None, claims=0))

    def _hand_over(self, item: Item) -> Item:
        """Let whoever offers to do the work have it, where there is room."""
        offer, run = self.offer, self.run
        if offer is None or len(self.handed) >= offer.room:
            return item
        if run.queue not in offer.queues or run.definition not in offer.definitions:
            return item
        until = deadline_after(self.draft.now, offer.lease)
        self.handed.append(replace(item, epoch=item.epoch + 1, claims=item.claims + 1, due_at=until))
        return self.handed[-1]

    def answered(self, no: int, item_no: int, value: str) -> None:
        """The answer of an item is there: it goes on to its next stage, whatever the others do (U4)."""
        item = self.waiting_at(no, item_no)
        if item is not None:
            self.arrive(replace(item, stage=item.stage + 1, value=value, attempts=0, error=None))

    def refused(self, no: int, item_no: int, reason: str) -> None:
        """The outside declined an item, or had no time for it: the others go on without it."""
        item = self.waiting_at(no, item_no)
        if item is not None:
            self.end(replace(item, status="rejected", error=reason))

    def end(self, item: Item) -> Item:
        """The item has come to its end: through the stream, or out of it."""
        progress = self.progress
        match item.status:
            case "done":
                progress.done += 1
            case "dropped":
                progress.dropped += 1
            case _:
                progress.rejected += 1
        if item.stage < len(progress.lost):
            progress.lost[item.stage] += 1
        self._changed.setdefault(item.status, []).append(item.item)
        return self.draft.put_item(replace(item, due_at=None, claims=0))

    def give_up(self, item: Item, error: str) -> None:
        """Nobody tries any more: a dead letter, until a person decides. The stream waits for it."""
        self.progress.dead += 1
        self._changed.setdefault("dead", []).append(item.item)
        letter = DeadLetter(
            workspace=self.run.workspace,
            id=letter_id(item),
            run_id=item.run_id,
            kind="item",
            data=msgspec.json.encode({"section": item.section, "item": item.item, "stage": item.stage}).decode(),
            error=error,
            tries=max(1, item.attempts),
            at=self.draft.now,
        )
        self.draft.outside.letters[(letter.workspace, letter.id)] = letter
        self.draft.put_item(replace(item, status="dead", due_at=None, claims=0, error=error))

    def restart(self, failed: Item, error: str, delay: timedelta) -> None:
        """Give the whole unit anew: its stored output is there, so the run goes back to the stage that has it (U5)."""
        progress = self.progress
        if progress.restart:
            return  # another item said so
        progress.failures += 1
        progress.restart = True
        progress.at = progress.source
        data = {"section": progress.section, "item": failed.item, "failures": progress.failures, "error": error}
        self.run = self.draft.put_run(self.draft.record(self.run, "unit_restarted", data))
        self._delay = delay

    # -- the run

    def close(self) -> Run:
        """Put the counts into the run, and let it go on where the stream is over."""
        progress = self.progress
        self.run = replace(self.run, state=encode_progress(progress), updated_at=self.draft.now)
        if self._changed:
            data = {"section": progress.section, **self._changed}
            self.run = self.draft.record(self.run, "items_committed", data)
        if self.published:
            self.run = checkpoints.publish(self.draft, self.run, self.published)
        self.draft.put_run(self.run)
        if progress.restart:
            return self._go_back()
        self._fill_waits()
        if self.run.status == "waiting":
            self._release() if progress.is_over else self._stay_parked()
        return self.run

    def _fill_waits(self) -> None:
        """A wait has all its items when each item of the stream has come to it, or was lost before it (U6)."""
        progress = self.progress
        for at, no in enumerate(progress.waits):
            wait = self.draft.wait(self.run.id, no) if no else None
            if wait is None or wait.status not in OPEN_WAIT or not progress.filled:
                continue
            unit = exchanges.unit_of(self.draft, wait)
            if not unit.filled and unit.expected + sum(progress.lost[:at]) == progress.total:
                self.run = exchanges.settle(self.draft, self.run, wait, replace(unit, filled=True))
                self.draft.put_run(self.run)

    def _release(self) -> None:
        run, last = self.run, self.draft.wait(self.run.id, self.run.parked_on or 0)
        for wait in self.draft.open_waits(run):
            run = close_wait(self.draft, run, wait, "completed", "items")
        assert last is not None, "a waiting run is parked on a wait"
        self.run = wake(self.draft, run, last, self.progress.boundary_name)

    def _go_back(self) -> Run:
        """Let the run begin the unit again. One that is still giving items hears of it with its next commit."""
        run = self.run
        if run.status == "waiting":
            for wait in self.draft.open_waits(run):
                run = close_wait(self.draft, run, wait, "cancelled", "restarted")
            run = replace(run, parked_on=None, woken_by=None, step=self.progress.source_name, claims=0)
            at = deadline_after(self.draft.now, self._delay)
            self.run = make_ready(self.draft, run, at, "await_resume_released", {"step": run.step})
        return self.run

    def _stay_parked(self) -> None:
        """The run is parked on an open wait as long as there is one; else on the boundary itself."""
        run = self.run
        parked_on = self.draft.wait(run.id, run.parked_on or 0)
        if parked_on is not None and parked_on.status in OPEN_WAIT:
            return
        still_open = self.draft.open_waits(run)
        if not still_open:
            run, wait = self.open_boundary(run)
            still_open = [wait]
        self.run = self.draft.put_run(replace(run, parked_on=still_open[0].no))

    def open_boundary(self, run: Run) -> tuple[Run, Wait]:
        progress = self.progress
        wait = self.draft.put_wait(
            Wait(
                workspace=run.workspace,
                run_id=run.id,
                no=run.wait_no + 1,
                key=progress.boundary_name,
                kind="items",
                status="waiting",
                opened_at=self.draft.now,
            )
        )
        run = self.draft.put_run(replace(run, wait_no=wait.no, open_waits=(*run.open_waits, wait.no)))
        return self.draft.record(run, "await_execution_waiting", describe(wait)), wait


def open_wait(draft: Draft, run: Run, stage: Stage) -> tuple[Run, Wait]:
    """Open the wait of a stage; its interactions come as items do."""
    deadline = deadline_of(draft.now, stage.timeout) if not stage.items else None
    wait = draft.put_wait(
        Wait(
            workspace=run.workspace,
            run_id=run.id,
            no=run.wait_no + 1,
            key=stage.name,
            kind="request",
            status="waiting",
            opened_at=draft.now,
            deadline=deadline,
            due_at=deadline,
            on_timeout="!fail",
            expected=0 if stage.items else 1,
            details=with_trace(stage.details, draft.trace),
        )
    )
    draft.put_unit(Unit(run_id=run.id, no=wait.no))
    run = draft.put_run(replace(run, wait_no=wait.no, open_waits=(*run.open_waits, wait.no)))
    return draft.record(run, "await_execution_waiting", describe(wait)), wait


def ask(draft: Draft, run: Run, command: CommitTurn, request: Ask) -> Run:
    """Park a run on one request for all that came to this stage."""
    run = replace(run, attempt=0, step=request.stage.name, woken_by=None, state=request.state)
    run, wait = open_wait(draft, draft.put_run(run), request.stage)
    run = exchanges.add(draft, run, wait, NewRequest(payloads=(request.payload,)))
    return park(draft, run, draft.wait(run.id, wait.no) or wait)


def feed(draft: Draft, run: Run, feed: Feed) -> Run:
    """Store the items of one chunk; those that are there already are passed over."""
    stream = Stream(draft, run)
    if feed.section == stream.progress.section + 1:
        stream.begin(feed)
    assert feed.section == stream.progress.section, "a stage feeds the newest stream"
    for no, new in enumerate(feed.items, start=feed.first):
        if no >= stream.progress.total:
            stream.add(no, new)
    if stream.progress.restart:
        return stream.close()
    if feed.is_last:
        stream.progress.filled = True
        stream.progress.at, stream.progress.value = feed.boundary, msgspec.Raw(b"null")
    return stream.close()


def settle(draft: Draft, run: Run, command: CommitTurn) -> tuple[Run, bool]:
    """The stage that fed the stream is through; whether the stream is over already and the run goes on."""
    stream = Stream(draft, run)
    if stream.progress.restart:
        return replace(run, attempt=0, step=stream.progress.source_name, woken_by=None), True
    run = replace(run, attempt=0, step=stream.progress.boundary_name, woken_by=None)
    if stream.progress.is_over:
        return run, True
    still_open = draft.open_waits(run)
    if not still_open:
        run, wait = stream.open_boundary(run)
        still_open = [wait]
    return park(draft, run, still_open[0]), False


# ---------------------------------------------------------------- work


def claim(draft: Draft, command: ClaimItems) -> Reply:
    """Give items to a worker under a new epoch each. Only the rows decide; that they were due was a hint."""
    run = draft.run(command.run_id)
    if run is None:
        return ClaimedItems(None)
    stream = Stream(draft, run)
    claimed: list[Item] = []
    for no in command.items:
        item = draft.item((run.id, command.section, no))
        if item is None or item.status != "ready" or item.due_at is None or item.due_at > draft.now:
            continue
        if run.status in FINAL or stream.has_left(command.section):
            draft.put_item(replace(item, due_at=None))  # nobody wants it any more
        elif item.claims >= command.max_claims or (item.claims and stream.is_worn_out(command.max_claims)):
            stream.give_up(item, f"its work killed its worker {max(item.claims, stream.progress.failures + 1)} times")
        elif item.claims and stream.progress.unit:
            stream.restart(item, "its worker died", timedelta(0))
            claimed = []
            break
        else:
            until = deadline_after(draft.now, command.lease)
            claimed.append(draft.put_item(replace(item, epoch=item.epoch + 1, claims=item.claims + 1, due_at=until)))
    moved = stream.progress != progress_of(run)
    if moved:
        run = stream.close()
    return ClaimedItems(run, tuple(claimed), moved=moved)


def renew(draft: Draft, command: RenewItems) -> Reply:
    run = draft.run(command.run_id)
    stale = 0
    for no, epoch in command.claims:
        item = draft.item((command.run_id, command.section, no))
        if run is None or run.status in FINAL or item is None or item.status != "ready" or item.epoch != epoch:
            stale += 1
        elif item.due_at is None:
            stale += 1  # its stream is given anew
        else:
            draft.put_item(replace(item, due_at=deadline_after(draft.now, command.lease)))
    return ClaimedItems(run, (), stale)


def finish(draft: Draft, command: FinishItems) -> Reply:
    """Commit what work came to. An outcome whose claim was lost changes nothing (D3)."""
    run = draft.run(command.run_id)
    if run is None or run.status in FINAL:
        return ClaimedItems(run, (), len(command.outcomes))
    stream, kept, stale = Stream(draft, run), [], 0
    for outcome in command.outcomes:
        item = draft.item((run.id, command.section, outcome.item))
        is_held = item is not None and item.status == "ready" and item.epoch == outcome.epoch
        if item is None or not is_held or item.due_at is None or stream.has_left(command.section):
            stale += 1
            continue
        item = _after(stream, item, _without_hidden(run, item, outcome))
        if command.lease is not None and outcome.status == "next" and item.status == "ready":
            until = deadline_after(draft.now, command.lease)
            kept.append(draft.put_item(replace(item, due_at=until, claims=1)))
    run = stream.close()
    return ClaimedItems(run, tuple(kept) if not stream.progress.restart else (), stale)


def _without_hidden(run: Run, item: Item, outcome: ItemOutcome) -> ItemOutcome:
    """The outcome without hidden values of the item in what user code said when it failed (G4)."""
    if not run.redact or outcome.error is None:
        return outcome
    values = hidden_values(names_in(run.redact), item.value, run.input)
    return replace(outcome, error=scrubbed(outcome.error, values))


def _after(stream: Stream, item: Item, outcome: ItemOutcome) -> Item:
    draft = stream.draft
    match outcome.status:
        case "next":
            value = outcome.value if outcome.value is not None else item.value
            key = outcome.key if outcome.key is not None else item.key
            moved = replace(item, stage=item.stage + 1, value=value, key=key, attempts=0, claims=0, error=None)
            if outcome.publishes is not None:
                stream.published.append(outcome.publishes)
            return stream.arrive(moved)
        case "dropped":
            return stream.end(replace(item, status="dropped"))
        case "rejected":
            return stream.end(replace(item, status="rejected", error=outcome.error))
        case "again" if stream.progress.unit:
            stream.restart(item, outcome.error or "", outcome.delay)
            return draft.put_item(replace(item, due_at=None))
        case "again":
            due_at = deadline_after(draft.now, outcome.delay)
            tried = replace(item, attempts=item.attempts + 1, claims=0, due_at=due_at, error=outcome.error)
            return draft.put_item(tried)
        case _:
            stream.give_up(replace(item, attempts=item.attempts + 1), outcome.error or "")
            return item


def settle_item(draft: Draft, run_id: RunId, section: int, no: int, action: Literal["retry", "discard"]) -> bool:
    """A person decided about an item that was given up; whether it still wanted a decision."""
    run = draft.run(run_id)
    item = draft.item((run_id, section, no))
    if run is None or run.status in FINAL or item is None or item.status != "dead":
        return False
    stream = Stream(draft, run)
    if stream.has_left(section):
        return False
    stream.progress.dead -= 1
    if action == "retry" and stream.progress.unit:
        stream.progress.failures = 0
        stream.restart(item, "a person asked for it", timedelta(0))
        draft.put_item(replace(item, status="ready", due_at=None))
    elif action == "retry":
        stream.arrive(replace(item, attempts=0, error=None))
    else:
        stream.end(replace(item, status="rejected"))
    stream.close()
    return True
