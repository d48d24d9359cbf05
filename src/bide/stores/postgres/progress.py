"""Runs in progress: as this process wrote them last, and by which transaction.

A turn's commit finds its run as the claim left it, nearly always. Whoever changes anything of a run writes its row
(`tables._touched`), so the version of the row (`xmin`) says whether anybody has done so since; it is looked at when the
lock is held. What is known of a run whose version is the known one need not be read again. What was forgotten here, or
never known, is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from bide.core.records import Run, RunId, Signal, Turn

MOST = 10_000
_VERSIONS = 2**32  # a row has the last 32 bits of the number of the transaction that wrote it


class Written(NamedTuple):
    version: str
    run: Run
    inbox: tuple[Signal, ...] | None  # all of it; None where it was not read


class InProgress:
    """What is kept goes with the end of the turn; the oldest where there is too much of it (D1)."""

    def __init__(self) -> None:
        self._runs: OrderedDict[RunId, Written] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, transaction: str | None, written: Iterable[Run], turns: Mapping[RunId, Turn]) -> None:
        """The transaction of this number, where it is known, has been committed, and has written these runs."""
        version = str(int(transaction) % _VERSIONS) if transaction is not None else None
        for run in written:
            if version is None or run.status != "running":
                self._runs.pop(run.id, None)
                continue
            turn = turns.get(run.id)
            inbox = turn.inbox if turn is not None and len(turn.inbox) == run.inbox_count else None
            self._runs[run.id] = Written(version, run, inbox)
        while len(self._runs) > MOST:
            self._runs.popitem(last=False)

    def knows_any(self, ids: Iterable[RunId]) -> bool:
        return any(run_id in self._runs for run_id in ids)

    def unmoved(self, versions: Collection[tuple[RunId, str]]) -> dict[RunId, Written]:
        """Of runs that are locked, with the versions of their rows, those that nobody else has written.

        The others may be in progress somewhere else by now, and are forgotten.
        """
        found: dict[RunId, Written] = {}
        for run_id, version in versions:
            known = self._runs.get(run_id)
            if known is None:
                continue
            if known.version == version:
                found[run_id] = known
            else:
                del self._runs[run_id]
        return found

    def forget(self) -> None:
        """A connection was lost: another server may have taken over, which counts its transactions anew."""
        self._runs.clear()
