"""A handle on one run."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, overload

from msgspec.structs import replace

from bide.authoring.signals import Signal
from bide.core.commands import Receipt
from bide.core.durations import Duration
from bide.core.records import FINAL, RunStatus
from bide.core.records import Run as RunRow
from bide.errors import BideError
from bide.views import RunInfo, result_of, run_info

T = TypeVar("T")
P = TypeVar("P")


class Reach(Protocol):
    """What a handle needs of the client that gave it out, or of the world."""

    async def _find(self, run_id: str) -> RunRow: ...

    async def _end(self, run_id: str, timeout: Duration | None, *, look_first: bool) -> RunRow: ...

    async def signal(self, target: str, name: Any, payload: Any = None, dedup_key: str | None = None) -> Receipt: ...

    async def _cancel(self, run_id: str, reason: str, force: bool) -> RunStatus: ...


class Run(Generic[T]):
    """A handle on a run, typed by what its workflow returns; `Run[Any]` where only the name was given.

    >>> async def pay(run: Run[str]) -> str:
    ...     await run.signal("paid", {"amount": 100})
    ...     return await run.result(timeout="30s")
    """

    def __init__(self, client: Reach, row: RunRow, returns: Any = Any) -> None:
        self._client = client
        self._row = row
        self._returns = returns

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def status(self) -> RunStatus:
        """As of the last call that looked; `refresh` looks again."""
        return self._row.status

    @property
    def info(self) -> RunInfo:
        return run_info(self._row)

    async def refresh(self) -> Run[T]:
        """Look again; gives this same handle."""
        self._row = await self._client._find(self.id)
        return self

    async def result(self, timeout: Duration | None = None) -> T:
        """Wait for the end and return the result, read as what the workflow says it returns.

        Raises as `Client.result` does, and `HistoryMismatch` where the stored result does not fit that type.
        """
        self._row = row = await self._client._end(self.id, timeout, look_first=self.status in FINAL)
        found: T = result_of(row, self._returns)
        return found

    @overload
    async def signal(self, name: Signal[None], payload: None = None, dedup_key: str | None = None) -> Receipt: ...
    @overload
    async def signal(self, name: Signal[P], payload: P, dedup_key: str | None = None) -> Receipt: ...
    @overload
    async def signal(self, name: str, payload: Any = None, dedup_key: str | None = None) -> Receipt: ...
    async def signal(self, name: Any, payload: Any = None, dedup_key: str | None = None) -> Receipt:
        return await self._client.signal(self.id, name, payload, dedup_key)

    async def cancel(self, reason: str = "", *, force: bool = False) -> None:
        status = await self._client._cancel(self.id, reason, force)
        try:
            await self.refresh()
        except BideError:  # it is done, whether or not the run can be looked at
            self._row = replace(self._row, status=status)

    def _through(self, client: Reach) -> Run[T]:
        """The same run, reached by another client."""
        return Run(client, self._row, self._returns)

    def __repr__(self) -> str:
        return f"<Run {self.id} {self._row.definition} {self.status}>"
