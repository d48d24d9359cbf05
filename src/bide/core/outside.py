"""What a batch knows and changes of what the outside sees: interactions, terms of waits, dead letters.

Apart from the rest of the view, because most batches have none of it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from bide.core.records import (
    OPEN_INTERACTION,
    Chore,
    DeadLetter,
    Interaction,
    InteractionStatus,
    RunId,
    Wait,
)

ItemKey = tuple[RunId, int, int]  # run, wait, item
WaitKey = tuple[RunId, int]
LetterKey = tuple[str, str]  # workspace, chore


class Closing(msgspec.Struct, frozen=True, gc=False):
    """All open interactions of a wait end like this."""

    status: InteractionStatus
    at: datetime


class Assigning(msgspec.Struct, frozen=True, gc=False):
    """All open interactions of a wait go to these."""

    assignee: str | None
    group: str | None


class OutsideChanges:
    """What is written: single rows first, then what concerns all interactions of a wait."""

    def __init__(self) -> None:
        self.inserted: dict[ItemKey, Interaction] = {}
        self.updated: dict[ItemKey, Interaction] = {}
        self.assigned: dict[WaitKey, Assigning] = {}
        self.closed: dict[WaitKey, Closing] = {}
        self.terms: dict[WaitKey, Wait] = {}  # waits whose deadline or details are other ones than when they opened
        self.letters: dict[LetterKey, DeadLetter | None] = {}

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.assigned or self.closed or self.terms or self.letters)


class OutsideDraft:
    """What one command changes of it."""

    def __init__(self) -> None:
        self.interactions: dict[ItemKey, Interaction] = {}
        self.assigned: dict[WaitKey, Assigning] = {}
        self.closed: dict[WaitKey, Closing] = {}
        self.terms: dict[WaitKey, Wait] = {}
        self.letters: dict[LetterKey, DeadLetter | None] = {}


class Outside:
    """What was loaded under lock, and what the commands so far made of it."""

    def __init__(self) -> None:
        self.interactions: dict[ItemKey, Interaction] = {}
        self.chores: dict[str, Chore] = {}
        self.letters: dict[LetterKey, DeadLetter] = {}
        self.changes = OutsideChanges()

    def take(self, draft: OutsideDraft) -> None:
        changes = self.changes
        for key, interaction in draft.interactions.items():
            is_new = key in changes.inserted or key not in self.interactions
            self.interactions[key] = interaction
            (changes.inserted if is_new else changes.updated)[key] = interaction
        for wait_key, assigning in draft.assigned.items():
            changes.assigned[wait_key] = assigning
            for known in self._open_of(wait_key):
                self._replace(assigned(known, assigning))
        for wait_key, closing in draft.closed.items():
            changes.closed[wait_key] = closing
            for known in self._open_of(wait_key):
                self._replace(closed(known, closing))
        changes.terms.update(draft.terms)
        for letter_key, letter in draft.letters.items():
            changes.letters[letter_key] = letter
            if letter is not None:
                self.letters[letter_key] = letter
            else:
                self.letters.pop(letter_key, None)

    def _open_of(self, wait_key: WaitKey) -> list[Interaction]:
        found = (row for key, row in self.interactions.items() if key[:2] == wait_key)
        return [row for row in found if row.status in OPEN_INTERACTION]

    def _replace(self, row: Interaction) -> None:
        key = (row.run_id, row.no, row.item)
        self.interactions[key] = row
        (self.changes.inserted if key in self.changes.inserted else self.changes.updated)[key] = row


def assigned(row: Interaction, assigning: Assigning) -> Interaction:
    """An interaction that goes to others: who had claimed it has it no more."""
    return msgspec.structs.replace(row, assignee=assigning.assignee, group=assigning.group, claimed_by=None)


def closed(row: Interaction, closing: Closing) -> Interaction:
    return msgspec.structs.replace(row, status=closing.status, closed_at=closing.at)
