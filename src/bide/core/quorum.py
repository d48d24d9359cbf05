"""When several people must answer: what their answers so far lead to (W11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

MOST_ANSWERS = 100  # they are kept in one row

Outcome = Literal["answered", "agreed", "vetoed", "undecided"]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One person's answer."""

    value: msgspec.Raw
    by: str | None
    at: datetime
    digest: str
    receipt: str


class Verdict(msgspec.Struct, frozen=True):
    """Why no further answer is needed, and what the answers agree on."""

    outcome: Outcome
    value: Any = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How answers are counted. Part of a wait's details."""

    quorum: int = 1
    decides: str | None = None  # the field that is counted; without one any answers count
    veto: Any = False  # True: a `false` in that field; else the value that is a veto
    most_answers: int | None = None

    @property
    def is_plain(self) -> bool:
        return self.quorum == 1


def rule_of(details: Mapping[str, Any]) -> Rule:
    fields = ("quorum", "decides", "veto", "most_answers")
    return Rule(**{name: details[name] for name in fields if name in details})


def weigh(rule: Rule, given: Sequence[Given]) -> Verdict | None:
    """The verdict of the answers so far; None while another answer can still matter.

    In this order: a veto ends it; as many equal votes as the quorum agree; it is undecided when the answers that may
    still come cannot bring any vote to the quorum. Only `most_answers` bounds how many may come.

    >>> yes, no = Given(value=msgspec.Raw(b'{"ok":true}'), by="a", at=datetime.max, digest="", receipt=""), None
    >>> weigh(Rule(quorum=2, decides="ok"), [yes]) is None
    True
    """
    if rule.decides is None:
        return Verdict("answered") if len(given) >= rule.quorum else None
    votes = [_vote(each, rule.decides) for each in given]
    vetoing = _text(False if rule.veto is True else rule.veto)
    if rule.veto is not False and vetoing in votes:
        return Verdict("vetoed", msgspec.json.decode(vetoing))
    vote, count = Counter(votes).most_common(1)[0] if votes else ("null", 0)
    if count >= rule.quorum:
        return Verdict("agreed", msgspec.json.decode(vote))
    if rule.most_answers is not None and count + rule.most_answers - len(given) < rule.quorum:
        return Verdict("undecided")
    return None


def _vote(given: Given, field: str) -> str:
    value = msgspec.json.decode(given.value)
    return _text(value.get(field) if isinstance(value, dict) else None)


def _text(value: object) -> str:
    """Votes are compared as JSON: 1 and true are two votes."""
    return msgspec.json.encode(value, order="sorted").decode()
