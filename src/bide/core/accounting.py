"""What the ledger of a run must account for: its signals, claims and waits, and their one end (I1–I3, I5, I7–I10, I15).

For stores that read ledgers page by page; one that can ask its tables does so in queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bide.core import ledger
from bide.core.records import FINAL, Run, RunId, StepRow, Style

PROGRESS = frozenset(
    {
        "run_claimed", "step_committed", "step_completed", "step_failed", "step_retried", "run_suspended",
        "signals_consumed", "await_resume_released",
    }
)  # fmt: skip
CLOSES_A_WAIT = frozenset({"await_unit_completed", "await_unit_terminal"})
BEGINS_A_TURN = frozenset({"step_committed", "step_retried", "await_resume_released"})


class Flaw(NamedTuple):
    """An invariant that a ledger breaks, and how."""

    invariant: str
    detail: str


class Account(NamedTuple):
    """A run with its whole ledger, as pages in order, and with what it keeps in its inbox."""

    run_id: RunId
    style: Style
    status: str
    epoch: int
    ledger_seq: int
    ledger_head: str
    pages: Sequence[tuple[int, str]]  # the number of the first entry, and the text
    unread: Sequence[str]
    kept: ledger.Kept
    admitted: Sequence[str] = ()  # messages that dedup keys stand for


def kept_of(run: Run, steps: Iterable[StepRow] = ()) -> ledger.Kept:
    """What the rows of a run say of payloads that its ledger has digests of."""
    done = [(step.key, step.result) for step in steps if step.status == "done"]
    return ledger.Kept(run.input, run.result, run.error, run.redact, done)


def flaws(account: Account) -> Iterator[Flaw]:
    """I16 for the chain; where it is whole, what it tells of signals, ends and epochs."""
    broken = ledger.flaw(account.pages, account.ledger_head, account.ledger_seq, account.status, account.kept)
    if broken is not None:
        yield Flaw("I16", broken.reason)
        return
    pages = [ledger.decode_page(text) for _, text in account.pages]
    entries = [entry for page in pages for entry in page]
    yield from _of_signals(entries, account.unread)
    yield from _of_uses(pages, account.style)
    yield from _of_ends(entries)
    yield from _of_cancels(entries)
    yield from _of_admissions(entries, account.admitted)
    yield from _of_epochs(entries, account.epoch)


def _of_signals(entries: Sequence[ledger.Entry], unread: Sequence[str]) -> Iterator[Flaw]:
    """I1, I2, I18: an admitted signal is unread, or was used up once, or is listed as discarded when its run ended."""
    used = _named(entries, "signals_consumed")
    used.subtract(_named(entries, "signals_returned"))  # one that was used up and returned was not used up
    fates = Counter(unread)
    fates.update(used)
    fates.update(id for entry in entries for id in entry.data.get("discarded", ()))
    for entry in entries:
        if entry.name == "signal_received" and fates[entry.data["id"]] != 1:
            id = entry.data["id"]
            detail = f"signal {id} was admitted and is kept, used or discarded {fates[id]} times"
            yield Flaw("I1", detail)
    for id, times in used.items():
        if times > 1:
            yield Flaw("I2", f"signal {id} was used up {times} times")


def _named(entries: Sequence[ledger.Entry], name: str) -> Counter[str]:
    return Counter(id for entry in entries if entry.name == name for id in entry.data.get("ids", ()))


def _of_uses(pages: Sequence[Sequence[ledger.Entry]], style: Style) -> Iterator[Flaw]:
    """I3: a step uses up only what it was handed: what came by the commit that began its turn.

    The waits of a workflow take a signal as it comes, so of those it is asked only that it had come.
    """
    came: dict[str, int] = {}
    begun = -1
    for no, page in enumerate(pages):
        for entry in page:
            if entry.name == "signal_received":
                came[entry.data["id"]] = no
            if entry.name == "signals_consumed":
                for id in entry.data.get("ids", ()):
                    if id not in came:
                        yield Flaw("I3", f"signal {id} was used up before it came")
                    elif style == "machine" and came[id] > begun:
                        yield Flaw("I3", f"signal {id} was used up by a turn that it came after")
            if "epoch" in entry.data or entry.name in BEGINS_A_TURN:
                begun = no


def _of_ends(entries: Sequence[ledger.Entry]) -> Iterator[Flaw]:
    """I7: a run ends once. I5: and so does each of its waits."""
    closed = Counter(entry.data.get("wait") for entry in entries if entry.name in CLOSES_A_WAIT)
    for no, times in closed.items():
        if times > 1:
            yield Flaw("I5", f"its ledger tells of {times} ends of wait {no}")
    ends = sum(entry.data.get("to") in FINAL for entry in entries)
    if ends > 1:
        yield Flaw("I7", f"its ledger tells of {ends} ends")


def _of_cancels(entries: Sequence[ledger.Entry]) -> Iterator[Flaw]:
    """I10: a run that was cancelled makes no progress any more."""
    is_cancelled = False
    for entry in entries:
        if is_cancelled and entry.name in PROGRESS:
            yield Flaw("I10", f"was cancelled, and its ledger goes on with {entry.name}")
        is_cancelled = is_cancelled or entry.name == "run_cancelled"


def _of_admissions(entries: Sequence[ledger.Entry], admitted: Sequence[str]) -> Iterator[Flaw]:
    """I15: what a dedup key stands for was admitted by the run that it is remembered with."""
    told = {entry.data.get("id") for entry in entries} if admitted else set()
    for id in admitted:
        if id not in told:
            yield Flaw("I15", f"message {id} is known as admitted, and its ledger does not tell of it")


def _of_epochs(entries: Sequence[ledger.Entry], epoch: int) -> Iterator[Flaw]:
    """I8: every claim has a greater epoch than the one before it, and none is ahead of its run."""
    before = 0
    for claimed in (entry.data["epoch"] for entry in entries if "epoch" in entry.data):
        if not before < claimed <= epoch:
            yield Flaw("I8", f"was claimed at epoch {claimed} after {before}, and is at {epoch}")
        before = claimed
