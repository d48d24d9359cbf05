"""Traces: a run is part of its caller's trace through every wait, and answers are linked to what waited (§11)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bide
from bide.core.traces import LONGEST_STATE, headers_of, kept_of
from bide.testing import World, world

WHY = "spans are recorded with the SDK of OpenTelemetry, of the development dependencies"
api = pytest.importorskip("opentelemetry.trace", reason=WHY)
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=WHY)
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=WHY)
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=WHY)

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CANARY = "4111-canary-1111"


class Spans:
    """What was recorded, by name."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def __call__(self, name: str) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> Any:
        [span] = self(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]

    def text(self) -> str:
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter, provider = in_memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "_TRACER_PROVIDER", provider)  # it can be set once in a process, and these tests are many
    yield Spans(exporter)
    provider.shutdown()


def shop() -> bide.App:
    app = bide.App()

    @app.workflow("review")
    async def review(step: bide.Step, order: int) -> Any:
        draft = await step.run("draft", lambda: order + 1)
        answer = await step.wait_for_signal("gate", signal=f"gate-{order}", timeout="1h")
        return await step.run("send", lambda: [draft, answer])

    @app.workflow("breaks", retries=0)
    async def breaks(step: bide.Step, order: int) -> Any:
        def fail() -> None:
            raise ValueError(f"no card {CANARY}")

        await step.options(retry=bide.RetryPolicy(attempts=1)).run("charge", fail)

    @app.workflow("parent")
    async def parent(step: bide.Step, order: int) -> Any:
        return await step.invoke("child", "order", order, timeout="1h")

    @app.machine("order")
    class Order:
        @bide.start
        def begin(self, ctx: bide.Context[Any]) -> bide.Await:
            return bide.Await("paid", then="end", state=ctx.state)

        def end(self, ctx: bide.Context[Any]) -> bide.Done:
            return bide.Done(ctx.awaited[0].payload)

    return app


@asynccontextmanager
async def opened(store_url: str, app: bide.App | None = None) -> AsyncIterator[World]:
    async with world(app or shop(), store=store_url) as there:
        yield there


def within(name: str) -> Any:
    """A span of the program around bide."""
    return api.get_tracer("program").start_as_current_span(name)


def trace_id(span: Any) -> int:
    return int(span.context.trace_id)


def is_below(span: Any, parent: Any) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


Answer = Callable[[World, str], Any]


@pytest.mark.parametrize(
    ("definition", "answer", "span", "steps"),
    [
        ("review", lambda there, run_id: there.complete("gate-7", {"ok": True}), "bide.answer", ("draft", "send")),
        ("order", lambda there, run_id: there.signal(run_id, "paid", 5), "bide.signal paid", ("begin", "end")),
    ],
)
async def test_a_run_stays_in_its_callers_trace_and_its_answer_is_linked_to_what_parked_it(
    store_url: str, spans: Spans, definition: str, answer: Answer, span: str, steps: tuple[str, str]
) -> None:
    """§11: traces join the caller's trace through the wait."""
    async with opened(store_url) as there:
        with within("caller"):
            run = await there.start(definition, 7)
        with within("reviewer"):
            await answer(there, run.id)
        assert (await there.get(run.id)).status == "completed"
    started, parked, answered = spans.one(f"bide.start {definition}"), spans.one("bide.park"), spans.one(span)
    first, resumed = spans.one(f"bide.run {definition}"), spans.one(f"bide.resume {definition}")
    assert is_below(started, spans.one("caller"))
    assert is_below(first, started)
    assert is_below(parked, first)
    assert is_below(spans.one(f"bide.step {steps[0]}"), first)
    assert is_below(spans.one(f"bide.step {steps[1]}"), resumed)
    assert trace_id(resumed) == trace_id(parked) == trace_id(spans.one("caller"))
    assert is_below(answered, spans.one("reviewer"))
    [link] = answered.links
    assert link.context.span_id == parked.context.span_id
    assert link.context.trace_id == parked.context.trace_id
    assert answered.attributes["bide.outcome"] == "woke"
    assert answered.attributes["bide.run.id"] == started.attributes["bide.run.id"] == run.id


async def test_the_trace_goes_on_after_a_crash_of_the_worker(store_url: str, spans: Spans) -> None:
    """D1, §11: the context is in the rows, not in a process."""
    async with opened(store_url) as there:
        with within("caller"):
            run = await there.start("review", 7)
        await there.crash()
        await there.complete("gate-7", {"ok": True})
        assert (await there.get(run.id)).status == "completed"
    assert trace_id(spans.one("bide.resume review")) == trace_id(spans.one("caller"))


