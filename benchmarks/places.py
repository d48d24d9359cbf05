"""Where the benchmark's data lies: a fresh file or database for each measurement, removed at the end."""

from __future__ import annotations

import shutil
import tempfile
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import asyncpg

from bide.stores.postgres.schema import migrate
from tests.support.postgres import PostgresServer, available_postgres, postgres_version, temporary_folder

Kind = Literal["sqlite", "postgres"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres")


class Places:
    """A folder for files, and a PostgreSQL server on this machine with its default settings (so `fsync` is on).

    The server is started at the first use. Every system that is measured gets its databases from the same one, over its
    socket in the file system, as one reaches a server on the same machine.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bide-bench-"))
        self._numbers = count(1)
        self._server: PostgresServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.remove()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The stores that can be measured here."""
        return KINDS if available_postgres() else ("sqlite",)

    async def store(self, kind: Kind) -> str:
        """The URL of a new, empty store."""
        if kind == "sqlite":
            return f"sqlite:///{self.file()}"
        url = await self.database()
        await migrate(url)
        return url

    def file(self) -> Path:
        """The path of a file that is not there yet."""
        return self._folder / f"{next(self._numbers)}.db"

    async def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"bench_{next(self._numbers)}"
        connection = await asyncpg.connect(self.server().url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return self.server().socket_url(name)

    def server(self) -> PostgresServer:
        if self._server is None:
            server = PostgresServer(available_postgres()[0], temporary_folder())
            server.start()
            self._server = server
        return self._server

    @staticmethod
    def postgres_version() -> int | None:
        return postgres_version(available_postgres()[0]) if available_postgres() else None
