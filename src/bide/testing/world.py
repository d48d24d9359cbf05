"""A world: an app on an empty store of its own, where time moves only when the test says so."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args, overload

from bide.app import App
from bide.authoring.pipeline import Pipeline
from bide.authoring.workflow import Workflow
from bide.client import Client, Run
from bide.client.progress import Progress
from bide.client.starting import StartOptions
from bide.core.access import SCOPES
from bide.core.commands import EventReceipt, Receipt
from bide.core.durations import Duration, parse_duration
from bide.core.records import FINAL
from bide.core.records import Run as RunRow
from bide.engine.admission import Admitting
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.probes import Crash, Point
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import load_settings
from bide.engine.transport import Answer, Request
from bide.errors import BadConfiguration, BadInput, RunTimeoutError
from bide.testing.places import fresh_store
from bide.testing.stand_ins import StandIn, stand_ins
from bide.testing.stubs import Stub, Stubs
from bide.views import (
    DeadLetterInfo,
    InteractionInfo,
    LedgerEntry,
    Page,
    RunInfo,
    SignalTo,
    StepInfo,
    UnusedInfo,
    WaitInfo,
    WaitsChanged,
    result_of,
)

In = TypeVar("In")
Out = TypeVar("Out")
if TYPE_CHECKING:
    from httpx import AsyncClient

START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Stands still until it is set forward."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def __call__(self) -> datetime:
        return self._now

    def set(self, moment: datetime) -> None:
        assert moment >= self._now, "time does not go back"
        self._now = moment

    def advance(self, duration: timedelta) -> None:
        self.set(self._now + duration)


class CrashPlan:
    """Kills the engine at planned points, each once."""

    def __init__(self) -> None:
        self._planned: Counter[tuple[str, str]] = Counter()
        self.happened: list[tuple[str, str]] = []

    def plan(self, step: str, point: Point) -> None:
        if point not in get_args(Point):
            raise BadInput(f"crash point {point!r}: give one of {', '.join(get_args(Point))}")
        self._planned[(step, point)] += 1

    def reached(self, point: str, step: str) -> None:
        if self._planned[(step, point)] > 0:
            self._planned[(step, point)] -= 1
            self.happened.append((step, point))
            raise Crash(f"{point} {step}")


class World:
    """All client methods, each settling before it returns, and power over time and faults."""

    def __init__(
        self,
        runtime: Runtime,
        clock: VirtualClock,
        stubs: Stubs,
        workspace: str = "default",
        live: Collection[str] = (),
    ) -> None:
        self.runtime = runtime
        self.clock = clock
        self.crashes = CrashPlan()
        self.stubs = stubs
        self.transports = stand_ins(runtime.registry.transports, live)
        self._client = self.client(workspace)
        self._queues = frozenset({"default"} | {definition.queue for definition in runtime.registry})
        self.engine = self._new_engine()

    def _new_engine(self) -> Engine:
        return Engine(self.runtime, queues=self._queues, probe=self.crashes, transports=self.transports)

    def client(self, workspace: str = "default") -> Client:
        """A plain client that does not settle."""

        async def opened() -> Runtime:
            return self.runtime

        return Client(opened, workspace)

    def connection(self) -> AbstractAsyncContextManager[Any]:
        """A transaction of the test's own on the world's database, as `App.connection` gives it."""
        return self.runtime.connection()

    def http(self, workspace: str = "default", *, scopes: Sequence[str] = SCOPES, settle: bool = True) -> AsyncClient:
        """An `httpx.AsyncClient` on the app's HTTP API, with a key of that workspace; each change settles."""
        try:
            from bide.testing.http import http_client
        except ModuleNotFoundError as error:
            raise BadConfiguration(
                f"world.http() needs a package that is not installed ({error.name}): pip install 'bide[server]'"
            ) from error

        return http_client(self.runtime, workspace, scopes, self.settle if settle else None)

    @property
    def now(self) -> datetime:
        return self.clock()

    # ------------------------------------------------------------ time and faults

    async def settle(self) -> None:
        """Run until nothing can move at this virtual time."""
        while True:
            await self.engine.settle()
            if not self.engine.crashed:
                return
            await self.crash()

    async def advance(self, duration: Duration) -> None:
        """Go from one due moment to the next, settling at each, until this much time has passed."""
        target = self.clock() + parse_duration(duration)
        await self.settle()
        while True:
            due = await self.runtime.store.until_due(self.engine.queues)
            if due is None or self.clock() + due > target:
                break
            self.clock.set(self.clock() + max(due, timedelta(0)))
            await self.settle()
        self.clock.set(target)
        await self.settle()

    def crash_at(self, step: str, point: Point) -> None:
        """Kill the engine the next time *step* reaches *point*; it is recovered at once."""
        self.crashes.plan(step, point)

    def stub(
        self,
        target: str | Callable[..., Any],
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
        times: int | None = None,
    ) -> Stub:
        """Answer in place of the code of a workflow's steps: of those that run a function, or of those with a step id.

        Gives the list of its calls. With *times* the world asserts at its end that there were so many; a further call
        goes to the stub of the same target that was made next, and fails its step where there is none.
        """
        return self.stubs.add(Stub(target, returns=returns, raises=raises, times=times))

    async def crash(self) -> None:
        """Drop every worker now; their leases end at once, so that the next settle recovers."""
        await self.engine.crash()
        self.engine = self._new_engine()

    # ------------------------------------------------------------ transports

    def sent(self, transport: str) -> list[Request]:
        """What was sent over a transport, in order. A world's transports only note what they would send."""
        stand_in = self.transports.get(transport)
        if not isinstance(stand_in, StandIn):
            raise BadInput(
                f"the world has no stand-in for a transport {transport!r}; it has: {', '.join(self.transports)}"
            )
        return stand_in.sent

    async def reply(
        self,
        request: Request | str,
        data: Any = None,
        *,
        error: str | None = None,
        by: str | None = None,
        settle: bool = True,
    ) -> Receipt:
        """Answer what was sent, as its provider would; *error* declines it. A text is an interaction's id."""
        if isinstance(request, Request):
            answer = Answer(
                interaction_id=request.interaction_id,
                correlation_id=request.correlation_id,
                workspace=request.workspace,
                data=data,
                reason=error,
                by=by,
            )
        else:
            answer = Answer(interaction_id=request, data=data, reason=error, by=by)
        [receipt] = await Admitting(self.runtime, "world").admit([answer])
        if settle:
            await self.settle()
        return receipt

    # ------------------------------------------------------------ the client's methods

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

    async def start(self, definition: Any, input: Any = None, *, settle: bool = True, **options: Any) -> Run[Any]:
        run: Run[Any] = (await self._client.start(definition, input, **options))._through(self)
        if options.get("queue") is not None:  # a world serves every queue that its runs are in
            self._queues = self.engine.queues = self._queues | {options["queue"]}
        if settle:
            await self.settle()
            await run.refresh()
        return run

    async def signal(
        self,
        target: str,
        signal: Any,
        payload: Any = None,
        dedup_key: str | None = None,
        *,
        check: bool = True,
        settle: bool = True,
    ) -> Receipt:
        receipt = await self._client.signal(target, signal, payload, dedup_key, check=check)
        if settle:
            await self.settle()
        return receipt

    async def signal_many(self, signals: Iterable[SignalTo], *, check: bool = True) -> list[Receipt]:
        receipts = await self._client.signal_many(signals, check=check)
        await self.settle()
        return receipts

    async def start_or_signal(self, definition: Any, input: Any = None, **options: Any) -> Receipt:
        receipt = await self._client.start_or_signal(definition, input, **options)
        await self.settle()
        return receipt

    async def complete(
        self,
        signal_id: str,
        data: Any = None,
        *,
        run_id: str | None = None,
        by: str | None = None,
        dedup_key: str | None = None,
        hold: Duration | None = None,
        check: bool = True,
        settle: bool = True,
    ) -> Receipt:
        receipt = await self._client.complete(
            signal_id, data, run_id=run_id, by=by, dedup_key=dedup_key, hold=hold, check=check
        )
        if settle:
            await self.settle()
        return receipt

    async def answer(
        self,
        target: str,
        data: Any = None,
        by: str | None = None,
        dedup_key: str | None = None,
        *,
        shown: str | None = None,
        check: bool = True,
        settle: bool = True,
    ) -> Receipt:
        receipt = await self._client.answer(target, data, by, dedup_key, shown=shown, check=check)
        if settle:
            await self.settle()
        return receipt

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
        receipt = await self._client.emit(name, data, id=id, channel=channel, check=check)
        if settle:
            await self.settle()
        return receipt

    async def interactions(self, **filters: Any) -> Page[InteractionInfo]:
        return await self._client.interactions(**filters)

    async def interaction(self, id: str) -> InteractionInfo:
        return await self._client.interaction(id)

    async def claim(self, interaction_id: str, by: str) -> InteractionInfo:
        return await self._client.claim(interaction_id, by)

    async def release(self, interaction_id: str, by: str) -> InteractionInfo:
        return await self._client.release(interaction_id, by)

    async def assign(self, interaction_id: str, **to: Any) -> InteractionInfo:
        return await self._client.assign(interaction_id, **to)

    async def wait(self, id: str) -> WaitInfo:
        return await self._client.wait(id)

    async def update_wait(self, id: str, **changes: Any) -> WaitInfo:
        await self._client.update_wait(id, **changes)
        await self.settle()
        return await self._client.wait(id)

    async def fail_wait(self, id: str, reason: str, *, settle: bool = True) -> None:
        await self._client.fail_wait(id, reason)
        if settle:
            await self.settle()

    async def cancel_wait(self, id: str, reason: str, *, settle: bool = True) -> None:
        await self._client.cancel_wait(id, reason)
        if settle:
            await self.settle()

    async def heartbeat(self, id: str) -> None:
        await self._client.heartbeat(id)
        await self.settle()

    async def update_waits(self, **options: Any) -> WaitsChanged:
        changed = await self._client.update_waits(**options)
        await self.settle()
        return changed

    async def fail_waits(self, **options: Any) -> WaitsChanged:
        changed = await self._client.fail_waits(**options)
        await self.settle()
        return changed

    async def cancel_waits(self, **options: Any) -> WaitsChanged:
        changed = await self._client.cancel_waits(**options)
        await self.settle()
        return changed

    async def dead_letters(self, **options: Any) -> Page[DeadLetterInfo]:
        return await self._client.dead_letters(**options)

    async def retry_dead_letter(self, id: str) -> None:
        await self._client.retry_dead_letter(id)
        await self.settle()

    async def discard_dead_letter(self, id: str) -> None:
        await self._client.discard_dead_letter(id)
        await self.settle()

    async def unused(self, *, limit: int = 100) -> list[UnusedInfo]:
        return await self._client.unused(limit=limit)

    async def readdress(self, unused_id: str, target: str, *, check: bool = True) -> Receipt:
        receipt = await self._client.readdress(unused_id, target, check=check)
        await self.settle()
        return receipt

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False, settle: bool = True) -> None:
        await self._client.cancel(run_id, reason=reason, force=force)
        if settle:
            await self.settle()

    async def retry(self, run_id: str, *, from_step: str | None = None, settle: bool = True) -> Run[Any]:
        run = (await self._client.retry(run_id, from_step=from_step))._through(self)
        if settle:
            await self.settle()
            await run.refresh()
        return run

    async def get(self, run_id: str) -> RunInfo:
        return await self._client.get(run_id)

    async def result(self, run_id: str) -> Any:
        """The result at this virtual time; `RunTimeoutError` where the run has not ended."""
        return result_of(await self._end(run_id))

    async def _find(self, run_id: str) -> RunRow:
        return await self._client._find(run_id)

    async def _end(self, run_id: str, timeout: Duration | None = None, *, look_first: bool = True) -> RunRow:
        """Time stands still while somebody waits, so there is nothing to wait for once all is settled."""
        await self.settle()
        row = await self._find(run_id)
        if row.status not in FINAL:
            raise RunTimeoutError(run_id, row.status)
        return row

    async def runs(self, **filters: Any) -> Page[RunInfo]:
        return await self._client.runs(**filters)

    async def waits(self, **filters: Any) -> Page[WaitInfo]:
        return await self._client.waits(**filters)

    async def steps(self, run_id: str) -> list[StepInfo]:
        return await self._client.steps(run_id)

    async def inbox(self, run_id: str) -> list[Any]:
        return await self._client.inbox(run_id)

    async def progress(self, run_id: str) -> Progress:
        return await self._client.progress(run_id)

    async def ledger(self, run_id: str) -> list[LedgerEntry]:
        return await self._client.ledger(run_id)

    async def audit(self) -> list[str]:
        """What breaks an invariant, in words; empty in a healthy store."""
        return [f"{v.invariant} {v.id}: {v.detail}" for v in await self.runtime.store.audit()]


