"""Loops without end: a workflow that returns `Restart` begins again, with nothing stored of its way so far (F14)."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Restart:
    """Return it from a workflow to start the same run afresh: steps are cleared, waits withdrawn, the inbox is kept.

    >>> async def watch(step: Step, round: int) -> Restart:
    ...     await step.run("look", print, round)
    ...     await step.sleep("night", "1d")
    ...     return Restart(round + 1)
    """

    input: Any = None


def without_restart(type_: Any) -> Any:
    """A result type without the part that is no result.

    >>> without_restart(int | Restart), without_restart(Restart), without_restart(str)
    (<class 'int'>, typing.Any, <class 'str'>)
    """
    if type_ is Restart:
        return Any
    if typing.get_origin(type_) in (typing.Union, types.UnionType) and Restart in typing.get_args(type_):
        rest = [part for part in typing.get_args(type_) if part is not Restart]
        return typing.Union[tuple(rest)]  # noqa: UP007  # of a list that is only known here
    return type_
