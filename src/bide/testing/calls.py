"""The client's methods as a world has them: each that changes something settles before it returns."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from bide.authoring.pipeline import Pipeline
from bide.authoring.signals import Signal
from bide.authoring.workflow import Workflow
from bide.client import Client, Run
from bide.client.operating import UNCHANGED, Where
from bide.client.starting import StartOptions
from bide.core.commands import EventReceipt, Receipt
from bide.core.durations import Duration, Timeout
from bide.core.records import FINAL, RunStatus
from bide.core.records import Run as RunRow
from bide.errors import RunTimeoutError
from bide.views import InteractionInfo, SignalTo, WaitInfo, WaitsChanged, result_of

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")


def looking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]]:
    """The same call, which changes nothing: there is nothing to settle."""

    @functools.wraps(method)
    async def call(self: Calls, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(self._client, *args, **kwargs)

    return call


class Calls(ABC):
    """All client methods, in one workspace; `settle=False` leaves what they led to for later."""

    _client: Client

    @abstractmethod
    async def settle(self) -> None: ...

    @abstractmethod
    def _serve(self, queue: str) -> None:
        """A world serves every queue that its runs are in."""

    async def _settled(self, call: Awaitable[T], settle: bool) -> T:
        done = await call
        if settle:
            await self.settle()
        return done

    # ------------------------------------------------------------ runs

    @overload
    async def start(
        self,
        definition: Workflow[None, Out],
        input: None = None,
        *,
        settle: bool = True,
        **options: Unpack[StartOptions],
    ) -> Run[Out]: ...
    @overload
    async def start(
        self, definition: Workflow[In, Out], input: In, *, settle: bool = True, **options: Unpack[StartOptions]
    ) -> Run[Out]: ...
    @overload
    async def start(
        self,
        definition: str | type[Any] | Pipeline,
        input: Any = None,
        *,
        settle: bool = True,
        **options: Unpack[StartOptions],
    ) -> Run[Any]: ...
    async def start(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str | None = None,
        correlation_scope: Literal["live", "forever"] = "live",
        if_exists: Literal["raise", "return"] = "raise",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        connection: Any = None,
        settle: bool = True,
    ) -> Run[Any]:
        run = await self._client.start(
            definition,
            input,
            correlation_key=correlation_key,
            correlation_scope=correlation_scope,
            if_exists=if_exists,
            version=version,
            delay=delay,
            queue=queue,
            priority=priority,
            tags=tags,
            connection=connection,
        )
        if queue is not None:
            self._serve(queue)
        return await self._reached(run, settle and connection is None)

    async def _reached(self, run: Run[Any], settle: bool) -> Run[Any]:
        run = run._through(self)
        if settle:
            await self.settle()
            await run.refresh()
        return run

    async def retry(self, run_id: str, *, from_step: str | None = None, settle: bool = True) -> Run[Any]:
        return await self._reached(await self._client.retry(run_id, from_step=from_step), settle)

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False, settle: bool = True) -> None:
        await self._settled(self._client.cancel(run_id, reason=reason, force=force), settle)

    async def result(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        """The result at this virtual time; `RunTimeoutError` where the run has not ended.

        Time stands still while somebody waits, so it is the same with every *timeout*.
        """
        return result_of(await self._end(run_id, timeout))

    async def _cancel(self, run_id: str, reason: str, force: bool) -> RunStatus:
        return await self._settled(self._client._cancel(run_id, reason, force), True)

    async def _find(self, run_id: str) -> RunRow:
        return await self._client._find(run_id)

    async def _end(self, run_id: str, timeout: Duration | None = None, *, look_first: bool = True) -> RunRow:
        await self.settle()
        row = await self._find(run_id)
        if row.status not in FINAL:
            raise RunTimeoutError(run_id, row.status)
        return row

    # ------------------------------------------------------------ what comes from outside

    @overload
    async def signal(
        self,
        target: str,
        name: Signal[None],
        payload: None = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
        settle: bool = True,
    ) -> Receipt: ...
    @overload
    async def signal(
        self,
        target: str,
        name: Signal[S],
        payload: S,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
        settle: bool = True,
    ) -> Receipt: ...
    @overload
    async def signal(
        self,
        target: str,
        name: str,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
        settle: bool = True,
    ) -> Receipt: ...
    async def signal(
        self,
        target: str,
        name: Any,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        connection: Any = None,
        settle: bool = True,
    ) -> Receipt:
        call = self._client.signal(target, name, payload, dedup_key, check=check, connection=connection)
        return await self._settled(call, settle and connection is None)

    async def signal_many(
        self, signals: Iterable[SignalTo], *, check: bool = True, settle: bool = True
    ) -> list[Receipt]:
        return await self._settled(self._client.signal_many(signals, check=check), settle)

    async def start_or_signal(
        self,
        definition: Any,
        input: Any = None,
        *,
        correlation_key: str,
        name: str | Signal[Any],
        payload: Any = None,
        dedup_key: str | None = None,
        check: bool = True,
        correlation_scope: Literal["live", "forever"] = "live",
        version: str | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        settle: bool = True,
    ) -> Receipt:
        call = self._client.start_or_signal(
            definition,
            input,
            correlation_key=correlation_key,
            name=name,
            payload=payload,
            dedup_key=dedup_key,
            check=check,
            correlation_scope=correlation_scope,
            version=version,
            delay=delay,
            queue=queue,
            priority=priority,
            tags=tags,
        )
        if queue is not None:
            self._serve(queue)
        return await self._settled(call, settle)

    async def complete(
        self,
        signal_id: str,
        data: Any = None,
        *,
        run_id: str | None = None,
        by: str | None = None,
        dedup_key: str | None = None,
        hold: Duration | None = None,
        reason: str = "",
        check: bool = True,
        settle: bool = True,
    ) -> Receipt:
        call = self._client.complete(
            signal_id, data, run_id=run_id, by=by, dedup_key=dedup_key, hold=hold, reason=reason, check=check
        )
        return await self._settled(call, settle)

    async def answer(
        self,
        target: str,
        data: Any = None,
        by: str | None = None,
        dedup_key: str | None = None,
        *,
        shown: str | None = None,
        reason: str = "",
        check: bool = True,
        settle: bool = True,
    ) -> Receipt:
        call = self._client.answer(target, data, by, dedup_key, shown=shown, reason=reason, check=check)
        return await self._settled(call, settle)

    async def emit(
        self,
        name: str,
        data: Any = None,
        *,
        id: str | None = None,
        channel: str = "api",
        check: bool = True,
        settle: bool = True,
    ) -> EventReceipt:
        return await self._settled(self._client.emit(name, data, id=id, channel=channel, check=check), settle)

    # ------------------------------------------------------------ what people and operators do

    async def claim(self, interaction_id: str, by: str, *, settle: bool = True) -> InteractionInfo:
        return await self._settled(self._client.claim(interaction_id, by), settle)

    async def release(self, interaction_id: str, by: str, *, settle: bool = True) -> InteractionInfo:
        return await self._settled(self._client.release(interaction_id, by), settle)

    async def assign(
        self,
        interaction_id: str,
        *,
        assignee: str | None = None,
        group: str | None = None,
        reason: str = "",
        settle: bool = True,
    ) -> InteractionInfo:
        call = self._client.assign(interaction_id, assignee=assignee, group=group, reason=reason)
        return await self._settled(call, settle)

    async def update_wait(
        self,
        id: str,
        *,
        deadline: Timeout | None = UNCHANGED,
        assignee: str | None = UNCHANGED,
        group: str | None = UNCHANGED,
        reason: str = "",
        settle: bool = True,
    ) -> WaitInfo:
        call = self._client.update_wait(id, deadline=deadline, assignee=assignee, group=group, reason=reason)
        await self._settled(call, settle)
        return await self._client.wait(id)  # its new deadline may have passed

    async def fail_wait(self, id: str, reason: str, *, settle: bool = True) -> None:
        await self._settled(self._client.fail_wait(id, reason), settle)

    async def cancel_wait(self, id: str, reason: str, *, settle: bool = True) -> None:
        await self._settled(self._client.cancel_wait(id, reason), settle)

    async def heartbeat(self, id: str, *, settle: bool = True) -> None:
        await self._settled(self._client.heartbeat(id), settle)

    async def update_waits(
        self,
        *,
        reason: str,
        deadline: Timeout | None = UNCHANGED,
        to_assignee: str | None = UNCHANGED,
        to_group: str | None = UNCHANGED,
        dry_run: bool = False,
        settle: bool = True,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        call = self._client.update_waits(
            reason=reason, deadline=deadline, to_assignee=to_assignee, to_group=to_group, dry_run=dry_run, **where
        )
        return await self._settled(call, settle)

    async def fail_waits(
        self, *, reason: str, dry_run: bool = False, settle: bool = True, **where: Unpack[Where]
    ) -> WaitsChanged:
        return await self._settled(self._client.fail_waits(reason=reason, dry_run=dry_run, **where), settle)

    async def cancel_waits(
        self, *, reason: str, dry_run: bool = False, settle: bool = True, **where: Unpack[Where]
    ) -> WaitsChanged:
        return await self._settled(self._client.cancel_waits(reason=reason, dry_run=dry_run, **where), settle)

    async def answer_waits(
        self,
        data: Any = None,
        *,
        reason: str,
        by: str | None = None,
        dry_run: bool = False,
        settle: bool = True,
        **where: Unpack[Where],
    ) -> WaitsChanged:
        call = self._client.answer_waits(data, reason=reason, by=by, dry_run=dry_run, **where)
        return await self._settled(call, settle)

    async def retry_dead_letter(self, id: str, *, settle: bool = True) -> None:
        await self._settled(self._client.retry_dead_letter(id), settle)

    async def discard_dead_letter(self, id: str, *, settle: bool = True) -> None:
        await self._settled(self._client.discard_dead_letter(id), settle)

    async def readdress(self, unused_id: str, target: str, *, check: bool = True, settle: bool = True) -> Receipt:
        return await self._settled(self._client.readdress(unused_id, target, check=check), settle)

    # ------------------------------------------------------------ looking

    get = looking(Client.get)
    runs = looking(Client.runs)
    wait = looking(Client.wait)
    waits = looking(Client.waits)
    explain = looking(Client.explain)
    inbox = looking(Client.inbox)
    steps = looking(Client.steps)
    progress = looking(Client.progress)
    ledger = looking(Client.ledger)
    interaction = looking(Client.interaction)
    interactions = looking(Client.interactions)
    dead_letters = looking(Client.dead_letters)
    unused = looking(Client.unused)
