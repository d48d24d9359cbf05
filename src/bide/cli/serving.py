"""`serve` and `dev`: the HTTP API, alone or with a worker in the same process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
import typer

from bide.cli.access import make_key
from bide.cli.output import Output, to_json
from bide.cli.quickly import run_quickly
from bide.cli.session import Target, check_links, without_password
from bide.cli.usage import AppOption, JsonOption, StoreOption, UsageProblem, WorkspaceOption
from bide.core.access import SCOPES, key_hash
from bide.core.durations import parse_duration
from bide.core.samples import sample
from bide.engine.garbage import Collector
from bide.errors import BadConfiguration, BideError

if TYPE_CHECKING:
    from bide.app import App

DEV_KEY = "BIDE_DEV_KEY"
DEV_PORT = "BIDE_DEV_PORT"
LOOK_SECONDS = 0.5
MOST_SOURCES = 5_000
OTHERS_CODE = frozenset({"site-packages", "node_modules", "venv"})

TargetArgument = Annotated[
    str | None,
    typer.Argument(metavar="FILE.py|MODULE:APP", help="The app, in place of --app.", show_default=False),
]
HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
PortOption = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")]


def serve(
    target: TargetArgument = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    app: AppOption = None,
    store: StoreOption = None,
    workspace: WorkspaceOption = "default",
    json: JsonOption = False,
) -> int:
    """Serve the HTTP API. Workers run elsewhere: `bide worker`."""
    aim = _aim("serve", target or app, store, workspace, json)
    found = aim.open_app()
    check_links(found)
    _name(found, host)
    _log()
    return run_quickly(_serve(aim, found, found.opened(), host, port))


def dev(
    target: TargetArgument = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    reload: Annotated[bool, typer.Option("--reload/--no-reload", help="Start again when the code changes.")] = True,
    app: AppOption = None,
    store: StoreOption = None,
    workspace: WorkspaceOption = "default",
    json: JsonOption = False,
) -> int:
    """Serve the HTTP API and run a worker in one process.

    For trying things out. Prints a key, the URLs, and a line to try.
    """
    aim = _aim("dev", target or app, store, workspace, json)
    has_run = reload and DEV_PORT in os.environ  # else what is wrong may be the command
    saved = _Watch(_all_sources, is_new_a_change=True) if has_run else None  # before the code is read
    try:
        found = aim.open_app()
    except (BideError, UsageProblem) as problem:
        if saved is None:
            raise
        return _wait_for_a_better_one(problem, saved)
    _log(tells_all=True)
    watched = _Watch(_loaded_sources) if reload else None
    code = run_quickly(_serve(aim, found, found.lifespan(), host, port, watched=watched, is_dev=True))
    if watched is not None and watched.changed is not None:
        _start_again(watched.changed)
    return code


def _wait_for_a_better_one(problem: Exception, saved: _Watch) -> NoReturn:
    """The code was changed and cannot be loaded: whoever changed it is still at it."""
    print(f"error: {problem}\nwaiting for the next change", file=sys.stderr, flush=True)
    while not saved.has_changed():
        time.sleep(LOOK_SECONDS)
    _start_again(saved.changed)


def _start_again(changed: str | None) -> NoReturn:
    print(f"{changed} changed: starting again", file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "bide", *sys.argv[1:]])


def _name(app: App, host: str) -> None:
    """A server that was told what it is called answers to that, and to the address it listens on (T14)."""
    settings = app.settings()
    if "public_url" in settings.sources and not settings.allowed_hosts:
        app.configure(allowed_hosts=f"{urlsplit(settings.public_url).hostname},{host}")


def _aim(verb: str, app: str | None, store: str | None, workspace: str, json: bool) -> Target:
    if not app:
        raise UsageProblem(
            f"`bide {verb}` needs the app: bide {verb} shop.py, or bide {verb} module:app, or set BIDE_APP",
            "app_missing",
        )
    return Target(app, store, workspace, json)


def _log(*, tells_all: bool = False) -> None:
    """To whoever tries things out it is told what their code raised, with every word of it."""
    if not logging.root.handlers:  # the app may have set up its own
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        if tells_all:
            logging.getLogger("bide.runs").setLevel(logging.DEBUG)


async def _serve(
    aim: Target,
    app: App,
    life: AbstractAsyncContextManager[Any],
    host: str,
    port: int,
    *,
    watched: _Watch | None = None,
    is_dev: bool = False,
) -> int:
    from bide.cli.worker import Stop, metrics_served

    try:
        listening = importlib.import_module("bide.server.listening")
    except ModuleNotFoundError as error:
        raise BadConfiguration(
            f"the HTTP API needs a package that is not installed ({error.name}); "
            "install it with: pip install 'bide[server]'"
        ) from error
    stop = Stop(asyncio.get_running_loop(), quiet=False)
    with listening.bind(host, port or (_dev_port() if is_dev else 0)) as bound:
        if is_dev:
            _lead_to(app, bound.getsockname()[1])
        async with life, metrics_served(await app.runtime()):
            key = await _dev_key(app, aim.workspace) if is_dev else None
            server = listening.listener(app.asgi(), host, port, per_address=app.settings().connections_per_address)
            collector = Collector(app.settings().gc_threshold)
            collector.relax()
            collector.settle()

            def ready(port: int) -> None:
                _announce(aim, app, f"http://{f'[{host}]' if ':' in host else host}:{port}", key)

            watching = asyncio.create_task(watched.until_changed(stop)) if watched is not None else None
            try:
                await listening.listen(server, stop.asked, ready, bound)
            finally:
                if watching is not None:
                    watching.cancel()
    return 0


def _dev_port() -> int:
    """The port that was free the last time, after a restart for changed code: links that were made lead there."""
    return int(os.environ.get(DEV_PORT, "0"))


def _lead_to(app: App, port: int) -> None:
    """Let links lead to this port. They may be made as soon as the engine runs."""
    os.environ[DEV_PORT] = str(port)
    if "public_url" not in app.settings().sources:
        app.configure(public_url=f"http://localhost:{port}")


async def _dev_key(app: App, workspace: str) -> str:
    """A key that is good for a day; after a restart for changed code the same, where the store still takes it."""
    runtime, known = await app.runtime(), os.environ.get(DEV_KEY)
    if known is not None:
        found = await runtime.store.key(key_hash(known))
        if found is not None and found[0].is_good(found[1]) and found[0].workspace == workspace:
            return known
    text, _ = await make_key(runtime, workspace, tuple(SCOPES), name="dev", expires=parse_duration("1d"))
    os.environ[DEV_KEY] = text
    return text


def _announce(aim: Target, app: App, url: str, key: str | None) -> None:
    line = _try_it(app, url, key) if key is not None else None
    if aim.json:
        said = {"event": "ready", "url": url, "app": app.name, "pid": os.getpid(), "key": key, "curl": line}
        print(to_json({name: value for name, value in said.items() if value is not None}), flush=True)
        return
    out = Output(as_json=False)
    out.line(f"{app.name} is served at {url}, on {without_password(app.settings().store)}")
    out.line(f"API: {url}/docs")
    if key is not None:
        out.line(f"key: {key}")
    if line is not None:
        out.line(f"try: {line}")
    sys.stdout.flush()


def _try_it(app: App, url: str, key: str) -> str:
    """A line that works: it starts a run, with an input that its definition takes; or looks at the runs."""
    head = ["curl", "-s", "-H", f"Authorization: Bearer {key}"]
    for name, given in _inputs(app):
        asked = {"definition": name} | ({"input": given} if given is not None else {})
        body = msgspec.json.encode(asked).decode()
        return shlex.join([*head, "-H", "Content-Type: application/json", "-d", body, f"{url}/v1/runs"])
    return shlex.join([*head, f"{url}/v1/runs"])


def _inputs(app: App) -> Iterator[tuple[str, Any]]:
    """Each definition with an input that it takes, where one can be made up; those that need none first."""
    definitions = [app.registry.get(name) for name in sorted(app.registry.names()) if not name.startswith("bide.")]
    for of in (lambda definition: None, lambda definition: sample(definition.input_schema())):
        for definition in definitions:
            given = of(definition)
            try:
                definition.encode_input(given, 64 * 1024)
            except BideError:
                continue
            yield definition.name, given


def _loaded_sources() -> Iterator[str]:
    """The files of the modules that this process has loaded from the folder it runs in."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(os.getcwd()) and "site-packages" not in file:
            yield file


