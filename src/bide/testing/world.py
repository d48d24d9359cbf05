"""A world: an app on an empty store of its own, where time moves only when the test says so."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from bide.app import App
from bide.client import Client
from bide.core.access import SCOPES
from bide.core.commands import Receipt
from bide.core.durations import Duration, parse_duration
from bide.engine.admission import Admitting
from bide.engine.engine import Engine
from bide.engine.ports import Ports
from bide.engine.probes import Crash, Point
from bide.engine.runtime import Runtime, open_store
from bide.engine.settings import load_settings
from bide.engine.transport import Answer, Request
from bide.errors import BadConfiguration, BadInput
from bide.testing.calls import Calls
from bide.testing.places import fresh_store
from bide.testing.stand_ins import StandIn, stand_ins
from bide.testing.stubs import Stub, Stubs

In = TypeVar("In")
Out = TypeVar("Out")
if TYPE_CHECKING:
    from httpx import AsyncClient

START = datetime(2030, 1, 1, tzinfo=UTC)
ANY_STEP = "*"


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

    def forget(self, step: str) -> None:
        for point in get_args(Point):
            del self._planned[(step, point)]

    def reached(self, point: str, step: str) -> None:
        for planned in ((step, point), (ANY_STEP, point)):
            if self._planned[planned] > 0:
                self._planned[planned] -= 1
                self.happened.append((step, point))
                raise Crash(f"{point} {step}")


class World(Calls):
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
        self._is_held = False

    def _new_engine(self) -> Engine:
        return Engine(self.runtime, queues=self._queues, probe=self.crashes, transports=self.transports)

    def _serve(self, queue: str) -> None:
        self._queues = self.engine.queues = self._queues | {queue}

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
        while not self._is_held:
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
        """Answer in place of what bide calls: the function of a workflow's step, the method of a machine's step, the
        function of a pipeline's stage or an action of a machine file. By that function, or by the name of the step.

        A stub of a machine's step is handed `ctx`, and returns an outcome. What your own functions call is not bide's
        to replace: a stub that was never called is told at the end as a warning, unless *times* is 0.

        Gives the list of its calls. With *times* the world asserts at its end that there were so many; a further call
        goes to the stub of the same target that was made next, and fails its step where there is none.
        """
        return self.stubs.add(Stub(target, returns=returns, raises=raises, times=times))

    async def crash(self) -> None:
        """Drop every worker now; their leases end at once, so that the next settle recovers."""
        await self.engine.crash()
        self.engine = self._new_engine()

    @contextmanager
    def _nobody_works(self) -> Iterator[None]:
        """Meanwhile nothing settles, and a run that becomes ready is not claimed: the next that comes meets it so."""
        committer = self.runtime.committer
        offer, committer.offer, self._is_held = committer.offer, lambda commands: None, True
        try:
            yield
        finally:
            committer.offer, self._is_held = offer, False

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
            for remark in stubs.remarks():
                warnings.warn(remark, stacklevel=3)
        finally:
            await made.engine.crash()
            await runtime.close()
