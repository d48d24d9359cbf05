"""Signals that both sides share (S13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, overload

from bide.authoring.checks import check_readable, check_text

T = TypeVar("T")


class Signal(Generic[T]):
    """A signal's name with the type of its payload, declared once and used by sender and waiter.

    >>> Signal("paid", dict)
    Signal('paid', dict)
    """

    @overload
    def __init__(self, name: str, type: type[T]) -> None: ...
    @overload
    def __init__(self: Signal[Any], name: str, type: Any = Any) -> None: ...  # a union, a TypedDict, or undeclared

    def __init__(self, name: str, type: Any = Any) -> None:
        self.name = check_name(name)
        self.type = type

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {getattr(self.type, '__name__', self.type)})"


def signal_name(signal: str | Signal[Any]) -> str:
    return signal.name if isinstance(signal, Signal) else check_name(signal)


def declared(signals: Iterable[Signal[Any]], who: str) -> dict[str, Any]:
    """The types of the signals that a definition lists, by name; refuses one that no payload could be read as."""
    types = {signal.name: signal.type for signal in signals}
    for name, type_ in types.items():
        check_readable(type_, who, f"signal {name!r}")
    return types


def check_name(name: object) -> str:
    return check_text(name, "signal name")
