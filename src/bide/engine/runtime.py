"""A runtime: one open store with its committer. Clients and engines of one process share it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from bide.core.access import Secret
from bide.core.archive import parse_secrets as parse_ledger_secrets
from bide.core.ledger import LedgerKey
from bide.core.tokens import BadSecrets, Signer, parse_secrets
from bide.engine.committer import Committer
from bide.engine.definitions import Registry, TakesItems
from bide.engine.emissions import Emissions
from bide.engine.ends import Ends
from bide.engine.figures import Figures
from bide.engine.ports import Ports
from bide.engine.settings import Settings
from bide.engine.tail import Tail
from bide.errors import BadConfiguration
from bide.stores.encryption import AesGcm
from bide.stores.interface import Executed, Now, Store
from bide.stores.sealing import Codec

# Whether this task holds a transaction of its own on the store's database (S11).
in_own_transaction: ContextVar[bool] = ContextVar("in_own_transaction", default=False)

# The runtime of the engine that runs the code at hand.
runtime_at_work: ContextVar[Runtime] = ContextVar("runtime_at_work")


class Runtime:
    def __init__(self, store: Store, registry: Registry, settings: Settings, ports: Ports) -> None:
        self.store = store
        self.registry = registry
        self.settings = settings
        self.ports = ports
        self.figures = Figures()
        self.committer = Committer(store, settings.batch, self.figures)
        self.ends = Ends(store, settings.poll_interval.total_seconds())
        self.tail = Tail(store, settings.poll_interval.total_seconds())
        self.emissions = Emissions(registry, settings, ports)
        self.committer.listeners.append(self.announce)
        self.item_work: TakesItems | None = None  # where answered items go at once: the engine of this process
        self._resume_secrets = resume_secrets(settings)  # before anybody waits for a link
        self._signer: Signer | None = None

    async def open(self) -> None:
        await self.store.open()

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        return self.figures.counts

    def count(self, figure: str, label: str = "", by: int = 1) -> None:
        """Add to a figure of this process."""
        self.figures.counts[(figure, label)] += by

    async def signer(self) -> Signer:
        """What resume tokens are made with: the configured secrets, or one that is made and kept in the store (W4)."""
        if self._signer is None:
            secrets = self._resume_secrets
            if not secrets:
                made = Secret(id="s1", secret=self.ports.random_bytes(32).hex(), created_at=self.ports.now())
                secrets = tuple((kept.id, kept.secret.encode()) for kept in await self.store.secrets(made))
            self._signer = Signer(secrets)
        return self._signer

    async def signer_at_hand(self) -> Signer | None:
        """The signer whose links are the ones that were sent; None where that cannot be known.

        Processes that share a database may have secrets that this one was not given.
        """
        is_shared = self.settings.store.startswith(("postgresql:", "postgres:"))
        if self._signer is None and is_shared and not self.settings.resume_secrets:
            return None
        return await self.signer()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """The caller's own transaction on the store's database, and a mark that this task has it open (S11)."""
        async with self.store.connection() as connection:
            token = in_own_transaction.set(True)
            try:
                yield connection
            finally:
                in_own_transaction.reset(token)

    async def close(self) -> None:
        self.tail.close()
        await self.committer.drain()
        await self.ends.drain()
        await self.store.close()

    def announce(self, done: Executed) -> None:
        """Tell those in this process who wait for a run's end, or follow the ledgers."""
        self.tail.grew()
        self.figures.heard(done)
        self.ends.tell(done.ended)


def open_store(
    url: str, settings: Settings, now: Now | None = None, *, migrate: bool = False, codec: Codec | None = None
) -> Store:
    """The store that a URL names; nothing is opened yet. Raises `BadConfiguration`.

    *now* replaces the store's clock (tests). Payloads are sealed with *codec*, or else with the keys of the settings.
    """
    if codec is None and settings.payload_keys:
        codec = AesGcm.parse(settings.payload_keys)
    scheme, separator, rest = url.partition("://")
    maker = _MAKERS.get(scheme)
    if not separator or maker is None:
        known = ", ".join(f"{name}://" for name in _MAKERS)
        raise BadConfiguration(
            f"store {_without_password(url)!r} is not a store URL that bide knows; use one of {known}"
        )
    return maker(url, rest, settings, now, migrate, codec, signing_key(settings))


def resume_secrets(settings: Settings) -> tuple[tuple[str, bytes], ...]:
    """What is configured to sign resume links, by ids; the first is the one to sign with. Raises `BadConfiguration`."""
    try:
        return parse_secrets(settings.resume_secrets)
    except BadSecrets as error:
        raise BadConfiguration(f"setting resume_secrets cannot be used: {error}") from error


def ledger_secrets(settings: Settings) -> dict[str, str]:
    """The secrets of ledgers by their ids; the first is the one to sign with. Raises `BadConfiguration`."""
    try:
        return parse_ledger_secrets(settings.ledger_secrets)
    except ValueError as error:
        raise BadConfiguration(f"setting ledger_secrets cannot be used: {error}") from error


def signing_key(settings: Settings) -> LedgerKey | None:
    return next((LedgerKey(*each) for each in ledger_secrets(settings).items()), None)


def _memory(
    url: str, rest: str, settings: Settings, now: Now | None, migrate: bool, codec: Codec | None, key: LedgerKey | None
) -> Store:
    from bide.engine.ports import wall_clock
    from bide.stores.memory import MemoryStore

    return MemoryStore(now=now or wall_clock, ledger_key=key)


def _sqlite(
    url: str, rest: str, settings: Settings, now: Now | None, migrate: bool, codec: Codec | None, key: LedgerKey | None
) -> Store:
    if not rest.startswith("/") or rest in ("/", "//"):
        raise BadConfiguration(
            f"store {url!r} names no file; write sqlite:///bide.db (relative) or sqlite:////var/lib/bide.db (absolute)"
        )
    from bide.stores.sqlite import SqliteStore

    return SqliteStore(rest[1:], now=now, codec=codec, ledger_key=key)


def _postgres(
    url: str, rest: str, settings: Settings, now: Now | None, migrate: bool, codec: Codec | None, key: LedgerKey | None
) -> Store:
    if not _has_host(url):
        raise BadConfiguration(
            f"store {_without_password(url)!r} names no host; write postgresql://user@host:5432/database"
        )
    try:
        from bide.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise BadConfiguration(
            f"store {_without_password(url)!r} needs a package that is not installed ({error.name}); "
            "install it with: pip install 'bide[postgres]'"
        ) from error
    return PostgresStore(url, now=now, hints=settings.hints, migrate=migrate, codec=codec, ledger_key=key)


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname) or "host=" in url
    except ValueError as error:
        raise BadConfiguration(f"store {_without_password(url)!r} cannot be read as a URL: {error}") from error


def _without_password(url: str) -> str:
    url = re.sub(r"(?<=[?&]password=)[^&]*", "...", url)
    before, at, host = url.rpartition("@")
    if not at:
        return url
    scheme, user = before.partition(":")[0], before.partition("://")[2].partition(":")[0]
    return f"{scheme}://{user}@{host}"


_MAKERS: dict[str, Callable[[str, str, Settings, Now | None, bool, Codec | None, LedgerKey | None], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
}
