"""The schema: numbered steps forward, each in a transaction of its own."""

from __future__ import annotations

from bide.errors import BadConfiguration, BideError, SchemaMissing, SchemaTooNew
from bide.stores.postgres import address as addresses
from bide.stores.postgres.address import Address
from bide.stores.postgres.failures import FAULTS, unavailable
from bide.stores.postgres.sessions import Connection, Sessions
from bide.stores.postgres.statements import migrations, with_schema

# One migration at a time for each schema, and none that makes everybody wait behind it.
# Whoever comes second waits as long as a step may take, and must see then what was done.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = '300s'"
ENCODINGS = frozenset({"UTF8", "SQL_ASCII"})  # the second keeps whatever it is sent
STEP_SECONDS = 310.0  # the server's own limit comes first
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('bide migrate ' || $1, 0))"
IMPATIENT = "SET LOCAL lock_timeout = '5s'"
HAS_SCHEMA = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)"
HAS_VERSIONS = """
SELECT EXISTS (SELECT 1
                 FROM pg_class
                 JOIN pg_namespace ON pg_namespace.oid = relnamespace
                WHERE nspname = $1 AND relname = 'schema_versions' AND relkind = 'r')
"""
VERSIONS = """
CREATE TABLE {schema}.schema_versions (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
NEWEST_VERSION = "SELECT coalesce(max(version), 0) FROM {schema}.schema_versions"
NOTE_VERSION = "INSERT INTO {schema}.schema_versions (version) VALUES ($1)"


async def migrate(url: str) -> list[int]:
    """Bring the schema up to date; returns the numbers of the steps that were taken, none where it was.

    Raises `SchemaTooNew` where a newer bide made it, and `StoreUnavailable` where it cannot be done now; what was done
    until then stays, and the next call goes on from there.
    """
    address = addresses.parse(url)
    try:
        connection = await Sessions(address, 1, "migrate").connect(cached=False)
    except FAULTS as error:
        raise unavailable(address, error) from error
    try:
        return await take_steps(connection, address)
    finally:
        connection.terminate()


async def take_steps(connection: Connection, address: Address) -> list[int]:
    taken: list[int] = []
    try:
        await check_database(connection, address)
        while (step := await _take_step(connection, address)) is not None:
            taken.append(step)
    except BideError:
        raise
    except FAULTS as error:
        raise unavailable(address, error) from error
    return taken


async def check(connection: Connection, address: Address, *, migrates: bool) -> None:
    """Raise unless the schema is the one that this bide was written for, or can be made so where *migrates*."""
    await check_database(connection, address)
    known = max(migrations())
    found = await version(connection, address)
    if found > known:
        raise SchemaTooNew(_named(address), found, known)
    if found < known:
        if not migrates:
            raise SchemaMissing(_named(address), found, known)
        await take_steps(connection, address)


async def check_database(connection: Connection, address: Address) -> None:
    """Raise `BadConfiguration` where texts, or what is missing in a list, would not come back as they were sent."""
    encoding = connection.get_settings().server_encoding
    if encoding not in ENCODINGS:
        raise BadConfiguration(
            f"the database at {address.shown} is encoded as {encoding}, which lacks most characters: "
            "make one WITH ENCODING 'UTF8' TEMPLATE template0 and name it in the store URL"
        )
    if await connection.fetchval("SELECT current_setting('array_nulls')") != "on":
        raise BadConfiguration(
            f"array_nulls is off for the role at {address.shown}, so that nothing is read as the word null: "
            "ALTER ROLE … SET array_nulls = on"
        )


async def version(connection: Connection, address: Address) -> int:
    """The number of the newest step taken; 0 where there is nothing yet."""
    if not await connection.fetchval(HAS_VERSIONS, address.schema):
        return 0
    found = await connection.fetchval(with_schema(NEWEST_VERSION, address.schema))
    assert isinstance(found, int)
    return found


async def _take_step(connection: Connection, address: Address) -> int | None:
    await connection.execute(BEGIN)
    try:
        await connection.fetchval(LOCK, address.schema, timeout=STEP_SECONDS)
        await connection.execute(IMPATIENT)
        found, known = await version(connection, address), max(migrations())
        if found > known:
            raise SchemaTooNew(_named(address), found, known)
        if found == known:
            return None
        if found == 0:
            await _prepare(connection, address)
        step = min(number for number in migrations() if number > found)
        await connection.execute(with_schema(migrations()[step], address.schema), timeout=STEP_SECONDS)
        await connection.execute(with_schema(NOTE_VERSION, address.schema), step)
        await connection.execute("COMMIT")
        return step
    finally:
        if connection.is_in_transaction() and not connection.is_closed():
            await connection.execute("ROLLBACK")


async def _prepare(connection: Connection, address: Address) -> None:
    # "IF NOT EXISTS" would need the right to create schemas even where one is there.
    if not await connection.fetchval(HAS_SCHEMA, address.schema):
        await connection.execute(with_schema("CREATE SCHEMA {schema}", address.schema))
    if not await connection.fetchval(HAS_VERSIONS, address.schema):
        await connection.execute(with_schema(VERSIONS, address.schema))


def _named(address: Address) -> str:
    return f"PostgreSQL at {address.shown}, schema {address.schema}"
