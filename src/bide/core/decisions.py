"""Decision receipts: what binds an answer to what its giver was shown, to the schema and to the giver (W12)."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from bide.core.payloads import canonical, digest

_encode = msgspec.json.Encoder().encode


class DecisionReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Proof of one answer. Equal answers of the same person to the same question have the same `digest`.

    >>> from datetime import UTC
    >>> now = datetime(2030, 1, 1, tzinfo=UTC)
    >>> receipt = seal("default", "int_7_1_0", shown=None, schema=b"", answer="d1", by="ann", at=now)
    >>> is_genuine(receipt)
    True
    """

    digest: str
    workspace: str
    interaction_id: str
    shown: str | None  # the digest of what was shown
    schema: str | None  # the digest of the schema that the answer fits
    answer: str  # the digest of the answer
    by: str | None
    at: datetime


def seal(
    workspace: str,
    interaction_id: str,
    *,
    shown: str | None,
    schema: bytes,
    answer: str,
    by: str | None,
    at: datetime,
) -> DecisionReceipt:
    """The receipt of an answer that fits this schema, as it is written; empty where there is none."""
    version = _version(schema) if schema else None
    return DecisionReceipt(
        digest=_digest(workspace, interaction_id, shown, version, answer, by),
        workspace=workspace,
        interaction_id=interaction_id,
        shown=shown,
        schema=version,
        answer=answer,
        by=by,
        at=at,
    )


def is_genuine(receipt: DecisionReceipt) -> bool:
    """Whether nothing that the receipt binds was changed. When it was given is not part of it."""
    r = receipt
    return r.digest == _digest(r.workspace, r.interaction_id, r.shown, r.schema, r.answer, r.by)


def digest_of(value: Any) -> str:
    """The digest of a value, whatever the order of its keys: what `shown` of an interaction is.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    return digest(canonical(value))[:32]


@lru_cache(maxsize=512)
def _version(schema: bytes) -> str:
    return digest_of(msgspec.json.decode(schema))


def _digest(*bound: str | None) -> str:
    return digest(_encode(("decision", 1, *bound)).decode())
