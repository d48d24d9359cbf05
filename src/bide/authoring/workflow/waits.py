"""What every wait method of `Step` gives: something to await, or to combine with others, that has not begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from bide.errors import BadInput

T_co = TypeVar("T_co", covariant=True)


class Wait(Coroutine[Any, Any, T_co], Generic[T_co]):
    """A durable wait that opens when it is awaited or combined, and not before (F12).

    Its step id is taken when it is made. Awaiting it again gives the same result. `asyncio.gather`, `wait_for` and
    `TaskGroup.create_task` take it like a coroutine; as with a task, cancelling who awaits it withdraws it.

    >>> async def gate(step: Step) -> str:
    ...     answer = step.wait_for_signal("gate", signal=f"approval-{step.run_id}", timeout="48h", returns=str)
    ...     await step.run("ask", print, "please approve")  # nothing waits yet
    ...     return await answer
    """

    def __init__(self, key: str, begin: Callable[[bool], asyncio.Future[T_co]]) -> None:
        """*key* names the wait in messages; *begin* opens it, and is called once.

        It is told whether the wait is awaited now and by itself: its future may be done already then.
        """
        self.key = key
        self._begin = begin
        self._future: asyncio.Future[T_co] | None = None
        # Each task that runs this as its coroutine goes through it by itself; most waits are awaited by no task.
        self._awaiting: WeakKeyDictionary[asyncio.Task[Any], Generator[Any, Any, T_co]] | None = None

    def begin(self, is_alone: bool = False) -> asyncio.Future[T_co]:
        """Open it, once; the future of the body's loop that its outcome completes."""
        if self._future is None:
            self._future = self._begin(is_alone)
        return self._future

    def withdraw(self) -> None:
        """Stop waiting, unless it is over: it takes no answer any more from the next commit on (law 1)."""
        if self._future is not None:
            self._future.cancel()

    @property
    def is_over(self) -> bool:
        """Whether it has an outcome: a value, a default or an error."""
        return self._future is not None and self._future.done() and not self._future.cancelled()

    @property
    def has_failed(self) -> bool:
        return self._future is not None and self.is_over and self._future.exception() is not None

    @property
    def value(self) -> T_co:
        """What it came to, without waiting: the answer, or the default of a timeout; raises what awaiting it raises.

        >>> async def either(step: Step) -> object:
        ...     paid, gone = step.receive("paid", "paid", timeout="1h"), step.receive("gone", "gone", timeout="1h")
        ...     return (await step.first("either", paid, gone)).value
        """
        if self._future is None or not self.is_over:
            raise BadInput(f"wait {self.key!r} has no value: {self._standing()}")
        return self._future.result()

    def _standing(self) -> str:
        if self._future is None:
            return "nobody awaits it; await it, or give it to step.first(…)"
        if self._future.cancelled():
            return "it was withdrawn when another won, or when whoever awaited it was cancelled"
        return "it is not over yet; await it"

    def __await__(self) -> Generator[Any, Any, T_co]:
        if self._future is not None and self._future.cancelled():
            raise BadInput(f"wait {self.key!r} cannot be awaited again: {self._standing()}")
        return self.begin(True).__await__()

    # -- as the coroutine of a task

    def send(self, value: Any) -> Any:
        return self._steps().send(value)

    def throw(
        self,
        kind: Any,
        error: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        raised: BaseException = kind if isinstance(kind, BaseException) else _made(kind, error)
        return self._steps().throw(raised)

    def close(self) -> None:
        for steps in (self._awaiting or {}).values():
            steps.close()

    def _steps(self) -> Generator[Any, Any, T_co]:
        task = asyncio.current_task()
        assert task is not None, "only a task runs a coroutine"
        if self._awaiting is None:
            self._awaiting = WeakKeyDictionary()
        steps = self._awaiting.get(task)
        if steps is None:
            steps = self._awaiting[task] = self.__await__()
        return steps

    def __repr__(self) -> str:
        return f"<Wait {self.key!r}>"


def _made(kind: type[BaseException], error: object) -> BaseException:
    if isinstance(error, BaseException):
        return error
    return kind() if error is None else kind(error)
