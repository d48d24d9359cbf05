"""Stand-ins for the code of steps, and what they were called with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bide.core.retrying import NonRetryable
from bide.errors import BadInput

Target = str | Callable[..., Any]


class Call(NamedTuple):
    """One call of a stub: a plain pair to compare with.

    >>> Call(("pi_1",), {"amount": 5}) == (("pi_1",), {"amount": 5})
    True
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Stub(list[Call]):
    """The calls that a stub has answered, in order.

    >>> Stub("charge", times=2).complaint()
    "stub 'charge' was to be called 2 times and was called 0 times"
    """

    def __init__(
        self,
        target: Target,
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
        times: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(target, str) and not callable(target):
            raise BadInput(f"a stub stands in for a function or a step id, not for {target!r}")
        if returns is not None and raises is not None:
            raise BadInput(f"stub {shown(target)} cannot both return and raise; make two, the first with times=")
        if times is not None and (not isinstance(times, int) or times < 0):
            raise BadInput(f"times={times!r}: give how often the stub is to be called")
        self.target = target
        self.returns = returns
        self.raises = raises
        self.times = times
        self.extra = 0

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and len(self) >= self.times

    def answer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.is_used_up:
            self.extra += 1
            raise NonRetryable(f"{self.complaint()}, now with {args!r} {dict(kwargs)!r}")
        self.append(Call(args, kwargs))
        if self.raises is not None:
            raise self.raises
        return self.returns

    def remark(self) -> str | None:
        """That it stood in for nothing, where nobody said how often it should."""
        if self or self.times is not None:
            return None
        return (
            f"stub {shown(self.target)} was never called: a stub answers for what bide itself calls (a step, a stage, "
            "an action), by its name or its function, and not for what your own code calls; say times=0 where that is "
            "as it should be"
        )

    def complaint(self) -> str | None:
        """What was not as `times=` said."""
        if self.times is None or (len(self) == self.times and not self.extra):
            return None
        wanted, got = (f"{n} time{'' if n == 1 else 's'}" for n in (self.times, len(self) + self.extra))
        return f"stub {shown(self.target)} was to be called {wanted} and was called {got}"


class Stubs:
    """All stubs of a world. Those of one target answer one after the other, each as often as its `times=` says."""

    def __init__(self) -> None:
        self._stubs: list[Stub] = []
        self.may_be_idle = False  # so it is where a test tries many orders

    def add(self, stub: Stub) -> Stub:
        self._stubs.append(stub)
        return stub

    def stand_in(self, id: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What to call in place of *fn* in step *id*: a stub of the id, else one of the function, else itself."""
        stubs = [stub for stub in self._stubs if stub.target == id] or [
            stub for stub in self._stubs if not isinstance(stub.target, str) and _is_same(stub.target, fn)
        ]
        if not stubs:
            return fn

        async def answer(*args: Any, **kwargs: Any) -> Any:
            stub = next((stub for stub in stubs if not stub.is_used_up), stubs[-1])
            return stub.answer((*_bound(fn), *args), kwargs)

        return answer

    def complaints(self) -> list[str]:
        return [complaint for stub in self._stubs if (complaint := stub.complaint()) is not None]

    def remarks(self) -> list[str]:
        if self.may_be_idle:
            return []
        return [remark for stub in self._stubs if (remark := stub.remark()) is not None]


def _is_same(target: Callable[..., Any], fn: Callable[..., Any]) -> bool:
    return bool(target == fn) or (isinstance(fn, functools.partial) and _is_same(target, fn.func))


def _bound(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """What a partial would pass on before the rest."""
    return (*_bound(fn.func), *fn.args) if isinstance(fn, functools.partial) else ()


def shown(target: Target) -> str:
    return repr(target if isinstance(target, str) else getattr(target, "__name__", target))
