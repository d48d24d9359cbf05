"""The SQL of this store, read once: one statement per file, named after what it does."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

_HERE = files("bide.stores.sqlite")


def _texts(folder: str) -> dict[str, str]:
    found = (file for file in _HERE.joinpath(folder).iterdir() if file.name.endswith(".sql"))
    return {file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in found}


def _bare(text: str) -> str:
    """A statement without comments and line breaks: for every row of a batch it is found again by all of its text."""
    return " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split())


SQL: Mapping[str, str] = {name: _bare(text) for name, text in _texts("sql").items()}

AUDITS: Mapping[str, str] = {name: text for name, text in sorted(SQL.items()) if name.startswith("audit_")}

MIGRATIONS: Mapping[int, str] = {int(name.split("_")[0]): text for name, text in sorted(_texts("migrations").items())}