async def test_a_run_that_nobody_traced_is_the_first_of_its_own_trace(store_url: str, spans: Spans) -> None:
    async with opened(store_url) as there:
        await there.start("review", 7)
        with within("elsewhere"):
            await there.complete("gate-7", {"ok": True})
    started = spans.one("bide.start review")
    assert started.parent is None
    assert trace_id(spans.one("bide.resume review")) == trace_id(started)
    assert trace_id(spans.one("elsewhere")) != trace_id(started)


async def test_a_child_is_in_the_trace_of_its_parent(store_url: str, spans: Spans) -> None:
    async with opened(store_url) as there:
        with within("caller"):
            await there.start("parent", 7)
        [child] = await there.runs(definition="order")
        await there.signal(child.id, "paid", 5)
    assert trace_id(spans.one("bide.run order")) == trace_id(spans.one("caller"))
    assert trace_id(spans.one("bide.resume order")) == trace_id(spans.one("caller"))


async def test_a_request_over_http_joins_the_trace_that_its_headers_name(store_url: str, spans: Spans) -> None:
    """§11: `traceparent` of a request; one that cannot be read decides nothing."""
    async with opened(store_url) as there:
        http = there.http()
        traced = {"traceparent": CALLER, "Idempotency-Key": "k1"}
        answer = await http.post("/v1/runs", json={"definition": "review", "input": 7}, headers=traced)
        assert answer.status_code == 201
        await there.settle()
        answer = await http.post("/v1/signals/gate-7/complete", json={"data": 1}, headers={"traceparent": "nonsense"})
        assert answer.status_code == 200
    started = spans.one("bide.start review")
    assert f"{started.parent.trace_id:032x}-{started.parent.span_id:016x}" in CALLER
    assert trace_id(spans.one("bide.run review")) == trace_id(started)
    assert spans.one("bide.answer").parent is None


async def test_what_goes_out_carries_the_trace_of_what_sent_it(store_url: str, spans: Spans) -> None:
    """U9, §11: `traceparent` on what is dispatched, below the span that parked."""
    app = shop()
    app.transport(bide.Webhook("https://pay.example/requests"))

    @app.workflow("pay")
    async def pay(step: bide.Step, order: int) -> Any:
        return await step.request("provider", {"order": order}, transport="webhook", timeout="1h")

    async with opened(store_url, app) as there:
        with within("caller"):
            await there.start("pay", 7)
        [wait] = await there.waits()
        assert "trace" not in wait.details
        [request] = there.sent("webhook")
    sent = spans.one("bide.dispatch webhook")
    assert is_below(sent, spans.one("bide.park"))
    assert trace_id(sent) == trace_id(spans.one("caller"))
    assert request.trace["traceparent"].startswith(f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-")


async def test_G4_a_step_that_fails_is_an_error_of_its_span_without_its_message(store_url: str, spans: Spans) -> None:
    """G4: messages may say what is hidden; traces have the type of an error only."""
    async with opened(store_url) as there:
        run = await there.start("breaks", 7)
        assert (await there.get(run.id)).status == "failed"
    charged = spans.one("bide.step charge")
    assert (charged.status.status_code, charged.status.description) == (api.StatusCode.ERROR, "ValueError")
    assert CANARY not in spans.text()


async def test_the_code_of_a_step_sees_its_span(store_url: str, spans: Spans) -> None:
    """What user code records is below the step that it is part of, also in a thread."""
    app = bide.App()

    def inner() -> int:
        with within("inner"):
            return 1

    @app.workflow("nested")
    async def nested(step: bide.Step, order: int) -> int:
        return await step.run("outer", inner)

    async with opened(store_url, app) as there:
        await there.start("nested", 7)
    assert is_below(spans.one("inner"), spans.one("bide.step outer"))


def test_a_state_that_is_too_long_is_left_out_and_the_trace_goes_on() -> None:
    long = {"traceparent": CALLER, "tracestate": "x" * (LONGEST_STATE + 1)}
    assert headers_of(kept_of(long)) == {"traceparent": CALLER}
    short = {"traceparent": CALLER, "tracestate": "vendor=1,other=2"}
    assert headers_of(kept_of(short)) == short
    assert headers_of(kept_of({"tracestate": "vendor=1"})) == {}


WITHOUT = """
import asyncio, sys
sys.modules["opentelemetry"] = None  # as if it were not installed
import bide
from bide.engine import tracing
from bide.testing import world

app = bide.App()

@app.workflow("greet")
async def greet(step: bide.Step, name: str) -> str:
    return await step.run("say", lambda: f"hello {name}")

async def main() -> None:
    async with world(app) as there:
        run = await there.start("greet", "ann")
        print(tracing.is_on(), await there.result(run.id))

asyncio.run(main())
"""


def test_without_the_package_nothing_is_traced_and_everything_works() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False hello ann\n", 0), done.stderr
