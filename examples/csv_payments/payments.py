"""A file of payments, each decided by a provider behind Kafka, and a report at the end.

The provider is no step: it is another program (`provider.py`) that reads requests and answers them in its own time.
`BIDE_KAFKA_SERVERS` names the brokers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

import bide

REQUESTS, REPLIES = "csv-payments.payment.requests", "csv-payments.payment.results"

app = bide.App("csv-payments")


class PaymentRecord(msgspec.Struct):
    id: str
    recipient: str
    amount: int  # in cents


class PaymentStatus(msgspec.Struct):
    id: str
    status: Literal["paid", "pending"]
    fee: int


def read_csv(path: str) -> Iterator[PaymentRecord]:
    """One input, many items. Asked again after a crash, it gives the same rows in the same order."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            yield PaymentRecord(row["id"], row["recipient"], int(row["amount"]))


def key_of(payment: Any) -> str:
    """The business key of an item: of a record as it was read, or as it is stored."""
    return str(payment.id if hasattr(payment, "id") else payment["id"])


def process_status(status: PaymentStatus, item: bide.Item) -> dict[str, Any]:
    """Work on each payment as its answer arrives."""
    return {"id": status.id, "amount": item.request["amount"] - status.fee, "status": status.status}


def write_report(rows: bide.Items) -> dict[str, Any]:
    """Many items, one output: read page by page, so the file may be as long as it likes."""
    count = total = 0
    for row in rows:
        count, total = count + 1, total + row["amount"]
    return {"paid": count, "total": total, "rejected": len(rows.rejected)}


payments = (
    app.pipeline("csv-payments")
    .expand(read_csv)
    .wait_external(
        "payment-provider",
        cardinality="ONE_TO_ONE",
        transport=bide.Kafka(requests=REQUESTS, replies=REPLIES),
        returns=PaymentStatus,
        timeout="1h",
        key=key_of,
    )
    .map(process_status)
    .collect(write_report)
)
