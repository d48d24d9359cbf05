"""The kinds of stores that a behaviour test runs on."""

from __future__ import annotations

import pytest

EVERY_STORE = ["memory", "sqlite", "postgres", "oldest postgres"]


def place_of(kind: str, request: pytest.FixtureRequest) -> str:
    """The store of that kind, as `world(store=…)` takes it."""
    if "postgres" in kind:
        return str(request.getfixturevalue(f"{kind.replace(' ', '_')}_server").url())
    return f"{kind}://"
