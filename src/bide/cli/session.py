"""A session: what a command line names (an app and its store, or a server), open for as long as one verb needs it."""

from __future__ import annotations

import asyncio
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bide.cli.output import Output
from bide.cli.usage import NEEDS_STORE, UsageProblem
from bide.core.tokens import HOW_TO_MAKE_ONE
from bide.engine.settings import check_public_url
from bide.errors import BadConfiguration, RunNotFound, StoreUnavailable, Unauthorized

if TYPE_CHECKING:
    from bide.app import App
    from bide.client import Client
    from bide.client.remote import RemoteClient
    from bide.core.records import Run
    from bide.engine.runtime import Runtime

MOST_SENT: Final = 64 * 1024 * 1024  # a server has a limit of its own, and says so; this one is for files by mistake


class Server(NamedTuple):
    """Where to send requests, and as whom."""

    url: str
    key: str


@dataclass(frozen=True)
class Target:
    """The options that every verb takes."""

    app: str | None
    store: str | None
    workspace: str
    json: bool
    url: str | None = None
    key: str | None = None

    def server(self) -> Server | None:
        """The server that is meant, None where it is an app and its store. What is typed goes before what is set."""
        if self.url is not None:
            self._check_alone()
            return Server(self.url, self._key())
        if self.key is not None and not os.environ.get("BIDE_URL"):
            raise UsageProblem("--key is the key of a server, whose --url is missing (a run's own: --correlation-key)")
        url = os.environ.get("BIDE_URL")
        if not url or self.store is not None or self._types_app():
            return None
        self._check_alone()
        return Server(url, self._key())

    def _types_app(self) -> bool:
        return bool(self.app) and self.app != os.environ.get("BIDE_APP")

    def _check_alone(self) -> None:
        if self.store is not None or self._types_app():
            raise UsageProblem("give --url for a server, or --app and --store for a store, not both")
        if self.workspace != "default":
            raise UsageProblem("with --url the key says which workspace it is; leave --workspace out")

    def _key(self) -> str:
        key = self.key or os.environ.get("BIDE_KEY")
        if not key:
            raise UsageProblem("a server wants a key: give --key, or set BIDE_KEY (`bide keys create` makes one)")
        return key

    def open_app(self) -> App:
        """The app, with `--store` put in. Without an app there is one with no definitions, good enough to look."""
        from bide.app import App
        from bide.cli.apps import find_app

        app = find_app(self.app) if self.app else App("bide")
        if self.store is not None:
            app.configure(store=self.store)
        return app

    def need_app(self, verb: str) -> None:
        if not self.app and self.server() is None:
            raise UsageProblem(f"`bide {verb}` needs the app: give --app module:app, or set BIDE_APP", "app_missing")

    def options(self) -> str:
        """What to put behind a command that is to work on the same app, store and workspace."""
        words = []
        if self.url is not None:
            return shlex.join(["--url", self.url])  # no key: what is shown may be passed on
        if self.app and self.app != os.environ.get("BIDE_APP"):
            words += ["--app", self.app]
        if self.store is not None:
            words += ["--store", without_password(self.store)]
        if self.workspace != "default":
            words += ["--workspace", self.workspace]
        return shlex.join(words)


class Session(ABC):
    """What a verb works with, wherever the runs are."""

    client: Any  # a `Client`, or a `RemoteClient` with the same methods

    def __init__(self, target: Target) -> None:
        self.target = target
        self.out = Output(as_json=target.json)

    @property
    @abstractmethod
    def max_payload_bytes(self) -> int: ...

    @abstractmethod
    async def now(self) -> datetime:
        """The time by which ages are told."""

    @property
    def knows_no_definitions(self) -> bool:
        """Whether there is a store and no app: what definitions declare cannot be looked at."""
        return not self.target.app and self.target.server() is None

    async def run_id(self, name: str) -> str:
        """The id of a run that is named by its id or by its correlation key. Raises `RunNotFound`."""
        if name.startswith("run_"):
            return name
        found: str = (await self.client.get(name)).id
        return found


