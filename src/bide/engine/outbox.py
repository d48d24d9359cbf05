"""The outbox at work: does what commits promised to tell others, at least once (U7)."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bide.core.commands import Failed
from bide.core.outbox import notice_of, told_id
from bide.core.records import OPEN_WAIT, Chore, Wait
from bide.core.requests import LetGo, SettleChore
from bide.core.retrying import RetryPolicy
from bide.engine.dispatching import Dispatcher, longest_try
from bide.engine.governed import with_allowed_starts
from bide.engine.handing_over import Handoffs
from bide.engine.probes import Crash
from bide.errors import StoreUnavailable
from bide.stores.interface import WaitFilter

if TYPE_CHECKING:
    from bide.engine.engine import Engine

log = logging.getLogger("bide.outbox")

AT_ONCE = 20
PATIENCE = RetryPolicy(attempts=10, first="1s", factor=3, most="1h")  # about three hours in all


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a notifier is told: somebody is asked for something.

    `id` is what an answer is addressed to; `cause` says why it hears of it now.

    >>> def mail(task: Task) -> None:
    ...     print(f"{task.title}, until {task.deadline}: {task.url}")
    """

    id: str
    title: str
    url: str
    deadline: datetime | None
    cause: Literal["opened", "reminder", "escalated"]
    run_id: str
    wait_id: str
    workspace: str
    step: str
    description: str | None = None
    channel: str | None = None
    assignee: str | None = None
    group: str | None = None
    metadata: Mapping[str, Any] | None = None


class Outbox:
    """Claims chores and does them beside the engine's other duties: a slow notifier holds nobody up."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dispatcher = Dispatcher(engine)
        self._handoffs = Handoffs(engine)
        self._dropped: list[Chore] = []  # begun here, and not brought to an end
        self.tasks: dict[asyncio.Task[None], Chore] = {}

    async def tick(self) -> bool:
        """Begin what is due; whether anything was."""
        free = AT_ONCE - len(self.tasks)
        if free <= 0:
            return False
        claimed = await self._engine.runtime.store.claim_chores(free, self._engine.settings.outbox_lease)
        for chore in claimed:
            task = asyncio.create_task(self._do(chore))
            self.tasks[task] = chore
            task.add_done_callback(self._done)
        return bool(claimed)

    def _done(self, task: asyncio.Task[None]) -> None:
        chore = self.tasks.pop(task, None)
        if task.cancelled() or isinstance(task.exception(), Crash):
            self._dropped += [chore] if chore is not None else []
        if not task.cancelled() and isinstance(task.exception(), Crash):
            self._engine.crashed = True
        elif not task.cancelled() and task.exception() is not None:
            log.error("a chore broke; it is tried again when its lease ends", exc_info=task.exception())

    async def stop(self) -> None:
        """Drop what is under way and hand it back: others need not wait until its lease ends (D12)."""
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks))
        dropped, self._dropped = self._dropped, []
        for chore in dropped:
            await self._settle(chore, "again", at_once=True)

    async def _do(self, chore: Chore) -> None:
        try:
            if chore.kind == "emit":
                await self._emit(chore)
                return
            if chore.kind in ("dispatch", "expire"):
                await self._dispatcher.do(chore)
                return
            if chore.kind == "admit":
                await self._handoffs.do(chore)
                return
            if chore.kind in ("hold", "forget"):
                await self._let_go(chore)
                return
            wait = await self._wait_of(chore)
            if wait is None or wait.status not in OPEN_WAIT:
                await self._settle(chore, "dropped")  # nobody needs to hear of what is over
                return
            await self._tell(chore, wait)
        except StoreUnavailable:
            return  # the lease ends by itself
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if PATIENCE.gives_up(chore.tries, error):
                log.error("chore %s is a dead letter after %d tries: %s", chore.id, chore.tries, said)
                await self._settle(chore, "dead", error=said)
                return
            log.warning("chore %s failed and is tried again: %s", chore.id, said)
            await self._settle(chore, "again", error=said)
        else:
            await self._settle(chore, "done")

    async def _emit(self, chore: Chore) -> None:
        """The event goes out and the chore goes away in one commit."""
        runtime = self._engine.runtime
        command = await with_allowed_starts(runtime, runtime.emissions.promised(chore))
        reply = (await runtime.committer.submit(command)).reply
        if isinstance(reply, Failed):
            raise reply.error

    async def _let_go(self, chore: Chore) -> None:
        command = LetGo(workspace=chore.workspace, actor="outbox", run_id=chore.run_id, chore=chore)
        reply = (await self._engine.runtime.committer.submit(command)).reply
        if isinstance(reply, Failed):
            raise reply.error

    async def _wait_of(self, chore: Chore) -> Wait | None:
        wanted = WaitFilter(workspace=chore.workspace, run_id=chore.run_id, no=notice_of(chore).no, status=None)
        found = await self._engine.runtime.store.waits(wanted, after=None, limit=1)
        return found[0] if found else None

    async def _tell(self, chore: Chore, wait: Wait) -> None:
        notice = notice_of(chore)
        notifier = self._engine.runtime.registry.notifiers.get(notice.notifier)
        if notifier is None:
            raise LookupError(f"no notifier {notice.notifier!r} is registered in this process")
        task = self._task(wait, notice.cause)
        async with asyncio.timeout(longest_try(self._engine.settings)):
            if inspect.iscoroutinefunction(notifier):
                await notifier(task)
            else:
                made = await asyncio.get_running_loop().run_in_executor(self._engine.threads, notifier, task)
                if inspect.isawaitable(made):
                    await made

    def _task(self, wait: Wait, cause: Literal["opened", "reminder", "escalated"]) -> Task:
        details = msgspec.json.decode(wait.details)
        id = told_id(wait)
        return Task(
            id=id,
            title=details.get("title") or wait.key,
            url=f"{self._engine.settings.public_url.rstrip('/')}/interactions/{id}",
            deadline=wait.deadline,
            cause=cause,
            run_id=wait.run_id,
            wait_id=wait.id,
            workspace=wait.workspace,
            step=wait.key,
            **{name: details.get(name) for name in ("description", "channel", "assignee", "group", "metadata")},
        )

    async def _settle(
        self,
        chore: Chore,
        outcome: Literal["done", "dropped", "again", "dead"],
        *,
        error: str = "",
        at_once: bool = False,
    ) -> None:
        ports = self._engine.runtime.ports
        command = SettleChore(
            workspace=chore.workspace,
            actor="outbox",
            run_id=chore.run_id,
            chore=chore,
            outcome=outcome,
            delay=timedelta(0) if at_once else PATIENCE.pause(chore.tries, ports.random()),
            error=error,
        )
        with contextlib.suppress(StoreUnavailable):  # the lease ends by itself
            reply = (await self._engine.runtime.committer.submit(command)).reply
            if isinstance(reply, Failed):
                raise reply.error
