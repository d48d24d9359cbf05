"""The SQLite store: one file, one writer at a time, any number of readers."""

from bide.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
