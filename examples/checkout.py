"""A shop whose checkout waits for the payment: a machine of two steps in an app of its own.

`make demo` runs it. By hand: `bide worker examples/checkout.py` in one terminal, and in another
`bide start checkout '{"order": 1001}' --app examples/checkout.py`.
"""

from __future__ import annotations

from typing import Any

import bide

app = bide.App("shop", store="sqlite:///shop.db")


@app.machine("checkout")
class Checkout:
    @bide.start
    def begin(self, ctx: bide.Context[Any]) -> bide.Await:
        return bide.Await("payment_confirmed", then="ship", timeout="1h")

    def ship(self, ctx: bide.Context[Any]) -> bide.Done | bide.Stop:
        if ctx.timed_out:
            return bide.Stop("payment never came")
        return bide.Done({"order": ctx.state["order"], "paid": ctx.awaited[0].payload})
