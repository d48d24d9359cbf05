"""The PostgreSQL store."""

from bide.stores.postgres.schema import migrate
from bide.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "migrate"]
