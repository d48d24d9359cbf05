"""What `bide new` begins with."""

from __future__ import annotations

from typing import Final

TEMPLATES: Final = {
    "machine": """\
machine NAME
    accepts
        name as text, is required

    responds with
        greeting as text, is required

    implements
        compute result
            {greeting: "Hello, ${input.name}!"}
""",
    "approval": """\
// Asks a person, and goes on with the answer.
machine NAME
    accepts
        subject as text, is required

    responds with
        approved as boolean, is required
        reason as text

    implements
        wait for decision
            title: "Please decide: ${input.subject}"
            timeout: "48h"
            on_timeout: flow(expired)
            schema
                approved as boolean, is required
                reason as text

        compute result
            {approved: steps.decision.approved, reason: steps.decision.reason}

    flows
        flow expired
            compute result
                {approved: false, reason: "nobody decided in time"}
""",
    "callback": """\
// Sends work to another service, which calls back when it is done.
machine NAME
    accepts
        order as text, is required

    responds with
        status as text, is required

    implements
        action send http
            method: "POST"
            url: "https://service.example.com/work"
            headers: {Authorization: "Bearer ${secrets.SERVICE_TOKEN}"}
            body: {order: input.order, callback_url: steps.done._resume_url}
            retry: 3

        wait for done
            callback: true
            timeout: "24h"
            on_timeout: flow(give_up)
            schema
                status as text, is required

        compute result
            {status: steps.done.status}

    flows
        flow give_up
            compute result
                {status: "timed_out"}
""",
    "event": """\
// Goes on when a named event comes.
machine NAME
    accepts
        order as text, is required

    responds with
        shipped as boolean, is required

    implements
        wait for shipped
            event: "order.shipped"
            match: {order: input.order}
            timeout: "7d"
            on_timeout: flow(lost)
            schema
                order as text, is required

        compute result
            {shipped: true}

    flows
        flow lost
            compute result
                {shipped: false}
""",
}

PROGRAMS: Final = {
    "workflow": '''\
"""A durable function.

Run a worker:  bide worker NAME.py
Start a run:   bide start NAME '"Ann"' --app NAME.py
Answer it:     bide complete sign-RUN '"Signed: Ann"' --app NAME.py
"""

import bide

app = bide.App("NAME")


@app.workflow("NAME")
async def NAME(step: bide.Step, name: str) -> str:
    greeting = await step.run("greet", greet, name)
    return await step.wait_for_signal("sign", signal=f"sign-{step.run_id}", timeout="1h", default=greeting)


def greet(name: str) -> str:
    return f"Hello, {name}!"
''',
    "steps": '''\
"""A machine of explicit steps.

Run a worker:  bide worker NAME.py
Start a run:   bide start NAME --app NAME.py
Send it on:    bide signal RUN go --app NAME.py
"""

from typing import Any

import bide

app = bide.App("NAME")


@app.machine("NAME")
class Steps:
    @bide.start
    def begin(self, ctx: bide.Context[Any]) -> bide.Await:
        return bide.Await("go", then="finish", state=ctx.state, timeout="1h")

    def finish(self, ctx: bide.Context[Any]) -> bide.Done | bide.Stop:
        if ctx.timed_out:
            return bide.Stop("nobody said go")
        return bide.Done({"went": True})
''',
}
