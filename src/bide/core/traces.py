"""Trace contexts that travel with runs and waits, as W3C writes them: who traces can join what lies days apart (§11).

A context is kept as one text: the `traceparent`, and after a space the `tracestate` where there is one. Nothing here
knows what a trace is good for; `bide.engine.tracing` makes spans of it.

>>> headers_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=x")
{'traceparent': '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'tracestate': 'vendor=x'}
>>> kept_of({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
'00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bide.core.records import Wait

LONGEST_STATE: Final = 512  # that W3C asks everybody to pass on


def headers_of(kept: str | None) -> dict[str, str]:
    """The headers that carry a context that was kept; none where none was."""
    parent, _, state = (kept or "").partition(" ")
    if not parent:
        return {}
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


def kept_of(headers: Mapping[str, str]) -> str:
    """What is kept of these headers. A state that is too long is left out: the trace goes on without it."""
    parent, state = headers.get("traceparent", ""), headers.get("tracestate", "")
    return f"{parent} {state}" if parent and state and len(state) <= LONGEST_STATE else parent


def with_trace(details: str, trace: str) -> str:
    """The details of a wait that opens, with the context of what opens it."""
    if not trace:
        return details
    return msgspec.json.encode({**msgspec.json.decode(details), "trace": trace}).decode()


def trace_of(wait: Wait) -> str | None:
    """The context of what opened a wait, where it was traced."""
    if '"trace"' not in wait.details:
        return None
    found: object = msgspec.json.decode(wait.details).get("trace")
    return found if isinstance(found, str) else None