def _all_sources() -> Iterator[str]:
    """All code below the folder that this process runs in, loaded or not; of very much, the first."""
    return islice(_sources_below(os.getcwd()), MOST_SOURCES)


def _sources_below(top: str) -> Iterator[str]:
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if not name.startswith((".", "__")) and name not in OTHERS_CODE]
        yield from (os.path.join(folder, file) for file in files if file.endswith((".py", ".machine")))


class _Watch:
    """Looks whether files have changed since it was made. One that is loaded later has not; one that is *new* may be
    what was missing."""

    def __init__(self, files: Callable[[], Iterator[str]], *, is_new_a_change: bool = False) -> None:
        self.changed: str | None = None
        self._files = files
        self._is_new_a_change = is_new_a_change
        self._seen = self._times()

    def _times(self) -> dict[str, float]:
        times = {}
        for file in self._files():
            try:
                times[file] = Path(file).stat().st_mtime
            except OSError:
                continue
        return times

    def has_changed(self) -> bool:
        for file, moment in self._times().items():
            if self._seen.setdefault(file, 0.0 if self._is_new_a_change else moment) != moment:
                self.changed = file.removeprefix(os.getcwd()).lstrip("/")
                return True
        return False

    async def until_changed(self, stop: Any) -> None:
        while not self.has_changed():  # noqa: ASYNC110  # files do not tell
            await asyncio.sleep(LOOK_SECONDS)
        stop.ask()