@asynccontextmanager
async def world(
    app: App, store: str = "memory://", *, audit: bool = True, live: Collection[str] = (), **settings: Any
) -> AsyncIterator[World]:
    """An empty world for one test. `BIDE_STORE` is ignored; *store* is the kind and place to make the store in.

    At its end every invariant is checked, unless *audit* is False, and how often stubs were called.
    Transports only note what they would send, but for those named as *live*.
    """
    clock = VirtualClock()
    async with fresh_store(store) as url:
        given = {"longest_poll": "0s", **app._arguments, **settings, "store": url}  # waiting would not move the clock
        loaded = load_settings(given, {}, Path(os.devnull))
        stubs = Stubs()
        ports = Ports(
            now=clock, monotonic=lambda: clock().timestamp(), random=lambda: 0.5, stand_in=stubs.stand_in, assumes=True
        )
        runtime = Runtime(open_store(url, loaded, clock, migrate=True, codec=app.codec), app.registry, loaded, ports)
        await runtime.open()
        made = World(runtime, clock, stubs, live=live)
        try:
            async with app.provided():
                yield made
            await made.settle()
            broken = await made.audit() if audit else []
            assert not broken, "the store breaks its invariants:\n" + "\n".join(broken)
            if wrong := stubs.complaints():
                raise AssertionError("\n".join(wrong))
        finally:
            await made.engine.crash()
            await runtime.close()
