"""What every test can use: each store there is, brought up by the tests themselves."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.fixtures"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The kind of store a behaviour test runs on: every one, from the day it is there. Give it to `world(store=…)`."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_server").url())
    return f"{request.param}://"
