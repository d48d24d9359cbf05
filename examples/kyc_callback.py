"""A provider that answers before it is waited for: the link is durable first, so the early answer is held.

Run it: python examples/kyc_callback.py
"""

from __future__ import annotations

import asyncio

import msgspec

import bide
import bide.testing

app = bide.App("kyc", store="memory://")

PROVIDER: list[str] = []  # the provider, as far as this example needs one: it remembers where to answer


class Verdict(msgspec.Struct):
    verified: bool
    reason: str | None = None


def begin_verification(user: str, callback_url: str) -> str:
    PROVIDER.append(callback_url)
    return f"verification of {user}"


@app.workflow("open-account")
async def open_account(step: bide.Step, user: str) -> str:
    kyc = await step.callback(
        "kyc",
        timeout="7d",
        returns=Verdict,
        channel="webhook",
        accept="data.type == 'verification.done'",  # the provider tells of its progress too
        extract="data.result",
    )
    await step.run("begin", begin_verification, user, kyc.url)
    await step.sleep("paperwork", "1h")  # the provider is quicker than this
    verdict = await kyc
    return f"{user} has an account" if verdict.verified else f"{user} was refused: {verdict.reason}"


async def main() -> None:
    async with bide.testing.world(app) as world:
        run = await world.start("open-account", "ann")
        http, link = world.http(), PROVIDER[-1]
        done = {"type": "verification.done", "result": {"verified": True}}

        progress = await http.post(link, json={"type": "verification.started"})
        early = await http.post(link, json=done)
        again = await http.post(link, json=done)
        print(progress.status_code, progress.json()["outcome"])
        print(early.status_code, early.json()["outcome"])
        print(again.status_code, "duplicate" if again.json()["duplicate"] else "?")
        await world.advance("1h")
        print(await world.result(run.id))


if __name__ == "__main__":
    asyncio.run(main())
