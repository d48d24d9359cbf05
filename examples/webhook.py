"""Webhooks of a payment provider: signed, repeated, out of order. Each event counts once, by its id.

Run it: python examples/webhook.py
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import bide
import bide.testing

SECRET = "whsec_example"  # shared with the provider
SIGNATURE = bide.WebhookSignature(SECRET, scheme="stripe")
app = bide.App("payments", store="memory://")


@app.workflow("order")
async def order(step: bide.Step, number: int) -> str:
    paid = await step.receive("payment", "payment.succeeded", timeout="1h")
    return f"order {number}: {paid.payload['amount']} paid"


def hook(client: Any) -> Starlette:
    """Your own endpoint: check who speaks, say what it is about, and let bide tell repeats from news."""

    async def receive(request: Request) -> Response:
        raw = await request.body()
        try:
            SIGNATURE.check(request.headers.items(), raw)
        except bide.BadSignature as error:
            return JSONResponse({"error": str(error)}, 401)
        event = json.loads(raw)
        key = f"order:{event['order']}"
        receipt = await client.signal(key, event["type"], event["data"], dedup_key=event["id"], check=False)
        # The provider sends again what is not answered with 2xx: only what may still find its run asks for that.
        return JSONResponse({"outcome": receipt.outcome}, 503 if receipt.outcome == "no_target" else 200)

    return Starlette(routes=[Route("/webhook", receive, methods=["POST"])])


def signature(raw: bytes) -> str:
    """As the provider signs."""
    now = int(time.time())
    return f"t={now},v1={hmac.digest(SECRET.encode(), f'{now}.'.encode() + raw, hashlib.sha256).hex()}"


async def main() -> None:
    async with bide.testing.world(app) as world:
        transport = httpx.ASGITransport(hook(world.client()))
        async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as provider:

            async def send(event: dict[str, Any], sign: bool = True) -> None:
                raw = json.dumps(event).encode()
                said = await provider.post(
                    "/webhook", content=raw, headers={"stripe-signature": signature(raw)} if sign else {}
                )
                print(said.status_code, said.json())

            paid = {"id": "evt_1", "type": "payment.succeeded", "order": 7, "data": {"amount": 49}}
            await send(paid)  # too early: the order is not there yet, so the provider tries again later
            run = await world.start("order", 7, correlation_key="order:7")
            await send(paid, sign=False)
            await send(paid)
            await send(paid)
            print(await world.result(run.id))


if __name__ == "__main__":
    asyncio.run(main())