class StoreSession(Session):
    """A session on an app and its store."""

    def __init__(self, target: Target, app: App, runtime: Runtime, client: Client) -> None:
        super().__init__(target)
        self.app = app
        self.runtime = runtime
        self.store = runtime.store
        self.client = client

    @property
    def max_payload_bytes(self) -> int:
        return self.runtime.settings.max_payload_bytes

    async def now(self) -> datetime:
        return await self.store.now()

    async def run(self, name: str) -> Run:
        run_id = await self.run_id(name)
        row = await self.store.run(self.target.workspace, run_id)
        if row is None:
            raise RunNotFound(name)
        return row


class ServerSession(Session):
    """A session over HTTP."""

    max_payload_bytes = MOST_SENT

    def __init__(self, target: Target, client: RemoteClient) -> None:
        super().__init__(target)
        self.client = client

    async def now(self) -> datetime:
        told: datetime = await self.client.now()
        return told


def perform(target: Target, work: Callable[[Session], Awaitable[int | None]], *, creates: bool = False) -> int:
    """Open what the command line names, do the verb's work, close it; the exit code."""
    server = target.server()
    if server is None:
        return perform_on_store(target, work, creates=creates)
    return asyncio.run(_over_http(target, server, work)) or 0


def perform_on_store(
    target: Target, work: Callable[[StoreSession], Awaitable[int | None]], *, creates: bool = False
) -> int:
    """The same for a verb that needs the store itself.

    A verb that only looks must not leave an empty SQLite file where it was called by mistake; *creates* says that
    this one may make the store.
    """
    app = target.open_app()
    if os.environ.get("BIDE_URL") and not target.app and "store" not in app.settings().sources:
        raise UsageProblem(f"{NEEDS_STORE}, or set BIDE_APP or BIDE_STORE: BIDE_URL does not lead to it")
    check_place(app.settings().store, creates=creates)
    return asyncio.run(_within(target, app, work)) or 0


async def _within(target: Target, app: App, work: Callable[[StoreSession], Awaitable[int | None]]) -> int | None:
    from bide.client import Client

    try:
        runtime = await app.runtime()
        return await work(StoreSession(target, app, runtime, Client(app.runtime, target.workspace, actor="cli")))
    finally:
        await app.close()


async def _over_http(target: Target, server: Server, work: Callable[[Session], Awaitable[int | None]]) -> int | None:
    from bide.client.remote import BadAddress, RemoteClient

    try:
        opened = RemoteClient(server.url, server.key)
    except BadAddress as error:
        option = f"--{error.option} (BIDE_{error.option.upper()})"
        raise UsageProblem(f"{option} {error.problem}", error.code) from error
    async with opened as client:
        try:
            return await work(ServerSession(target, client))
        except Unauthorized as error:
            raise Unauthorized(
                f"{server.url} does not take this key: it is wrong, has expired or was revoked; "
                "give another with --key, or set BIDE_KEY (`bide keys create` makes one)"
            ) from error


def check_place(url: str, *, creates: bool) -> None:
    """Raise where the store cannot be what the user means."""
    if url.startswith("memory:"):
        raise BadConfiguration(
            "a memory:// store lives and dies with its process, so no other program can see its runs; "
            "use sqlite:///bide.db or postgresql://…"
        )
    path = sqlite_path(url)
    if path is not None and not creates and not os.path.exists(path):
        raise StoreUnavailable(
            f"there is no store at {path} yet; start a run or a worker, or name another store with --store or --app"
        )


def sqlite_path(url: str) -> str | None:
    """The file of a SQLite store, None for other stores."""
    path = url.removeprefix("sqlite:///")
    return os.path.abspath(path) if path != url and path else None


def without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}@{host}" if at else url


def check_links(app: App) -> None:
    """Links that are sent must lead here; and processes that share a database must sign alike (W4)."""
    settings = app.settings()
    check_public_url(settings)
    if settings.store.startswith(("postgresql:", "postgres:")) and not settings.resume_secrets:
        raise BadConfiguration(
            "resume links need a secret that every process knows: "
            f"set BIDE_RESUME_SECRETS=id:secret ({HOW_TO_MAKE_ONE})"
        )
