"""What a function says of its input and its result: the types that stored text is read as (F1)."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from types import FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


def annotation_of(fn: Callable[..., Any], name: str) -> Any:
    """The type of one parameter, or of the result ("return"); `Any` where there is none or it cannot be found."""
    try:
        return _hints(fn).get(name, Any)
    except (NameError, TypeError, AttributeError):
        return _alone(inspect.unwrap(fn), name)


_known: WeakKeyDictionary[FunctionType, dict[str, Any]] = WeakKeyDictionary()


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """All of a function's annotations, evaluated once: that costs more than most replayed steps."""
    if isinstance(fn, MethodType):
        fn = fn.__func__
    if not isinstance(fn, FunctionType):
        return typing.get_type_hints(fn)
    hints = _known.get(fn)
    if hints is None:
        hints = _known[fn] = typing.get_type_hints(fn)
    return hints


def _alone(fn: Callable[..., Any], name: str) -> Any:
    """One annotation by itself, also of names local to an enclosing function: another may name what is not there."""
    written = getattr(fn, "__annotations__", {}).get(name, Any)
    if not isinstance(written, str):
        return written
    try:
        known = {**getattr(fn, "__globals__", {}), **inspect.getclosurevars(fn).nonlocals}
        return eval(written, known)  # as typing.get_type_hints does
    except Exception:
        return Any


def returned(fn: Callable[..., Any]) -> Any:
    """The type of what calling *fn* leads to, awaited where it has to be."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, type):
        return fn
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    type_ = annotation_of(fn, "return")
    if typing.get_origin(type_) in (Awaitable, Coroutine):
        return typing.get_args(type_)[-1]
    return type_


class Nature(NamedTuple):
    """What is known of a function without calling it."""

    is_async: bool
    returns: Any


_natures: WeakKeyDictionary[FunctionType, Nature] = WeakKeyDictionary()


def nature_of(fn: Callable[..., Any]) -> Nature:
    """Whether *fn* has to be awaited, and the type of what it leads to; looked up once for plain functions."""
    known = _natures.get(fn) if isinstance(fn, FunctionType) else None
    if known is not None:
        return known
    nature = Nature(inspect.iscoroutinefunction(fn), returned(fn))
    if isinstance(fn, FunctionType) and fn in _known:  # otherwise it names a type that may be there later on
        _natures[fn] = nature
    return nature
