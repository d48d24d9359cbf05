"""Spans of what happens to runs, where the program has set up OpenTelemetry (`bide[otel]`); otherwise nothing (§11).

A run carries the context that it was started in, a wait that of the commit that opened it (`bide.core.traces`). So all
turns of a run are in the trace of whoever started it, and an answer that comes days later is linked to what waited for
it, in any process.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from bide.core.traces import headers_of, kept_of

Kind = Literal["internal", "producer", "consumer"]
Attribute = str | int | float | bool | None


class Span:
    """What is under way. One that nobody records takes everything and keeps nothing."""

    def __init__(self, span: Any = None, context: str = "") -> None:
        self._span = span
        self.context = context  # as it is kept with runs and waits; empty where nobody traces

    @property
    def is_recording(self) -> bool:
        return self._span is not None and bool(self._span.is_recording())

    def note(self, **attributes: Attribute) -> None:
        """Say more about it; names are put under `bide.`, with dots for their underscores."""
        if self.is_recording:
            self._span.set_attributes(_named(attributes))

    def link(self, context: str | None) -> None:
        """Say that it has to do with another span, in another trace perhaps."""
        if self.is_recording and context:
            other = _trace.get_current_span(_extracted(context)).get_span_context()
            if other.is_valid:
                self._span.add_link(other)

    def end(self) -> None:
        if self._span is not None:
            self._span.end()


NOBODY = Span()
HERE = "here"  # the parent is what is under way in this task


def is_on() -> bool:
    """Whether the program has said where spans go. Those who trace nothing pay for this question alone.

    Asking the API while there is no provider looks into the environment every time, and bide asks several times a turn.
    """
    if _trace is None or (getattr(_trace, "_TRACER_PROVIDER", _trace) is None and not _NAMED_BY_ENVIRONMENT):
        return False
    return not isinstance(_trace.get_tracer_provider(), _NOWHERE)


@contextmanager
def span(name: str, *, parent: str | None = HERE, kind: Kind = "internal", **attributes: Attribute) -> Iterator[Span]:
    """A span as long as the block takes, below *parent*, or with none the first of a trace. An error ends it."""
    if not is_on():
        yield NOBODY
        return
    context = None if parent is HERE else _extracted(parent or "")
    options = {"kind": _kind(kind), "attributes": _named(attributes), "record_exception": False}
    with _tracer().start_as_current_span(name, context, set_status_on_exception=False, **options) as made:
        try:
            yield Span(made, current())
        except Exception as error:
            broke(error)
            raise


def begin(name: str, **attributes: Attribute) -> tuple[Span, object]:
    """Begin a span that `finish` ends, in the same task; what is called in between is below it."""
    made = _tracer().start_span(name, attributes=_named(attributes))
    return Span(made), _contexts.attach(_trace.set_span_in_context(made))


def finish(begun: tuple[Span, object]) -> None:
    made, token = begun
    _contexts.detach(token)
    made.end()


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """What the block does is part of the trace that these headers name, unless it is part of one already."""
    if not is_on() or "traceparent" not in headers or _trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = _contexts.attach(_propagator.extract(headers))
    try:
        yield
    finally:
        _contexts.detach(token)


def current() -> str:
    """The context of this task, as it is kept; empty where there is none."""
    return kept_of(current_headers())


def current_headers() -> dict[str, str]:
    """The headers that let somebody else join what is under way in this task."""
    found: dict[str, str] = {}
    if is_on():
        _propagator.inject(found)
    return found


def broke(error: BaseException) -> None:
    """What is under way in this task has failed. Messages stay out of traces: they may say what is hidden (G4)."""
    if not is_on():
        return
    at_work, kind = _trace.get_current_span(), type(error).__qualname__
    at_work.add_event("exception", {"exception.type": kind})
    at_work.set_status(_trace.Status(_trace.StatusCode.ERROR, kind))


# ---------------------------------------------------------------- the API, where it is installed


def _found(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


_trace: Any = _found("opentelemetry.trace")
_NOWHERE: Any = (_trace.ProxyTracerProvider, _trace.NoOpTracerProvider) if _trace is not None else ()
_NAMED_BY_ENVIRONMENT = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
_contexts: Any = _found("opentelemetry.context")
_propagation: Any = _found("opentelemetry.trace.propagation.tracecontext")
_propagator: Any = _propagation.TraceContextTextMapPropagator() if _propagation is not None else None


def _tracer() -> Any:
    """Asked for anew each time: the program may set its provider after bide was imported."""
    return _trace.get_tracer("bide")


def _kind(kind: Kind) -> Any:
    return getattr(_trace.SpanKind, kind.upper())


def _extracted(context: str) -> Any:
    return _propagator.extract(headers_of(context), _contexts.Context())


def _named(attributes: Mapping[str, Attribute]) -> dict[str, str | int | float | bool]:
    return {f"bide.{name.replace('_', '.')}": value for name, value in attributes.items() if value is not None}
