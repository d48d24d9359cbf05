"""The app that the HTTP benchmark serves: runs that wait for an answer to a signal id of their own."""

from __future__ import annotations

import msgspec

import bide

app = bide.App("bench")


class Approval(msgspec.Struct):
    approved: bool
    reason: str | None = None


@app.workflow("approval")
async def approval(step: bide.Step, number: int) -> bool:
    answer = await step.wait_for_signal("gate", signal=f"approval-{number}", timeout="48h", returns=Approval)
    return answer.approved
