"""An approval link in a mail: the page behind it decides nothing until its form is sent.

Run it: python examples/mail_link.py
"""

from __future__ import annotations

import asyncio
import re

import msgspec

import bide
import bide.testing

app = bide.App("expenses", store="memory://", public_url="https://expenses.example")

MAILS: list[str] = []  # the links that were sent, as the one who gets the mail sees them


class Decision(msgspec.Struct):
    approved: bool
    reason: str = ""


def send_mail(to: str, subject: str, link: str) -> None:
    MAILS.append(link)
    print(f"mail to {to}: {subject} {link.partition('/resume/')[0]}/resume/…")


@app.workflow("expense")
async def expense(step: bide.Step, amount: int) -> str:
    link = await step.callback("approval", timeout="3d", returns=Decision, title=f"May {amount} EUR be spent?")
    await step.run("mail", send_mail, "lea@example.com", f"May {amount} EUR be spent?", link.url)
    try:
        decision = await link
    except bide.WaitTimeoutError:
        return "nobody answered"
    return "approved" if decision.approved else f"refused: {decision.reason}"


async def main() -> None:
    async with bide.testing.world(app) as world:
        http = world.http()
        run = await world.start("expense", 120)
        page = await http.get(MAILS[-1])  # a mail scanner may do this as often as it likes
        print("the page:", page.status_code, "- the run is", (await world.get(run.id)).status)
        proof = re.findall(r'name="form" value="(\w+)"', page.text)
        sent = await http.post(MAILS[-1], data={"form": proof, "data.approved": "true", "data.reason": "agreed"})
        print("the form:", sent.status_code)
        print("the run ends:", await world.result(run.id))

        late = await world.start("expense", 70)
        await world.advance("3d")
        print("the run ends:", await world.result(late.id))
        print("the link says:", (await http.get(MAILS[-1])).status_code)


if __name__ == "__main__":
    asyncio.run(main())
