"""The example csv-payments, with its provider in the test: late, twice and rejected answers (U9, U10)."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from bide.testing import world

FOLDER = Path(__file__).parent.parent / "examples" / "csv_payments"


@pytest.fixture
def payments(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("payments", None)
    import payments  # type: ignore[import-not-found]  # its folder was just put on the path

    return payments


async def test_U10_a_file_of_payments_is_paid_and_reported(payments: Any, store_url: str, tmp_path: Path) -> None:
    path = tmp_path / "payments.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "recipient", "amount"])
        writer.writerows([f"pay-{row}", "Ann", 1000] for row in range(10))
    async with world(payments.app, store_url) as there:
        run = await there.start(payments.payments, str(path))
        sent = there.sent("kafka")
        assert [request.data["id"] for request in sent] == [f"pay-{row}" for row in range(10)]
        for request in reversed(sent):
            if request.item == 3:
                await there.reply(request, error="the account is closed")
                continue
            answer = {"id": request.data["id"], "status": "paid", "fee": 10}
            await there.reply(request, answer)
            if request.item % 2:
                assert (await there.reply(request, answer)).outcome == "duplicate"
        assert await there.result(run.id) == {"paid": 9, "total": 9 * 990, "rejected": 1}
        [rejected] = [e for e in await there.ledger(run.id) if e.name == "await_unit_item_rejected"]
        assert (rejected.data["item"], rejected.data["reason"]) == (3, "the account is closed")
