"""The stages of a pipeline, and what is found out about them before anything runs."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from bide.authoring.checks import check_text
from bide.authoring.workflow.annotations import annotation_of, returned
from bide.core.retrying import RetryPolicy
from bide.engine.ports import Ports
from bide.errors import BadDefinition, BadInput

Kind = Literal["expand", "map", "filter", "collect", "wait", "publish"]
Cardinality = Literal["ONE_TO_ONE", "ONE_TO_MANY", "MANY_TO_ONE", "MANY_TO_MANY"]

CARDINALITIES: tuple[str, ...] = typing.get_args(Cardinality)
STREAMS = {Iterable, Iterator, AsyncIterable, AsyncIterator, list, tuple, set, frozenset}


@dataclass(frozen=True)
class Terms:
    """What a wait for the outside asks for."""

    transport: str
    cardinality: Cardinality = "ONE_TO_ONE"
    returns: Any = Any
    schema: dict[str, Any] | None = None
    timeout: timedelta | datetime | None = None
    on_item_timeout: Literal["fail", "reject"] = "fail"
    max_pending: int | None = None
    key: Callable[[Any], str] | None = None
    replay: Literal["item", "unit"] = "item"
    labels: dict[str, Any] = field(default_factory=dict)

    def asked(self) -> dict[str, Any]:
        """What the request itself is made with."""
        names = ("transport", "cardinality", "on_item_timeout", "max_pending")
        return {name: getattr(self, name) for name in names}

    @property
    def many_in(self) -> bool:
        return self.cardinality.startswith("MANY_")

    @property
    def many_out(self) -> bool:
        return self.cardinality.endswith("_MANY")


@dataclass(frozen=True)
class Stage:
    """One stage as its author wrote it."""

    kind: Kind
    name: str
    fn: Callable[..., Any] | None = None
    retry: RetryPolicy | None = None
    concurrency: int = 8
    terms: Terms | None = None
    checkpoint: str | None = None  # that it publishes; fn makes its key

    def __post_init__(self) -> None:
        try:
            check_text(self.name, "the stage's name")
        except BadInput as error:
            raise BadDefinition(str(error)) from error
        if self.concurrency < 1:
            raise BadDefinition(f"stage {self.name!r}: concurrency={self.concurrency} must be at least 1")
        if self.fn is not None and not callable(self.fn):
            raise BadDefinition(f"stage {self.name!r}: {self.fn!r} is no function")

    @cached_property
    def is_async(self) -> bool:
        call = self.fn if inspect.isroutine(self.fn) else getattr(self.fn, "__call__", None)  # noqa: B004
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(call)

    def called(self, ports: Ports) -> tuple[Callable[..., Any], bool]:
        """What is called for it, and whether that is a coroutine function: its own, but where a test stands in."""
        assert self.fn is not None
        fn = ports.stand_in(self.name, self.fn)
        return fn, self.is_async if fn is self.fn else inspect.iscoroutinefunction(fn)

    @cached_property  # asked for every item, and `inspect` takes its time
    def takes_item(self) -> bool:
        """Whether the function wants to know about the item, too (U13)."""
        return self.fn is not None and len(self._parameters()) >= 2

    def _parameters(self) -> list[inspect.Parameter]:
        assert self.fn is not None
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):  # a built-in without a signature takes one thing
            return []
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [p for p in signature.parameters.values() if p.kind in positional and p.default is p.empty]

    @property
    def takes(self) -> Any:
        """The type of what the function is handed; `Any` where it does not say."""
        parameters = self._parameters() if self.fn is not None else []
        found = annotation_of(self.fn, parameters[0].name) if self.fn is not None and parameters else Any
        return element_of(found) if self.kind == "collect" else found

    @property
    def gives(self) -> Any:
        """The type of what comes out: of each item where there are many."""
        if self.terms is not None:
            return self.terms.returns
        if self.fn is None or self.kind == "filter":
            return Any
        return element_of(returned(self.fn)) if self.kind == "expand" else returned(self.fn)


def element_of(type_: Any) -> Any:
    """The type of the elements of a type that stands for many; `Any` where it does not say."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    return arguments[0] if origin in STREAMS and arguments else Any


@dataclass(frozen=True)
class Placed:
    """A stage where it stands: whether items or one thing come in, and as what they are read."""

    stage: Stage
    index: int
    streams: bool  # items come in
    reads: Any  # the type that what comes in is read as

    @property
    def ends_stream(self) -> bool:
        """The run itself does it, when every item has come to its end."""
        return self.streams and (self.stage.kind == "collect" or self.is_aggregate)

    @property
    def is_aggregate(self) -> bool:
        return self.stage.terms is not None and self.stage.terms.many_in

    @property
    def begins_stream(self) -> bool:
        return self.stage.kind == "expand" or (self.stage.terms is not None and self.stage.terms.many_out)


def placed(name: str, stages: Iterable[Stage]) -> tuple[tuple[Placed, ...], bool]:
    """Each stage in its place, and whether items come out at the end; raises `BadDefinition`."""
    streams, type_, found = False, Any, []
    names: set[str] = set()
    for index, stage in enumerate(stages):
        _check_place(name, stage, streams)
        if stage.name in names:
            raise BadDefinition(f"pipeline {name!r} has two stages named {stage.name!r}; give one another name=")
        names.add(stage.name)
        reads = stage.takes if stage.takes is not Any else type_
        place = Placed(stage, index, streams, reads)
        found.append(place)
        if place.begins_stream:
            streams = True
        elif place.ends_stream:
            streams = False
        type_ = type_ if stage.kind in ("filter", "publish") else stage.gives
    return tuple(found), streams


def _check_place(name: str, stage: Stage, streams: bool) -> None:
    says = f"pipeline {name!r}: stage {stage.name!r}"
    if stage.kind == "expand" and streams:
        raise BadDefinition(f"{says} expands one input into many items, and items come in; collect them first")
    if stage.kind in ("collect", "filter") and not streams:
        raise BadDefinition(f"{says} takes a stream of items, and one thing comes in; expand it first")
    if stage.terms is not None and stage.terms.cardinality == "ONE_TO_MANY" and streams:
        raise BadDefinition(f"{says} is ONE_TO_MANY and takes one input, and items come in; use MANY_TO_MANY")
    if stage.terms is not None and stage.terms.many_in and not streams:
        raise BadDefinition(
            f"{says} is {stage.terms.cardinality} and takes many items, and one thing comes in; expand it first"
        )
