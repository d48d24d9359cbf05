"""`worker`: runs the app's runs until it is told to stop, in this process or in several."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from bide.cli.output import Output, to_json
from bide.cli.quickly import run_quickly
from bide.cli.session import Target, check_links, without_password
from bide.cli.usage import AppOption, JsonOption, StoreOption, UsageProblem, WorkspaceOption
from bide.errors import BadConfiguration

if TYPE_CHECKING:
    from bide.app import App
    from bide.cli.supervisor import Lifeline
    from bide.engine.engine import Engine
    from bide.engine.runtime import Runtime

STEP_THREADS = "bide-step"
THREADS_END_SECONDS = 0.5


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself once it takes work."""

    worker: str
    pid: int
    app: str
    store: str
    queues: list[str]
    concurrency: int
    definitions: list[str]


def worker(
    target: Annotated[
        str | None,
        typer.Argument(metavar="FILE.py|MODULE:APP", help="The app, in place of --app.", show_default=False),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Serve this queue (default: default); may be repeated."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Runs at once, per process.", show_default=False),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=1000, help="How many processes to run.")
    ] = 1,
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
    app: AppOption = None,
    store: StoreOption = None,
    workspace: WorkspaceOption = "default",
    json: JsonOption = False,
) -> int:
    """Run a worker; it serves every workspace.

    SIGTERM or Ctrl-C stops it gracefully: running steps finish, the rest is handed back. A second one ends it at once.
    """
    aim = Target(target or app, store, workspace, json)
    if not aim.app:
        raise UsageProblem(
            "`bide worker` needs the app: bide worker shop.py, or bide worker module:app, or set BIDE_APP",
            "app_missing",
        )
    queues = frozenset(queue or ["default"])
    if processes > 1:
        from bide.cli.supervisor import supervise

        found = aim.open_app()
        check_links(found)  # what is wrong is said once, and not by every child
        if found.settings().metrics_port:
            raise UsageProblem("metrics_port is one port and cannot be shared by --processes; start them one by one")
        return supervise(_child_command(aim, queues, concurrency), processes, _announcer(json))
    return _work_here(aim, queues, concurrency, lifeline)


def _child_command(aim: Target, queues: frozenset[str], concurrency: int | None) -> list[str]:
    assert aim.app is not None, "checked before"
    command = [sys.executable, "-m", "bide", "worker", aim.app]
    for queue in sorted(queues):
        command += ["--queue", queue]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    if aim.store is not None:
        command += ["--store", aim.store]
    return command


def _announcer(as_json: bool) -> Callable[[list[Ready]], None]:
    """Prints the one line that says that every process takes work."""

    def announce(ready: list[Ready]) -> None:
        if as_json:
            print(to_json({"event": "ready", "workers": ready}), flush=True)
            return
        first = ready[0]
        who = f"worker {first.worker} is" if len(ready) == 1 else f"{len(ready)} worker processes are"
        queues = f"queue{'s' if len(first.queues) > 1 else ''} {', '.join(first.queues)}"
        definitions = f"{len(first.definitions)} definition{'' if len(first.definitions) == 1 else 's'}"
        print(f"{who} ready: {first.app} on {first.store}, {queues}, {definitions}", flush=True)

    return announce


# ---------------------------------------------------------------- one process


def _work_here(aim: Target, queues: frozenset[str], concurrency: int | None, lifeline_fd: int | None) -> int:
    app = aim.open_app()
    check_links(app)
    if concurrency is not None:
        app.configure(concurrency=concurrency)
    if not logging.root.handlers:  # the app may have set up its own
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    lifeline: Lifeline | None = None
    if lifeline_fd is not None:
        from bide.cli.supervisor import Lifeline

        lifeline = Lifeline(lifeline_fd)
    run_quickly(_serve(app, queues, _announcer(aim.json), lifeline))
    _leave_stuck_threads()
    return 0


async def _serve(
    app: App, queues: frozenset[str], announce: Callable[[list[Ready]], None], lifeline: Lifeline | None
) -> None:
    stop = Stop(asyncio.get_running_loop(), quiet=lifeline is not None)
    if lifeline is not None:
        lifeline.watch(stop.ask)
    async with app.engine(queues=queues) as engine, metrics_served(engine.runtime):
        ready = _ready(app, engine)
        if not ready.definitions:
            Output(as_json=False).note(f"{ready.app} has no definitions: this worker can run nothing")
        if lifeline is not None:
            lifeline.tell(ready)
        else:
            announce([ready])
        await stop.asked.wait()


@asynccontextmanager
async def metrics_served(runtime: Runtime) -> AsyncIterator[None]:
    """Figures on a port of their own where one is set; the packages for it are looked for only then."""
    if not runtime.settings.metrics_port:
        yield
        return
    try:
        module = importlib.import_module("bide.server.metrics_port")
    except ModuleNotFoundError as error:
        raise BadConfiguration(
            f"metrics_port needs a package that is not installed ({error.name}); "
            "install it with: pip install 'bide[server]'"
        ) from error
    async with module.metrics_served(runtime):
        yield


def _ready(app: App, engine: Engine) -> Ready:
    return Ready(
        worker=engine.worker,
        pid=os.getpid(),
        app=app.name,
        store=without_password(engine.settings.store),
        queues=sorted(engine.queues),
        concurrency=engine.settings.concurrency,
        definitions=sorted(app.registry.names()),
    )


class Stop:
    """The first signal asks for a graceful stop, the second ends the process at once.

    Plain signal handlers, not the event loop's: the second must work while user code blocks the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, quiet: bool) -> None:
        self.asked = asyncio.Event()
        self._loop = loop
        self._quiet = quiet
        self._is_asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def ask(self) -> None:
        self._is_asked = True
        self._loop.call_soon_threadsafe(self.asked.set)

    def _received(self, number: int, _: Any) -> None:
        if self._is_asked:
            os._exit(128 + number)
        self.ask()  # before a word is said: who reads it may send the second signal while this handler runs
        if not self._quiet:
            os.write(2, b"stopping: running steps may finish; once more to stop at once\n")


def _leave_stuck_threads() -> None:
    """Python waits for every thread at exit; a step that outlived its grace must not keep the process (D12)."""
    until = time.monotonic() + THREADS_END_SECONDS
    left = [thread for thread in threading.enumerate() if thread.name.startswith(STEP_THREADS)]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in left):
        Output(as_json=False).note("a step did not end within the grace time; its run was handed back")
        sys.stdout.flush()
        os._exit(0)
