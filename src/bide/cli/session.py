"""A session: the app and store that a command line names, open for as long as one verb needs them."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bide.cli.output import Output
from bide.cli.usage import UsageProblem
from bide.errors import BadConfiguration, RunNotFound, StoreCorrupt, StoreUnavailable

if TYPE_CHECKING:
    from bide.app import App
    from bide.client import Client
    from bide.core.records import Run
    from bide.engine.runtime import Runtime
    from bide.views import LedgerEntry


@dataclass(frozen=True)
class Target:
    """The options that every verb takes."""

    app: str | None
    store: str | None
    workspace: str
    json: bool

    def open_app(self) -> App:
        """The app, with `--store` put in. Without an app there is one with no definitions, good enough to look."""
        from bide.app import App
        from bide.cli.apps import find_app

        app = find_app(self.app) if self.app else App("bide")
        if self.store is not None:
            app.configure(store=self.store)
        return app

    def need_app(self, verb: str) -> None:
        if not self.app:
            raise UsageProblem(f"`bide {verb}` needs the app: give --app module:app, or set BIDE_APP", "app_missing")

    def options(self) -> str:
        """What to put behind a command that is to work on the same app, store and workspace."""
        words = []
        if self.app and self.app != os.environ.get("BIDE_APP"):
            words += ["--app", self.app]
        if self.store is not None:
            words += ["--store", without_password(self.store)]
        if self.workspace != "default":
            words += ["--workspace", self.workspace]
        return shlex.join(words)


class Session:
    """What a verb works with."""

    def __init__(self, target: Target, app: App, runtime: Runtime, client: Client) -> None:
        self.target = target
        self.app = app
        self.runtime = runtime
        self.store = runtime.store
        self.client = client
        self.out = Output(as_json=target.json)

    async def run_id(self, name: str) -> str:
        """The id of a run that is named by its id or by its correlation key. Raises `RunNotFound`."""
        if name.startswith("run_"):
            return name
        holder = await self.store.holder(self.target.workspace, name)
        if holder is None:
            raise RunNotFound(name)
        return holder

    async def run(self, name: str) -> Run:
        run_id = await self.run_id(name)
        row = await self.store.run(self.target.workspace, run_id)
        if row is None:
            raise RunNotFound(name)
        return row

    async def ledger(self, run_id: str) -> list[LedgerEntry]:
        """The client's, with what it means where somebody changed a page so that it cannot be read any more."""
        try:
            return await self.client.ledger(run_id)
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(f"the ledger of {run_id} was changed and cannot be read: {error}") from error


def perform(target: Target, work: Callable[[Session], Awaitable[int | None]], *, creates: bool = False) -> int:
    """Open the store, do the verb's work, close it; the exit code.

    A verb that only looks must not leave an empty SQLite file where it was called by mistake; *creates* says that
    this one may make the store.
    """
    app = target.open_app()
    check_place(app.settings().store, creates=creates)
    return asyncio.run(_within(target, app, work)) or 0


async def _within(target: Target, app: App, work: Callable[[Session], Awaitable[int | None]]) -> int | None:
    from bide.client import Client

    try:
        runtime = await app.runtime()
        return await work(Session(target, app, runtime, Client(app.runtime, target.workspace, actor="cli")))
    finally:
        await app.close()


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


def check_secrets(app: App) -> None:
    """Processes that share a database must sign alike: the secret comes from outside there (W4)."""
    settings = app.settings()
    if settings.store.startswith(("postgresql:", "postgres:")) and not settings.resume_secrets:
        raise BadConfiguration(
            "resume links need a secret that every process knows: set BIDE_RESUME_SECRETS=id:secret "
            '(make one with: python -c "import secrets; print(secrets.token_hex(32))")'
        )
