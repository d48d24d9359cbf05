"""What went wrong, by what can be done about it: try again, leave out one command, or tell a person."""

from __future__ import annotations

import asyncpg
import msgspec

from bide.errors import PayloadUnreadable, StoreUnavailable
from bide.stores.postgres.address import Address

# Serialization failure, deadlock, lock timeout, cancelled statement, changed plan, read-only server; and what only a
# pooler can cause: a prepared statement that is missing or there already.
TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57014", "0A000", "25006", "26000", "42P05", "25P03", "25P04"})
# Connection errors, resources (connections, disk, memory) and operators (shutdown, crash, start-up).
TRANSIENT_CLASSES = frozenset({"08", "53", "57"})
# Bad values, broken constraints, limits: the database will never take this row.
REFUSED_CLASSES = frozenset({"22", "23", "54"})
LOST_CONNECTION_CLASSES = frozenset({"08", "57"})
POOLER_STATES = frozenset({"26000", "42P05"})

# All that a call of the driver raises where server or connection fail. A connection that is cut in the middle of a call
# may leave the driver's own state machine astray: that is an `InternalClientError`, which is no `InterfaceError`.
FAULTS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

ADVICE = {
    "28P01": "the password was refused; check user and password in the store URL",
    "28000": "the role was refused; check the user in the store URL and the server's pg_hba.conf",
    "3D000": "there is no such database; create it or correct the store URL",
    "42501": "the role lacks rights; grant it USAGE on the schema and all rights on its tables",
    "42P01": "a table is missing; run `bide migrate`",
    "3F000": "the schema is missing; run `bide migrate`",
    "25006": "the server is read-only; connect to the primary, or wait until it is promoted",
    "53300": "the server has no connection left; raise max_connections or lower pool_size",
    "53100": "the server's disk is full; free space, and start the server if it stopped; the store goes on by itself",
    "55P03": "another session keeps a row locked; nothing of the call was applied, try again, or end that session",
    "57P03": "the server is starting up or shutting down; the store goes on by itself when it is back",
}


class Rivalled(Exception):
    """A row that was free when it was looked up is taken: execute the batch again, it will see the rival."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"another process keeps taking the same {self.what}"


class Refused(Exception):
    """The database will not take this batch, however often it is tried; `__cause__` says why."""


def state_of(error: BaseException) -> str:
    """The SQLSTATE of an error that the server sent; empty for others."""
    return str(error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is tried again."""
    if isinstance(error, Rivalled | OSError | TimeoutError | asyncpg.InternalClientError):
        return True
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, asyncpg.DataError | ValueError)
    state = state_of(error)
    return state in TRANSIENT_STATES or state[:2] in TRANSIENT_CLASSES


def is_refusal(error: BaseException) -> bool:
    """Whether a row of the batch is to blame."""
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error)[:2] in REFUSED_CLASSES
    refusals = Refused | PayloadUnreadable | msgspec.DecodeError | ValueError | OverflowError | AssertionError
    return isinstance(error, refusals)


def is_lost_connection(error: BaseException) -> bool:
    """Whether the answer to a COMMIT is missing, rather than being a no."""
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error)[:2] in LOST_CONNECTION_CLASSES
    return isinstance(error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)


def unavailable(address: Address, error: BaseException) -> StoreUnavailable:
    """The error that callers see: where, what, and the way out; never the password."""
    advice = _advice(error) or "nothing of the call was applied; try again"
    return StoreUnavailable(f"{_named(address)}: {_cause(error)}; {advice}")


def undecided(address: Address, lost: BaseException, error: BaseException) -> StoreUnavailable:
    """The same where *lost* hid the answer to a commit, and *error* is why nobody could be asked for it since."""
    advice = _advice(lost) or _advice(error) or "check the server's log"
    return StoreUnavailable(
        f"{_named(address)} went away during a commit: {_cause(lost)}; {advice}; "
        "whether the call was applied is not known: look before it is made again"
    )


def _named(address: Address) -> str:
    return f"PostgreSQL at {address.shown} (schema {address.schema})"


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _advice(error: BaseException) -> str | None:
    if isinstance(error, TimeoutError):
        return "it did not answer in time; check the network and the server's load"
    if isinstance(error, OSError):
        return "it cannot be reached; check that it runs and that host and port in the store URL are right"
    # Of a server that ended the connection the driver says only that; what the server said last is its cause, if kept.
    states = (state_of(each) for each in (error, error.__cause__) if each is not None)
    return next((ADVICE[state] for state in states if state in ADVICE), None)
