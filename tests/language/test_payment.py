"""The payment callback of seed 001, end to end: only the host's name is changed (L3, L4, W4)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bide
from bide.authoring.language import translate
from bide.testing import World, world
from tests.support.machine_files import EVERY_LANGUAGE_AND_EVERY_STORE
from tests.support.web import Asked, web

EXAMPLE = Path(__file__).parents[2] / "examples" / "payment.machine"
ORDER = {"order_id": "o-7", "amount": 49.5}
PAID = {"payment_id": "pay-1", "status": "paid", "further": "things"}


@dataclass
class Shop:
    there: World
    requests: list[Asked]
    told: list[str] = field(default_factory=list)

    async def resume(self, body: Any, number: int = -1) -> Any:
        """What the payment provider does: POST to the address that it was given."""
        path = urlsplit(self.requests[number].body["callback_url"]).path
        async with self.there.http() as http:
            return await http.post(path, json=body)


async def shop(stack: AsyncExitStack, tmp_path: Path, store: str = "memory://", language: str = "en") -> Shop:
    url, requests = await stack.enter_async_context(web(lambda asked: (200, {"accepted": True})))
    text = EXAMPLE.read_text(encoding="utf-8").replace("https://payments.example.com", url)
    (tmp_path / "payment.machine").write_text(translate(text, language), encoding="utf-8")
    app, told = bide.App(private_hosts="127.0.0.1"), list[str]()
    app.load(tmp_path)

    @app.action("@mashin/actions/notifications/send")
    async def send(message: str) -> None:
        told.append(message)

    there = await stack.enter_async_context(world(app, store=store))
    return Shop(there, requests, told)


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_a_payment_is_answered(language: str, store_url: str, tmp_path: Path) -> None:
    """An invalid answer is refused with its problems, the run goes on waiting, and a valid one ends it (W3)."""
    async with AsyncExitStack() as stack:
        here = await shop(stack, tmp_path, store_url, language)
        run = await here.there.start("payment_workflow", ORDER)
        [charge] = here.requests
        assert (charge.method, charge.path) == ("POST", "/charge")
        assert (charge.body["order_id"], charge.body["amount"]) == ("o-7", 49.5)
        refused = await here.resume({"status": 7})
        assert refused.status_code == 422
        assert "payment_id" in refused.text
        assert (await here.there.get(run.id)).status == "waiting"
        assert (await here.resume(PAID)).status_code == 200
        assert await here.there.result(run.id) == {"payment_status": "paid", "payment_id": "pay-1"}
        assert len(here.requests) == 1
        assert (await here.resume(PAID)).status_code == 200, "the same answer again is a duplicate (law 5)"
        assert (await here.resume({**PAID, "status": "other"})).status_code == 410
        assert here.told == []


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_a_payment_times_out(language: str, store_url: str, tmp_path: Path) -> None:
    """L4: the flow runs in place of the rest."""
    async with AsyncExitStack() as stack:
        here = await shop(stack, tmp_path, store_url, language)
        run = await here.there.start("payment_workflow", ORDER)
        await here.there.advance("24h")
        assert await here.there.result(run.id) == {"payment_status": "timed_out", "payment_id": None}
        assert here.told == ["Payment timed out for order o-7"]
        assert (await here.resume(PAID)).status_code == 410


async def test_an_answer_that_comes_before_the_wait_is_kept(tmp_path: Path) -> None:
    """L3: the provider may call back before the machine has got to its wait; law 3: the address is durable before."""
    async with AsyncExitStack() as stack:
        here = await shop(stack, tmp_path)
        here.there.crash_at("request_payment", "after_code")
        run = await here.there.start("payment_workflow", ORDER)
        assert len(here.requests) == 2, "a crash before the commit repeats the step"
        addresses = {asked.body["callback_url"] for asked in here.requests}
        assert len(addresses) == 1, "and gives the same address"
        assert (await here.resume(PAID, number=0)).status_code == 200
        assert (await here.there.result(run.id))["payment_status"] == "paid"


LOOPED = """
machine each_line
    accepts
        lines as list, is required
    implements
        for each line in input.lines, collect: paid
            action charge call
                machine: "charge"
                line: line
                back: steps.payment._resume_url
            wait for payment
                callback: true
                timeout: "1h"
                schema
                    amount as number, is required
            compute paid_for
                {amount: steps.payment.amount, by: steps.payment._resume_token != ""}
        compute result
            steps.paid
"""


async def test_every_turn_of_a_loop_has_an_address_of_its_own(tmp_path: Path) -> None:
    """Law 7."""
    (tmp_path / "m.machine").write_text(LOOPED)
    app, addresses = bide.App(), list[str]()
    app.load(tmp_path)

    @app.action("charge")
    def charge(line: str, back: str) -> None:
        addresses.append(urlsplit(back).path)

    async with world(app) as there:
        run = await there.start("each_line", {"lines": ["a", "b"]})
        async with there.http() as http:
            assert (await http.post(addresses[0], json={"amount": 1})).status_code == 200
            assert len(addresses) == 2
            assert (await http.post(addresses[1], json={"amount": 2})).status_code == 200
        assert await there.result(run.id) == [{"amount": 1, "by": True}, {"amount": 2, "by": True}]
        assert len(set(addresses)) == 2
        assert len(await there.waits(run_id=run.id, status=None)) == 2, "no address is made that nobody waits on"
